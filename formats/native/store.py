"""A native store through the read-only view."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec

from formats.errors import Damaged, FormatError, NotFound, UnsupportedVersion
from formats.ids import AnyChannelId, TaskId
from formats.job.kafka import Topic, is_kafka, partition_of
from formats.job.model import key_group_range
from formats.kafka import Place
from formats.native import layout
from formats.native.counters import Channels, by_operator
from formats.native.fact_files import FactFiles
from formats.native.facts import FenceFacts, ManifestFacts, PartFacts
from formats.native.facts import files_of as files_of
from formats.storage import Storage, walk
from formats.storage.ranges import range_of, read, size_within, whole_file
from formats.view import (
    CheckpointStore,
    EpochDetail,
    EpochFacts,
    OperatorFacts,
    RowPlaces,
    StateFacts,
    Status,
    TaskFacts,
    total,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from formats.native.state.live_rows import TaskRows
    from formats.query.predicate import Predicate

PRESENCE_LIMIT = 50_000
"""Parts whose files are looked for when epochs are shown, the newest first; of the others presence is unknown."""


def is_native(storage: Storage) -> bool:
    """Whether abs wrote what lies there: it has the store's own fact file, or has lost it and has epochs."""
    if storage.size(layout.STORE) is not None:
        return True
    return any(layout.epoch_of(f"{layout.EPOCHS}/{entry.name}/") is not None for entry in storage.list(layout.EPOCHS))


class NativeStore(FactFiles, CheckpointStore):
    """A store that `abs run` wrote, as `formats.view.CheckpointStore`."""

    format = "abs"
    _sizes: dict[str, int | None] | None = None

    @property
    def path(self) -> str:
        return self.storage.root

    @property
    def job(self) -> str:
        return self.facts.job

    def epochs(self) -> list[EpochFacts]:
        numbers = self.epoch_numbers()
        running = self.running_attempt()
        looked, sizes = 0, dict[str, int | None]()
        rows = []
        for number in reversed(numbers):
            row = self._epoch_facts(number, running, sizes, PRESENCE_LIMIT - looked)
            looked += (row.expected or 0) if row.present is not None else 0
            rows.append(row)
        return rows[::-1]

    def _epoch_facts(
        self, epoch: int, running: int | None, sizes: dict[str, int | None], budget: int
    ) -> EpochFacts:
        """sizes: of files that have been looked for; budget: tasks whose files may be looked for."""
        try:
            if self.has_manifest(epoch):
                return self._complete_facts(epoch, sizes, budget)
            return self._open_facts(epoch, running)
        except UnsupportedVersion:
            raise
        except FormatError as error:
            return EpochFacts(epoch, Status.DAMAGED, None, None, None, None, (), None, None, None, str(error))

    def _complete_facts(self, epoch: int, sizes: dict[str, int | None], budget: int) -> EpochFacts:
        m = self.manifest(epoch)
        look = m.tasks <= budget
        reason = next(self._absent(epoch, m, sizes), None) if look else None
        return EpochFacts(
            epoch=epoch,
            status=Status.DAMAGED if reason else Status.COMPLETE,
            parent=m.parent,
            attempt=m.attempt,
            expected=m.tasks,
            acked=m.tasks,
            missing=(),
            bytes=m.bytes,
            triggered=m.triggered,
            duration=m.duration,
            reason=reason,
            policy=m.policy,
            state_bytes=m.state_bytes,
            state_rows=m.state_rows,
            log_records=m.log_records,
            present=reason is None if look else None,
        )

    def _absent(self, epoch: int, manifest: ManifestFacts, sizes: dict[str, int | None]) -> Iterator[str]:
        for part in self.parts(epoch):
            for file in files_of(part):
                size = self._size(file.path, sizes)
                if size is None:
                    yield f"{part.task_name}: {file.path} is missing"
                elif size != file.bytes:
                    yield f"{part.task_name}: {file.path} has {size} bytes, the manifest says {file.bytes}"
        if not self._has(layout.topology(manifest.topology_sha256)):
            yield f"{layout.topology(manifest.topology_sha256)} is missing"

    def _size(self, path: str, sizes: dict[str, int | None]) -> int | None:
        """Of a file or a range. sizes: of files that have been asked for."""
        file, named = whole_file(path), range_of(path)
        whole = sizes[file] if file in sizes else sizes.setdefault(file, self.storage.size(file))
        return whole if named is None or whole is None else size_within(named, whole)

    def _open_facts(self, epoch: int, running: int | None) -> EpochFacts:
        trigger, given_up = self.trigger(epoch), self.aborted(epoch)
        if trigger is None:
            raise self.no_epoch(epoch)
        tasks = self.tasks(epoch)
        home = trigger.attempt_id
        missing = tuple(task for task in tasks if not self.has_acked(epoch, task, home))
        fence = self.fence(epoch) if self.outcome_kind(epoch) is FenceFacts else None
        if given_up is not None:
            status = Status.ABORTED
        elif fence is not None:
            status = Status.INCOMPLETE
        else:
            status = Status.IN_PROGRESS if running == trigger.attempt else Status.INCOMPLETE
        return EpochFacts(
            epoch=epoch,
            status=status,
            parent=trigger.parent,
            attempt=trigger.attempt,
            expected=len(tasks),
            acked=len(tasks) - len(missing),
            missing=missing,
            bytes=sum(self._bytes_on_disk(layout.part_dir(epoch, str(task), home)) for task in tasks)
            + sum(entry.size or 0 for entry in walk(self.storage, layout.pack_dir(epoch, home))),
            triggered=trigger.triggered,
            duration=None,
            reason=given_up.reason if given_up else None,
            policy=trigger.policy,
        )

    def _bytes_on_disk(self, folder: str) -> int:
        return sum(entry.size or 0 for entry in self.storage.list(folder))

    def looks_once(self) -> None:
        """Look for each file once from now on, for one pass over all epochs: they share files."""
        self._sizes = {}

    def detail(self, epoch: int) -> EpochDetail:
        if not (self.has_manifest(epoch) or self.has_trigger(epoch)):
            raise self.no_epoch(epoch)
        sizes = {} if self._sizes is None else self._sizes
        facts = self._epoch_facts(epoch, self.running_attempt(), sizes, PRESENCE_LIMIT)
        topology = self.topology(epoch)
        parts = by_operator(topology, self.parts(epoch))
        head = self.manifest(epoch) if self.has_manifest(epoch) else self.trigger(epoch)
        own = layout.epoch_dir(epoch) + "/"
        return EpochDetail(
            facts=facts,
            operators=tuple(_operator(op.id, parts[op.id], own) for op in topology.operators),
            channels=Channels(topology, parts),
            policy=head.policy if head else None,
        )

    def raw(self, epoch: int, counted: str | None = None) -> dict[str, Any] | None:
        if not self.has_manifest(epoch):
            return None
        manifest = self.manifest(epoch)
        try:
            maker = next((life for life in self.attempts() if life.attempt == manifest.attempt), None)
        except FormatError:  # which `validate` names; the epoch itself can be shown
            maker = None
        return {
            "generation": manifest.generation,
            "moved": manifest.moved,
            "removed": list(manifest.removed),
            "code": maker.code if maker else None,
        }

    def states(self, epoch: int) -> list[StateFacts]:
        from formats.native.state.live_rows import StateFile

        parts = self.parts(epoch)
        states = []
        for op in self.topology(epoch).operators:
            mine = [part for part in parts if part.operator == op.id and part.state]
            if mine:
                key = StateFile(self.storage, mine[0].state[0]).key
                files = {file.path: file.bytes or 0 for part in mine for file in part.state}
                rows = total([part.rows for part in mine])
                states.append(StateFacts(op.id, None, "keyed", key, rows, sum(files.values())))
        return states

    def kafka(self, epoch: int) -> list[Place]:
        sources = {op.id: Topic.of(op).name for op in self.topology(epoch).operators if is_kafka(op)}
        try:
            return [
                Place(part.operator, sources[part.operator], partition_of(at.split), at.offset, at.until)
                for part in self.parts(epoch)
                if part.operator in sources
                for at in part.positions or ()
            ]
        except ValueError as error:
            raise Damaged(f"a position of epoch {epoch} is in no partition: {error}", path=self.path) from None

    def row_places(self, epoch: int, operator: str) -> RowPlaces | None:
        from formats.native.state.tables import KEY_GROUP

        owner = self.topology(epoch).operator(operator)

        def of(batch: pa.RecordBatch) -> tuple[Any, Any]:
            groups = batch.column(KEY_GROUP).to_numpy()
            return groups.astype("int64") * owner.parallelism // owner.max_parallelism, groups

        return RowPlaces(frozenset({KEY_GROUP}), owner.parallelism, owner.max_parallelism, of)

    def state(self, epoch: int, operator: str, name: str | None = None) -> Iterator[pa.RecordBatch]:
        return self.select(epoch, operator, name)

    def select(
        self,
        epoch: int,
        operator: str,
        name: str | None = None,
        *,
        columns: Sequence[str] | None = None,
        where: Predicate | None = None,
    ) -> Iterator[pa.RecordBatch]:
        from formats.native.state.live_rows import live_rows

        tasks = (task for _, task in self.task_rows(epoch, operator, name))
        width = self.topology(epoch).operator(operator).max_parallelism
        for table in live_rows(tasks, width, columns, where):
            yield from table.to_batches()

    def state_schema(self, epoch: int, operator: str, name: str | None = None) -> pa.Schema:
        _, rows = next(self.task_rows(epoch, operator, name))
        return rows.schema

    def task_rows(self, epoch: int, operator: str, name: str | None = None) -> Iterator[tuple[PartFacts, TaskRows]]:
        """The tasks of an operator that have state, by key group; NotFound if there is no such state."""
        from formats.native.state.live_rows import TaskRows

        if name is not None:
            raise NotFound(f"{operator} has no state {name!r}: native state has no names", path=self.path)
        operators = {op.id: op for op in self.topology(epoch).operators}
        parts = [part for part in self.parts(epoch) if part.operator == operator and part.state]
        if operator not in operators or not parts:
            having = dict.fromkeys(part.operator for part in self.parts(epoch) if part.state)
            available = f"state of the operators {', '.join(having)}" if having else "no state of any operator"
            raise NotFound(f"epoch {epoch} has no state of {operator!r}", path=self.path, hint=f"it has {available}")
        op = operators[operator]
        width = op.parallelism
        own = {TaskId(op.id, i): key_group_range(i, width, op.max_parallelism) for i in range(width)}
        for part in parts:
            if part.task not in own:
                raise Damaged(f"epoch {epoch} has a part of {part.task}, a task that the job graph does not have",
                              path=self.path)  # fmt: skip
            yield part, TaskRows(self.storage, part.state, own[part.task])

    def log(self, epoch: int, channel: AnyChannelId) -> Iterator[pa.RecordBatch]:
        from formats.native.state.tables import decode_log

        for part in self.parts(epoch):
            for log in part.logs:
                if log.channel == channel and log.file:
                    yield from decode_log(read(self.storage, log.file.path), log.file.path)

    def log_digests(self, epoch: int) -> dict[AnyChannelId, str | None]:
        return {log.channel: log.file.sha256 for part in self.parts(epoch) for log in part.logs if log.file}

    def overview(self) -> dict[str, Any] | None:
        """`recoveries`: what restarted while its attempt ran; `tags`: names of epochs; None if there is neither."""
        recoveries = []
        for entry in self.storage.list(layout.RECOVERIES):
            with contextlib.suppress(FormatError):  # `validate` lists the damaged files
                facts = msgspec.to_builtins(self.recovery(f"{layout.RECOVERIES}/{entry.name}"))
                recoveries.append({name: facts[name] for name in facts if name not in ("schema", "version")})
        tags = [tag._asdict() for path in self.tag_paths() if (tag := layout.tag_of(path)) is not None]
        facts = {"recoveries": recoveries, "tags": tags}
        return {name: rows for name, rows in facts.items() if rows} or None


def _operator(id: str, parts: Sequence[PartFacts | None], own: str) -> OperatorFacts:
    """own: what the paths of the epoch's own files begin with."""
    present = [part for part in parts if part is not None]
    all_present = len(present) == len(parts)
    # Tasks may share a file, each with key groups of its own.
    files = {file.path: file for part in present for file in part.state}.values()
    shown = [file for part in present for file in part.sink]
    return OperatorFacts(
        id=id,
        name=None,
        parallelism=len(parts),
        bytes=sum([file.bytes or 0 for file in files]) if all_present else None,
        rows=total([part.rows for part in present]) if all_present else None,
        tasks=tuple(_tasks(present)),
        new_bytes=sum([file.bytes or 0 for file in files if file.path.startswith(own)]) if all_present else None,
        published_rows=sum([file.rows for file in shown]) if shown else None,
        published_bytes=sum([file.bytes for file in shown]) if shown else None,
    )


_COLUMNS = ("positions", "alignment", "sync", "async_", "finished", "watermark", "skipped")


def _tasks(parts: Sequence[PartFacts]) -> Iterator[TaskFacts]:
    """A column at a time, since there may be a hundred thousand."""
    return map(
        TaskFacts,
        [part.task for part in parts],
        [tuple(files_of(part)) if part.logs or part.sink else part.state for part in parts],
        [sum([log.records for log in part.logs]) if part.logs else 0 for part in parts],
        *(map(attrgetter(name), parts) for name in _COLUMNS),
    )
