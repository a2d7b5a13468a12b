"""The workers of an attempt as its coordinator sees them: who is there, under which launch, and how long ago each was
heard of."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Protocol

import msgspec

from abscli.engine.channels.door import is_loopback
from abscli.engine.channels.messages import Hello, JobSpec
from abscli.engine.channels.vigil import Vigil
from abscli.engine.channels.wire import Connection
from abscli.engine.errors import EngineError, EngineStopped, UsageError
from abscli.engine.losses.absence import Absent, Endpoint
from abscli.engine.losses.decisions import Loss


class Launcher(Protocol):
    """Starts workers, and waits for them when its block ends."""

    @property
    def host(self) -> str:
        """Return the host of the coordinator, as workers reach it."""

    @property
    def bind(self) -> str:
        """Return the address on which it listens."""

    @property
    def pulse(self) -> bool:
        """Tell whether workers are separate processes, which may freeze without a word."""

    @property
    def in_clear(self) -> UsageError | None:
        """Why what `prepare` is given would go over a network for everybody to read; None where it does not."""

    def prepare(self, spec: JobSpec) -> None:
        """To be called once, before the first `launch`: what every worker gets."""

    def slots(self, least: int, most: int, waiting: Callable[[int], None]) -> int | None:
        """Workers that can run at once, counted no further than `most`; None: any number.

        Where slots come one after the other, `most` are awaited, or when `least` are there, until no more seem to come;
        waiting(slots so far) is called again and again meanwhile, and may raise. EngineStopped if fewer have come.
        """

    def launch(self, number: int, launch: int, failed: Callable[[EngineError], None]) -> None:
        """Start a worker, which finds the coordinator by itself. failed: called from another thread when it ends
        without having said why."""

    def has_slot(self, number: int) -> bool | None:
        """Return whether the worker launched last under this number was given a place to run; None if unknown."""

    def kill(self, number: int, pid: int | None) -> None:
        """Make sure that what was launched last under this number runs no more. pid: its process, where it said so."""


def misplaced(hello: Hello, seen_at: str) -> EngineStopped | None:
    """Return the error for an address that others cannot reach; None if they can.

    seen_at: the address from which the worker has connected.
    """
    if not is_loopback(hello.host) or is_loopback(seen_at):
        return None
    return EngineStopped(
        f"worker {hello.worker} on {hello.machine} reports the address {hello.host}, which only that host can reach; "
        f"the driver on {socket.gethostname()} sees it at {seen_at}",
        hint="set --advertise to the address at which workers reach the driver",
    )


class Crew:
    """`size` workers, numbered from 0. vigil: hears their signs of life; None where they give none."""

    def __init__(self, launcher: Launcher, size: int, vigil: Vigil | None) -> None:
        self.size = size
        self.connections: dict[int, Connection] = {}
        self._launcher = launcher
        self._vigil = vigil
        self._hellos: dict[int, Hello] = {}
        self._launches: dict[int, int] = {}
        self._last: dict[int, Hello] = {}

    @property
    def complete(self) -> bool:
        """Tell whether all workers have connected."""
        return len(self._hellos) == self.size

    @property
    def absent(self) -> list[int]:
        """Return the workers that have not connected."""
        return [number for number in range(self.size) if number not in self._hellos]

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """Return the address of each worker, by number. All must have connected."""
        hellos = [self._hellos[number] for number in range(self.size)]
        return tuple((hello.host, hello.port) for hello in hellos)

    def launch(self, number: int, failed: Callable[[int, int, EngineError], None]) -> None:
        """Start one, once more if there was one before. failed(number, launch, error) is called from another thread."""
        launch = self._launches[number] = self._launches.get(number, -1) + 1
        self._launcher.launch(number, launch, lambda error: failed(number, launch, error))

    def is_newest(self, number: int, launch: int) -> bool:
        """Tell whether no later worker was launched under this number."""
        return self._launches.get(number) == launch

    def is_there(self, number: int) -> bool:
        """Tell whether a worker has connected, and was not dismissed."""
        return number in self._hellos

    def welcome(self, hello: Hello, connection: Connection) -> None:
        """Note that a worker has connected."""
        self._hellos[hello.worker] = hello
        self._last[hello.worker] = hello
        self.connections[hello.worker] = connection
        if self._vigil is not None:
            self._vigil.hears(hello.incarnation)

    def dismiss(self, number: int) -> None:
        """Close its connection: if it lives, it leaves."""
        hello = self._hellos.pop(number, None)
        if hello is not None and self._vigil is not None:
            self._vigil.dismiss(hello.incarnation)
        if (connection := self.connections.pop(number, None)) is not None:
            connection.close()

    def kill(self, number: int) -> None:
        """Make sure that what was launched last runs no more."""
        hello = self._last.get(number)
        self._launcher.kill(number, hello.pid if hello is not None else None)

    def title(self, number: int) -> str:
        """Return the name of the newest worker of a number, such as `worker 1 on h1 (process 4711)`."""
        if (hello := self._last.get(number)) is None:
            return f"worker {number}"
        return f"worker {number} on {hello.machine} (process {hello.pid})"

    def pids(self) -> dict[int, int]:
        """Return the newest process of each worker that has connected, also of those that have left."""
        return {number: hello.pid for number, hello in self._last.items()}

    def send(self, number: int, message: msgspec.Struct) -> None:
        """Send a message to a worker that has connected."""
        if (connection := self.connections.get(number)) is not None:
            connection.send_message(message)

    def tell(self, message: msgspec.Struct) -> None:
        """Send a message to all workers that have connected."""
        for connection in list(self.connections.values()):  # a send that fails takes its connection out
            connection.send_message(message)

    def is_at(self, number: int, address: tuple[str, int]) -> bool:
        """Tell whether a worker listens at this address now."""
        hello = self._hellos.get(number)
        return hello is not None and (hello.host, hello.port) == address

    def is_incarnation(self, number: int, incarnation: str) -> bool:
        """Tell whether this is the incarnation that is connected now."""
        hello = self._hellos.get(number)
        return hello is not None and hello.incarnation == incarnation

    def absent_worker(self, number: int, loss: Loss | None) -> Absent:
        """Describe a worker that is not connected. loss: the one that is being recovered from, if any."""
        last = self._last.get(number)
        at = None if last is None else Endpoint(last.machine, last.host, last.port)
        cause, is_unresponsive = (None, False) if loss is None else (loss.cause, loss.is_unresponsive)
        return Absent(self.title(number), at, self._launcher.has_slot(number), cause, is_unresponsive)

    @property
    def endpoints(self) -> list[Endpoint]:
        """Return where the connected workers listen."""
        return [Endpoint(hello.machine, hello.host, hello.port) for hello in self._hellos.values()]

    def machine(self, number: int) -> str:
        """The host of the newest that has come."""
        return self._last[number].machine

    def silences(self) -> dict[int, float]:
        """For how many seconds each that is there has given no sign of life."""
        if self._vigil is None:
            return {}
        return {number: self._vigil.silent_for(hello.incarnation) for number, hello in self._hellos.items()}
