"""What `run`, `restore` and `demo` share: the progress line of a running job, and its result in every form."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer

from abscli.cli import output
from abscli.cli.output import Output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from abscli.engine.coordinator import Progress
    from abscli.engine.news import News
    from formats.view import Repeat


def check_directory(path: str, option: str) -> None:
    """A usage error where neither a directory is nor one can be made: there, or on the way there, is a file."""
    from formats.storage import local_name, no_directory

    if "://" not in path and (obstacle := no_directory(local_name(path))):
        raise typer.BadParameter(
            f"{path} cannot be a directory, {obstacle}: name a directory, or a path where nothing is yet",
            param_hint=f"'{option}'",
        )


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
        circulating = f" · {progress.circulating:,} bytes circulating" if progress.circulating else ""
        self._line(f"{self._job}: epoch {progress.epoch} · {progress.records:,} records · {rate:,.0f}/s{circulating}")

    def news(self, news: News) -> None:
        """What has just happened."""
        from abscli.engine.news import EpochDone, EpochGivenUp, Late
        from abscli.text.columns import size

        match news:
            case EpochDone(epoch, at, seconds, records, written):
                figures = f"{seconds:.3f} s, {records:,} records, {size(written)}"
                self._log(f"{_clock(at)} epoch {epoch} complete in {figures}")
            case EpochGivenUp(epoch, at, reason):
                self._log(f"{_clock(at)} epoch {epoch} given up: {reason}")
            case Late(message, hint):
                output.warn(message)
                output.say(f"hint: {hint}")
            case _:
                name = signal.Signals(news.signal).name
                when = "" if news.begun else " as soon as the job has started"
                output.note(f"{name}: taking a last epoch{when}; a second signal leaves at once")

    def _log(self, text: str) -> None:
        """A line that says what a terminal's changing line says."""
        if not output.progress_wanted():
            output.note(text)
        else:
            output.detail(text)


def _clock(at: float) -> str:
    """RFC 3339 in UTC, to the millisecond."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


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


def emit_result(result: dict[str, Any], text: str, form: Output) -> None:
    """One result object, or one line of text."""
    if form is Output.TABLE:
        output.emit_text(text)
    elif form is Output.NDJSON:
        output.emit_ndjson(result)
    else:
        output.emit_json(result)


def warn_of_repeats(store: str, epoch: int) -> None:
    """Says so if records come again when a job goes on from this epoch; about an epoch that is not there, nothing."""
    from abscli.planner.repeats import may_repeat, total
    from abscli.stores.registry import open_store
    from formats.errors import NotFound

    try:
        detail = open_store(store).detail(epoch)
    except NotFound:
        return
    repeats = may_repeat(detail.policy, detail.channels)
    if repeats:
        output.warn(
            f"epoch {epoch} was taken at-least-once: {total(repeats):,} records come again on {len(repeats)} "
            f"channel{'s'[: len(repeats) != 1]}; 'abs validate' names them"
        )


def note_taken_over(stores: dict[str, str]) -> None:
    """Says which sinks showed another store's output until now."""
    from abscli.stores.native.text_plan import taken_over

    for line in taken_over(stores):
        output.note(line)


def again_json(repeats: Sequence[Repeat] | None) -> list[dict[str, Any]] | None:
    """`repeats` of a result: what comes again, since the state of the epoch that was gone on from holds it already."""
    return None if repeats is None else [{"channel": r.channel, "records": r.records} for r in repeats]


def again_text(policy: str, repeats: Sequence[Repeat] | None) -> str:
    """What an end message adds: records that came again, and that they may."""
    from abscli.planner.repeats import total

    again = total(repeats or ())
    remarks = [f"; {again:,} record{'s'[: again != 1]} came again, from an at-least-once epoch"] if again else []
    remarks += [f"; policy {policy}: records may repeat after a restore"] if policy == "at-least-once" else []
    return "".join(remarks)
