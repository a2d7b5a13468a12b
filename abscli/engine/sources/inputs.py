"""What has become of the input of a job since the epoch that it goes on from."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from abscli.engine.errors import EngineStopped, JobFailed
from abscli.engine.operators.table_lookup import check_table, read_table
from abscli.engine.sources.files.finding import matching
from abscli.engine.sources.files.fingerprints import Fingerprint, is_same
from abscli.engine.sources.files.input_files import Status, path_of, statuses
from abscli.engine.sources.making import FILE_TYPES, ROW_FILES
from abscli.engine.sources.postgres.resumed import SECONDS, leaves_rows
from formats.job.following import follows
from formats.job.model import Kind, Operator, Topology
from formats.native.facts import PartFacts
from formats.view import Position

_PUT_BACK = "restore the old data; or read everything again, with --from-epoch 0 or another store"


@dataclass(frozen=True, slots=True)
class LaterInput:
    """Input of a source that came after it had looked: it is not read.

    files: that match its path, and were not there when the job first started.
    grown: files that are longer than what was read of them, and whose task has ended; or the table that is.
    """

    operator: str
    files: tuple[str, ...]
    grown: tuple[str, ...]


def later_input(topology: Topology, parts: Iterable[PartFacts], directory: str) -> Iterator[LaterInput]:
    """What will not be read, source by source; JobFailed for a file that is not what was read of it.

    parts: of the epoch. Files that are not there are left to whoever reads them: this machine may have none of them.
    """
    parts = tuple(parts)
    _check_tables(topology, parts, directory)
    for op in topology.operators:
        if op.kind is Kind.SOURCE and op.connector is not None and op.connector["type"] == "postgres":
            tables = [part for part in parts if part.operator == op.id and leaves_rows(op, part)]
            if tables:
                yield LaterInput(op.id, (), (op.connector["table"],))
        elif op.kind is Kind.SOURCE and op.connector is not None and op.connector["type"] in FILE_TYPES:
            mine = [part for part in parts if part.operator == op.id and part.positions is not None]
            splits = {position.split for part in mine for position in part.positions or ()}
            files = statuses(path_of(directory, split) for split in splits)
            for part in mine:
                for position in part.positions or ():
                    path = path_of(directory, position.split)
                    _check(op, position, path, files[path])
            waits = mine and not follows(op)
            later = tuple(split for split in matching(op, directory) if split not in splits) if waits else ()
            grown = tuple(
                position.split
                for part in mine if part.finished
                for position in part.positions or ()
                if _has_more(op, position, files[path_of(directory, position.split)])
            )  # fmt: skip
            if later or grown:
                yield LaterInput(op.id, later, grown)


def _check_tables(topology: Topology, parts: Iterable[PartFacts], directory: str) -> None:
    """JobFailed for a table beside the stream that differs from the table of the epoch."""
    for op in topology.operators:
        kept = next((part.connector for part in parts if part.operator == op.id), None)
        if not op.lookup or kept is None:
            continue
        if not op.lookup.path:
            with contextlib.suppress(EngineStopped):  # a database that is away now is asked by workers again
                check_table(op, read_table(op, directory, SECONDS), kept, directory)
        elif os.path.isfile(os.path.join(directory, op.lookup.path)):
            check_table(op, read_table(op, directory), kept, directory)


def _check(op: Operator, position: Position, path: str, status: Status | None) -> None:
    offset = position.offset or 0
    if not offset or status is None:
        return
    in_bytes = op.connector is not None and op.connector["type"] not in ROW_FILES
    fingerprint = Fingerprint.parse(position.fingerprint or "")
    if in_bytes and status.size < offset and not (fingerprint is not None and fingerprint.is_unpacked):
        message = f"source {op.id}: {path} has {status.size:,} bytes, and {offset:,} were read of it: it has shrunk"
        raise JobFailed(message, hint=_PUT_BACK)
    try:
        same = fingerprint is None or fingerprint.stands(status) or is_same(path, fingerprint, offset)
    except OSError as error:
        raise JobFailed(f"source {op.id}: cannot read {path}: {error.strerror or error}") from error
    if not same:
        extent = f"the first {offset:,} bytes" if in_bytes else f"the file of which {offset:,} rows were read"
        raise JobFailed(
            f"source {op.id}: {path} has changed: the checksum of {extent} differs from the checksum in the epoch"
            if in_bytes
            else f"source {op.id}: {path} has changed: its checksum differs from the checksum of {extent}",
            hint=_PUT_BACK,
        )


def _has_more(op: Operator, position: Position, status: Status | None) -> bool:
    in_bytes = op.connector is not None and op.connector["type"] not in ROW_FILES
    fingerprint = Fingerprint.parse(position.fingerprint or "")
    if fingerprint is not None and fingerprint.is_unpacked:
        return status is not None and fingerprint.size is not None and status.size > fingerprint.size
    return in_bytes and status is not None and status.size > (position.offset or 0)
