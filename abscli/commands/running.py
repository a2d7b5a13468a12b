"""What `run`, `restore` and `demo` share: the progress line of a running job, and its result in every form."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import typer

from abscli.commands import output
from abscli.commands.output import Output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from abscli.engine.service import Progress
    from formats.view import Repeat


@contextlib.contextmanager
def user_code() -> Iterator[None]:
    """Modules of the job are imported in here: what they print is no result of ours, and goes to stderr."""
    with contextlib.redirect_stdout(sys.stderr):
        yield


def check_directory(path: str, option: str) -> None:
    """A usage error where neither a directory is nor one can be made: there, or on the way there, is a file."""
    from formats.storage import local_name

    place = os.path.abspath(local_name(path))
    while not os.path.lexists(place):
        place = os.path.dirname(place)
    if "://" not in path and not os.path.isdir(place):
        at = "it" if place == os.path.abspath(path) else place
        raise typer.BadParameter(
            f"{path} cannot be a directory, {at} is a file: name a directory, or a path where nothing is yet",
            param_hint=f"'{option}'",
        )


@contextlib.contextmanager
def job_progress(job: str) -> Iterator[Callable[[Progress], None]]:
    """A progress line on a terminal: newest complete epoch, records read, records a second."""
    begun, seen = time.monotonic(), 0
    with output.progress() as line:
        line(f"{job}: starting")

        def show(progress: Progress) -> None:
            nonlocal begun, seen
            if not seen or progress.records < seen:  # nothing read yet, or another run has begun
                begun = time.monotonic()
            seen = progress.records
            rate = seen / max(time.monotonic() - begun, 1.0)
            circulating = f" · {progress.circulating:,} bytes circulating" if progress.circulating else ""
            line(f"{job}: epoch {progress.epoch} · {progress.records:,} records · {rate:,.0f}/s{circulating}")

        yield show


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
    from formats.errors import NotFound
    from formats.open import open_store

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
    for operator, store in stores.items():
        output.note(f"sink {operator}: taken over from {store}; what only that store made is in superseded/")


def again_json(repeats: Sequence[Repeat] | None) -> list[dict[str, Any]] | None:
    """`repeats` of a result: what comes again, since the state of the epoch that was gone on from holds it already."""
    return None if repeats is None else [{"channel": r.channel, "records": r.records} for r in repeats]


def again_text(policy: str, repeats: Sequence[Repeat] | None) -> str:
    """What an end message adds: records that came again, and that they may."""
    from abscli.planner.repeats import total

    again = total(repeats or ())
    said = [f"; {again:,} record{'s'[: again != 1]} came again, from an at-least-once epoch"] if again else []
    said += [f"; policy {policy}: records may repeat after a restore"] if policy == "at-least-once" else []
    return "".join(said)
