"""A plan for a Spark checkpoint and what came of it, in words: where the query goes on, what its sink sees again."""

from __future__ import annotations

import shlex
from typing import Any

import msgspec

from abscli.stores.spark.restore import SparkRestored
from abscli.text.columns import columns, number, size, some, wrapped
from formats.plan import Plan
from formats.spark.plan import SparkPlan

SKIPPED = 10
"""Newer batches that are shown; json has them all."""


def plan_text(plan: Plan[SparkPlan], *, width: int = 80, plan_file: str | None = None) -> str:
    """The plan for people."""
    sections = [
        _heading(plan, width),
        _skipped(plan, width),
        _sink_section(plan, width),
        _files(plan, width),
        _written(plan, width),
        _inputs(plan, width),
        _next(plan_file, width),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _heading(plan: Plan[SparkPlan], width: int) -> list[str]:
    lines = wrapped(f"Back to batch {plan.body.batch} of {plan.store}, query {plan.body.query_id}", width)
    age = "the newest" if not plan.body.skipped else "not the newest"
    return [*lines, *wrapped(f"it is {age}; from it the query goes on to exact results", width, "  ", "  ")]


def _skipped(plan: Plan[SparkPlan], width: int) -> list[str]:
    lines = []
    for newer in plan.body.skipped[-SKIPPED:]:
        lines += wrapped(newer.reason, width, "    ", f"  batch {newer.batch}: ")
    if len(plan.body.skipped) > SKIPPED:
        lines.insert(0, f"  ... and {len(plan.body.skipped) - SKIPPED} older ones; -o json has them all")
    return ["Why not a newer one", *lines] if lines else []


def sink(plan: Plan[SparkPlan]) -> list[str]:
    """What the sink will see again, a sentence each."""
    if not plan.body.again:
        return [f"Nothing: batch {plan.body.batch} is the newest, and none was in flight."]
    done = [one.batch for one in plan.body.again if one.committed]
    flight = [one.batch for one in plan.body.again if not one.committed]
    sentences = []
    if done:
        sentences.append(f"{_batches(done)} ran to the end: the sink has them, and gets the same input again.")
    if flight:
        were = "was" if len(flight) == 1 else "were"
        sentences.append(f"{_batches(flight)} {were} in flight: the sink may have all, a part or nothing of it, and "
                         "gets it again.")  # fmt: skip
    if plan.body.next_as_before:
        rest = " Later ones may be cut differently." if len(plan.body.again) > 1 else ""
        sentences.append(f"Batch {plan.body.batch + 1} runs with exactly the input that it had.{rest}")
    else:
        sentences.append("Batches have the same numbers but may be cut differently: more or less input in each.")
    risky = len(plan.body.again) - plan.body.next_as_before
    if risky:
        sentences.append(
            f"A sink that skips batch numbers it has seen (Spark's file sink by _spark_metadata, Delta) has to forget "
            f"those above {plan.body.batch + plan.body.next_as_before} first, or it loses rows; one that overwrites by "
            "key comes out right; one that appends has rows twice."
        )
    return sentences


def _batches(numbers: list[int]) -> str:
    if len(numbers) == 1:
        return f"Batch {numbers[0]}"
    if numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"Batches {numbers[0]} to {numbers[-1]}"
    return f"Batches {some([str(n) for n in numbers], 12)}"


def _sink_section(plan: Plan[SparkPlan], width: int) -> list[str]:
    lines = (line for sentence in sink(plan) for line in wrapped(sentence, width, "    ", "  "))
    return ["What the sink sees again", *lines]


def _files(plan: Plan[SparkPlan], width: int) -> list[str]:
    written = {file.path for file in plan.body.write}
    kept = [file.bytes for file in plan.relies_on if file.path not in written]
    rows = [("copied", number(len(kept)), size(sum(kept)), f"{size(plan.body.state_bytes)} of it state")]
    if plan.body.write:
        rows.append(("written anew", number(len(plan.body.write)), "", "see below"))
    rows += [("left behind", number(left.files), size(left.bytes), left.why) for left in plan.body.left]
    return columns(("FILES ARE", "FILES", "BYTES", ""), rows, "lrrl", width)


def _written(plan: Plan[SparkPlan], width: int) -> list[str]:
    lines: list[str] = []
    for file in plan.body.write:
        lines += wrapped(file.why, width, "    ", f"  {file.path}: ")
    return ["Written anew", *lines] if lines else []


def _inputs(plan: Plan[SparkPlan], width: int) -> list[str]:
    lines: list[str] = []
    for move in plan.body.moved:
        lines += wrapped(f"{move.old} -> {move.new}", width, "    ", "  moved: ")
    for place in plan.body.inputs:
        covered = any(f"{place.folder}/".startswith(f"{move.old}/") for move in plan.body.moved)
        if place.here is False and not covered:
            doubt = f"source {place.source} has read {place.files} files there: if they have moved, --path-map OLD=NEW"
            lines += wrapped(doubt, width, "    ", f"  not there: {place.folder}: ")
    return ["Inputs", *lines] if lines else []


def _next(plan_file: str | None, width: int) -> list[str]:
    name = shlex.quote(plan_file) if plan_file else "PLAN"
    lead = "" if plan_file else "with --out PLAN: "
    return [f"next: {lead}abs restore {name} --to NEW_CHECKPOINT"]


def restored_json(plan: Plan[SparkPlan], done: SparkRestored) -> dict[str, Any]:
    """`abs.spark-restore`. findings: of the checks on the copy, none of which takes anything from its batch."""
    return {
        "schema": "abs.spark-restore",
        "version": "1.0",
        "store": plan.store,
        "to": done.to,
        "query_id": plan.body.query_id,
        "batch": plan.body.batch,
        "files": done.files,
        "bytes": done.bytes,
        "written": len(plan.body.write),
        "findings": len(done.report.all_findings),
        "again": [msgspec.to_builtins(one) for one in plan.body.again],
        "sink": sink(plan),
        "elapsed": round(done.elapsed, 3),
    }


def restored_text(plan: Plan[SparkPlan], done: SparkRestored, *, width: int = 80) -> str:
    """The same for people."""
    lines = wrapped(
        f"{done.to} holds query {plan.body.query_id} up to batch {plan.body.batch}: {done.files:,} files, "
        f"{size(done.bytes)}, {len(plan.body.write)} of them written anew, in {done.elapsed:.1f} s", width, "  ", "",
    )  # fmt: skip
    lines += [f"checked: batch {plan.body.batch} can be restored", "", *_sink_section(plan, width)]
    lines += ["", *wrapped(f"next: start the query with checkpointLocation {done.to}", width, "  ", "")]
    return "\n".join(lines) + "\n"
