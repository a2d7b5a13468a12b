"""Plans back to a whole epoch: read, kept in files, carried out."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec

from abscli.api.shared import WIDTH, Texts, Unwatched, count, short, texts

if TYPE_CHECKING:
    from abscli.stores.recovery import Recovery, RestoreRequest, Watcher
    from formats.output_file import OutputFile
    from formats.plan import Plan
    from formats.view import CheckpointStore


def plan_file(path: str | os.PathLike[str], *, force: bool = False) -> OutputFile:
    """Return the file that a plan is written to. force: it may replace any file."""
    from formats.output_file import OutputFile, beginning_with
    from formats.plan import BEGINNING

    return OutputFile(os.fspath(path), beginning_with("recovery plan", BEGINNING), force)


class RecoveryPlan(msgspec.Struct, frozen=True):
    """A plan back to a whole epoch.

    plan: what it says, and every file that it relies on.
    recovery: who carries it out.
    file: where it was read from; None for one that was just made, of a store that the user has named.
    """

    plan: Plan[Any]
    recovery: Recovery[Any, Any, Any]
    file: str | None = None

    @property
    def epoch(self) -> int | None:
        """The epoch that it goes back to; None in a plan from a job graph alone."""
        epoch: int | None = self.plan.body.goes_back_to
        return epoch

    def encoded(self) -> bytes:
        """The bytes of its file, sealed."""
        from formats.plan import encode

        return encode(self.plan)

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Writes its file, for `abs restore` and `read_plan`.

        force: replace any file. Without it only an empty file and an earlier plan are replaced.

        Raises FormatError for a place in its store, WouldOverwrite for another file.
        """
        from formats.output_file import check_outside, write_whole

        if self.plan.store is not None:
            check_outside(path, self.plan.store)
        write_whole(plan_file(path, force=force), self.encoded())

    def text(self, *, width: int = WIDTH, plan_file: str | None = None, job: str | None = None) -> str:
        """The page of `abs plan-recovery`. plan_file, job: files that its last line names."""
        return self.recovery.text(self.plan, width=width, plan_file=plan_file or self.file, job=job)

    def prepare(
        self,
        to: str | os.PathLike[str] | None = None,
        *,
        sink_to: str | os.PathLike[str] | None = None,
        job: str | os.PathLike[str] | None = None,
        engine: str = "spark",
        master: str = "local[*]",
        policy: str | None = None,
        until: str = "drained",
        state_memory: int | None = None,
        take_ownership: bool = False,
        accept_missing: bool = False,
        insecure: bool = False,
        context: Any = None,
        dry_run: bool = False,
        store: Texts = (),
    ) -> Restore:
        """A restore that can be carried out: the plan still holds, and what it needs is there. Nothing is changed.

        For what it takes see `Store.restore`. dry_run: it will not be carried out, so `to` may be missing. store: a
        plan from a file needs every place on another host that it reads named here: its store, and directories in which
        it looks for moved files.

        Raises StalePlan, BadOption, OtherJob, NoRecovery, NotFound, CredentialsRefused.

        >>> plan = read_plan("plan.json")
        >>> plan.prepare(job="job.yaml")
        Restore(RecoveryPlan('snapshots', system='abs', back to 4, relies on 15 files))
        """
        from abscli.stores.plans import open_planned
        from abscli.stores.recovery import BadOption, JobFile, RestoreRequest, check_named, refuse_others
        from formats.redaction import refuse_credentials

        for name, place in {"--to": to, "--sink-to": sink_to, "--master": master}.items():
            if place is not None:
                refuse_credentials(os.fspath(place), name)
        given = {
            "--job": job, "--until": until == "end", "--policy": policy, "--take-ownership": take_ownership,
            "--accept-missing-parts": accept_missing,
            "--sink-to": sink_to, "--insecure": insecure, "--state-memory": state_memory is not None,
        }  # fmt: skip
        refuse_others(given, self.recovery.restore_options, f"a plan of {self.recovery.words}")
        if self.plan.store is None:
            message = "the plan is from a graph alone, without a store: there is nothing to restore from"
            raise BadOption("PLAN", message)
        if self.file is not None or store:
            check_named(self.plan, texts(store))
        file = None if job is None else os.fspath(job)
        request = RestoreRequest(
            to=None if to is None else os.fspath(to),
            sink_to=None if sink_to is None else os.fspath(sink_to),
            job=None if file is None else JobFile.read(file),
            engine=engine,
            master=master,
            policy=policy,
            until=until,
            state_memory=state_memory,
            take_ownership=take_ownership,
            accept_missing=accept_missing,
            insecure=insecure,
            context=context,
        )
        view = open_planned(self.plan)
        self.recovery.check_request(self.plan, view, request, dry_run=dry_run)
        self.recovery.check_plan(self.plan, view)
        return Restore(self, view, request)

    def __str__(self) -> str:
        return self.text().rstrip()

    def __repr__(self) -> str:
        store = "" if self.plan.store is None else f"{short(self.plan.store)!r}, "
        back = "" if self.epoch is None else f", back to {self.epoch}"
        files = count(len(self.plan.relies_on), "file")
        return f"RecoveryPlan({store}system={self.plan.system!r}{back}, relies on {files})"


class Restore(msgspec.Struct, frozen=True):
    """A plan that holds, with all that is needed to carry it out.

    plan: the plan.
    view: its store.
    request: what it is carried out with.
    """

    plan: RecoveryPlan
    view: CheckpointStore
    request: RestoreRequest

    def carry_out(self, watch: Watcher | None = None) -> Restored:
        """Does it. watch: sees how it goes on.

        Raises StalePlan, Damaged, NoRecovery, UsageError, EngineStopped, JobFailed.
        """
        result = self.plan.recovery.restore(self.plan.plan, self.view, self.request, watch or Unwatched())
        return Restored(self, result)

    def __repr__(self) -> str:
        return f"Restore({self.plan!r})"


class Restored(msgspec.Struct, frozen=True):
    """What a restore has done.

    restore: that was carried out.
    result: what its system says.
    """

    restore: Restore
    result: Any

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return self.restore.plan.recovery.restored_json(self.restore.plan.plan, self.result)

    def text(self, *, width: int = WIDTH) -> str:
        """For people."""
        plan = self.restore.plan
        return plan.recovery.restored_text(plan.plan, self.result, self.restore.request, width=width)

    @property
    def notes(self) -> tuple[str, ...]:
        """What should be known besides, and what to do next."""
        return self.restore.plan.recovery.restored_notes(self.result, self.restore.request)

    def __str__(self) -> str:
        return "\n".join([self.text(), *self.notes])

    def __repr__(self) -> str:
        facts = {name: value for name, value in self.to_json().items() if isinstance(value, str | int | float)}
        shown = ", ".join(f"{name}={value!r}" for name, value in facts.items() if name not in ("schema", "version"))
        return f"Restored({shown})"


def read_plan(path: str | os.PathLike[str]) -> RecoveryPlan:
    """The plan in a file that `RecoveryPlan.save` or `abs plan-recovery --out` wrote.

    Raises BadPlan (cut short, edited, not a plan), UnsupportedVersion, UnsafePath, OtherFormat.

    >>> read_plan("plan.json").epoch
    4
    """
    from abscli.stores.plans import read_plan as decoded
    from abscli.stores.plans import recovery_of
    from formats.bounds import read_user_file
    from formats.plan import MADE_BY

    name = os.fspath(path)
    plan = decoded(read_user_file(name, hint=MADE_BY), name)
    return RecoveryPlan(plan, recovery_of(plan.system), name)


def plan_graph(job: str | os.PathLike[str], failed: Texts, *, local: bool = False) -> RecoveryPlan:
    """What must restart when these tasks have died, from a topology file, or Flink's plan JSON, alone; UnknownTask.

    local: as of `Store.plan`.
    """
    from abscli.stores.plans import plan_graph, recovery_of

    plan = plan_graph(os.fspath(job), texts(failed), local=local)
    return RecoveryPlan(plan, recovery_of(plan.system))
