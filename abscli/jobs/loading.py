"""A file of Python is imported, and the job that it makes taken; what goes wrong in it is told by its lines."""

from __future__ import annotations

import importlib.util
import os
import sys
import traceback
from types import ModuleType

from abscli.engine.functions import beside
from abscli.jobs.job import Job
from abscli.jobs.lines import Line, refused, shown_path
from formats.bounds import read_user_file
from formats.job.file import MAX_BYTES
from formats.user_file.mistakes import BadFile, Mistake

NAME = "job"
"""Of the one that is meant where a file has several."""


def import_job(path: str) -> Job:
    """The job that a file of Python makes. The file is run anew each time, as one of YAML is read anew.

    Raises BadFile for what is wrong in it, by line; FormatError if it cannot be read.
    """
    source = read_user_file(path, MAX_BYTES, hint="pass a job file: YAML, JSON or Python")
    top = Line(shown_path(path), 1)
    name = os.path.basename(path).removesuffix(".py")
    root = os.path.dirname(os.path.abspath(path))
    _check_name(name, root, top)
    file = os.path.join(root, f"{name}.py")
    with beside(root, name):
        module = _run(source, name, file)
    job = _only_job(module, top)
    if job.directory != root:
        raise refused(
            top, f"its job is made by a file in {job.directory}: functions and paths would be looked for there",
            "call Job(...) in this file, or name that one",
        )  # fmt: skip
    return job


def _check_name(name: str, root: str, top: Line) -> None:
    if not name.isidentifier():
        hint = "rename it: letters, digits and '_', such as my_job.py"
        raise refused(top, f"workers cannot import a module called {name!r}", hint)
    loaded = getattr(sys.modules.get(name), "__file__", None) or ""
    installed = "-packages" in loaded and not loaded.startswith(root + os.sep)
    if name in sys.stdlib_module_names or name in ("abscli", "formats") or installed:
        raise refused(top, f"a module {name} is needed for itself, and this file would hide it", "rename it")


def _run(source: bytes, name: str, file: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(name)
    sys.modules[name] = module  # where functions of the file are looked up while it runs
    try:
        # Not by its loader: bytecode of a file that was changed within a second, to the same length, passes for good.
        exec(compile(source, file, "exec", dont_inherit=True), module.__dict__)
    except BaseException as error:  # a file that calls sys.exit() must not end the command as if all were well
        del sys.modules[name]
        if before is not None:
            sys.modules[name] = before
        if isinstance(error, KeyboardInterrupt | MemoryError | BadFile):
            raise
        raise _in_file(error, file) from error
    return module


def _in_file(error: BaseException, file: str) -> BadFile:
    """What the file raised, at the innermost line that is the user's."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        return BadFile((Mistake(shown_path(error.filename), error.lineno or 1, error.offset or 1, error.msg),))
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename)]
    line = Line(shown_path(frames[-1].filename), frames[-1].lineno or 1) if frames else Line(shown_path(file), 1)
    reason = str(error)
    hint = getattr(error, "hint", None)
    message = type(error).__name__ + (f": {reason}" if reason else "")
    return refused(line, message, hint if isinstance(hint, str) else None)


def _is_users(file: str) -> bool:
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    library = os.path.dirname(os.__file__)
    return not file.startswith(("<", package + os.sep, library + os.sep)) and "-packages" not in file


def _only_job(module: ModuleType, top: Line) -> Job:
    jobs = {name: value for name, value in vars(module).items() if isinstance(value, Job)}
    if len({id(job) for job in jobs.values()}) == 1:
        return next(iter(jobs.values()))
    if NAME in jobs:
        return jobs[NAME]
    if not jobs:
        raise refused(top, "this file has no job", f'make one at the top of it: {NAME} = Job("name")')
    raise refused(top, f"this file has {len(jobs)} jobs: {', '.join(jobs)}", f"call the one that is meant {NAME}")
