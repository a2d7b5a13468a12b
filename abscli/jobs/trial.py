"""A job on given rows, through kills and other batches: what its sinks show has to be the same each time."""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from abscli.engine.errors import EngineError, EngineStopped, JobFailed, UsageError
from abscli.engine.sources.kafka.records import schema_of_records
from abscli.graph.job_graph import JobGraph
from abscli.jobs.attempts import Answer, Attempts, Order
from abscli.jobs.durations import positive_seconds
from abscli.planner.guarantee import Weakness, guarantee_of
from abscli.protocol.policy import Policy
from formats.durations import Duration
from formats.job.file import Check
from formats.job.file import Job as JobRead
from formats.job.kafka import is_kafka
from formats.job.model import WINDOW_START, Kind, Operator, Topology, as_sink
from formats.native.sink import epoch_of_part
from formats.scratch import scratch

Row = str | Mapping[str, Any]
"""What a source is given: a line, or an object of JSON lines."""

Rows = dict[str, list[dict[str, Any]]]
"""What sinks show, by their ids."""

LETTER = ("record", "operator", "error", "message")
"""Of a dead letter, what does not depend on tasks, batches and epochs."""

STEPS = 3
"""How many times as many epochs the second round of kills has as the first."""

SHOWN = 5
"""Rows of a sink that differ and are shown."""

DIGITS = 12
"""Of a float that count: the order of its summands moves the last ones."""


@dataclass(frozen=True, slots=True)
class Written:
    """A row that a sink shows, and the epoch that it is of."""

    row: dict[str, Any]
    epoch: int


@dataclass(slots=True)
class Run:
    """One run of the job to its end.

    kills: the epochs after which it was killed; rows: by sink, as they were written.
    """

    title: str
    kills: list[int] = field(default_factory=list)
    rows: dict[str, list[Written]] = field(default_factory=dict)


def try_source(
    read: Callable[[Check], JobRead],
    directory: str,
    rows: Mapping[str, Iterable[Row]],
    keys: Mapping[str, Sequence[str]],
    kills: int,
    timeout: Duration,
) -> Rows:
    """As `try_job`, of a job that is to be read, with what else has to hold; its hints stand with what it raises."""
    from abscli.engine.functions import refuse_in_imports
    from abscli.engine.runnable import graph_faults

    __tracebackhide__ = True
    refuse_in_imports()
    topology = read(graph_faults).topology
    try:
        return try_job(topology, directory, rows, keys, kills, positive_seconds("timeout", timeout))
    except EngineError as error:
        if error.hint is not None:
            error.add_note(f"hint: {error.hint}")
        raise


def try_job(
    topology: Topology,
    directory: str,
    rows: Mapping[str, Iterable[Row]],
    keys: Mapping[str, Sequence[str]],
    kills: int,
    seconds: float,
) -> Rows:
    """Return what the sinks show in the end: of a sink behind a `reduce` the last row of each key and window.

    rows: by source; keys: by sink, whose last rows count, none: all rows count.
    kills: in each round, at most; seconds: for each attempt.

    Raises AssertionError with what differs; UsageError, JobFailed, EngineStopped.
    """
    __tracebackhide__ = True
    if kills < 1:
        raise UsageError(f"kills must be at least 1, got {kills}", hint="kill a worker at least once, so that the "
            "test covers a recovery")
    given = _given(topology, rows)
    # Of records on which an operator fails every one counts.
    by_key = {op.id: _key_of(topology, op, keys) if op.kind is Kind.SINK else () for op in _sinks(topology)}
    _check_ids(keys, by_key, "sink", "keys")
    with tempfile.TemporaryDirectory(prefix="trial-", dir=scratch()) as folder, Attempts() as attempts:
        trial = _Trial(attempts, _fed(topology, given, folder), directory, folder, seconds)
        widths = {op.id: op.parallelism for op in topology.operators}
        longest = max((-(-len(lines) // widths[id]) for id, lines in given.items()), default=1)
        pace, small = (max(1, -(-longest // epochs)) for epochs in (kills, STEPS * kills))
        whole = trial.run("in one batch, without a kill")
        expected = {id: _last(whole.rows[id], key, id) for id, key in by_key.items()}
        for lines, most, after, how in (
            (small, 0, 1, "without a kill"),
            (pace, kills, 1, "killed after every epoch"),
            (small, kills, 2, "killed after every other epoch"),
        ):
            run = trial.run(f"in batches of at most {_lines(lines)}, {how}", lines, most, after)
            _compare(topology, run, expected, by_key)
        return {id: [written.row for written in last.values()] for id, last in expected.items()}


@dataclass(slots=True)
class _Trial:
    attempts: Attempts
    topology: Topology
    directory: str
    folder: str
    seconds: float
    runs: int = 0

    def run(self, title: str, pace: int | None = None, kills: int = 0, kill_after: int = 1) -> Run:
        """To its end. kills: how often at most it is killed."""
        __tracebackhide__ = True
        self.runs += 1
        run = Run(title)
        store, sinks = (os.path.join(self.folder, f"{name}-{self.runs}") for name in ("store", "sinks"))
        epoch, ended = 0, False
        while not ended:
            after = kill_after if len(run.kills) < kills else None
            order = Order(self.topology, self.directory, store, sinks, epoch, pace, after)
            answer = self._attempt(order, run)
            epoch, ended = answer.epoch, not answer.killed
            run.kills += [epoch] if answer.killed else []
        for op in _sinks(self.topology):
            run.rows[op.id] = [_comparable(op, row) for row in _shown_by(Path(sinks) / op.id)]
        return run

    def _attempt(self, order: Order, run: Run) -> Answer:
        __tracebackhide__ = True
        try:
            answer = self.attempts.run(order, self.seconds)
        except TimeoutError:
            raise EngineStopped(
                f"job {self.topology.job} {run.title} has not ended within {self.seconds:g} s",
                hint="use a longer timeout=..., or look for a loop that does not terminate",
            ) from None
        if answer.failure is not None:
            after = f", after {len(run.kills)} kills" if run.kills else ""
            kind = {2: UsageError, 7: JobFailed}.get(answer.exit_code, EngineStopped)
            raise kind(f"job {self.topology.job} {run.title}{after}: {answer.failure}", hint=answer.hint)
        return answer


def _sinks(topology: Topology) -> list[Operator]:
    """The operators that write, sinks and those with dead letters."""
    return [op for op in topology.operators if as_sink(op) is not None]


def _comparable(operator: Operator, written: Written) -> Written:
    """Without what of a dead letter depends on where batches and epochs end."""
    if operator.kind is Kind.SINK:
        return written
    return replace(written, row={name: written.row[name] for name in LETTER})


# -- rows in -----------------------------------------------------------------------------------------------------


def _given(topology: Topology, rows: Mapping[str, Iterable[Row]]) -> dict[str, list[str]]:
    """The lines of each source; UsageError unless there are rows for each and for nothing else."""
    __tracebackhide__ = True
    sources = {op.id: op for op in topology.operators if op.kind is Kind.SOURCE}
    _check_ids(rows, sources, "source", "rows")
    if missing := [id for id in sources if id not in rows]:
        raise UsageError(f"no rows for source {missing[0]}", hint="provide rows for each source ([] for none)")
    return {id: [_line(row, op) for row in rows[id]] for id, op in sources.items()}


def _check_ids(named: Iterable[str], known: Iterable[str], kind: str, argument: str) -> None:
    __tracebackhide__ = True
    for id in named:
        if id not in known:
            raise UsageError(f"{argument}: {id!r} is not a {kind} of the job", hint=f"{kind}s: {', '.join(known)}")


def _line(row: Row, source: Operator) -> str:
    __tracebackhide__ = True
    type = (source.connector or {}).get("type")
    if type == "text":
        text = row["line"] if isinstance(row, Mapping) and set(row) == {"line"} else row
        if isinstance(text, str) and "\n" not in text:
            return text
        raise UsageError(f"source {source.id}: {row!r} is not a line of text", hint="use a string without a line break")
    if not isinstance(row, Mapping):
        raise UsageError(
            f"source {source.id}: expected a mapping of columns to values, got {row!r}",
            hint='pass each row as {"column": value, ...}',
        )
    try:
        return json.dumps(row, default=_moment_in_json)
    except TypeError as error:
        raise UsageError(f"source {source.id}: {row!r} cannot be written as JSON: {error}") from None


def _moment_in_json(value: object) -> str:
    if isinstance(value, date):  # a datetime is one, too
        return value.isoformat()
    raise TypeError(f"unsupported type {type(value).__name__}: write the value as it appears in the source's files")


def _fed(topology: Topology, given: Mapping[str, list[str]], folder: str) -> Topology:
    """The job with files of these lines for its sources, a file for each task, in blocks of the rows' order, and with
    sinks whose rows can be read back."""
    operators = []
    for op in topology.operators:
        if op.kind is Kind.SOURCE:
            lines = given[op.id]
            place = Path(folder) / "rows" / op.id
            place.mkdir(parents=True)
            block = max(1, -(-len(lines) // op.parallelism))
            for number, start in enumerate(range(0, max(1, len(lines)), block)):
                text = "".join(f"{line}\n" for line in islice(lines, start, start + block))
                (place / f"{number:05}").write_text(text, encoding="utf-8")
            op = msgspec.structs.replace(op, connector=_of_lines(op, str(place / "*")))
        elif op.kind is Kind.SINK and op.connector is not None:
            # Rows are compared as JSON has them, whatever files they are to be in.
            op = msgspec.structs.replace(op, connector={"type": "jsonl", "path": op.id})
        operators.append(op)
    return msgspec.structs.replace(topology, operators=tuple(operators))


def _of_lines(source: Operator, path: str) -> dict[str, Any]:
    """The connector that reads these lines: text as it is, all else from JSON lines."""
    options = source.connector or {}
    if options.get("type") == "text":
        return {**options, "path": path}
    if is_kafka(source):
        schema = {field.name: str(field.type) for field in schema_of_records(source)}
        options = {**options, "schema": schema}
    kept: dict[str, Any] = {name: options[name] for name in ("schema", "event_time") if name in options}
    return {"type": "jsonl", "path": path, **kept}


# -- rows out ----------------------------------------------------------------------------------------------------


def _shown_by(folder: Path) -> Iterator[Written]:
    """All rows, in the order of epochs and tasks."""
    parts = sorted(folder.glob("part-*.jsonl"), key=lambda path: (epoch_of_part(path.name), path.name))
    for part in parts:
        epoch = epoch_of_part(part.name)
        with part.open(encoding="utf-8") as lines:
            yield from (Written(json.loads(line), epoch) for line in lines)


def _key_of(topology: Topology, sink: Operator, keys: Mapping[str, Sequence[str]]) -> tuple[str, ...] | None:
    """Return the columns whose last row counts; empty: every row counts; None: the user must name them.

    A `reduce` emits a key again whenever it changes, and a window again for rows within its lateness; how often depends
    on where epochs end, which is no fault. A window without lateness is emitted once.
    """
    if sink.id in keys:
        named = keys[sink.id]
        return (named,) if isinstance(named, str) else tuple(named)
    operators = {op.id: op for op in topology.operators}
    ends: set[tuple[str, ...]] = set()
    seen, waiting = {sink.id}, [sink.id]
    while waiting:
        id = waiting.pop()
        op = operators[id]
        if op.kind is Kind.REDUCE:
            ends.add(_key_of_updates(op))
        elif op.kind is Kind.SOURCE:
            ends.add(())
        else:
            before = {edge.source for edge in topology.edges if edge.target == id} - seen
            seen |= before
            waiting += before
    return ends.pop() if len(ends) == 1 else None


def _key_of_updates(reduce: Operator) -> tuple[str, ...]:
    """Return the columns by which a later row of a `reduce` replaces an earlier one; empty: none does."""
    if not reduce.window:
        return reduce.key
    return (*reduce.key, WINDOW_START) if reduce.window.lateness else ()


def _last(rows: Sequence[Written], key: tuple[str, ...] | None, sink: str) -> dict[str, Written]:
    """The rows that count, by what tells them apart; UsageError where that is not known."""
    if key is None or any(column not in written.row for written in rows for column in key):
        raise UsageError(
            f"cannot determine which rows of sink {sink} to compare: later rows may replace earlier ones",
            hint=f'set the key columns of the sink: keys={{"{sink}": ["column"]}}, or [] to compare all rows',
        )
    if key:
        return {_text([written.row[column] for column in key]): written for written in rows}
    times: Counter[str] = Counter()
    last = {}
    for written in rows:
        text = _text(written.row)
        times[text] += 1
        last[f"{text} {times[text]}"] = written
    return last


def _text(value: Any) -> str:
    return json.dumps(_rounded(value), sort_keys=True)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {name: _rounded(inner) for name, inner in value.items()}
    return [_rounded(inner) for inner in value] if isinstance(value, list) else value


# -- what differs ------------------------------------------------------------------------------------------------


def _compare(
    topology: Topology, run: Run, expected: Mapping[str, dict[str, Written]], keys: Mapping[str, tuple[str, ...] | None]
) -> None:
    """AssertionError for rows that are others than they are in one batch and without a kill."""
    __tracebackhide__ = True
    lines: list[str] = []
    for sink, before in expected.items():
        after = _last(run.rows[sink], keys[sink], sink)
        changed = [id for id in {**before, **after} if _text(_row(before.get(id))) != _text(_row(after.get(id)))]
        if not changed:
            continue
        other = [id for id in changed if id in before and id in after]
        gone = [id for id in changed if id not in after]
        new = [id for id in changed if id not in before]
        lines.append(f"sink {sink}: {len(other)} rows are others, {len(gone)} are gone, {len(new)} are new")
        for ids in (other, gone, new):
            for id in ids[:SHOWN]:
                lines += [f"  - {before[id].row}"] if id in before else []
                lines += [f"  + {after[id].row}, {_moment(after[id], run)}"] if id in after else []
            lines += [f"    and {len(ids) - SHOWN} more"] if len(ids) > SHOWN else []
    if lines:
        epochs = ", ".join(map(str, run.kills))
        killed = f" (SIGKILL when epochs {epochs} were complete)" if run.kills else ""
        why = (
            "a function keeps something of its own, which a kill takes from it, or does something that a kill repeats"
            if run.kills
            else "a function's rows depend on where batches end: each row's output must depend on that row alone"
        )
        links = guarantee_of(JobGraph.of(topology), Policy.ALIGNED).links
        if by_order := [id for link in links if link.weakness is Weakness.ORDER for id in link.operators]:
            why = (
                f"{' and '.join(by_order)} may see the rows of a key in another order, since the tasks of a source "
                f"have none among them: one with parallelism 1 keeps it; or {why}"
            )
        if updated := [id for link in links if link.weakness is Weakness.UPDATES for id in link.operators]:
            why = f"{' and '.join(updated)} counts each update of a reduce as a row (see `abs topology --guarantee`)"
        raise AssertionError(
            "\n".join([f"job {topology.job} shows other rows {run.title} (+) than in one batch and without a kill (-)"
                       + killed, *lines, f"hint: {why}"])
        )  # fmt: skip


def _row(written: Written | None) -> object:
    return written.row if written is not None else None


def _moment(written: Written, run: Run) -> str:
    """When a row was written, in kills."""
    before = [number for number, epoch in enumerate(run.kills, 1) if epoch < written.epoch]
    if not run.kills:
        return f"written in epoch {written.epoch}"
    if not before:
        return f"written in epoch {written.epoch}, before the first kill"
    kill = f"kill {before[-1]} (when epoch {run.kills[before[-1] - 1]} was complete)"
    return f"written in epoch {written.epoch}, after {kill}"


def _lines(number: int) -> str:
    return f"{number} line{'s'[: number != 1]}"
