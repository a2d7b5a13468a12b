"""A file of changes with all that one can have, for the jobs of UpgradeJob.java, and the rows that it leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from formats.flink.ids import operator_id
from formats.flink.store import FlinkStore
from tests.support.flink.java import SOURCES
from tests.support.flink.releases import compiled_for
from tests.support.flink.venv import VERSION

ONE, TWO, THREE, FIVE = ({"key.f0": "key", "key.f1": number} for number in (1, 2, 3, 5))
NEW = {"key.f0": "key", "key.f1": -77}
MOST = 200


def words(key: dict[str, Any]) -> str:
    return f"{{f0: {key['key.f0']}, f1: {key['key.f1']}}}"


SET: dict[tuple[str, int], tuple[str, Any]] = {
    ("v-int", 1): ("-7", -7),
    ("v-string", 1): ("null", None),
    ("v-tuple", 1): ("[x, -5, false]", {"f0": "x", "f1": -5, "f2": False}),
    ("v-named", 1): ("{f0: null, f1: 3}", {"row_kind": "+I", "f0": None, "f1": 3}),
    ("v-list", 1): ("[]", []),
    ("v-bytes", 1): ('"0x00ff"', "b'\\x00\\xff'"),
    ("v-double", 1): ("-0.5", -0.5),
    ("list", 2): (
        "[[null, 5], [q, null]]", [{"row_kind": "+I", "f0": None, "f1": 5}, {"row_kind": "+I", "f0": "q", "f1": None}]
    ),
    ("agg", 2): ("[100, -1]", {"f0": 100, "f1": -1}),
    ("rounds", -77): ("2", 2),
}  # fmt: skip
"""By state and number of the key: what the file says, and the value that is there then."""
FILE = f"""version: 1
moved:
- {{from: held, to: kept}}
removed:
- {{operator: keep, key: {words(THREE)}}}
- {{operator: keep, state: v-row}}
- {{operator: keep, state: ttl-map, key: {words(FIVE)}, map_key: 5}}
- {{operator: count, key: 2}}
- {{operator: held, state: union}}
- {{operator: interval, state: LEFT_BUFFER, key: 0}}
- {{operator: cep, key: 1}}
- async
set:
- {{operator: keep, state: ttl, key: {words(ONE)}, value: again}}
- {{operator: keep, state: ttl-map, key: {words(ONE)}, map_key: -9, value: {{last_access: 1795501609536, value: new}}}}
""" + "".join(
    f"- {{operator: keep, state: {state}, key: {{f0: key, f1: {number}}}, value: {text}}}\n"
    for (state, number), (text, _) in SET.items()
)


def wanted(before: dict[tuple[str, str | None], list[str]]) -> dict[tuple[str, str | None], list[str]]:
    """The rows that the file leaves, from those that were there, without any of the code that carries it out."""
    ids = {uid: operator_id(uid) for uid in ("keep", "held", "count", "interval", "cep", "async")}
    after: dict[tuple[str, str | None], list[str]] = {}
    for (id, state), rows in before.items():
        kept = [json.loads(row) for row in rows]
        if id == ids["async"] or (id, state) in {(ids["keep"], "v-row"), (ids["held"], "union")}:
            continue
        if id == ids["keep"]:
            kept = [row for row in kept if row["key.f1"] != 3]
            for row in kept:
                number = row["key.f1"]
                if (state, number) in SET:
                    row["value"] = SET[str(state), number][1]
                if (state, number) == ("ttl", 1):
                    row["value"] = "again"
            if state == "ttl-map":
                kept = [row for row in kept if row["key.f1"] != 5]
                kept.append(ONE | {"map_key": -9, "value": "new", "ttl_last_access": 1795501609536})
            kept += [NEW | {"value": 2}] if state == "rounds" else []
        elif (id, state) == (ids["interval"], "LEFT_BUFFER"):
            kept = [row for row in kept if row["key"] != 0]
        elif id in (ids["count"], ids["cep"]):
            gone = 2 if id == ids["count"] else 1
            kept = [row for row in kept if row["key"] != gone]
        place = operator_id("kept") if id == ids["held"] else id
        after[place, state] = sorted(json.dumps(row, default=str) for row in kept)
    return after


OWN = {(operator_id("kept"), "union"), (operator_id("numbers"), "SourceReaderState")}
"""States that a job which started from the copy has filled again, or read on."""


def changes_for(source: Path, *, most: bool = True) -> str:
    """FILE. most: with the max parallelism of all operators: where it is given, a job starts only if all have it."""
    store = FlinkStore(str(source))
    operators = [one.id for one in store.metadata(store.resolve(None)).operators if one.id != operator_id("async")]
    return FILE + "".join(f"- {{operator: {id}, max_parallelism: {MOST}}}\n" for id in operators if most)


def changed_job(folder: Path) -> str:
    """The class path of the job that starts from a changed copy: `held` is `kept` in it."""
    job = (SOURCES / "UpgradeJob.java").read_text().replace('.uid("held")', '.uid("kept")')
    return compiled_for(VERSION, folder, UpgradeJob=job)


def options_to_start(copy: Path, backend: str, *, most: bool = True) -> list[str]:
    """What Flink is given to start from a copy."""
    options = [f"execution.state-recovery.path=file://{copy}", f"state.backend.type={backend}"]
    return [*options, f"pipeline.max-parallelism={MOST}"] if most else options


def without_own(rows: dict[tuple[str, str | None], list[str]]) -> dict[tuple[str, str | None], list[str]]:
    """The rows of every state that the started job leaves as they were."""
    return {place: kept for place, kept in rows.items() if place not in OWN and kept}
