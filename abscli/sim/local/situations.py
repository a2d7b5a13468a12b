"""What runs with local recovery can come to."""

from __future__ import annotations

from enum import StrEnum


class LocalSituation(StrEnum):
    """What a run can come to that is worth having happened before the rules are believed."""

    AGAIN = "a task takes its steps again"
    BETWEEN = "both ends of a channel take their steps again"
    LOST_WAITING = "a worker is lost before the one before it restarts"
    LOST_AGAIN = "a worker is lost while it takes its steps again"
    LOST_BESIDE = "a worker is lost while another takes its steps again"
    THIRD = "steps become known by way of a third worker"
    BEHIND = "a lost worker had taken steps that nobody knows"
    DROPPED = "a frame that is known brings steps that are not"
    GIVEN_UP = "an epoch that was given up is copied again"
    AHEAD = "what was heard of later epochs before a copy is heard again"
    OVERTAKEN = "a receiver has more than its sender had sent"
    WAITED = "a sender waits for a full channel"
    PILED = "more comes for a task that takes its steps again than a channel holds"
    BACK = "tasks go back without their steps"
    EVERYTHING = "not all is kept, so that everything restarts"
