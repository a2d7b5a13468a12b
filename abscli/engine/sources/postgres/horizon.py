"""Who may still commit rows with smaller keys than the greatest that can be seen.

A key that a default gives, such as the number of a sequence, is given while the transaction has the table locked for
writing: PostgreSQL takes that lock before it evaluates the row. So once every transaction that had the lock, after the
greatest key was looked at, has ended, no smaller key can come any more. A transaction has the lock before it has a
number of its own (xid), which it gets only after the key: so a row's xmin against the snapshot's says less, and would
wait for transactions that have nothing to do with the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from abscli.engine.postgres.database import Connection

_WRITERS = """
    select l.virtualtransaction, l.pid, (select t.transactionid::text from pg_locks t
        where t.locktype = 'transactionid' and t.mode = 'ExclusiveLock' and t.granted
        and t.virtualtransaction = l.virtualtransaction order by t.transactionid::text limit 1)
    from pg_locks l
    where l.locktype = 'relation' and l.mode = 'RowExclusiveLock' and l.granted
    and l.database = (select oid from pg_database where datname = current_database())
    and l.relation = any(%s::oid[])"""


class Writer(NamedTuple):
    """A transaction that has written to a table, or is about to. virtual: its name among those that run; process: of
    its session, None of a prepared one; number: its xid, None where it has none yet."""

    virtual: str
    process: int | None
    number: str | None


def writers(connection: Connection, tables: Sequence[int]) -> list[Writer]:
    """Those that have one of these tables locked for writing now. tables: a table and its partitions."""
    rows: Any = connection.execute(_WRITERS, (list(tables),)).fetchall()
    return list(dict.fromkeys(Writer(*row) for row in rows))


def remaining(before: Sequence[Writer], now: Sequence[Writer]) -> list[Writer]:
    """Those of `before` that have not ended.

    One that has been prepared since has another virtual name on older servers: its number tells it, or it counts as one
    of them.
    """
    virtuals, numbers = {writer.virtual for writer in before}, {writer.number for writer in before}
    return [
        writer for writer in now
        if writer.virtual in virtuals
        or (writer.process is None and (writer.number in numbers or None in numbers))
    ]  # fmt: skip


def as_text(writer: Writer) -> str:
    """What messages call it."""
    if writer.process is not None:
        return f"the transaction of process {writer.process}"
    return f"the prepared transaction {writer.number or writer.virtual}"
