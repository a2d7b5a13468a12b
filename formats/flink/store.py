"""Checkpoints and savepoints of Flink through the read-only view.

An epoch is a checkpoint: its number is that of its directory `chk-N`, of a snapshot on its own the id in its
`_metadata`. An operator's id is its uid where that is known (stored from Flink 2.0 on, or proved by a guess), else the
hash that Flink prints; either is understood wherever an operator is asked for.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from formats.errors import Damaged, FormatError, NotFound, UnknownTask
from formats.flink import channels, facts
from formats.flink.files import layout
from formats.flink.files.folders import Folder, FolderStreams
from formats.flink.files.layout import SiteKind, find, number
from formats.flink.files.resolve import FileLike, How, PathMap, file_size, fits
from formats.flink.ids import Names, proved
from formats.flink.metadata.file import FILE, kryo_of, parse
from formats.flink.metadata.handles import Metadata, OperatorState
from formats.flink.state.places import PLACES
from formats.ids import AnyChannelId, may_be_operator
from formats.storage import Storage, open_storage, written_at
from formats.timestamps import rfc3339
from formats.view import ChannelTable, CheckpointStore, EpochDetail, EpochFacts, StateFacts, Status

if TYPE_CHECKING:
    import pyarrow as pa

    from formats.flink.plan_json import JobPlan
    from formats.flink.state.keyed_tables import Types
    from formats.kafka import Place
    from formats.query.predicate import Predicate
    from formats.statistics import StateStatistics

MOST = 1 << 30
"""Bytes beyond which a `_metadata` is not read: none that Flink writes comes near."""


def _wrong_size(name: str, handle: FileLike, size: int) -> str:
    return f"{name} has {size} bytes, {file_size(handle)} were written"


class FlinkStore(CheckpointStore):
    """What Flink left at a path: a job's checkpoints, or one snapshot.

    search: further directories where files may lie now.
    maps: `--path-map`.
    uids: guesses that name operators of Flink 1.x by their hash.
    types: of state that Python wrote (`python_types`).
    plan: of the job, as Flink has it.

    Raises NotFound if nothing of Flink is there.
    """

    format = "flink"
    unit = "checkpoint"
    places = PLACES

    def __init__(
        self,
        path: str,
        *,
        search: Sequence[str] = (),
        maps: Sequence[PathMap] = (),
        uids: Sequence[str] = (),
        types: Types | None = None,
        plan: JobPlan | None = None,
        site: layout.Site | None = None,
    ) -> None:
        """site: what lies at the path, where that is known already."""
        site = site or find(path)
        self._path = path
        self.kind = site.kind
        self.epoch = site.epoch
        self.storage: Storage = site.storage
        self.maps = tuple(maps)
        self.uids = tuple(uids)
        self.types = types
        self.plan = plan
        own = None
        if site.kind is not SiteKind.SNAPSHOT:
            names = [entry.name for entry in site.storage.list("")]
            own = [name for name in names if number(name) is not None or name in layout.OF_A_JOB]
        self.folder = Folder(site.storage, own)
        extra = [*search, *(mapping.new for mapping in self.maps)]
        self.folders = (self.folder, *(Folder(open_storage(layout.trimmed(where))) for where in extra))
        self._read: dict[int, Metadata] = {}
        self._streams: dict[int, FolderStreams] = {}
        self._hidden: dict[tuple[int, str], dict[str | None, str]] = {}

    @property
    def path(self) -> str:
        return self._path

    @property
    def job(self) -> str | None:
        """The job id where the directory is called by it; Flink's metadata does not name the job."""
        if self.kind is SiteKind.SNAPSHOT:
            return None
        name = self.folder.roots[0].rpartition("/")[2]
        return name if layout.JOB_ID.fullmatch(name) else None

    # -- what is there ------------------------------------------------------------------------------------

    def homes(self) -> dict[int, str]:
        """Directory of each epoch, from the root; ascending."""
        if self.kind is SiteKind.SNAPSHOT:
            return {self._own_number(): ""}
        by_number = {n: name for name in self.folder.names("") if (n := number(name)) is not None}
        return {n: by_number[n] for n in sorted(by_number) if self.epoch in (None, n)}

    def _own_number(self) -> int:
        """The checkpoint id of a snapshot on its own; its directory's, or 0, where `_metadata` cannot be read."""
        if self.epoch is not None:
            return self.epoch
        try:
            return self._parse("").checkpoint_id
        except FormatError:
            return 0

    def epoch_numbers(self) -> list[int]:
        """Every epoch, ascending."""
        return list(self.homes())

    def home(self, epoch: int) -> str:
        """Directory of an epoch; NotFound if there is none."""
        homes = self.homes()
        if epoch not in homes:
            raise self.no_epoch(epoch)
        return homes[epoch]

    def no_epoch(self, epoch: int) -> NotFound:
        """The error for an epoch that is not there; says which are."""
        have = self.epoch_numbers()
        contents = (
            "it has " + ", ".join(map(str, have[:10])) + (" ..." if len(have) > 10 else "") if have else "it is empty"
        )
        return NotFound(f"no checkpoint {epoch}: {contents}", path=self.path)

    def listing(self) -> dict[str, int]:
        """Every file that belongs to what was named: path -> bytes. Of one `chk-N`, its own directory's alone, for the
        files beside it belong to other checkpoints as well."""
        if self.kind is SiteKind.CHECKPOINT and self.epoch is not None:
            return self.folder.walk(self.home(self.epoch))
        return self.folder.walk()

    def has_metadata(self, epoch: int) -> bool:
        """Whether the checkpoint was completed."""
        home = self.home(epoch)
        return self.folder.size(f"{home}/{FILE}" if home else FILE) is not None

    def latest(self) -> int | None:
        """The newest epoch with a `_metadata`, not verified."""
        return next((n for n in reversed(self.epoch_numbers()) if self.has_metadata(n)), None)

    def metadata(self, epoch: int) -> Metadata:
        """The epoch's `_metadata`; NotFound without one, Damaged, UnsupportedVersion."""
        if epoch not in self._read:
            home = self.home(epoch)
            if not self.has_metadata(epoch):
                raise NotFound(
                    f"checkpoint {epoch} has no {FILE}: it is still being taken, or failed",
                    path=self.storage.root,
                    hint=f"`abs inspect {shlex.quote(self.path)}` shows the ones that are complete",
                )
            self._read = {epoch: self._parse(home)}
        return self._read[epoch]

    def _parse(self, home: str) -> Metadata:
        path = f"{home}/{FILE}" if home else FILE
        size = self.folder.size(path) or 0
        where = f"{self.storage.root}/{path}"
        if size > MOST:
            raise Damaged(f"has {size} bytes, at most {MOST} are read", path=where)
        return parse(self.storage.read(path), where)

    def streams(self, epoch: int) -> FolderStreams:
        """The streams that the epoch refers to."""
        if epoch not in self._streams:
            home = self.home(epoch)
            try:
                kryo = kryo_of(self.metadata(epoch))
            except FormatError:  # whoever wants to read what it refers to is told so then
                kryo = 5
            self._streams[epoch] = FolderStreams(home, self.folders, self.maps, kryo)
        return self._streams[epoch]

    def modified(self, epoch: int) -> str | None:
        """When `_metadata` was written (or copied), RFC 3339 in UTC; None if that is not known."""
        seconds = self.modified_at(epoch)
        return None if seconds is None else rfc3339(seconds)

    def modified_at(self, epoch: int) -> float | None:
        """When `_metadata` was written (or copied), in seconds since 1970; None if that is not known."""
        home = self.home(epoch)
        return written_at(self.storage, f"{home}/{FILE}" if home else FILE)

    def rivals(self, newest: int) -> tuple[int, ...]:
        """Return checkpoints of a lower number that were modified later: the job id was used by several runs."""
        from formats.flink.dating import rivals

        return () if self.only is not None else rivals(self, newest)

    # -- names --------------------------------------------------------------------------------------------

    def names(self, metadata: Metadata) -> Names:
        """What operators are called here: the uid if channels can be named by it, else the hash."""
        proved_uids = proved(self.uids, (operator.id for operator in metadata.operators))
        uids = {operator.id: operator.uid or proved_uids.get(operator.id) or "" for operator in metadata.operators}
        return {id: uid if may_be_operator(uid) else id for id, uid in uids.items()}

    def find_operator(self, epoch: int, name: str) -> OperatorState:
        """An operator by uid, hash or a name that only one has; UnknownTask if there is none."""
        metadata = self.metadata(epoch)
        names = self.names(metadata)
        for operator in metadata.operators:
            if name in (names[operator.id], operator.id):
                return operator
        same = [operator for operator in metadata.operators if operator.name == name]
        if len(same) == 1:
            return same[0]
        if same:
            hashes = ", ".join(operator.id for operator in same)
            message = f"{len(same)} operators are called {name!r}; give the uid or hash: {hashes}"
        else:
            message = f"checkpoint {epoch} has no operator {name!r}; it has " + ", ".join(names.values())
        raise UnknownTask(message, path=self.path, hint="--uid NAME proves the uid of an operator of Flink 1.x")

    def operator_id(self, epoch: int, name: str) -> str:
        """What the view calls an operator that is named by uid, hash or name; UnknownTask if there is none."""
        return self.names(self.metadata(epoch))[self.find_operator(epoch, name).id]

    # -- the view -----------------------------------------------------------------------------------------

    def epochs(self) -> list[EpochFacts]:
        return [self._facts(n) for n in self.epoch_numbers()]

    def is_open(self, epoch: int) -> bool:
        """Tell whether a checkpoint without `_metadata` may still be taken: nothing that was completed is newer."""
        newest = self.latest()
        if newest is None or epoch > newest:
            return True
        from formats.flink.dating import completed, last_change

        # Another run of the same job id counts from 1 again.
        change, times = last_change(self, epoch), completed(self)
        return change is not None and bool(times) and change > max(times.values())

    def _facts(self, epoch: int) -> EpochFacts:
        if not self.has_metadata(epoch):
            open_ = self.is_open(epoch)
            message = f"no {FILE}: " + ("still being taken, failed or killed" if open_ else "failed or aborted")
            status = Status.IN_PROGRESS if open_ else Status.INCOMPLETE
            return EpochFacts(epoch, status, None, None, None, None, (), None, None, None, message)
        try:
            metadata = self.metadata(epoch)
        except FormatError as error:
            return EpochFacts(epoch, Status.DAMAGED, None, None, None, None, (), None, None, None, error.message)
        tasks = sum(operator.parallelism for operator in metadata.operators)
        reason = next(self.missing(epoch), None) or metadata.problem
        return EpochFacts(
            epoch=epoch,
            status=Status.COMPLETE if reason is None else Status.DAMAGED,
            parent=None,
            attempt=None,
            expected=tasks,
            acked=tasks,
            missing=(),
            bytes=facts.total_checkpointed(metadata),
            triggered=None,
            duration=None,
            reason=reason,
            state_bytes=sum(facts.operator_size(operator) for operator in metadata.operators),
        )

    def missing(self, epoch: int) -> Iterator[str]:
        """What is wrong with the files that the epoch refers to, by presence and size, in words."""
        at = self.streams(epoch)
        for name, handle in self.files(epoch):
            place = at.place(handle)
            if place is None:
                looked, size = at.outside(handle)
                if looked and (size is None or not fits(handle, size)):
                    yield f"{name} is not there" if size is None else _wrong_size(name, handle, size)
            elif place.how is How.FOUND:
                yield f"{name} is not where Flink looks for it"
            elif not at.fits(handle, place):
                yield _wrong_size(name, handle, place.bytes)

    def files(self, epoch: int) -> list[tuple[str, FileLike]]:
        """Every file that the epoch refers to, once, with what messages call it; segments one by one."""
        at = self.streams(epoch)
        seen = dict.fromkeys(handle for _, _, handle in facts.file_handles(self.metadata(epoch)))
        return [(at.name(handle), handle) for handle in seen]

    def detail(self, epoch: int) -> EpochDetail:
        from formats.flink import details

        row = self._facts(epoch)
        if not self.has_metadata(epoch):
            return EpochDetail(row, (), ChannelTable())
        metadata = self.metadata(epoch)
        return details.detail(row, metadata, self.names(metadata), self.streams(epoch))

    def states(self, epoch: int) -> list[StateFacts]:
        return self._states(epoch)

    def identified_states(self, epoch: int) -> list[StateFacts]:
        return self._states(epoch, whole=True)

    def counted_states(self, epoch: int, operator: str | None = None) -> list[StateFacts]:
        """The same, of all operators or one, with rows and bytes if at most COUNTED bytes of state are to be read; then
        what cannot be decoded is told with how much it hides."""
        from formats.flink.states import COUNTED

        metadata = self.metadata(epoch)
        mine = [o for o in metadata.operators if operator in (None, self.names(metadata)[o.id])]
        count = sum(facts.operator_size(o) for o in mine) <= COUNTED
        return self._states(epoch, count=count, only=operator)

    def _states(
        self, epoch: int, *, count: bool = False, only: str | None = None, whole: bool = False
    ) -> list[StateFacts]:
        from formats.flink.states import list_states

        metadata = self.metadata(epoch)
        names = {hash_: name for hash_, name in self.names(metadata).items() if only in (None, name)}
        at = self.streams(epoch)
        return list_states(metadata.operators, names, at, count=count, types=self.types, whole=whole)

    def hidden(self, epoch: int, operator: str, name: str | None) -> str | None:
        """Why rows of a state are missing from what can be read, in words; None if all are there, be it as bytes.

        In the heap's own layout values have no lengths, so that one which only its class can read hides others.
        """
        from formats.flink.states import hidden

        if (epoch, operator) not in self._hidden:
            owner = self.find_operator(epoch, operator)
            self._hidden[epoch, operator] = hidden(owner, self.metadata(epoch), self.streams(epoch))
        return self._hidden[epoch, operator].get(name)

    def state(self, epoch: int, operator: str, name: str | None = None) -> Iterator[pa.RecordBatch]:
        from formats.flink.state.one_schema import alike
        from formats.flink.state.rows import batches

        owner = self.find_operator(epoch, operator)
        rows = batches(owner, self.streams(epoch), name, types=self.types, path=self.path)
        return alike(rows, lambda: self.state_schema(epoch, operator, name))

    def select(
        self,
        epoch: int,
        operator: str,
        name: str | None = None,
        *,
        columns: Sequence[str] | None = None,
        where: Predicate | None = None,
    ) -> Iterator[pa.RecordBatch]:
        from formats.flink.states import select

        owner = self.find_operator(epoch, operator)
        at = self.streams(epoch)
        return select(owner, at, name, columns, where, types=self.types, path=self.path)

    def state_schema(self, epoch: int, operator: str, name: str | None = None) -> pa.Schema:
        from formats.flink.states import state_schema

        owner = self.find_operator(epoch, operator)
        return state_schema(owner, self.streams(epoch), name, types=self.types, path=self.path)

    def written(self, epoch: int) -> str | None:
        return self.modified(epoch)

    def statistics(self, epoch: int, operator: str | None = None, ttl: float | None = None) -> list[StateStatistics]:
        from formats.flink.statistics import Question, statistics

        metadata = self.metadata(epoch)
        wanted = None if operator is None else self.find_operator(epoch, operator).id
        names = {hash_: name for hash_, name in self.names(metadata).items() if wanted in (None, hash_)}
        modified = self.modified(epoch)
        taken = None if modified is None else round(datetime.fromisoformat(modified).timestamp() * 1000)
        question = Question(taken, None if ttl is None else round(ttl * 1000), self.types)
        return statistics(metadata, names, self.streams(epoch), question)

    def kafka(self, epoch: int) -> list[Place]:
        from formats.flink.connectors.kafka import places

        metadata = self.metadata(epoch)
        return places(metadata, self.names(metadata), self.streams(epoch))

    def log(self, epoch: int, channel: AnyChannelId) -> Iterator[pa.RecordBatch]:
        """In-flight elements of a channel, one row each: `element` (record, watermark, other) and its `bytes`."""
        import pyarrow as pa

        metadata = self.metadata(epoch)
        names = self.names(metadata)
        for one, data in channels.contents(metadata, self.streams(epoch)):
            if one.id(names) == channel:
                elements = list(channels.elements(data))
                yield pa.record_batch({
                    "element": pa.array([kind for kind, _ in elements], pa.string()),
                    "bytes": pa.array([value for _, value in elements], pa.binary()),
                })
                return
        raise UnknownTask(f"checkpoint {epoch} has no in-flight data on channel '{channel}'", path=self.path)

    def raw(self, epoch: int, counted: str | None = None) -> dict[str, Any]:
        """What the metadata says, with the columns of Flink's `savepoint_metadata`: a `formats.flink.facts.Described`.

        counted: an operator, by uid or hash, whose state is read for the numbers of its rows.
        """
        metadata = self.metadata(epoch)
        described = facts.describe(
            metadata,
            names=proved(self.uids, (operator.id for operator in metadata.operators)),
            directory=self._directory(epoch),
            modified=self.modified(epoch),
            streams=self.streams(epoch),
            counted=self.find_operator(epoch, counted).id if counted is not None else None,
        )
        raw: dict[str, Any] = msgspec.to_builtins(described)
        return raw

    def _directory(self, epoch: int) -> str:
        return self.home(epoch) or self.folder.roots[0].rpartition("/")[2]

    def overview(self) -> dict[str, Any]:
        """What the metadata of every checkpoint says of itself, and what lies beside them.

        checkpoints: those whose metadata can be read, as `facts.summary`, each with its number as `epoch`; directories:
        name -> {files, bytes} of `shared` and `taskowned`, as they lie there.
        """
        checkpoints = []
        for epoch in self.epoch_numbers():
            try:
                summary = facts.summary(
                    self.metadata(epoch), directory=self._directory(epoch), modified=self.modified(epoch)
                )
            except FormatError:
                continue
            checkpoints.append({"epoch": epoch, **msgspec.to_builtins(summary)})
        beside = {}
        if self.kind is not SiteKind.SNAPSHOT:
            for name in layout.OF_A_JOB:
                if name in self.folder.names(""):
                    sizes = self.folder.walk(name).values()
                    beside[name] = {"files": len(sizes), "bytes": sum(sizes)}
        return {"checkpoints": checkpoints, "directories": beside}

    @property
    def only(self) -> int | None:
        """The epoch that the path itself names: of a `chk-N`, or of a snapshot on its own."""
        return self.epoch_numbers()[0] if self.kind is SiteKind.SNAPSHOT else self.epoch
