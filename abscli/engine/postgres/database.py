"""A table that an operator writes or reads, and the way to it: passwords come from the environment or a service file,
never from a job, and go into no message."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from abscli.engine.errors import EngineStopped, ServerUnavailable, UsageError
from abscli.engine.patience import Interrupted, until_answered
from abscli.engine.postgres import sessions
from abscli.engine.postgres.sqlstates import LOCKED, UNANSWERED, trouble_of, trouble_of_connecting
from abscli.engine.waits import note_reason
from formats.errors import Unreachable
from formats.job.model import Operator
from formats.packages import install_command
from formats.redaction import redact_error

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

    from abscli.engine.postgres.watched import WatchedConnection

    Connection = psycopg.Connection[tuple[object, ...]]

T = TypeVar("T")
CONNECT_SECONDS = 10
"""Seconds for opening a connection."""
LOOK_SECONDS = 5
"""The same for a connection that only asks what became of a statement."""


@dataclass(frozen=True, slots=True)
class Table:
    """An operator's table.

    url_env: the variable with the URL of its database; service: of libpq's service file; with neither, libpq's own
    variables apply.
    schema: None for the first schema of the search path.
    role: what the operator is.
    lost: sessions whose connection was lost, which may still hold locks, or carry out a statement.
    """

    operator: str
    name: str
    schema: str | None
    url_env: str | None
    service: str | None
    role: str = "sink"
    lost: list[sessions.Backend] = field(default_factory=list, compare=False, repr=False)

    @classmethod
    def of(cls, operator: Operator) -> Table:
        """That of a sink of type `postgres`."""
        options = operator.connector or {}
        return cls(operator.id, options["table"], options.get("schema"), options.get("url_env"), options.get("service"))

    @property
    def owner(self) -> str:
        """What messages call whose it is."""
        return f"{self.role} {self.operator}"

    @property
    def title(self) -> str:
        """What messages call it."""
        return f"{self.schema}.{self.name}" if self.schema else self.name

    @property
    def place(self) -> str:
        """What facts call it."""
        return f"postgres:{self.title}"

    def connect(self, tell: Callable[[str], None] | None = None) -> Connection:
        """Open a connection of its own, each statement of which is a transaction unless one is begun.

        tell: called with the reason if a statement takes long.
        Raises UsageError if the location of the database is not known, psycopg.OperationalError if it cannot be
        reached.
        """
        connection = self._open(CONNECT_SECONDS)
        connection.look, connection.tell = self._look, tell or note_reason
        return connection

    def _look(self, backend: sessions.Backend) -> sessions.Session | None:
        """Ask on a second connection for a session."""
        with self._open(LOOK_SECONDS) as connection:
            return sessions.look(connection, backend)

    def _open(self, seconds: int) -> WatchedConnection:
        try:
            import psycopg
        except ImportError:
            raise UsageError(
                f"{self.owner} uses a PostgreSQL table, but the package psycopg is not installed",
                hint=install_command("psycopg"),
            ) from None
        from abscli.engine.postgres.watched import WatchedConnection, keep_alive

        url = self._url()
        more: dict[str, Any] = {} if self.service is None else {"service": self.service}
        try:
            if not _is_unambiguous(url):
                raise UsageError(
                    f"{self.owner}: {self.url_env} is not a valid URL: it has no valid password, host and port after "
                    "the user name",
                    hint="percent-encode the password: write @ as %40, / as %2F and : as %3A",
                )
            connection = WatchedConnection.connect(
                url, autocommit=True, connect_timeout=seconds, application_name="abs", **more
            )
        except psycopg.ProgrammingError:
            # What it says of a URL that cannot be read has pieces of that, of which one may be a password.
            where = f"the value of {self.url_env}" if self.url_env else "the value of libpq's variables"
            raise UsageError(
                f"{self.owner}: {where} is not a database URL", hint="use postgresql://user@host/database"
            ) from None
        try:
            keep_alive(connection)
            connection.backend = sessions.own_backend(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _url(self) -> str:
        if self.url_env is None:
            return ""
        url = os.environ.get(self.url_env, "")
        if not url:
            raise UsageError(
                f"{self.owner}: the environment variable {self.url_env} is not set",
                hint=f"set {self.url_env} to the URL of the database, for the driver and every worker",
            )
        return url

    def ask(self, question: Callable[[Connection], T], *, seconds: float | None = None) -> T:
        """What the database answers on a connection of its own, as of `until_answered`."""
        return self.until_answered(lambda: self._ask(question), seconds=seconds)

    def until_answered(self, ask: Callable[[], T], *, seconds: float | None = None) -> T:
        """Return what the database answers; see `patience.until_answered`. Raises EngineStopped after its time."""

        def given_up(error: Unreachable) -> EngineStopped:
            kept = " (the staged rows are kept)" if self.role == "sink" else ""
            return ServerUnavailable(f"{self.owner}: {error.message}", hint=f"{error.hint}{kept}")

        return until_answered(ask, given_up, seconds=seconds)

    def _ask(self, question: Callable[[Connection], T]) -> T:
        def ask(connection: Connection) -> T:
            with connection:
                return question(connection)

        return self.answer(self.reach(), ask)

    def answer(self, connection: Connection, question: Callable[[Connection], T]) -> T:
        """Return what the database answers on a connection. Raises Unreachable for an error that may pass."""
        import psycopg

        try:
            return question(connection)
        except psycopg.Error as error:
            if (passing := self._passing(error, connection)) is None:
                raise
            raise passing from None

    def _passing(self, error: psycopg.Error, connection: Connection) -> Unreachable | None:
        """Return the error as one that may pass; None if it concerns the rows or the schema."""
        import psycopg

        trouble = trouble_of(error.sqlstate)
        if error.sqlstate is None and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            trouble = UNANSWERED
            if (backend := getattr(connection, "backend", None)) is not None:
                self.lost.append(backend)
        if trouble is None:
            return None
        reason, seen = first_line(error), getattr(connection, "seen", None)
        if error.sqlstate == LOCKED and seen is not None and seen.lock is not None:
            return Unreachable(f"{seen.lock.text()}: {reason}", hint=seen.lock.remedy())
        message = f"the database of {self.title} {trouble.problem}: {reason}"
        note_reason(message)
        if error.sqlstate == LOCKED:  # the wait for the lock is what takes long
            return Unreachable(message, hint=trouble.hint)
        return Interrupted(message, hint=trouble.hint, silent=getattr(connection, "silent", 0.0))

    def reach(self, tell: Callable[[str], None] | None = None) -> Connection:
        """Open a connection, and end the sessions whose connections were lost. Raises Unreachable; see `connect`.

        A statement whose reply was lost may still run, and hold locks, until its session has ended.
        """
        note_reason(f"connecting to the database of {self.title}")
        try:
            connection = self.connect(tell)
        except Exception as error:
            import psycopg

            if isinstance(error, psycopg.OperationalError):
                trouble = trouble_of(error.sqlstate) or trouble_of_connecting(str(error))
                message = f"the database of {self.title} {trouble.problem}: {first_line(error)}"
                raise Unreachable(message, hint=trouble.hint) from None
            raise
        try:
            for backend in tuple(self.lost):
                if not self.answer(connection, partial(sessions.end_session, backend=backend)):
                    raise Unreachable(
                        f"the database of {self.title} does not end the session with pid {backend.pid}, whose "
                        "connection was lost",
                        hint=f"run `select pg_terminate_backend({backend.pid})`",
                    )
                with contextlib.suppress(ValueError):  # another thread was first
                    self.lost.remove(backend)
        except BaseException:
            connection.close()
            raise
        return connection


def _is_unambiguous(url: str) -> bool:
    """Return whether libpq finds host and port of a database where its user wrote them.

    libpq ends a password at the first '@', and the user information at the first '/'. Of a password that holds one of
    these it takes the rest for a host, a port or a database, and repeats that in its messages. ProgrammingError for a
    text that is no URL.
    """
    from psycopg.conninfo import conninfo_to_dict

    settings = conninfo_to_dict(url)
    host, port = str(settings.get("host") or ""), str(settings.get("port") or "")
    begin = url.partition("://")[2].partition("?")[0]
    return "@" not in host and begin.count("@") < 2 and all(not one or one.isdecimal() for one in port.split(","))


def identifier(table: Table, name: str) -> sql.Composable:
    """A name beside the table, or its own, quoted."""
    from psycopg import sql

    return sql.Identifier(table.schema, name) if table.schema else sql.Identifier(name)


def first_line(error: Exception) -> str:
    """Of what the database says."""
    return redact_error(error)
