"""The log of a file sink, `_spark_metadata` in its output: which files belong to the output, batch by batch.

An entry `N` has the output files of batch N, a line each; `N.compact` those of all batches up to N, in their order.
Lines are kept as they are. Spark: `CompactibleFileStreamLog`, `FileStreamSinkLog`.
"""

from __future__ import annotations

from dataclasses import dataclass

from formats.errors import NotFound
from formats.spark.checkpoint import UNREADABLE
from formats.spark.logs import log as logs
from formats.spark.logs.sources import SinkFile, parse_sink
from formats.storage import Storage

FOLDER = "_spark_metadata"
ADDED = "add"
WHICH_OUTPUT = "name the path that the query's file sink writes to"


@dataclass(frozen=True, slots=True)
class SinkLog:
    """What is there of the log.

    single: lines of the batches that have an entry of their own.
    compact: lines of all batches up to one, by its number.
    damaged: what is wrong with entries that cannot be read, by name.
    newest: the highest number, -1 if there is none.
    """

    single: dict[int, tuple[str, ...]]
    compact: dict[int, tuple[str, ...]]
    damaged: dict[str, str]
    newest: int


def read_sink(storage: Storage, folder: str = FOLDER) -> SinkLog:
    """The log of the sink whose output lies at a storage; NotFound if there is none. folder: where it lies in that."""
    names = {entry.name: entry.size for entry in storage.list(folder) if entry.size is not None}
    own, compactions = logs.entries(names)
    if not own and not compactions:
        raise NotFound(f"no file sink of Spark wrote there: it has no {FOLDER}", path=storage.root, hint=WHICH_OUTPUT)
    damaged: dict[str, str] = {}

    def read(entries: dict[int, str]) -> dict[int, tuple[str, ...]]:
        out = {}
        for number, name in entries.items():
            path = f"{folder}/{name}" if folder else name
            try:
                data = storage.read(path)
                parse_sink(data, path)
                out[number] = tuple(line for line in logs.lines(data, path, 1)[1] if line.strip())
            except UNREADABLE as error:
                damaged[name] = error.message
        return out

    return SinkLog(read(own), read(compactions), damaged, max([*own, *compactions]))


def output_files(lines: tuple[str, ...]) -> list[SinkFile]:
    """The output files that lines come to: what was deleted again is none."""
    files = parse_sink(encoded(lines), FOLDER)
    gone = {file.path for file in files if file.action != ADDED}
    return [file for file in files if file.path not in gone]


def encoded(lines: tuple[str, ...]) -> bytes:
    """The bytes of an entry."""
    return "\n".join(["v1", *lines]).encode()
