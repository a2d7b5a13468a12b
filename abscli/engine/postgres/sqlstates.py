"""One table of SQLSTATE classes for every PostgreSQL connection: which errors may pass by themselves.

Such an error is retried for `patience.SECONDS`, then the job stops (exit code 6). All other errors concern the rows or
the schema, such as classes 22, 23 and 42: the job fails (exit code 7).
"""

from __future__ import annotations

from typing import NamedTuple


class Trouble(NamedTuple):
    """An error that may pass.

    problem: the verb phrase of a message whose subject is the database.
    hint: what the user can do.
    """

    problem: str
    hint: str


UNANSWERED = Trouble("does not answer", "check that the server runs and that the network reaches it")
"""The connection was lost, or none can be opened."""
_REFUSED = Trouble("refuses connections", "fix the reported problem of the server")
LOCKED = "55P03"
_TABLE = {
    "08": UNANSWERED,
    "25006": Trouble(
        "is read-only",
        "connect to the primary; or set default_transaction_read_only to off for the database and the user",
    ),
    "40": Trouble("rolled the transaction back", "end the transactions that conflict with the job"),
    "53": Trouble("lacks a resource", "free the reported resource on the database server"),
    "53100": Trouble("has no disk space left", "free disk space on the database server"),
    "53300": Trouble("has no free connection", "raise max_connections, or end other sessions"),
    LOCKED: Trouble("waits for a lock", "end the transaction that holds the lock"),
    "57": Trouble("ended the session", "check whether the server shuts down, starts, or recovers"),
    "57014": Trouble(
        "cancelled the statement",
        "raise statement_timeout for the user of the connection, or find out who calls pg_cancel_backend",
    ),
}
"""By class (two characters) or by code."""


def trouble_of(sqlstate: str | None) -> Trouble | None:
    """Return what an error is that may pass; None for an error that concerns the rows or the schema.

    sqlstate: None of an error without a code, which is none that the server has reported.
    """
    return None if sqlstate is None else _TABLE.get(sqlstate) or _TABLE.get(sqlstate[:2])


def trouble_of_connecting(message: str) -> Trouble:
    """Return why no connection can be opened. libpq reports no SQLSTATE then, only a text."""
    if "FATAL:" not in message:
        return UNANSWERED
    return _TABLE["53300"] if "too many c" in message or "connection slots" in message else _REFUSED
