"""User functions: found beside the job file (or built in), called on record batches, blamed to the row."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from abscli.engine.errors import JobFailed, RaisedAt, UsageError
from abscli.engine.failures import is_of_record, place_of_error
from formats.ids import TaskId

Function = Callable[[pa.RecordBatch], Any]

_LOADING = threading.Lock()
"""Workers that are threads of one process must not forget a module that another has begun to load."""


def words(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Built-in flat_map: column `line` -> column `word`, maximal runs of letters, digits and underscores."""
    lines = batch.column("line").cast(pa.string())
    plain = pc.fill_null(pc.string_is_ascii(lines), False)
    if pc.all(plain).as_py():
        return pa.record_batch([_ascii_words(lines)[0]], names=["word"])
    simple, simple_counts = _ascii_words(lines.filter(plain))
    other, other_counts = _words_by_pattern(lines.filter(pc.invert(plain)))
    is_plain = plain.to_numpy(zero_copy_only=False)
    counts = np.empty(len(lines), dtype=np.int64)
    begins = np.empty(len(lines), dtype=np.int64)
    counts[is_plain], counts[~is_plain] = simple_counts, other_counts
    begins[is_plain] = np.cumsum(simple_counts) - simple_counts
    begins[~is_plain] = np.cumsum(other_counts) - other_counts + len(simple)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    order = pa.array(np.repeat(begins, counts) + within)
    return pa.record_batch([pa.concat_arrays([simple, other]).take(order)], names=["word"])


def _words_by_pattern(lines: pa.Array) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """All words, and how many each line has."""
    split = pc.split_pattern_regex(lines, r"[^\pL\pN_]+")
    pieces, line = split.flatten(), pc.list_parent_indices(split)
    real = pc.not_equal(pieces, "")
    counts = np.bincount(line.filter(real).to_numpy(zero_copy_only=False), minlength=len(lines))
    return pieces.filter(real).cast(pa.string()), counts


def _ascii_words(lines: pa.Array) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """The same for ASCII lines without nulls, at memory speed."""
    _, offset_buffer, data_buffer = lines.buffers()
    if not len(lines):
        return pa.array([], pa.string()), np.empty(0, dtype=np.int64)
    offsets = np.frombuffer(offset_buffer, np.int32)[lines.offset : lines.offset + len(lines) + 1]
    data = np.frombuffer(data_buffer or b"", np.uint8)[offsets[0] : offsets[-1]]
    offsets = offsets - offsets[0]
    inside = np.zeros(len(data) + 2, dtype=bool)
    inside[1:-1] = _IN_WORD[data]
    edges = np.flatnonzero(inside[1:] != inside[:-1])  # a word begins or ends before these bytes
    breaks = offsets[1:-1][np.diff(offsets[1:]) > 0]  # a line with something in it begins before these
    within = breaks[inside[breaks] & inside[breaks + 1]]  # where one word ends and another begins
    bounds = np.sort(np.concatenate([edges, within, within]))
    ends = np.zeros(len(bounds) // 2 + 1, dtype=np.int32)
    np.cumsum(bounds[1::2] - bounds[::2], out=ends[1:])
    kept = np.ascontiguousarray(data[inside[1:-1]])
    words = pa.StringArray.from_buffers(len(ends) - 1, pa.py_buffer(ends), pa.py_buffer(kept))
    return words, np.diff(np.searchsorted(bounds[::2], offsets))


_IN_WORD = np.array([chr(i).isalnum() or chr(i) == "_" for i in range(128)])


def identity(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Built-in map: the batch itself."""
    return batch


BUILT_IN: dict[str, Function] = {"words": words, "identity": identity}


def load(reference: str, root: str) -> Function:
    """The function `module:name` below `root` (a directory, or a zip file of one), or a built-in; UsageError."""
    module_name, colon, name = reference.partition(":")
    if not colon:
        if reference not in BUILT_IN:
            names = ", ".join(sorted(BUILT_IN))
            raise UsageError(f"no built-in function {reference!r}", hint="use module:function, or a built-in "
                f"function: {names}")
        return BUILT_IN[reference]
    try:
        with beside(root, module_name):
            function = getattr(importlib.import_module(module_name), name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module that calls sys.exit() must not end the command as if all were well
        raise UsageError(
            f"cannot load {reference!r}: {type(error).__name__}: {error}", hint=f"fix the module, or put it in the "
            f"folder of the job file, {root}"
        ) from error
    if not callable(function):
        raise UsageError(f"{reference!r}: expected a function, got {type(function).__name__}")
    result: Function = function
    return result


def is_beside(reference: str, root: str) -> bool:
    """Tell whether a function is built in, or its module is in `root`. reference: as of `load`, or a module's name."""
    package = reference.partition(":")[0].partition(".")[0]
    here = Path(root)
    is_there = here.is_file() or (here / package).is_dir() or (here / f"{package}.py").is_file()
    return is_there or reference in BUILT_IN


class _Imports(threading.local):
    """Whether this thread imports a module of a job."""

    active = False


_imports = _Imports()


@contextlib.contextmanager
def beside(root: str, module_name: str) -> Iterator[None]:
    """While the block runs no other thread imports modules of jobs, and a module of this name is looked for in `root`
    first, which stays so. UsageError within such a block."""
    refuse_in_imports()
    with _LOADING:
        if sys.path[0] != root:
            sys.path[:] = [root, *(path for path in sys.path if path != root)]
        _forget_elsewhere(module_name, root)
        _imports.active = True
        try:
            yield
        finally:
            _imports.active = False


def refuse_in_imports() -> None:
    """UsageError while this thread imports a module of a job: what runs a job there would import it again, and so on,
    in every worker."""
    if _imports.active:
        raise UsageError(
            "cannot run or test a job while its job file is being imported",
            hint='put the call under `if __name__ == "__main__":` or into another file: '
            "workers also import the job file",
        )


def _forget_elsewhere(module_name: str, root: str) -> None:
    """Python workers are reused: a module of this name may still be that of an earlier job."""
    package = module_name.partition(".")[0]
    loaded = sys.modules.get(package)
    origin = getattr(loaded, "__file__", None)
    is_elsewhere = origin is not None and not origin.startswith(root.rstrip("/") + "/")
    if is_elsewhere and is_beside(module_name, root):
        for name in [n for n in sys.modules if n == package or n.startswith(package + ".")]:
            del sys.modules[name]
    importlib.invalidate_caches()


_MEND = "fix the function or the input, or skip such records with on_error: skip"
"""What an error's hint begins with; how to go on from there follows it."""


def call(function: Function, batch: pa.RecordBatch, expected: type, *, operator: str, task: TaskId, first: int) -> Any:
    """function(batch), checked to be an `expected`. first: the number of the batch's first record on its channel.

    Raises JobFailed that names operator, task, record and the row.
    """
    try:
        result = function(batch)
    except BaseException as error:  # sys.exit() in a function is a failure of the job as well
        row = _failing_row(function, batch)
        message = str(error).partition("\n")[0] if isinstance(error, pa.ArrowException) else error  # it lists tables
        reason = f"{type(error).__name__}: {message}{place_of_error(error)}"
        value = str(batch.slice(row, 1).to_pylist()[0])[:200]
        raise JobFailed(
            f"operator {operator}, task {task}, record {first + row} {value}: {reason}",
            hint=_other_column(error, operator, batch.schema.names) or (_MEND if is_of_record(error) else None),
            raised_at=RaisedAt(task, value),
        ) from error
    return checked(result, expected, operator=operator, task=task)


def checked(result: Any, expected: type, *, operator: str, task: TaskId) -> Any:
    """What a function has returned; JobFailed unless it is an `expected`."""
    if not isinstance(result, expected):
        raise JobFailed(
            f"operator {operator}, task {task}: the function returned {type(result).__name__}, "
            f"expected {expected.__name__}"
        )
    return result


_NO_COLUMN = re.compile(
    r"""(?:Field "(.{1,64})"|Column (.{1,64})) does not exist in schema|Column '(.{1,64})' not found|"""
    r"""No match for FieldRef\.Name\((.{1,64}?)\) in"""
)
"""How Arrow says that there is no such column."""


def _other_column(error: BaseException, operator: str, names: list[str]) -> str | None:
    """What to mend where a function asked for a column that its input does not have; None for another error."""
    match = _NO_COLUMN.search(str(error))
    wanted = next((name for name in match.groups() if name is not None), "") if match else ""
    if not wanted or wanted in names:
        return None
    near = difflib.get_close_matches(wanted, names, n=1)
    meant = f"did you mean {near[0]!r}? " if near else ""
    return f"{meant}operator {operator} gets the columns {', '.join(names)}: name one of these in its function"


def _failing_row(function: Function, batch: pa.RecordBatch) -> int:
    """The first row on which it raises, by bisection: functions work row by row."""
    low, high = 0, batch.num_rows
    while high - low > 1:
        middle = (low + high) // 2
        try:
            function(batch.slice(low, middle - low))
        except BaseException:
            high = middle
        else:
            low = middle
    return low
