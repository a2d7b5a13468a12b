"""A table that an operator writes or reads, and the way to it: passwords come from the environment or a service file,
never from a job, and go into no message."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from abscli.engine.errors import EngineStopped, UsageError
from abscli.engine.patience import until_answered
from formats.errors import Unreachable
from formats.job.model import Operator
from formats.packages import install_command
from formats.redaction import redact_error

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

    Connection = psycopg.Connection[tuple[object, ...]]

T = TypeVar("T")
_MEANWHILE = {"sink": "staged rows are kept until then"}


@dataclass(frozen=True, slots=True)
class Table:
    """An operator's table. url_env: the variable with the URL of its database; service: of libpq's service file; with
    neither, libpq's own variables say where it is. schema: None for where the database looks first. role: what the
    operator is."""

    operator: str
    name: str
    schema: str | None
    url_env: str | None
    service: str | None
    role: str = "sink"

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

    def connect(self) -> Connection:
        """A connection of its own, each statement of which is a transaction unless one is begun.

        UsageError where it is not said where the database is; psycopg's OperationalError where it cannot be reached.
        """
        try:
            import psycopg
        except ImportError:
            raise UsageError(
                f"{self.owner} uses a PostgreSQL table, but the package psycopg is not installed",
                hint=install_command("psycopg"),
            ) from None
        url = ""
        if self.url_env is not None:
            url = os.environ.get(self.url_env, "")
            if not url:
                raise UsageError(
                    f"{self.owner}: the environment variable {self.url_env} is not set",
                    hint=f"set {self.url_env} to the URL of the database, for the driver and every worker",
                )
        more: dict[str, Any] = {} if self.service is None else {"service": self.service}
        try:
            if not _is_unambiguous(url):
                raise UsageError(
                    f"{self.owner}: {self.url_env} is not a valid URL: it has no valid password, host and port after "
                    "the user name",
                    hint="percent-encode the password: write @ as %40, / as %2F and : as %3A",
                )
            return psycopg.connect(url, autocommit=True, connect_timeout=10, application_name="abs", **more)
        except psycopg.ProgrammingError:
            # What it says of a URL that cannot be read has pieces of that, of which one may be a password.
            where = f"the value of {self.url_env}" if self.url_env else "the value of libpq's variables"
            raise UsageError(
                f"{self.owner}: {where} is not a database URL", hint="use postgresql://user@host/database"
            ) from None

    def ask(self, question: Callable[[Connection], T], *, seconds: float | None = None) -> T:
        """What the database answers on a connection of its own, as of `until_answered`."""
        return self.until_answered(lambda: self._ask(question), seconds=seconds)

    def until_answered(self, ask: Callable[[], T], *, seconds: float | None = None) -> T:
        """As `patience.until_answered`; EngineStopped where that takes too long."""

        def given_up(error: Unreachable) -> EngineStopped:
            left = _MEANWHILE.get(self.role, "then run the job again with --resume")
            return EngineStopped(
                f"{self.owner}: the database of {self.title} does not answer: {error.message}",
                hint=f"start the database again; {left}",
            )

        return until_answered(ask, given_up, seconds=seconds)

    def _ask(self, question: Callable[[Connection], T]) -> T:
        def ask(connection: Connection) -> T:
            with connection:
                return question(connection)

        return self.answer(self.reach(), ask)

    def answer(self, connection: Connection, question: Callable[[Connection], T]) -> T:
        """What the database answers on a connection; Unreachable where it has gone away."""
        import psycopg

        try:
            return question(connection)
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            if connection.closed or isinstance(error, _going_away()):
                raise Unreachable(first_line(error), path=self.title) from None
            raise

    def reach(self) -> Connection:
        """As `connect`; Unreachable where the database does not answer."""
        try:
            return self.connect()
        except Exception as error:
            import psycopg

            if isinstance(error, psycopg.OperationalError):
                raise Unreachable(first_line(error), path=self.title) from None
            raise


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


def _going_away() -> tuple[type[Exception], ...]:
    """What a server answers that is about to end, or begins."""
    from psycopg import errors

    return errors.AdminShutdown, errors.CrashShutdown, errors.CannotConnectNow, errors.TooManyConnections


def first_line(error: Exception) -> str:
    """Of what the database says."""
    return redact_error(error)
