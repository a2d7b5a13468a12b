"""Planning and restoring of stores that abs wrote, as commands ask for it.

What runs a job is imported only where one is to be run: a plan needs none of it.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from abscli.planner.ranges import EMPTY, Ranges
from abscli.stores.native.plan import plan_failed, plan_recovery
from abscli.stores.native.repairing.repair_plan import plan_repair
from abscli.stores.native.rescale import parallelism_of
from abscli.stores.native.text import plan as text_plan
from abscli.stores.reasons import NoPlan
from abscli.stores.recovery import BadOption, PlanRequest, Recovery, RestoreRequest, Watcher
from formats.errors import NoRecovery
from formats.native.plan import NativePlan, PlanKind
from formats.native.store import NativeStore
from formats.plan import Plan

if TYPE_CHECKING:
    from abscli.stores.native.repairing.repair import Repaired
    from abscli.stores.native.restore import NativeRestored


class NativeRecovery(Recovery[NativeStore, NativePlan, "NativeRestored | Repaired"]):
    """See `abscli.stores.recovery`."""

    words = "a store of abs"
    body = NativePlan
    lists: Mapping[str, str] = MappingProxyType({"restart": "restart"})
    plan_options = frozenset({"--failed", "--failed-worker", "--recovery", "--strategy", "--distrust", "--parallelism"})
    restore_options = frozenset(
        {"--job", "--until", "--policy", "--state-memory", "--take-ownership", "--accept-missing-parts", "--insecure"}
    )
    runs_job = True

    def plan(self, store: NativeStore, request: PlanRequest, watch: Watcher) -> Plan[NativePlan] | NoPlan:
        parallelism = parallelism_of(request.parallelism)
        if parallelism and (request.failed or request.failed_workers or request.repair):
            raise BadOption("--parallelism", "tasks that restart in a running job, or mend an epoch, are as many as "
                            "they were: leave it out, or --failed and --strategy")  # fmt: skip
        if request.failed or request.failed_workers:
            if request.distrust or request.repair or request.epoch is not None:
                raise BadOption("--failed", "a running job resumes from its newest intact epoch: leave @N, --epoch, "
                                "--strategy and --distrust out")  # fmt: skip
            return plan_failed(store, request.failed, request.failed_workers, local=request.local)
        if request.local:
            raise BadOption("--recovery", "is of a running job: name its lost tasks with --failed or --failed-worker")
        if request.repair:
            try:
                return plan_repair(store, epoch=request.epoch, distrust=request.distrust)
            except NoRecovery as error:
                return NoPlan.of(error)
        if store.running_attempt() is not None:
            watch.note(f"a job is running on {store.path}: this plan becomes stale when that job restarts; use "
                       "--failed TASK to plan for a running job")  # fmt: skip
        if request.distrust:
            return plan_recovery(
                store, distrust=request.distrust, below=request.epoch, parallelism=parallelism
            )
        return plan_recovery(store, epoch=request.epoch, parallelism=parallelism)

    def check_plan(self, plan: Plan[NativePlan], store: NativeStore) -> None:
        if plan.body.kind is PlanKind.REPAIR:
            from abscli.stores.native.repairing.repair import check_plan as check_repair

            check_repair(plan, store)
        else:
            from abscli.stores.native.restore import check_plan

            check_plan(plan, store)

    def check_request(
        self, plan: Plan[NativePlan], store: NativeStore, request: RestoreRequest, *, dry_run: bool
    ) -> None:
        from abscli.stores.native.restore import check_job, check_rescale

        if request.job is None:
            raise BadOption(
                "--job", f"name the topology file of {plan.body.job!r}: code, and paths of sources and sinks, come "
                "from there, never from the store",
            )  # fmt: skip
        check_job(plan, store, request.job.topology, request.job.changes)
        check_rescale(plan, store)
        if plan.body.kind is PlanKind.REPAIR:
            given = {"--to": request.to is not None, "--until": request.until == "end", "--policy": request.policy}
            for option in (option for option, value in given.items() if value):
                raise BadOption(option, "a repair makes an epoch whole where it is, as it was taken, and ends there")

    def restore(
        self, plan: Plan[NativePlan], store: NativeStore, request: RestoreRequest, watch: Watcher
    ) -> NativeRestored | Repaired:
        from abscli.engine.job import JobOptions
        from abscli.stores.native.restore import restore

        assert request.job is not None
        if plan.body.kind is PlanKind.REPAIR:
            from abscli.stores.native.repairing.repair import repair

            return repair(
                plan, request.job.topology, request.job.directory, accept_missing=request.accept_missing, on_step=watch
            )
        options = JobOptions(
            directory=request.job.directory,
            job_hint=shlex.quote(request.job.path) + _engine(request),
            engine=request.engine,
            master=request.master,
            policy=request.policy,
            keep=None,
            until="drained" if request.until == "drained" else "end",
            state_memory=request.state_memory,
            take_ownership=request.take_ownership,
            accept_missing=request.accept_missing,
            insecure=request.insecure,
            context=request.context,
            changes=request.job.changes,
        )
        job = watch.job(plan.body.job)
        return restore(plan, request.job.topology, options, to=request.to, on_progress=job, on_news=job.news)

    def restarts(self, plan: Plan[NativePlan]) -> dict[str, str]:
        subtasks: dict[str, Ranges] = {}
        for row in plan.body.restart:
            subtasks[row.operator] = subtasks.get(row.operator, EMPTY) | Ranges.parse(row.subtasks)
        return {operator: str(ranges) for operator, ranges in subtasks.items()}

    def text(self, plan: Plan[NativePlan], *, width: int, plan_file: str | None, job: str | None) -> str:
        return text_plan.plan_text(plan, width=width, plan_file=plan_file, job=shlex.quote(job) if job else "JOB")

    def next_commands(self, plan: Plan[NativePlan], plan_file: str) -> list[str]:
        if plan.store is not None and plan.body.kind is PlanKind.PARTIAL:  # the job that runs carries it out itself
            return [text_plan.next_command(plan, plan_file)]
        return super().next_commands(plan, plan_file)

    def restored_text(
        self, plan: Plan[NativePlan], restored: NativeRestored | Repaired, request: RestoreRequest, *, width: int
    ) -> str:
        from abscli.stores.native.restore import NativeRestored

        if isinstance(restored, NativeRestored):
            return text_plan.restored_text(restored, until=request.until)
        return text_plan.repaired_text(restored)

    def restored_json(self, plan: Plan[NativePlan], restored: NativeRestored | Repaired) -> dict[str, Any]:
        from abscli.stores.native.restore import NativeRestored

        if isinstance(restored, NativeRestored):
            return text_plan.restored_json(restored)
        return text_plan.repaired_json(plan, restored)

    def restored_notes(self, restored: NativeRestored | Repaired, request: RestoreRequest) -> tuple[str, ...]:
        notes = text_plan.taken_over(restored.taken_over)
        if restored.finished and request.until != "drained":
            return notes
        assert request.job is not None
        where = restored.store
        if "://" not in where and not os.path.isabs(where):
            where = os.path.relpath(where)
        command = f"abs run {shlex.quote(request.job.path)}{_engine(request)} --store {shlex.quote(where)} --resume"
        command += "".join(f" --parallelism {id}={number}" for id, number in restored.parallelism.items())
        return (*notes, f"Next: {command}")


def _engine(request: RestoreRequest) -> str:
    return " --engine inline" if request.engine == "inline" else ""
