"""How much is read before a file is refused: no file, however it was made, may take all of a machine's memory.

Small files can stand for a great deal (runs, dictionaries, compression, nested lists), and each format has its own ways
to do so. What can be seen beforehand is refused with the two numbers; behind that stands one bound for the whole
process (`bound_memory`), so that whatever is overlooked ends in a MemoryError and not in the machine.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from typing import Any

from formats.errors import Damaged, FormatError
from formats.redaction import refuse_credentials

MEMORY = 832 << 20
"""Bytes that a command which only reads may take, besides code: about 900 MiB resident."""

JSON_MEMORY = 640 << 20
"""Bytes that the values of one JSON file may take."""

USER_FILE = 256 << 20
"""Bytes of a file that a user hands to a command; the plan of a hundred thousand tasks is a third of it."""

DECODED = 512 << 20
"""Bytes that a data file may always take when it is decoded; a large one may take more: EXPANSION of its size."""

EXPANSION = 200

VARIABLE = "ABS_MEMORY"
"""The environment's word for another bound than MEMORY: `4G`, `512M`, `0` for none."""

_bound: int | None = None
_own_process = False


def own_process() -> None:
    """This process is a command's own: it may be bounded. (A notebook, or a test, that calls one is not.)"""
    global _own_process
    _own_process = True


def bound_memory() -> None:
    """From now on this process can have so much memory for data (MEMORY, or ABS_MEMORY), and a MemoryError beyond.

    Nothing where the process is not a command's own, the system knows no such limit, or a lower one stands already.
    FormatError for a size in the environment that is none.
    """
    global _bound
    import resource

    bytes = _wanted(os.environ.get(VARIABLE, ""))
    if not _own_process or not bytes:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = bytes + _stacks()
    if any(limit != resource.RLIM_INFINITY and limit <= wanted for limit in (soft, hard)):
        return
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))
        _bound = bytes


def _wanted(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,9})([kKmMgGtT]?)(i?[bB])?", text or f"{MEMORY >> 20}M")
    if match is None:
        raise FormatError(f"{VARIABLE} is {text[:40]!r}, which is not a size", hint=f"{VARIABLE}=4G, or 0 for no bound")
    return int(match[1]) << " kmgt".index(match[2].lower() or " ") * 10


def lift_bound() -> None:
    """No bound any more, for this process and those that it starts: a JVM reserves more than it takes."""
    global _bound
    import resource

    if _bound is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
        _bound = None


def _stacks() -> int:
    """Bytes that the stacks of threads reserve, which libraries start by the processor, and never touch."""
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_STACK)
    each = 2 << 20 if soft == resource.RLIM_INFINITY else soft
    return 4 * (os.cpu_count() or 1) * each


def too_much() -> str:
    """What a MemoryError means here, in words."""
    if _bound is None:
        return "takes more memory than there is"
    return (
        f"takes more than {_bound >> 20} MiB of memory, which is as much as a command that only reads may take "
        f"({VARIABLE} raises it)"
    )


@contextlib.contextmanager
def decoding(path: str | None) -> Iterator[None]:
    """What takes too much memory within is Damaged at `path`: a file that was made so, or one for a larger bound."""
    try:
        yield
    except MemoryError:
        raise Damaged(too_much(), path=path) from None


def check_json(data: bytes, path: str, *, kind: type[FormatError] = Damaged) -> None:
    """Raise `kind` if the values in a JSON text could take more than JSON_MEMORY: an estimate from above, since the
    smallest member and the smallest item take many times as much in memory as in the file."""
    if len(data) < JSON_MEMORY // 200:
        return
    values = 100 * data.count(b":") + 50 * data.count(b",") + 60 * (data.count(b"[") + data.count(b"{"))
    if values + len(data) > JSON_MEMORY:
        raise kind(
            f"its {len(data)} bytes hold values for {(values + len(data)) >> 20} MiB of memory, "
            f"at most {JSON_MEMORY >> 20} are read",
            path=path,
        )


def read_json(data: bytes, path: str, *, hint: str | None = None) -> Any:
    """Return the values of a JSON file that a user named.

    Raises FormatError for what is no JSON, is nested too deeply, or takes more memory than JSON_MEMORY.
    """
    import msgspec

    check_json(data, path, kind=FormatError)
    try:
        return msgspec.json.decode(data)
    except RecursionError:
        raise FormatError("is nested too deeply", path=path, hint=hint) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FormatError(f"is not JSON: {error}", path=path, hint=hint) from None


def read_user_file(
    path: str | os.PathLike[str], limit: int = USER_FILE, *, hint: str | None = None,
    check: Callable[[os.stat_result], None] | None = None,
) -> bytes:  # fmt: skip
    """The bytes of a file that the user named, a pipe (`<(...)`) included; FormatError if it cannot be read or does not
    end: a device, or more than `limit` bytes. check: raises for an opened file that must not be read."""
    name = os.fspath(path)
    refuse_credentials(name, "the path of an input file")
    try:
        with open(name, "rb") as file:
            status = os.fstat(file.fileno())
            if check is not None:
                check(status)
            mode = status.st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)) and not _is_empty_device(name):
                raise FormatError("is not a plain file", path=name, hint=hint)
            data = file.read(limit + 1)
    except (OSError, ValueError) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        raise FormatError(f"cannot be read: {reason.lower()}", path=name, hint=hint) from None
    if len(data) > limit:
        raise FormatError(f"has more than {limit} bytes, which is the most that is read", path=name, hint=hint)
    return data


def _is_empty_device(name: str) -> bool:
    return os.path.realpath(name) == os.devnull


class Expansion:
    """What a data file becomes when it is decoded, against its bound. size: of the file, in bytes."""

    def __init__(self, path: str, size: int) -> None:
        self._path = path
        self._size = size
        self._limit = max(DECODED, EXPANSION * size)
        self._sum = 0

    def add(self, bytes: int) -> None:
        """So many bytes more; Damaged beyond the bound."""
        self._sum += bytes
        if self._sum > self._limit:
            raise Damaged(
                f"its {self._size} bytes become more than {self._limit >> 20} MiB when they are decoded, "
                "which is the most that is read of a file of this size",
                path=self._path,
            )
