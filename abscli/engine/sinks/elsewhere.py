"""Rows that an epoch names and that wait where no sink of the job writes any more: a sink was given another place or
another type, or was removed, after a process had ended between a manifest and what shows its rows.

Only the epoch that is gone on from can have any: what an older one names was shown before the next manifest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from abscli.engine.errors import EngineError, UsageError
from abscli.engine.postgres.database import Table
from abscli.engine.sinks.delivered.deliveries import delivery_of, shown_by, undelivered
from abscli.engine.sinks.delivered.renamed import ids_of
from abscli.engine.sinks.delivered.targets import target_of
from abscli.engine.sinks.places import place_of
from abscli.engine.sinks.postgres.epochs import prepared
from abscli.engine.sinks.promises import Promises
from abscli.planner.lineage import stretches
from formats.errors import FormatError
from formats.job.model import Operator, as_sink
from formats.native.facts import SinkFile
from formats.native.sink import PartId, SinkFolder
from formats.native.sink_bucket import SinkBucket, is_bucket
from formats.native.store import NativeStore

SECONDS = 10.0
"""For which a server is waited for."""
Parts = Mapping[PartId, SinkFile]


class Elsewhere(NamedTuple):
    """Parts of a sink that wait. operator: its id in the epoch; place: of its target; unknown: why it is not known
    whether they wait, None where it is."""

    operator: str
    place: str
    parts: int
    rows: int
    unknown: str | None


def key_of(operator: str, id: PartId, file: SinkFile) -> object:
    """What tells a part from all others. operator: of its sink, in the epoch that names it."""
    return file.staged or file.prepared or (operator, id)


def waiting_elsewhere(
    store: NativeStore, promises: Promises, parent: int, covered: Collection[object], directory: str
) -> Iterator[Elsewhere]:
    """Those that the epoch `parent` names. covered: keys of the parts that sinks of the job look for. directory: of the
    job file."""
    for operator, parts in promises.parts.get(parent, {}).items():
        left = {id: file for id, file in parts.items() if key_of(operator, id, file) not in covered}
        if not left:
            continue
        sink = next((as_sink(op) for op in store.topology(parent).operators if op.id == operator), None)
        place = next(iter(left.values())).directory
        try:
            waiting, unknown = _waiting(store, promises, parent, sink, left, directory), None
        except (EngineError, FormatError, OSError) as error:
            waiting, unknown = left, str(error)
        if waiting:
            rows = sum(file.rows for file in waiting.values())
            yield Elsewhere(operator, place, len(waiting), rows, unknown)


def _waiting(
    store: NativeStore, promises: Promises, parent: int, sink: Operator | None, parts: Parts, directory: str
) -> Parts:
    """Those of the parts that wait. sink: as it was."""
    in_files = {id: file for id, file in parts.items() if file.staged is None and file.prepared is None}
    waiting = {id: file for id, file in in_files.items() if _is_staged(id, file, place_of(directory, file.directory))}
    if sink is None:
        return waiting
    in_transactions = {id: file for id, file in parts.items() if file.prepared is not None}
    if in_transactions:
        gids = Table.of(sink).ask(prepared, seconds=SECONDS)
        waiting |= {id: file for id, file in in_transactions.items() if file.prepared in gids}
    staged = {id: file for id, file in parts.items() if file.staged is not None}
    delivery = delivery_of(store.storage, parent, sink.id, staged)
    if delivery is not None:
        ids = ids_of(promises, sink.id, {})
        shown = shown_by(target_of(sink, store.job, directory, ids), store.storage, ids)
        due = {part.file.staged for one in undelivered([delivery], shown, stretches(promises.lives, parent))
               for part in one.parts}  # fmt: skip
        waiting |= {id: file for id, file in staged.items() if file.staged in due}
    return waiting


def _is_staged(id: PartId, file: SinkFile, place: str) -> bool:
    if not is_bucket(place):
        return id in SinkFolder(place).staged()
    return file.upload is not None and file.upload.id in SinkBucket(place).waiting().get(id, ())


def refused(one: Elsewhere, parent: int) -> UsageError:
    """Why the job may not go on without them."""
    what = f"{one.rows} rows of epoch {parent}"
    if one.unknown is None:
        message = f"{what} wait to be shown in {one.place}, where no sink of the job writes now"
    else:
        message = (
            f"it is not known whether {what} are shown in {one.place}, where no sink of the job writes now: "
            f"{one.unknown}"
        )
    return UsageError(
        f"sink {one.operator}: {message}",
        hint="go on once with the sink as it was, which shows them at once, and change it then; or go on without these "
        "rows with --accept-missing-parts",
    )
