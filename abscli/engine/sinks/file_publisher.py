"""The publisher of folders and buckets: who may write part files there, and which of them are visible.

Before anything is written into a sink it is locked, compared and claimed, in this order. Parts become visible here,
after the manifest that names them: not by the workers, of which each may be lost, or be the worker of a job that has
lost its store.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property, partial

from abscli.engine.errors import EngineStopped, Overtaken, UsageError
from abscli.engine.sinks.bucket_moves import BucketMoves
from abscli.engine.sinks.contract import Compared, History, Ownership, Taken
from abscli.engine.sinks.elsewhere import key_of
from abscli.engine.sinks.examined import Examined, sink_facts
from abscli.engine.sinks.gaps import FilesOfSink, find_gap_in_files, records_of, rows_missing
from abscli.engine.sinks.moves import Moves
from abscli.engine.sinks.places import place_of
from abscli.engine.sinks.promises import Promises, wanted_of
from abscli.engine.sinks.refusals import parts_missing, way_on
from abscli.engine.sinks.settling import bring_in, put_away_for_good, settle_bucket, show, take_away
from abscli.engine.sinks.staged.contract import Delivery, StagedPart, StagedPartName
from abscli.engine.sinks.staged.refusals import commits_lost
from abscli.planner.lineage import by_number, lives_of, maker, stretches
from abscli.planner.settlement import SinkFacts, settle
from abscli.protocol.committer import Obstacle
from formats.disk import sync_folder
from formats.errors import Damaged, StoreInUse
from formats.ids import EpochId
from formats.job.model import Operator
from formats.native import lock
from formats.native.facts import PartFacts, SinkFile
from formats.native.sink import (
    CLAIMS,
    Claims,
    PartId,
    SinkClaim,
    SinkFolder,
    Stretch,
    epoch_of_part,
    new_claim,
    task_of_part,
)
from formats.native.sink_bucket import SinkBucket, is_bucket
from formats.native.transactions import Transaction
from formats.storage import LocalStorage, ObjectStorage, Storage, absolute, deciding, no_directory
from formats.timestamps import now


class FilePublisher:
    """The `Publisher` of a sink that writes part files into a folder or a bucket.

    directory: of the job file.
    path: where it writes.
    others: where the other sinks of the job write.
    """

    def __init__(self, sink: Operator, directory: str, path: str, others: Collection[str]) -> None:
        self._sink = sink
        self._directory = directory
        self._path = path
        self._others = others
        self._claim: SinkClaim | None = None
        self._marker: EpochId | None = None
        self.examined: Examined | None = None

    @property
    def operator(self) -> str:
        """Return the id of the sink."""
        return self._sink.id

    @property
    def place(self) -> str:
        """Return the path of the folder, or the URI of the place in a bucket."""
        return self._path

    @cached_property
    def _folder(self) -> SinkFolder | SinkBucket:
        return SinkBucket(self._path) if is_bucket(self._path) else SinkFolder(self._path)

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Lock the folder against every other job. Raises StoreInUse, naming the holder."""
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(lock.exclusive(self._lockable()))
            except StoreInUse as error:
                raise StoreInUse(
                    f"sink {self.operator} is {error.message}", path=self._path,
                    hint="wait for that job, or stop it with SIGTERM; or give the sink another path",
                ) from None  # fmt: skip
            stack.enter_context(deciding(self._folder.storage))
            yield

    def _lockable(self) -> Storage:
        """Return the storage that holds the lock of the sink. Raises UsageError if its path cannot be a directory."""
        claims = f"{self._path}/{CLAIMS}"
        if is_bucket(claims):
            return ObjectStorage(claims)
        if obstacle := no_directory(self._path):
            raise UsageError(
                f"sink {self.operator}: {self._path} cannot be used as a directory: {obstacle}",
                hint="move the file that is in the way; or give the sink another path",
            )
        os.makedirs(claims, exist_ok=True)
        return LocalStorage(claims)

    # -- before anything is changed -----------------------------------------------------------------------

    def compare(self, history: History) -> Compared:
        """Compare the folder with a history; see `Publisher.compare`.

        Nothing is due: what is missing and staged becomes visible when the folder is taken.
        """
        op, path, folder, promises, parent = self._sink, self._path, self._folder, history.promises, history.parent
        origin = history.before.get(op.id)  # None if the sink was added later
        claim = _newest_claim(folder)
        # What is above all numbers of the store was made after it was copied, by an attempt that it does not know.
        showing = claim.line if claim is not None else by_number(promises.lives, promises.highest)
        facts = sink_facts(folder, showing, promises.named)
        taken_over, foreign = None, None
        if facts.visible:
            if claim is None:
                foreign = self._not_ours(facts)
            elif claim.attempt_id not in {attempt.id for attempt in promises.attempts}:
                taken_over, foreign = claim.store, self._of_another_store(claim)
        if origin is None and foreign is None:
            foreign = self._of_another_sink(facts, promises, parent)
        id = op.id if origin is None else origin
        wanted = wanted_of(promises, id, partial(self._lies_in, present=facts.parts()), parent)
        records = records_of(promises, parent, id, lambda target: place_of(self._directory, target) == path)
        settlement = settle(facts, wanted)
        pending = {*settlement.reveal, *settlement.back} - {part.id for part in settlement.missing}
        files = FilesOfSink(folder.markers(), showing, facts.parts(), pending)
        gap = find_gap_in_files(promises, parent, id, records, files)
        if gap is not None and settlement.missing and records[min(records)].previous <= gap.above:
            gap = None  # kept manifests name all of these rows: which parts are missing says more
        committed = None
        if parent in records and (attempt_id := maker(wanted.line, records[parent].epoch)) is not None:
            committed = EpochId(attempt_id, records[parent].epoch)
        self.examined = examined = Examined(op.id, folder, claim, showing, wanted, taken_over, committed)
        obstacles: dict[Obstacle, Exception] = {}
        if foreign is not None:
            obstacles[Obstacle.FOREIGN] = foreign
        if gap is not None:
            obstacles[Obstacle.MISSING] = rows_missing(op.id, path, gap)
        if settlement.missing:
            obstacles[Obstacle.LOST] = parts_missing(examined, settlement.missing, history.store)
        return Compared(path, (), obstacles, (), frozenset(key_of(id, part, file) for part, file in wanted.due.items()))

    def _lies_in(self, part: PartId, file: SinkFile, *, present: Collection[PartId]) -> bool:
        """Tell whether a part belongs in the folder that the job file names now.

        It was written there; or it is there because the folder was moved or its path is spelled differently.
        """
        if not _is_file(file):
            return False  # of a time when the sink was of another type
        made_in = place_of(self._directory, file.directory)
        return made_in == self._path or (part in present and made_in not in self._others)

    def _of_another_store(self, claim: SinkClaim) -> UsageError:
        return UsageError(
            f"sink {self.operator}: {self._path} contains output of attempt {claim.attempt} of the store "
            f"{claim.store}: the current store has no attempt that new",
            hint=f"resume with the store {claim.store}; or give the sink another path; or use --take-ownership to "
            "move aside all output that the current store did not write",
        )

    def _of_another_sink(self, facts: SinkFacts, promises: Promises, parent: int) -> UsageError | None:
        """Return the error for a new sink in the folder of another sink of the job, whose output it would set aside."""
        epoch = parent
        while epoch in promises.parts:
            for operator, parts in promises.parts[epoch].items():
                if any(id in facts.visible and self._made_here(file) for id, file in parts.items()):
                    return UsageError(
                        f"sink {self.operator}: {self._path} contains the output of sink {operator} of this job",
                        hint=way_on(operator, self.operator),
                    )
            epoch = promises.parents[epoch]
        return None

    def _made_here(self, file: SinkFile) -> bool:
        return _is_file(file) and place_of(self._directory, file.directory) == self._path

    def _not_ours(self, facts: SinkFacts) -> UsageError:
        first = min(part.name for part in facts.visible)
        return UsageError(
            f"sink {self.operator}: {self._path} already holds {first}, which this store did not write",
            hint="give the sink another path; or remove the existing output; or use --take-ownership to move it aside",
        )

    # -- what changes it ----------------------------------------------------------------------------------

    def take(self, ownership: Ownership) -> Taken:
        """Claim the folder for the attempt, and make it show exactly what belongs to the attempt's parent."""
        assert self.examined is not None
        sink, attempt, store = self.examined, ownership.attempt, ownership.store
        lives = lives_of(ownership.older, store.is_fenced)
        line = (Stretch(attempt.id, attempt.first_epoch, None), *stretches(lives, attempt.parent))
        if isinstance(sink.folder, SinkBucket):
            # Names say who made what: what shows need not agree with the newest claim, and all is done under ours.
            claim = self._put_claim(sink, ownership, line)
            settle_bucket(sink, sink.folder, claim, self._bucket_moves(sink.folder, claim))
        else:
            # What is visible has to agree with the newest claim at every moment: so what is not of both lines goes
            # before the new claim, and what only the new one has comes after it.
            take_away(sink, self._moves(sink.folder, sink.claim))
            claim = self._put_claim(sink, ownership, line)
            # Whoever had the sink before may have shown a last part in between; from here on it cannot.
            bring_in(sink, sink.folder, self._moves(sink.folder, claim), {life.id for life in ownership.older})
        self._claim = claim
        if sink.committed is not None:
            # Those of other branches go, too: their parts were set aside.
            sink.folder.put_marker(sink.committed, sink.folder.markers())
            self._marker = sink.committed
        return Taken(None, sink.committed)

    def _put_claim(self, sink: Examined, ownership: Ownership, line: tuple[Stretch, ...]) -> SinkClaim:
        store, attempt = ownership.store, ownership.attempt
        claim = new_claim(
            sink.claim.number + 1 if sink.claim else 1,
            job=store.job,
            store=absolute(store.path),
            attempt=attempt.attempt,
            attempt_id=attempt.id,
            line=line,
            claimed=now(),
        )
        try:
            sink.folder.put_claim(claim)
        except FileExistsError:
            raise self._overtaken() from None
        return claim

    def delivery(self, parts: Sequence[PartFacts]) -> Delivery | None:
        """Return the part files that a manifest names; None if there are none."""
        staged = sorted(
            (StagedPart(self._id(part.attempt_id, file.name), file)
             for part in parts for file in part.sink if _is_file(file)),
            key=lambda part: part.id,
        )  # fmt: skip
        epoch = max((part.epoch for part in parts), default=0)
        made_by = staged[0].id.attempt_id if staged else ""
        return Delivery(EpochId(made_by, epoch), tuple(staged), self._folder.storage) if staged else None

    def _id(self, attempt_id: str, name: str) -> Transaction:
        """Return whose part a name is. Raises Damaged for one that leads elsewhere."""
        return Transaction(attempt_id, epoch_of_part(name), task_of_part(name), self.operator)

    def publish(self, delivery: Delivery, *, is_resumed: bool) -> EpochId:
        """Make part files visible, then write the commit marker.

        Raises Overtaken if another attempt has taken the sink; Damaged if a part is missing or was replaced.
        """
        folder, claim = self._folder, self._claim
        assert claim is not None
        if isinstance(folder, SinkBucket):
            files = [(PartId(part.id.attempt_id, part.file.name), part.file) for part in delivery.parts]
            self._bucket_moves(folder, claim).complete(files)
        else:
            moves = self._moves(folder, claim)
            for part in delivery.parts:
                show(folder, moves, part.id.attempt_id, part.file)
            sync_folder(folder.path)
        marker = EpochId(delivery.epoch.attempt_id, max(part.id.epoch for part in delivery.parts))
        folder.put_marker(marker, () if self._marker is None else (self._marker,))
        self._marker = marker
        return marker

    def verify(self, commit: EpochId) -> None:
        """Raise EngineStopped if the folder or bucket has become an older copy of itself while the job ran."""
        if not self._folder.has_marker(commit):
            if self._claim is not None and not self._folder.is_newest(self._claim):
                raise self._overtaken()
            raise commits_lost(self.operator, self._path, commit)

    def discard(self, goes: Callable[[StagedPartName], bool]) -> None:
        """Set staged parts aside for good.

        This has to be done before manifests are removed: without the manifest of its epoch, such a part would be taken
        for one that the manifest named.
        """
        if self._claim is None or isinstance(self._folder, SinkBucket):
            return  # an upload that no manifest names is never shown, also where manifests are gone
        moves = self._moves(self._folder, self._claim)
        for part in self._folder.staged_by(self._claim.attempt_id):
            if goes(StagedPartName(self._id(part.attempt_id, part.name), part.name)):
                put_away_for_good(moves, part)

    def changed_meanwhile(self, newest: EpochId | None) -> EngineStopped | None:
        """Return the error for a folder or bucket that another attempt has taken over, or that became an older copy of
        itself; None if neither is so."""
        if self._claim is None:
            return None
        try:
            if not self._folder.is_newest(self._claim):
                return self._overtaken()
            if newest is not None:
                self.verify(newest)
        except EngineStopped as error:
            return error
        return None

    def _moves(self, folder: SinkFolder, claim: SinkClaim | None) -> Moves:
        return Moves(folder, claim, self._overtaken)

    def _bucket_moves(self, bucket: SinkBucket, claim: SinkClaim) -> BucketMoves:
        return BucketMoves(bucket, claim, self._overtaken)

    def _overtaken(self) -> Overtaken:
        other = self._folder.newest_claim()
        if other is None:
            return Overtaken(
                f"sink {self.operator}: {self._path} was emptied while the job ran: its claim is missing",
                hint="restore the deleted files, if possible; then run `abs run --resume`, which lists what else is "
                "missing",
            )
        return Overtaken(
            f"sink {self.operator}: {self._path} was taken over by attempt {other.attempt} on the store {other.store}",
            hint=f"resume with the store {other.store}; the rows staged in the current store are kept",
        )


def _is_file(file: SinkFile) -> bool:
    """Tell whether rows were written as a part file of a folder or bucket."""
    return file.staged is None and file.prepared is None


def _newest_claim(folder: Claims) -> SinkClaim | None:
    try:
        return folder.newest_claim()
    except Damaged as error:
        # An older claim would be taken for the newest, and say of what is visible that another attempt made it.
        error.hint = (
            f"delete the folder {CLAIMS} that contains it, and run again with --take-ownership, which uses the epoch "
            "numbers"
        )
        raise
