"""Checks, sinks and plans do not drop an error without a reason: what could not be checked is reported as unchecked."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCOPE = ("stores/*/check*.py", "stores/*/checks/**/*.py", "stores/*/plan.py", "stores/*/recovery.py",
         "stores/*/verdict.py", "engine/sinks/**/*.py")  # fmt: skip
"""Below `abscli`."""

GONE = "a file that is already gone needs no removal"
RACE = "another process did the same first"
ANSWER = "the exception is the answer to the question"
RETRY = "the caller tries again, and fails after its last try"
ELSEWHERE = "the check of that file reports the error"
REASONS = {
    "engine/sinks/bucket_moves.py:_keep": RACE,
    "engine/sinks/folder_sinks.py:_drop": GONE,
    "engine/sinks/iceberg/place.py:_make_database": RACE,
    "engine/sinks/iceberg/table.py:_load": ANSWER,
    "engine/sinks/iceberg/table.py:_create": RACE,
    "engine/sinks/iceberg/table.py:create": RACE,
    "engine/sinks/iceberg/table.py:_commit": RETRY,
    "engine/sinks/json_lines.py:_rows": "the rows are written in a slower way that handles all values",
    "engine/sinks/kafka/markers.py:take": "a message of another sink or client is no marker",
    "engine/sinks/kafka/topic.py:take": RETRY,
    "engine/sinks/kafka/topic.py:publish": RETRY,
    "engine/sinks/kafka/transactions.py:_produce": RETRY,
    "engine/sinks/kafka/transactions.py:_give_up": "the broker aborts the transaction after its timeout",
    "engine/sinks/moves.py:inode": ANSWER,
    "engine/sinks/moves.py:set_aside": RACE,
    "engine/sinks/moves.py:clear": GONE,
    "engine/sinks/moves.py:stage": RETRY,
    "engine/sinks/moves.py:_drop": GONE,
    "engine/sinks/moves.py:_link_beside": ANSWER,
    "engine/sinks/moves.py:_are_one": ANSWER,
    "engine/sinks/moves.py:_are_equal": ANSWER,
    "engine/sinks/part_files.py:abandon": "the part is thrown away",
    "engine/sinks/postgres/epochs.py:end": RACE,
    "engine/sinks/postgres/holding.py:keep": "a new connection takes the lock, or fails",
    "engine/sinks/postgres/preconditions.py:_unique_key": "a missing index is reported as a precondition",
    "engine/sinks/postgres/upsert.py:attempt": "rows that cannot be tried now are tried at the delivery",
    "engine/sinks/settling.py:_drop_unfinished": GONE,
    "engine/sinks/staged/delta.py:_table": ANSWER,
    "engine/sinks/staged/trial.py:__call__": "rows that cannot be tried now are tried at the delivery",
    "stores/flink/check.py:_counted": ELSEWHERE,
    "stores/native/check.py:_bytes": "only the progress bar uses the size",
    "stores/native/checks/named_parts.py:read": ELSEWHERE,
    "stores/native/checks/part_files.py:_gap": ELSEWHERE,
    "stores/native/checks/part_files.py:_sure_above": "below an epoch that cannot be read nothing is sure",
    "stores/native/plan.py:own_line": "epochs are then ordered by number",
    "stores/native/plan.py:_later": "an older epoch tells how far sources had come",
    "stores/native/plan.py:_is_described": "the hint then names `abs rebuild`, which reports the damage",
    "stores/spark/plan.py:_inputs": "the count of files is an estimate",
}
"""Function, and why it may drop an error."""


def droppers(source: str) -> Iterator[tuple[str, int]]:
    """Return the functions that drop an exception, with the line: neither raised again nor looked at."""

    def visit(node: ast.AST, name: str) -> Iterator[tuple[str, int]]:
        for child in ast.iter_child_nodes(node):
            function = child.name if isinstance(child, ast.FunctionDef) else name
            if isinstance(child, ast.ExceptHandler):
                inner = [one for statement in child.body for one in ast.walk(statement)]
                is_used = any(isinstance(one, ast.Name) and one.id == child.name for one in inner)
                if not is_used and not any(isinstance(one, ast.Raise) for one in inner):
                    yield function, child.lineno
            if isinstance(child, ast.Call) and ast.unparse(child.func).endswith("suppress"):
                yield function, child.lineno
            yield from visit(child, function)

    return visit(ast.parse(source), "")


def test_every_dropped_error_has_a_reason() -> None:
    found = {}
    for path in sorted({path for pattern in SCOPE for path in (ROOT / "abscli").glob(pattern)}):
        name = path.relative_to(ROOT / "abscli")
        found |= {f"{name}:{function}": line for function, line in droppers(path.read_text(encoding="utf-8"))}
    without = {f"abscli/{place} (line {line})" for place, line in found.items() if place not in REASONS}
    assert not without, "report it as unchecked, or give a reason here"
    assert not REASONS.keys() - found.keys(), "these drop nothing any more"


@pytest.mark.parametrize(
    ("body", "number"),
    [
        ("try:\n    g()\nexcept OSError:\n    pass", 1),
        ("with contextlib.suppress(OSError):\n    g()", 1),
        ("try:\n    g()\nexcept OSError as error:\n    return str(error)", 0),
        ("try:\n    g()\nexcept OSError:\n    raise ValueError from None", 0),
    ],
)
def test_an_error_that_is_looked_at_or_raised_is_not_dropped(body: str, number: int) -> None:
    function = "def f():\n" + "".join(f"    {line}\n" for line in body.splitlines())
    assert [name for name, _ in droppers(function)] == ["f"] * number
