"""Random sequences of events on a job, its store and the target of its sink: every step is exact or refused.

Steps are runs, SIGKILLs at every step of a delivery, restored backups of the target and of the store,
roll-backs, `gc`, rescales, copies of the store, and targets that are removed or exchanged. A step that is refused has
changed nothing in the target; then the sequence undoes what the owner did, or accepts the loss as a user can. The model
is two sets of lines, those that may be missing and those that may be there twice, which only such a decision extends.
"""

from __future__ import annotations

import random
import shutil
import signal
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from abscli.api import open_store
from abscli.engine.errors import EngineStopped, UsageError
from abscli.engine.generations.rescaling import Rescale, publish
from abscli.engine.job import JobOptions, job_sinks
from abscli.engine.sinks.staged.printed import print_with
from abscli.report.findings import Code, SinkVerdict
from formats.errors import Damaged, OtherJob
from formats.storage import open_writable
from tests.support.jobs.backups import FOLDERS, back_up
from tests.support.jobs.kinds import TABLES
from tests.support.jobs.lines import Lines, in_a_process, restore_to

KILLS = {
    "jsonl": ("parted", "published"),
    "bucket": ("begin", "put", "completing", "complete"),
    "postgres": ("filled", "prepare", "commit"),
    "upsert": ("staged", "merging", "shown"),
    "delta": ("staged", "writing", "committed"),
    "iceberg": ("staged", "writing", "pointing", "committed"),
    "kafka": ("staged", "producing", "committing", "finished"),
    "stdout": ("staged", "printed", "marked"),
}
"""By type of sink: where `signal_at` kills the job, besides `manifest` and `reveal`."""
IN_PROGRESS = {Code.MISSING_ACK, Code.UNREFERENCED_FILE, Code.SINK_PART_PENDING, Code.ABANDONED_UPLOAD,
               Code.ABANDONED_TRANSACTION, Code.UNREFERENCED_SINK_PART}  # fmt: skip
"""Findings about what a kill leaves."""
REFUSED = (UsageError, Damaged, EngineStopped, OtherJob)
SETS_ASIDE = ("jsonl", "bucket")
"""Sinks whose published rows can be set aside when the job rolls back."""


@dataclass
class Sequence:
    """One random sequence. `AssertionError` names the seed and the steps.

    lines: the job with its target; others: the job with other targets.
    kind: type of the sink, or `bucket`.
    kills: how many processes got SIGKILL.
    refusals, validations: how often a step was refused, and how often `validate --job` was right.
    """

    lines: Lines
    kind: str
    seed: int
    others: tuple[Lines, ...] = ()
    kills: int = 0
    refusals: int = 0
    validations: int = 0
    steps: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.keep = self.random.choice([1, 3, 10])
        self.store = "a"
        self.is_finished = False
        self.has_accepted = False
        self.may_miss: set[str] = set()
        self.may_repeat: set[str] = set()
        self.target_backups: list[tuple[Callable[[], None], Counter[str]]] = []
        self.store_backups: list[tuple[str, int, Counter[str]]] = []
        self._places = [self.lines, *self.others]

    def play(self, steps: int) -> None:
        """Take random steps, then run the job to its end and compare."""
        try:
            for _ in range(steps):
                if self.is_finished:
                    break
                step, weight = zip(*self._choices(), strict=True)
                self.random.choices(step, weight)[0]()
            self._note("run to the end")
            self._resume()
            assert self.is_finished, self._message("the last run ended before the input did")
        except Exception as error:
            error.add_note(self._message("the steps:"))
            raise
        self._check()
        missing = self._due() - self._shown().keys() - self.may_miss
        assert not missing, self._message(f"{len(missing)} rows are lost: {sorted(missing)[:5]}")

    def _choices(self) -> list[tuple[Callable[[], None], int]]:
        choices: list[tuple[Callable[[], None], int]] = [(self.run, 4), (self.kill, 8)]
        if not self._complete():
            return choices
        choices += [(self.remove_old_epochs, 1), (self.roll_back, 1), (self.rescale, 1), (self.copy_store, 1),
                    (self.back_up_store, 2)]  # fmt: skip
        if self.others:
            return [*choices, (self.exchange_target, 3)]
        choices += [(self.restore_elsewhere, 1)] if self.kind not in (*SETS_ASIDE, "stdout") else []
        choices += [(self.put_store_back, 2)] if self.store_backups and self.kind != "stdout" else []
        if self.kind in (*FOLDERS, *TABLES) and self._shown() and not self.has_accepted:
            choices += [(self.back_up_target, 2)]
            choices += [(self.put_target_back, 3)] if self.target_backups else []
        if self.kind in FOLDERS and self._shown() and not self.has_accepted:
            choices += [(self.remove_target, 1)]
        return choices

    # -- steps of the job -----------------------------------------------------------------------------------

    def run(self) -> None:
        """Run for a few epochs."""
        epochs = self.random.randint(1, 3)
        self._note(f"run for {epochs} epochs")
        self._resume(epochs=epochs)
        self._check()
        self._validate()

    def kill(self) -> None:
        """Run until SIGKILL at a random step, if the job comes there before it ends."""
        where = self.random.choice(("manifest", "reveal", *KILLS[self.kind]))
        n = self.random.randint(1, 5)
        self._note(f"SIGKILL at {where} {n}")
        newest = str(self._complete()[-1]) if self._complete() else "0" if self._exists() else ""
        process = in_a_process(
            self.lines, where, n, signal.SIGKILL, from_epoch=newest, store=self.store, keep=self.keep,
            accept_missing=self.has_accepted,
        )  # fmt: skip
        _, errors = process.communicate(timeout=300)
        assert process.returncode in (0, -signal.SIGKILL), self._message(errors)
        self.kills += process.returncode != 0
        self.is_finished = process.returncode == 0
        self._check()

    def roll_back(self) -> None:
        """Resume from an older epoch: refused if committed rows cannot be set aside."""
        self._settle()
        epoch = self.random.choice(self._complete())
        self._note(f"roll back to epoch {epoch}")
        self._tried(lambda: self._run(from_epoch=epoch, epochs=1))
        self._check()

    def remove_old_epochs(self) -> None:
        """Run `abs gc --keep-last 1`."""
        self._note("gc --keep-last 1")
        open_store(self.lines.where(self.store)).gc(1, min_age=0)

    def rescale(self) -> None:
        """Publish an epoch with another number of tasks; the job resumes from it with the next step."""
        tasks = 3 if self.lines.tasks == 2 else 2
        self._note(f"rescale to {tasks} tasks")
        self._settle()
        newest = self._complete()[-1]
        options = JobOptions(
            str(self.lines.folder), "job.yaml", engine="inline", workers=2, interval=0.01, from_epoch=newest
        )
        print_with(self.lines.note_printed)
        before, where = self.lines.graph, self.lines.where(self.store)
        self._use_tasks(tasks)
        order = Rescale(newest, self.lines.graph, str(self.lines.folder))
        publish(open_writable(where), order, sinks=job_sinks(before, where, options))

    def _use_tasks(self, tasks: int) -> None:
        """Have so many tasks in the job file."""
        self._places = [replace(place, tasks=tasks) for place in self._places]
        self.lines = next(place for place in self._places if place.out == self.lines.out)

    # -- steps of the owner, on stores ---------------------------------------------------------------------------

    def copy_store(self) -> None:
        """Go on with a copy of the store."""
        to = f"s{len(self.steps)}"
        self._note(f"cp -r {self.store} {to}")
        shutil.copytree(self.lines.where(self.store), self.lines.where(to))
        self.store = to

    def restore_elsewhere(self) -> None:
        """Go on with what `abs restore --to` makes of the newest epoch."""
        to, epoch = f"s{len(self.steps)}", self._complete()[-1]
        self._note(f"restore {self.store}@{epoch} --to {to}")
        restore_to(self.lines, epoch, to, store=self.store)
        self.store, self.is_finished = to, True  # it ran to the end of the input
        self._check()

    def back_up_store(self) -> None:
        """Keep a copy of the store."""
        kept = f"s{len(self.steps)}"
        self._note(f"back up the store as {kept}")
        shutil.copytree(self.lines.where(self.store), self.lines.where(kept))
        self.store_backups.append((kept, self.lines.tasks, self._shown()))

    def put_store_back(self) -> None:
        """Put a backup of the store back: refused if the target has newer rows."""
        kept, tasks, shown = self.random.choice(self.store_backups)
        newest = self.store, self.lines.tasks
        self.store = f"s{len(self.steps)}"
        self._note(f"put the store {kept} back as {self.store}")
        shutil.copytree(self.lines.where(kept), self.lines.where(self.store))
        self._use_tasks(tasks)
        if self._tried(lambda: self._resume(epochs=1)):
            self._check()
            return
        if self.random.random() < 0.6:
            self.store = newest[0]
            self._note(f"put the store {self.store} back")
            self._use_tasks(newest[1])
            return
        self._note("take ownership")
        if self.kind not in SETS_ASIDE:
            self.may_repeat |= set(self._shown() - shown)
        self._resume(epochs=1, take_ownership=True)
        self.target_backups.clear()
        self._check()

    # -- steps of the owner, on targets --------------------------------------------------------------------------

    def back_up_target(self) -> None:
        """Keep a copy of the target."""
        self._note("back up the target")
        self.target_backups.append((back_up(self.lines), self._shown()))

    def put_target_back(self) -> None:
        """Put a backup of the target back: refused unless the store still has all rows that it lacks."""
        put_back, older = self.random.choice(self.target_backups)
        newest = back_up(self.lines)
        self._note("put the target back")
        put_back()
        assert self._shown() == older, self._message("the backup is not what it was")
        if self._tried(lambda: self._resume(epochs=1)):
            self._check()
            return
        if self.random.random() < 0.6:
            self._note("put the newest target back")
            newest()
            return
        self._note("accept what is missing")
        self.may_miss |= self._read() - older.keys()  # with what a kill left pending
        self.has_accepted = True  # from now on: kept epochs still name the rows
        self._resume(epochs=1, take_ownership=True)
        self._check()

    def remove_target(self) -> None:
        """Take the target away: refused unless the store still has all of its rows."""
        self._note("remove the target")
        place = self.lines.folder / FOLDERS[self.kind].format(out=self.lines.out)
        away = self.lines.folder / f"away-{uuid.uuid4().hex}"
        place.rename(away)
        if self._tried(lambda: self._resume(epochs=1)):
            self._check()
            return
        self._note("put it back")
        shutil.rmtree(place, ignore_errors=True)
        away.rename(place)

    def exchange_target(self) -> None:
        """Give the sink another target: refused while rows wait for the one that it had."""
        before = self.lines
        self.lines = self.random.choice([place for place in self._places if place.out != self.lines.out])
        self._note(f"exchange the target for {self.lines.out}")
        if not self._tried(lambda: self._resume(epochs=1)):
            self._note(f"keep the target {before.out}")
            self.lines = before
            self._resume(epochs=1)
        self._check()

    # -- checks -------------------------------------------------------------------------------------

    def _tried(self, step: Callable[[], object]) -> bool:
        """Take a step; False if it was refused, which must have changed nothing in the target."""
        before = self._shown()
        try:
            step()
        except REFUSED as error:
            self.steps.append(f"  refused: {error.message}")
            self.refusals += 1
            assert self._shown() == before, self._message("a step that was refused has changed the target")
            return False
        return True

    def _resume(self, **more: object) -> None:
        if not self._complete():
            self._run(from_epoch=0 if self._exists() else None, **more)
            return
        outcome = self.lines.resume(self.store, keep=self.keep, accept_missing=self.has_accepted, **more)
        self.is_finished = outcome.finished

    def _run(self, **more: object) -> None:
        options: dict[str, Any] = {"keep": self.keep, "accept_missing": self.has_accepted, **more}
        outcome = self.lines.run(self.store, **options)
        self.is_finished = outcome.finished

    def _settle(self) -> None:
        """Resume for one epoch, so that what a kill left pending is delivered."""
        self._resume(epochs=1)
        self._check()

    def _check(self) -> None:
        twice = {line for line, n in self._shown().items() if n > 1} - self.may_repeat
        if self.kind != "stdout":  # which promises that no row is lost
            assert not twice, self._message(f"{len(twice)} rows are there twice: {sorted(twice)[:5]}")
        strange = self._shown().keys() - self._due()
        assert not strange, self._message(f"rows that the job never made: {sorted(strange)[:5]}")

    def _validate(self) -> None:
        """Expect `validate --job` to find nothing after a run that stopped by itself."""
        if self.has_accepted:
            return
        report = self.lines.validated(self.store)
        codes = {finding.code for finding in report.all_findings} - IN_PROGRESS
        assert not codes, self._message(f"validate reports {sorted(codes)}")
        expected = {SinkVerdict.EXACT} if self.kind != "stdout" else set(SinkVerdict)
        expected |= {SinkVerdict.UNKNOWN} if self.others else set()  # kept epochs name parts of the other target
        verdicts = {sink.verdict for sink in report.sinks}
        assert verdicts <= expected, self._message(f"validate calls the sink {sorted(verdicts)}")
        self.validations += 1
        missing = self._read() - self._shown().keys()
        assert not missing, self._message(f"{len(missing)} rows of complete epochs are not there")

    def _shown(self) -> Counter[str]:
        return sum((place.shown() for place in self._places), Counter())

    def _due(self) -> set[str]:
        return {line for file in (self.lines.folder / "in").iterdir() for line in file.read_text().splitlines()}

    def _read(self) -> set[str]:
        """Return the lines before the positions of the newest complete epoch."""
        store = self.lines.store(self.store)
        read: set[str] = set()
        for part in store.parts(self._complete()[-1]):
            for position in part.positions or ():
                data = (self.lines.folder / "in" / Path(position.split).name).read_bytes()
                read.update(data[: position.offset].decode().splitlines())
        return read

    def _exists(self) -> bool:
        return (self.lines.folder / self.store).exists()

    def _complete(self) -> list[int]:
        return self.lines.complete(self.store) if self._exists() else []

    def _note(self, step: str) -> None:
        self.steps.append(step)

    def _message(self, what: str) -> str:
        steps = "\n  ".join(self.steps)
        positions = "\n  ".join(self.lines.epochs())
        return (
            f"{what}\n{self.kind}, seed {self.seed}, --keep {self.keep}:\n  {steps}\nkept epochs:\n  {positions}"
        )
