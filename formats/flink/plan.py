"""What a plan says of checkpoints of Flink: which one was chosen and why, and what a copy of it sets right.

It relies on `_metadata` alone, which names every other file with its size; Flink writes no digests.
"""

from __future__ import annotations

import shlex

from formats.plan import Body, Count, Skipped


class FlinkPlan(Body, frozen=True, kw_only=True):
    """How to get a snapshot of Flink that can be restored; members in the order of the file.

    epoch, kind: the one that was chosen: `checkpoint`, `full checkpoint` or `savepoint`.
    directory: of its `_metadata`, absolute.
    skipped: newer ones, and why not they.
    in_place: Flink can restore it where it is.
    repairs: what a copy sets right, in words.
    files, bytes: to be copied.
    claim: a job goes on from it only if Flink claims it: its state is of the changelog backend.
    command: the line that starts a job from it as it lies; null if it needs a copy first.

    Raises ValueError for another command than the one that `directory`, `in_place` and `claim` make.
    """

    epoch: Count
    kind: str
    directory: str
    skipped: tuple[Skipped, ...]
    in_place: bool
    repairs: tuple[str, ...]
    files: Count
    bytes: Count
    claim: bool
    command: str | None

    def __post_init__(self) -> None:
        # Whoever makes a plan by hand must not have us print a line of his for people to run.
        if self.command != (run_line(self.directory, claim=self.claim) if self.in_place else None):
            raise ValueError("`command` is not the line that starts a job from `directory`")

    @property
    def goes_back_to(self) -> int:
        return self.epoch


def run_line(directory: str, *, claim: bool) -> str:
    """`flink run -s URI JOB.jar`, quoted. directory: absolute, or a URI.

    claim: only where it must be, for Flink then owns what it starts from and deletes it in time.
    """
    uri = directory if "://" in directory else f"file://{directory}"
    return f"flink run -s {shlex.quote(uri)}{' -claimMode CLAIM' * claim} JOB.jar"
