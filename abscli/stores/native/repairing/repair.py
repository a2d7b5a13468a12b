"""Carrying out a repair: the missing parts are made again beside the store, proved, and then put in their place.

Until they are proved nothing in the store or a sink has changed. Then, in this order: fences and the attempt; sinks,
where the epoch had not been complete before; the new parts and the tasks file; the manifest, in one step, in place of
what the number had; what it names becomes visible; what nothing refers to any more moves to `quarantine/`. Broken off
anywhere, the same plan can be carried out again.

In a bucket and on HDFS there is no kernel that holds a lock: who was stopped, and is overtaken, may go on at any time.
So there an epoch that has no outcome gets its manifest create-only, as from the job itself, and no fence before it:
whoever overtakes puts a fence of his own there, and the manifest meets it. Where an epoch was given up, and output is
yet to be shown, that outcome stays: nothing could tell that it is still the one that was looked at when it is replaced.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from abscli.engine.generations.code import changed_modules, modules_of
from abscli.engine.runnable import check_runnable
from abscli.engine.sinks.examined import Examined
from abscli.engine.sinks.outputs import NO_SINKS, Outputs
from abscli.engine.stretch import Passed, RunAgain, Stretch, run_stretch
from abscli.planner.lineage import lives_of, maker, stretches
from abscli.planner.repair import cut_of
from abscli.stores.native.plan import plan_digest, what_changed
from abscli.stores.native.rebuilding.rebuild import aside_name
from abscli.stores.native.repairing.proof import check_parts
from abscli.stores.native.repairing.repair_plan import Repair, examine, files_relied_on
from abscli.stores.native.rescale import as_taken
from abscli.stores.pinned import stale
from formats.disk import sync_folder
from formats.errors import FormatError, NoRecovery, StoreInUse
from formats.ids import TaskId
from formats.job.expand import task_ids
from formats.job.model import Kind, Topology, as_sink, with_sink_at
from formats.native import layout, lock
from formats.native.committed import committed_at
from formats.native.facts import AttemptFacts, PartFacts, SinkFile, digest, header, new_id
from formats.native.plan import NativePlan
from formats.native.remains import files_named
from formats.native.sink import PartId, SinkFolder, staged_path
from formats.native.store import NativeStore, files_of
from formats.native.writer import complete_anew, put_attempt, put_fence
from formats.plan import Plan
from formats.storage import UNFINISHED, LocalStorage, ServedStorage, Storage, WritableStorage, open_writable, walk
from formats.storage.ranges import whole_file
from formats.timestamps import now

SCRATCH = f"{UNFINISHED}repair-"
"""What the folder in the store is called where parts are made again; readers do not see it."""


class Repaired(NamedTuple):
    """What a repair did.

    epoch: the one that is whole now.
    base: the epoch that tasks ran from.
    rerun: tasks that ran.
    adopted: parts that stayed.
    dropped: records that left the tasks that ran.
    records: that sources read again.
    quarantined: files that were moved out of the way.
    finished: whether the job has nothing left to do.
    parallelism: of the operators that have another one in the epoch than in the job file.
    taken_over: as of a restore; a repair takes no sink over.
    """

    store: str
    epoch: int
    base: int
    parent: int
    tasks: int
    state_rows: int
    rerun: int
    adopted: int
    dropped: int
    records: int
    quarantined: int
    elapsed: float
    policy: str
    finished: bool
    parallelism: dict[str, int]
    taken_over: Mapping[str, str] = MappingProxyType({})


def is_done(plan: Plan[NativePlan], store: NativeStore) -> bool:
    """Whether the epoch is complete by an attempt that carried out this very plan, and nothing has run since."""
    assert plan.body.epoch is not None
    try:
        made_by = store.manifest(plan.body.epoch).attempt
        attempts = store.attempts()
    except FormatError:
        return False
    return bool(attempts) and attempts[-1].attempt == made_by and attempts[-1].plan == plan_digest(plan)


def check_plan(plan: Plan[NativePlan], store: NativeStore) -> None:
    """StalePlan unless the epoch lacks just what the plan says, and all that it relies on is as it was."""
    if not is_done(plan, store):
        _examined(plan, store)


def _examined(plan: Plan[NativePlan], store: NativeStore) -> Repair:
    assert plan.body.epoch is not None
    problem = what_changed(store, plan)
    if problem is not None:
        raise stale(plan, problem)
    repair = examine(store, plan.body.epoch, plan.body.distrust)
    if tuple(map(str, repair.missing)) != plan.body.failed:
        raise stale(plan, f"epoch {plan.body.epoch} lacks {', '.join(map(str, repair.missing)) or 'nothing'}")
    attempts = f"{layout.ATTEMPTS}/"
    needed = {file for file in files_relied_on(store, repair) if not file.path.startswith(attempts)}
    missed = {file.path for file in needed - set(plan.relies_on)} - {layout.STORE}
    if missed or repair.base != plan.body.base_epoch:
        raise stale(plan, f"it does not list every file that it needs, such as {min(missed, default='its base')}")
    return repair


def repair(
    plan: Plan[NativePlan],
    topology: Topology,
    directory: str,
    *,
    accept_missing: bool = False,
    on_step: Callable[[str], None] = lambda text: None,
) -> Repaired:
    """Make the plan's epoch whole. topology: of the job file, the plan's own but for numbers of tasks; directory: where
    that lies.

    Raises StalePlan, NoRecovery, StoreInUse, UsageError, JobFailed, Damaged.
    """
    assert plan.store is not None
    assert plan.body.epoch is not None
    started = time.monotonic()
    storage = open_writable(plan.store)
    given = {op.id: op.parallelism for op in topology.operators}
    topology = as_taken(topology, NativeStore(storage).topology_by_digest(plan.body.topology_sha256))
    check_runnable(topology)
    with lock.exclusive(storage):
        if isinstance(storage, LocalStorage):
            _sweep(storage)
        store = NativeStore(storage)
        store.held_by_us = True
        directory = os.path.abspath(directory)
        outputs = Outputs(topology, directory, accept_missing=accept_missing)
        if is_done(plan, store):
            again, parts, aside = _finish(store, storage, plan.body.epoch, outputs)
        else:
            work = _Work(store, storage, plan, topology, directory, outputs, on_step)
            again, parts, aside = work.carry_out()
    manifest = NativeStore(storage).manifest(plan.body.epoch)
    return Repaired(
        store=plan.store,
        epoch=manifest.epoch,
        base=plan.body.base_epoch or 0,
        parent=manifest.parent,
        tasks=manifest.tasks,
        state_rows=manifest.state_rows or 0,
        rerun=len(parts),
        adopted=manifest.tasks - len(parts),
        dropped=sum(again.dropped.values()),
        records=again.records,
        quarantined=aside,
        elapsed=time.monotonic() - started,
        policy=manifest.policy,
        finished=manifest.idle,
        parallelism={op.id: op.parallelism for op in topology.operators if op.parallelism != given[op.id]},
    )


class _Work:
    """One repair, from what is there to the manifest."""

    def __init__(
        self,
        store: NativeStore,
        storage: WritableStorage,
        plan: Plan[NativePlan],
        topology: Topology,
        directory: str,
        outputs: Outputs,
        on_step: Callable[[str], None],
    ) -> None:
        self._store = store
        self._storage = storage
        self._topology = topology
        self._directory = directory
        self._outputs = outputs
        self._on_step = on_step
        # Read before all else: an attempt that lives on without its lock may write an outcome at any moment.
        self._undecided = store.undecided_from()
        self._repair = _examined(plan, store)
        attempts = store.attempts()
        remains = self._repair.remains
        has_outcome = store.outcome_kind(self.epoch) is not None
        self._creates = isinstance(storage, ServedStorage) and not has_outcome
        if isinstance(storage, ServedStorage) and has_outcome and not remains.committed:
            raise NoRecovery(
                f"epoch {self.epoch} is not repaired: the epoch already has an outcome, which can be "
                "replaced safely only in a local directory", path=storage.root,
                hint="copy the store to a directory with `abs copy` and plan there; or plan without --strategy repair",
            )  # fmt: skip
        code = modules_of(topology, directory)
        before = remains.taker.code
        changed = changed_modules(before, code) if before is not None and self._repair.again.tasks else []
        if changed:
            raise NoRecovery(
                f"epoch {self.epoch} is not repaired: {', '.join(changed)} changed since it was taken",
                path=os.path.join(directory, changed[0]),
                hint="restore the code that took the epoch; or plan without --strategy repair",
            )
        self._attempt = AttemptFacts(
            attempt=attempts[-1].attempt + 1,
            kind="repair",
            generation=remains.trigger.generation,
            # What had been complete keeps its number's owner, and its output; else the numbers since then are ours.
            parent=self.epoch if remains.committed else remains.trigger.parent,
            first_epoch=self.epoch + 1
            if remains.committed
            else max(remains.trigger.parent + 1, remains.taker.first_epoch),
            policy=attempts[-1].policy,  # the job goes on as it ran last
            topology_sha256=remains.trigger.topology_sha256,
            directory=directory,
            started=now(),
            id=new_id(),
            plan=plan_digest(plan),
            code=code,
            repairs=self.epoch,
            workers=None,
            **header(AttemptFacts),
        )

    @property
    def epoch(self) -> int:
        return self._repair.epoch

    @property
    def _shows(self) -> bool:
        """Whether the epoch is yet to show something."""
        return not self._repair.remains.committed

    def carry_out(self) -> tuple[RunAgain, dict[TaskId, PartFacts], int]:
        with contextlib.ExitStack() as stack:
            sinks = NO_SINKS
            if self._shows:
                stack.enter_context(self._outputs.hold())
                sinks = self._outputs.examine(self._store, self._repair.remains.trigger.parent)
                self._check_staged(sinks.files)
            scratch = stack.enter_context(_scratch(self._store, self._storage, self._repair, self._attempt.id))
            again = RunAgain({}, {}, 0)
            if self._repair.again.tasks:
                self._on_step(f"running {len(self._repair.again.tasks)} tasks from epoch {self._repair.base}")
                again = self._run(scratch)
            self._on_step(f"putting epoch {self.epoch} in its place")
            self._take_over()
            if self._shows:
                self._outputs.take(sinks, NativeStore(self._storage), self._attempt)
                self._stage(sinks.files, scratch, again.parts)
            parts = tuple(self._part(task, again.parts) for task in task_ids(self._topology))
            self._publish(scratch, parts)
            if self._shows:
                self._outputs.publish(parts)
        return again, again.parts, tidy(NativeStore(self._storage), self._storage, self.epoch)

    # -- before anything is changed -----------------------------------------------------------------------

    def _run(self, scratch: LocalStorage) -> RunAgain:
        repair = self._repair
        trusted = repair.trusted()
        passed = _passed(self._store, repair)
        stretch = Stretch(
            topology=_with_sinks_in(self._topology, scratch.root),
            store=scratch.root,
            directory=self._directory,
            attempt=self._attempt.attempt,
            attempt_id=self._attempt.id,
            policy=repair.remains.trigger.policy,
            tasks=frozenset(repair.again.tasks),
            repeatable=repair.again.repeatable,
            base=repair.base,
            passed=passed,
            epoch=repair.epoch,
            cut=cut_of(self._topology, repair.again, trusted),
        )
        again = run_stretch(stretch)
        sources = {op.id for op in self._topology.operators if op.kind is Kind.SOURCE}
        barriers_known = all(
            task in barrier.offsets
            for barrier in passed for task in repair.again.tasks if task.operator in sources
        )  # fmt: skip
        check_parts(repair, again.parts, self._storage, scratch, barriers_known=barriers_known)
        return again

    def _check_staged(self, sinks: Sequence[Examined]) -> None:
        """What sinks had staged for the epoch is there; NoRecovery names the task whose part it is."""
        folders = {sink.operator: _folder(sink) for sink in sinks}
        for part in self._repair.adopted().values():
            for file in part.sink:
                if _staged_by(folders[part.operator], part, file) is None:
                    raise NoRecovery(
                        f"epoch {self.epoch}: the output {file.name} that {part.task} staged is missing or has "
                        "changed", path=folders[part.operator].root,
                        hint=f"plan again with --distrust {part.task}, so that this part is recomputed",
                    )  # fmt: skip

    # -- what changes the store ---------------------------------------------------------------------------

    def _take_over(self) -> None:
        store = NativeStore(self._storage)
        try:
            # Without an outcome the epoch may still be the lowest undecided number: its manifest is the fence, then.
            decides = self._creates and self.epoch >= self._undecided
            for number in range(self._undecided, self.epoch if decides else store.highest_number() + 2):
                put_fence(self._storage, number, self._attempt)
            put_attempt(self._storage, self._attempt)
        except FileExistsError as error:
            raise self._overtaken(error) from None

    def _overtaken(self, error: FileExistsError) -> StoreInUse:
        return StoreInUse(
            f"another process is writing to this store: it has just written {error.filename or 'the next outcome'}",
            path=self._storage.root,
            hint="wait for the other process, or stop it; then run the same command again",
        )

    def _stage(self, sinks: Sequence[Examined], scratch: LocalStorage, made: Mapping[TaskId, PartFacts]) -> None:
        """All parts of the epoch under this attempt's id, whoever made them."""
        for sink in sinks:
            folder = _folder(sink)
            for part in [*self._repair.adopted().values(), *made.values()]:
                if part.operator != sink.operator:
                    continue
                for file in part.sink:
                    if part.task in made:
                        source = os.path.join(_sink_folder(scratch.root, sink.operator),
                                              staged_path(self._attempt.id, file.name))  # fmt: skip
                    else:
                        source = _staged_by(folder, part, file) or ""
                    _link(source, folder.local_path(staged_path(self._attempt.id, file.name)))

    def _part(self, task: TaskId, made: Mapping[TaskId, PartFacts]) -> PartFacts:
        """As the manifest is to have it. Parts of sinks are called by the attempt that the sink knows them by."""
        before, after = self._repair.remains.parts.get(task), made.get(task)
        part = after if after is not None else before
        assert part is not None
        if after is not None and before is not None and not self._shows and before.sink:
            return msgspec.structs.replace(
                after, sink=before.sink, attempt=before.attempt, attempt_id=before.attempt_id
            )
        if part.sink and self._shows:
            sink = as_sink(self._topology.operator(task.operator))
            assert sink is not None
            path = (sink.connector or {})["path"]
            files = tuple(msgspec.structs.replace(file, directory=path) for file in part.sink)
            return msgspec.structs.replace(
                part, sink=files, attempt=self._attempt.attempt, attempt_id=self._attempt.id
            )
        return part

    def _publish(self, scratch: LocalStorage, parts: tuple[PartFacts, ...]) -> None:
        """Give the new files their names, then the epoch its manifest; what it had in its place is kept aside."""
        storage, remains = self._storage, self._repair.remains
        own = layout.home(self.epoch, self._attempt.id) + "/"
        for file in (file for part in parts for file in files_of(part)):
            if file.path.startswith(own):
                _bring(scratch, file.path, storage)
        if NativeStore(storage).attempts()[-1].id != self._attempt.id:
            raise self._overtaken(FileExistsError())
        outcome = layout.outcome(self.epoch)
        if storage.size(outcome) is not None and not NativeStore(storage).is_fenced(self.epoch):
            storage.put(_aside(storage, outcome), storage.read(outcome))
        trigger = msgspec.structs.replace(
            remains.trigger, attempt=self._attempt.attempt, attempt_id=self._attempt.id
        )
        try:
            complete_anew(
                storage, trigger, self._topology.job, parts, idle=remains.idle, moved=remains.moved,
                removed=remains.removed, committed=committed_at(NativeStore(storage), trigger.parent),
                replace=not self._creates,
            )  # fmt: skip
        except FileExistsError as error:
            raise self._overtaken(error) from None


def _finish(
    store: NativeStore, storage: WritableStorage, epoch: int, outputs: Outputs
) -> tuple[RunAgain, dict[TaskId, PartFacts], int]:
    """What is left to do of a repair that was broken off behind its manifest."""
    attempt = store.attempts()[-1]
    if attempt.first_epoch <= epoch:  # else its output was shown before
        with outputs.hold():
            outputs.take(outputs.examine(store, epoch), store, attempt)
    made = {part.task: part for part in store.parts(epoch) if part.attempt_id == attempt.id and not part.sink}
    return RunAgain(made, {}, 0), made, tidy(store, storage, epoch)


def tidy(store: NativeStore, storage: WritableStorage, epoch: int) -> int:
    """Move to `quarantine/` what the epoch consisted of and nothing refers to any more, and say how many files that is.

    Where an epoch cannot be read it is not known which parts it refers to: they stay.
    """
    keep, sure = {layout.outcome(epoch), store.manifest(epoch).tasks_file.path}, True
    for number in store.epoch_numbers():
        try:
            keep.update(whole_file(file.path) for part in store.parts(number) for file in files_of(part))
        except FormatError:
            sure = False
    own = [entry.name for entry in walk(storage, layout.epoch_dir(epoch)) if entry.name not in keep]
    facts = [path for path in own if path.endswith(".json")]
    # Facts last: where this is broken off, they still say what else there is to be moved.
    parts = {path for path in own if path not in facts} | {name for path in facts for name in files_named(store, path)}
    gone = [path for path in sorted(parts - keep) if sure and storage.size(path) is not None] + facts
    for path in gone:
        storage.move(path, _aside(storage, path))
        if isinstance(storage, LocalStorage):
            _drop_empty(storage, os.path.dirname(path))
    return len(gone)


def _passed(store: NativeStore, repair: Repair) -> list[Passed]:
    """The barriers between the two epochs, and where the sources stood, as far as they have said so."""
    lives = lives_of(store.attempts(), store.is_fenced)
    leading = stretches(lives, repair.epoch)
    passed = []
    for number in store.epoch_numbers():
        if not repair.base < number < repair.epoch or maker(leading, number) is None:
            continue
        try:
            parts = store.parts(number)
        except FormatError:
            parts = ()
        offsets = {
            part.task: {position.split: position.offset or 0 for position in part.positions}
            for part in parts if part.positions is not None
        }  # fmt: skip
        passed.append(Passed(number, offsets, store.has_manifest(number)))
    return passed


@contextlib.contextmanager
def _scratch(store: NativeStore, storage: Storage, repair: Repair, id: str) -> Iterator[LocalStorage]:
    """A store of its own, in the store's folder or on this machine's disk, that has what the base epoch consists of."""
    if isinstance(storage, LocalStorage):
        root = os.path.join(storage.root, SCRATCH + id)
        os.mkdir(root)
    else:
        root = tempfile.mkdtemp(prefix="abs-repair-")
    try:
        scratch = LocalStorage(root)
        paths = {layout.STORE}
        if repair.base:
            manifest = store.manifest(repair.base)
            paths |= {layout.outcome(repair.base), manifest.tasks_file.path}
            needed = (part for part in store.parts(repair.base) if part.task in repair.again.tasks)
            paths |= {whole_file(file.path) for part in needed for file in files_of(part)}
        for path in sorted(paths):
            _bring(storage, path, scratch)
        yield scratch
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _sweep(storage: LocalStorage) -> None:
    """Remove what repairs that were killed have left; the lock says that none is at work."""
    for name in os.listdir(storage.root):
        if name.startswith(SCRATCH):
            shutil.rmtree(os.path.join(storage.root, name))


def _with_sinks_in(topology: Topology, root: str) -> Topology:
    """The job with its sinks' parts beside the store: they are shown when they are proved, if at all."""
    operators = tuple(with_sink_at(op, _sink_folder(root, op.id)) for op in topology.operators)
    return msgspec.structs.replace(topology, operators=operators)


def _folder(sink: Examined) -> LocalStorage:
    """Where a sink writes; NoRecovery for one that the job file has in a bucket since."""
    if isinstance(sink.folder, SinkFolder):
        return sink.folder.storage
    raise NoRecovery(
        f"sink {sink.operator} writes to a bucket, where staged rows cannot be combined again",
        path=sink.folder.path, hint="set the path of the sink to its previous directory; or plan without --strategy "
        "repair",
    )  # fmt: skip


def _sink_folder(root: str, operator: str) -> str:
    return os.path.join(root, "sinks", operator)


def _staged_by(folder: LocalStorage, part: PartFacts, file: SinkFile) -> str | None:
    """Where a part lies that was staged and never shown; None if it is gone or another one. A repair that was broken
    off has set aside what was not its own."""
    id = PartId(part.attempt_id, file.name)
    for place in (id.staged, id.superseded):
        with contextlib.suppress(FormatError):
            if digest(folder.read(place)) == file.sha256:
                return folder.local_path(place)
    return None


def _bring(source: Storage, path: str, target: Storage) -> None:
    """A file under its own name elsewhere; what is there is of a repair of the same plan that was broken off."""
    if isinstance(source, LocalStorage) and isinstance(target, LocalStorage):
        _link(source.local_path(path), target.local_path(path))
        return
    with contextlib.suppress(FileExistsError):
        target.put(path, source.read(path))


def _link(source: str, target: str) -> None:
    """A second name of a file, or a copy where there can be none; durable."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    try:
        os.link(source, target)
    except FileExistsError:
        return  # of a repair of the same plan that was broken off
    except OSError:
        shutil.copyfile(source, target)
        with open(target, "rb") as file:
            os.fsync(file.fileno())
    sync_folder(os.path.dirname(target))


def _aside(storage: WritableStorage, path: str) -> str:
    return aside_name(path, lambda name: not storage.is_taken(name))


def _drop_empty(storage: LocalStorage, folder: str) -> None:
    with contextlib.suppress(OSError):
        while folder.startswith(f"{layout.EPOCHS}/"):
            os.rmdir(storage.local_path(folder))
            folder = os.path.dirname(folder)
