"""What `run`, `restore` and `demo` share: the progress line of a running job, and its result in every form."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, assert_never

import typer

from abscli.cli import output
from abscli.cli.output import LogForm, Output
from formats.timestamps import rfc3339

if TYPE_CHECKING:
    from collections.abc import Sequence

    from abscli.cli.options import Address
    from abscli.engine.coordinator import Progress
    from abscli.engine.sources.inputs import LaterInput
    from abscli.engine.telemetry.metrics import JobMetrics
    from abscli.engine.telemetry.news import Changed, News
    from abscli.engine.waits import Wait
    from abscli.protocol.policy import Policy
    from formats.job.model import Topology
    from formats.view import Repeat


def check_directory(path: str, option: str) -> None:
    """A usage error where neither a directory is nor one can be made: there, or on the way there, is a file."""
    from formats.storage import local_name, no_directory

    if "://" not in path and (obstacle := no_directory(local_name(path))):
        raise typer.BadParameter(
            f"{path} cannot be used as a directory: {obstacle}; name a directory, or a path where nothing is yet",
            param_hint=f"'{option}'",
        )


SHOWN = 3
"""Files that a line names."""


class Display:
    """What is seen of a running job: on a terminal one line that changes (called with `Progress`), elsewhere a line an
    epoch (`news`); everywhere what calls for attention."""

    def __init__(self, job: str, line: output.Progress) -> None:
        self._job = job
        self._line = line
        self._begun, self._seen = time.monotonic(), 0
        line(f"{job}: starting")

    def __call__(self, progress: Progress) -> None:
        """Newest complete epoch, records read, records a second."""
        if not self._seen or progress.records < self._seen:  # nothing read yet, or another run has begun
            self._begun = time.monotonic()
        self._seen = progress.records
        rate = self._seen / max(time.monotonic() - self._begun, 1.0)
        from abscli.text.columns import counted

        circulating = f" · {progress.circulating:,} bytes circulating" if progress.circulating else ""
        read = counted(progress.records, "record")
        self._line(f"{self._job}: epoch {progress.epoch} · {read} · {rate:,.0f}/s{circulating}")

    def news(self, news: News) -> None:
        """What has just happened."""
        from abscli.engine.sources.inputs import LaterInput
        from abscli.engine.telemetry.news import (
            AbandonedAtOnce,
            Begun,
            EpochDone,
            EpochGivenUp,
            FramesLetGo,
            HeardAgain,
            Late,
            NewGeneration,
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
        from abscli.text.columns import counted, size
        from abscli.text.recoveries import recovered, recovering
        from abscli.text.skipped import skipped_text
        from abscli.text.waits import continues_text, held_hint, held_text, slow_sink_text, wait_text

        match news:
            case Begun(topology, policy):
                note_guarantee(topology, policy)
            case EpochDone(epoch, at, seconds, records, written, phases, _, skipped, _):
                figures = f"{seconds:.3f} s, {counted(records, 'record')}, {size(written)}"
                figures += f"; {skipped_text(skipped)}" if skipped else ""
                self._log(
                    at, f"epoch {epoch} complete in {figures}", event="epoch-complete", epoch=epoch,
                    seconds=round(seconds, 3), records=records, bytes=written,
                    phases={phase: round(longest, 3) for phase, longest in phases.items()},
                    **({"skipped": dict(skipped)} if skipped else {}),
                )  # fmt: skip
            case EpochGivenUp(epoch, at, reason):
                self._log(at, f"epoch {epoch} aborted: {reason}", event="epoch-aborted", epoch=epoch, reason=reason)
            case Late(message, hint):
                output.warn(message, hint, event="late")
            case OtherCode() | OtherTimes() | NewGeneration() | LaterInput() | StaysWritten():
                note_change(news)
            case Recovering():
                output.warn(
                    recovering(news), event="recovering", epoch=news.epoch, cause=news.cause, tasks=news.tasks,
                    untouched=news.untouched,
                )  # fmt: skip
            case FramesLetGo(worker):
                reason = f"worker {worker} had more to keep than --backup-buffer allows"
                output.warn(
                    f"{reason}: until the next complete epoch, a failure rolls back all tasks",
                    event="backup-buffer-dropped",
                    worker=worker,
                )  # fmt: skip
            case Recovered(recovery):
                output.note(
                    recovered(recovery), event="recovered", epoch=recovery.epoch, seconds=round(recovery.seconds, 3),
                    workers=recovery.workers, replayed=recovery.replayed,
                )  # fmt: skip
            case Rescaled(epoch, parent, changes):
                text = f"rescaled {changes}: epoch {epoch} has what epoch {parent} had"
                output.note(text, event="rescaled", epoch=epoch, parent=parent)
            case Stopping(number, begun):
                name = signal.Signals(number).name
                when = "" if begun else " as soon as the job has started"
                text = f"{name}: taking a last epoch{when}; a second signal leaves at once"
                output.note(text, event="stopping", signal=name)
            case StopDelayed(number, waits):
                name = signal.Signals(number).name
                steps = "; ".join(map(wait_text, waits))
                text = f"{name}: the job cannot stop yet: {steps}. A second signal ends it at once"
                output.note(text, event="stop-delayed", signal=name, waits=[wait.operator for wait in waits])
            case AbandonedAtOnce(number):
                name = signal.Signals(number).name
                text = "stopped by a second signal, without a last epoch"
                output.warn(text, "continue with --resume", event="abandoned", signal=name)
            case Silent(worker, peer, seconds, paused):
                both = f"{worker} and {peer} have not received anything from each other"
                text = f"{worker} has not answered" if peer is None else both
                text += f" for {seconds:.0f} s{'; sources are paused' if paused else ''}"
                output.warn(text, event="heartbeat-missed", seconds=round(seconds, 3), paused=paused)
            case HeardAgain(worker, peer, seconds):
                both = f"{worker} and {peer} receive from each other again"
                text = f"{worker} answers again" if peer is None else both
                output.note(f"{text}, after {seconds:.0f} s", event="heartbeat-resumed", seconds=round(seconds, 3))
            case OperatorWaits(wait, is_told):
                if is_told:
                    self._warn_of_wait(wait)
            case OperatorContinues(wait, is_told):
                if is_told:
                    output.note(
                        continues_text(wait), event="wait-over", operator=wait.operator, seconds=round(wait.seconds, 3)
                    )
            case SlowSink(sink, epoch, _, _, seconds):
                output.warn(
                    slow_sink_text(news), event="sink-slow", operator=sink, epoch=epoch, seconds=round(seconds, 3)
                )
            case WatermarkHeld(source, splits, waiting, seconds, is_told):
                if is_told:
                    output.warn(
                        held_text(news), held_hint(news), event="watermark-held", operator=source,
                        seconds=round(seconds, 3), splits=splits, waiting=waiting,
                    )  # fmt: skip
            case WatermarkReleased(source, seconds, is_told):
                if is_told:
                    text = f"source {source} no longer holds back the watermark, after {seconds:.0f} s"
                    output.note(text, event="watermark-released", operator=source, seconds=round(seconds, 3))
            case SlotsAwaited(slots, seconds):
                text = f"waiting for slots: {slots} so far, after {seconds:.0f} s"
                output.note(text, event="waiting-for-slots", seconds=round(seconds, 3), slots=slots)
            case WorkersAwaited(reason, seconds):
                output.note(
                    f"waiting for workers, after {seconds:.0f} s: {reason}", event="waiting-for-workers",
                    seconds=round(seconds, 3), reason=reason,
                )  # fmt: skip
            case _:
                assert_never(news)

    @staticmethod
    def _warn_of_wait(wait: Wait) -> None:
        from abscli.text.waits import wait_text

        figures: dict[str, Any] = {"epoch": wait.epoch, "rows": wait.rows, "reason": wait.reason, "target": wait.target}
        output.warn(
            wait_text(wait), event="waits", operator=wait.operator, seconds=round(wait.seconds, 3),
            **{name: value for name, value in figures.items() if value},
        )  # fmt: skip

    def _log(self, at: float, text: str, **facts: Any) -> None:
        """A line that says what a terminal's changing line says. at: Unix time."""
        if output.voice.form is LogForm.JSON:
            output.note(text, **facts)
        elif not output.progress_wanted():
            output.note(f"{rfc3339(at)} {text}")
        else:
            output.detail(f"{rfc3339(at)} {text}")


def note_change(news: Changed) -> None:
    """Says what a job is that has changed since the epoch that it goes on from."""
    from abscli.engine.sources.inputs import LaterInput
    from abscli.engine.telemetry.news import OtherCode, OtherTimes, StaysWritten

    if isinstance(news, LaterInput):
        _note_later_input(news)
        return
    if isinstance(news, OtherTimes):
        for change in news.changes:
            output.note(
                f"operator {change.operator}: {change.name} was {change.was} in epoch {news.epoch} and is "
                f"{change.now} now: existing state was computed with the old value"
            )
        return
    if isinstance(news, StaysWritten):
        first, last = news.epochs[0], news.epochs[-1]
        epochs = f"epoch {first}" if first == last else f"epochs {first} to {last}"
        output.warn(
            f"sink {news.operator}: {news.target} still contains rows of {epochs}; the job rolls back to an earlier "
            "epoch, but these rows cannot be removed"
        )
        return
    if isinstance(news, OtherCode):
        have = "has" if len(news.files) == 1 else "have"
        output.note(
            f"{', '.join(news.files)} {have} changed since attempt {news.attempt}: epoch {news.epoch} was written "
            "with different code"
        )
        return
    changes = [f"{before} is {after} now" for before, after in news.moved.items()]
    changes += [f"{operator} is removed" for operator in news.removed]
    changes += [f"{operator} is new" for operator in news.added]
    summary = ", ".join(changes) or "its channels differ"
    output.note(f"the job has changed: {summary}; generation {news.generation} begins with epoch {news.epoch}")


def _note_later_input(later: LaterInput) -> None:
    """Says what a source will not read, and how it would be."""
    came = "a source reads only the files that exist when the job first starts"
    grew = "a source that has finished does not read data that is appended afterwards"
    for files, why in ((later.files, came), (later.grown, grew)):
        if files:
            names = ", ".join(files[:SHOWN]) + (f" and {len(files) - SHOWN} more" if len(files) > SHOWN else "")
            rest = " the rest of" if files is later.grown else ""
            which = "this file" if len(files) == 1 else "these files"
            output.note(f"source {later.operator} does not read{rest} {names}: {why}; to read {which}, run the job "
                        "with a new store")  # fmt: skip


class Watching:
    """What is seen of a plan or a restore (`abscli.stores.recovery.Watcher`)."""

    def __init__(self, line: output.Progress) -> None:
        self._line = line

    def __call__(self, text: str) -> None:
        """How far it is."""
        self._line(text)

    def note(self, text: str) -> None:
        """A remark on stderr, unless -q."""
        output.note(text)

    def job(self, name: str) -> Display:
        """What is seen of a job that begins to run."""
        return Display(name, self._line)


@contextlib.contextmanager
def watching() -> Iterator[Watching]:
    """Shows how a plan or a restore goes on while the block runs."""
    with output.progress() as line:
        yield Watching(line)


@contextlib.contextmanager
def job_progress(job: str) -> Iterator[Display]:
    """Shows a job while the block runs."""
    with output.progress() as line:
        yield Display(job, line)


class Watchers:
    """What is told of a running job: a display, and its figures where they are served."""

    def __init__(self, display: Display, metrics: JobMetrics) -> None:
        self._display = display
        self._metrics = metrics

    def __call__(self, progress: Progress) -> None:
        """How far it is."""
        self._metrics.progress(progress)
        self._display(progress)

    def news(self, news: News) -> None:
        """What has just happened."""
        self._metrics.news(news)
        self._display.news(news)


@contextlib.contextmanager
def job_watched(job: str, metrics: Address | None) -> Iterator[Display | Watchers]:
    """Shows a job while the block runs, and serves its figures. metrics: where; UsageError if nothing can listen
    there."""
    with contextlib.ExitStack() as stack:
        display = stack.enter_context(job_progress(job))
        if metrics is None:
            yield display
            return
        from abscli.engine.telemetry.metrics import JobMetrics, served

        figures = JobMetrics(job)
        url = stack.enter_context(served(figures, metrics.host, metrics.port))
        output.note(f"metrics at {url}", event="metrics", url=url)
        yield Watchers(display, figures)


def emit_result(result: dict[str, Any], text: str, form: Output) -> None:
    """One result object, or one line of text."""
    if form is Output.TABLE:
        output.emit_text(text)
    elif form is Output.NDJSON:
        output.emit_ndjson(result)
    else:
        output.emit_json(result)


def note_guarantee(topology: Topology, policy: Policy) -> None:
    """Says what holds of a job from end to end."""
    from abscli.graph.job_graph import JobGraph
    from abscli.planner.guarantee import guarantee_of
    from abscli.text.guarantee import guarantee_line

    guarantee = guarantee_of(JobGraph.of(topology), policy)
    output.note(
        guarantee_line(guarantee), event="guarantee", policy=policy, state=guarantee.state, output=guarantee.output
    )


def warn_of_clear(insecure: bool) -> None:
    """Says what --insecure gives up."""
    if insecure:
        output.warn(
            "--insecure: connections between hosts are not encrypted: anyone on the network can read and change "
            "records, the credentials of workers, and the bucket credentials in Spark's configuration"
        )


def warn_of_repeats(store: str, epoch: int) -> None:
    """Says so if records come again when a job goes on from this epoch; about an epoch that is not there, nothing."""
    from abscli.planner.repeats import may_repeat, total
    from abscli.stores.registry import open_store
    from abscli.text.columns import counted
    from formats.errors import NotFound

    try:
        detail = open_store(store).detail(epoch)
    except NotFound:
        return
    repeats = may_repeat(detail.policy, detail.channels)
    if repeats:
        output.warn(
            f"epoch {epoch} was taken with the at-least-once policy: {counted(total(repeats), 'record')} may be "
            f"processed twice, on {counted(len(repeats), 'channel')}; 'abs validate' lists the channels"
        )


def note_taken_over(stores: dict[str, str]) -> None:
    """Says which sinks showed another store's output until now."""
    from abscli.stores.native.text.plan import taken_over

    for line in taken_over(stores):
        output.note(line)


def again_json(repeats: Sequence[Repeat] | None) -> list[dict[str, Any]] | None:
    """`repeats` of a result: what comes again, since the state of the epoch that was gone on from holds it already."""
    return None if repeats is None else [{"channel": str(r.channel), "records": r.records} for r in repeats]


def again_text(policy: str, repeats: Sequence[Repeat] | None) -> str:
    """What an end message adds: records that came again, and that they may."""
    from abscli.planner.repeats import total

    again = total(repeats or ())
    remarks = [f"; {again:,} record{'s'[: again != 1]} came again, from an at-least-once epoch"] if again else []
    remarks += [f"; policy {policy}: records may repeat after a restore"] if policy == "at-least-once" else []
    return "".join(remarks)
