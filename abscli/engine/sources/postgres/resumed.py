"""What a driver looks at before a job goes on: whether a source's table is still the one that was read, and whether it
has rows that will not be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from abscli.engine.errors import EngineStopped
from abscli.engine.sources.postgres.keys import Identity, position_key, read_kinds
from abscli.engine.sources.postgres.table import KeyedTable, Looked, check_same, has_more
from formats.job.following import follows
from formats.job.model import Operator
from formats.native.facts import PartFacts

if TYPE_CHECKING:
    from abscli.engine.postgres.database import Connection

SECONDS = 10.0
"""For which the database is asked: a worker waits longer."""


def leaves_rows(operator: Operator, part: PartFacts) -> bool:
    """Whether the table has more rows than a source that has ended has read. part: of the task that reads it.

    JobFailed where it is another table than was read; nothing where the database does not answer now.
    """
    keyed = KeyedTable.of(operator)
    position = next((at for at in part.positions or () if at.split == keyed.table.title), None)
    if position is None or not part.connector:
        return False
    key = position_key(position, len(keyed.key), part.task)
    kinds = read_kinds(part.connector, f"task {part.task}")

    def compare(connection: Connection, looked: Looked) -> bool:
        check_same(looked, connection, Identity.parse(position.fingerprint), key, kinds)
        return part.finished and not follows(operator) and has_more(looked, connection, key)

    def look(connection: Connection) -> bool:
        looked = keyed.look(connection)
        return keyed.asked(lambda: compare(connection, looked))

    try:
        return keyed.table.ask(look, seconds=SECONDS)
    except EngineStopped:
        return False
    except Exception as error:
        raise keyed.told(error) from error
