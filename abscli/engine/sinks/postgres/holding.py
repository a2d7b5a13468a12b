"""A table that one job of a name writes at a time: it is held by a connection, whose end lets go of it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from abscli.engine.errors import EngineStopped
from abscli.engine.postgres.database import Table
from abscli.engine.sinks.postgres.epochs import lock
from formats.errors import StoreInUse, Unreachable

if TYPE_CHECKING:
    from abscli.engine.postgres.database import Connection

PATIENCE = 2.0
"""Seconds in which another job that has a table may let go of it."""
T = TypeVar("T")


class Holding:
    """Of a driver. job: its name."""

    def __init__(self, table: Table, job: str) -> None:
        self.table = table
        self._job = job
        self._connection: Connection | None = None

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Keep every other job of this name from the table meanwhile; StoreInUse where one has it."""
        try:
            # Another process that only looks at the table has it for a moment.
            deadline = time.monotonic() + PATIENCE
            while not (is_ours := self.table.until_answered(self._lock, seconds=10)) and time.monotonic() < deadline:
                time.sleep(0.05)
            if not is_ours:
                raise StoreInUse(
                    f"sink {self.table.operator} is in use: another job named {self._job} writes to {self.table.title}",
                    path=self.table.title, hint="wait for that job, or stop it with SIGTERM",
                )  # fmt: skip
            yield
        finally:
            if self._connection is not None:
                self._connection.close()

    def _lock(self) -> bool:
        """Hold the table by a connection that stays open; False if another job has it. Raises Unreachable."""
        connection = self.table.reach()
        try:
            is_ours = self.table.answer(connection, lambda at: lock(at, self.table, self._job))
        except BaseException:
            connection.close()
            raise
        if not is_ours:
            connection.close()
            return False
        self._connection = connection
        return True

    def keep(self) -> Connection:
        """Return the connection that holds the table, a new one if it was lost.

        Raises Unreachable; EngineStopped if another job has taken the table since.
        """
        if self._connection is not None and not self._connection.closed:
            try:
                self.table.answer(self._connection, lambda at: at.execute("select 1"))
            except Unreachable:
                self._connection.close()
            else:
                return self._connection
        if not self._lock():
            raise EngineStopped(
                f"sink {self.table.operator}: {self.table.title} was taken over by another job named {self._job}",
                hint="resume the other job; the rows staged by this job are kept",
            )
        assert self._connection is not None
        return self._connection

    def within(self, work: Callable[[Connection], T]) -> T:
        """Return the result of work on the connection that holds the table, so that nobody else can have it meanwhile.

        The work is repeated after an error that may pass.
        """
        return self.table.until_answered(lambda: self.table.answer(self.keep(), work))
