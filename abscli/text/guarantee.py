"""What `abs topology --guarantee` shows, and the line of it that `abs run` begins with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from abscli.planner.guarantee import Guarantee, Link, SinkGuarantee, Weakness
from abscli.text.columns import UNKNOWN, columns, not_shown, some, wrapped
from formats.version import FORMAT_VERSION

SPARE = ("SOURCES", "SINK IS")
"""Columns that a narrow terminal does without."""
NAMED = 3
"""Operators that a line names."""

MEANS = {
    Weakness.SOURCE_UNKNOWN: "It is not known whether this source can be rewound to the position in an epoch: after a "
    "failure, records may be missing or duplicated.",
    Weakness.OPERATOR_UNKNOWN: "Its kind is not declared, so it is not known what it does with a replayed record.",
    Weakness.SINK_UNKNOWN: "It is not known what this sink does with rows that are replayed after a failure.",
    Weakness.POLICY: "It has several inputs, and records that it processes between their barriers are replayed "
    "after a failure: from here on such records count twice in state, and their output is written twice.",
    Weakness.SINK_REPEATS: "It has no transaction: if it is not known after a failure whether the rows of an epoch "
    "were written, they are written again. Every record still counts once in state.",
    Weakness.NOT_DETERMINISTIC: "It is marked deterministic: false. Every record still counts once, and the output "
    "is that "
    "of one run; another run may emit other rows. If a worker fails, more tasks roll back, and a repair cannot verify "
    "the operators downstream.",
    Weakness.ORDER: "first, last, collect, process and a ttl depend on the order of rows, which can differ between "
    "runs. Every record still counts once: the value is correct for one order of the rows.",
    Weakness.UPDATES: "It gets rows of a reduce without windows, which emits a key again whenever its value changes. "
    "Each update counts as another row, so the result depends on where epochs end.",
}
CHANGE = {
    Weakness.SOURCE_UNKNOWN: "read from a source with exact positions: text, jsonl, csv, parquet, arrow, kafka, "
    "postgres, nexmark or generate",
    Weakness.OPERATOR_UNKNOWN: "declare its kind in the job file; for a job of another system, look up its guarantee",
    Weakness.SINK_UNKNOWN: "write to a sink with a transaction or a key: jsonl, csv, parquet, delta, iceberg, kafka or "
    "postgres",
    Weakness.POLICY: "run with --policy aligned or unaligned",
    Weakness.SINK_REPEATS: "write to a sink with a transaction or a key: jsonl, csv, parquet, delta, iceberg, kafka or "
    "postgres; or let readers drop duplicates by a key (stdout writes one with row_id: COLUMN)",
    Weakness.NOT_DETERMINISTIC: "nothing, for exactly-once; for the same rows in every run let the function depend "
    "on its rows only, not on a clock or random numbers, and remove the mark",
    Weakness.ORDER: "nothing, for exactly-once; for the same value in every run use min, max, or top_n with a column "
    "to sort by, or read from one task whose rows arrive in the same order in every run",
    Weakness.UPDATES: "add a window to the reduce, which then emits each key once per window; or compute both in one "
    "reduce; or write the updates to a table with mode: upsert and query the table",
}
_BRIEF = {
    Weakness.SOURCE_UNKNOWN: "a source that may not rewind",
    Weakness.OPERATOR_UNKNOWN: "unknown kind",
    Weakness.SINK_UNKNOWN: "a sink without a known guarantee",
    Weakness.POLICY: "several inputs under at-least-once",
    Weakness.SINK_REPEATS: "no transaction",
    Weakness.NOT_DETERMINISTIC: "not deterministic",
    Weakness.ORDER: "depends on the order of rows",
    Weakness.UPDATES: "counts each update of a reduce as a row",
}


def guarantee_text(guarantee: Guarantee, *, width: int = 80) -> str:
    """A line a sink, then what weakens them, what that means and what to change."""
    lines = wrapped(f"{guarantee.job}: end-to-end guarantee with --policy {guarantee.policy}", width)
    if guarantee.sinks:
        header = ("SINK", "SOURCES", "SINK IS", "STATE", "OUTPUT", "WEAKEST")
        rows = [_row(sink) for sink in guarantee.sinks]
        lines += ["", *columns(header, rows, "llllll", width, SPARE), *not_shown(header, rows, width, SPARE)]
        lines += ["", *wrapped("STATE: how often a record counts. OUTPUT: how often its result is visible.", width)]
    else:
        state = guarantee.state or "not known"
        lines += ["", *wrapped(f"There is no sink, so no output. How often a record counts: {state}.", width)]
    for link in guarantee.links:
        names = some(link.operators, 8)
        lines += ["", *wrapped(f"{link.weakness}: {names}", width)]
        lines += wrapped(MEANS[link.weakness], width, "  ")
        lines += wrapped(CHANGE[link.weakness], width, "    ", "  change: ")
    return "\n".join(lines) + "\n"


def _row(sink: SinkGuarantee) -> tuple[str, ...]:
    weakest = _in_brief(sink.links[0]) if sink.links else "-"
    state, output = sink.state or UNKNOWN, sink.output or UNKNOWN
    return sink.sink, some(sink.sources, NAMED), sink.promise or UNKNOWN, state, output, weakest


def _in_brief(link: Link) -> str:
    return f"{link.weakness}: {some(link.operators, NAMED)}"


def guarantee_line(guarantee: Guarantee) -> str:
    """The weakest that holds for any sink, in one line, and what weakens it."""
    state, output = guarantee.state, guarantee.output
    if not guarantee.sinks:
        holds = f"state {state or 'not known'}, no sink"
    elif state == output:
        holds = f"{state or 'not known what holds'} from end to end"
    else:
        holds = f"state {state or 'not known'}, output {output or 'not known'}"
    weak = "; ".join(f"{some(link.operators, NAMED)}: {_BRIEF[link.weakness]}" for link in guarantee.links)
    reasons = f" ({weak}; 'abs topology --guarantee' shows details)" if weak else ""
    return f"guarantee: {holds}, policy {guarantee.policy}{reasons}"


def guarantee_json(guarantee: Guarantee) -> dict[str, Any]:
    """The `abs.guarantee` object."""
    value: dict[str, Any] = msgspec.to_builtins(guarantee)
    for link in value["links"]:
        weakness = Weakness(link["weakness"])
        link |= {"means": MEANS[weakness], "change": CHANGE[weakness]}
    return {"schema": "abs.guarantee", "version": FORMAT_VERSION, **value}


def guarantee_items(guarantee: Guarantee) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    """The ndjson form: what stands once, then a sink a line."""
    header = guarantee_json(guarantee)
    sinks = header.pop("sinks")
    return header, ({"type": "sink", **sink} for sink in sinks)
