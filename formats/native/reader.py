"""A native store through the read-only view."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from formats.errors import Damaged, FormatError, NotFound, UnsafePath
from formats.native import layout, lock
from formats.native.facts import (
    AbortFacts,
    AttemptFacts,
    F,
    ManifestFacts,
    PartFacts,
    StoreFacts,
    TasksFacts,
    TriggerFacts,
    digest,
    unseal,
)
from formats.storage import LocalStorage, Storage, check_path
from formats.topology import Edge, Partition, Topology, channel_name, key_group_range, task_name
from formats.view import (
    ChannelFacts,
    EpochDetail,
    EpochFacts,
    FileFacts,
    OperatorFacts,
    StateFacts,
    Status,
    TaskFacts,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from formats.native.state import TaskRows
    from formats.predicate import Predicate

PRESENCE_LIMIT = 50_000
"""Parts beyond which the list of epochs no longer looks for every file (an epoch's own page still does)."""


MAX_FACTS = 256 << 20
"""Bytes beyond which a fact file is not read: none that abs writes comes near, so it is garbage (tasks files, whose
size the manifest tells, apart)."""


def is_native(storage: Storage) -> bool:
    """Whether abs wrote what lies there: it has the store's own fact file, or epochs and attempts without it."""
    if storage.size(layout.STORE) is not None:
        return True
    return bool(storage.list(layout.ATTEMPTS) and storage.list(layout.EPOCHS))


class NativeStore:
    """A store that `abs run` wrote. Raises NotFound if there is none at `storage`.

    facts: of the store, where the caller has had to do without its own (validation of a damaged store). held_by_us:
    set where the caller holds the lock itself, so that no job runs.
    """

    format = "abs"
    held_by_us = False

    def __init__(self, storage: Storage, *, facts: StoreFacts | None = None) -> None:
        self.storage = storage
        try:
            self.facts = facts or self._unseal(layout.STORE, StoreFacts)
        except NotFound:
            raise NotFound("no store here: it has no abs-store.json", path=storage.root) from None

    @property
    def path(self) -> str:
        return self.storage.root

    @property
    def job(self) -> str:
        return self.facts.job

    def _unseal(self, path: str, kind: type[F]) -> F:
        return unseal(self._read_facts(path), kind, f"{self.storage.root}/{path}")

    def _read_facts(self, path: str) -> bytes:
        if (size := self.storage.size(path) or 0) > MAX_FACTS:
            raise Damaged(f"has {size} bytes, a fact file has at most {MAX_FACTS}", path=f"{self.storage.root}/{path}")
        return self.storage.read(path)

    # -- facts as written ---------------------------------------------------------------------------------

    def epoch_numbers(self) -> list[int]:
        """Every epoch that has a manifest or a trigger, ascending."""
        numbers = (layout.epoch_of(f"{layout.EPOCHS}/{entry.name}/") for entry in self.storage.list(layout.EPOCHS))
        return [n for n in numbers if n is not None and (self.has_manifest(n) or self.has_trigger(n))]

    def highest_number(self) -> int:
        """The highest epoch number ever seen, 0 if none: new ones are above it."""
        numbers = [layout.epoch_of(f"{layout.EPOCHS}/{entry.name}/") or 0 for entry in self.storage.list(layout.EPOCHS)]
        fences = [attempt.first_epoch - 1 for attempt in self.attempts()]
        return max([0, *numbers, *fences])

    def _has(self, path: str) -> bool:
        try:
            return self.storage.size(path) is not None
        except UnsafePath:
            return True  # something is there; reading it says what is wrong

    def has_manifest(self, epoch: int) -> bool:
        """Whether the epoch is complete (its manifest may still be damaged)."""
        return self._has(layout.manifest(epoch))

    def has_trigger(self, epoch: int) -> bool:
        """Whether the epoch has begun and is not complete."""
        return self._has(layout.trigger(epoch))

    def manifest(self, epoch: int) -> ManifestFacts:
        """NotFound without one; Damaged if it is not what was written."""
        facts = self._unseal(layout.manifest(epoch), ManifestFacts)
        path = f"{self.storage.root}/{layout.manifest(epoch)}"
        if facts.epoch != epoch:
            raise Damaged(f"is the manifest of epoch {facts.epoch}, not of {epoch}", path=path)
        check_path(facts.tasks_file.path)
        return facts

    def trigger(self, epoch: int) -> TriggerFacts | None:
        """Of an epoch without a manifest; Damaged if it is not what was written."""
        path = layout.trigger(epoch)
        facts = self._unseal(path, TriggerFacts) if self._has(path) else None
        if facts is not None and facts.epoch != epoch:
            said = f"is the trigger of epoch {facts.epoch}, not of {epoch}"
            raise Damaged(said, path=f"{self.storage.root}/{path}")
        return facts

    def aborted(self, epoch: int) -> AbortFacts | None:
        """Why an epoch was given up."""
        path = layout.aborted(epoch)
        return self._unseal(path, AbortFacts) if self._has(path) else None

    @functools.lru_cache(maxsize=4)  # noqa: B019 - a store object lives as long as a command
    def parts(self, epoch: int) -> tuple[PartFacts, ...]:
        """The parts of an epoch: all of a complete one, those that acked of another. Every path is checked."""
        if self.has_manifest(epoch):
            file = self.manifest(epoch).tasks_file
            if (size := self.storage.size(file.path)) not in (None, file.bytes):
                raise Damaged(
                    f"has {size} bytes, the manifest says {file.bytes}", path=f"{self.storage.root}/{file.path}"
                )
            data = self.storage.read(file.path)
            if digest(data) != file.sha256:
                raise Damaged(
                    f"has SHA-256 {digest(data)[:12]}…, the manifest says {(file.sha256 or '')[:12]}…",
                    path=f"{self.storage.root}/{file.path}",
                )
            parts = unseal(data, TasksFacts, f"{self.storage.root}/{file.path}").parts
        else:
            parts = tuple(part for task in self._task_names(epoch) if (part := self.part(epoch, task)) is not None)
        for part in parts:
            for named in files_of(part):
                check_path(named.path)
        return parts

    def part(self, epoch: int, task: str) -> PartFacts | None:
        """One task's ack of an epoch that is not complete; None if it has not acked."""
        try:
            return self._unseal(layout.ack(epoch, task), PartFacts)
        except NotFound:
            return None

    def attempts(self) -> list[AttemptFacts]:
        """All lives of the job, ascending."""
        return [self.attempt(f"{layout.ATTEMPTS}/{entry.name}") for entry in self.storage.list(layout.ATTEMPTS)]

    def attempt(self, path: str) -> AttemptFacts:
        """One life of the job; Damaged if the file is not what was written, or is another's."""
        facts = self._unseal(path, AttemptFacts)
        if path != layout.attempt(facts.attempt):
            raise Damaged(f"is the file of attempt {facts.attempt}", path=f"{self.storage.root}/{path}")
        return facts

    def topology_sha256(self, epoch: int) -> str:
        """Digest of the job graph that the epoch was taken of."""
        if self.has_manifest(epoch):
            return self.manifest(epoch).topology_sha256
        trigger = self.trigger(epoch)
        if trigger is None:
            raise self.no_epoch(epoch)
        return trigger.topology_sha256

    def topology(self, epoch: int) -> Topology:
        """Raises NotFound if it is gone, Damaged if it does not have the digest of its name."""
        return self.topology_by_digest(self.topology_sha256(epoch))

    @functools.lru_cache(maxsize=4)  # noqa: B019
    def topology_by_digest(self, sha256: str) -> Topology:
        path = layout.topology(check_path(sha256))
        data = self._read_facts(path)
        where = f"{self.storage.root}/{path}"
        if digest(data) != sha256:
            raise Damaged(f"has SHA-256 {digest(data)[:12]}…, its name says {sha256[:12]}…", path=where)
        try:
            return msgspec.json.decode(data, type=Topology)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise Damaged(f"is no job graph: {error}", path=where) from None

    def no_epoch(self, epoch: int) -> NotFound:
        """The error for an epoch that is not there; says which are."""
        have = self.epoch_numbers()
        said = f"it has {have[0]} to {have[-1]}" if have else "it has none"
        return NotFound(f"no epoch {epoch}: {said}", path=self.storage.root)

    def latest(self) -> int | None:
        """The newest epoch with a manifest, not verified."""
        return next((n for n in reversed(self.epoch_numbers()) if self.has_manifest(n)), None)

    def running_attempt(self) -> int | None:
        """The attempt that runs now; None if the store is not in use, or that cannot be known."""
        if self.held_by_us or not isinstance(self.storage, LocalStorage) or not lock.held(self.storage):
            return None
        numbers = [entry.name.partition(".")[0] for entry in self.storage.list(layout.ATTEMPTS)]
        return max((int(n) for n in numbers if n.isdigit()), default=None)

    # -- the view -----------------------------------------------------------------------------------------

    def epochs(self) -> list[EpochFacts]:
        numbers = self.epoch_numbers()
        running = self.running_attempt()
        tasks = 0
        rows = []
        for number in reversed(numbers):
            row = self._epoch_facts(number, running, look_for_files=tasks < PRESENCE_LIMIT)
            tasks += row.expected or 0
            rows.append(row)
        return rows[::-1]

    def _epoch_facts(self, epoch: int, running: int | None, *, look_for_files: bool) -> EpochFacts:
        try:
            if self.has_manifest(epoch):
                return self._complete_facts(epoch, look_for_files)
            return self._open_facts(epoch, running)
        except FormatError as error:
            if type(error).__name__ == "UnsupportedVersion":
                raise
            return EpochFacts(epoch, Status.DAMAGED, None, None, None, None, (), None, None, None, str(error))

    def _complete_facts(self, epoch: int, look_for_files: bool) -> EpochFacts:
        m = self.manifest(epoch)
        reason = next(self._absent(epoch), None) if look_for_files else None
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
        )

    def _absent(self, epoch: int) -> Iterator[str]:
        for part in self.parts(epoch):
            for file in files_of(part):
                size = self.storage.size(file.path)
                if size is None:
                    yield f"{part.task}: {file.path} is missing"
                elif size != file.bytes:
                    yield f"{part.task}: {file.path} has {size} bytes, the manifest says {file.bytes}"
        sha256 = self.manifest(epoch).topology_sha256
        if not self._has(layout.topology(sha256)):
            yield f"{layout.topology(sha256)} is missing"

    def _open_facts(self, epoch: int, running: int | None) -> EpochFacts:
        trigger, given_up = self.trigger(epoch), self.aborted(epoch)
        if trigger is None:
            raise self.no_epoch(epoch)
        names = self._task_names(epoch)
        missing = tuple(task for task in names if not self._has(layout.ack(epoch, task)))
        if given_up is not None:
            status = Status.ABORTED
        else:
            status = Status.IN_PROGRESS if running == trigger.attempt else Status.INCOMPLETE
        return EpochFacts(
            epoch=epoch,
            status=status,
            parent=trigger.parent,
            attempt=trigger.attempt,
            expected=len(names),
            acked=len(names) - len(missing),
            missing=missing,
            bytes=sum(self._bytes_on_disk(epoch, task) for task in names),
            triggered=trigger.triggered,
            duration=None,
            reason=given_up.reason if given_up else None,
            policy=trigger.policy,
        )

    def _bytes_on_disk(self, epoch: int, task: str) -> int:
        return sum(entry.size or 0 for entry in self.storage.list(layout.part_dir(epoch, task)))

    def _task_names(self, epoch: int) -> list[str]:
        return [task_name(op.id, i) for op in self.topology(epoch).operators for i in range(op.parallelism)]

    def detail(self, epoch: int) -> EpochDetail:
        if epoch not in self.epoch_numbers():
            raise self.no_epoch(epoch)
        facts = self._epoch_facts(epoch, self.running_attempt(), look_for_files=True)
        topology = self.topology(epoch)
        by_task = {part.task: part for part in self.parts(epoch)}
        head = self.manifest(epoch) if self.has_manifest(epoch) else self.trigger(epoch)
        return EpochDetail(
            facts=facts,
            operators=tuple(
                _operator(op.id, op.parallelism, [by_task.get(task_name(op.id, i)) for i in range(op.parallelism)])
                for op in topology.operators
            ),
            channels=tuple(channel_facts(topology, by_task)),
            policy=head.policy if head else None,
        )

    def states(self, epoch: int) -> list[StateFacts]:
        from formats.native.state import StateFile

        parts = self.parts(epoch)
        found = []
        for op in self.topology(epoch).operators:
            mine = [part for part in parts if part.task.rpartition("/")[0] == op.id and part.state]
            if mine:
                key = StateFile(self.storage, mine[0].state[0]).key
                files = {file.path: file.bytes or 0 for part in mine for file in part.state}
                rows = sum(part.rows for part in mine)
                found.append(StateFacts(op.id, None, "keyed", key, rows, sum(files.values())))
        return found

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
        """As `state`, these columns of the rows that satisfy a condition; reads only what can hold them."""
        from formats.native.state import live_rows

        tasks = (task for _, task in self.task_rows(epoch, operator, name))
        width = self.topology(epoch).operator(operator).max_parallelism
        for table in live_rows(tasks, width, columns, where):
            yield from table.to_batches()

    def state_schema(self, epoch: int, operator: str, name: str | None = None) -> pa.Schema:
        """The columns of a state."""
        _, rows = next(self.task_rows(epoch, operator, name))
        return rows.schema

    def task_rows(self, epoch: int, operator: str, name: str | None = None) -> Iterator[tuple[PartFacts, TaskRows]]:
        """The tasks of an operator that have state, by key group; NotFound if there is no such state."""
        from formats.native.state import TaskRows

        if name is not None:
            raise NotFound(f"{operator} has no state {name!r}: native state has no names", path=self.path)
        known = {op.id: op for op in self.topology(epoch).operators}
        parts = [part for part in self.parts(epoch) if part.task.rpartition("/")[0] == operator and part.state]
        if operator not in known or not parts:
            having = dict.fromkeys(part.task.rpartition("/")[0] for part in self.parts(epoch) if part.state)
            said = f"state of the operators {', '.join(having)}" if having else "no state of any operator"
            raise NotFound(f"epoch {epoch} has no state of {operator!r}", path=self.path, hint=f"it has {said}")
        op = known[operator]
        width = op.parallelism
        own = {task_name(op.id, i): key_group_range(i, width, op.max_parallelism) for i in range(width)}
        for part in parts:
            if part.task not in own:
                raise Damaged(f"epoch {epoch} has a part of {part.task}, a task that the job graph does not have",
                              path=self.path)  # fmt: skip
            yield part, TaskRows(self.storage, part.state, own[part.task])

    def log(self, epoch: int, channel: str) -> Iterator[pa.RecordBatch]:
        from formats.native.tables import decode_log

        for part in self.parts(epoch):
            for log in part.logs:
                if log.channel == channel and log.file:
                    yield from decode_log(self.storage.read(log.file.path), log.file.path)

    def raw(self, epoch: int) -> dict[str, Any]:
        facts = self.manifest(epoch) if self.has_manifest(epoch) else self.trigger(epoch)
        result: dict[str, Any] = msgspec.to_builtins(facts)
        return result


def files_of(part: PartFacts) -> list[FileFacts]:
    """Every store file that a part refers to: state, oldest first, then logs."""
    return [*part.state, *(log.file for log in part.logs if log.file is not None)]


def neighbours(edge: Edge, index: int, parallelism: int) -> range:
    """Subtasks on the other side of an edge that subtask `index` has a channel with."""
    return range(index, index + 1) if edge.partition is Partition.FORWARD else range(parallelism)


def channel_facts(topology: Topology, parts: dict[str, PartFacts]) -> Iterator[ChannelFacts]:
    """Counters of every channel, by edge, sender, receiver; unknown where a side has not acked."""
    width = {op.id: op.parallelism for op in topology.operators}
    logged = {log.channel: log.records for part in parts.values() for log in part.logs}
    for edge in topology.edges:
        for i in range(width[edge.source]):
            sender = parts.get(task_name(edge.source, i))
            for position, j in enumerate(neighbours(edge, i, width[edge.target])):
                receiver = parts.get(task_name(edge.target, j))
                back = neighbours(edge, j, width[edge.source]).index(i)
                name = channel_name(task_name(edge.source, i), task_name(edge.target, j))
                yield ChannelFacts(
                    channel=name,
                    sent=_count(sender.sent, edge.target, position) if sender else None,
                    received=_count(receiver.received, edge.source, back) if receiver else None,
                    logged=logged.get(name, 0) if receiver else None,
                )


def _count(counts: dict[str, tuple[int, ...]], neighbour: str, position: int) -> int | None:
    row = counts.get(neighbour, ())
    return row[position] if position < len(row) else None


def _operator(id: str, parallelism: int, parts: list[PartFacts | None]) -> OperatorFacts:
    present = [part for part in parts if part is not None]
    known = len(present) == parallelism
    return OperatorFacts(
        id=id,
        name=None,
        parallelism=parallelism,
        bytes=sum(f.bytes or 0 for part in present for f in part.state) if known else None,
        rows=sum(part.rows for part in present) if known else None,
        tasks=tuple(
            TaskFacts(
                task=part.task,
                files=tuple(files_of(part)),
                log_records=sum(log.records for log in part.logs),
                position=part.positions,
                alignment=part.alignment,
                sync=part.sync,
                async_=part.async_,
                finished=part.finished,
            )
            for part in present
        ),
    )
