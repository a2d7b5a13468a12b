"""What a plan says of checkpoints of Flink: which one was chosen and why, and what a copy of it sets right.

It relies on `_metadata` alone, which names every other file with its size; Flink writes no digests.
"""

from __future__ import annotations

import shlex

from formats.flink.metadata.handles import Backend
from formats.plan import Body, Count, Skipped


class FlinkPlan(Body, frozen=True, kw_only=True):
    """How to get a snapshot of Flink that can be restored; members in the order of the file.

    epoch, kind: the one that was chosen: `checkpoint`, `full checkpoint` or `savepoint`.
    directory: of its `_metadata`, absolute.
    skipped: newer ones, and why not they.
    in_place: Flink can restore it where it is.
    repairs: what a copy sets right, in words.
    files, bytes: to be copied.
    backend: the state backend that the job must be configured with; null if every backend reads the state.
    claim: a job goes on from it only if Flink claims it: its state is of the changelog backend.
    command: the line that starts a job from it as it lies; null if it needs a copy first.

    Raises ValueError for another command than the one that `directory`, `in_place`, `backend` and `claim` make.
    """

    epoch: Count
    kind: str
    directory: str
    skipped: tuple[Skipped, ...]
    in_place: bool
    repairs: tuple[str, ...]
    files: Count
    bytes: Count
    backend: Backend | None
    claim: bool
    command: str | None

    def __post_init__(self) -> None:
        # Whoever makes a plan by hand must not have us print a line of his for people to run.
        if self.command != (self.run_line() if self.in_place else None):
            raise ValueError("`command` is not the line that starts a job from `directory`")

    def run_line(self) -> str:
        """Return the command that starts a job from `directory`."""
        return run_line(self.directory, claim=self.claim, backend=self.backend)

    @property
    def goes_back_to(self) -> int:
        return self.epoch


def run_line(directory: str, *, claim: bool, backend: Backend | None) -> str:
    """Return `flink run -s URI JOB.jar`, quoted. directory: absolute, or a URI.

    claim: only if the state needs it, because Flink then owns what it starts from and deletes it in time.
    backend: the only one that reads the state. With another one the job fails with a BackendBuildingException.
    """
    uri = directory if "://" in directory else f"file://{directory}"
    options = " -claimMode CLAIM" * claim + (f" -Dstate.backend.type={backend}" if backend else "")
    return f"flink run -s {shlex.quote(uri)}{options} JOB.jar"
