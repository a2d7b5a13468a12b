"""The JSON facts of a native store, each sealed with its own digest.

A sealed file is one JSON object whose last member is `"sha256"`: the SHA-256 of every byte before that member's
comma. So a flipped, added or removed byte anywhere in the file is found, and `jq` still reads it.
"""

from __future__ import annotations

import functools
import hashlib
import secrets
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta

from formats.bounds import check_json
from formats.decoding import decode
from formats.errors import Damaged
from formats.ids import ChannelId, TaskId, operator_of
from formats.job.model import Kind, Operator
from formats.version import FORMAT_VERSION, check_version
from formats.view import FileFacts, Position
from formats.watermark import END, LOWEST

RECREATE = (
    "recreate the store with `abs run --store` and a new directory, or read it with the version of abs that wrote it"
)
"""The hint for a store of another format version."""

EpochNumber = Annotated[int, Meta(ge=0, le=10**10 - 1)]
"""As many digits as the name of an epoch's folder has."""

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]

Time = Annotated[int, Meta(ge=LOWEST, le=END)]
"""Of an event, in microseconds since 1970."""

SEAL = b',"sha256":"'
ID_LENGTH = 32
"""Hex digits of an attempt's id."""
SEAL_LENGTH = len(SEAL) + 64 + len(b'"}\n')


class StoreFacts(msgspec.Struct, frozen=True):
    """`abs-store.json`: what the directory is. Times here and below are RFC 3339 in UTC."""

    schema: str
    version: str
    job: str
    created: str


class AttemptFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """`attempts/<n>.json`: one life of the job.

    kind: `run`, `restore`, `repair` or `rescale`. first_epoch: every epoch that this attempt triggers is at or above
    it. directory: of the job file, against which its paths are relative. id: 128 random bits in hex, since copies of a
    store continue with the same numbers. plan: digest of the plan that it carries out, so that the same plan can be
    resumed after a crash.
    code: digests of the modules that the job's functions stand in, and of those beside the job file that they import,
    by path; null where that is not known.
    repairs: of a repair, the epoch that it makes whole; it triggers none. Its own are the numbers from first_epoch to
    this one, none where the epoch had been complete before: what it shows is then still of the attempt that took it.
    workers: how many it runs on; worker w holds the subtasks i of every operator with i mod workers = w.
    """

    schema: str
    version: str
    attempt: Count
    kind: str
    generation: Count
    parent: EpochNumber
    first_epoch: EpochNumber
    policy: str
    topology_sha256: str
    directory: str
    started: str
    id: str
    plan: str | None = None
    code: dict[str, str] | None = None
    repairs: EpochNumber | None = None
    workers: Count | None = None

    def is_of(self, epoch: int) -> bool:
        """Whether it began at or below the epoch, or made it whole: so it goes wherever the epoch goes."""
        return (self.first_epoch if self.repairs is None else self.repairs) <= epoch


class ReplayFacts(msgspec.Struct, frozen=True):
    """Tasks of failed workers restarted alone, and replayed their steps.

    steps: the number of replayed steps.
    determinant_bytes: the size of the determinant logs that were sent to these tasks.
    buffer_bytes: the size of the upstream-backup buffers of all workers.
    """

    steps: Count
    determinant_bytes: Count
    buffer_bytes: Count


class RecoveryFacts(msgspec.Struct, frozen=True):
    """`recoveries/<attempt>-<number>.json`: workers of a running attempt were lost, and tasks restarted.

    number: from 1 within the attempt. epoch: from which they restarted. cause: what was lost, for people. workers: the
    numbers of those that were lost. restart: what restarted, ranges of subtasks by operator. untouched: how many tasks
    went on. replayed: records that sources read again. lost: when. seconds: until all that restarted had caught up.
    deterministic_replay: where they took their steps again, what that took.
    """

    schema: str
    version: str
    attempt: Count
    attempt_id: str
    number: Count
    epoch: EpochNumber
    cause: str
    workers: tuple[Count, ...]
    restart: dict[str, str]
    untouched: Count
    replayed: Count
    lost: str
    seconds: float
    deterministic_replay: ReplayFacts | None = None


class TriggerFacts(msgspec.Struct, frozen=True):
    """`epochs/<n>/<attempt id>/trigger.json`: the epoch was begun by that attempt."""

    schema: str
    version: str
    epoch: EpochNumber
    parent: EpochNumber
    attempt: Count
    generation: Count
    policy: str
    topology_sha256: str
    triggered: str
    attempt_id: str

    @classmethod
    def of(
        cls, attempt: AttemptFacts, epoch: int, parent: int, *, triggered: str, policy: str | None = None
    ) -> TriggerFacts:
        """Of an epoch that an attempt begins. policy: how it is taken, where that is not the attempt's."""
        return cls(
            epoch=epoch,
            parent=parent,
            attempt=attempt.attempt,
            generation=attempt.generation,
            policy=policy or attempt.policy,
            topology_sha256=attempt.topology_sha256,
            triggered=triggered,
            attempt_id=attempt.id,
            **header(cls),
        )


class RowGroupFacts(msgspec.Struct, frozen=True, array_like=True):
    """A row group of a state file: one key group or a piece of one, or several whole ones.

    first, last: its key groups, both included.
    rows: how many it has.
    offset, bytes: where in the file it lies.
    sha256: of these bytes.
    """

    first: Count
    last: Count
    rows: Count
    offset: Count
    bytes: Count
    sha256: str


class FooterFacts(msgspec.Struct, frozen=True, array_like=True):
    """What follows the last row group of a state file, up to its end: without it no row group can be read.

    offset: where it begins.
    sha256: of its bytes.
    """

    offset: Count
    sha256: str


class StateFileFacts(FileFacts, frozen=True, omit_defaults=True):
    """A state file; path, bytes, rows and sha256 are of the whole of it.

    row_groups: by offset, those that the task reads.
    key_groups: first and last, both included, of those that count for the task, where it has not the whole file: see
    `formats.native.state.references`.
    removed: so many of its rows stand for keys that were removed; None of state that removes none.
    """

    row_groups: tuple[RowGroupFacts, ...]
    footer: FooterFacts
    key_groups: tuple[Count, Count] | None = None
    removed: Count | None = None


class LogFacts(msgspec.Struct, frozen=True):
    """The records of one channel that belong to the cut; file None when there are none."""

    channel_name: str = msgspec.field(name="channel")
    records: Count
    file: FileFacts | None

    @property
    def channel(self) -> ChannelId:
        """The channel."""
        return ChannelId.parse(self.channel_name)


class UploadFacts(msgspec.Struct, frozen=True):
    """What is staged for a sink in a bucket: an upload, which is completed when the manifest is there.

    object: what it becomes, relative to the sink's place. id: of the upload. etags: of its parts, in their order; on
    Azure the names of its blocks, on Google's store the SHA-256 of its bytes.
    """

    object: str
    id: str
    etags: tuple[str, ...]


class SinkFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a sink task staged for the epoch. directory: as in the topology; name: of the part; sha256 of its bytes.
    upload: where it waits, of a sink in a bucket. prepared: the transaction that it waits in, of a sink in a database;
    sha256 is of its rows as CSV. staged: the file of the store from which its rows are written to the target."""

    directory: str
    name: str
    bytes: Count
    rows: Count
    sha256: str
    upload: UploadFacts | None = None
    prepared: str | None = None
    staged: str | None = None

    @property
    def object(self) -> str:
        """What readers look for, relative to the sink's place."""
        return self.upload.object if self.upload is not None else self.name


class ScheduleFacts(msgspec.Struct, frozen=True, rename={"line": "execution"}):
    """The determinant log of a task: the order of its steps, up to a state copy.

    line: the number of the execution, stored as `execution`. A restart without deterministic replay begins a new one;
    positions count from there.
    first: the position of the first step, which follows the copy of an epoch that was complete then.
    steps: as `formats.native.schedules` reads them; the last one is the copy.
    """

    line: Count
    first: Count
    steps: str


_task: Final[Callable[[str], TaskId]] = functools.lru_cache(1 << 14)(TaskId.parse)
"""The same names come in every epoch."""


class PartFacts(msgspec.Struct, frozen=True, omit_defaults=True, rename={"schedule": "determinants"}):
    """`epochs/<n>/<attempt id>/parts/<operator>/<subtask>/ack.json`: one task's part is durable.

    state: files oldest first, a later row of a key replaces an earlier one; rows: live keys, None where a rescale
    has shared them out and nobody has counted them yet.
    sent, received: by neighbour operator, a count per channel in the order of the neighbour's subtasks.
    round_robin: by receiver operator, the number of the next row of a rebalance edge. connector: what the source
    needs besides positions (its schema). sink: what this epoch's completion makes visible, parts of aborted epochs
    since the last complete one included; all were staged by this attempt. Durations in seconds. schedule: the steps of
    the task since the newest complete epoch, where the job keeps them and they are not too many. watermark: of the
    task behind the copy (`formats.watermark`). skipped: records that it has left out since the job began, since it
    failed on them. sink has its dead letters, too.
    """

    schema: str
    version: str
    epoch: EpochNumber
    attempt: Count
    task_name: str = msgspec.field(name="task")
    state: tuple[StateFileFacts, ...]
    rows: Count | None
    logs: tuple[LogFacts, ...]
    sent: dict[str, tuple[Count, ...]]
    received: dict[str, tuple[Count, ...]]
    positions: tuple[Position, ...] | None
    round_robin: dict[str, Count]
    connector: dict[str, str] | None
    sink: tuple[SinkFile, ...]
    finished: bool
    alignment: float
    sync: float
    async_: float = msgspec.field(name="async")
    attempt_id: str
    schedule: ScheduleFacts | None = None
    watermark: Time | None = None
    skipped: Count = 0

    @property
    def task(self) -> TaskId:
        """Whose part it is."""
        return _task(self.task_name)

    @property
    def operator(self) -> str:
        """Whose task's part it is."""
        return operator_of(self.task_name)


class PackFacts(msgspec.Struct, frozen=True):
    """The first line of `epochs/<n>/<attempt id>/packs/<incarnation>-<number>.pack`: what tasks of one worker have
    acked with it. What follows that line are the files that lie in the pack, by the ranges that the parts name.
    """

    schema: str
    version: str
    epoch: EpochNumber
    attempt: Count
    attempt_id: str
    parts: tuple[PartFacts, ...]


class TasksFacts(msgspec.Struct, frozen=True):
    """`epochs/<n>/<attempt id>/tasks.json`: all parts of a complete epoch, by operator as declared, then subtask."""

    schema: str
    version: str
    epoch: EpochNumber
    parts: tuple[PartFacts, ...]


class CommittedFacts(msgspec.Struct, frozen=True):
    """The rows that a target of a sink must have after an epoch, cumulatively.

    operator: the sink's id.
    target: its name, as in `SinkFile.directory`.
    epoch: the newest epoch whose rows a manifest of the history names for the target.
    previous: the value of `epoch` before that manifest; 0 if its rows were the first.
    rows: the number of rows that manifests of the history have named for the target.
    """

    operator: str
    target: str
    epoch: EpochNumber
    previous: Count
    rows: Count


class ManifestFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """`epochs/<n>/outcome.json`: the epoch is complete.

    bytes: written for it; state_bytes, state_rows: of all that it refers to. duration: seconds from trigger to this
    file. idle: the job had nothing left to do. moved, removed: of the first epoch of a generation: the operators of
    its parent that have another id from here on, and those that are gone on purpose. committed: one record for
    each target that the history of the epoch has written, deleted manifests included.
    """

    schema: str
    version: str
    job: str
    epoch: EpochNumber
    parent: EpochNumber
    attempt: Count
    generation: Count
    policy: str
    topology_sha256: str
    triggered: str
    completed: str
    duration: float
    tasks: Count
    bytes: Count
    state_bytes: Count
    state_rows: Count | None
    log_records: Count
    idle: bool
    tasks_file: FileFacts
    attempt_id: str
    moved: dict[str, str] = {}
    removed: tuple[str, ...] = ()
    committed: tuple[CommittedFacts, ...] = ()


class AbortFacts(msgspec.Struct, frozen=True):
    """`epochs/<n>/outcome.json`: the epoch was given up by the attempt that began it, and why."""

    schema: str
    version: str
    epoch: EpochNumber
    attempt: Count
    reason: str
    aborted: str
    attempt_id: str


class FenceFacts(msgspec.Struct, frozen=True):
    """`epochs/<n>/outcome.json`: an attempt took the store over before this number had an outcome.

    Whoever owned the store before can neither complete nor give up this epoch, and it has to before any later one.
    attempt, attempt_id: of the one that took over; what an older one had begun under this number stays incomplete.
    """

    schema: str
    version: str
    epoch: EpochNumber
    attempt: Count
    attempt_id: str
    fenced: str


class TagFacts(msgspec.Struct, frozen=True):
    """`tags/<epoch>-<name>.json`: a complete epoch has a name, and stays.

    attempt_id: of the attempt whose epoch it was when it was tagged. tagged: when.
    """

    schema: str
    version: str
    name: str
    epoch: EpochNumber
    attempt_id: str
    tagged: str


class TargetFacts(msgspec.Struct, frozen=True):
    """Where a sink wrote. title: as messages call it. identity: what tells it apart from another one of that name."""

    title: str
    identity: str


class WrittenFacts(msgspec.Struct, frozen=True):
    """`written/<operator>.json`: what a sink's target has, that does not say so itself, or which one it is.

    epoch, attempt_id: of the newest manifest whose rows are written, and all before them; where the target says that
    itself, of an older one. written: when. target: where that is.
    """

    schema: str
    version: str
    operator: str
    epoch: EpochNumber
    attempt_id: str
    written: str
    target: TargetFacts | msgspec.UnsetType = msgspec.UNSET


OutcomeKind = type[ManifestFacts] | type[AbortFacts] | type[FenceFacts]
"""What became of an epoch number: one file, created once, so that two owners of a store cannot both decide it."""


SCHEMAS: dict[type[msgspec.Struct], str] = {
    StoreFacts: "abs.store",
    AttemptFacts: "abs.attempt",
    RecoveryFacts: "abs.recovery",
    TriggerFacts: "abs.trigger",
    PartFacts: "abs.part",
    PackFacts: "abs.pack",
    TasksFacts: "abs.tasks",
    ManifestFacts: "abs.manifest",
    AbortFacts: "abs.aborted",
    FenceFacts: "abs.fence",
    TagFacts: "abs.tag",
    WrittenFacts: "abs.written",
}

F = TypeVar("F", bound=msgspec.Struct)


def header(kind: type[msgspec.Struct]) -> dict[str, str]:
    """The two members that begin every facts file."""
    return {"schema": SCHEMAS[kind], "version": FORMAT_VERSION}


def removes_keys(operator: Operator) -> bool:
    """Whether keys are removed from an operator's state."""
    by_time = bool(operator.window or operator.ttl or operator.join)
    return by_time or (operator.kind is Kind.PROCESS and bool(operator.key))


def files_of(part: PartFacts) -> list[FileFacts]:
    """Every store file, or range of one, that a part refers to: state, oldest first, then logs, then what a sink has
    staged there."""
    return [*part.state, *(log.file for log in part.logs if log.file is not None), *staged_by(part)]


def staged_by(part: PartFacts) -> list[FileFacts]:
    """The files of the store that hold what a sink has staged."""
    return [FileFacts(file.staged, file.bytes, file.rows, file.sha256) for file in part.sink if file.staged is not None]


def new_id() -> str:
    """An id for an attempt, drawn at random."""
    return secrets.token_hex(ID_LENGTH // 2)


def is_id(text: str) -> bool:
    """Whether a text has the form of an attempt's id."""
    return len(text) == ID_LENGTH and all(c in "0123456789abcdef" for c in text)


def outcome_kind(data: bytes) -> OutcomeKind:
    """Which outcome a file is meant to be; a manifest where its first bytes do not say, since a number that may have
    been complete must never be taken for one that was not."""
    for kind in (AbortFacts, FenceFacts):
        if data.startswith(b'{"schema":"' + SCHEMAS[kind].encode() + b'"'):
            return kind
    return ManifestFacts


def digest(data: bytes | memoryview) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def seal(facts: msgspec.Struct) -> bytes:
    """The bytes of a facts file."""
    body = msgspec.json.encode(facts)[:-1]
    return body + SEAL + digest(body).encode() + b'"}\n'


def unseal(data: bytes, kind: type[F], path: str, schema: str | None = None) -> F:
    """The facts in a sealed file. schema: where `SCHEMAS` has none for the kind.

    Raises UnsupportedVersion for another format version, Damaged for anything else that `seal` did not write.
    """
    body, tail = memoryview(data)[:-SEAL_LENGTH], data[-SEAL_LENGTH:]
    expected = SEAL + digest(body).encode() + b'"}\n'
    if tail != expected:
        if not tail.startswith(SEAL):  # another format may seal in another way; a flipped digit is no other format
            _refuse_other(data, path)
            raise Damaged(
                "was cut short or overwritten: it does not end in its own digest",
                path=path,
                hint="validate the store; another epoch may be whole",
            )
        recorded = tail[len(SEAL) : -3].decode("ascii", "replace")
        raise Damaged(
            f"its bytes have SHA-256 {digest(body)[:12]}…, it says {recorded[:12]}…",
            path=path,
            hint="validate the store; another epoch may be whole",
        )
    return decode_facts(data, kind, path, schema)


def decode_facts(data: bytes, kind: type[F], path: str, schema: str | None = None) -> F:
    """The facts in a file whose digest is known to hold; raises as `unseal`."""
    schema = schema or SCHEMAS[kind]
    check_json(data, path)
    try:
        facts = decode(data, kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        _refuse_other(data, path)
        raise Damaged(f"its checksum matches, but it is not a valid {schema}: {error}", path=path) from None
    check_version(getattr(facts, "version", FORMAT_VERSION), path=path, hint=RECREATE)
    if getattr(facts, "schema", None) != schema:
        raise Damaged(f"is a {getattr(facts, 'schema', None)!r}, expected {schema!r}", path=path)
    return facts


class _Version(msgspec.Struct):
    version: Any = FORMAT_VERSION


def _refuse_other(data: bytes, path: str) -> None:
    """Refuse a file that cannot be decoded and names another format version: it is not damaged."""
    try:
        found = decode(data, _Version).version
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    check_version(found, path=path, hint=RECREATE)
