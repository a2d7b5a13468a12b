"""Asynchronous barrier snapshots of dataflow jobs: what programs and notebooks use, and the command line beside it.

A name is imported when it is used first, so that `abs --help` loads none of them.
"""

from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = (
    "BadOption", "BadPlan", "BadPredicate", "BadReference", "ChecksumMismatch", "Damaged", "Diff", "Directory",
    "EngineError", "EngineStopped", "Epoch", "FormatError", "Garbage", "JobFailed", "NoRecovery", "NotFound",
    "OtherFormat", "OtherJob", "Rebuilt", "RecoveryPlan", "Report", "Restore", "Restored", "Retention", "Rows",
    "StalePlan", "Start", "Store", "StoreInUse", "UnknownTask", "Unreachable", "UnsafePath", "UnsupportedVersion",
    "UsageError", "open_directory", "open_store", "plan_graph", "read_plan", "rebuild", "run_job",
)  # fmt: skip

# isort: off
if TYPE_CHECKING:
    from abscli.api import Diff, Directory, Epoch, Garbage, Rebuilt, RecoveryPlan, Report, Restore, Restored
    from abscli.api import Retention, Rows, Start, Store
    from abscli.api import open_directory, open_store, plan_graph, read_plan, rebuild, run_job
    from abscli.errors import BadOption, BadPlan, BadPredicate, BadReference, ChecksumMismatch, Damaged, EngineError
    from abscli.errors import EngineStopped, FormatError, JobFailed, NoRecovery, NotFound, OtherFormat, OtherJob
    from abscli.errors import StalePlan, StoreInUse, UnknownTask, Unreachable, UnsafePath, UnsupportedVersion
    from abscli.errors import UsageError
else:

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module 'abscli' has no attribute {name!r}")
        from abscli import api, errors

        return getattr(errors if hasattr(errors, name) else api, name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
