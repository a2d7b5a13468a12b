"""Stores and copies of stores on the same sinks, with what is known of them beside the engine: who may write the sinks,
who may not, and what they show. Every step is a command of `abs`, or what a person does with files.

A step that ends well leaves sinks and state as the answer has them; one that is refused leaves every file as it was,
is refused with a code that the man page has, and only where there is a reason.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from abscli.stores.native.plan import own_line
from formats.errors import FormatError
from formats.native import layout
from formats.native.sink import CLAIMS, SinkFolder, epoch_of_part
from formats.native.store import NativeStore, files_of
from formats.storage import LocalStorage
from formats.view import Status
from tests.exactly_once.answers import SINKS, Answer, Job, read_at, rows, write
from tests.exactly_once.children import PLAIN, Children, Ended, How, stopped

STORES = ("a", "b", "c")
WELL = frozenset({0, 128 + signal.SIGTERM})
USAGE, FINDING, NO_RECOVERY, STALE, STOPPED, NOT_FOUND, IN_USE = 2, 3, 4, 5, 6, 10, 11
REFUSED = frozenset({USAGE, FINDING, NO_RECOVERY, STALE, NOT_FOUND})


@dataclass
class Known:
    """What is known of a store.

    attempts: those that it has a record of, if they have claimed a sink; a killed one may have done neither.
    perhaps: those that it may have a record of.
    changes: how often something may have changed in it.
    newest: the attempt that ended well last.
    """

    attempts: frozenset[int] = frozenset()
    perhaps: frozenset[int] = frozenset()
    changes: int = 0
    newest: int = 0


@dataclass(frozen=True)
class PlanFile:
    """A plan, and what its store was when it was made.

    newest: the attempt of the store that had ended well last; None while one runs, which may go on behind the plan.
    tasks: how many there were to be of some operators.
    own: attempts that carried it out.
    """

    path: str
    store: str
    changes: int
    newest: int | None
    tasks: dict[str, int]
    own: set[int] = field(default_factory=set)


@dataclass
class World:
    """One folder with a job. Steps are methods; `AssertionError` says what is wrong.

    claims: attempts of which the newest to have claimed a sink is one.
    fault: that every command runs with.
    tasks: how many an operator has, from the last time that was said; a run has to say what its epoch has, or rescales.
    busy: the store of a job that stands still.
    commands: how many have been run.
    steps: what has been done, for the message.
    seen: how often what happened.
    """

    folder: Path
    children: Children
    job: Job
    fault: str | None = None
    stores: dict[str, Known] = field(default_factory=dict)
    plans: list[PlanFile] = field(default_factory=list)
    claims: frozenset[int] = frozenset()
    tasks: dict[str, int] = field(default_factory=dict)
    busy: str | None = None
    commands: int = 0
    steps: list[str] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        write(self.folder, self.job)
        self._numbers = itertools.count(1)

    # -- commands -----------------------------------------------------------------------------------------

    def run(
        self,
        store: str,
        *,
        back: int | None = None,
        take_ownership: bool = False,
        keep: int = 100,
        policy: str | None = None,
        timeout: str = "10m",
        tasks: int | None = None,
        recovery: str | None = None,
        how: How = PLAIN,
    ) -> None:
        """The job goes on from the newest whole epoch; or from the complete one that is so far `back`; with so many
        tasks of the operators with state, from now on. recovery: what restarts of workers that are lost."""
        if tasks is not None:
            self.tasks = dict.fromkeys(self.scaled, tasks)
            self.seen["rescaled"] += 1
        words = self._run_words(store, back=back, take_ownership=take_ownership, keep=keep, policy=policy)
        words = (*words, "--epoch-timeout", timeout)
        if recovery is not None:
            words = (*words, "--workers", str(WORKERS), "--restarts", "9", "--recovery", recovery)
        before = self._files()
        must = take_ownership or self._may_write(self.stores.get(store, Known()))
        ended = self._command(*words, how=how)
        self._after_run(store, ended, before, must=must)

    def _run_words(
        self, store: str, *, back: int | None, take_ownership: bool, keep: int, policy: str | None
    ) -> tuple[str, ...]:
        complete = self.complete(store)
        where = ["--resume"]
        if back is not None and complete:
            where = ["--from-epoch", str(complete[-1 - back % len(complete)])]
            self.seen["back"] += 1
        more = ["--take-ownership"] * take_ownership + (["--policy", policy] if policy else [])
        more += self._tasks_words()
        return ("run", "job.yaml", "--store", store, *where, "--keep", str(keep), *more, *ON)

    def _tasks_words(self) -> list[str]:
        return [word for name, number in self.tasks.items() for word in ("--parallelism", f"{name}={number}")]

    @property
    def scaled(self) -> tuple[str, ...]:
        """The operators whose number of tasks changes, with those that a forward edge joins to them."""
        return ("counts", "out", "step") if self.job == "cyclic" else ("counts", "out")

    def _after_run(self, store: str, ended: Ended, before: dict[str, object], *, must: bool | None) -> int | None:
        """The attempt, if there was one. must: whether it has to be carried out; None: that is not known."""
        if ended.code in REFUSED:
            if ended.code == NO_RECOVERY and self.tasks:
                must = None  # what is on a forward edge of an unaligned epoch cannot be given to other tasks
            assert must is not True, self._message("refused without a reason", ended)
            self._nothing_changed(before, ended)
            self.seen["refused"] += 1
            return None
        attempt = next(self._numbers)
        killed = ended.code == -signal.SIGKILL
        if not killed or (self.folder / store).exists():
            self._attempted(store, attempt, sure=not killed)
        if killed:
            self.seen["killed"] += 1
            self._nothing_twice()
            return attempt
        assert ended.code in WELL, self._message("ended otherwise than it may", ended)
        assert must is not False, self._message("was to be refused", ended)
        result = json.loads(ended.out)
        self.seen["ended"] += 1
        self.seen["recovered"] += "recovered" in ended.err
        self._check(store, result["epoch"], at_rest=result.get("finished", False))
        return attempt

    def _attempted(self, store: str, attempt: int, *, sure: bool) -> None:
        """An attempt on the store has begun, or may have. It is in the store before it claims a sink."""
        known = self.stores.setdefault(store, Known())
        known.attempts |= {attempt}
        known.changes += 1
        known.newest = attempt if sure else known.newest
        self.claims = frozenset({attempt}) if sure else self.claims | {attempt}

    def _may_write(self, known: Known) -> bool | None:
        """Whether the sinks belong to the line of a store; None: that is not known."""
        if self.claims <= known.attempts or not any(self.visible(sink) for sink in SINKS):
            return True
        shown = all(self.visible(sink) for sink in SINKS)
        return False if shown and not self.claims & (known.attempts | known.perhaps) else None

    def gc(self, store: str, keep: int, how: How = PLAIN) -> None:
        """Old epochs go, and all that nothing needs."""
        shown = self._shown()
        ended = self._command("gc", store, "--keep", str(keep), "--min-age", "0s", "--yes", how=how)
        known = self.stores[store]
        known.changes += 1
        if ended.code == NOT_FOUND and not self.is_store(store):
            return
        assert ended.code in (0, -signal.SIGKILL), self._message("ended otherwise than it may", ended)
        assert self._shown() == shown, self._message("changed what a sink shows", ended)
        self.seen["gc"] += 1

    def plan(self, store: str, back: int | None) -> None:
        """A plan back to the newest whole epoch, or to a complete one before it."""
        complete = self.complete(store)
        known = self.stores.get(store, Known())
        if not complete:
            return
        before = self._files()
        path = f"plan-{len(self.plans)}.json"
        ref = store if back is None else f"{store}@{complete[-1 - back % len(complete)]}"
        ended = self._command("plan-recovery", ref, "--out", path, "-o", "json", *self._tasks_words())
        self._nothing_changed(before, ended)
        if ended.code == NO_RECOVERY and self.tasks:
            return
        assert ended.code == 0, self._message("an epoch that is whole has no plan", ended)
        newest = None if self.busy == store else known.newest
        self.plans.append(PlanFile(path, store, known.changes, newest, self.tasks))
        self.seen["planned"] += 1

    def restore(
        self, number: int, to: str | None, *, until: str = "drained", take_ownership: bool = True, how: How = PLAIN
    ) -> None:
        """Carries out a plan, in place or into another store, which takes the sinks over."""
        plan = self.plans[number % len(self.plans)]
        source = self.stores[plan.store]
        where = to or plan.store
        before = self._files()
        must: bool | None = None
        if plan.changes == source.changes and plan.tasks == self.tasks:
            if where == plan.store:
                must = take_ownership or self._may_write(source)
            else:
                must = None if (self.folder / where).exists() else True
        elif where == plan.store and plan.newest is not None and source.newest not in {plan.newest, *plan.own}:
            must = False  # the job has run since
        ended = self._command(*self._restore_words(plan, to, until, take_ownership), how=how)
        attempt = self._after_run(where, ended, before, must=must)
        if attempt is not None and where in self.stores:
            plan.own.add(attempt)
            if where != plan.store:
                self._inherit(where, plan.store)
            self.seen["restored elsewhere" if where != plan.store else "restored"] += 1

    def _restore_words(
        self, plan: PlanFile, to: str | None, until: str, take_ownership: bool = False
    ) -> tuple[str, ...]:
        more = (*(("--to", to) if to else ()), *(("--take-ownership",) if take_ownership else ()))
        inline = ("--engine", "inline", "-o", "json")
        return ("restore", plan.path, "--job", "job.yaml", "--yes", "--until", until, *more, *inline)

    def repair(self, store: str, damage: str, number: int, how: How = PLAIN) -> None:
        """The newest epoch is made whole again: a complete one that has lost a part of a task, or its manifest, or of
        which a task is not believed; or the one that a killed job was taking. Where that cannot be, nothing changes,
        and what is lost is put back by hand."""
        epoch = self._to_repair(store, damage)
        if epoch is None:
            return
        lost = self._lose(store, epoch, damage, number)
        distrust = ("--distrust", TASKS[number % len(TASKS)]) if damage == "distrust" else ()
        self.seen[f"{damage}, to be repaired"] += 1
        before = self._files()
        path = f"repair-{self.commands}.json"
        words = ("plan-recovery", f"{store}@{epoch}", "--strategy", "repair", *distrust, "--out", path, "-o", "json")
        ended = self._command(*words)
        self._nothing_changed(before, ended)
        if ended.code == 0:
            restore = ("restore", path, "--job", "job.yaml", "--yes", "-o", "json")
            # It reads just what lies between two epochs: there is nothing to wait for.
            ended = self._command(*restore, how=replace(how, paced=False))
            if ended.code == -signal.SIGKILL:
                self.seen["repair killed"] += 1
                ended = self._command(*restore, how=How(paced=False))
        if ended.code != 0:
            assert ended.code in (USAGE, NO_RECOVERY, STALE), self._message("ended otherwise than it may", ended)
            # A repair that was killed may have left its scratch, and no more.
            self._nothing_changed(before, ended)
            for file, data in lost.items():
                file.write_bytes(data)
            return
        self.seen[f"{damage}, repaired"] += 1
        known = self.stores[store]
        attempt = next(self._numbers)
        known.attempts |= {attempt}
        known.changes += 1
        self.claims |= {attempt}
        ended = self._command("validate", f"{store}@{epoch}")
        assert ended.code == 0, self._message("is repaired, and not whole", ended)
        self.run(store, take_ownership=True, how=How(epochs=1))

    def _to_repair(self, store: str, damage: str) -> int | None:
        """The epoch that is to be damaged, or the one that is not whole."""
        complete = self.complete(store)
        if damage != "killed":
            return self.newest(store) if complete else None
        opened = NativeStore(LocalStorage(self.folder / store)) if self.is_store(store) else None
        begun = [row.epoch for row in opened.epochs() if row.status is Status.INCOMPLETE] if opened else []
        return begun[-1] if begun and complete and begun[-1] > complete[-1] else None

    def _lose(self, store: str, epoch: int, damage: str, number: int) -> dict[Path, bytes]:
        """Files that are deleted, with what was in them."""
        folder = self.folder / store / layout.epoch_dir(epoch)
        if damage == "part":
            opened = NativeStore(LocalStorage(self.folder / store))
            others = [part for each in self.complete(store) if each != epoch for part in opened.parts(each)]
            # After the job went back epochs of another branch may refer to it: those would stay damaged.
            kept = {self.folder / store / file.path for part in others for file in files_of(part)}
            files = [path for path in sorted(folder.rglob("*")) if path.suffix in (".parquet", ".arrow")]
            files = [path for path in files if path not in kept]
            files = files[number % len(files) :][:1] if files else []
        elif damage == "manifest":
            files = [self.folder / store / layout.outcome(epoch)]
        else:
            files = []
        lost = {file: file.read_bytes() for file in files}
        for file in files:
            self.steps.append(f"rm {file.relative_to(self.folder)}")
            file.unlink()
        return lost

    def contend(self, store: str, other: str, *, take_ownership: bool, at: int, how: How) -> None:
        """A job is stopped at its n-th change; another one on the same sinks is started; the first goes on."""

        def begin() -> Ended:
            words = self._run_words(other, back=None, take_ownership=take_ownership, keep=100, policy=None)
            before = self._files()
            ended = self._command(*words, how=how)
            if ended.code == IN_USE:
                self._nothing_changed(before, ended)
            else:
                self._after_run(other, ended, before, must=None)
            return ended

        self._beside(store, begin, take_ownership=take_ownership, at=at)

    def contend_restore(self, store: str, to: str, *, at: int, how: How) -> None:
        """A job is stopped at its n-th change, and what it has made so far restored into another store."""

        def begin() -> Ended | None:
            self.plan(store, None)
            if not self.plans or (self.folder / to).exists():
                return None
            before = self._files()
            ended = self._command(*self._restore_words(self.plans[-1], to, "drained"), how=how)
            if ended.code == IN_USE:
                self._nothing_changed(before, ended, but=to)  # the copy has been made by then: a store of its own
                self._inherit(to, store)
            elif self._after_run(to, ended, before, must=None) is not None:
                self._inherit(to, store)
            return ended

        self._beside(store, begin, take_ownership=True, at=at)
        if self.is_store(to):
            self._inherit(to, store)  # the attempt that stood still meanwhile may have been in what was copied

    def _beside(self, store: str, begin: Callable[[], Ended | None], *, take_ownership: bool, at: int) -> None:
        """begin: what is begun while the job stands still; its end, None if it did not come to that."""
        words = self._run_words(store, back=None, take_ownership=take_ownership, keep=100, policy=None)
        must = take_ownership or self._may_write(self.stores.get(store, Known()))
        before = self._files()
        first = self._start(*words, how=How(signal=signal.SIGSTOP, at=at, epochs=2))
        with stopped(self.children, first) as is_stopped:
            if is_stopped:
                must = None
                # It may have nothing yet, and then waits for nobody.
                holds = all(self._is_locked(folder) for folder in self._lock_folders(store))
                self.busy = store
                second = begin()
                self.busy = None
                self.seen["contended"] += 1
                beside = second is not None and second.code in WELL
                assert not (holds and beside), self._message("two jobs write one sink", second)
                before = self._files()
        ended = self._wait(first)
        if not is_stopped or ended.code != IN_USE:
            self._after_run(store, ended, before, must=must)

    def _inherit(self, to: str, source: str) -> None:
        """A store was copied from an epoch of another one, with some of its attempts."""
        known = self.stores[source]
        if self.is_store(to):
            self.stores.setdefault(to, Known()).perhaps |= known.attempts | known.perhaps

    def lose_locks(self, store: str, *, at: int, how: How) -> None:
        """A job is stopped at its n-th change, its locks expire as NFS's do, the next attempt begins; then it goes
        on."""
        words = self._run_words(store, back=None, take_ownership=True, keep=100, policy=None)
        before = self._files()
        first = self._start(*words, how=How(signal=signal.SIGSTOP, at=at, epochs=2))
        with stopped(self.children, first) as is_stopped:
            if is_stopped:
                self.seen["locks lost"] += 1
                lost = [path for folder in self._lock_folders(store) if (path := folder / layout.LOCK).exists()]
                for lock in lost:
                    lock.rename(lock.with_name(".lock-of-old"))
                second = self._command(*words, how=how)
                assert second.code in WELL | {IN_USE, -signal.SIGKILL}, self._message("may not end so", second)
                self._attempted(store, next(self._numbers), sure=second.code in WELL)
        ended = self._wait(first)
        if not is_stopped:
            self._after_run(store, ended, before, must=True)
            return
        for lock in lost:
            lock.with_name(".lock-of-old").unlink(missing_ok=True)
        assert ended.code in WELL | {STOPPED, IN_USE, USAGE}, self._message("may not end so", ended)
        known = self.stores[store]
        known.attempts |= {attempt := next(self._numbers)}
        self.claims |= {attempt}
        if second.code in WELL:
            self._check(store, self.newest(store), at_rest=False)

    # -- what people do with files ------------------------------------------------------------------------

    def copy(self, source: str, target: str) -> None:
        """A backup, or one that is put back: the target is what the source is, whatever it was."""
        self.steps.append(f"rm -rf {target}; cp -r {source} {target}")
        shutil.rmtree(self.folder / target, ignore_errors=True)
        shutil.copytree(self.folder / source, self.folder / target)
        known, old = self.stores[source], self.stores.get(target, Known())
        self.stores[target] = Known(known.attempts, known.perhaps, old.changes + 1, known.newest)
        self.seen["copied"] += 1

    def lose_books(self, store: str, number: int) -> None:
        """The store's own file, the newest record of an attempt or a job graph is lost, and made anew from what is
        whole. What cannot be is put back by hand."""
        files = sorted(self._files())
        names = [name for name in files if name.startswith(f"{store}/{layout.ATTEMPTS}/")][-1:]
        others = f"{store}/topologies/", f"{store}/{layout.STORE}"
        names += [name for name in files if name.startswith(others)]
        if not names or not self.is_store(store):
            return
        lost = self.folder / names[number % len(names)]
        data = lost.read_bytes()
        lost.unlink()
        self.steps.append(f"rm {lost.relative_to(self.folder)}")
        ended = self._command("rebuild", store, "--job", "job.yaml", "--yes")
        assert ended.code in (0, NO_RECOVERY), self._message("ended otherwise than it may", ended)
        known = self.stores[store]
        known.changes += 1
        if ended.code == 0:
            # An attempt that took no epoch is not missed, so that what it showed is a stranger's.
            known.perhaps |= known.attempts
            known.attempts = frozenset()
            self.seen["rebuilt"] += 1
        else:
            lost.parent.mkdir(exist_ok=True)
            lost.write_bytes(data)

    def hide_part(self, store: str, number: int) -> None:
        """A part that the line names is taken away: the job does not go on as if nothing had happened."""
        known = self.stores[store]
        if not self.claims or not self.claims <= known.attempts or len(self.claims) > 1:
            return
        opened = NativeStore(LocalStorage(self.folder / store))
        # Below a manifest that is gone, as where gc was killed half-way, nobody knows what is due.
        line, epoch = set[int](), self.newest(store)
        while opened.has_manifest(epoch):
            line.add(epoch)
            epoch = opened.manifest(epoch).parent
        parts = [(sink, name) for sink in SINKS for name in self.visible(sink) if epoch_of_part(name) in line]
        if not parts:
            return
        sink, name = parts[number % len(parts)]
        part, away = self.folder / sink / name, self.folder / "away"
        part.rename(away)
        before = self._files()
        ended = self._command("run", "job.yaml", "--store", store, "--resume", *self._tasks_words(), *ON)
        assert ended.code == FINDING, self._message(f"{sink}/{name} is gone, and nothing was said", ended)
        self._nothing_changed(before, ended)
        away.rename(part)
        self.seen["part hidden"] += 1

    def end(self) -> None:
        """Any store takes the sinks over, runs to its end, and has all of the input exactly once; it is whole."""
        if not self.stores:
            return
        store = sorted(self.stores)[len(self.steps) % len(self.stores)]
        self.run(store, take_ownership=True, how=How(paced=False))
        ended = self._command("validate", store)
        assert ended.code == 0, self._message("is not whole at the end", ended)

    # -- what is there ------------------------------------------------------------------------------------

    def is_store(self, name: str) -> bool:
        """Whether it is one already: the first attempt may have been killed before."""
        return (self.folder / name / layout.STORE).exists()

    def complete(self, store: str) -> list[int]:
        """The complete epochs of a store."""
        if not self.is_store(store):
            return []
        opened = NativeStore(LocalStorage(self.folder / store))
        return [epoch for epoch in opened.epoch_numbers() if opened.has_manifest(epoch)]

    def newest(self, store: str) -> int:
        """The newest complete epoch on the line of the newest attempt."""
        opened = NativeStore(LocalStorage(self.folder / store))
        return next(epoch for epoch in own_line(opened) if opened.has_manifest(epoch))

    def visible(self, sink: str) -> list[str]:
        """The parts that readers see."""
        return sorted(SinkFolder(str(self.folder / sink)).visible())

    def _shown(self) -> dict[str, bytes]:
        places = [f"{sink}/{name}" for sink in SINKS for name in self.visible(sink)]
        return {place: (self.folder / place).read_bytes() for place in places}

    def _lock_folders(self, store: str) -> list[Path]:
        return [self.folder / store, *(self.folder / sink / CLAIMS for sink in SINKS)]

    def _is_locked(self, folder: Path) -> bool:
        from formats.native.lock import held

        return (folder / layout.LOCK).exists() and held(LocalStorage(folder))

    def _files(self) -> dict[str, object]:
        """Every file of stores and sinks but their locks, by what changes when it is written, or another one."""
        files: dict[str, object] = {}
        for top in (*STORES, *SINKS):
            for where, _, names in os.walk(self.folder / top):
                for name in names:
                    if name not in (layout.LOCK, ".lock-of-old"):
                        path = os.path.join(where, name)
                        status = os.stat(path)
                        files[os.path.relpath(path, self.folder)] = status.st_ino, status.st_size, status.st_mtime_ns
        return files

    def _nothing_changed(self, before: dict[str, object], ended: Ended, but: str | None = None) -> None:
        """but: a store that does not count."""
        after = self._files()
        changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
        changed = [path for path in changed if path.split("/")[0] != but]
        assert not changed, self._message(f"was refused, and has changed {changed[:5]}", ended)

    def _nothing_twice(self) -> None:
        """Whatever has ended where: no row is visible twice."""
        shown = Counter(str(row["line"]) for row in rows(self.folder / "raw"))
        assert max(shown.values(), default=1) == 1, self._message("rows are visible twice")

    def _check(self, store: str, epoch: int, *, at_rest: bool) -> None:
        where = self.folder / store
        try:
            in_flight = not at_rest and NativeStore(LocalStorage(where)).manifest(epoch).policy == "unaligned"
            Answer(self.job, read_at(where, epoch), at_rest, in_flight).check(self.folder, where, epoch)
        except (AssertionError, FormatError) as error:
            raise AssertionError(self._message(f"epoch {epoch} of {store}: {error}")) from None

    def _command(self, *words: str, how: How = PLAIN) -> Ended:
        return self._wait(self._start(*words, how=how))

    def _wait(self, process: int) -> Ended:
        ended = self.children.wait(process)
        self.steps.append(f"{' '.join(ended.words[:4])} has ended: {ended.code}")
        return ended

    def _start(self, *words: str, how: How) -> int:
        if self.fault is not None:
            how = replace(how, fault=self.fault)
        self.commands += 1
        self.steps.append(f"abs {' '.join(words)}    # {how}")
        return self.children.start(self.folder, *words, how=how)

    def _message(self, text: str, ended: Ended | None = None) -> str:
        steps = "\n".join(f"{number:3} {step}" for number, step in enumerate(self.steps, 1))
        return f"{text}\n{steps}\n{ended or ''}"


TASKS = tuple(f"{operator}/{i}" for operator in ("lines", "step", "counts", "raw", "out") for i in range(2))
WORKERS = 3
DAMAGES = ("part", "manifest", "distrust", "killed")
ON = ("--engine", "inline", "--interval", "5ms", "-o", "json")
