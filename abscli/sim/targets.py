"""Every short sequence of events around one target of delivered rows, each looked at once.

A job completes epochs with two rows each, and delivers them. It is killed, stopped and resumed; its store and its
target are backed up and restored; old epochs are removed. The decisions are those of the engine: `protocol.committer`,
`planner.target.compare`, and `formats.native.committed` for what manifests record. What a target does is given by
`Rules`, so that a test can plant a fault in each.

Properties:

- No row is in the target twice. When a job has begun, or has made a delivery, and has nothing more to deliver, each row
  of its history is there once.
- A job is refused only if its target or its store was restored from a backup.
- After an attempt has begun, no row of an ended attempt is still staged, except rows that a manifest names.

If the user takes ownership, rows that foreign commits may have written can be there twice. If the user accepts that
rows are missing, those rows may be missing.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

from abscli.planner.lineage import Life, is_on, line, stretches
from abscli.planner.target import Comparison, HistoryFacts, TargetFacts, compare
from abscli.protocol.committer import (
    Action,
    AttemptBegun,
    Committer,
    CommitterStage,
    DiscardAbandoned,
    DiscardUnnamed,
    Event,
    ManifestWritten,
    Obstacle,
    Permissions,
    Publish,
    Refuse,
    RowsPublished,
    Take,
    TargetAsked,
    TargetTaken,
    VerifyCommit,
)
from formats.ids import EpochId
from formats.native.committed import committed_after
from formats.native.facts import CommittedFacts, PartFacts, SinkFile
from formats.native.sink import part_name

TARGET = "t"
DELIVERS, RESUMED = "it delivers", "the job is resumed"


class Cut(NamedTuple):
    """A row, and the epoch that it was cut for."""

    made_for: EpochId
    row: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """A complete epoch, and what it names for the target: see `abscli.planner.target.Named`.

    parent: the epoch before it on its history; 0 for none.
    cuts: the rows that it names, oldest first.
    position: how many rows the history has.
    record: what the target must have.
    """

    epoch: EpochId
    parent: int
    cuts: tuple[Cut, ...]
    position: int
    record: CommittedFacts | None

    def behind(self, epoch: int) -> Manifest | None:
        """Return the rows that were cut for epochs above `epoch`; None if there are none."""
        cuts = tuple(cut for cut in self.cuts if cut.made_for.number > epoch)
        return replace(self, cuts=cuts) if cuts else None


@dataclass(frozen=True, slots=True)
class Store:
    """The attempts and the kept epochs of a store, oldest first.

    highest: the highest number that is decided.
    written: the newest delivery that the store has noted; see `Rules.remembers`.
    """

    lives: tuple[Life, ...] = ()
    manifests: tuple[Manifest, ...] = ()
    highest: int = 0
    written: EpochId | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """The rows and commit markers of a target.

    markers: of whole deliveries.
    owner: the attempt that took it last.
    left: foreign epochs that the user has accepted.
    parts, waiting: rows that were staged in the target and are committed, or not; see `Rules.commits_singly`.
    is_undone: whether the target reports that commits were undone; see `Rules.keeps_markers`.
    """

    rows: tuple[int, ...] = ()
    markers: frozenset[EpochId] = frozenset()
    owner: str = ""
    left: frozenset[EpochId] = frozenset()
    parts: frozenset[Cut] = frozenset()
    waiting: frozenset[Cut] = frozenset()
    is_undone: bool = False


@dataclass(frozen=True, slots=True)
class Driver:
    """The driver of an attempt.

    newest: the newest complete epoch of its history; None for the start.
    committer: what it knows of the target.
    todo: what the committer has answered last.
    staged: the rows of the next epoch, if they are staged already.
    """

    id: str
    newest: Manifest | None
    committer: Committer[Manifest]
    todo: tuple[Action[Manifest], ...] = ()
    staged: tuple[Cut, ...] = ()

    def told(self, event: Event[Manifest]) -> Driver:
        """Return the driver after an event."""
        committer, todo = self.committer.on(event)
        return replace(self, committer=committer, todo=todo)

    @property
    def delivery(self) -> Manifest | None:
        """Return what it publishes next; None if that is nothing."""
        return next((action.delivery for action in self.todo if isinstance(action, Publish)), None)

    @property
    def is_refused(self) -> bool:
        """Tell whether the committer has refused the job."""
        return any(isinstance(action, Refuse) for action in self.todo)


@dataclass(frozen=True, slots=True)
class World:
    """Everything that is there.

    stopped: a driver that stands still, and may wake up later.
    attempts: how many have begun, of all copies of the store.
    restored: whether the store or the target was restored from a backup.
    may_repeat: rows above this one may be in the target twice.
    may_miss: rows that the user goes on without.
    """

    store: Store = Store()
    target: Target = Target()
    driver: Driver | None = None
    stopped: Driver | None = None
    store_backup: Store | None = None
    target_backup: Target | None = None
    attempts: int = 0
    restored: int = 0
    may_repeat: int | None = None
    may_miss: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules that driver and target follow. A planted fault replaces one of them.

    compare: what is due, foreign and missing when an attempt begins.
    committer: the machine that decides when the target is asked, taken and given rows.
    checks_owner: the target refuses a driver that has lost it.
    checks_marker: the target does not write a delivery that it has.
    keeps_records: manifests carry on what the target must have.
    keeps_newest_markers: of the markers of removed epochs the newest of each attempt stays.
    fences: an attempt that has been replaced completes no epoch.
    commits_singly: rows are staged in the target, and each is committed alone, with a marker of its own. The marker of
    the delivery comes last. Else a delivery is committed in one step with its marker.
    remembers: the target has markers. Else, as for stdout, the store notes what was delivered, and rows of a delivery
    that was cut off come again.
    keeps_markers: markers are stored apart from the rows, as those of a Kafka topic. A target that is restored from a
    backup keeps them, and reports that commits were undone.
    """

    compare: Callable[[HistoryFacts[Manifest], TargetFacts], Comparison[Manifest]] = compare
    committer: type[Committer[Manifest]] = Committer
    checks_owner: bool = True
    checks_marker: bool = True
    keeps_records: bool = True
    keeps_newest_markers: bool = True
    fences: bool = True
    commits_singly: bool = False
    remembers: bool = True
    keeps_markers: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a search.

    epochs: complete epochs of all attempts.
    restores: of store and target together.
    """

    steps: int = 9
    epochs: int = 4
    attempts: int = 3
    restores: int = 1


class Found(NamedTuple):
    """What a search has seen. message, steps: of the shortest violation; "" if there is none."""

    worlds: int
    message: str
    steps: tuple[str, ...]


class Refused(NamedTuple):
    """Why an attempt does not begin."""

    reason: str


def search(rules: Rules = Rules(), limits: Limits = Limits()) -> Found:
    """Look at every world that is reached in so many steps, nearest first, until a property does not hold."""
    first = World()
    seen = {first}
    ways: deque[tuple[World, tuple[str, ...]]] = deque([(first, ())])
    while ways:
        world, steps = ways.popleft()
        if len(steps) == limits.steps:
            continue
        for step, after in moves(world, rules, limits):
            if message := violation(world, step, after, may_repeat=not rules.remembers):
                return Found(len(seen), message, (*steps, step))
            if isinstance(after, World) and after not in seen:
                seen.add(after)
                ways.append((after, (*steps, step)))
    return Found(len(seen), "", ())


def violation(before: World, step: str, after: World | Refused, *, may_repeat: bool = False) -> str:
    """Return which property a step breaks; empty if it breaks none. may_repeat: rows may be in the target twice."""
    if isinstance(after, Refused):
        return "" if before.restored else f"refused without a reason: {after.reason}"
    counts, upto = Counter(after.target.rows), after.may_repeat
    twice = [row for row, n in counts.items() if n > 1 and (upto is None or row <= upto)]
    if twice and not may_repeat:
        return f"row {min(twice)} is in the target twice"
    driver = after.driver
    if step.startswith(RESUMED) and (staged := left_behind(after)):
        return f"row {min(cut.row for cut in staged)} stays staged"
    has_looked = step == DELIVERS or step.startswith(RESUMED)
    if not has_looked or driver is None or driver.delivery is not None or driver.newest is None:
        return ""
    missing = set(range(1, driver.newest.position + 1)) - counts.keys() - after.may_miss
    return f"row {min(missing)} is missing" if missing else ""


def left_behind(world: World) -> frozenset[Cut]:
    """Return the rows of ended attempts that are still staged in the target of a ready attempt (D6)."""
    driver, store = world.driver, world.store
    if driver is None or driver.committer.stage is not CommitterStage.READY:
        return frozenset()
    return frozenset(cut for cut in world.target.waiting if _is_abandoned(cut, driver, store))


def moves(world: World, rules: Rules, limits: Limits) -> Iterator[tuple[str, World | Refused]]:
    """Yield the steps that can be taken, and what they lead to."""
    driver, epochs = world.driver, len({m.epoch for m in world.store.manifests})
    if driver is not None:
        yield "the driver is killed", replace(world, driver=None)
        if driver.delivery is not None:
            yield DELIVERS, _deliver(world, driver, rules)
            in_parts = rules.commits_singly or not rules.remembers
            if in_parts and (after := _applied(world.target, driver, rules, most=1)) is not None:
                yield "it is killed within a delivery", replace(world, target=after, driver=None)
        elif epochs < limits.epochs and world.store.highest < 2 * limits.epochs:
            for what in ("rows",) if driver.staged else ("rows", "no row", "rows and those of the epoch before"):
                yield f"an epoch with {what} is complete", _complete(world, driver, what, rules)
        if rules.commits_singly and not driver.staged:
            yield "the rows of the next epoch are staged", _stage(world, driver)
        if world.stopped is None:
            yield "the driver is stopped", replace(world, driver=None, stopped=driver)
    elif world.attempts < limits.attempts:
        yield RESUMED, resume(world, rules)
        if world.stopped is not None and world.stopped.delivery is not None:
            yield f"{RESUMED}, and meanwhile the stopped driver wakes up and delivers", resume(
                world, rules, meanwhile=world.stopped
            )
        if world.restored:
            yield f"{RESUMED} with --take-ownership", resume(world, rules, own=True)
            yield f"{RESUMED} with --accept-missing-parts", resume(world, rules, accept=True)
    if world.stopped is not None and driver is not None:
        yield "the stopped driver wakes up and delivers", _wake(world, world.stopped, rules)
    if len(world.store.manifests) > 1:
        yield "old epochs are removed", _prune(world, rules)
    if world.restored < limits.restores:
        if world.target_backup is None and world.target.rows and rules.remembers:
            yield "the target is backed up", replace(world, target_backup=world.target)
        if world.target_backup is not None and world.target_backup != world.target:
            backup = world.target_backup
            if rules.keeps_markers:
                backup = replace(world.target, rows=backup.rows, is_undone=True)
            yield "the backup of the target is restored", replace(world, target=backup, restored=world.restored + 1)
        if world.store_backup is None and world.store.manifests:
            yield "the store is backed up", replace(world, store_backup=world.store)
        if world.store_backup is not None and driver is None and world.store_backup != world.store:
            # A stopped driver that has nothing to deliver would go on with numbers that the store no longer has.
            still = world.stopped if world.stopped is not None and world.stopped.delivery is not None else None
            yield "the backup of the store is restored", replace(
                world, store=world.store_backup, stopped=still, restored=world.restored + 1
            )


def resume(
    world: World, rules: Rules, *, own: bool = False, accept: bool = False, meanwhile: Driver | None = None
) -> World | Refused:
    """Begin an attempt: ask the target, then take it.

    meanwhile: a driver that delivers between these two.
    """
    store, target = world.store, world.target
    kept = {manifest.epoch.number: manifest for manifest in store.manifests}
    newest = next(iter(line(store.lives, kept)), 0)
    history = _history(store, kept, newest)
    found = rules.compare(history, _says(target, None if rules.remembers else store))
    obstacles = {Obstacle.UNDONE} if found.undone is not None else set()
    obstacles |= {Obstacle.FOREIGN} if found.foreign else set()
    obstacles |= {Obstacle.MISSING} if found.gap is not None else set()
    due = found.due
    if rules.commits_singly and any(_lost(target, cut) for one in due for cut in one.cuts):
        obstacles.add(Obstacle.LOST)
        there = (replace(one, cuts=tuple(cut for cut in one.cuts if not _lost(target, cut))) for one in due)
        due = tuple(one for one in there if one.cuts)
    id = f"{world.attempts + 1:032x}"
    driver = Driver(id, kept.get(newest), rules.committer(Permissions(own, accept)))
    driver = driver.told(TargetAsked(newest, due, frozenset(obstacles)))
    if driver.is_refused:
        return Refused(f"{min(obstacles)}: {found.undone or found.gap or found.foreign}")
    if meanwhile is not None:
        world = _wake(world, meanwhile, rules)
        target = world.target
    driver = driver.told(AttemptBegun())
    taken = replace(_without_old_markers(target, min(kept, default=0), rules), owner=id, is_undone=False)
    taken = replace(taken, left=target.left | {*found.foreign})
    late = [epoch for epoch in _says(taken).markers if not is_on(history.line, epoch) and rules.remembers]
    own_markers = [epoch for epoch in taken.markers if is_on(history.line, epoch)]
    commit = max(own_markers, key=lambda epoch: epoch.number, default=None)
    driver = driver.told(TargetTaken(bool(late), commit))
    if driver.is_refused:
        return Refused(f"{Obstacle.FOREIGN}: {late}")
    if Take() in driver.todo:
        taken = replace(taken, left=taken.left | {*late})
        driver = driver.told(TargetTaken(False, commit))
    first = store.highest + 2  # behind a fence
    lives = (*store.lives, Life(first, newest, id))
    position = kept[newest].position if newest else 0
    missing = set(range(1, position + 1)) - {*taken.rows} - {cut.row for one in due for cut in one.cuts}
    accepts_loss = accept or (own and found.undone is not None)
    may_repeat = world.may_repeat
    if own and (found.foreign or late):
        may_repeat = position if may_repeat is None else min(position, may_repeat)
    store = replace(store, lives=lives, highest=store.highest + 1)
    return replace(
        world, store=store, target=_tidied(taken, driver, store), attempts=world.attempts + 1, driver=driver,
        may_repeat=may_repeat, may_miss=world.may_miss | (missing if accepts_loss else frozenset()),
    )  # fmt: skip


def _history(store: Store, kept: dict[int, Manifest], newest: int) -> HistoryFacts[Manifest]:
    named, epoch = list[Manifest](), newest
    while epoch in kept:
        named.append(kept[epoch])
        epoch = kept[epoch].parent
    records = {one.epoch.number: one.record for one in named if one.record is not None}
    own = tuple(one for one in named[::-1] if one.cuts)
    return HistoryFacts(newest, stretches(store.lives, newest) if newest else (), own, records)


def _says(target: Target, store: Store | None = None) -> TargetFacts:
    """Return the facts about a target. store: for a target without markers; None for others."""
    if store is not None:
        written = [] if store.written is None else [store.written]
        return TargetFacts(written, frozenset(), lambda epoch: False, remembers=False)
    shown = (target.markers | {cut.made_for for cut in target.parts}) - target.left
    unfinished = frozenset(cut.made_for for cut in target.parts if not _has(target, cut.made_for))
    in_order = sorted(shown, key=lambda epoch: epoch.number)
    undone = "it was replaced" if target.is_undone else None
    return TargetFacts(in_order, unfinished, lambda epoch: _has(target, epoch), undone)


def _lost(target: Target, cut: Cut) -> bool:
    """Tell whether a row that is staged in the target is neither waiting nor committed."""
    return cut not in target.waiting and not any(
        _task_of(one) == _task_of(cut) and one.made_for.number >= cut.made_for.number for one in target.parts
    )


def _task_of(cut: Cut) -> tuple[str, int]:
    """Return the task that made a row: the first one makes the odd rows."""
    return cut.made_for.attempt_id, cut.row % 2


def _has(target: Target, epoch: EpochId) -> bool:
    return any(one.attempt_id == epoch.attempt_id and one.number >= epoch.number for one in target.markers)


def _without_old_markers(target: Target, oldest: int, rules: Rules) -> Target:
    """Remove the markers of removed epochs, except the newest of each attempt, and of each of its tasks."""
    newest = {one.attempt_id: one for one in sorted(target.markers, key=lambda one: one.number)}
    parts = {_task_of(one): one for one in sorted(target.parts, key=lambda one: one.made_for.number)}
    stays: set[object] = {*newest.values(), *parts.values()} if rules.keeps_newest_markers else set()
    return replace(
        target,
        markers=frozenset(one for one in target.markers if one.number >= oldest or one in stays),
        parts=frozenset(one for one in target.parts if one.made_for.number >= oldest or one in stays),
    )


def _complete(world: World, driver: Driver, what: str, rules: Rules) -> World:
    """Write a manifest, unless another attempt has begun."""
    store, before = world.store, driver.newest
    if rules.fences and store.lives[-1].id != driver.id:
        return replace(world, driver=None)
    epoch = EpochId(driver.id, store.highest + 1)
    position = before.position if before is not None else 0
    fresh = () if what == "no row" or driver.staged else _next_rows(epoch, before)
    cuts = driver.staged or fresh
    if what.endswith("before") and before is not None and before.epoch.attempt_id == driver.id:
        cuts = (*before.cuts, *cuts)
    parent = before.epoch.number if before is not None else 0
    last = (before.record,) if before is not None and before.record is not None and rules.keeps_records else ()
    files = tuple(SinkFile(TARGET, part_name(0, cut.made_for.number), 1, 1, "") for cut in cuts)
    records = committed_after(last, {}, parent, [cast(PartFacts, _Part("out", files))])
    manifest = Manifest(epoch, parent, cuts, cuts[-1].row if cuts else position, records[0] if records else None)
    after = replace(driver, newest=manifest, staged=()).told(ManifestWritten(epoch.number, manifest if cuts else None))
    target = world.target
    if rules.commits_singly:
        target = replace(target, waiting=target.waiting | {*fresh})
    kept = (*store.manifests, manifest)
    store = replace(store, manifests=kept, highest=epoch.number)
    return replace(world, store=store, driver=after, target=_tidied(target, after, store))


def _stage(world: World, driver: Driver) -> World:
    """Stage the rows of the next epoch, before its manifest is written."""
    rows = _next_rows(EpochId(driver.id, world.store.highest + 1), driver.newest)
    target = replace(world.target, waiting=world.target.waiting | {*rows})
    return replace(world, target=target, driver=replace(driver, staged=rows))


def _next_rows(epoch: EpochId, newest: Manifest | None) -> tuple[Cut, ...]:
    position = newest.position if newest is not None else 0
    return Cut(epoch, position + 1), Cut(epoch, position + 2)


def _tidied(target: Target, driver: Driver, store: Store) -> Target:
    """Return the target after the driver has discarded what its committer says (D6)."""
    waiting = target.waiting
    for action in driver.todo:
        if isinstance(action, DiscardAbandoned):
            waiting = frozenset(cut for cut in waiting if not _is_abandoned(cut, driver, store))
        elif isinstance(action, DiscardUnnamed):
            gone = {cut for cut in waiting if cut.made_for.attempt_id == driver.id}
            waiting -= {cut for cut in gone if cut.made_for.number <= action.epoch}
    return replace(target, waiting=waiting)


def _is_abandoned(cut: Cut, driver: Driver, store: Store) -> bool:
    """Tell whether an ended attempt of the store has staged a row that no manifest can name any more."""
    *older, own = store.lives
    named = {cut for manifest in store.manifests for cut in manifest.cuts}
    is_older = own.id == driver.id and any(life.id == cut.made_for.attempt_id for life in older)
    return is_older and cut.made_for.number < own.first_epoch and cut not in named


class _Part(NamedTuple):
    """What `committed_after` reads of a part."""

    operator: str
    sink: tuple[SinkFile, ...]


def _deliver(world: World, driver: Driver, rules: Rules) -> World:
    """Publish the oldest delivery; the driver ends if that fails."""
    target = _applied(world.target, driver, rules)
    if target is None or driver.delivery is None:
        return replace(world, driver=None)
    commit = driver.delivery.epoch
    told = driver.told(RowsPublished(commit if rules.remembers else None))
    store = world.store if rules.remembers else replace(world.store, written=commit)
    return replace(world, target=_tidied(target, told, store), driver=told, store=store)


def _wake(world: World, driver: Driver, rules: Rules) -> World:
    """A driver that has been replaced goes on where it stood: with a delivery, or with the next epoch."""
    if driver.delivery is not None:
        after = _applied(world.target, driver, rules)
        return replace(world, stopped=None, target=world.target if after is None else after)
    own = world.driver
    woken = _complete(replace(world, driver=driver), driver, "rows", rules)
    if woken.driver is None:
        return replace(world, stopped=None)
    return replace(_deliver(woken, woken.driver, rules), stopped=None, driver=own)


def _applied(target: Target, driver: Driver, rules: Rules, most: int | None = None) -> Target | None:
    """Write the oldest delivery of a driver; None if the driver has to end.

    most: how many rows, if they are committed singly; None for all.
    """
    delivery = driver.delivery
    if delivery is None or target.is_undone or (rules.checks_owner and target.owner != driver.id):
        return None
    for action in driver.todo:
        if isinstance(action, VerifyCommit) and not _has(target, action.commit):
            return None
    if not rules.remembers:
        return replace(target, rows=tuple(sorted((*target.rows, *(cut.row for cut in delivery.cuts[:most])))))
    if rules.checks_marker and delivery.epoch in target.markers:
        return target
    if not rules.commits_singly:
        rows = (*target.rows, *(cut.row for cut in delivery.cuts))
        return replace(target, rows=tuple(sorted(rows)), markers=target.markers | {delivery.epoch})
    if any(_lost(target, cut) for cut in delivery.cuts):
        return None
    cuts = [cut for cut in delivery.cuts if cut in target.waiting][:most]
    rows, waiting = (*target.rows, *(cut.row for cut in cuts)), target.waiting - {*cuts}
    is_whole = waiting.isdisjoint(delivery.cuts)
    markers = target.markers | {delivery.epoch} if is_whole else target.markers
    return replace(target, rows=tuple(sorted(rows)), markers=markers, parts=target.parts | {*cuts}, waiting=waiting)


def _prune(world: World, rules: Rules) -> World:
    return replace(world, store=replace(world.store, manifests=world.store.manifests[-1:]))
