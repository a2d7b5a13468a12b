"""Event time in whole jobs: how far it has come stands in every snapshot, and comes back with it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from abscli.engine.coordinator import Service
from abscli.engine.errors import JobFailed
from abscli.engine.generations.rescaling import Rescale, publish
from abscli.engine.job import run_job
from abscli.engine.sources.event_times import EventTimes, as_event_times
from abscli.engine.sources.files import line_files
from abscli.engine.telemetry.metrics import JobMetrics
from abscli.engine.telemetry.news import EpochDone, News
from formats.ids import TaskId
from formats.job.event_time import EventTime
from formats.job.model import Aggregate, Edge, Kind, Partition, Topology
from formats.native.facts import PartFacts
from formats.storage import LocalStorage
from formats.view import Position, Status
from formats.watermark import END, HIGHEST, IDLE, LOWEST
from tests.support.commands import result_of
from tests.support.jobs.inline import STORE, store
from tests.support.jobs.small import inline, operator, output_rows

SECOND = 1_000_000


def moment(seconds: int) -> str:
    return f"2026-01-01T00:{seconds // 60:02}:{seconds % 60:02}Z"


START = 1767225600 * SECOND
"""`moment(0)`, in microseconds."""


def events(parallelism: int = 2, delay: str = "3s") -> Topology:
    """Rows with a time, counted by key."""
    at = {"column": "at", "delay": delay}
    schema = {"key": "string", "at": "timestamp"}
    connector = {"type": "jsonl", "path": "in/*.jsonl", "schema": schema, "event_time": at}
    p = parallelism
    return Topology(
        "events",
        (
            operator("rows", Kind.SOURCE, p, connector=connector),
            operator("counts", Kind.REDUCE, p, key=("key",), aggregates=(Aggregate("n", "count", "*"),), emit="epoch"),
            operator("out", Kind.SINK, 1, connector={"type": "jsonl", "path": "out"}),
        ),
        (Edge("rows", "counts", Partition.HASH, ("key",)), Edge("counts", "out", Partition.REBALANCE)),
    )


def write_events(folder: Path, *, files: int = 2, rows: int = 400, seed: int = 1) -> None:
    """Each file has a row a second, up to three seconds out of order."""
    (folder / "in").mkdir(parents=True, exist_ok=True)
    rng = random.Random(seed)
    for i in range(files):
        seconds = sorted(range(rows), key=lambda second: second + rng.random() * 3)
        lines = [json.dumps({"key": f"k{rng.randrange(20)}", "at": moment(second)}) for second in seconds]
        (folder / "in" / f"{i}.jsonl").write_text("\n".join(lines) + "\n")


def parts_of(folder: Path, operator: str) -> Iterator[tuple[int, list[PartFacts]]]:
    """Of every complete epoch."""
    kept = store(folder)
    for row in kept.epochs():
        if row.status is Status.COMPLETE:
            yield row.epoch, [part for part in kept.parts(row.epoch) if part.operator == operator]


def until_some_time(folder: Path, topology: Topology) -> None:
    """A run that is stopped when event time has come to all operators."""
    services: list[Service] = []

    def news(news: News) -> None:
        if isinstance(news, EpochDone) and len(news.watermarks) == 3 and services:
            services.pop().request_stop()

    options = inline(folder, keep=None, interval=0.01, pace=20)
    outcome = run_job(topology, str(folder / STORE), options, on_service=services.append, on_news=news)
    assert not outcome.finished


@pytest.mark.parametrize("policy", ["aligned", "unaligned", "at-least-once"])
def test_every_snapshot_says_how_far_event_time_has_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    monkeypatch.setattr(line_files, "CHUNK", 1024)
    write_events(tmp_path)
    run_job(events(), str(tmp_path / STORE), inline(tmp_path, policy=policy, keep=None, interval=0.01, pace=20))
    before: dict[str, int] = {}
    seen = set()
    for (epoch, read), (_, counted) in zip(parts_of(tmp_path, "rows"), parts_of(tmp_path, "counts"), strict=True):
        for part in read:
            times = [position.event_time for position in part.positions or ()]
            ends = {END} if part.finished else {END, None, *(latest - 3 * SECOND for latest in times if latest)}
            assert part.watermark in ends
        lowest = min((part.watermark for part in read if part.watermark is not None), default=None)
        for part in counted:
            if policy != "unaligned":  # whose copies come before barriers
                assert part.watermark == lowest or None in [other.watermark for other in read], f"epoch {epoch}"
            if part.watermark is not None:
                assert part.watermark >= before.get(part.task_name, part.watermark)
                before[part.task_name] = part.watermark
                seen.add(part.watermark)
    assert len(seen) > 3
    assert set(before.values()) == {END}, "the job ends when everybody has heard of the end of event time"


def test_it_goes_on_from_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_files, "CHUNK", 1024)
    write_events(tmp_path)
    until_some_time(tmp_path, events())
    *_, (stopped, parts) = parts_of(tmp_path, "counts")
    (watermark,) = {part.watermark for part in parts}
    assert watermark is not None
    assert START < watermark < END
    run_job(events(), str(tmp_path / STORE), inline(tmp_path, keep=None, from_epoch=stopped, interval=0.01, pace=20))
    later = [part.watermark for epoch, parts in parts_of(tmp_path, "counts") if epoch > stopped for part in parts]
    assert all(other is not None and other >= watermark for other in later)


def test_after_a_rescale_it_is_the_lowest_of_those_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_files, "CHUNK", 1024)
    write_events(tmp_path, files=3)
    until_some_time(tmp_path, events())
    *_, (stopped, before) = parts_of(tmp_path, "rows")
    epoch = publish(LocalStorage(tmp_path / STORE), Rescale(stopped, events(3), str(tmp_path)))
    after = [part for part in store(tmp_path).parts(epoch) if part.operator == "rows"]
    times = {p.split: p.event_time for part in before for p in part.positions or ()}
    assert {p.split: p.event_time for part in after for p in part.positions or ()} == times
    watermarks = [part.watermark for part in before]
    assert {part.watermark for part in after} == {None if None in watermarks else min(w for w in watermarks if w)}
    run_job(events(3), str(tmp_path / STORE), inline(tmp_path, from_epoch=epoch))
    assert sum({str(r["key"]): int(str(r["n"])) for r in output_rows(tmp_path)}.values()) <= 1200


def test_inspect_and_metrics_show_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_events(tmp_path)
    metrics = JobMetrics("events")
    outcome = run_job(events(), str(tmp_path / STORE), inline(tmp_path), on_news=metrics.news)
    shown = result_of("inspect", capsys, f"{tmp_path / STORE}@{outcome.epoch}")
    watermarks = {op["id"]: [task["watermark"] for task in op["tasks"]] for op in shown["operators"]}
    assert watermarks == {"rows": ["end"] * 2, "counts": ["end"] * 2, "out": ["end"]}
    position = shown["operators"][0]["tasks"][0]["position"][0]
    assert position["event_time"] == START + 399 * SECOND
    assert metrics.registry.get_sample_value("abs_watermark_seconds", {"operator": "counts"}) == float("inf")


def test_a_column_that_has_no_times_is_refused(tmp_path: Path) -> None:
    write_events(tmp_path)
    rows, *others = events().operators
    bad = {**(rows.connector or {}), "event_time": {"column": "key"}}
    topology = msgspec.structs.replace(events(), operators=(msgspec.structs.replace(rows, connector=bad), *others))
    reason = r"task rows/[01]: column 'key' cannot be event time: expected a timestamp or a date, got string"
    with pytest.raises(JobFailed, match=reason):
        run_job(topology, str(tmp_path / STORE), inline(tmp_path))


# -- one source -----------------------------------------------------------------------------------------------


class Splits:
    """A source of what it is given. batches: what comes next, by split; None: nothing for now."""

    connector = None
    watermark = None
    split = 0
    held_up: tuple[float, str] | None = None

    def __init__(self, splits: list[str], batches: list[dict[str, list[int]] | None]) -> None:
        self.counts = dict.fromkeys(splits, 0)
        self.unread = set(splits)
        self.waiting = set[str]()
        self._batches = batches

    @property
    def finished(self) -> bool:
        return not self.unread

    @property
    def positions(self) -> tuple[Position, ...]:
        return tuple(Position(split, None, count) for split, count in self.counts.items())

    def cut(self) -> tuple[Position, ...]:
        return self.positions

    def read_again(self, split: int, rows: int) -> pa.RecordBatch:
        return self.read()

    def read(self) -> pa.RecordBatch:
        rows = self._batches.pop(0) or {}
        self.waiting = self.unread - rows.keys()
        seconds = [second for split in self.counts for second in rows.get(split, [])]
        for split, times in rows.items():
            self.counts[split] += len(times)
        return pa.record_batch([pa.array([s * SECOND for s in seconds], pa.timestamp("us"))], names=["at"])

    def stop_at(self, *_: object, **__: object) -> None:
        """Nothing is left out."""

    def close(self) -> None:
        """It has nothing open."""


def test_a_split_that_has_not_begun_may_begin_at_any_time() -> None:
    splits = Splits(["a", "b"], [{"a": [5, 9, 7]}, {"a": [8], "b": [3]}, {"b": [12, 11]}])
    source = EventTimes(splits, EventTime("at", delay=2 * SECOND), TaskId("s", 0), None)
    assert source.watermark is None
    source.read()
    assert source.watermark is None
    source.read()
    assert source.watermark == 1 * SECOND
    source.read()
    assert source.watermark == 7 * SECOND
    splits.unread.discard("a")
    assert source.watermark == 10 * SECOND
    splits.unread.discard("b")
    assert source.watermark == END
    assert [position.event_time for position in source.positions] == [9 * SECOND, 12 * SECOND]


def test_a_split_that_is_idle_keeps_nothing_back() -> None:
    now = 100.0
    splits = Splits(["a", "b"], [{"a": [5]}, None, {"b": [20]}, None, None, {"a": [6]}])
    source = EventTimes(splits, EventTime("at", idle=30 * SECOND), TaskId("s", 0), None, clock=lambda: now)
    source.read()
    source.read()
    assert source.watermark is None
    now = 120.0
    source.read()
    source.read()
    assert source.watermark == 5 * SECOND
    now = 131.0
    assert source.watermark == 20 * SECOND
    now = 151.0
    source.read()
    assert source.watermark == IDLE
    source.read()
    assert source.watermark == 6 * SECOND


def test_a_split_that_may_have_rows_is_not_idle_however_long_they_take() -> None:
    now = 100.0
    splits = Splits(["a", "b"], [{"a": [5], "b": [9]}, None])
    source = EventTimes(splits, EventTime("at", idle=30 * SECOND), TaskId("s", 0), None, clock=lambda: now)
    source.read()
    source.read()
    now = 131.0
    splits.waiting = {"b"}
    assert source.watermark == 5 * SECOND
    splits.held_up = 100.0, "no answer"
    splits.waiting = {"a", "b"}
    assert source.watermark == 5 * SECOND
    now, splits.held_up = 160.0, None
    assert source.watermark == 5 * SECOND  # as if rows had come until somebody answered again
    now = 161.0
    assert source.watermark == IDLE


def test_splits_that_follow_each_other_keep_nothing_back() -> None:
    splits = Splits(["a", "b"], [{"a": [5, 9]}, {"b": [3]}])
    source = EventTimes(splits, EventTime("at", delay=2 * SECOND, ordered=True), TaskId("s", 0), None)
    assert source.watermark is None
    source.read()
    splits.unread.discard("a")
    assert source.watermark == 7 * SECOND
    source.read()
    assert source.watermark == 7 * SECOND


@pytest.mark.parametrize(("time", "watermark"), [(2**63 - 1, HIGHEST), (-(2**63) + 1, LOWEST)])
def test_the_ends_of_time_are_no_end_of_the_input(time: int, watermark: int) -> None:
    splits = Splits(["a"], [])
    restored = [Position("a", None, 1, event_time=time)]
    delay = 0 if time > 0 else SECOND
    assert EventTimes(splits, EventTime("at", delay=delay), TaskId("s", 0), restored).watermark == watermark


def test_times_of_every_unit_are_microseconds_rounded_down() -> None:
    cases = [("s", -2, -2_000_000), ("ms", 3, 3_000), ("us", 7, 7), ("ns", -1, -1), ("ns", 1999, 1)]
    for unit, number, expected in cases:
        assert as_event_times(pa.array([number, None], pa.timestamp(unit))).to_pylist() == [expected, None]
    assert as_event_times(pa.array([1], pa.date32())).to_pylist() == [86_400 * SECOND]
    with pytest.raises(TypeError, match="got int64"):
        as_event_times(pa.array([1]))
