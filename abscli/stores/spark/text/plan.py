"""Text of a plan for a Spark checkpoint, and of a restore: where the query resumes, which output is written again."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Sequence
from typing import Any

import msgspec

from abscli.stores.recovery import restore_command
from abscli.stores.spark.restore import SparkRestored
from abscli.text.columns import columns, number, size, some, wrapped
from formats.plan import Plan
from formats.spark import layout
from formats.spark.logs.offsets import NAMED_SOURCES
from formats.spark.logs.places import VERSIONS
from formats.spark.logs.sink_log import FOLDER
from formats.spark.plan import Again, LateRows, SetPosition, SinkPlan, SparkPlan
from formats.version import FORMAT_VERSION

SKIPPED = 10
"""Newer batches that are shown; json has them all."""


def plan_text(plan: Plan[SparkPlan], *, width: int = 80, plan_file: str | None = None) -> str:
    """The plan for people."""
    sections = [
        _heading(plan, width),
        _skipped(plan, width),
        _sink_section(plan, width),
        _late_rows(plan, width),
        _files(plan, width),
        _put_back(plan, width),
        _written(plan, width),
        _inputs(plan, width),
        _positions(plan, width),
        _names(plan, width),
        _undone(plan, width),
        _next(plan, plan_file, width),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _heading(plan: Plan[SparkPlan], width: int) -> list[str]:
    lines = wrapped(f"Back to batch {plan.body.batch} of {plan.store}, query {plan.body.query_id}", width)
    age = "the newest" if not plan.body.skipped else "not the newest"
    exact = "to exact results" if plan.body.late_rows is None else "to exact results, except for late rows"
    if any(one.recreated for one in plan.body.positions):
        exact = "with the state that it has, in a new input"
    return [*lines, *wrapped(f"it is {age}; from it the query goes on {exact}", width, "  ", "  ")]


def _late_rows(plan: Plan[SparkPlan], width: int) -> list[str]:
    body, following = plan.body, plan.body.batch + 1
    if body.late_rows is None:
        return []
    kept = f"{shlex.quote(f'{plan.store}@{body.batch}')} --keep-in-flight"
    if body.late_rows is LateRows.WITHOUT_INPUT:
        sentences = [
            f"Batch {following} had no input: it removed state that the watermark had passed. Spark does not run it "
            "again, so rows that it had dropped as too late may be counted.",
            f"To run batch {following} as it was: abs plan-recovery {kept}",
        ]
    else:
        sentences = ["Batches that run again may be cut differently. The watermark then moves at other rows, and rows "
                     "later than it may be counted or dropped otherwise."]  # fmt: skip
        if not body.next_batch_unchanged:
            sentences.append(f"To run batch {following} with the input that it had: abs plan-recovery {kept}")
    return ["Late rows", *(line for one in sentences for line in wrapped(one, width, "    ", "  "))]


def _skipped(plan: Plan[SparkPlan], width: int) -> list[str]:
    lines = []
    for newer in plan.body.skipped[-SKIPPED:]:
        lines += wrapped(newer.reason, width, "    ", f"  batch {newer.batch}: ")
    if len(plan.body.skipped) > SKIPPED:
        lines.insert(0, f"  ... and {len(plan.body.skipped) - SKIPPED} older ones; -o json has them all")
    return ["Why not a newer one", *lines] if lines else []


def sink(plan: Plan[SparkPlan]) -> list[str]:
    """Return the output that is written again, one sentence each."""
    body = plan.body
    return seen_again(body.batch, body.replayed, unchanged=body.next_batch_unchanged, sink=body.sink)


def seen_again(
    batch: int, replayed: Sequence[Again], *, unchanged: bool = False, sink: SinkPlan | None = None
) -> list[str]:
    """Return the output that is written again if the query resumes after a batch, one sentence each.

    replayed: the batches that run again; unchanged: the first of them has the input that it had.
    sink: the file sink whose log goes back as well.
    """
    if not replayed:
        return [f"Nothing: batch {batch} is the newest, and none was in flight."]
    done = [one.batch for one in replayed if one.committed]
    flight = [one.batch for one in replayed if not one.committed]
    sentences = []
    if done:
        sentences.append(f"{_batches(done)} ran to the end: the sink has the output, and gets the same input again.")
    if flight:
        were = "was" if len(flight) == 1 else "were"
        sentences.append(f"{_batches(flight)} {were} in flight: the sink may have all, a part or nothing of it, and "
                         "gets it again.")  # fmt: skip
    if unchanged:
        rest = " Later ones may be cut differently." if len(replayed) > 1 else ""
        sentences.append(f"Batch {batch + 1} runs with exactly the input that it had.{rest}")
    else:
        sentences.append("Batches have the same numbers but may be cut differently: more or less input in each.")
    risky = len(replayed) - unchanged
    if sink is not None:
        sentences += _sink_log(sink, batch)
    elif risky:
        sentences.append(
            f"A sink that skips batch numbers that it has committed (Spark's file sink, Delta) loses rows, unless its "
            f"record of the batches above {batch + unchanged} is removed first (--sink OUTPUT does that for a file "
            "sink). A sink that overwrites by key has correct rows. A sink that appends has rows twice."
        )
    return sentences


def _sink_log(sink: SinkPlan, batch: int) -> list[str]:
    sentences = [
        f"The log of the file sink at {sink.output} is rolled back to batch {batch}: {number(sink.files)} files of the "
        f"output, {size(sink.bytes)}."
    ]
    if sink.later_files:
        sentences.append(
            f"Files of later batches, {number(sink.later_files)} with {size(sink.later_bytes)}, are no longer of the "
            "output. They stay where they are, and who reads it through Spark does not see them."
        )
    if sink.missing:
        sentences.append(f"Of the output up to the batch there is not, or not whole: {some(list(sink.missing), 5)}.")
    return sentences


def _batches(numbers: list[int]) -> str:
    if len(numbers) == 1:
        return f"Batch {numbers[0]}"
    if numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"Batches {numbers[0]} to {numbers[-1]}"
    return f"Batches {some([str(n) for n in numbers], 12)}"


def _sink_section(plan: Plan[SparkPlan], width: int) -> list[str]:
    lines = (line for sentence in sink(plan) for line in wrapped(sentence, width, "    ", "  "))
    return ["Output that is written again", *lines]


def _files(plan: Plan[SparkPlan], width: int) -> list[str]:
    written = {file.path for file in plan.body.write}
    kept = [file.bytes for file in plan.relies_on if file.path not in written]
    rows = [("copied", number(len(kept)), size(sum(kept)), f"{size(plan.body.state_bytes)} of it state")]
    if plan.body.write:
        rows.append(("rewritten", number(len(plan.body.write)), "", "see below"))
    rows += [("left behind", number(left.files), size(left.bytes), left.reason) for left in plan.body.excluded]
    return columns(("FILES ARE", "FILES", "BYTES", ""), rows, "lrrl", width)


def _put_back(plan: Plan[SparkPlan], width: int) -> list[str]:
    """Files that lie elsewhere, by folder and reason."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for file in plan.body.restored_files:
        if file.path.startswith(f"{layout.SOURCES}/"):
            continue  # told by the names
        (place, name), own = posixpath.split(file.path), posixpath.dirname(file.source)
        groups.setdefault((own, place, file.reason), []).append(name)
    lines: list[str] = []
    for (own, place, why), names in groups.items():
        lines += wrapped(f"{some(sorted(names), 6)}: {why}", width, "    ", f"  {own} -> {place}: ")
    return ["Put back where it belongs", *lines] if lines else []


def _written(plan: Plan[SparkPlan], width: int) -> list[str]:
    lines: list[str] = []
    entries = [(f"{FOLDER}/{file.path}", file.reason) for file in plan.body.sink.write] if plan.body.sink else []
    for path, why in [*((file.path, file.reason) for file in plan.body.write), *entries]:
        lines += wrapped(why, width, "    ", f"  {path}: ")
    return ["Written anew", *lines] if lines else []


def _inputs(plan: Plan[SparkPlan], width: int) -> list[str]:
    lines: list[str] = []
    for move in plan.body.moved:
        lines += wrapped(f"{move.old} -> {move.new}", width, "    ", "  moved: ")
    for place in plan.body.inputs:
        covered = any(f"{place.folder}/".startswith(f"{move.old}/") for move in plan.body.moved)
        if place.exists is False and not covered:
            doubt = f"source {place.source} has read {place.files} files there: if they have moved, --path-map OLD=NEW"
            lines += wrapped(doubt, width, "    ", f"  not there: {place.folder}: ")
    return ["Inputs", *lines] if lines else []


def _positions(plan: Plan[SparkPlan], width: int) -> list[str]:
    lines: list[str] = []
    for one in plan.body.positions:
        lines += wrapped(f"{one.before} -> {one.after}: {_fate(one)}", width, "    ", f"  {one.source}:{one.split}: ")
    return ["Set anew", *lines] if lines else []


def _fate(one: SetPosition) -> str:
    """What becomes of the input between two places."""
    if one.recreated:
        what = f"table {one.table}" if one.table is not None else "the new topic"
        return (f"{what} is read from there. What the query had not read of the old one is lost; state and sink keep "
                f"what it had read, up to {one.before}")  # fmt: skip
    if one.unit == VERSIONS:  # the newest of which may have been read in part
        if one.after > one.before:
            return f"what had not been read of {_versions(one.before, one.after - 1)} is skipped"
        return f"what had been read of {_versions(one.after, one.before)} is read twice: state and sink have it already"
    if one.after == one.before:
        return "it is there already"
    fate = "skipped" if one.after > one.before else "read twice: state and sink have them already"
    return f"up to {number(abs(one.after - one.before))} {one.unit} are {fate}"


def _versions(low: int, high: int) -> str:
    return f"version {low}" if low == high else f"versions {low} to {high}"


def _undone(plan: Plan[SparkPlan], width: int) -> list[str]:
    lines: list[str] = []
    for one in plan.body.reverted_repartitions:
        what = f"it had repartitioned state from {one.before} to {one.after} partitions, and the copy is without it"
        lines += wrapped(what, width, "    ", f"  batch {one.batch}: ")
    return ["Repartitions that are undone", *lines] if lines else []


def _names(plan: Plan[SparkPlan], width: int) -> list[str]:
    if not plan.body.renamed_sources:
        return []
    lines = [f"  source {one.source} is called {one.name}" for one in plan.body.renamed_sources]
    means = (
        "the query has to give each source its name, with name(), and to set "
        f"{NAMED_SOURCES} to true (Spark 4.2 on); then sources may be added, left out, or named in another order. One "
        "that is added begins where its options say; of one that is left out nothing more is read, and state keeps "
        "what came from it."
    )
    return ["Names of sources", *lines, *wrapped(means, width, "    ", "  means: ")]


def _next(plan: Plan[SparkPlan], plan_file: str | None, width: int) -> list[str]:
    body = plan.body
    sink = " --sink-to NEW_LOG" if body.sink is not None else ""
    if plan_file is not None:
        return [f"Next: {restore_command(plan, plan_file)} --to NEW_CHECKPOINT{sink}"]
    if plan.store is None or body.positions or body.renamed_sources or body.sink or body.next_batch_unchanged:
        return ["Next: the same command with --out plan.json"]
    read = plan.read.words(("search", "path_map"))
    return [f"Next: abs plan-recovery {shlex.quote(plan.store)}@{body.batch}{read} --out plan.json"]


def restored_json(plan: Plan[SparkPlan], done: SparkRestored) -> dict[str, Any]:
    """`abs.spark-restore`. findings: of the checks on the copy, none of which takes anything from its batch."""
    return {
        "schema": "abs.spark-restore",
        "version": FORMAT_VERSION,
        "store": plan.store,
        "to": done.to,
        "sink_to": done.sink_to,
        "query_id": plan.body.query_id,
        "batch": plan.body.batch,
        "files": done.files,
        "bytes": done.bytes,
        "written": len(plan.body.write),
        "findings": len(done.report.all_findings),
        "replayed": [msgspec.to_builtins(one) for one in plan.body.replayed],
        "sink": sink(plan),
        "elapsed": round(done.elapsed, 3),
    }


def restored_text(plan: Plan[SparkPlan], done: SparkRestored, *, width: int = 80) -> str:
    """The same for people."""
    lines = wrapped(
        f"{done.to} holds query {plan.body.query_id} up to batch {plan.body.batch}: {done.files:,} files, "
        f"{size(done.bytes)}, {len(plan.body.write)} of them rewritten, in {done.elapsed:.1f} s", width, "  ", "",
    )  # fmt: skip
    lines += [f"checked: batch {plan.body.batch} can be restored", "", *_sink_section(plan, width)]
    if done.sink_to is not None and plan.body.sink is not None:
        log = f"{plan.body.sink.output}/{FOLDER}"
        lines += ["", "first: put the log of the sink in its place"]
        for source, target in ((log, f"{log}.before-{plan.created[:19].replace(':', '')}"), (done.sink_to, log)):
            lines.append(f"  mv {shlex.quote(source)} {shlex.quote(target)}")
    lines += ["", *wrapped(f"Next: start the query with checkpointLocation {done.to}", width, "  ", "")]
    return "\n".join(lines) + "\n"
