"""The file of a plan for a snapshot of Flink: JSON, schema `abs.flink-plan`.

It says what was chosen and why, and where files were looked for; `abs restore` looks there again. What it relies on is
the digest of `_metadata`, which names every file with its size.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from abscli.stores.flink.plan import FlinkPlan, FlinkRestored, NotRead
from formats.errors import UnsupportedVersion
from formats.open import Looking
from formats.plain_text import plain_json
from formats.plan import BadPlan

SCHEMA = "abs.flink-plan"
VERSION = "1.2"


def is_flink_plan(data: bytes) -> bool:
    """Whether a plan file is one of these."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.get("schema") == SCHEMA


def encode(plan: FlinkPlan, looking: Looking) -> bytes:
    """The file. looking: the options that the plan was made with."""
    text = json.dumps(to_json(plan, looking), indent=2, ensure_ascii=False).encode("utf-8", "backslashreplace")
    return plain_json(text) + b"\n"


def to_json(plan: FlinkPlan, looking: Looking) -> dict[str, Any]:
    """`abs.flink-plan`."""
    said: dict[str, Any] = msgspec.to_builtins(plan)
    said["skipped"] = [{"epoch": epoch, "reason": reason} for epoch, reason in plan.skipped]
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "format": "flink",
        **said,
        "command": plan.command,
        "search": list(looking.search),
        "path_map": list(looking.path_map),
    }


def restored_json(plan: FlinkPlan, done: FlinkRestored) -> dict[str, Any]:
    """`abs.flink-restore`."""
    told: dict[str, Any] = msgspec.to_builtins(done)
    return {"schema": "abs.flink-restore", "version": VERSION, "format": "flink", "store": plan.store, **told}


class _Skipped(msgspec.Struct, frozen=True):
    epoch: int
    reason: str


class _File(msgspec.Struct, frozen=True):
    version: str
    store: str
    epoch: int
    kind: str
    directory: str
    skipped: tuple[_Skipped, ...]
    in_place: bool
    repairs: tuple[str, ...]
    files: int
    bytes: int
    sha256: str
    search: tuple[str, ...]
    path_map: tuple[str, ...]
    not_read: tuple[NotRead, ...] = ()
    claim: bool = False


def decode(data: bytes, path: str) -> tuple[FlinkPlan, Looking]:
    """The plan and where its files were looked for; BadPlan, UnsupportedVersion."""
    try:
        found = msgspec.json.decode(data, type=_File)
    except msgspec.MsgspecError as error:
        raise BadPlan(f"not a plan: {error}", path=path, hint="make a new plan with abs plan-recovery") from None
    if found.version.partition(".")[0] != VERSION.partition(".")[0]:
        raise UnsupportedVersion(f"plan version {found.version}; this program reads {VERSION}", path=path)
    plan = FlinkPlan(
        store=found.store,
        epoch=found.epoch,
        kind=found.kind,
        directory=found.directory,
        skipped=tuple((row.epoch, row.reason) for row in found.skipped),
        in_place=found.in_place,
        repairs=found.repairs,
        files=found.files,
        bytes=found.bytes,
        sha256=found.sha256,
        not_read=found.not_read,
        claim=found.claim,
    )
    return plan, Looking(search=found.search, path_map=found.path_map)


