"""Planning and restoring of Spark's checkpoints, as commands ask for it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from abscli.stores.copying import local_roots
from abscli.stores.recovery import BadOption, PlanRequest, Recovery, RestoreRequest, Watcher
from abscli.stores.spark import restore, text_plan
from abscli.stores.spark.plan import plan_spark
from abscli.stores.spark.relocate import input_uri
from abscli.stores.spark.restore import SparkRestored
from abscli.text.columns import size
from formats.plan import Plan
from formats.spark.plan import Moved, SparkPlan
from formats.spark.store import SparkStore


class SparkRecovery(Recovery[SparkStore, SparkPlan, SparkRestored]):
    """See `abscli.stores.recovery`."""

    words = "a Spark checkpoint"
    body = SparkPlan
    lists: Mapping[str, str] = MappingProxyType({
        "skipped": "newer", "again": "again", "inputs": "input", "write": "write", "left": "left",
    })  # fmt: skip
    plan_options = frozenset({"--query-id", "--path-map", "--keep-in-flight"})

    def plan(self, store: SparkStore, request: PlanRequest, watch: Watcher) -> Plan[SparkPlan]:
        if request.query_id is not None:
            _check_id(request.query_id)
        plan = plan_spark(
            store, batch=request.epoch, query_id=request.query_id, moves=_moves(request.path_map),
            next_as_before=request.keep_in_flight, progress=lambda read: watch(f"checked {size(read)} of state"),
        )  # fmt: skip
        _check_moves(plan.body)
        return plan

    def check_plan(self, plan: Plan[SparkPlan], store: SparkStore) -> None:
        restore.check_plan(plan, store)

    def sources(self, store: SparkStore) -> list[str]:
        return local_roots(store.storage)

    def restore(
        self, plan: Plan[SparkPlan], store: SparkStore, request: RestoreRequest, watch: Watcher
    ) -> SparkRestored:
        assert request.to is not None
        copied = 0

        def more(count: int) -> None:
            nonlocal copied
            copied += count
            watch(f"copied {size(copied)}")

        return restore.restore(plan, store, request.to, more)

    def text(self, plan: Plan[SparkPlan], *, width: int, plan_file: str | None, job: str | None) -> str:
        return text_plan.plan_text(plan, width=width, plan_file=plan_file)

    def restored_text(
        self, plan: Plan[SparkPlan], restored: SparkRestored, request: RestoreRequest, *, width: int
    ) -> str:
        return text_plan.restored_text(plan, restored, width=width)

    def restored_json(self, plan: Plan[SparkPlan], restored: SparkRestored) -> dict[str, Any]:
        return text_plan.restored_json(plan, restored)


def _check_id(text: str) -> None:
    try:
        uuid.UUID(text)
    except ValueError:
        example = "4b0a6c52-de65-4bfb-a9cf-402bce370337"
        raise BadOption("--query-id", f"{text!r} is not a query's id, such as {example}") from None


def _moves(texts: Sequence[str]) -> list[Moved]:
    moves = []
    for text in texts:
        old, equals, new = text.partition("=")
        if not equals or not all(part.startswith("/") or ":/" in part for part in (old, new)):
            raise BadOption("--path-map", f"{text!r} is not OLD=NEW with two absolute paths or URIs")
        moves.append(Moved(input_uri(old), input_uri(new)))
    return moves


def _check_moves(body: SparkPlan) -> None:
    """A place that no input lies below is a slip of the pen, and would make the query read all of them again."""
    for move in body.moved:
        if not any(f"{place.folder}/".startswith(f"{move.old}/") for place in body.inputs):
            folders = ", ".join(place.folder for place in body.inputs[:3]) or "no file source"
            raise BadOption("--path-map", f"no input lies below {move.old}; inputs are of {folders}")
