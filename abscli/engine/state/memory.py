"""The memory that a worker gives to the keyed state of its tasks: what was used longest ago makes room."""

from __future__ import annotations

import queue
import weakref
from collections import OrderedDict
from typing import Protocol

import pyarrow as pa

GATHERED = 8
"""An eighth of the memory is for rows that wait until the state of their keys is in memory."""


class Tenant(Protocol):
    """A part of some task's state."""

    def evict(self) -> None:
        """Leave memory."""


class StateMemory:
    """`limit` bytes. What is worked on is in memory whatever its size; everything else makes room for it."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.states = 0
        self.gathered = 0
        self._tenants: OrderedDict[Tenant, int] = OrderedDict()
        self._resident = 0
        self._lent = 0
        self._returned: queue.SimpleQueue[int] = queue.SimpleQueue()

    @property
    def room_to_gather(self) -> int:
        """Bytes of rows that the state of one task lets wait."""
        return self.limit // GATHERED // max(1, self.states)

    def make_room(self, size: int, but: Tenant) -> None:
        """Until so much more fits, or nothing is in memory any more `but` this one."""
        for tenant in list(self._tenants):
            if self.fits(size):
                return
            if tenant is not but:
                tenant.evict()
                self.leave(tenant)

    def fits(self, size: int) -> bool:
        """Whether there is room for so many bytes more."""
        while not self._returned.empty():
            self._lent -= self._returned.get()
        return self._resident + self.gathered + self._lent + size <= self.limit

    def hold(self, tenant: Tenant, size: int) -> None:
        """It is in memory, was used just now and has this size; others leave, where that is too much."""
        self._resident += size - self._tenants.pop(tenant, 0)
        self._tenants[tenant] = size
        self.make_room(0, tenant)

    def retire(self, tenant: Tenant) -> None:
        """It is the first to make room: others are wanted before it is again."""
        if tenant in self._tenants:
            self._tenants.move_to_end(tenant, last=False)

    def leave(self, tenant: Tenant) -> None:
        """It is not in memory."""
        self._resident -= self._tenants.pop(tenant, 0)

    def lend(self, table: pa.Table) -> pa.Table:
        """A table that counts as long as somebody has it, in whatever thread."""
        self._lent += table.nbytes
        weakref.finalize(table, self._returned.put, table.nbytes)
        return table
