"""What can go wrong, for those who catch it: of stores and their files, of what was asked for, of jobs that run."""

from __future__ import annotations

from abscli.engine.errors import EngineError, EngineStopped, JobFailed, UsageError
from abscli.stores.recovery import BadOption
from formats.errors import (
    ChecksumMismatch,
    Damaged,
    FormatError,
    NoRecovery,
    NotFound,
    OtherFormat,
    OtherJob,
    StalePlan,
    StoreInUse,
    UnknownTask,
    Unreachable,
    UnsafePath,
    UnsupportedVersion,
)
from formats.plan import BadPlan
from formats.query.predicate import BadPredicate
from formats.reference import BadReference
from formats.user_file.mistakes import BadFile

__all__ = (
    "BadFile", "BadOption", "BadPlan", "BadPredicate", "BadReference", "ChecksumMismatch", "Damaged", "EngineError",
    "EngineStopped", "FormatError", "JobFailed", "NoRecovery", "NotFound", "OtherFormat", "OtherJob", "StalePlan",
    "StoreInUse", "UnknownTask", "Unreachable", "UnsafePath", "UnsupportedVersion", "UsageError",
)  # fmt: skip
