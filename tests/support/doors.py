"""A door that is served on a thread of its own, and who knocks."""

from __future__ import annotations

import selectors
import socket
import threading

import msgspec

from abscli.engine.channels.door import Door, greeting, new_token
from abscli.engine.channels.line import PLAIN, Line, Lines
from abscli.engine.channels.messages import Greeting, Hello

HELLO = Hello(0, "127.0.0.1", 1, 1, 0, "h1", "0")


class House:
    """Who came through its door, with their lines, and what its thread died of."""

    def __init__(self, lines: Lines = PLAIN) -> None:
        self.token = new_token()
        self.admitted: list[Greeting] = []
        self.lines: list[Line] = []
        self.error: BaseException | None = None
        self._selector = selectors.DefaultSelector()
        self.door = Door("127.0.0.1", self.token, self._selector, self._admit, backlog=2048, lines=lines)
        self.door.open()
        self._stop = False
        self._thread = threading.Thread(target=self._serve)

    def _admit(self, hello: Greeting, line: Line) -> bool:
        if not isinstance(hello, Hello):
            return False
        self.admitted.append(hello)
        self.lines.append(line)
        return True

    def _serve(self) -> None:
        try:
            while not self._stop:
                for key, mask in self._selector.select(0.02):
                    key.data(mask)
                self.door.keep_time()
        except BaseException as error:
            self.error = error

    def heard_of_one_stranger(self) -> int | None:
        """Bytes of its token that the one stranger who is here has shown; None where nobody is."""
        strangers = list(self.door._strangers)
        return strangers[0]._filled if strangers else None

    def knock(self) -> socket.socket:
        return socket.create_connection(self.door.address, timeout=60)

    def greeting_of(self, worker: int) -> bytes:
        """The right words of a worker of this number."""
        return greeting(self.token, msgspec.structs.replace(HELLO, worker=worker))

    def is_in(self, worker: int) -> bool:
        return any(isinstance(hello, Hello) and hello.worker == worker for hello in self.admitted)

    def __enter__(self) -> House:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop = True
        self._thread.join(60)
        self.door.close()
        for line in self.lines:
            line.sock.close()
        self._selector.close()
        assert self.error is None


def closes(sock: socket.socket) -> bool:
    """Wait a minute at most for the other end to close, whatever it sends before; TimeoutError."""
    sock.settimeout(60)
    try:
        while sock.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True


def turned_away(sock: socket.socket) -> bool:
    """Wait for the other end to close; False if it says something before."""
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True
