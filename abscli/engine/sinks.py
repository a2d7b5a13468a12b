"""The `jsonl` sink: a part file a task and epoch, staged until the epoch is complete."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Callable
from concurrent.futures import Future
from typing import IO, NamedTuple

import msgspec
import pyarrow as pa

from abscli.engine.errors import UsageError
from formats.errors import Damaged
from formats.native.facts import PartFacts, SinkFile
from formats.topology import Kind, Operator, Topology

STAGED = ".staged"
SUPERSEDED = "superseded"
OWNER = ".abs-store"
PART = re.compile(r"part-(\d{5})-(\d{10})\.jsonl")


def part_name(index: int, epoch: int) -> str:
    """`part-<task, 5 digits>-<epoch, 10 digits>.jsonl`."""
    return f"part-{index:05d}-{epoch:010d}.jsonl"


class Pending(NamedTuple):
    """A part that no complete epoch covers yet. staged: set when it is durable, or could not be made so."""

    epoch: int
    part: SinkFile
    staged: Future[None]


class JsonLinesSink:
    """One sink task. Rows go to a temporary file; `cut` names it after the epoch, `commit` makes it visible.

    What an aborted epoch staged stays pending: the next complete epoch covers it, and waits for it to be durable.
    """

    def __init__(self, operator: Operator, index: int, directory: str) -> None:
        assert operator.connector is not None
        self.path: str = operator.connector["path"]
        self._folder = os.path.join(directory, self.path)
        self._index = index
        self._open: IO[bytes] | None = None
        self._digest = hashlib.sha256()
        self._rows = 0
        self._bytes = 0
        self._pending: list[Pending] = []
        self._encoder = msgspec.json.Encoder()
        os.makedirs(os.path.join(self._folder, STAGED), exist_ok=True)

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows as JSON lines, columns in order, nulls kept."""
        if not batch.num_rows:
            return
        data = self._encoder.encode_lines(batch.to_pylist())
        if self._open is None:
            name = f".open-{self._index:05d}-{secrets.token_hex(4)}"
            self._open = open(os.path.join(self._folder, STAGED, name), "wb")  # noqa: SIM115 - `finish` closes it
        self._open.write(data)
        self._digest.update(data)
        self._rows += batch.num_rows
        self._bytes += len(data)

    def cut(self, epoch: int) -> tuple[tuple[SinkFile, ...], Callable[[], None]]:
        """End the part of `epoch`: all parts that its completion makes visible, and what makes them durable.

        To be called in the order of the epochs: what makes a later one durable waits for the earlier, and fails if one
        of them has failed.
        """
        file, self._open = self._open, None
        if file is not None:
            part = SinkFile(self.path, part_name(self._index, epoch), self._bytes, self._rows, self._digest.hexdigest())
            self._pending.append(Pending(epoch, part, Future()))
            self._digest, self._rows, self._bytes = hashlib.sha256(), 0, 0
        pending = tuple(self._pending)

        def stage() -> None:
            if file is not None:
                self._stage(file, pending[-1])
            for one in pending:
                one.staged.result()

        return tuple(one.part for one in pending), stage

    def _stage(self, file: IO[bytes], pending: Pending) -> None:
        try:
            with file:
                file.flush()
                os.fsync(file.fileno())
            os.replace(file.name, os.path.join(self._folder, STAGED, pending.part.name))
            _sync(os.path.join(self._folder, STAGED))
        except BaseException as error:
            pending.staged.set_exception(error)
        else:
            pending.staged.set_result(None)

    def commit(self, epoch: int) -> None:
        """Epoch is complete: its parts become visible."""
        for one in self._pending:
            if one.epoch <= epoch:
                reveal(self._folder, one.part)
        self._pending = [one for one in self._pending if one.epoch > epoch]

    def close(self) -> None:
        """Let go of the open file; its rows belong to no epoch."""
        if self._open is not None:
            self._open.close()
            self._open = None


def reveal(folder: str, file: SinkFile) -> None:
    """Rename a staged part to its visible name, if that has not been done; Damaged if it is neither here nor there."""
    visible = os.path.join(folder, file.name)
    try:
        os.replace(os.path.join(folder, STAGED, file.name), visible)
    except FileNotFoundError:
        if not os.path.exists(visible):
            raise Damaged(
                f"an output part of {file.rows} rows is gone",
                path=visible,
                hint="put it back; or, if a reader took it away, leave an empty file of that name in its place",
            ) from None
    else:
        _sync(folder)


def _sync(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def check_sinks(topology: Topology) -> None:
    """UsageError if a sink is of no known type, or two share a directory."""
    seen: dict[str, str] = {}
    for op in topology.operators:
        if op.kind is not Kind.SINK or op.connector is None:
            continue
        if op.connector["type"] != "jsonl":
            raise UsageError(f"operator {op.id}: no sink type {op.connector['type']!r}", hint="jsonl")
        path = os.path.normpath(op.connector["path"])
        if path in seen:
            raise UsageError(f"sinks {seen[path]} and {op.id} both write to {path!r}", hint="give each its own path")
        seen[path] = op.id


def claim(topology: Topology, directory: str, owner: str, *, take_over: bool) -> None:
    """Note in every sink which store writes it (owner: digest of its facts).

    UsageError if another store wrote the parts that are visible: two would move each other's output away. A restore
    into a new store takes the sinks over.
    """
    for op in topology.operators:
        if op.kind is not Kind.SINK or op.connector is None:
            continue
        folder = os.path.join(directory, op.connector["path"])
        note = os.path.join(folder, OWNER)
        with contextlib.suppress(FileNotFoundError), open(note) as file:
            if file.read().strip() != owner and visible_parts(folder) and not take_over:
                raise UsageError(
                    f"sink {op.id}: {folder} is written from another store since",
                    hint=f"go on with that store; or give the sink another path; or remove {note} to take it over",
                )
        os.makedirs(folder, exist_ok=True)
        with open(note + ".new", "w") as file:
            file.write(owner + "\n")
        os.replace(note + ".new", note)


def settle(topology: Topology, directory: str, leading: list[range], parts: tuple[PartFacts, ...]) -> None:
    """Make every sink show exactly what belongs to an epoch, before a job goes on from it.

    leading: the epoch numbers that lead to it (none: from the start); parts: its own, whose completion may still have
    to be revealed. Other staged parts are dropped; visible ones of other branches move to `superseded/`, and those of
    this line come back from there. Damaged if a part of the epoch is nowhere.
    """
    for op in topology.operators:
        if op.kind is not Kind.SINK or op.connector is None:
            continue
        folder = os.path.join(directory, op.connector["path"])
        aside = os.path.join(folder, SUPERSEDED)
        os.makedirs(folder, exist_ok=True)
        for name in visible_parts(aside):
            if _leads(name, leading) and not os.path.exists(os.path.join(folder, name)):
                os.replace(os.path.join(aside, name), os.path.join(folder, name))
        for part in parts:
            if part.task.rpartition("/")[0] == op.id:
                for file in part.sink:
                    reveal(folder, file)
        _drop_staged(os.path.join(folder, STAGED))
        for name in visible_parts(folder):
            if not _leads(name, leading):
                _set_aside(folder, aside, name)
        _sync(folder)


def _leads(name: str, leading: list[range]) -> bool:
    return any(int(name[11:21]) in span for span in leading)


def visible_parts(folder: str) -> list[str]:
    """Names of the parts that readers see."""
    with contextlib.suppress(FileNotFoundError):
        return sorted(name for name in os.listdir(folder) if PART.fullmatch(name))
    return []


def _drop_staged(folder: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))


def _set_aside(folder: str, aside: str, name: str) -> None:
    os.makedirs(aside, exist_ok=True)
    target, n = os.path.join(aside, name), 1
    while os.path.exists(target):
        target, n = os.path.join(aside, f"{name}.{n}"), n + 1
    os.replace(os.path.join(folder, name), target)


def refuse_strangers(topology: Topology, directory: str) -> None:
    """UsageError if a store without epochs would write beside parts that are already visible."""
    for op in topology.operators:
        if op.kind is Kind.SINK and op.connector is not None:
            folder = os.path.join(directory, op.connector["path"])
            if visible_parts(folder):
                raise UsageError(
                    f"sink {op.id}: {folder} already holds {visible_parts(folder)[0]}, which this store did not write",
                    hint="move the output away, or give the sink another path",
                )
