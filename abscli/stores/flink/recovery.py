"""Planning and restoring of Flink's checkpoints, as commands ask for it."""

from __future__ import annotations

from typing import Any

from abscli.stores.flink import restore
from abscli.stores.flink.plan import plan_flink
from abscli.stores.flink.restore import FlinkRestored
from abscli.stores.flink.text import plan as text_plan
from abscli.stores.reasons import NoPlan
from abscli.stores.recovery import PlanRequest, Recovery, RestoreRequest, Watcher
from abscli.text.columns import size
from formats.flink.checks import stream_checks
from formats.flink.plan import FlinkPlan
from formats.flink.store import FlinkStore
from formats.plan import Plan


class FlinkRecovery(Recovery[FlinkStore, FlinkPlan, FlinkRestored]):
    """See `abscli.stores.recovery`."""

    words = "a checkpoint of Flink"
    body = FlinkPlan
    plan_options = frozenset({"--search", "--path-map"})

    def plan(self, store: FlinkStore, request: PlanRequest, watch: Watcher) -> Plan[FlinkPlan] | NoPlan:
        read = 0

        def more(count: int) -> None:
            nonlocal read
            read += count
            watch(f"read {size(read)}")

        epoch = request.epoch if request.epoch is not None else store.only
        return plan_flink(store, epoch=epoch, read=request.read, checks=stream_checks(), progress=more)

    def check_plan(self, plan: Plan[FlinkPlan], store: FlinkStore) -> None:
        restore.check_plan(plan, store)

    def sources(self, store: FlinkStore) -> list[str]:
        return restore.sources(store)

    def restore(
        self, plan: Plan[FlinkPlan], store: FlinkStore, request: RestoreRequest, watch: Watcher
    ) -> FlinkRestored:
        assert request.to is not None
        copied = 0

        def more(count: int) -> None:
            nonlocal copied
            copied += count
            watch(f"copied {size(copied)} of {size(plan.body.bytes)}")

        return restore.restore(plan, store, request.to, more)

    def text(self, plan: Plan[FlinkPlan], *, width: int, plan_file: str | None, job: str | None) -> str:
        return text_plan.plan_text(plan, width=width, plan_file=plan_file)

    def next_commands(self, plan: Plan[FlinkPlan], plan_file: str) -> list[str]:
        return text_plan.next_commands(plan, plan_file) if plan.store is not None else []

    def restored_text(
        self, plan: Plan[FlinkPlan], restored: FlinkRestored, request: RestoreRequest, *, width: int
    ) -> str:
        return text_plan.restored_text(restored, width)

    def restored_json(self, plan: Plan[FlinkPlan], restored: FlinkRestored) -> dict[str, Any]:
        return text_plan.restored_json(plan, restored)
