"""Functions by the names under which workers import them: what a job file says, and nothing is pickled."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from abscli.jobs.lines import Line, refused

Function = Callable[[Any], Any] | str
"""A function of a module, or what a job file would say of one: `module:function`, or the name of a built-in."""


def reference_of(function: Function, directory: str, line: Line) -> str:
    """`module:function` as workers find it from the job's directory. BadFile for one that they cannot import."""
    if isinstance(function, str):
        return function
    name = getattr(function, "__qualname__", None)
    module = getattr(function, "__module__", None)
    if not callable(function) or not isinstance(name, str) or not isinstance(module, str):
        raise refused(
            line, f"{_shown(function)} has no name under which a worker could import it",
            "give a function that is defined in a module, as `def name(batch): ...`",
        )  # fmt: skip
    if name.endswith("<lambda>"):
        raise refused(
            line, "a lambda has no name under which a worker could import it",
            "write it as `def name(batch): ...` in a module, and give the function",
        )  # fmt: skip
    if "." in name:
        inside = name.rpartition(".")[0].removesuffix(".<locals>")
        raise refused(
            line, f"{name.rpartition('.')[2]} is defined inside {inside}, where a worker cannot import it",
            "move it to the top of its module",
        )  # fmt: skip
    importable = importable_module(module, directory)
    if importable is None:
        raise refused(
            line, f"{name} is in no file from which a worker could import it",
            f"put it into a module in {directory}, and import it from there",
        )  # fmt: skip
    if getattr(sys.modules.get(module), name, None) is not function:
        raise refused(
            line, f"{importable}:{name} is another function than the one that was given, or none",
            "give a function under the name with which it was defined",
        )  # fmt: skip
    return f"{importable}:{name}"


def importable_module(module: str, directory: str) -> str | None:
    """The name under which a worker imports a module that is loaded here; None for one that is no file.

    Workers look beside the job first: what lies there is named from there, whatever it is called in this process
    (`__main__` of a script, `tests.job` under pytest).
    """
    loaded = sys.modules.get(module)
    file = getattr(loaded, "__file__", None)
    if isinstance(file, str):
        path = os.path.relpath(os.path.abspath(file), directory)
        parts = path.removesuffix(".py").removesuffix(f"{os.sep}__init__").split(os.sep)
        if path.endswith(".py") and all(part.isidentifier() for part in parts):
            return ".".join(parts)
    return None if module == "__main__" or file is None else module


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
