"""A connection whose statements are watched: a reply that never comes is noticed while the connection stays open.

TCP keep-alives notice a server that is gone, not a proxy or a NAT device that keeps the connection open and forwards
nothing. So when the server has been silent for `SILENCE`, a second connection asks what became of the session: a slow
statement is waited for, and a connection that has lost its reply is closed. This module needs psycopg.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import psycopg

from abscli.engine import patience
from abscli.engine.postgres.sessions import Backend, Session

T = TypeVar("T")
SILENCE = 4.0
"""Seconds without a byte from the server, after which a second connection asks for the session."""
ON_ITS_WAY = 2.0
"""Seconds that a reply may take from a server that has sent it."""
LONGEST_PAUSE = 20.0
"""Seconds from one question to the next, at most; a statement that takes long is asked for less and less often."""
_KEEPALIVE = {
    "keepalives_idle": ("TCP_KEEPIDLE", 10),
    "keepalives_interval": ("TCP_KEEPINTVL", 5),
    "keepalives_count": ("TCP_KEEPCNT", 3),
    "tcp_user_timeout": ("TCP_USER_TIMEOUT", 30_000),
}
"""By libpq's setting: the socket option, and its value in seconds, a number, or milliseconds."""


class WatchedConnection(psycopg.Connection[Any]):
    """A connection that is closed when its reply is lost; the statement then raises OperationalError.

    backend: its session; None until that is known.
    look: asks on another connection for that session; None: silence alone closes the connection.
    tell: called with the reason when a statement takes long.
    seen: the newest answer to `look` about a statement that works; None if it has never taken long.
    silent: seconds of silence after which it was closed.
    """

    backend: Backend | None = None
    look: Callable[[Backend], Session | None] | None = None
    tell: Callable[[str], None] | None = None
    seen: Session | None = None
    silent: float = 0.0

    def wait(self, gen: Generator[Any, Any, T], *arguments: Any, **options: Any) -> T:
        """See `psycopg.Connection.wait`, by which every statement and COPY waits for its socket."""
        try:
            first = next(gen)
        except StopIteration as end:  # most rows of a COPY are there already
            value: T = end.value
            return value
        return super().wait(self._watched(gen, first), *arguments, **options)

    def _watched(self, steps: Generator[Any, Any, T], first: Any) -> Generator[Any, Any, T]:
        """Pass on the steps of a statement; psycopg sends a false value about ten times a second of silence."""
        try:
            state = first
            since = time.monotonic()
            due, lost = since + SILENCE, ""
            while True:
                ready = yield state
                if ready:
                    since = time.monotonic()
                    due, lost = since + SILENCE, ""
                elif time.monotonic() >= due:
                    if lost:
                        self.silent = time.monotonic() - since
                        self.close()
                        raise psycopg.OperationalError(lost)
                    lost, pause = self._ask(time.monotonic() - since)
                    due = time.monotonic() + pause
                state = steps.send(ready)
        except StopIteration as end:
            value: T = end.value
            return value

    def _ask(self, silent: float) -> tuple[str, float]:
        """Find out what became of a statement.

        silent: seconds without a byte. Returns why its reply is lost ("" if it is not), and the seconds after which the
        statement fails for that, or is asked for again.
        """
        unanswered = f"no reply to a statement for {silent:.0f} s"
        if self.tell is not None and self.seen is None:
            self.tell(unanswered)
        if self.look is None or self.backend is None:
            return unanswered, 0.0
        try:
            session = self.look(self.backend)
        except psycopg.OperationalError as error:
            # A server that refuses another connection is alive, and may still work on the statement.
            is_refused = error.sqlstate is not None or "FATAL:" in str(error)
            return ("", SILENCE) if is_refused and silent < patience.SECONDS else (unanswered, 0.0)
        if session is None or not session.is_working:
            return f"{unanswered}, although the server does not work on it any more", ON_ITS_WAY
        self.seen = session
        if self.tell is not None:
            self.tell(session.reason())
        return "", min(max(silent, SILENCE), LONGEST_PAUSE)


def keep_alive(connection: WatchedConnection) -> None:
    """Have the kernel notice that the server is gone. Settings of the user's URL, service file or libpq win."""
    given = connection.info.get_parameters()
    with socket.socket(fileno=os.dup(connection.fileno())) as sock, contextlib.suppress(OSError):
        if sock.family == socket.AF_UNIX or given.get("keepalives") == "0":
            return
        for setting, (name, value) in _KEEPALIVE.items():
            if setting not in given and (option := getattr(socket, name, None)) is not None:
                sock.setsockopt(socket.IPPROTO_TCP, option, value)
