"""Rows that an epoch names and that may not have reached a target which the job file does not name any more: a sink
was given another target or another type, or was removed.

Only the epoch from which the job resumes can have any: rows of an older one were published before the next manifest.
The old target is not asked. Its description is in the store, and a store may come from anybody: whom a job contacts is
up to the job file. The store notes instead, when a run ends in order, that all rows have been published.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from abscli.engine.errors import UsageError
from abscli.engine.sinks.promises import Promises
from abscli.planner.lineage import is_on, stretches
from formats.native.facts import SinkFile
from formats.native.marks import written
from formats.native.sink import PartId
from formats.native.store import NativeStore


class Elsewhere(NamedTuple):
    """Rows of a sink that may not have been published. operator: its id in the epoch; place: of its target then."""

    operator: str
    place: str
    rows: int


def key_of(operator: str, id: PartId, file: SinkFile) -> object:
    """Return what tells a part from all others. operator: of its sink, in the epoch that names it."""
    return file.staged or file.prepared or (operator, id)


def waiting_elsewhere(
    store: NativeStore, promises: Promises, parent: int, covered: Collection[object]
) -> Iterator[Elsewhere]:
    """List the rows that the epoch `parent` names and that may not have been published.

    covered: keys of the parts that sinks of the job look for.
    """
    line = stretches(promises.lives, parent)
    for operator, parts in promises.parts.get(parent, {}).items():
        left = [file for id, file in parts.items() if key_of(operator, id, file) not in covered]
        published = written(store.storage, operator) if left else None
        if left and (published is None or published.number < parent or not is_on(line, published)):
            yield Elsewhere(operator, left[0].directory, sum(file.rows for file in left))


def refused(one: Elsewhere, parent: int) -> UsageError:
    """Return the error with which the job is refused."""
    return UsageError(
        f"sink {one.operator}: {one.rows} rows of epoch {parent} may be missing from {one.place}: the run that staged "
        "them did not end cleanly, and no sink in the job file writes there now",
        hint="run the job once with the original sink to publish the rows, then change the sink; or use "
        "--accept-missing-parts to resume without these rows",
    )
