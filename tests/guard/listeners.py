"""Servers on loopback that a hostile store names. They answer until a client shows its secret, and record it."""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
from collections.abc import Iterator

HOST = "127.41.7.29"
"""An address of loopback that no other test knows: a client of another test may still look for a server that is gone,
at a port that a listener has by now."""

_SSL_REQUEST = struct.pack("!ii", 8, 80877103)
_ASK_PASSWORD = b"R" + struct.pack("!ii", 8, 3)
_HTTP = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 34\r\nConnection: close\r\n\r\n"
_CONFIG = b'{"defaults": {}, "overrides": {}} '


class Listeners:
    """Sockets that listen, by name. received: what has come in to each, all connections after one another."""

    def __init__(self, *names: str) -> None:
        self.received: dict[str, bytes] = {}
        self.connections: dict[str, int] = {}
        self._sockets = {name: socket.create_server((HOST, 0)) for name in names}
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ, "")
        for name, listening in self._sockets.items():
            self._selector.register(listening, selectors.EVENT_READ, name)
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def port(self, name: str) -> int:
        """Return where a listener is reached."""
        port: int = self._sockets[name].getsockname()[1]
        return port

    def at(self, name: str) -> str:
        """Return HOST:PORT of a listener."""
        return f"{HOST}:{self.port(name)}"

    def take(self) -> dict[str, bytes]:
        """Return what has come in since the last time, of those that somebody has connected to."""
        with self._lock:
            taken = {name: self.received.get(name, b"") for name in self.connections}
            self.received, self.connections = {}, {}
        return taken

    def close(self) -> None:
        """End all of them."""
        self._wake.send(b".")
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            with contextlib.suppress(OSError):
                key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()
        self._wake.close()

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                ready: socket.socket = key.fileobj  # type: ignore[assignment]
                if ready is self._woken:
                    return
                with contextlib.suppress(OSError):
                    self._hear(ready, key.data)

    def _hear(self, ready: socket.socket, name: str) -> None:
        if ready in self._sockets.values():
            connection, _ = ready.accept()
            connection.setblocking(False)
            self._selector.register(connection, selectors.EVENT_READ, name)
            with self._lock:
                self.connections[name] = self.connections.get(name, 0) + 1
            return
        try:
            data = ready.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(ready)
            ready.close()
            return
        with self._lock:
            self.received[name] = self.received.get(name, b"") + data
        if data == _SSL_REQUEST:
            ready.sendall(b"N")  # no encryption, which libpq accepts by default
        elif data[4:8] == b"\x00\x03\x00\x00":
            ready.sendall(_ASK_PASSWORD)
        elif data.split(b" ", 1)[0] in (b"GET", b"HEAD", b"POST", b"PUT", b"DELETE"):
            ready.sendall(_HTTP + _CONFIG)
            self._selector.unregister(ready)
            ready.close()
        elif b"HTTP/" not in data:
            self._selector.unregister(ready)
            ready.close()


@contextlib.contextmanager
def listening(*names: str) -> Iterator[Listeners]:
    """Listen in the block."""
    listeners = Listeners(*names)
    try:
        yield listeners
    finally:
        listeners.close()
