"""Where output goes: results to stdout, everything else to stderr; a reader that leaves early is no error."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TextIO

from abscli.cli.overview import width as width
from abscli.cli.stdout import check_open, stdout
from formats.plain_text import plain_json, plain_lines
from formats.redaction import redact
from formats.version import FORMAT_VERSION

if TYPE_CHECKING:
    from rich.status import Status


class LogForm(StrEnum):
    """The forms of what is said on stderr."""

    TEXT = "text"
    JSON = "json"


class Output(StrEnum):
    """The forms of a result."""

    TABLE = "table"
    JSON = "json"
    NDJSON = "ndjson"


@dataclass(slots=True)
class Voice:
    """What is said besides the result, and how; set by -q, -v and --log-format wherever they stand."""

    quiet: bool = False
    verbose: int = 0
    form: LogForm = LogForm.TEXT


voice = Voice()

LARGE = 8 << 20
"""Bytes of JSON from which on a result is not indented: nobody reads it, and it would take half as long again."""


def emit_json(result: Mapping[str, Any] | bytes) -> None:
    """One JSON object on stdout; bytes are JSON already and go out as they are (a plan and its file are the same)."""
    if isinstance(result, bytes):
        _write(result)
    else:
        _write(_dumped(result, indent=2), b"\n")  # not one more copy of what may be large


def emit_ndjson(header: Mapping[str, Any], items: Iterable[Mapping[str, Any]] = ()) -> None:
    """The header object, then one item a line; each item says its `type`."""
    _write(_dumped(header) + b"\n")
    for item in items:
        _write(_dumped(item) + b"\n")


def emit_line(item: Mapping[str, Any]) -> None:
    """One more line of ndjson."""
    _write(_dumped(item) + b"\n")


def emit_marked(text: str) -> None:
    """Text for people in which statuses are marked: in colour, where stdout shows colours."""
    from abscli.text.columns import coloured

    emit_text(coloured(text) if colour(sys.stdout) else text)


def emptied() -> None:
    """Empties the terminal that stdout is; of anything else nothing."""
    if stdout().isatty():
        _write(b"\x1b[2J\x1b[H")


def emit_text(text: str) -> None:
    """Text for people, ending in one newline; what stdout's encoding lacks is escaped."""
    encoding = getattr(stdout(), "encoding", None) or "utf-8"
    _write((plain_lines(text).rstrip("\n") + "\n").encode(encoding, "backslashreplace"))


def plain_ascii() -> bool:
    """Whether stdout cannot show box-drawing characters, so that ASCII has to do."""
    try:
        "│├└─▶".encode(getattr(stdout(), "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return True
    return False


def colour(stream: TextIO) -> bool:
    """Whether to colour what goes to `stream`: NO_COLOR, then FORCE_COLOR, then whether it is a terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb")


def note(text: str, **facts: Any) -> None:
    """A remark on stderr, unless -q. facts: the same for programs, with --log-format json."""
    if not voice.quiet:
        _log("info", text, facts)


def detail(text: str, **facts: Any) -> None:
    """A remark on stderr that only -v asks for."""
    if voice.verbose and not voice.quiet:
        _log("debug", text, facts)


def warn(text: str, hint: str | None = None, **facts: Any) -> None:
    """Something that the user should know, on stderr, also under -q. hint: what to do about it."""
    if voice.form is LogForm.JSON:
        _log("warning", text, {**({"hint": hint} if hint else {}), **facts})
        return
    say(f"abs: warning: {text}")
    if hint:
        say(f"hint: {hint}")


def say(text: str) -> None:
    """What was asked for in so many words, on stderr, also under -q."""
    _log("info", text, {})


def log_error(report: Mapping[str, Any]) -> None:
    """What the command ends with, in a log for programs. report: an `abs.error`."""
    _log("error", str(report["message"]), {"error": report})


def _log(level: str, text: str, facts: Mapping[str, Any]) -> None:
    if voice.form is LogForm.TEXT:
        _put(text)
        return
    from formats.timestamps import now

    line = {"schema": "abs.log", "version": FORMAT_VERSION, "time": now(), "level": level, "message": text, **facts}
    _put(_dumped(line).decode())


def _put(text: str) -> None:
    """A line on stderr, above a progress line if there is one; nobody may be reading it."""
    text = redact(plain_lines(text))
    if any(line.above(text) for line in _shown):
        return
    with contextlib.suppress(OSError, ValueError):
        encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
        sys.stderr.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
        sys.stderr.flush()


def progress_wanted() -> bool:
    """Whether a progress display would be seen: stderr is a terminal that people read, and not -q."""
    return voice.form is LogForm.TEXT and not voice.quiet and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


class Progress:
    """One line on stderr, with a spinner, that is overwritten; silent unless `progress_wanted()`."""

    def __init__(self) -> None:
        self._wanted = progress_wanted()
        self._status: Status | None = None

    def __call__(self, text: str) -> None:
        """Shows `text`, cut to the width of the terminal, in place of what was shown."""
        if not self._wanted:
            return
        from rich.text import Text

        shown = Text(redact(text)[: width() - 3], no_wrap=True)
        if self._status is None:
            from rich.console import Console

            self._status = Console(stderr=True, width=width()).status(shown)
            self._status.start()
        else:
            self._status.update(shown)

    def above(self, text: str) -> bool:
        """Prints a line above the one that is shown; False if none is."""
        if self._status is None:
            return False
        self._status.console.print(text, markup=False, highlight=False, soft_wrap=True)
        return True

    def clear(self) -> None:
        """Takes the line away."""
        if self._status is not None:
            self._status.stop()
            self._status = None


@contextlib.contextmanager
def progress() -> Iterator[Progress]:
    """A progress line that is gone when the block ends: `with progress() as show: show("epoch 3")`."""
    line = Progress()
    _shown.append(line)
    try:
        yield line
    finally:
        _shown.remove(line)
        line.clear()


_shown: list[Progress] = []


def flush() -> None:
    """Writes out what is buffered, so that a reader that has left is noticed here and not while Python shuts down.

    What cannot be written has been told where it was written; it must not be told again by a traceback.
    """
    for stream in (stdout(), sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            _silence(stream)


def _dumped(result: Mapping[str, Any], indent: int | None = None) -> bytes:
    """JSON in UTF-8, structs included; a file name that is not UTF-8 is escaped."""
    if "msgspec" in sys.modules:  # many times faster for large results; not worth its import for small ones
        import msgspec

        with contextlib.suppress(UnicodeEncodeError):
            data = plain_json(msgspec.json.encode(result))
            return msgspec.json.format(data, indent=indent) if indent and len(data) < LARGE else data
        result = msgspec.to_builtins(result)
    try:
        return plain_json(json.dumps(result, indent=indent, ensure_ascii=False, allow_nan=False).encode())
    except UnicodeEncodeError:
        return plain_json(json.dumps(result, indent=indent, allow_nan=False).encode())


def _write(*chunks: bytes) -> None:
    """Bytes to stdout. When the reader has left (`| head`), the command goes on to its own exit code."""
    stream = stdout()
    try:
        stream.flush()
        buffer = getattr(stream, "buffer", None)
        if buffer is None:
            stream.write(b"".join(chunks).decode(errors="replace"))
        else:
            buffer.writelines(chunks)
            buffer.flush()
    except BrokenPipeError:
        _silence(stream)
    except OSError as error:
        error.filename = error.filename or "stdout"
        raise


def emit_rows(data: bytes) -> None:
    """Write rows of a job's sink to stdout.

    Raises OSError if they cannot be written, also if stdout was closed from the start: the job must not count them as
    delivered.
    """
    check_open()
    stream = stdout()
    stream.flush()
    buffer = getattr(stream, "buffer", None)
    if buffer is None:
        stream.write(data.decode())
    else:
        buffer.write(data)
    stream.flush()


def _silence(stream: TextIO) -> None:
    """Sends the rest to nowhere, what is still buffered included."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, stream.fileno())
        finally:
            os.close(nowhere)
