"""From an error to an exit code: one table. An exception that carries `exit_code` of its own keeps it."""

from __future__ import annotations

import errno
from typing import NamedTuple

from formats import errors
from formats.disk import FULL


class Fault(NamedTuple):
    """What scripts know an error by: the exit code and a stable name."""

    code: int
    name: str


UNEXPECTED, USAGE, FINDING, NO_RECOVERY, STALE, STOPPED, JOB_FAILED = 1, 2, 3, 4, 5, 6, 7
NOT_FOUND, IN_USE, UNSUPPORTED, INTERRUPTED, TERMINATED = 10, 11, 12, 130, 143

MEANING: dict[int, str] = {
    0: "Success.",
    UNEXPECTED: "Unexpected failure: a bug.",
    USAGE: "Usage: invalid option, job file or plan, or a store of another job.",
    FINDING: "Finding: something is damaged, incomplete or inconsistent.",
    NO_RECOVERY: "No recovery is possible; the error gives the reason.",
    STALE: "The plan is stale: files that it relies on have changed.",
    STOPPED: "Stopped before the end (worker, cluster or disk); safe to repeat.",
    JOB_FAILED: "The job failed: a function raised, or input or a sink does not fit.",
    NOT_FOUND: "No such store or epoch.",
    IN_USE: "The store or a sink is in use by another job.",
    UNSUPPORTED: "The format version is not supported.",
    INTERRUPTED: "Interrupted (SIGINT).",
    TERMINATED: "Terminated (SIGTERM).",
}

NAMES: dict[int, str] = {
    UNEXPECTED: "unexpected",
    USAGE: "usage",
    FINDING: "finding",
    NO_RECOVERY: "no-recovery",
    STALE: "stale-plan",
    STOPPED: "stopped",
    JOB_FAILED: "job-failed",
    NOT_FOUND: "not-found",
    IN_USE: "store-in-use",
    UNSUPPORTED: "unsupported-version",
    INTERRUPTED: "interrupted",
    TERMINATED: "terminated",
}

TABLE: tuple[tuple[type[BaseException], Fault], ...] = (
    (errors.NotFound, Fault(NOT_FOUND, "not-found")),
    (errors.Unreachable, Fault(STOPPED, "unreachable")),
    (errors.StoreInUse, Fault(IN_USE, "store-in-use")),
    (errors.UnsupportedVersion, Fault(UNSUPPORTED, "unsupported-version")),
    (errors.NoRecovery, Fault(NO_RECOVERY, "no-recovery")),
    (errors.StalePlan, Fault(STALE, "stale-plan")),
    (errors.ChecksumMismatch, Fault(FINDING, "damaged")),
    (errors.Damaged, Fault(FINDING, "damaged")),
    (errors.OtherJob, Fault(USAGE, "other-job")),
    (errors.OtherFormat, Fault(USAGE, "other-format")),
    (errors.UnknownTask, Fault(USAGE, "unknown-task")),
    (errors.UnsafePath, Fault(USAGE, "unsafe-path")),
    (errors.MissingPackage, Fault(USAGE, "missing-package")),
    (errors.FormatError, Fault(USAGE, "invalid-file")),
    (FileExistsError, Fault(USAGE, "not-a-directory")),
    (FileNotFoundError, Fault(USAGE, "no-such-file")),
    (NotADirectoryError, Fault(USAGE, "no-such-file")),
    (IsADirectoryError, Fault(USAGE, "not-a-file")),
    (PermissionError, Fault(USAGE, "permission-denied")),
    (MemoryError, Fault(STOPPED, "memory")),
    (KeyboardInterrupt, Fault(INTERRUPTED, "interrupted")),
)
"""The first class that fits decides."""

_DISK = FULL | {errno.EIO, errno.EROFS}
_NAME = frozenset({errno.ENAMETOOLONG, errno.ELOOP})


def fault(error: BaseException) -> Fault:
    """The exit code and name of an error; `unexpected` when nothing is known of it."""
    for kind, entry in TABLE:
        if isinstance(error, kind):
            return entry
    code = getattr(error, "exit_code", None)
    if not isinstance(code, int):
        number = error.errno if isinstance(error, OSError) else None
        code = STOPPED if number in _DISK else USAGE if number in _NAME else UNEXPECTED
    return Fault(code, NAMES.get(code, "failed"))


def status(*codes: int, **meanings: str) -> dict[int, str]:
    """The EXIT STATUS of a command: these codes in order, and `_3="..."` where the command has words of its own."""
    own = {int(name[1:]): text for name, text in meanings.items()}
    return {code: own.get(code, MEANING[code]) for code in sorted({0, UNEXPECTED, USAGE, *codes, *own})}
