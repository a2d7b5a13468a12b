"""Sources and sinks that wait: which waits are reported, when, and in which words."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec.structs import replace

from abscli.cli.main import main
from abscli.engine.coordinator import Service
from abscli.engine.job import run_job
from abscli.engine.patience import until_answered
from abscli.engine.sinks.file_publisher import FilePublisher
from abscli.engine.sinks.folder_sinks import FolderSink
from abscli.engine.sinks.timed import TimedSink
from abscli.engine.telemetry import wait_reports
from abscli.engine.telemetry.metrics import JobMetrics
from abscli.engine.telemetry.news import EpochDone, News, OperatorContinues, OperatorWaits, SlowSink
from abscli.engine.telemetry.slow_sinks import SlowSinks
from abscli.engine.telemetry.wait_reports import DRIVER, WaitReports, next_report
from abscli.engine.waits import Doing, StepTimer, TimedPool, Wait, note_reason
from abscli.text.waits import slow_sink_text, wait_text
from formats.errors import Unreachable
from formats.job.model import Kind
from formats.native.facts import SinkFile
from tests.support.jobs.small import inline, operator, word_count, write_words


class Clock:
    """Seconds, as a test sets them."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


STORE = Wait("worker 1 on h2", Doing.STORE, "s3://bucket/store")


def publishing(seconds: float, operator: str = "out", reason: str = "", rows: int = 120_000) -> Wait:
    return Wait(operator, Doing.PUBLISH, "kafka:orders", 7, rows, seconds, reason)


# -- when -----------------------------------------------------------------------------------------------------


def test_a_wait_is_reported_after_five_seconds_and_then_rarely() -> None:
    reports = WaitReports(Clock())
    told = [
        seconds for seconds in range(300)
        for news in reports.note(DRIVER, [publishing(seconds)])
        if isinstance(news, OperatorWaits) and news.is_told
    ]  # fmt: skip
    assert told == [5, 15, 45, 135]
    assert [next_report(at) for at in (0, 4.9, 5, 14, 46)] == [5, 5, 15, 15, 135]


def test_the_end_of_a_reported_wait_is_reported_with_its_length() -> None:
    clock = Clock()
    reports = WaitReports(clock)
    assert [*reports.note(DRIVER, [publishing(4.0)])] == []
    assert [*reports.note(DRIVER, [])] == []
    [begun] = reports.note(DRIVER, [publishing(5.0)])
    assert begun == OperatorWaits(publishing(5.0), is_told=True)
    clock.now += 2
    assert [*reports.note(DRIVER, [])] == [OperatorContinues(publishing(7.0), is_told=True)]
    assert [*reports.note(DRIVER, [])] == []


def test_a_step_is_not_blamed_for_the_steps_that_it_contains() -> None:
    clock = Clock()
    steps = StepTimer(clock)
    with steps.run(STORE):
        clock.now += 2.0
        with steps.run(publishing(0.0)):
            clock.now += 6.0
            assert [wait.operator for wait in steps.waits(over=1.0)] == ["out"]
        clock.now += 1.5
        assert [(wait.operator, wait.seconds) for wait in steps.waits(over=1.0)] == [("worker 1 on h2", 1.5)]


def test_writes_to_the_store_are_timed_while_they_run() -> None:
    steps, begun, go = StepTimer(), threading.Event(), threading.Event()

    def write(path: str) -> str:
        begun.set()
        assert go.wait(60)
        return path

    with TimedPool(1, steps, STORE) as pool:
        done = pool.submit(write, "epochs/7")
        assert begun.wait(60)
        (wait,) = steps.waits(over=0.0)
        assert (wait.operator, wait.doing, wait.target) == ("worker 1 on h2", Doing.STORE, "s3://bucket/store")
        go.set()
        assert done.result(60) == "epochs/7"
    assert steps.waits(over=0.0) == ()


def test_a_wait_for_the_store_names_worker_host_and_store() -> None:
    wait = replace(STORE, seconds=5.2)
    assert wait_text(wait) == "worker 1 on h2 has waited 5 s for the store s3://bucket/store"
    assert wait_text(replace(wait, reason="timed out")) == (
        "worker 1 on h2 has waited 5 s for the store s3://bucket/store: timed out"
    )


def test_a_sink_that_is_always_slow_is_reported_once() -> None:
    """Each epoch waits six seconds. A metric gets every wait, people only the first one."""
    clock, told, all = Clock(), [], []
    reports = WaitReports(clock)
    for _ in range(50):
        for waits in ([publishing(5.5)], []):
            for news in reports.note(DRIVER, waits):
                all.append(news)
                told += [news] if news.is_told else []
            clock.now += 1
    assert len(all) == 100
    assert [type(news) for news in told] == [OperatorWaits, OperatorContinues]
    clock.now += wait_reports.FORGET_SECONDS + 1
    [again] = reports.note(DRIVER, [publishing(5.0)])
    assert again.is_told


def test_an_outage_after_a_long_wait_is_reported() -> None:
    """Neither a wait of another kind nor a slow step makes a failing server silent."""
    clock = Clock()
    reports = WaitReports(clock)

    def told(*waits: Wait) -> list[bool]:
        clock.now += 10.0
        return [news.is_told for news in reports.note(DRIVER, waits) if isinstance(news, OperatorWaits)]

    assert told(Wait("out", Doing.ASK, "kafka:orders", seconds=90.0)) == [True]
    assert told() == []
    assert told(publishing(6.0)) == [True]
    assert told() == []
    assert told(publishing(6.0)) == [False], "it is as slow as before"
    assert told() == []
    assert told(publishing(6.0, reason="no answer from the broker")) == [True]


def test_an_operator_whose_step_failed_does_not_continue() -> None:
    clock = Clock()
    timer, reports = StepTimer(clock), WaitReports(clock)
    told: list[OperatorWaits | OperatorContinues] = []

    def fail() -> None:
        with timer.run(publishing(0.0)):
            clock.now += 7
            told.extend(reports.note(DRIVER, timer.waits(over=5)))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert [news.is_told for news in told] == [True]
    [over] = reports.note(DRIVER, timer.waits(over=5))
    assert isinstance(over, OperatorContinues)
    assert not over.is_told
    assert timer.waits(over=0) == ()


def test_the_longest_wait_of_a_sink_counts_with_the_rows_of_all_its_tasks() -> None:
    reports = WaitReports(Clock())
    first, second = (Wait("out", Doing.STAGE, "t", 3, 100, seconds) for seconds in (6.0, 8.0))
    assert len([*reports.note(0, [first])]) == 1
    [*_] = reports.note(1, [second])
    assert [news.wait for news in reports.note(1, [Wait("out", Doing.STAGE, "t", 3, 100, 31.0)])] == [
        Wait("out", Doing.STAGE, "t", 3, 200, 31.0)
    ]
    assert [*reports.note(1, [])] == []  # worker 0 still has one
    [over] = reports.note(0, [])
    assert isinstance(over, OperatorContinues)


# -- who waits, and for what -----------------------------------------------------------------------------------


def test_a_step_has_its_time_and_the_reason_of_its_own_thread() -> None:
    clock = Clock()
    timer, entered, leave = StepTimer(clock), threading.Event(), threading.Event()

    def other() -> None:
        with timer.run(Wait("other", Doing.ASK)):
            entered.set()
            leave.wait(30)

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(other)
        entered.wait(30)
        with timer.run(publishing(0.0)):
            note_reason("connection refused")
            clock.now += 6
            waits = {wait.operator: wait for wait in timer.waits(over=5)}
        leave.set()
        done.result()
    assert waits == {
        "out": publishing(6.0, reason="connection refused"),
        "other": Wait("other", Doing.ASK, seconds=6.0),
    }
    assert timer.waits(over=0) == ()
    note_reason("nobody is in a step")


def test_whoever_waits_for_a_server_notes_why_until_it_answers() -> None:
    timer, answers, seen = StepTimer(lambda: 0.0), iter([Unreachable("connection refused", path="db"), 7]), []

    def ask() -> int:
        answer = next(answers)
        seen.append([wait.reason for wait in timer.waits(over=-1)])
        if isinstance(answer, Unreachable):
            raise answer
        return answer

    with timer.run(Wait("out", Doing.ASK)):
        assert until_answered(ask, AssertionError) == 7  # type: ignore[arg-type]
        seen.append([wait.reason for wait in timer.waits(over=-1)])
    assert seen == [[""], ["connection refused"], [""]]


def test_a_sink_task_is_timed_while_it_stages(tmp_path: Path) -> None:
    timer, seen = StepTimer(lambda: 0.0), list[tuple[Wait, ...]]()
    out = operator("out", Kind.SINK, 1, connector={"type": "jsonl", "path": "out"})
    plain = FolderSink(out, 0, str(tmp_path), "a" * 32)
    put = plain._put
    plain._put = lambda file, part: (seen.append(timer.waits(over=-1)), put(file, part))[1]  # type: ignore
    sink = TimedSink(plain, "out", timer)
    sink.write(pa.record_batch({"n": [1, 2, 3]}))
    staged = sink.cut(4)
    assert timer.waits(over=-1) == ()
    assert isinstance(staged()[0], SinkFile)
    assert seen == [(Wait("out", Doing.STAGE, sink.parts[0].directory, 4, 3),)]
    sink.commit(4)
    sink.close()


# -- in words --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wait", "text"),
    [
        (publishing(5.2, reason="connection refused"), "sink out has waited 5 s for kafka:orders: connection refused"),
        (publishing(30), "epoch 7 has waited 30 s for sink out: it is publishing 120,000 rows to kafka:orders"),
        (
            Wait("out", Doing.STAGE, "public.out", 1, 1, 10.0),
            "epoch 1 has waited 10 s for sink out: it is staging 1 row for public.out",
        ),
        (Wait("out", Doing.ASK, "public.out", seconds=5.0), "sink out has waited 5 s for an answer from public.out"),
        (
            Wait("in", Doing.FIND, "k:9092", seconds=5.0, reason="no answer"),
            "source in has waited 5 s for k:9092: no answer",
        ),
        (
            Wait("in", Doing.READ, seconds=5.0, reason="no answer"),
            "source in has waited 5 s: no answer; the job continues without new rows of this source",
        ),
    ],
)
def test_a_report_says_who_waits_for_what(wait: Wait, text: str) -> None:
    assert wait_text(wait) == text


# -- slow sinks ------------------------------------------------------------------------------------------------


def epoch(number: int, staged: float, published: float, other: float = 0.1) -> EpochDone:
    return EpochDone(
        number, 0.0, staged + other, 1, 1, {"publish": published}, by_sink={"out": staged + published, "quick": 0.01}
    )


def named(interval: float | None, epochs: Iterator[EpochDone]) -> list[int]:
    slow = SlowSinks(interval)
    return [news.epoch for done in epochs for news in slow.note(done)]


def test_a_sink_that_makes_epochs_long_is_named_after_three() -> None:
    assert named(0.5, (epoch(n, 0.0, 2.0) for n in range(1, 40))) == [3]
    assert named(0.5, (epoch(n, 2.0, 0.0) for n in range(1, 40))) == [3]
    assert named(0.5, (epoch(n, 0.0, 2.0 if n < 10 else 5.0) for n in range(1, 40))) == [3, 10]
    text = "epochs take 2.1 s, with an interval of 0.5 s: sink out takes 2.0 s of that to stage and publish its rows"
    assert slow_sink_text(SlowSink("out", 3, 2.1, 0.5, 2.0)) == text


def test_no_sink_is_named_where_epochs_are_in_time_or_something_else_is_slow() -> None:
    assert named(None, (epoch(n, 0.0, 2.0) for n in range(40))) == []
    assert named(2.0, (epoch(n, 0.0, 2.0) for n in range(40))) == []
    assert named(0.01, (epoch(n, 0.0, 0.1) for n in range(40))) == []
    assert named(0.5, (epoch(n, 0.0, 2.0, other=9.0) for n in range(40))) == []
    assert named(0.5, (epoch(n, 0.0, 2.0 if n % 3 else 0.1) for n in range(40))) == []


# -- a job -----------------------------------------------------------------------------------------------------


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A sink whose publication of the first epoch takes until a test lets it go on; waits count from 50 ms on."""
    monkeypatch.setattr(wait_reports, "FIRST_SECONDS", 0.05)
    monkeypatch.setattr(wait_reports, "EVERY_SECONDS", 0.01)
    gate = threading.Event()
    plain = FilePublisher.publish

    def publish(*args: object, **more: object) -> object:
        gate.wait(30)
        return plain(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(FilePublisher, "publish", publish)
    return gate.set


def test_a_sink_of_a_job_that_waits_is_reported_and_measured(tmp_path: Path, slow: Callable[[], None]) -> None:
    write_words(tmp_path, files=2, lines=5)
    metrics, told, shown = JobMetrics("words"), list[News](), list[float]()
    value = metrics.registry.get_sample_value

    def news(one: News) -> None:
        metrics.news(one)
        if isinstance(one, OperatorWaits):
            shown.append(value("abs_waiting_seconds", {"operator": one.wait.operator}) or 0.0)
            slow()
        told.extend([one] if isinstance(one, OperatorWaits | OperatorContinues) else [])

    services: list[Service] = []
    run_job(word_count(), str(tmp_path / "store"), inline(tmp_path), lambda p: None, services.append, on_news=news)
    waits, over = told
    assert isinstance(waits, OperatorWaits)
    assert isinstance(over, OperatorContinues)
    assert waits.wait.doing is Doing.PUBLISH
    assert waits.wait.rows > 0
    assert over.wait.seconds >= waits.wait.seconds >= 0.05
    assert shown[0] >= 0.05
    assert value("abs_waiting_seconds", {"operator": waits.wait.operator}) == 0
    assert (value("abs_epoch_phase_seconds_sum", {"phase": "publish"}) or 0) >= 0.05


def test_a_run_says_on_stderr_which_sink_waits(
    tmp_path: Path, slow: Callable[[], None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from abscli.cli.running import Display

    plain = Display.news

    def news(display: Display, one: News) -> None:
        plain(display, one)
        if isinstance(one, OperatorWaits):
            slow()

    monkeypatch.setattr(Display, "news", news)
    write_words(tmp_path, files=1, lines=5)
    (tmp_path / "job.yaml").write_text(
        "version: 1\njob: j\noperators:\n  lines:\n    source: {type: text, path: in/*.txt}\n"
        "  out:\n    from: lines\n    sink: {type: jsonl, path: out}\n"
    )
    assert main(["run", str(tmp_path / "job.yaml"), "--store", str(tmp_path / "s"), "--engine", "inline"]) == 0
    err = capsys.readouterr().err
    assert "abs: warning: epoch 1 has waited 0 s for sink out: it is publishing 5 rows to " in err
    assert "sink out continues, after 0 s" in err
