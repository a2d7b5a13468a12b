"""Figures of a running job for Prometheus, and the page that shows them: `abs run --metrics`."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from typing import assert_never

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, disable_created_metrics

from abscli.engine.coordinator import CIRCULATING_BYTES, Progress
from abscli.engine.errors import UsageError
from abscli.engine.sources.inputs import LaterInput
from abscli.engine.telemetry.metrics_server import MetricsServer
from abscli.engine.telemetry.news import (
    AbandonedAtOnce,
    Begun,
    EpochDone,
    EpochGivenUp,
    FramesLetGo,
    HeardAgain,
    Late,
    NewGeneration,
    News,
    OperatorContinues,
    OperatorWaits,
    OtherCode,
    OtherTimes,
    Recovered,
    Recovering,
    Rescaled,
    Silent,
    SlotsAwaited,
    SlowSink,
    StaysWritten,
    StopDelayed,
    Stopping,
    WatermarkHeld,
    WatermarkReleased,
    WorkersAwaited,
)
from formats.job.model import Kind
from formats.watermark import END

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each, whose values only OpenMetrics knows

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the buckets of durations."""


class _Elapsed:
    """A gauge of seconds since something began, by operator; 0 while it does not last."""

    def __init__(self, name: str, text: str, registry: CollectorRegistry) -> None:
        self._gauge = Gauge(name, text, ["operator"], registry=registry)
        self._since: dict[str, float] = {}

    def begin(self, operator: str, seconds: float) -> None:
        """Count from `seconds` ago."""
        self._since[operator] = time.monotonic() - seconds
        self._gauge.labels(operator).set_function(lambda: self._seconds(operator))

    def end(self, operator: str) -> None:
        """Show 0 from now on."""
        self._since.pop(operator, None)
        self._gauge.labels(operator).set_function(lambda: self._seconds(operator))

    def _seconds(self, operator: str) -> float:
        since = self._since.get(operator)
        return 0.0 if since is None else time.monotonic() - since


class JobMetrics:
    """Count what a job has done since it started, by the names of Prometheus: seconds, bytes, and `_total` of counters.

    To be told of progress and of news, as a display is; scraped from other threads.
    """

    def __init__(self, job: str) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        Info("abs_job", "The job that runs.", registry=registry).info({"job": job})
        self._completed_at = time.time()
        self._read = 0
        self._epoch = Gauge("abs_epoch", "Number of the newest complete epoch.", registry=registry)
        self._epochs = Counter("abs_epochs", "Epochs that have ended.", ["outcome"], registry=registry)
        for outcome in ("complete", "aborted"):
            self._epochs.labels(outcome)
        self._open = Gauge("abs_open_epochs", "Epochs in flight.", registry=registry)
        since = Gauge(
            "abs_seconds_since_complete_epoch",
            "Since the newest complete epoch; before the first one since the start.",
            registry=registry,
        )
        since.set_function(lambda: time.time() - self._completed_at)
        self._seconds = Histogram(
            "abs_epoch_seconds", "From an epoch's trigger until it is complete.", buckets=SECONDS, registry=registry
        )
        self._phases = Histogram(
            "abs_epoch_phase_seconds",
            "Of an epoch, the longest of all tasks: waiting for barriers, copying state, writing it; then publishing.",
            ["phase"],
            buckets=SECONDS,
            registry=registry,
        )
        self._watermark = Gauge(
            "abs_watermark_seconds",
            "How far event time has come, in seconds since 1970; infinite at its end.",
            ["operator"],
            registry=registry,
        )
        self._written = Counter("abs_epoch_bytes", "Written for complete epochs.", registry=registry)
        self._records = Counter("abs_records", "Rows that sources have read, each once.", registry=registry)
        self._skipped = Counter(
            "abs_records_skipped", "Records that were left out because they failed.", ["operator"], registry=registry
        )
        self._circulating = Gauge("abs_loop_bytes", "On their way on back edges.", registry=registry)
        limit = Gauge("abs_loop_limit_bytes", "Beyond which sources pause; on again at half of it.", registry=registry)
        limit.set(CIRCULATING_BYTES)
        self._paused = Gauge(
            "abs_sources_paused", "1 while loops or an unresponsive worker pause sources, else 0.", registry=registry
        )
        self._restarts = Counter("abs_restarts", "Recoveries of lost workers that have begun.", registry=registry)
        self._restarting = Gauge("abs_restarting", "1 while tasks restart, else 0.", registry=registry)
        self._recovery = Histogram(
            "abs_recovery_seconds",
            "From the loss of workers until what restarted had caught up.",
            buckets=SECONDS,
            registry=registry,
        )
        self._again = Counter("abs_records_read_again", "Rows that sources read again.", registry=registry)
        self._silent = Counter("abs_silences", "Workers that were not heard of for a while.", registry=registry)
        self._waits = _Elapsed(
            "abs_waiting_seconds",
            "For which a source or a sink has waited for something outside of the job; 0 below 5 seconds.",
            registry,
        )
        self._held = _Elapsed(
            "abs_watermark_held_seconds", "For which an input without rows has held the watermark back.", registry
        )
        self._late = Counter("abs_late_warnings", "Warnings of epochs that take too long.", registry=registry)

    def progress(self, progress: Progress) -> None:
        """Take the progress of the job."""
        self._epoch.set(progress.epoch)
        self._open.set(len(progress.open_epochs))
        self._circulating.set(progress.circulating)
        self._paused.set(progress.paused)
        # What a lost worker had read counts no more until it has been read again.
        if progress.records > self._read:
            self._records.inc(progress.records - self._read)
            self._read = progress.records

    def news(self, news: News) -> None:
        """Count an event."""
        match news:
            case EpochDone():
                self._completed_at = news.at
                self._epoch.set(news.epoch)
                self._epochs.labels("complete").inc()
                self._seconds.observe(news.seconds)
                for phase, seconds in news.phases.items():
                    self._phases.labels(phase).observe(seconds)
                self._written.inc(news.bytes)
                for operator, count in news.skipped.items():
                    self._skipped.labels(operator).inc(count)
                for operator, watermark in news.watermarks.items():
                    self._watermark.labels(operator).set(math.inf if watermark == END else watermark / 1_000_000)
            case EpochGivenUp():
                self._epochs.labels("aborted").inc()
            case Recovering():
                self._restarts.inc()
                self._restarting.set(1)
            case Recovered(recovery):
                self._restarting.set(0)
                self._recovery.observe(recovery.seconds)
                self._again.inc(recovery.replayed)
            case Late():
                self._late.inc()
            case Silent():
                self._silent.inc()
            case OperatorWaits(wait):
                self._waits.begin(wait.operator, wait.seconds)
            case OperatorContinues(wait):
                self._waits.end(wait.operator)
            case WatermarkHeld(source, seconds=seconds):
                self._held.begin(source, seconds)
            case WatermarkReleased(source):
                self._held.end(source)
            case Begun(topology):
                for op in topology.operators:
                    if op.kind in (Kind.SOURCE, Kind.SINK):
                        self._waits.end(op.id)
            case FramesLetGo() | HeardAgain() | NewGeneration() | LaterInput() | OtherCode() | Rescaled():
                pass
            case OtherTimes() | SlotsAwaited() | WorkersAwaited() | SlowSink() | StaysWritten():
                pass
            case Stopping() | StopDelayed() | AbandonedAtOnce():
                pass
            case _:
                assert_never(news)


@contextlib.contextmanager
def served(metrics: JobMetrics, host: str, port: int) -> Iterator[str]:
    """Serve the metrics at an address while the block runs, which gets their URL.

    port: 0 for any free port.
    Raises UsageError if the address cannot be listened on.
    """
    try:
        server = MetricsServer(metrics.registry, host, port)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a valid host name"
        raise UsageError(
            f"cannot listen on {host}:{port} for --metrics: {reason}",
            hint="use an address of this machine and a free port",
        ) from None
    with contextlib.closing(server):
        yield server.url
