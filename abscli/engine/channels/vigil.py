"""The coordinator's ear for workers: a thread of its own hears their beats and sends them back, so that a coordinator
that writes a manifest for some seconds keeps nobody from working."""

from __future__ import annotations

import queue
import selectors
import threading
import time
from collections.abc import Callable

from abscli.engine.channels.door import guard
from abscli.engine.channels.line import Line
from abscli.engine.channels.messages import Alive, Patience, Unheard, decode_unheard
from abscli.engine.channels.pulse import echo
from abscli.engine.channels.wire import BEAT_BYTES, Connection, Wakeup
from abscli.protocol.events import ProtocolError


class Vigil:
    """Hears workers from `begin` until `close`. tell: called, from the thread, with what workers say of each other."""

    def __init__(self, patience: Patience, tell: Callable[[Unheard], None]) -> None:
        self._patience = patience
        self._tell = tell
        self._selector = selectors.DefaultSelector()
        self._wakeup = Wakeup(self._selector)
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._connections: dict[str, Connection] = {}
        self._heard: dict[str, float] = {}
        self._looked_at = time.monotonic()
        self._lock = threading.Lock()
        self._stop = False
        self._thread = threading.Thread(target=self._run, name="abs-vigil", daemon=True)
        self._thread.start()

    def admit(self, hello: Alive, line: Line) -> None:
        """A worker's beats come on this connection."""
        self.hears(hello.incarnation)
        self._call(lambda: self._connect(hello, line))

    def dismiss(self, incarnation: str) -> None:
        """One that counts no more gets no answer any more: where nothing else has it leave, its lease does."""
        self._call(lambda: self._disconnect(incarnation))

    def hears(self, incarnation: str) -> None:
        """A sign of life."""
        with self._lock:
            self._heard[incarnation] = time.monotonic()

    def silent_for(self, incarnation: str) -> float:
        """Seconds since the last sign of life of one that has come."""
        with self._lock:
            at = time.monotonic()
            self._awake(at)
            return at - self._heard[incarnation]

    def close(self) -> None:
        """Hear nobody any more."""
        self._call(self._end)
        self._thread.join()
        self._wakeup.close()

    def _call(self, function: Callable[[], None]) -> None:
        self._calls.put(function)
        self._wakeup()

    def _end(self) -> None:
        self._stop = True

    def _awake(self, at: float) -> None:
        """While this process itself stood still, nobody could be heard."""
        asleep, self._looked_at = at - self._looked_at, at
        if asleep > 1.0 + self._patience.beat:
            self._heard = {incarnation: heard + asleep for incarnation, heard in self._heard.items()}

    def _run(self) -> None:
        while not self._stop:
            with self._lock:
                self._awake(time.monotonic())
            for key, mask in self._selector.select(self._patience.beat):
                key.data(mask)
            while not self._calls.empty():
                self._calls.get()()
        for connection in self._connections.values():
            connection.close()
        self._selector.close()

    def _connect(self, hello: Alive, line: Line) -> None:
        guard(line.sock, self._patience.lost)
        connection = Connection(
            line, self._selector, lambda kind, stamp, payload: self._hear(hello, connection, stamp, payload), _nothing,
            largest=BEAT_BYTES,
        )  # fmt: skip
        self._connections[hello.incarnation] = connection

    def _disconnect(self, incarnation: str) -> None:
        if (connection := self._connections.pop(incarnation, None)) is not None:
            connection.close()

    def _hear(self, hello: Alive, connection: Connection, stamp: int, payload: memoryview) -> None:
        self.hears(hello.incarnation)
        if not payload:
            echo(connection, stamp)
            return
        try:
            self._tell(decode_unheard(payload))
        except ProtocolError:
            # Its worker loses its lease with the connection, and is replaced.
            connection.close()


def _nothing() -> None:
    """Who has ended says so on its other connection."""
