"""Prepared transactions: what a sink in a database has staged for an epoch, by a name that says whose it is.

    abs-<attempt id>-<epoch, 10 digits>-<task, 5 digits>-<incarnation, 8 digits>-<operator>

Each process that runs the task draws a random incarnation. So a transaction of a failed process, which may have other
rows, is never committed in place of the one that its replacement prepared.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from formats.ids import EpochId

_GID = re.compile(r"abs-([0-9a-f]{32})-(\d{10})-(\d{5,10})-[0-9a-f]{8}-([A-Za-z][A-Za-z0-9_.-]*)", re.ASCII)
MOST_OPERATOR = 130
"""Characters of an operator's id: PostgreSQL's names of transactions have less than 200."""


class Transaction(NamedTuple):
    """Of a sink's task, for the epoch that it was cut at."""

    attempt_id: str
    epoch: int
    task: int
    operator: str

    def gid(self, incarnation: str) -> str:
        """Return the name of the transaction in the database.

        incarnation: of the process that prepares it, 8 hexadecimal digits.
        """
        return f"abs-{self.attempt_id}-{self.epoch:010d}-{self.task:05d}-{incarnation}-{self.operator}"

    @property
    def made_for(self) -> EpochId:
        """The epoch, with the attempt that began it."""
        return EpochId(self.attempt_id, self.epoch)


def transaction_of(gid: str) -> Transaction | None:
    """Whose a prepared transaction is; None for one that abs has not made."""
    match = _GID.fullmatch(gid)
    return Transaction(match.group(1), int(match.group(2)), int(match.group(3)), match.group(4)) if match else None
