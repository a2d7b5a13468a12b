"""What a user allows a job that resumes to do with its targets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Permissions:
    """What the user allows for all sinks of an attempt.

    take_ownership: write to a target that has commits outside of the history.
    accept_missing: resume although rows of the history are missing.
    """

    take_ownership: bool = False
    accept_missing: bool = False
