"""How a job can end other than well; each class carries its exit code."""

from __future__ import annotations

from dataclasses import dataclass

from formats.ids import TaskId

MEND = "free space there, or fix the cause of the read or write error"
"""What comes before going on after an error of the file system: without it the job would meet it again."""


class EngineError(Exception):
    """message: what happened, to what; hint: what to do next."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.path: str | None = None


class UsageError(EngineError):
    """The job cannot be run as asked: too few slots, an opaque operator, a store that has epochs already."""

    exit_code = 2


class EngineStopped(EngineError):
    """Stopped part-way: a lost worker, cluster or disk. Running it again is safe."""

    exit_code = 6


class ServerUnavailable(EngineStopped):
    """A server did not answer, or could not do what was asked, for as long as that is waited for.

    hint: what to do before the job resumes.
    """


class Overtaken(EngineStopped):
    """Another attempt has the store or a sink now."""


@dataclass(frozen=True, slots=True)
class RaisedAt:
    """Where a user's function raised: there a second time means that it will every time.

    task: whose function.
    row: the record as text. Its number may be another one after a restart, when inputs interleave in another way.
    """

    task: TaskId
    row: str


class JobFailed(EngineError):
    """A user's function raised, or the input is not what the topology says.

    raised_at: the record, where a function raised: it may have been a passing failure.
    """

    exit_code = 7

    def __init__(self, message: str, *, hint: str | None = None, raised_at: RaisedAt | None = None) -> None:
        super().__init__(message, hint=hint)
        self.raised_at = raised_at
