"""A job that joins orders with their payments, and what has to come of it."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

from formats.job.model import Edge, How, Join, Kind, LookupHow, Operator, Partition, Topology
from tests.support.jobs.small import HASH, operator, output_rows

SECOND = 1_000_000
AFTER = 5
"""Seconds within which a payment is one of its order."""


def moment(seconds: int) -> str:
    return f"2026-01-01T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def source(id: str, value: str, parallelism: int) -> Operator:
    connector = {
        "type": "jsonl", "path": f"in/{id}/*.jsonl",
        "schema": {"order": "string", "at": "timestamp", value: "int"},
        "event_time": {"column": "at", "delay": "3s"},
    }  # fmt: skip
    return operator(id, Kind.SOURCE, parallelism, connector=connector)


def matching(how: How = How.OUTER, parallelism: int = 2, *, slow: bool = False, slack: int = 0) -> Topology:
    """slow: orders go through a function of `write_rows` of `kills`. slack: lateness in seconds."""
    p = parallelism
    columns = {"same": {"order": "string", "at": "timestamp", "number": "int"}} if slow else {}
    left = "same" if slow else "orders"
    join = Join(left, ("at", "at"), 0, AFTER * SECOND, how, slack * SECOND, columns)
    same = [operator("same", Kind.MAP, p, function="slow:pass_on")] if slow else []
    return Topology(
        "matching",
        (
            source("orders", "number", p), source("payments", "paid", p), *same,
            operator("matched", Kind.JOIN, p, key=("order",), join=join),
            operator("out", Kind.SINK, p, connector={"type": "jsonl", "path": "out"}),
        ),
        (
            *([Edge("orders", "same", Partition.FORWARD)] if slow else []),
            Edge(left, "matched", HASH, ("order",)), Edge("payments", "matched", HASH, ("order",)),
            Edge("matched", "out", Partition.FORWARD),
        ),
    )  # fmt: skip


def with_table(path: str = "users.parquet", how: LookupHow = LookupHow.LEFT, **marks: Any) -> Topology:
    """Orders beside the users that have made them."""
    from formats.job.model import Lookup

    edge = Edge("orders", "users", marks.pop("partition", Partition.FORWARD), marks.pop("key", ()))
    lookup = Lookup(path, ("order",), how, ("name",))
    return Topology(
        "with-table",
        (
            source("orders", "number", 2), operator("users", Kind.LOOKUP, lookup=lookup, **marks),
            operator("out", Kind.SINK, connector={"type": "jsonl", "path": "out"}),
        ),
        (edge, Edge("users", "out", Partition.FORWARD)),
    )  # fmt: skip


def write_orders(folder: Path, *, files: int = 2, rows: int = 300, keys: int = 40, seed: int = 1) -> None:
    """Each file has a row a second, up to three seconds out of order."""
    rng, number = random.Random(seed), 0
    for id, value in (("orders", "number"), ("payments", "paid")):
        (folder / "in" / id).mkdir(parents=True)
        for i in range(files):
            lines = []
            for second in sorted(range(rows), key=lambda second: second + rng.random() * 2.9):
                number += 1
                row = {"order": f"o{rng.randrange(keys)}", "at": moment(second), value: number}
                lines.append(json.dumps(row) + "\n")
            (folder / "in" / id / f"{i:04}.jsonl").write_text("".join(lines))


def rows_of(folder: Path, id: str) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted((folder / "in" / id).iterdir()) for line in _lines(path)]


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def expected(folder: Path, how: How) -> Counter[tuple[Any, Any]]:
    """The numbers of orders and payments that come out together, each pair of rows tried."""
    orders, payments = rows_of(folder, "orders"), rows_of(folder, "payments")
    pairs = [
        (order["number"], payment["paid"])
        for order in orders
        for payment in payments
        if order["order"] == payment["order"] and 0 <= _second(payment) - _second(order) <= AFTER
    ]
    paid, used = {order for order, _ in pairs}, {payment for _, payment in pairs}
    alone: list[tuple[Any, Any]] = []
    if how is not How.INNER:
        alone += [(order["number"], None) for order in orders if order["number"] not in paid]
    if how is How.OUTER:
        alone += [(None, payment["paid"]) for payment in payments if payment["paid"] not in used]
    return Counter([*pairs, *alone])


def _second(row: dict[str, Any]) -> int:
    hours, minutes, seconds = row["at"].partition("T")[2].split(":")
    return int(hours) * 3600 + int(minutes) * 60 + int(seconds)


def shown(folder: Path) -> Counter[tuple[Any, Any]]:
    return Counter((row["number"], row["paid"]) for row in output_rows(folder))
