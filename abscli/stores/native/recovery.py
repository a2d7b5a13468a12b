"""Planning and restoring of stores that abs wrote, as commands ask for it.

What runs a job is imported only where one is to be run: a plan needs none of it.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from abscli.stores.native import text_plan
from abscli.stores.native.plan import plan_failed, plan_recovery
from abscli.stores.recovery import BadOption, PlanRequest, Recovery, RestoreRequest, Watcher
from formats.native.plan import NativePlan
from formats.native.store import NativeStore
from formats.plan import Plan

if TYPE_CHECKING:
    from abscli.stores.native.restore import NativeRestored


class NativeRecovery(Recovery[NativeStore, NativePlan, "NativeRestored"]):
    """See `abscli.stores.recovery`."""

    words = "a store of abs"
    body = NativePlan
    lists: Mapping[str, str] = MappingProxyType({"restart": "restart"})
    plan_options = frozenset({"--failed", "--strategy", "--distrust", "--parallelism"})
    restore_options = frozenset({"--job", "--until", "--policy", "--accept-missing-parts"})
    runs_job = True

    def plan(self, store: NativeStore, request: PlanRequest, watch: Watcher) -> Plan[NativePlan]:
        if request.repair:
            raise BadOption("--strategy", "this version plans full recoveries, not repairs")
        if request.parallelism:
            raise BadOption("--parallelism", "this version restores with the parallelism that an epoch has")
        if request.failed:
            if request.distrust or request.epoch is not None:
                raise BadOption("--failed", "a running job goes on from its newest whole epoch: leave @N, --epoch and "
                                "--distrust out")  # fmt: skip
            return plan_failed(store, request.failed)
        if store.running_attempt() is not None:
            watch.note(f"a job runs on {store.path} now: this plan is stale at its next start; --failed TASK plans for "
                       "a running job")  # fmt: skip
        if request.distrust:
            return plan_recovery(store, distrust=request.distrust, below=request.epoch)
        return plan_recovery(store, epoch=request.epoch)

    def check_plan(self, plan: Plan[NativePlan], store: NativeStore) -> None:
        from abscli.stores.native.restore import check_plan

        check_plan(plan, store)

    def check_request(
        self, plan: Plan[NativePlan], store: NativeStore, request: RestoreRequest, *, dry_run: bool
    ) -> None:
        from abscli.stores.native.restore import check_job

        if request.job is None:
            raise BadOption(
                "--job", f"name the topology file of {plan.body.job!r}: code, and paths of sources and sinks, come "
                "from there, never from the store",
            )  # fmt: skip
        check_job(plan, request.job.topology)

    def restore(
        self, plan: Plan[NativePlan], store: NativeStore, request: RestoreRequest, watch: Watcher
    ) -> NativeRestored:
        from abscli.engine.job import JobOptions
        from abscli.stores.native.restore import restore

        assert request.job is not None
        options = JobOptions(
            directory=request.job.directory,
            job_hint=shlex.quote(request.job.path) + _engine(request),
            engine=request.engine,
            master=request.master,
            policy=request.policy,
            keep=None,
            until="drained" if request.until == "drained" else "end",
            accept_missing=request.accept_missing,
        )
        job = watch.job(plan.body.job)
        return restore(plan, request.job.topology, options, to=request.to, on_progress=job, on_news=job.news)

    def text(self, plan: Plan[NativePlan], *, width: int, plan_file: str | None, job: str | None) -> str:
        return text_plan.plan_text(plan, width=width, plan_file=plan_file, job=shlex.quote(job) if job else "JOB")

    def restored_text(
        self, plan: Plan[NativePlan], restored: NativeRestored, request: RestoreRequest, *, width: int
    ) -> str:
        return text_plan.restored_text(restored, until=request.until)

    def restored_json(self, plan: Plan[NativePlan], restored: NativeRestored) -> dict[str, Any]:
        return text_plan.restored_json(restored)

    def restored_notes(self, restored: NativeRestored, request: RestoreRequest) -> tuple[str, ...]:
        notes = text_plan.taken_over(restored.taken_over)
        if restored.finished and request.until != "drained":
            return notes
        assert request.job is not None
        where = restored.store if os.path.isabs(restored.store) else os.path.relpath(restored.store)
        command = f"abs run {shlex.quote(request.job.path)}{_engine(request)} --store {shlex.quote(where)} --resume"
        return (*notes, f"next: {command}")


def _engine(request: RestoreRequest) -> str:
    return " --engine inline" if request.engine == "inline" else ""
