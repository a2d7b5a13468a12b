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
    Weakness.SOURCE_UNKNOWN: "It is not known whether this source can go back to where an epoch has read it: after a "
    "failure records may be missing, or come twice.",
    Weakness.OPERATOR_UNKNOWN: "Its kind is not said, so it is not known what it does with a record that comes again.",
    Weakness.SINK_UNKNOWN: "It is not known what this sink does with rows that come again after a failure.",
    Weakness.POLICY: "It has several inputs, and what it takes between their barriers comes again after a failure: "
    "such records count twice in state from here on, and what is made of them is shown twice.",
    Weakness.SINK_REPEATS: "It has no transaction: where it is not known after a failure whether an epoch's rows were "
    "written, they are written again. State counts every record once all the same.",
    Weakness.NOT_DETERMINISTIC: "It is marked deterministic: false. Every record counts once all the same, and rows "
    "shown are of one run; another run may have others. When a worker is lost more tasks go back, and nothing behind "
    "it can be repaired by proof.",
    Weakness.ORDER: "first, last, collect, process and a ttl go by the order in which rows come, and that is another "
    "one in another run. Every record counts once all the same: the value is right for one order of the rows, not for "
    "each.",
}
CHANGE = {
    Weakness.SOURCE_UNKNOWN: "read from a source with exact positions: text, jsonl, csv, parquet, arrow, kafka, "
    "postgres, nexmark or generate",
    Weakness.OPERATOR_UNKNOWN: "say its kind in the job file; of another system's job, look up what that promises",
    Weakness.SINK_UNKNOWN: "write to a sink with a transaction or a key: jsonl, csv, parquet, delta, iceberg, kafka or "
    "postgres",
    Weakness.POLICY: "run with --policy aligned or unaligned",
    Weakness.SINK_REPEATS: "write to a sink with a transaction or a key: jsonl, csv, parquet, delta, iceberg, kafka or "
    "postgres; or have readers drop by a key what comes again (stdout writes one with row_id: COLUMN)",
    Weakness.NOT_DETERMINISTIC: "nothing, for exactly-once; for the same rows in every run let the function go by its "
    "rows alone, with no clock and no random numbers, and remove the mark",
    Weakness.ORDER: "nothing, for exactly-once; for the same value in every run use min, max, or top_n with a column "
    "to go by, or have it read from one task whose rows come in the same order again",
}
_BRIEF = {
    Weakness.SOURCE_UNKNOWN: "a source that may not go back",
    Weakness.OPERATOR_UNKNOWN: "of no kind",
    Weakness.SINK_UNKNOWN: "a sink that promises nothing",
    Weakness.POLICY: "several inputs under at-least-once",
    Weakness.SINK_REPEATS: "no transaction",
    Weakness.NOT_DETERMINISTIC: "not deterministic",
    Weakness.ORDER: "goes by the order of rows",
}


def guarantee_text(guarantee: Guarantee, *, width: int = 80) -> str:
    """A line a sink, then what weakens them, what that means and what to change."""
    lines = wrapped(f"{guarantee.job}: what holds from end to end with --policy {guarantee.policy}", width)
    if guarantee.sinks:
        header = ("SINK", "SOURCES", "SINK IS", "STATE", "OUTPUT", "WEAKEST")
        rows = [_row(sink) for sink in guarantee.sinks]
        lines += ["", *columns(header, rows, "llllll", width, SPARE), *not_shown(header, rows, width, SPARE)]
        lines += ["", *wrapped("STATE: how often a record counts. OUTPUT: how often a row made of it is shown.", width)]
    else:
        state = guarantee.state or "not known"
        lines += ["", *wrapped(f"There is no sink: nothing is shown. How often a record counts: {state}.", width)]
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
    reasons = f" ({weak}; 'abs topology --guarantee' says more)" if weak else ""
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
