"""What `run`, `restore` and `demo` share: the progress line of a running job, and its result in every form."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from abscli.commands import output
from abscli.commands.output import Output

if TYPE_CHECKING:
    from abscli.engine.service import Progress


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
