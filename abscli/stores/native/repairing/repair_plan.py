"""Plans of a repair: what is left of an epoch, which parts have to be made again, and from where.

An epoch that is incomplete, damaged or distrusted in part is made whole by running the recovery set of the missing
parts again, over the stretch between the newest whole epoch before it and its own barrier; `repair` carries it out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from abscli.planner.lineage import lives_of, maker, stretches
from abscli.planner.named import parts_named
from abscli.planner.plan import plan_repair as plan_from_facts
from abscli.planner.repair import RepairSet, repair_set
from abscli.stores.native.plan import SYSTEM, Skips, instead_of_repair, own_line, pin_facts, relied_on, why_not
from abscli.stores.pinned import change
from abscli.stores.reasons import reasons
from formats.errors import FormatError, NoRecovery, StoreInUse
from formats.ids import TaskId
from formats.job.expand import task_ids
from formats.job.model import Kind, Topology, as_sink
from formats.job.promises import is_staged
from formats.native import layout
from formats.native.counters import Channels, by_operator
from formats.native.facts import PartFacts
from formats.native.plan import NativePlan
from formats.native.remains import Remains, has_remains, remains_of
from formats.native.sink_bucket import is_bucket
from formats.native.store import NativeStore, files_of
from formats.plan import PinnedFile, Plan
from formats.storage import absolute
from formats.timestamps import now
from formats.view import EpochDetail, EpochFacts, Status


class Repair(NamedTuple):
    """What there is to be done for an epoch.

    remains: what is left of it.
    missing: the tasks whose parts are not there or not to be used, and why, in the order of the graph.
    again: what runs again.
    base: the whole epoch that it runs from; 0 for the beginning, and where nothing runs.
    skipped: newer epochs that it cannot run from.
    distrust: those of the missing whose numbers are not to be believed either.
    """

    remains: Remains
    topology: Topology
    distrust: tuple[TaskId, ...]
    missing: dict[TaskId, str]
    again: RepairSet
    base: int
    skipped: Skips

    @property
    def epoch(self) -> int:
        return self.remains.epoch

    def trusted(self) -> dict[TaskId, PartFacts]:
        """The parts whose numbers can be believed, also where a file of theirs is damaged."""
        return {task: part for task, part in self.remains.parts.items() if task not in self.distrust}

    def adopted(self) -> dict[TaskId, PartFacts]:
        """The parts that stay as they are."""
        again = set(self.again.tasks)
        return {task: part for task, part in self.remains.parts.items() if task not in again}


def plan_repair(store: NativeStore, *, epoch: int | None = None, distrust: Sequence[str] = ()) -> Plan[NativePlan]:
    """How an epoch is made whole: this one, or the newest that is not. NoRecovery, NotFound, UnknownTask, StoreInUse.

    distrust: tasks whose part of it is not to be used.
    """
    if store.running_attempt() is not None:
        raise StoreInUse("a running job uses this store", path=store.path, hint="stop the job before you repair an "
            "epoch")
    repair = newest_broken(store, distrust) if epoch is None else examine(store, epoch, distrust)
    body = plan_from_facts(
        repair.topology,
        repair.again.recovery,
        repair.missing,
        distrust=repair.distrust,
        epoch=repair.epoch,
        base=_detail(store, repair.base, repair.topology),
        topology_sha256=repair.remains.trigger.topology_sha256,
        skipped=repair.skipped,
        later=_readable(store, repair.epoch, repair.topology),
    )
    files = tuple(files_relied_on(store, repair))
    return Plan(system=SYSTEM, created=now(), store=absolute(store.path), body=body, relies_on=files)


def newest_broken(store: NativeStore, distrust: Sequence[str]) -> Repair:
    """The newest epoch on the job's line that is not whole and can be repaired, if it is newer than all whole ones."""
    line = set(own_line(store))
    numbers = {n for entry in store.storage.list(layout.EPOCHS)
               if (n := layout.epoch_of(f"{layout.EPOCHS}/{entry.name}/")) is not None}  # fmt: skip
    lost = {n for n in numbers if n > max(line, default=0) and has_remains(store, n)}
    refused: Skips = []
    for number in sorted(line | lost, reverse=True):
        if not distrust and store.has_manifest(number) and why_not(store, number) is None:
            if not refused:
                raise NoRecovery(f"epoch {number}, the newest, is intact: there is nothing to repair", path=store.path)
            break
        try:
            return examine(store, number, distrust)
        except NoRecovery as error:
            refused.append((number, error.message.partition("cannot be repaired: it ")[2] or error.message))
    raise NoRecovery(
        f"no epoch can be repaired ({reasons('epoch', refused) or 'there is none'})", path=store.path,
        hint=instead_of_repair(store),
    )  # fmt: skip


def examine(store: NativeStore, epoch: int, distrust: Sequence[str]) -> Repair:
    """What an epoch lacks and how it can be had; every digest is checked. NoRecovery says why it cannot."""
    remains = remains_of(store, epoch)
    _check_may(store, remains)
    topology = store.topology_by_digest(remains.trigger.topology_sha256)
    tasks = list(task_ids(topology))
    doubted = parts_named(distrust, tasks, epoch=epoch, path=store.path)
    missing = {task: why for task in tasks if (why := _why_missing(store, remains, task, doubted)) is not None}
    if not missing and store.has_manifest(epoch) and why_not(store, epoch) is None:
        raise _cannot(store, epoch, "is intact: there is nothing to repair")
    if remains.committed and not remains.tasks_known and any(map(as_sink, topology.operators)):
        raise _cannot(store, epoch, "was complete, and what it has shown in its sinks is not known: its list of parts "
                      "is lost")  # fmt: skip
    sinks = [sink for op in topology.operators if (sink := as_sink(op)) is not None]
    buckets = [sink.id for sink in sinks if is_bucket((sink.connector or {}).get("path", ""))]
    if buckets and not remains.committed:
        # An upload is of the attempt that began it, and what two attempts have staged is no one's.
        raise _cannot(store, epoch, f"was not complete, and its sink {buckets[0]} writes to a bucket")
    for op in topology.operators:
        if op.kind is Kind.SINK and op.connector is not None and op.connector.get("type") == "postgres":
            # What is prepared there is of one attempt, and what is committed cannot be read back and compared.
            raise _cannot(store, epoch, f"cannot be repaired: its sink {op.id} writes to a table")
        if is_staged(op):
            # What is written there cannot be read back and compared.
            raise _cannot(store, epoch, f"cannot be repaired: its sink {op.id} cannot remove the rows that it has "
            "written")
    again = repair_set(topology, tuple(missing))
    base, skipped = _base(store, remains) if missing else (0, [])
    return Repair(remains, topology, doubted, missing, again, base, skipped)


def _check_may(store: NativeStore, remains: Remains) -> None:
    """NoRecovery where an epoch must not be made whole any more."""
    epoch, policy = remains.epoch, remains.trigger.policy
    if policy not in ("aligned", "unaligned"):
        raise _cannot(store, epoch, f"was taken {policy}: counters do not show which records its state contains")
    for attempt in store.attempts():
        if attempt.attempt > remains.taker.attempt and attempt.repairs is None and attempt.parent < epoch:
            start = f"epoch {attempt.parent}" if attempt.parent else "the start"
            left = f"belongs to a history that the job has abandoned: attempt {attempt.attempt} resumed from {start}"
            raise _cannot(store, epoch, left)
    for life in lives_of(store.attempts(), store.is_fenced):
        if life.last is not None and life.last < epoch and remains.taker.first_epoch <= life.last:
            # What was made anew may have been cut elsewhere, and all that came after it was not made from that.
            raise _cannot(store, epoch, f"was taken after epoch {life.last}, which a repair has rewritten since")


def _cannot(store: NativeStore, epoch: int, reason: str) -> NoRecovery:
    message = f"epoch {epoch} cannot be repaired: it {reason}"
    return NoRecovery(message, path=store.path, hint=instead_of_repair(store))


def _why_missing(store: NativeStore, remains: Remains, task: TaskId, distrust: Sequence[TaskId]) -> str | None:
    part = remains.parts.get(task)
    if part is None:
        return "has not acked" if remains.tasks_known else "its part cannot be read"
    if task in distrust:
        return "is not to be used"
    for file in files_of(part):
        problem = change(store.storage, PinnedFile(file.path, file.bytes or 0, file.sha256 or ""))
        if problem is not None:
            return problem
    return None


def _base(store: NativeStore, remains: Remains) -> tuple[int, Skips]:
    """The newest whole epoch that leads to this one; 0 if there is none, for the beginning is always whole."""
    lives = lives_of(store.attempts(), store.is_fenced)
    leading = stretches(lives, remains.trigger.parent)
    skipped: Skips = []
    for number in reversed(store.epoch_numbers()):
        if number > remains.trigger.parent or maker(leading, number) is None:
            continue
        reason = why_not(store, number)
        if reason is None and store.manifest(number).generation != remains.trigger.generation:
            break
        if reason is None:
            return number, skipped
        skipped.append((number, reason))
    if remains.trigger.generation > 1:
        raise _cannot(store, remains.epoch, "has no whole epoch of its own generation before it: the job has changed "
                      "since the others")  # fmt: skip
    return 0, skipped


def _detail(store: NativeStore, epoch: int, topology: Topology) -> EpochDetail:
    if epoch:
        return store.detail(epoch)
    beginning = EpochFacts(0, Status.COMPLETE, None, None, None, None, (), None, None, None)
    return EpochDetail(facts=beginning, operators=(), channels=Channels(topology, by_operator(topology, ())))


def _readable(store: NativeStore, epoch: int, topology: Topology) -> EpochDetail | None:
    try:
        return _detail(store, epoch, topology)
    except FormatError:
        return None


def files_relied_on(store: NativeStore, repair: Repair) -> list[PinnedFile]:
    """What the plan pins: the epoch as it is found and the parts that stay, the one that it runs from, and the newest
    attempt."""
    sealed = [layout.STORE, *repair.remains.facts]
    # A fence may be that of a repair which was broken off: the number is as free for the next as it was for that one.
    if store.has_outcome(repair.epoch) and not store.is_fenced(repair.epoch):
        sealed.append(layout.outcome(repair.epoch))
    sealed += store.attempt_paths()[-1:]
    pinned = {path: pin_facts(store.storage, path) for path in dict.fromkeys(sealed)}
    graph = layout.topology(repair.remains.trigger.topology_sha256)
    pinned[graph] = pin_facts(store.storage, graph)
    for part in repair.adopted().values():
        for file in files_of(part):
            pinned[file.path] = PinnedFile(file.path, file.bytes or 0, file.sha256 or "")
    if repair.missing and repair.base:
        pinned.update((file.path, file) for file in relied_on(store, repair.base))
    return list(pinned.values())
