"""User functions: found beside the job file (or built in), called on record batches, blamed to the row."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from abscli.engine.errors import JobFailed, UsageError

Function = Callable[[pa.RecordBatch], Any]


def words(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Built-in flat_map: column `line` -> column `word`, maximal runs of letters, digits and underscores."""
    split = pc.split_pattern_regex(batch.column("line"), r"[^\pL\pN_]+").flatten()
    return pa.record_batch([split.filter(pc.not_equal(split, ""))], names=["word"])


def identity(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Built-in map: the batch itself."""
    return batch


BUILT_IN: dict[str, Function] = {"words": words, "identity": identity}


def load(reference: str, root: str) -> Function:
    """The function `module:name` below `root` (a directory, or a zip file of one), or a built-in; UsageError."""
    module_name, colon, name = reference.partition(":")
    if not colon:
        if reference not in BUILT_IN:
            known = ", ".join(sorted(BUILT_IN))
            raise UsageError(f"no built-in function {reference!r}", hint=f"built in: {known}; or give module:function")
        return BUILT_IN[reference]
    if root not in sys.path:
        sys.path.insert(0, root)
    _forget_elsewhere(module_name, root)
    try:
        module = importlib.import_module(module_name)
        function = getattr(module, name)
    except Exception as error:
        raise UsageError(
            f"cannot load {reference!r}: {type(error).__name__}: {error}", hint=f"looked beside the job file, in {root}"
        ) from error
    if not callable(function):
        raise UsageError(f"{reference!r} is no function but {type(function).__name__}")
    result: Function = function
    return result


def _forget_elsewhere(module_name: str, root: str) -> None:
    """Python workers are reused: a module of this name may still be that of an earlier job."""
    package = module_name.partition(".")[0]
    loaded = sys.modules.get(package)
    origin = getattr(loaded, "__file__", None)
    here = Path(root)
    beside = here.is_file() or (here / package).is_dir() or (here / f"{package}.py").is_file()
    if loaded is not None and beside and origin is not None and not origin.startswith(root.rstrip("/") + "/"):
        for name in [n for n in sys.modules if n == package or n.startswith(package + ".")]:
            del sys.modules[name]
    importlib.invalidate_caches()


def call(function: Function, batch: pa.RecordBatch, expected: type, *, operator: str, task: str, first: int) -> Any:
    """function(batch), checked to be an `expected`. first: the number of the batch's first record on its channel.

    Raises JobFailed that names operator, task, record and the row.
    """
    try:
        result = function(batch)
    except Exception as error:
        row = _failing_row(function, batch)
        what = f"{type(error).__name__}: {error}"
        value = str(batch.slice(row, 1).to_pylist()[0])[:200]
        raise JobFailed(
            f"operator {operator}, task {task}, record {first + row} {value}: {what}",
            hint="mend the function or the input, then `abs run --resume`",
        ) from error
    if not isinstance(result, expected):
        raise JobFailed(
            f"operator {operator}, task {task}: the function returned {type(result).__name__}, "
            f"expected {expected.__name__}"
        )
    return result


def _failing_row(function: Function, batch: pa.RecordBatch) -> int:
    """The first row on which it raises, by bisection: functions work row by row."""
    low, high = 0, batch.num_rows
    while high - low > 1:
        middle = (low + high) // 2
        try:
            function(batch.slice(low, middle - low))
        except Exception:
            high = middle
        else:
            low = middle
    return low
