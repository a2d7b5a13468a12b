"""The three policies of a snapshot, as a table of what differs between them (the rules of `task` refer to it).

    policy          blocks regular   holds back   logs                         copies at
    aligned         yes              yes          back edges                   last regular barrier
    unaligned       no               no           every input                  first barrier
    at-least-once   no               yes          back edges                   last regular barrier

`aligned` is asynchronous barrier snapshotting (arXiv 1506.08603), `unaligned` is Chandy and Lamport's algorithm (1985):
barriers are its markers. `at-least-once` is ABS without blocking: what passes between a regular input's barrier and
the copy is in the copy and comes again after a restore. Loops are logged all the same: a record on a back edge would
be lost, not repeated.
"""

from __future__ import annotations

from enum import StrEnum


class Policy(StrEnum):
    """How a task takes its part of an epoch."""

    ALIGNED = "aligned"
    UNALIGNED = "unaligned"
    AT_LEAST_ONCE = "at-least-once"

    @property
    def blocks(self) -> bool:
        """Whether a regular input waits from its barrier to the copy."""
        return self is Policy.ALIGNED

    @property
    def holds(self) -> bool:
        """Whether a back edge waits from its barrier to the copy."""
        return self is not Policy.UNALIGNED

    @property
    def copies_at_first(self) -> bool:
        """Whether the first barrier, on any input, starts the copy."""
        return self is Policy.UNALIGNED

    @property
    def logs_regular(self) -> bool:
        """Whether the state of regular channels is kept too."""
        return self is Policy.UNALIGNED

    @property
    def exactly_once(self) -> bool:
        """Whether no record can come twice after a restore."""
        return self is not Policy.AT_LEAST_ONCE
