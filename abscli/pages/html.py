"""A report as one page of HTML that asks nobody for anything: its style and its script are in it, and its policy allows
these two alone, by their digests. Whatever stands in a name is text: templates escape, and what is not printed (a NUL,
a change of direction) stands as an escape such as `\\u202e`."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources
from typing import Any

import jinja2
import msgspec
from markupsafe import Markup

from abscli.pages import drawings
from abscli.pages.facts import ChannelsLine, Depth, EpochLine, Growth, Report, Resume, StateLine, Table
from abscli.pages.moments import both_times, time_element
from abscli.pages.tables import Column, Grid, any_kind, grid
from abscli.report.standing import State, plural
from abscli.text.columns import UNKNOWN, age, clean, number, seconds, size
from formats.plain_text import plain_json
from formats.values import plain

BEGINNING = b"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="generator" content="abs report">"""
"""The first bytes of every report, by which an earlier one is recognised."""

SIGNS = {
    State.OK: "✓", State.WARNING: "!", State.DAMAGED: "✗", State.NOT_RESTORABLE: "✗", State.UNVERIFIED: "?",
    State.UNKNOWN: "?",
}  # fmt: skip


def json_of(report: Report) -> dict[str, Any]:
    """`abs.report`: the same facts for programs."""
    result: dict[str, Any] = plain(report)
    return result


def html_of(report: Report) -> bytes:
    """The page, in UTF-8; the same bytes for the same report."""
    text = _environment().get_template("report.html").render(
        report=report,
        grids=_grids(report),
        graph=_markup(None if report.graph is None else drawings.graph(report.graph)),
        lit=[node for node in report.graph.nodes if node.highlight] if report.graph else [],
        wrong_edges=[link for link in report.graph.links if link.problem] if report.graph else [],
        strip=_markup(drawings.strip(report.epochs, report.unit) if report.epochs else None),
        durations=any(epoch.duration is not None for epoch in report.epochs),
        sizes=_markup(drawings.sizes(report.depth.states) if report.depth else None),
        sections=_sections(report),
        unmeasured=any(epoch.duration is None for epoch in report.epochs),
        units=plural(report.unit),
        made_at=both_times(report.made, report.made.at),
        newest_at=None if report.newest is None or report.newest.time is None
        else both_times(report.made, report.newest.time),
        sign=SIGNS[report.state],
        text=None if report.text is None else Markup("\n").join(map(clean, report.text.split("\n"))),
        facts=Markup(_inert(report)),
        style=Markup(_asset("report.css")),
        script=Markup(_asset("report.js")),
        policy=_policy(),
    )
    return text.encode("utf-8", "backslashreplace")


def _sections(report: Report) -> list[tuple[str, str]]:
    """Anchors and titles of what there is to go to."""
    sections = {
        "problems": ("Problems", report.problems), "resume": ("If you restore this", report.resume),
        "notes": ("Notes", report.notes), "text": ("In words", report.text),
        "epochs": (plural(report.unit).capitalize(), report.epochs), "recoveries": ("Recoveries", report.recoveries),
        "graph": ("Job graph", report.graph), "operators": ("Operators", report.depth),
        "sizes": ("Sizes", report.depth), "channels": ("Channels", report.depth), "sources": ("Sources", report.depth),
        "growth": ("Growth", report.growth), "tasks": ("Tasks", report.depth),
        **{f"facts-{i}": (_titled(one.title), one) for i, one in enumerate(report.tables, 1)},
        "unchecked": ("Not checked", report.unchecked),
    }  # fmt: skip
    return [(anchor, title) for anchor, (title, there) in sections.items() if there]


def _titled(name: str) -> str:
    """A heading, from what a fact is called."""
    return name[:1].upper() + name[1:].replace("_", " ")


def _inert(report: Report) -> str:
    """The facts as JSON in which nothing can end the element that they stand in; names that are not UTF-8 escaped."""
    try:
        data = msgspec.json.encode(json_of(report))
    except UnicodeEncodeError:
        import json

        data = json.dumps(json_of(report), separators=(",", ":")).encode()
    text = plain_json(data).decode()
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("abscli.pages"), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, finalize=_shown,
    )  # fmt: skip
    environment.filters.update(size=size, number=number, seconds=seconds, age=age)
    return environment


def _shown(value: object) -> object:
    """What stands in the page for a value: one that is not known is `?`, and what is not printed is an escape."""
    if value is None:
        return UNKNOWN
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return clean(value)


def _markup(picture: str | None) -> Markup | None:
    return Markup(picture) if picture else None


@cache
def _asset(name: str) -> str:
    return resources.files("abscli.pages").joinpath("templates", name).read_text(encoding="utf-8").strip()


def _policy() -> str:
    """Nothing is loaded from anywhere, and no style and no script counts but those two."""
    style, script = (
        base64.b64encode(hashlib.sha256(_asset(name).encode()).digest()).decode()
        for name in ("report.css", "report.js")
    )
    return (
        f"default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{script}'; base-uri 'none'; "
        "form-action 'none'"
    )


# -- tables --------------------------------------------------------------------------------------------------


def _grids(report: Report) -> dict[str, Grid | list[tuple[str, Grid]]]:
    grids: dict[str, Grid | list[tuple[str, Grid]]] = {}
    if report.epochs:
        grids["epochs"] = _epochs(report)
    if report.depth is not None:
        grids |= _of_depth(report.depth)
    if report.resume is not None:
        grids["splits"] = _splits(report.resume)
    if report.growth:
        grids["growth"] = _growth(report)
    grids["tables"] = [(_titled(one.title), _table(i, one)) for i, one in enumerate(report.tables)]
    return grids


def _epochs(report: Report) -> Grid:
    longest = max((_spent(epoch) for epoch in report.epochs), default=0.0)

    def about(epoch: EpochLine) -> tuple[str, bool, str | None]:
        more = [epoch.reason] if epoch.reason else []
        if epoch.missing:
            others = epoch.missing_count - len(epoch.missing)
            more.append("missing: " + ", ".join(epoch.missing) + (f" and {others:,} more" if others else ""))
        status = epoch.verdict or epoch.status
        return f"epoch-{epoch.epoch}", status not in ("complete", "in-progress"), "; ".join(more) or None

    columns = (
        Column(report.unit.capitalize(), "number", lambda epoch: epoch.epoch),
        Column("Status", "status", lambda epoch: epoch.verdict or epoch.status),
        Column("Restorable", "yes", lambda epoch: epoch.restorable),
        Column("Tag", "text", lambda epoch: ", ".join(epoch.tags), extra=True),
        Column("Acked", "part", _acked),
        Column("New", "size", lambda epoch: epoch.bytes, f"bytes that the {report.unit} wrote itself"),
        Column("State", "size", lambda epoch: epoch.state_bytes, "bytes of all state that it refers to"),
        Column("Rows", "number", lambda epoch: epoch.state_rows),
        Column("In flight", "number", lambda epoch: epoch.log_records, "in-flight records that it holds"),
        Column("Took", "seconds", lambda epoch: epoch.duration),
        Column("Where the time went", "picture", lambda epoch: _bar(epoch, longest), scale=("0 s", seconds(longest))),
        Column("Triggered (UTC)", "moment", lambda epoch: time_element(report.made, epoch.triggered),
               extra=any(epoch.modified for epoch in report.epochs)),
        Column("File written (UTC)", "moment", lambda epoch: time_element(report.made, epoch.modified),
               "modification time of its file; no other time is recorded", extra=True),
        Column("Parent", "number", lambda epoch: epoch.parent),
        Column("Attempt", "number", lambda epoch: epoch.attempt),
    )
    newest_first = report.epochs[::-1]
    return grid("epochs-table", columns, newest_first, count=report.epochs_count, row=about)


def _splits(resume: Resume) -> Grid:
    columns = (
        Column("Task", "name", lambda one: one.task),
        Column("Split", "name", lambda one: one.split),
        Column("Resumes at", "number", lambda one: one.resumes_at or 0),
        Column("Had reached", "number", lambda one: one.reached),
        Column("Read again", "number", lambda one: one.reached - (one.resumes_at or 0)),
    )
    return grid("splits-table", columns, resume.splits, count=resume.splits_count)


def _acked(epoch: EpochLine) -> str | None:
    if epoch.acked is None and epoch.expected is None:
        return None
    return f"{number(epoch.acked)}/{number(epoch.expected)}"


def _spent(epoch: EpochLine) -> float:
    times = epoch.times
    if times is None:
        return 0.0
    return (times.alignment or 0.0) + (times.sync or 0.0) + (times.async_ or 0.0) + (times.other or 0.0)


def _bar(epoch: EpochLine, longest: float) -> Markup | None:
    return _markup(drawings.bar(epoch.times, epoch.duration, longest))


def _of_depth(depth: Depth) -> dict[str, Grid | list[tuple[str, Grid]]]:
    times = (
        Column("Aligning", "seconds", lambda one: one.alignment),
        Column("Copying", "seconds", lambda one: one.sync),
        Column("Writing", "seconds", lambda one: one.async_),
    )
    operators = grid("operators-table", (
        Column("Operator", "name", lambda one: one.id),
        Column("Name", "name", lambda one: one.name if one.name != one.id else None, extra=True),
        Column("Tasks", "number", lambda one: one.parallelism),
        Column("State", "size", lambda one: one.bytes),
        Column("New", "size", lambda one: one.new_bytes, "bytes of state that this epoch wrote"),
        Column("Rows", "number", lambda one: one.rows),
        Column("Logged", "number", lambda one: one.logged),
        Column("Skew", "times", lambda one: one.skew, "bytes of the largest task to the median"),
        *times,
        Column("Published", "number", lambda one: one.published_rows, "rows that the epoch makes visible", True),
        Column("Bytes published", "size", lambda one: one.published_bytes, "", True),
        Column("Skipped", "number", lambda one: one.skipped, "records, since the job began", True),
        Column("Watermark (UTC)", "moment", lambda one: one.watermark, "how far event time has come", True),
    ), depth.operators)  # fmt: skip
    tasks = grid("tasks-table", (
        Column("Task", "name", lambda one: one.task),
        Column("Acked", "yes", lambda one: one.acked),
        Column("Files", "size", lambda one: one.bytes),
        Column("Logged", "number", lambda one: one.logged),
        *times,
        Column("Ended", "yes", lambda one: one.finished),
    ), depth.tasks, count=depth.tasks_count, row=lambda one: (None, not one.acked, None))  # fmt: skip
    states = grid("states-table", (
        Column("Operator", "name", lambda one: one.operator),
        Column("Name", "name", lambda one: one.name if one.name != one.operator else None, extra=True),
        Column("State", "name", lambda one: one.state, extra=True),
        Column("Kind", "text", lambda one: one.kind),
        Column("Bytes", "size", lambda one: one.bytes),
        Column("Rows", "number", lambda one: one.rows),
        Column("Skew by key group", "times", lambda one: one.skew_groups, "rows of the largest to the median"),
        Column("Skew by task", "times", lambda one: one.skew_tasks, "rows of the largest to the median"),
        Column("Largest", "text", _largest_piece),
        Column("Largest key", "text", lambda one: None if one.largest is None else
               _measured("{} ({})", one.largest[0], size(one.largest[1]))),
        Column("Method", "text", lambda one: one.method),
    ), depth.states, row=lambda one: (None, False, one.unknown))  # fmt: skip
    channels = grid("channels-table", (
        Column("From", "name", lambda one: one.source),
        Column("To", "name", lambda one: one.target),
        Column("Back edge", "yes", lambda one: one.back_edge),
        Column("Channels", "number", lambda one: one.channels),
        Column("Sent", "number", lambda one: one.sent),
        Column("Received", "number", lambda one: one.received),
        Column("Logged", "number", lambda one: one.logged),
        Column("Sent − received = logged", "text", _kept),
    ), depth.channels, row=lambda one: (None, one.consistent is False, None))  # fmt: skip
    uneven = grid("uneven-table", (
        Column("Channel", "name", lambda one: one.channel),
        Column("Sent", "number", lambda one: one.sent),
        Column("Received", "number", lambda one: one.received),
        Column("Logged", "number", lambda one: one.logged),
        Column("Lost or repeated", "number", lambda one: one.sent - one.received - one.logged),
    ), depth.inconsistent_channels, count=depth.inconsistent_channels_count or 0,
       row=lambda one: (None, True, None))  # fmt: skip
    positions = grid("positions-table", (
        Column("Task", "name", lambda one: one.task),
        Column("Split", "name", lambda one: one.split),
        Column("Position", "number", lambda one: one.offset),
        Column("Position as text", "name", lambda one: one.text, extra=True),
        Column("Records", "number", lambda one: one.records),
        Column("Ended", "yes", lambda one: one.finished),
    ), depth.positions, count=depth.positions_count)  # fmt: skip
    return {
        "operators": operators, "tasks": tasks, "states": states, "channels": channels, "uneven": uneven,
        "positions": positions,
    }  # fmt: skip


def _largest_piece(state: StateLine) -> Markup | None:
    if not state.pieces or state.pieces_count < 2:
        return None
    one = state.pieces[0]
    amount = size(one.bytes) if one.bytes is not None else f"{number(one.rows)} rows"
    of = f" of task {one.subtask}" if state.by == "key group" else ""
    return _measured("{}: {}", f"{state.by} {one.number}{of}", amount)


def _measured(form: str, text: str, amount: str) -> Markup:
    """A text with an amount whose number stays in a line with its unit."""
    return Markup(form).format(clean(text), amount.replace(" ", "\u00a0"))


def _kept(channels: ChannelsLine) -> str | None:
    return None if channels.consistent is None else "yes" if channels.consistent else "no"


def _growth(report: Report) -> Grid:
    def changed(one: Growth) -> float | None:
        return None if not one.first or one.last is None else 100 * (one.last - one.first) / one.first

    first, last = (f"{report.unit.capitalize()} {report.growth[0].points[i][0]}" for i in (0, -1))
    columns = (
        Column("Operator", "name", lambda one: one.id or "all"),
        Column(first, "size", lambda one: one.first),
        Column(last, "size", lambda one: one.last),
        Column("Grew", "percent", changed),
        Column("Per day", "per-day", lambda one: one.per_day),
        Column("Size over time", "picture", lambda one: _markup(drawings.curve(one)), scale=(first, last)),
    )
    return grid("growth-table", columns, report.growth)


def _table(place: int, table: Table) -> Grid:
    kinds = [any_kind(row[i] for row in table.rows) for i in range(len(table.columns))]
    columns = [
        Column(title.replace("_", " "), kind, lambda row, i=i: row[i])  # type: ignore[misc]
        for i, (title, kind) in enumerate(zip(table.columns, kinds, strict=True))
    ]
    return grid(f"table-{place}", columns, table.rows, count=table.count)
