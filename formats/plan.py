"""The plan file: what a recovery will do and everything that it relies on, for each system that is read here.

JSON, indented by two, UTF-8, with a newline at the end: one envelope, and in `body` what the system itself needs
(`formats.native.plan`, `formats.flink.plan`, `formats.spark.plan`). As in the facts of a store, its last member
`sha256` is the digest of every byte before that member's comma; what follows it is fixed, so a flipped byte anywhere is
found.
`null` is an unknown fact. The JSON Schema is `schemas/abs.plan.json`.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import Meta

from formats.bounds import check_json
from formats.errors import FormatError, UnsafePath
from formats.plain_text import plain_json
from formats.reference import NOTHING, ReadOptions
from formats.storage import check_path
from formats.version import FORMAT_VERSION, check_version

SCHEMA = "abs.plan"
BEGINNING = f'{{\n  "schema": "{SCHEMA}"'.encode()
"""The first bytes of every plan file."""

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
Time = Annotated[
    str, Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?Z\Z")
]
InsidePath = Annotated[
    str,
    Meta(extra_json_schema={"pattern": r"^(?!/)(?!(.*/)?\.{1,2}(/|$))(?!.*//)(?!.*/$)[^\\\u0000]+$"}),
]
"""A path relative to the store, which never leads out of it. Held against `check_path`, whose error says what to do."""

_PLACE = r"^(/|file:/|[A-Za-z][A-Za-z0-9+.-]*://)"

StorePath = Annotated[str, Meta(extra_json_schema={"pattern": _PLACE})]
"""An absolute path or a URI: the same store from every folder that the plan is carried out in."""

_AGAIN = "make a new plan with abs plan-recovery"

MADE_BY = "abs plan-recovery ... --out FILE writes plans"
"""The hint for a file that is no plan."""

_SHOWN_STORE = 200
"""Characters of a store's path that a hint repeats."""


class BadPlan(FormatError):
    """A plan file that does not hold: not JSON, cut short, changed after it was made, or not a plan at all."""


class Body(msgspec.Struct, frozen=True):
    """What a plan says of one system. Its fields are the members of `body`."""

    @property
    def needs_store(self) -> bool:
        """Whether the plan means nothing without a store."""
        return True

    @property
    def goes_back_to(self) -> int | None:
        """The epoch that is whole when the plan has been carried out; None if it names none."""
        return None


B = TypeVar("B", bound=Body)


class PinnedFile(msgspec.Struct, frozen=True):
    """A file that a plan relies on, as it was when the plan was made.

    path: relative to the store; UnsafePath for one that could lead out of it.
    """

    path: InsidePath
    bytes: Count
    sha256: Sha256

    def __post_init__(self) -> None:
        check_path(self.path)


class Skipped(msgspec.Struct, frozen=True):
    """A newer epoch that the plan does not use, and why."""

    epoch: Count
    reason: str


class Plan(msgspec.Struct, Generic[B], frozen=True, kw_only=True):
    """A recovery plan; members in the order of the file.

    system: whose store it is, and so what `body` says.
    store: its absolute path, or its URI; null in a plan from a job graph alone.
    read: how the store was opened.
    relies_on: files that must be as they were, or the plan is stale.

    Raises ValueError for a plan without the store that it would be carried out on, or with a relative path of it,
    and for one that relies on a file twice.
    """

    schema: str = SCHEMA
    version: str = FORMAT_VERSION
    system: str
    created: Time
    store: StorePath | None
    read: ReadOptions = NOTHING
    body: B
    relies_on: tuple[PinnedFile, ...]

    def __post_init__(self) -> None:
        if self.store is None and (self.body.needs_store or self.relies_on):
            raise ValueError("a plan that is to be carried out must name its `store`")
        if self.store is not None and re.match(_PLACE, self.store) is None:
            raise ValueError(f"`store` is {_shown(self.store)}, neither an absolute path nor a URI")
        check_once("relies_on", [file.path for file in self.relies_on])


def check_once(member: str, paths: Sequence[str]) -> None:
    """ValueError if a member of a plan names a file twice: which of the two would be meant is not known."""
    twice = next((path for path, times in Counter(paths).items() if times > 1), None)
    if twice is not None:
        raise ValueError(f"{twice} stands twice in `{member}`")


def encode(plan: Plan[Any]) -> bytes:
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


def decode(data: bytes, name: str, body: Callable[[str], type[B]]) -> Plan[B]:
    """The plan in the bytes of the file called `name`.

    body: gives the type of the body that goes with a system; raises OtherFormat for a system that is not known.
    Raises BadPlan (what is wrong, and where), UnsupportedVersion, UnsafePath.
    """
    members = _members(data, name)
    _check_version(members, name)
    _check_digest(data, name)
    system = members.get("system")
    if not isinstance(system, str):
        raise BadPlan(f"not a plan: `system` is {_shown(system)}", path=name, hint=_AGAIN)
    plan_type: Any = Plan[body(system)]  # type: ignore[misc]  # known only now
    try:
        plan: Plan[B] = msgspec.json.decode(data, type=plan_type)
    except msgspec.ValidationError as error:
        raise BadPlan(f"not a plan: {error}", path=name, hint=_AGAIN) from None
    except msgspec.DecodeError as error:
        raise BadPlan(f"not JSON: {error}", path=name, hint=_AGAIN) from None
    except UnsafePath as error:
        raise UnsafePath(f"the file {error.message}", path=name, hint=_AGAIN) from None
    return plan


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


def _check_version(members: Mapping[str, Any], name: str) -> None:
    if members.get("schema") != SCHEMA:
        raise BadPlan(f"`schema` is {_shown(members.get('schema'))}, not {SCHEMA!r}: this is not a plan", path=name,
                      hint=MADE_BY)  # fmt: skip
    if "version" not in members:
        raise BadPlan("`version` is missing", path=name, hint=_AGAIN)
    check_version(members["version"], path=name, hint=_plan_again(members, name))


def _plan_again(members: Mapping[str, Any], name: str) -> str:
    """The command that plans again from the same store."""
    store = members.get("store")
    reference = shlex.quote(store) if isinstance(store, str) and len(store) <= _SHOWN_STORE else "STORE"
    return f"plan again: abs plan-recovery {reference} --out {shlex.quote(name)}"


def _check_digest(data: bytes, name: str) -> None:
    width = len(_seal("0" * 64))
    body, end = data[:-width], data[-width:]
    seal = re.fullmatch(rb',\n  "sha256": "([0-9a-f]{64})"\n\}\n', end)
    if seal is None:
        raise BadPlan("the plan does not end with its own `sha256`: it was changed after it was made", path=name,
                      hint=_AGAIN)
    sealed, actual = seal[1].decode(), hashlib.sha256(body).hexdigest()
    if sealed != actual:
        raise BadPlan(f"the plan was changed after it was made: it says sha256 {sealed}, its bytes have {actual}",
                      path=name, hint=_AGAIN)


def _shown(value: object) -> str:
    if value is None:
        return "missing"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
