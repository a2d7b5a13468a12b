"""The JSON facts of a native store, each sealed with its own digest.

A sealed file is one JSON object whose last member is `"sha256"`: the SHA-256 of every byte before that member's
comma. So a flipped, added or removed byte anywhere in the file is found, and `jq` still reads it.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from formats.bounds import check_json
from formats.errors import Damaged, UnsupportedVersion
from formats.view import FileFacts, Position

FORMAT_VERSION = "2.0"
EpochNumber = Annotated[int, Meta(ge=0, le=10**10 - 1)]
"""As many digits as the name of an epoch's folder has."""

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]

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

    kind: `run` or `restore`. first_epoch: every epoch that this attempt triggers is at or above it. directory: of the
    job file, against which its paths are relative. id: 128 random bits in hex, since copies of a store go on with the
    same numbers; stores of version 1 have none in the file, see `identity`. plan: digest of the
    plan that a restore carries out, so that the same plan can be gone on with after a crash.
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
    id: str = ""
    plan: str | None = None


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
    attempt_id: str = ""


class LogFacts(msgspec.Struct, frozen=True):
    """The records of one channel that belong to the cut; file None when there are none."""

    channel: str
    records: Count
    file: FileFacts | None


class SinkFile(msgspec.Struct, frozen=True):
    """What a sink task staged for the epoch. directory: as in the topology; name: of the part; sha256 of its bytes."""

    directory: str
    name: str
    bytes: Count
    rows: Count
    sha256: str


class PartFacts(msgspec.Struct, frozen=True):
    """`epochs/<n>/<attempt id>/parts/<operator>/<subtask>/ack.json`: one task's part is durable.

    state: files oldest first, a later row of a key replaces an earlier one; rows: live keys.
    sent, received: by neighbour operator, a count per channel in the order of the neighbour's subtasks.
    round_robin: by receiver operator, the number of the next row of a rebalance edge. connector: what the source
    needs besides positions (its schema). sink: what this epoch's completion makes visible, parts of aborted epochs
    since the last complete one included; all were staged by this attempt. Durations in seconds.
    """

    schema: str
    version: str
    epoch: EpochNumber
    attempt: Count
    task: str
    state: tuple[FileFacts, ...]
    rows: Count
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
    attempt_id: str = ""


class TasksFacts(msgspec.Struct, frozen=True):
    """`epochs/<n>/<attempt id>/tasks.json`: all parts of a complete epoch, by operator as declared, then subtask."""

    schema: str
    version: str
    epoch: EpochNumber
    parts: tuple[PartFacts, ...]


class ManifestFacts(msgspec.Struct, frozen=True):
    """`epochs/<n>/outcome.json`: the epoch is complete.

    bytes: written for it; state_bytes, state_rows: of all that it refers to. duration: seconds from trigger to this
    file. idle: the job had nothing left to do.
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
    state_rows: Count
    log_records: Count
    idle: bool
    tasks_file: FileFacts
    attempt_id: str = ""


class AbortFacts(msgspec.Struct, frozen=True):
    """`epochs/<n>/outcome.json`: the epoch was given up by the attempt that began it, and why."""

    schema: str
    version: str
    epoch: EpochNumber
    attempt: Count
    reason: str
    aborted: str
    attempt_id: str = ""


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


OutcomeKind = type[ManifestFacts] | type[AbortFacts] | type[FenceFacts]
"""What became of an epoch number: one file, created once, so that two owners of a store cannot both decide it."""


SCHEMAS: dict[type[msgspec.Struct], str] = {
    StoreFacts: "abs.store",
    AttemptFacts: "abs.attempt",
    TriggerFacts: "abs.trigger",
    PartFacts: "abs.part",
    TasksFacts: "abs.tasks",
    ManifestFacts: "abs.manifest",
    AbortFacts: "abs.aborted",
    FenceFacts: "abs.fence",
}

F = TypeVar("F", bound=msgspec.Struct)


def header(kind: type[msgspec.Struct]) -> dict[str, str]:
    """The two members that begin every facts file."""
    return {"schema": SCHEMAS[kind], "version": FORMAT_VERSION}


def identity(facts: AttemptFacts, data: bytes) -> AttemptFacts:
    """The facts with the attempt's id: that of a file of version 1, which names none, is taken from its digest, so
    that it is the same in every copy of the store."""
    return facts if facts.id else msgspec.structs.replace(facts, id=digest(data)[:ID_LENGTH])


def digest_1(facts: StoreFacts) -> str:
    """The SHA-256 that the store's own file had while it was of version 1, if it was."""
    return digest(seal(msgspec.structs.replace(facts, version="1.0")))


def is_version_1(facts: AttemptFacts) -> bool:
    """Whether the attempt was one of a store of version 1."""
    return facts.version.partition(".")[0] == "1"


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

    Raises UnsupportedVersion for a newer major version, Damaged for anything else that `seal` did not write.
    """
    body, tail = memoryview(data)[:-SEAL_LENGTH], data[-SEAL_LENGTH:]
    expected = SEAL + digest(body).encode() + b'"}\n'
    if tail != expected:
        if not tail.startswith(SEAL):  # a newer format may seal in another way; a flipped digit is no newer format
            _refuse_newer(data, path)
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
        facts = msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        _refuse_newer(data, path)
        raise Damaged(f"its digest holds, but it is no {schema}: {error}", path=path) from None
    _refuse_major(getattr(facts, "version", ""), path)
    if getattr(facts, "schema", None) != schema:
        raise Damaged(f"is a {getattr(facts, 'schema', None)!r}, expected {schema!r}", path=path)
    return facts


class _Version(msgspec.Struct):
    version: str = "0"


def _refuse_newer(data: bytes, path: str) -> None:
    try:
        _refuse_major(msgspec.json.decode(data, type=_Version).version, path)
    except (msgspec.MsgspecError, RecursionError):
        return


def _refuse_major(version: str, path: str) -> None:
    ours, major = FORMAT_VERSION.partition(".")[0], version.partition(".")[0]
    if major.isascii() and major.isdigit() and int(major[:9]) > int(ours):
        raise UnsupportedVersion(
            f"has format version {version}, this program reads up to {ours}.x", path=path, hint="use a newer abs"
        )
