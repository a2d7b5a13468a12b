"""Sinks that write part files into folders and buckets: who may write them, and which parts are visible.

Before anything is written into a sink it is locked, examined and claimed, in this order. Parts become visible here,
after the manifest that names them: not by the workers, of which each may be lost, or be the worker of a job that has
lost its store.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial

from abscli.engine.errors import EngineStopped, Overtaken, UsageError
from abscli.engine.sinks.bucket_moves import BucketMoves
from abscli.engine.sinks.delivered_epochs import DeliveredEpochs
from abscli.engine.sinks.examined import Examined, sink_facts
from abscli.engine.sinks.gaps import FilesOfSink, find_gap_in_files, records_of, rows_missing
from abscli.engine.sinks.moves import Moves
from abscli.engine.sinks.permissions import Permissions
from abscli.engine.sinks.places import folder_of, place_of
from abscli.engine.sinks.promises import Promises, wanted_of
from abscli.engine.sinks.refusals import parts_missing, way_on
from abscli.engine.sinks.settling import bring_in, put_away_for_good, settle_bucket, show, take_away
from abscli.planner.lineage import by_number, lives_of, maker, stretches
from abscli.planner.settlement import SinkFacts, settle
from formats.disk import sync_folder
from formats.errors import Damaged, StoreInUse
from formats.ids import EpochId
from formats.job.model import Operator
from formats.native import lock
from formats.native.facts import AttemptFacts, PartFacts, SinkFile
from formats.native.sink import CLAIMS, Claims, PartId, SinkClaim, SinkFolder, Stretch, epoch_of_part, new_claim
from formats.native.sink_bucket import SinkBucket, is_bucket
from formats.native.store import NativeStore
from formats.storage import LocalStorage, ObjectStorage, Storage, absolute, no_directory
from formats.timestamps import now


class Files:
    """The sinks of one attempt that write part files.

    directory: of the job file.
    sinks_in: see `abscli.engine.job.JobOptions`.
    """

    def __init__(
        self, sinks: Sequence[Operator], directory: str, permissions: Permissions, sinks_in: str | None
    ) -> None:
        self._sinks = sinks
        self._directory = directory
        self._permissions = permissions
        self._sinks_in = sinks_in
        self._claims: dict[str, tuple[SinkFolder | SinkBucket, SinkClaim]] = {}
        self._delivered = DeliveredEpochs()

    @property
    def places(self) -> list[tuple[str, str]]:
        """Return the id of each sink with its folder or bucket."""
        return [(op.id, self._folder(op)) for op in self._sinks]

    def _folder(self, op: Operator) -> str:
        return folder_of(op, self._directory, self._sinks_in)

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Lock the sinks against every other job. Raises StoreInUse, naming the holder."""
        with contextlib.ExitStack() as stack:
            for op in self._sinks:
                try:
                    stack.enter_context(lock.exclusive(self._lockable(op)))
                except StoreInUse as error:
                    raise StoreInUse(
                        f"sink {op.id} is {error.message}", path=self._folder(op),
                        hint="wait for that job, or stop it with SIGTERM; or give the sink another path",
                    ) from None  # fmt: skip
            yield

    def _lockable(self, op: Operator) -> Storage:
        """Return the storage that holds the lock of a sink. Raises UsageError if its path cannot be a directory."""
        claims = f"{self._folder(op)}/{CLAIMS}"
        if is_bucket(claims):
            return ObjectStorage(claims)
        if obstacle := no_directory(self._folder(op)):
            raise UsageError(
                f"sink {op.id}: {self._folder(op)} cannot be used as a directory: {obstacle}",
                hint="move the file that is in the way; or give the sink another path",
            )
        os.makedirs(claims, exist_ok=True)
        return LocalStorage(claims)

    # -- before anything is changed -----------------------------------------------------------------------

    def examine(
        self, store: NativeStore | None, promises: Promises, parent: int, before: Mapping[str, str]
    ) -> list[Examined]:
        """Compare each sink with the history that leads to epoch `parent`; nothing is changed.

        before: by sink, its id in that epoch, if it was there.
        Raises UsageError if another store or another sink has written since, or something is visible that nobody
        claims; Damaged if parts of the history are missing.
        """
        examined = [self._examine(op, promises, parent, before.get(op.id)) for op in self._sinks]
        if not self._permissions.accept_missing:
            for sink in examined:
                if sink.gap is not None:
                    raise rows_missing(sink.operator, sink.folder.path, sink.gap)
                if missing := sink.settlement().missing:
                    raise parts_missing(sink, missing, store)
        return examined

    def _examine(self, op: Operator, promises: Promises, parent: int, origin: str | None) -> Examined:
        """Compare one sink with the history.

        origin: the sink's id in the epoch `parent`; None if the sink was added later.
        """
        path = self._folder(op)
        folder = SinkBucket(path) if is_bucket(path) else SinkFolder(path)
        claim = _newest_claim(folder)
        lives = promises.lives
        # What is above all numbers of the store was made after it was copied, by an attempt that it does not know.
        showing = claim.line if claim is not None else by_number(lives, promises.highest)
        facts = sink_facts(folder, showing, promises.named)
        taken_over = None
        if facts.visible:
            if claim is None:
                self._may_adopt(op, folder, facts)
            elif claim.attempt_id not in {attempt.id for attempt in promises.attempts}:
                taken_over = claim.store
                self._may_take_ownership(op, folder, claim)
        other_folders = {self._folder(sink) for sink in self._sinks if sink is not op}
        lies_in = partial(self._lies_in, op=op, present=facts.parts(), other_folders=other_folders)
        if origin is None:
            self._may_follow(op, folder, facts, promises, parent)
        id = op.id if origin is None else origin
        wanted = wanted_of(promises, id, lies_in, parent)
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
        return Examined(op.id, folder, claim, showing, wanted, taken_over, gap, committed)

    def _lies_in(self, part: PartId, file: SinkFile, *, op: Operator, present: Collection[PartId],
                 other_folders: Collection[str]) -> bool:  # fmt: skip
        """Tell whether a part belongs in the folder that the job file names now.

        It was written there; or it is there because the folder was moved or its path is spelled differently.
        """
        if file.staged is not None or file.prepared is not None:
            return False  # of a time when the sink was of another type
        made_in = place_of(self._directory, file.directory)
        return made_in == self._folder(op) or (part in present and made_in not in other_folders)

    def _may_take_ownership(self, op: Operator, folder: Claims, claim: SinkClaim) -> None:
        if not self._permissions.take_ownership:
            raise UsageError(
                f"sink {op.id}: {folder.path} contains output of attempt {claim.attempt} of the store {claim.store}: "
                "the current store has no attempt that new",
                hint=f"resume with the store {claim.store}; or give the sink another path; or use --take-ownership to "
                "move aside all output that the current store did not write",
            )

    def _may_follow(
        self, op: Operator, folder: Claims, facts: SinkFacts, promises: Promises, parent: int
    ) -> None:
        """Raise UsageError for a new sink in the folder of another sink of the job, whose output it would set aside."""
        epoch = parent
        while epoch in promises.parts and not self._permissions.take_ownership:
            for operator, parts in promises.parts[epoch].items():
                for id in parts:
                    if id in facts.visible and self._made_here(op, parts[id]):
                        raise UsageError(
                            f"sink {op.id}: {folder.path} contains the output of sink {operator} of this job",
                            hint=way_on(operator, op.id),
                        )
            epoch = promises.parents[epoch]

    def _made_here(self, op: Operator, file: SinkFile) -> bool:
        is_file = file.staged is None and file.prepared is None
        return is_file and place_of(self._directory, file.directory) == self._folder(op)

    def _may_adopt(self, op: Operator, folder: Claims, facts: SinkFacts) -> None:
        if not self._permissions.take_ownership:
            first = min(part.name for part in facts.visible)
            raise UsageError(
                f"sink {op.id}: {folder.path} already holds {first}, which this store did not write",
                hint="give the sink another path; or remove the existing output; or use --take-ownership to move it "
                "aside",
            )

    # -- what changes them --------------------------------------------------------------------------------

    def take(self, examined: Sequence[Examined], store: NativeStore, attempt: AttemptFacts) -> None:
        """Claim every sink for the attempt, and make it show exactly what belongs to the attempt's parent."""
        older = [life for life in store.attempts() if life.attempt < attempt.attempt]
        lives = lives_of(older, store.is_fenced)
        line = (Stretch(attempt.id, attempt.first_epoch, None), *stretches(lives, attempt.parent))
        for sink in examined:
            if isinstance(sink.folder, SinkBucket):
                # Names say who made what: what shows need not agree with the newest claim, and all is done under ours.
                claim = self._claim(sink, store, attempt, line)
                settle_bucket(sink, sink.folder, claim, self._bucket_moves(sink.operator, sink.folder, claim))
                self._mark_settled(sink)
                continue
            moves = self._moves(sink.operator, sink.folder, sink.claim)
            # What is visible has to agree with the newest claim at every moment: so what is not of both lines goes
            # before the new claim, and what only the new one has comes after it.
            take_away(sink, moves)
            claim = self._claim(sink, store, attempt, line)
            # Whoever had the sink before may have shown a last part in between; from here on it cannot.
            moves = self._moves(sink.operator, sink.folder, claim)
            bring_in(sink, sink.folder, moves, {life.id for life in older})
            self._mark_settled(sink)

    def _mark_settled(self, sink: Examined) -> None:
        """Record that a sink shows all rows that lead to the attempt's parent, or that the user goes on without them.
        """
        if sink.committed is not None:
            # Those of other branches go, too: their parts were set aside.
            sink.folder.put_marker(sink.committed, sink.folder.markers())
            self._delivered.note(sink.operator, sink.committed)

    def _mark_published(self, operator: str, folder: Claims, epoch: EpochId) -> None:
        before = self._delivered.newest(operator)
        folder.put_marker(epoch, () if before is None else (before,))
        self._delivered.note(operator, epoch)

    def _check_marker(self, operator: str, folder: SinkFolder | SinkBucket, claim: SinkClaim) -> None:
        """Raise EngineStopped if the folder or bucket has become an older copy of itself while the job ran."""
        try:
            self._delivered.check(operator, folder.path, folder.has_marker)
        except EngineStopped:
            if not folder.is_newest(claim):
                raise self._overtaken(operator, folder) from None
            raise

    def _moves(self, operator: str, folder: SinkFolder, claim: SinkClaim | None) -> Moves:
        return Moves(folder, claim, partial(self._overtaken, operator, folder))

    def _bucket_moves(self, operator: str, bucket: SinkBucket, claim: SinkClaim) -> BucketMoves:
        return BucketMoves(bucket, claim, partial(self._overtaken, operator, bucket))

    def _claim(
        self, sink: Examined, store: NativeStore, attempt: AttemptFacts, line: tuple[Stretch, ...]
    ) -> SinkClaim:
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
            raise self._overtaken(sink.operator, sink.folder) from None
        self._claims[sink.operator] = sink.folder, claim
        return claim

    def reveal(self, parts: Sequence[PartFacts]) -> None:
        """Make the parts visible that a complete epoch names. This can be repeated without harm.

        Raises Overtaken if another attempt has taken a sink; Damaged if a part is missing or was replaced.
        """
        epoch = max((part.epoch for part in parts), default=0)
        by_operator: dict[str, list[PartFacts]] = {}
        for part in parts:
            if part.operator in self._claims and part.sink:
                by_operator.setdefault(part.operator, []).append(part)
        for operator, its_parts in by_operator.items():
            folder, claim = self._claims[operator]
            self._check_marker(operator, folder, claim)
            newest = max(epoch_of_part(file.name) for part in its_parts for file in part.sink)
            marker = EpochId(its_parts[0].attempt_id, newest)
            if isinstance(folder, SinkBucket):
                files = [(PartId(part.attempt_id, file.name), file) for part in its_parts for file in part.sink]
                self._bucket_moves(operator, folder, claim).complete(files)
                self._mark_published(operator, folder, marker)
                continue
            moves = self._moves(operator, folder, claim)
            for part in its_parts:
                for file in part.sink:
                    show(folder, moves, part.attempt_id, file)
            sync_folder(folder.path)
            self._mark_published(operator, folder, marker)
        self._clear_strays(epoch)

    def _clear_strays(self, epoch: int) -> None:
        """Put away what the attempt has staged up to an epoch that it has shown, and not named: of a task that was lost
        since, and has made the rows again.

        It has to go before the manifests do: without them it would be taken for a part of the epoch that it was made
        for.
        """
        for operator, (folder, claim) in self._claims.items():
            if isinstance(folder, SinkBucket):
                continue  # an upload that no manifest names is never shown, also where manifests are gone
            moves = self._moves(operator, folder, claim)
            for part in folder.staged_by(claim.attempt_id):
                if part.epoch.number <= epoch:
                    put_away_for_good(moves, part)

    def changed_meanwhile(self) -> EngineStopped | None:
        """Return the error for a folder or bucket that another attempt has taken over, or that became an older copy of
        itself; None if there is none."""
        try:
            for operator, (folder, claim) in self._claims.items():
                if not folder.is_newest(claim):
                    return self._overtaken(operator, folder)
                self._check_marker(operator, folder, claim)
        except EngineStopped as error:
            return error
        return None

    def _overtaken(self, operator: str, folder: Claims) -> Overtaken:
        other = folder.newest_claim()
        if other is None:
            return Overtaken(
                f"sink {operator}: {folder.path} was emptied while the job ran: its claim is missing",
                hint="restore the deleted files, if possible; then run `abs run --resume`, which lists what else is "
                "missing",
            )
        return Overtaken(
            f"sink {operator}: {folder.path} was taken over by attempt {other.attempt} on the store {other.store}",
            hint=f"resume with the store {other.store}; the rows staged in the current store are kept",
        )


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
