"""Asynchronous barrier snapshots of dataflow jobs: what programs and notebooks use, and the command line beside it.

A name is imported when it is used first, so that `abs --help` loads none of them.
"""

import os
import sys

# `python -m` puts the current directory first on sys.path, so that a file such as typing.py or msgspec.py there would
# be imported instead of the real module. Remove it before the first import that could find one: Python itself has
# already imported os and sys. argv[0] is "-m" only until Python has found the module to run. If abs was found in the
# current directory, as in a clone, keep it: abs needs the packages next to its own.
if sys.argv[:1] == ["-m"] and not sys.flags.safe_path:
    try:
        _added = [os.getcwd()]
    except OSError:  # the directory has been removed, and Python has added nothing
        _added = []
    if _added and sys.path[:1] == _added and _added != [os.path.dirname(os.path.dirname(__file__))]:
        del sys.path[0]
    del _added
del os, sys

from typing import TYPE_CHECKING  # noqa: E402

__all__ = (
    "BadFile", "BadOption", "BadPlan", "BadPredicate", "BadReference", "ChecksumMismatch", "Column", "Damaged", "Diff",
    "Directory", "EngineError", "EngineStopped", "Epoch", "FormatError", "Garbage", "Grouped", "HtmlReport", "Job",
    "JobFailed", "KeyedBatch", "KeyedResult", "Loop", "NoRecovery", "NotFound", "OnError", "OtherFormat", "OtherJob",
    "Output", "Rebuilt", "RecoveryPlan", "Report", "Restore", "Restored", "Result", "Retention", "Rows", "StalePlan",
    "Start", "Store", "StoreInUse", "Stream", "UnknownTask", "Unreachable", "UnsafePath", "UnsupportedVersion",
    "UsageError", "col", "count", "dead_letter", "open_directory", "open_store", "per_key", "plan_graph", "read_plan",
    "rebuild", "report_on", "run_job", "try_job",
)  # fmt: skip

# isort: off
if TYPE_CHECKING:
    __version__: str
    from abscli.api import Diff, Directory, Epoch, Garbage, Rebuilt, RecoveryPlan, Report, Restore, Restored
    from abscli.api import Retention, Rows, Start, Store, open_directory, open_store, plan_graph, read_plan
    from abscli.api import HtmlReport, rebuild, report_on, run_job, try_job
    from abscli.engine.keyed_functions import KeyedBatch, KeyedResult, Result, per_key
    from abscli.errors import BadFile, BadOption, BadPlan, BadPredicate, BadReference, ChecksumMismatch, Damaged
    from abscli.errors import EngineError, EngineStopped, FormatError, JobFailed, NoRecovery, NotFound, OtherFormat
    from abscli.errors import OtherJob, StalePlan, StoreInUse, UnknownTask, Unreachable, UnsafePath
    from abscli.errors import UnsupportedVersion, UsageError
    from abscli.jobs.job import Job
    from abscli.jobs.streams import Column, Grouped, Loop, OnError, Output, Stream, col, count
    from abscli.jobs.streams import dead_letter
else:

    def __getattr__(name):
        if name == "__version__":
            from abscli.release import VERSION

            return VERSION
        if name not in __all__:
            raise AttributeError(f"module 'abscli' has no attribute {name!r}")
        from abscli import api, errors
        from abscli.engine import keyed_functions
        from abscli.jobs import job, streams

        modules = (errors, api, job, streams, keyed_functions)
        return next(getattr(module, name) for module in modules if hasattr(module, name))


def __dir__() -> list[str]:
    return [*globals(), *__all__]
