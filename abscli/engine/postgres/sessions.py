"""Sessions as a server reports them to another connection: whether one still works, what it waits for, and its end.

Nothing here reads the text of a statement, which can contain data.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Any]

END_SECONDS = 5.0
"""Seconds in which a session ends that was told to."""
_STARTED = "extract(epoch from backend_start)::text"
_OWN = f"select pid, {_STARTED} from pg_stat_activity where pid = pg_backend_pid()"
_SESSION = f"""
    select state, wait_event_type, wait_event from pg_stat_activity where pid = %s and {_STARTED} = %s"""
_UTC = "to_char({} at time zone 'utc', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')"
_WANTED = """
    select relation::regclass::text, relation, transactionid::text, pg_blocking_pids(pid)
    from pg_locks where pid = %s and not granted limit 1"""
# A session that waits itself comes last: to end it would not help.
_HOLDER = f"""
    select pid, application_name, state, {_UTC.format("xact_start")} from pg_stat_activity
    where pid = any(%s) order by wait_event_type is not distinct from 'Lock', pid limit 1"""
_PREPARED = f"""
    select gid, {_UTC.format("prepared")} from pg_prepared_xacts
    where transaction::text = %s or transaction::text in (
        select own.transactionid::text from pg_locks held join pg_locks own using (virtualtransaction)
        where held.relation = %s and held.granted and held.pid is null)
    order by prepared limit 1"""


class Backend(NamedTuple):
    """A session of the server. started: tells sessions apart that have one process id after the other."""

    pid: int
    started: str


class Lock(NamedTuple):
    """A lock that a session waits for, and a session that blocks it.

    table: None of a lock on rows.
    pid: of the holder; 0 of a prepared transaction.
    application, state, since: of the holder, as far as the user may see them; since: the start of its transaction.
    gid: of a prepared transaction; then `since` is when it was prepared.
    holders: how many sessions block it.
    """

    table: str | None
    holders: int
    pid: int
    application: str | None = None
    state: str | None = None
    since: str | None = None
    gid: str | None = None

    def text(self) -> str:
        """Return what is locked by whom, for a message."""
        return f"{f'table {self.table}' if self.table else 'a row'} is locked by {self._holder()}"

    def _holder(self) -> str:
        more = f" and {self.holders - 1} more" if self.holders > 1 else ""
        if self.pid == 0:
            name = f"the prepared transaction {self.gid}" if self.gid else "a prepared transaction"
            return name + (f" (prepared at {self.since})" if self.since else "") + more
        facts = [f"application {self.application}"] if self.application else []
        facts += [f"state {self.state}"] if self.state else []
        facts += [f"transaction open since {self.since}"] if self.since else []
        return f"the session with pid {self.pid}" + (f" ({', '.join(facts)})" if facts else "") + more

    def remedy(self) -> str:
        """Return what ends the lock, for a hint."""
        if self.gid is not None and self.gid.startswith("abs-"):
            return "drop the unique key of the table: two pending transactions cannot insert the same key"
        if self.pid == 0:
            which = f" with `rollback prepared '{self.gid}'` or `commit prepared '{self.gid}'`" if self.gid else ""
            return f"end the prepared transaction{which}"
        return f"commit or roll back that transaction, or run `select pg_terminate_backend({self.pid})`"


class Session(NamedTuple):
    """A session that exists. waits_for: its wait event, such as `Lock/relation`."""

    state: str | None
    waits_for: str | None
    lock: Lock | None

    @property
    def is_working(self) -> bool:
        """Tell whether it works on a statement, and does not wait for its client.

        A server with `track_activities = off` reports no state, but what a session waits for.
        """
        return not (self.state or "").startswith("idle") and not (self.waits_for or "").startswith("Client/")

    def reason(self) -> str:
        """Return what a statement that takes long waits for."""
        if self.lock is not None:
            return self.lock.text()
        event = f" (wait event {self.waits_for})" if self.waits_for else ""
        return f"the server still works on the statement{event}"


def own_backend(connection: Connection) -> Backend:
    """Return the session of a connection, also behind a pooler, which reports process ids of its own to the client."""
    row: Any = connection.execute(_OWN).fetchone()
    return Backend(*row)


def look(connection: Connection, backend: Backend) -> Session | None:
    """Return what the server reports of a session of the same user; None if it has ended."""
    row: Any = connection.execute(_SESSION, backend).fetchone()
    if row is None:
        return None
    state, kind, event = row
    return Session(state, f"{kind}/{event}" if kind else None, _lock(connection, backend) if kind == "Lock" else None)


def _lock(connection: Connection, backend: Backend) -> Lock | None:
    wanted: Any = connection.execute(_WANTED, (backend.pid,)).fetchone()
    if wanted is None or not wanted[3]:
        return None
    table, oid, transaction, pids = wanted
    holder: Any = connection.execute(_HOLDER, (pids,)).fetchone()
    if holder is not None:
        return Lock(table, len(pids), *holder)
    found: Any = connection.execute(_PREPARED, (transaction, oid)).fetchone()
    gid, since = found or (None, None)
    return Lock(table, len(pids), 0, since=since, gid=gid)


def end_session(connection: Connection, backend: Backend) -> bool:
    """End a session of the same user, with its locks and its transaction; False if it does not end in time.

    What it was asked to do last is then either done or will never be done.
    """
    deadline = time.monotonic() + END_SECONDS
    query = f"select pg_terminate_backend(pid) from pg_stat_activity where pid = %s and {_STARTED} = %s"
    while connection.execute(query, backend).fetchone() is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
