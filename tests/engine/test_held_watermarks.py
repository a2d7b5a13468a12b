"""An input without rows that holds the watermark back is named, and nothing else is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from abscli.engine.coordinator import Service
from abscli.engine.job import run_job
from abscli.engine.telemetry import held_watermarks
from abscli.engine.telemetry.held_watermarks import HeldWatermarks, is_lowest, suspects_of
from abscli.engine.telemetry.metrics import JobMetrics
from abscli.engine.telemetry.news import News, WatermarkHeld, WatermarkReleased
from abscli.text.waits import held_hint, held_text
from formats.job.model import Aggregate, Edge, Kind, Partition, Topology, Window, WindowKind
from formats.native.facts import PartFacts, header
from formats.view import Position
from tests.support.jobs.small import inline, operator

SECOND = 1_000_000
START = 1767225600 * SECOND
DELAY = 2 * SECOND


def clicks(
    tasks: int = 1, type: str = "jsonl", *, follow: bool = True, windows: bool = True, **more: object
) -> Topology:
    """Rows of files, counted in windows of ten seconds, or without any."""
    connector = {
        "type": type, "path": "in/*.jsonl", "schema": {"key": "string", "at": "timestamp"},
        "event_time": {"column": "at", "delay": "2s", **more}, **({"follow": True, "every": "20ms"} if follow else {}),
    }  # fmt: skip
    window = Window("at", WindowKind.TUMBLING, 10 * SECOND) if windows else None
    return Topology(
        "clicks",
        (
            operator("rows", Kind.SOURCE, tasks, connector=connector),
            operator("busy", Kind.REDUCE, 1, key=("key",), aggregates=(Aggregate("n", "count", "*"),), emit="epoch",
                     **({"window": window} if windows else {})),
            operator("out", Kind.SINK, 1, connector={"type": "jsonl", "path": "out"}),
        ),
        (Edge("rows", "busy", Partition.HASH, ("key",)), Edge("busy", "out", Partition.FORWARD)),
    )  # fmt: skip


def part(task: str, watermark: int | None, rows: int = 5, *positions: Position, finished: bool = False) -> PartFacts:
    empty = dict.fromkeys(("alignment", "sync", "async_"), 0.0)
    return PartFacts(
        epoch=1, attempt=1, task_name=task, state=(), rows=rows, logs=(), sent={}, received={}, positions=positions,
        round_robin={}, connector=None, sink=(), finished=finished, attempt_id="", watermark=watermark, **empty,
        **header(PartFacts),
    )  # fmt: skip


class Epochs:
    """Epochs of one a second of a job whose source has the files `a` and `b`."""

    def __init__(self, topology: Topology) -> None:
        self.now = 0.0
        self.held = HeldWatermarks(topology, lambda: self.now)
        self.told: list[tuple[int, WatermarkHeld | WatermarkReleased]] = []

    def run(self, seconds: int, a: int | None, b: int | None, *, waiting: tuple[str, ...] = (), rows: int = 5) -> None:
        """For so many seconds, `a` and `b` get so many rows a second; None: the file is not there."""
        for _ in range(seconds):
            self.now += 1
            counts = getattr(self, "counts", {"a": 0, "b": 0})
            for name, each in (("a", a), ("b", b)):
                counts[name] += each or 0
            self.counts = counts
            there = {name: counts[name] for name, each in (("a", a), ("b", b)) if each is not None}
            at = [Position(name, 0, n, event_time=n * SECOND if n else None) for name, n in there.items()]
            times = [one.event_time for one in at]
            watermark = None if None in times or not times else min(t for t in times if t is not None) - DELAY
            parts = [part("rows/0", watermark, 0, *at), part("busy/0", watermark, rows)]
            for news in self.held.note(parts, waiting):
                self.told.append((round(self.now), news))


def test_the_file_without_rows_is_named_after_ten_seconds_and_released_when_it_has_some() -> None:
    epochs = Epochs(clicks())
    epochs.run(5, 1, 1)
    epochs.run(25, 1, 0)
    [(at, held)] = epochs.told
    assert at == 15
    assert held == WatermarkHeld("rows", ("b",), ("busy",), 10.0, is_told=True)
    epochs.run(2, 1, 30)
    assert epochs.told[1:] == [(31, WatermarkReleased("rows", 26.0, is_told=True))]
    assert held_text(held) == (
        "source rows holds the watermark back: no rows have come from b for 10 s; busy waits for event time, although "
        "other inputs have rows"
    )
    assert "`idle: 30s` in the event_time of source rows" in held_hint(held)


def test_a_file_that_has_not_begun_is_named() -> None:
    epochs = Epochs(clicks())
    epochs.run(20, 1, 0)
    assert [(at, news.splits) for at, news in epochs.told if isinstance(news, WatermarkHeld)] == [(11, ("b",))]


def test_an_input_that_comes_and_goes_is_told_of_once_in_ten_minutes() -> None:
    epochs = Epochs(clicks())
    for _ in range(20):
        epochs.run(15, 1, 0)
        epochs.run(1, 1, 16)
    assert [news.is_told for _, news in epochs.told] == [True, True] + [False] * 38


@pytest.mark.parametrize(
    ("topology", "a", "b", "more"),
    [
        pytest.param(clicks(), 0, 0, {}, id="all are idle"),
        pytest.param(clicks(), 0, None, {}, id="there is only one"),
        pytest.param(clicks(), 1, None, {}, id="the only one goes on"),
        pytest.param(clicks(), 1, 1, {}, id="all go on"),
        pytest.param(clicks(idle="30s"), 1, 0, {}, id="it has the option"),
        pytest.param(clicks(ordered=True), 1, 0, {}, id="files follow each other"),
        pytest.param(clicks(type="parquet"), 1, 0, {}, id="files do not grow"),
        pytest.param(clicks(follow=False), 1, 0, {}, id="files are read to their end"),
        pytest.param(clicks(windows=False), 1, 0, {}, id="nobody waits for event time"),
        pytest.param(clicks(), 1, 0, {"rows": 0}, id="no window is open"),
        pytest.param(clicks(), 1, 0, {"waiting": ("rows",)}, id="its server does not answer"),
    ],
)
def test_nothing_is_named_where(topology: Topology, a: int | None, b: int | None, more: dict[str, object]) -> None:
    epochs = Epochs(topology)
    epochs.run(3, a and 1, b if b is None else 1)
    epochs.run(60, a, b, **more)  # type: ignore[arg-type]
    assert epochs.told == []


def test_a_task_without_a_file_is_named() -> None:
    now = 0.0
    held = HeldWatermarks(clicks(tasks=2), lambda: now)
    told: list[object] = []
    for second in range(15):
        now = float(second)
        position = Position("a", 0, second, event_time=second * SECOND)
        told += held.note([part("rows/0", None, 0, position), part("rows/1", None, 0), part("busy/0", None)])
    assert told == [WatermarkHeld("rows", ("task 1",), ("busy",), 10.0, is_told=True)]


def test_only_a_split_at_the_watermark_holds_it() -> None:
    assert is_lowest(None, 0, None)
    assert is_lowest(None, 0, 5)
    assert is_lowest(7, 2, 5)
    assert not is_lowest(8, 2, 5)
    assert not is_lowest(8, 2, None)
    assert [*suspects_of(clicks())] == ["rows"]


def test_a_job_names_the_idle_file_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_watermarks, "QUIET_SECONDS", 0.3)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "quiet.jsonl").write_text(row(0))
    metrics, told, services, second = JobMetrics("clicks"), list[News](), list[Service](), 0

    def news(one: News) -> None:
        nonlocal second
        metrics.news(one)
        second += 1
        with (tmp_path / "in" / "busy.jsonl").open("a") as file:
            file.write(row(second))
        if isinstance(one, WatermarkHeld):
            told.append(one)
            with (tmp_path / "in" / "quiet.jsonl").open("a") as file:
                file.write(row(10_000))
        if isinstance(one, WatermarkReleased):
            told.append(one)
            services[0].request_stop()

    options = inline(tmp_path, interval=0.02)
    run_job(clicks(), str(tmp_path / "store"), options, lambda p: None, services.append, on_news=news)
    held, released = told
    assert isinstance(held, WatermarkHeld)
    assert (held.source, held.waiting) == ("rows", ("busy",))
    assert [Path(name).name for name in held.splits] == ["quiet.jsonl"]
    assert isinstance(released, WatermarkReleased)
    assert metrics.registry.get_sample_value("abs_watermark_held_seconds", {"operator": "rows"}) == 0


def row(second: int) -> str:
    at = f"2026-01-01T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}Z"
    return json.dumps({"key": "k", "at": at}) + "\n"
