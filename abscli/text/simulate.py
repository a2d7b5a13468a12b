"""What a simulation found: a table of what was covered, and a violation with its diagram."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from abscli.sim.chandy_lamport.systems import SingleToken
from abscli.sim.diagram import Diagram
from abscli.sim.report import Finding, Row, Simulated
from abscli.sim.world import Step
from abscli.text.columns import columns, counted, wrapped
from abscli.text.spacetime import spacetime_text
from formats.version import FORMAT_VERSION

MAX_STEPS = 60
"""Steps of a diagram that are shown; the SVG and JSON have more."""


def simulated_text(result: Simulated, *, width: int, ascii: bool, picture: Diagram | None) -> str:
    """For people. picture: a diagram to show, of a violation or of a run that was asked for."""
    head = f"{result.job}: {counted(result.tasks, 'task')}, {counted(result.channels, 'channel')}"
    lines = [head + (f", from seed {result.seed}" if result.seed is not None else ""), ""]
    lines += _searches(result, width) if result.seed is None else _runs(result, width)
    if result.workers and result.seed is not None:
        lines += _situations(result, width)
    if picture is not None:
        lines += ["", spacetime_text(picture, width=width, ascii=ascii, max_steps=MAX_STEPS).rstrip()]
    lines.append("")
    if result.finding is not None:
        lines += _violation(result.finding, width)
    elif any(row.whole is False for row in result.rows):
        lines += wrapped("No violation, but the search is incomplete: raise --max-states, or lower --subtasks or "
                         "--records.",
                         width)
    else:
        lines.append("No violation.")
    return "\n".join(lines) + "\n"


def _runs(result: Simulated, width: int) -> list[str]:
    header = ("policy", "runs", "steps", "epochs", "crashes", "losses", "rescales", "lost acks", "timeouts", "runs/s")
    rows = [
        (row.policy.value, f"{row.runs:,}", f"{row.steps:,}", f"{row.epochs:,}",
         *(f"{row.failures.get(kind, 0):,}" for kind in ("crash", "lose", "rescale", "lose-ack", "time-out")),
         f"{(row.runs or 0) / row.seconds:,.0f}" if row.seconds else "?")
        for row in result.rows
    ]  # fmt: skip
    return [*columns(header, rows, "lrrrrrrrrr", width), "runs/s: of one core"]


def _situations(result: Simulated, width: int) -> list[str]:
    """What runs on workers came to."""
    names = [name for row in result.rows[:1] for name in row.situations or ()]
    rows = [(name, *(f"{(row.situations or {}).get(name, 0):,}" for row in result.rows)) for name in names]
    header = (f"runs on {result.workers} workers in which", *(row.policy.value for row in result.rows))
    return ["", *columns(header, rows, "l" + "r" * len(result.rows), width)]


def _searches(result: Simulated, width: int) -> list[str]:
    header = ("policy", "one failure", "states", "steps", "ends", "seconds", "seen")
    rows = [
        (row.policy.value, row.anywhere or "none", f"{row.worlds:,}", f"{row.steps:,}", f"{row.ends:,}",
         f"{row.seconds:.1f}", "everything" if row.whole else "a part")
        for row in result.rows
    ]  # fmt: skip
    return columns(header, rows, "llrrrrl", width)


def _violation(finding: Finding, width: int) -> list[str]:
    where = f"seed {finding.seed}, " if finding.seed is not None else ""
    message = (
        f"VIOLATION under {finding.policy} ({where}{finding.found_after} steps, {len(finding.steps)} after shortening "
        f"with {counted(finding.records, 'row')} of each source task): {finding.message}"
    )
    return wrapped(message, width)


def simulated_json(result: Simulated) -> dict[str, Any]:
    """`abs.simulate`."""
    finding = result.finding
    return {
        "schema": "abs.simulate",
        "version": FORMAT_VERSION,
        "job": result.job,
        "tasks": result.tasks,
        "channels": result.channels,
        "seed": result.seed,
        "workers": result.workers,
        "rows": [_row(row) for row in result.rows],
        "violation": None
        if finding is None
        else {
            "policy": finding.policy.value,
            "seed": finding.seed,
            "rule": finding.rule,
            "message": finding.message,
            "records": finding.records,
            "found_after": finding.found_after,
            "steps": [step_text(step) for step in finding.steps],
        },
    }


def items(result: Simulated) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    """The header and one item a row."""
    whole = simulated_json(result)
    rows = whole.pop("rows")
    return whole, ({"type": "row", **row} for row in rows)


def _row(row: Row) -> dict[str, Any]:
    return {
        "policy": row.policy.value,
        "runs": row.runs,
        "steps": row.steps,
        "epochs": row.epochs,
        "failures": row.failures if row.runs is not None else None,
        "situations": row.situations,
        "failure_kind": row.anywhere,
        "states": row.worlds,
        "final_states": row.ends,
        "complete": row.whole,
        "seconds": round(row.seconds, 3),
    }


def token_text(result: SingleToken, width: int) -> str:
    """What all snapshots of the single-token system are."""
    places = list(next(iter(result.recorded.values())))
    rows = [(who, *(f"{counts[place]:,}" for place in places)) for who, counts in result.recorded.items()]
    verdict = "Every snapshot is one of the four states, and each of them is recorded."
    if not result.holds:
        strange = ", ".join(map(str, result.elsewhere)) or "not all four states are recorded"
        verdict = f"VIOLATION: {result.message or strange}"
    lines = [
        "Chandy and Lamport's single-token system: two processes, two channels, one token.",
        "",
        *wrapped(f"Any number of moves: {result.worlds:,} states, {result.steps:,} steps. At most {result.moves} "
                 f"moves: {result.runs:,} runs, and what their snapshots recorded, by who began them:", width),
        "",
        *columns(("begun by", *places), rows, "l" + "r" * len(places), width),
        "",
        *wrapped(verdict, width),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def token_json(result: SingleToken) -> dict[str, Any]:
    """`abs.simulate.example`."""
    return {
        "schema": "abs.simulate.example",
        "version": FORMAT_VERSION,
        "example": "single-token",
        "states": result.worlds,
        "steps": result.steps,
        "moves": result.moves,
        "runs": result.runs,
        "recorded": result.recorded,
        "unexpected": [str(state) for state in result.elsewhere],
        "violation": None if result.holds else result.message or "a state that is none of the four, or not all of them",
    }


def step_text(step: Step) -> str:
    """`deliver a/0->b/1 2`."""
    return " ".join(map(str, step))
