"""What the coordinator writes to the store during one attempt: triggers, manifests, aborts, and what may go."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import msgspec

from abscli.engine.errors import Overtaken
from abscli.engine.losses.decisions import Recovery, texts
from abscli.engine.telemetry.news import EpochDone
from abscli.planner.retention import Kept, expired
from formats.errors import Damaged, FormatError
from formats.ids import TaskId
from formats.job.expand import task_ids
from formats.job.model import Topology
from formats.native import layout
from formats.native.committed import committed_at
from formats.native.facts import AttemptFacts, FenceFacts, PartFacts, RecoveryFacts, ReplayFacts, TriggerFacts, header
from formats.native.remove import remove_epochs
from formats.native.store import NativeStore, files_of
from formats.native.writer import complete, put_aborted, put_recovery, put_tasks, put_trigger
from formats.storage import ServedStorage, Storage, concurrently, deciding, delete_all, walk
from formats.storage.ranges import whole_file
from formats.timestamps import now, rfc3339
from formats.watermark import lowest


class Journal:
    """One attempt's hand on the store.

    keep: complete epochs that stay; None keeps all.
    reveal: publishes the parts that a manifest names, and returns the seconds that each sink took.
    records_before: read up to the epoch that it goes on from; skipped_before: left out up to there, by operator.
    newest: completed last, and newest_parts: its parts.
    skipped: left out since, by operator.

    The outcomes of epoch numbers are one dense sequence: none is written before that of the number below. So an owner
    that has lost the store meets the fence of the attempt that took it over, whatever it tries to write next.
    """

    def __init__(
        self,
        storage: Storage,
        topology: Topology,
        attempt: AttemptFacts,
        *,
        keep: int | None,
        directory_hint: str,
        reveal: Callable[[Sequence[PartFacts]], Mapping[str, float]] = lambda parts: {},
        records_before: int = 0,
        skipped_before: Mapping[str, int] | None = None,
    ) -> None:
        self.store = NativeStore(storage)
        self.last_complete = attempt.parent
        self.completed_at: list[float] = []
        self.newest = EpochDone(attempt.parent, 0.0, 0.0, 0, 0)
        self.newest_parts: Sequence[PartFacts] = ()
        self.records_before = records_before
        self._records = records_before
        self._skipped = dict(skipped_before or {})
        self.skipped: dict[str, int] = {}
        self._storage = storage
        self._topology = topology
        self._attempt = attempt
        self._keep = keep
        self._job_hint = directory_hint
        self._reveal = reveal
        self._committed = committed_at(self.store, attempt.parent)
        self._undecided = attempt.first_epoch
        self._given_up: dict[int, str] = {}
        self._open: dict[int, TriggerFacts] = {}
        self._acked: dict[int, dict[TaskId, PartFacts]] = {}
        self._bases: dict[int, int] = {}
        self._tagged: frozenset[int] | None = None
        self._unread = 0
        with deciding(storage, is_held=True):
            self._kept = self._read_kept() if keep is not None else {}
            self._spared = self._read_spared() if keep is not None else set()

    def _read_kept(self) -> dict[int, Kept]:
        epochs = self.store.epoch_numbers()
        complete = [epoch for epoch in epochs if self.store.has_manifest(epoch)]
        kept = {epoch: Kept(epoch, False, None, frozenset()) for epoch in set(epochs) - set(complete)}
        for epoch, read in self.store.read_epochs(complete):
            if read is None or read.parts is None:
                # Left alone: `validate` names it, a person decides. What it needs of older epochs is not known.
                self._unread = epoch
            else:
                kept[epoch] = Kept(epoch, True, read.manifest.parent, _lain_in(read.parts))
        return kept

    def _read_spared(self) -> set[str]:
        """Files that outlived their epoch because another one refers (or referred) to them."""
        epochs = set(self.store.epoch_numbers())
        fences = {layout.outcome(number) for number in self.store.fences()}
        paths = {entry.name for entry in walk(self._storage, layout.EPOCHS)} - fences
        return {path for path in paths if layout.epoch_of(path) not in epochs}

    def begin(self, epoch: int, policy: str | None = None) -> None:
        """The epoch is about to be triggered. policy: how it is taken, where that is not the attempt's."""
        trigger = TriggerFacts.of(self._attempt, epoch, self.last_complete, triggered=now(), policy=policy)
        put_trigger(self._storage, trigger)
        self._open[epoch] = trigger

    def complete(
        self, epoch: int, *, idle: bool, moved: dict[str, str] | None = None, removed: tuple[str, ...] = ()
    ) -> None:
        """Every task has acked: read back what lies in acks of their own, write the manifest, show what it names.

        moved, removed: operators of its parent, in the first epoch of a generation.

        Overtaken if a later attempt has taken the store over; Damaged if something that was acked is gone.
        """
        with deciding(self._storage, decides=False):
            self._complete(epoch, idle=idle, moved=moved or {}, removed=removed)

    def _complete(self, epoch: int, *, idle: bool, moved: dict[str, str], removed: tuple[str, ...]) -> None:
        parts, acks = self._parts(epoch)
        files = _lain_in(parts)
        # What is acked was there; a manifest must not name what somebody has deleted since.
        tasks_file = None
        if isinstance(self._storage, ServedStorage):
            # The tasks file, which alone counts for nothing, is put while the server looks.
            with ThreadPoolExecutor(1, thread_name_prefix="abs-tasks") as pool:
                put = pool.submit(put_tasks, self._storage, self._open[epoch], parts)
                present = self._listed(self._storage, epoch, files)
            tasks_file = put.result()
        else:
            present = {path for path in files if self._storage.size(path) is not None}
        missing = [path for path in sorted(files) if path not in present]
        if missing and isinstance(self._storage, ServedStorage):  # the list may be an older one
            sizes = concurrently(self._storage, self._storage.size, missing)
            missing = [path for path, size in zip(missing, sizes, strict=True) if size is None]
        if missing:
            path = f"{self._storage.root}/{missing[0]}"
            raise self._lost(epoch, Damaged(f"epoch {epoch} refers to it, and it is missing", path=path))
        # In packs no file of which is referred to there is nothing but acks, or what a worker wrote that was lost.
        folder = layout.pack_dir(epoch, self._attempt.id) + "/"
        acks += [path for path in present if path.startswith(folder) and path not in files]
        # Outcomes are dense: those below come first. The coordinator's aborts of these epochs come after the manifest.
        for older in range(self._undecided, epoch):
            self._give_up(older, self._given_up.pop(older, f"epoch {epoch}, which contains it, was complete first"))
        # Its parent is the newest complete epoch now, which may be newer than that at its trigger.
        trigger = msgspec.structs.replace(self._open.pop(epoch), parent=self.last_complete)
        try:
            manifest = complete(
                self._storage, trigger, self._topology.job, parts,
                idle=idle, moved=moved, removed=removed, committed=self._committed, tasks_file=tasks_file,
                ack_files=acks,
            )  # fmt: skip
        except FileExistsError:
            raise self._displaced(epoch) from None
        self._undecided, self._committed = epoch + 1, manifest.committed
        self._forget(epoch)
        self._kept[epoch] = Kept(epoch, True, trigger.parent, files)
        self.last_complete = max(self.last_complete, epoch)
        self.completed_at.append(time.time())
        records_at_parent, self._records = self._records, records_read(parts)
        records = self._records - records_at_parent
        skipped = self._skipped_since(parts, moved)
        self.newest = EpochDone(
            epoch, time.time(), manifest.duration, records, manifest.bytes, _phases(parts), _watermarks(parts), skipped
        )
        self.newest_parts = parts
        published = self._reveal(parts)
        self.newest = replace(
            self.newest, phases={**self.newest.phases, "publish": sum(published.values())},
            by_sink=_seconds_by_target(parts, published),
        )  # fmt: skip
        self._publish_given_up()

    def _skipped_since(self, parts: Sequence[PartFacts], moved: Mapping[str, str]) -> dict[str, int]:
        """By operator, records that it has left out since the last complete epoch."""
        before = {moved.get(operator, operator): count for operator, count in self._skipped.items()}
        self._skipped = skipped_by(parts)
        since = {id: count - before.get(id, 0) for id, count in self._skipped.items() if count > before.get(id, 0)}
        for operator, count in since.items():
            self.skipped[operator] = self.skipped.get(operator, 0) + count
        return since

    def acked(self, part: PartFacts) -> None:
        """A task's part of an epoch is durable, and its facts lie in no file of their own."""
        self._acked.setdefault(part.epoch, {})[part.task] = part

    def _parts(self, epoch: int) -> tuple[tuple[PartFacts, ...], list[str]]:
        """The parts of an epoch that all tasks have acked, and the files that hold the acks of single tasks."""
        heard = self._acked.get(epoch, {})
        tasks = task_ids(self._topology)
        alone = [task for task in tasks if task not in heard]
        read = concurrently(self._storage, lambda task: self.store.part(epoch, task, self._attempt.id), alone)
        acks = [layout.ack(epoch, str(task), self._attempt.id) for task in alone]
        if lost := next((path for path, part in zip(acks, read, strict=True) if part is None), None):
            raise self._lost(epoch, Damaged("acked, but its ack file is missing", path=f"{self._storage.root}/{lost}"))
        parts = heard | {part.task: part for part in read if part is not None}
        return tuple(parts[task] for task in tasks), acks

    def _forget(self, epoch: int) -> None:
        """It is decided what becomes of an epoch and of those below."""
        self._acked = {number: parts for number, parts in self._acked.items() if number > epoch}

    def _listed(self, storage: ServedStorage, epoch: int, files: Collection[str]) -> set[str]:
        """What is there of the epoch, and of all others that these files are of: one list, where each file would be a
        question."""
        oldest = min((layout.epoch_of(path) or 0 for path in files), default=epoch)
        return {file.path for file in storage.below(layout.EPOCHS, after=layout.epoch_dir(oldest))}

    def builds_on(self, epoch: int, base: int) -> None:
        """A task's part of `epoch` refers to files of epoch `base`."""
        self._bases[epoch] = min(base, self._bases.get(epoch, base))

    def abort(self, epoch: int, reason: str) -> None:
        """The epoch is given up; Overtaken if a later attempt has taken the store over."""
        self._open.pop(epoch, None)
        self._acked.pop(epoch, None)
        if epoch >= self._undecided:
            self._given_up[epoch] = reason
            self._publish_given_up()
        self._kept[epoch] = Kept(epoch, False, None, frozenset())

    def _publish_given_up(self) -> None:
        """Write the outcomes that are due; one above an epoch that is still open waits for that one's."""
        while self._undecided in self._given_up:
            self._give_up(self._undecided, self._given_up.pop(self._undecided))

    def _give_up(self, epoch: int, reason: str) -> None:
        try:
            put_aborted(self._storage, epoch, self._attempt, reason)
        except FileExistsError:
            raise self._displaced(epoch) from None
        self._undecided = epoch + 1

    def overtaken(self) -> Overtaken | None:
        """A later attempt has taken the store over; None while it is ours."""
        if self.store.outcome_kind(self._undecided) is not FenceFacts:
            return None
        return self._displaced(self._undecided)

    def _lost(self, epoch: int, damage: Damaged) -> Damaged | Overtaken:
        """What is gone of an epoch of ours may have been removed by who took the store over."""
        return damage if self._storage.size(layout.outcome(epoch)) is None else self._displaced(epoch)

    def _displaced(self, epoch: int) -> Overtaken:
        """Somebody else decided what became of an epoch of ours."""
        try:
            owner = f"attempt {self.store.fence(epoch).attempt} took the store over"
        except FormatError:
            owner = "another process has written the outcome of this epoch"
        return Overtaken(
            f"epoch {epoch} of attempt {self._attempt.attempt} cannot be completed in {self._storage.root}: {owner}",
            hint=f"run `abs inspect {shlex.quote(self._storage.root)}`; no output of this attempt's open epochs was "
            "published",
        )

    def recovered(self, recovery: Recovery) -> None:
        """Tasks restarted while the others went on."""
        again = recovery.again
        facts = RecoveryFacts(
            attempt=self._attempt.attempt,
            attempt_id=self._attempt.id,
            number=recovery.number,
            epoch=recovery.epoch,
            cause=recovery.cause,
            workers=recovery.workers,
            restart=texts(recovery.subtasks),
            untouched=recovery.untouched,
            replayed=recovery.replayed,
            lost=rfc3339(recovery.lost_at),
            seconds=round(recovery.seconds, 3),
            deterministic_replay=None if again is None
            else ReplayFacts(again.steps, again.determinant_bytes, again.buffer_bytes),
            **header(RecoveryFacts),
        )
        put_recovery(self._storage, facts)

    def prune(self, *, last: bool = False) -> None:
        """Let go of epochs beyond `keep` that have no tag, but of no file that a kept one refers to or an open one may
        refer to.

        Tasks hear late of complete epochs: until the end, what the newest complete one was built on stays, since what
        is being copied now builds on that or on something newer.
        """
        if self._keep is not None:
            # By an older list less is removed: what is left goes with a later attempt.
            with deciding(self._storage, decides=False):
                self._prune(self._keep, last=last)

    def _prune(self, keep: int, *, last: bool) -> None:
        floor = None if last else self._bases.get(self.last_complete, self._attempt.parent)
        # Which files an epoch that could not be read refers to is unknown: all epochs up to it stay.
        untouched = {epoch for epoch in self._kept if epoch <= self._unread}
        self._bases = {epoch: base for epoch, base in self._bases.items() if epoch >= self.last_complete}
        # Tags are asked for again by who removes: here it is enough to know those that were there the last time.
        due, _ = expired(self._kept.values(), keep, floor, untouched)
        if self._tagged is None or not self._tagged.isdisjoint(due):
            self._tagged = self.store.tagged()
        expired_epochs, files_in_use = expired(self._kept.values(), keep, floor, untouched | self._tagged)
        removed = remove_epochs(self.store, expired_epochs, files_in_use, self._attempt.attempt)
        if removed.tagged is not None:
            self._tagged = removed.tagged
        self._spared |= removed.spared
        for epoch in set(expired_epochs) - removed.stayed:
            del self._kept[epoch]
        if removed.overtaken:
            return
        released = {path for path in self._spared - removed.needed if (layout.epoch_of(path) or 0) > self._unread}
        delete_all(self._storage, sorted(released))
        self._spared -= released

    def hint(self, mend: str | None = None) -> str:
        """What an operator does next after a failure. mend: what has to be done first, or the job fails again."""
        store = shlex.quote(self._storage.root)
        resume = f"`abs run {self._job_hint} --store {store} --resume`"
        last = self.last_complete
        state = f"the last complete epoch is {last}" if last else "no epoch was complete"
        if mend:
            return f"{mend}, then {resume}; {state}"
        if not last:
            return f"{state}; start again with {resume}"
        return f"{state}; run `abs inspect {store}`, then {resume}"


def _lain_in(parts: Iterable[PartFacts]) -> frozenset[str]:
    """The files that all which parts refer to lies in."""
    return frozenset(whole_file(file.path) for part in parts for file in files_of(part))


def _phases(parts: Iterable[PartFacts]) -> dict[str, float]:
    """Seconds of the task that was longest at it."""
    phases = [(part.alignment, part.sync, part.async_) for part in parts]
    return dict(zip(("align", "copy", "write"), map(max, zip(*phases, strict=True)), strict=True))


def _seconds_by_target(parts: Iterable[PartFacts], published: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds in which each sink's slowest task staged rows, and the driver published them."""
    staged: dict[str, float] = {}
    for part in parts:
        staged[part.operator] = max(part.async_, staged.get(part.operator, 0.0))
    return {sink: staged.get(sink, 0.0) + seconds for sink, seconds in published.items()}


def _watermarks(parts: Iterable[PartFacts]) -> dict[str, int]:
    """Of each operator that has one, the lowest of its tasks."""
    by_operator: dict[str, list[int | None]] = {}
    for part in parts:
        by_operator.setdefault(part.operator, []).append(part.watermark)
    watermarks = {operator: lowest(of_tasks) for operator, of_tasks in by_operator.items()}
    return {operator: watermark for operator, watermark in watermarks.items() if watermark is not None}


def records_read(parts: Iterable[PartFacts]) -> int:
    """Records that the sources of an epoch had read since the job began."""
    return sum(position.records or 0 for part in parts for position in part.positions or ())


def skipped_by(parts: Iterable[PartFacts]) -> dict[str, int]:
    """Records that operators had left out since the job began, of those that had."""
    counts: dict[str, int] = {}
    for part in parts:
        if part.skipped:
            counts[part.operator] = counts.get(part.operator, 0) + part.skipped
    return counts
