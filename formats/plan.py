"""The plan file: what a recovery will do and everything that it relies on.

JSON, indented by two, UTF-8, with a newline at the end. As in the facts of a store, its last member `sha256` is the
digest of every byte before that member's comma; what follows it is fixed, so a flipped byte anywhere is found.
`null` is an unknown fact. The JSON Schema is `schemas/abs.plan.json`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, field

from formats.bounds import check_json
from formats.errors import FormatError, UnsafePath, UnsupportedVersion
from formats.plain_text import plain_json
from formats.storage import check_path
from formats.view import Repeat

SCHEMA = "abs.plan"
VERSION = "1.0"

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Subtasks = Annotated[str, Meta(pattern=r"^(0|[1-9][0-9]*)(-[1-9][0-9]*)?(,[1-9][0-9]*(-[1-9][0-9]*)?)*\Z")]
"""`0-3,7`: its grammar; that it ascends is checked where it is read as a set (`abscli.planner.ranges`)."""

Task = Annotated[str, Meta(pattern=r"^(?s:.+)/(0|[1-9][0-9]*)\Z")]
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
Time = Annotated[
    str, Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?Z\Z")
]

P = TypeVar("P", bound=msgspec.Struct)

_AGAIN = "make a new plan with abs plan-recovery"


class BadPlan(FormatError):
    """A plan file that does not hold: not JSON, cut short, changed after it was made, or not a plan at all."""


class PlanKind(StrEnum):
    """recover: the job is down, every task goes back; partial: a running job restarts a part; repair: mend an epoch."""

    RECOVER = "recover"
    PARTIAL = "partial"
    REPAIR = "repair"


class RestartRow(msgspec.Struct, frozen=True):
    """Subtasks (`0-3,7`) of an operator that restart for one reason."""

    operator: str
    subtasks: Subtasks
    why: str


class DedupRow(msgspec.Struct, frozen=True):
    """Every channel of an edge between these senders and receivers drops the records that were seen before."""

    source: str = field(name="from")
    target: str = field(name="to")
    senders: Subtasks
    receivers: Subtasks


class ReplayLog(msgspec.Struct, frozen=True):
    """A channel whose logged records come first."""

    channel: str
    records: Count | None


class Rewind(msgspec.Struct, frozen=True):
    """A split of a source task and the offsets it goes back from and to, in the connector's unit.

    from: the furthest known; to: that of the epoch, null also for a split that had not been begun.
    """

    task: Task
    split: str
    from_: int | None = field(name="from")
    to: int | None


class Cost(msgspec.Struct, frozen=True):
    """What the recovery reads: bytes of state, records of logs, records that sources read once more."""

    state_bytes: Count | None
    log_records: Count | None
    source_records: Count | None


class Input(msgspec.Struct, frozen=True):
    """A file that the plan relies on: its path relative to the store, and its digest.

    Raises UnsafePath for a path that could lead out of the store.
    """

    path: str
    sha256: Sha256

    def __post_init__(self) -> None:
        check_path(self.path)


class Skipped(msgspec.Struct, frozen=True):
    """A newer epoch that the plan does not use, and why."""

    epoch: Count
    reason: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A recovery plan; members in the order of the file.

    store: as the user wrote it; epoch: the one that the plan makes good again; base_epoch: the whole one that tasks
    go back to, the same except in a repair. All three are null in a plan from a topology alone. untouched: a number
    of tasks; parallelism: of the operators that get another one; repeats: records that come again though restored
    state holds them (an at-least-once epoch), null if unknown. Raises ValueError when a plan that is to be carried
    out names no store or epoch.
    """

    schema: str = SCHEMA
    version: str = VERSION
    kind: PlanKind
    store: str | None
    job: str
    topology_sha256: Sha256
    epoch: Count | None
    base_epoch: Count | None
    failed: tuple[Task, ...]
    restart: tuple[RestartRow, ...]
    dedup: tuple[DedupRow, ...]
    replay_logs: tuple[ReplayLog, ...]
    repeats: tuple[Repeat, ...] | None = None
    rewind: tuple[Rewind, ...]
    untouched: Count
    parallelism: dict[str, Annotated[int, Meta(ge=1, le=2**31 - 1)]]
    cost: Cost
    inputs: tuple[Input, ...]
    skipped: tuple[Skipped, ...] = ()
    created: Time

    def __post_init__(self) -> None:
        if self.kind is not PlanKind.PARTIAL and None in (self.store, self.epoch, self.base_epoch):
            raise ValueError(f"a plan of kind {self.kind} must name `store`, `epoch` and `base_epoch`")


def encode(plan: msgspec.Struct) -> bytes:
    """The bytes of the plan file, the same ones for the same plan; FormatError if a path in it is not UTF-8."""
    try:
        encoded = plain_json(msgspec.json.encode(plan))
    except UnicodeEncodeError as error:
        raise FormatError(
            f"{error.object.encode('utf-8', 'backslashreplace').decode()} is not UTF-8, which a plan file has to be",
            hint="give it another name, or name it through a symbolic link",
        ) from None
    body = msgspec.json.format(encoded, indent=2).removesuffix(b"\n}")
    return body + _seal(hashlib.sha256(body).hexdigest())


def decode(data: bytes, name: str) -> Plan:
    """The plan in the bytes of the file called `name`.

    Raises BadPlan (what is wrong, and where), UnsupportedVersion (a newer major version), UnsafePath (of an input).
    """
    return decode_as(Plan, SCHEMA, data, name)


def decode_as(kind: type[P], schema: str, data: bytes, name: str) -> P:
    """The same for a plan of another kind, of which this version writes major version 1, too."""
    _check_version(_members(data, name), name, schema)
    _check_digest(data, name)
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise BadPlan(f"not a plan: {error}", path=name, hint=_AGAIN) from None
    except msgspec.DecodeError as error:
        raise BadPlan(f"not JSON: {error}", path=name, hint=_AGAIN) from None
    except UnsafePath as error:
        raise UnsafePath(f"the input {error.message}", path=name, hint=_AGAIN) from None


def _seal(digest: str) -> bytes:
    return f',\n  "sha256": "{digest}"\n}}\n'.encode()


def _members(data: bytes, name: str) -> dict[str, Any]:
    """The members of the outermost object, once no object in it names a member twice (msgspec would take the last)."""
    check_json(data, name, kind=BadPlan)
    try:
        document = json.loads(data.decode(), object_pairs_hook=_unique, parse_constant=_refuse)
    except UnicodeDecodeError as error:
        raise BadPlan(f"not UTF-8: byte {error.start} is 0x{data[error.start]:02x}", path=name) from None
    except RecursionError:
        raise BadPlan("nested too deeply to be a plan", path=name) from None
    except json.JSONDecodeError as error:
        ended = error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated")
        problem = error.msg.lower().removesuffix(" at") + f" at line {error.lineno}, column {error.colno}"
        raise BadPlan(f"{'cut short' if ended else 'not JSON'}: {problem}", path=name, hint=_AGAIN) from None
    except ValueError as error:
        raise BadPlan(f"not JSON: {error}", path=name, hint=_AGAIN) from None
    if not isinstance(document, dict):
        raise BadPlan(f"a plan is a JSON object, this is a {type(document).__name__}", path=name)
    return document


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [key for key, _ in pairs]
        twice = next(key for key in members if names.count(key) > 1)
        raise ValueError(f"{twice!r} stands twice in one object")
    return members


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")


def schema_of(data: bytes) -> str | None:
    """Which kind of plan some bytes say they are; None where they do not say it as a plan does, in the second line."""
    found = re.match(rb'\{\n  "schema": "([a-z.-]{1,40})",\n', data)
    return found[1].decode() if found else None


def _check_version(members: dict[str, Any], name: str, wanted: str) -> None:
    schema, version = members.get("schema"), members.get("version")
    if schema != wanted:
        raise BadPlan(f"`schema` is {_shown(schema)}, not {wanted!r}: this is not a plan", path=name,
                      hint="abs plan-recovery ... --out FILE writes plans")
    match = re.fullmatch(r"([0-9]{1,9})\.([0-9]{1,9})", version) if isinstance(version, str) else None
    ours = int(VERSION.split(".")[0])
    if match is None or int(match[1]) < ours:
        raise BadPlan(f"`version` is {_shown(version)}, not a version such as {VERSION!r}", path=name, hint=_AGAIN)
    if int(match[1]) > ours:
        raise UnsupportedVersion(
            f"the plan has version {version}, this program reads up to {ours}.x", path=name,
            hint="use the abs that made the plan, or " + _AGAIN,
        )


def _check_digest(data: bytes, name: str) -> None:
    width = len(_seal("0" * 64))
    body, end = data[:-width], data[-width:]
    found = re.fullmatch(rb',\n  "sha256": "([0-9a-f]{64})"\n\}\n', end)
    if found is None:
        raise BadPlan("the plan does not end with its own `sha256`: it was changed after it was made", path=name,
                      hint=_AGAIN)
    said, is_ = found[1].decode(), hashlib.sha256(body).hexdigest()
    if said != is_:
        raise BadPlan(f"the plan was changed after it was made: it says sha256 {said}, its bytes have {is_}",
                      path=name, hint=_AGAIN)


def _shown(value: object) -> str:
    if value is None:
        return "missing"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
