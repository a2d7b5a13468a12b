"""Which input a task reads next: back edges first, but with a bound.

What circulates is taken first, or a loop would fill while its task reads new input; but a loop that is never empty
must not starve a barrier on a regular input, or no snapshot would ever end.
"""

from __future__ import annotations

BACK_EDGE_TURNS = 4
"""Items taken from back edges for one from a regular input, when both have some."""


class Turns:
    """The bound's count, of one task."""

    def __init__(self, bound: int = BACK_EDGE_TURNS) -> None:
        self._bound = bound
        self._taken = 0

    def back_edge_next(self, back: bool, regular: bool) -> bool:
        """Whether the next item comes from a back edge. back, regular: whether some such input has an item."""
        if back and (not regular or self._taken < self._bound):
            self._taken += 1
            return True
        self._taken = 0
        return False
