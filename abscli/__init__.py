"""Asynchronous barrier snapshots of dataflow jobs: what programs and notebooks use, and the command line beside it.

A name is imported when it is used first, so that `abs --help` loads none of them.
"""

from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = (
    "BadFile", "BadOption", "BadPlan", "BadPredicate", "BadReference", "ChecksumMismatch", "Column", "Damaged", "Diff",
    "Directory", "EngineError", "EngineStopped", "Epoch", "FormatError", "Garbage", "Grouped", "Job", "JobFailed",
    "Loop", "NoRecovery", "NotFound", "OtherFormat", "OtherJob", "Output", "Rebuilt", "RecoveryPlan", "Report",
    "Restore", "Restored", "Retention", "Rows", "StalePlan", "Start", "Store", "StoreInUse", "Stream", "UnknownTask",
    "Unreachable", "UnsafePath", "UnsupportedVersion", "UsageError", "col", "count", "open_directory", "open_store",
    "plan_graph", "read_plan", "rebuild", "run_job",
)  # fmt: skip

# isort: off
if TYPE_CHECKING:
    from abscli.api import Column, Diff, Directory, Epoch, Garbage, Grouped, Job, Loop, Output, Rebuilt, RecoveryPlan
    from abscli.api import Report, Restore, Restored, Retention, Rows, Start, Store, Stream, col, count
    from abscli.api import open_directory, open_store, plan_graph, read_plan, rebuild, run_job
    from abscli.errors import BadFile, BadOption, BadPlan, BadPredicate, BadReference, ChecksumMismatch, Damaged
    from abscli.errors import EngineError, EngineStopped, FormatError, JobFailed, NoRecovery, NotFound, OtherFormat
    from abscli.errors import OtherJob, StalePlan, StoreInUse, UnknownTask, Unreachable, UnsafePath
    from abscli.errors import UnsupportedVersion, UsageError
else:

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module 'abscli' has no attribute {name!r}")
        from abscli import api, errors

        return getattr(errors if hasattr(errors, name) else api, name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
