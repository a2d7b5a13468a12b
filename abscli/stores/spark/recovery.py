"""Planning and restoring of Spark's checkpoints, as commands ask for it."""

from __future__ import annotations

import re
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from abscli.stores.copying import check_target, roots
from abscli.stores.reasons import NoPlan
from abscli.stores.recovery import BadOption, PlanRequest, Recovery, RestoreRequest, Watcher
from abscli.stores.spark import restore
from abscli.stores.spark.naming import NAME
from abscli.stores.spark.plan import plan_spark
from abscli.stores.spark.relocate import input_uri
from abscli.stores.spark.restore import SparkRestored
from abscli.stores.spark.sink_copy import log_folders
from abscli.stores.spark.text import plan as text_plan
from abscli.text.columns import size
from formats.path_maps import splits
from formats.plan import Plan
from formats.spark.plan import Moved, SparkPlan
from formats.spark.store import SparkStore

TABLE = re.compile(r"[0-9A-Za-z-]{1,64}")
"""The id of a Delta table."""


class SparkRecovery(Recovery[SparkStore, SparkPlan, SparkRestored]):
    """See `abscli.stores.recovery`."""

    words = "a Spark checkpoint"
    body = SparkPlan
    lists: Mapping[str, str] = MappingProxyType({
        "skipped": "newer", "replayed": "replayed", "inputs": "input", "write": "write", "excluded": "excluded",
    })  # fmt: skip
    plan_options = frozenset({
        "--query-id", "--path-map", "--keep-in-flight", "--sink", "--set-offset", "--recreated", "--name-source",
    })  # fmt: skip
    restore_options = frozenset({"--sink-to"})

    def plan(self, store: SparkStore, request: PlanRequest, watch: Watcher) -> Plan[SparkPlan] | NoPlan:
        if request.query_id is not None:
            _check_id(request.query_id)
        plan = plan_spark(
            store, batch=request.epoch, query_id=request.query_id, moves=_moves(request.path_map, store),
            next_as_before=request.keep_in_flight, sink=request.sink,
            positions=_positions(request), recreated=_recreated(request), names=_names(request),
            progress=lambda read: watch(f"checked {size(read)} of state"),
        )  # fmt: skip
        if not isinstance(plan, NoPlan):
            _check_moves(plan.body)
        return plan

    def check_plan(self, plan: Plan[SparkPlan], store: SparkStore) -> None:
        restore.check_plan(plan, store)

    def sources(self, store: SparkStore) -> list[str]:
        return roots(store.storage)

    def check_request(
        self, plan: Plan[SparkPlan], store: SparkStore, request: RestoreRequest, *, dry_run: bool
    ) -> None:
        super().check_request(plan, store, request, dry_run=dry_run)
        sink = plan.body.sink
        if request.sink_to is not None:
            if sink is None:
                raise BadOption("--sink-to", "the plan says nothing of a sink: make one with --sink OUTPUT")
            read_from = [*self.sources(store), *log_folders(sink)]
            check_target(request.sink_to, [*read_from, *([request.to] if request.to else [])])
            if request.to is not None:
                check_target(request.to, [*read_from, request.sink_to])
        elif sink is not None and not dry_run:
            raise BadOption(
                "--sink-to", f"the log of the sink at {sink.output} is rolled back, too: specify a new directory"
            )

    def restore(
        self, plan: Plan[SparkPlan], store: SparkStore, request: RestoreRequest, watch: Watcher
    ) -> SparkRestored:
        assert request.to is not None
        copied = 0

        def more(count: int) -> None:
            nonlocal copied
            copied += count
            watch(f"copied {size(copied)}")

        return restore.restore(plan, store, request.to, more, sink_to=request.sink_to)

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


def _positions(request: PlanRequest) -> list[tuple[str, str, int]]:
    positions = []
    for text in request.set_offset:
        place, equals, to = text.rpartition("=")
        source, colon, split = place.partition(":")
        if not (equals and colon and split and to.isascii() and to.isdigit() and len(to) < 19):
            raise BadOption("--set-offset", f"{text!r} is not SOURCE:SPLIT=N, such as 0:orders-3=1200")
        positions.append((source, split, int(to)))
    if (positions or request.recreated) and request.keep_in_flight:
        message = "the batch after it would begin elsewhere than it did: remove --keep-in-flight"
        raise BadOption("--set-offset", message)
    twice = [place for place, count in Counter(one[:2] for one in positions).items() if count > 1]
    if twice:
        raise BadOption("--set-offset", f"{':'.join(twice[0])} is set twice")
    return positions


def _recreated(request: PlanRequest) -> dict[str, str | None]:
    """Sources whose topic or table is another one of the same name, with the id of a Delta table."""
    recreated: dict[str, str | None] = {}
    for text in request.recreated:
        source, equals, table = text.partition("=")
        if not source or (equals and not TABLE.fullmatch(table)):
            example = "0, or of a Delta table 0=3adf155d-19a7-468e-88cc-5f408e43ec0f"
            raise BadOption("--recreated", f"{text!r} is not SOURCE or SOURCE=ID, such as {example}")
        recreated[source] = table if equals else None
    return recreated


def _names(request: PlanRequest) -> dict[str, str]:
    names: dict[str, str] = {}
    for text in request.name_source:
        source, equals, name = text.partition("=")
        if not (equals and source and NAME.fullmatch(name)):
            message = f"{text!r} is not SOURCE=NAME, such as 0=orders; Spark takes letters, digits and _"
            raise BadOption("--name-source", message)
        if source in names:
            raise BadOption("--name-source", f"source {source} is named twice")
        names[source] = name
    if names and request.path_map:
        raise BadOption("--name-source", "not together with --path-map: name the sources in the copy that this makes")
    return names


def _moves(texts: Sequence[str], store: SparkStore) -> list[Moved]:
    moves = []
    for text in texts:
        ways = [Moved(input_uri(old), input_uri(new)) for old, new in splits(text) if _absolute(old) and _absolute(new)]
        if not ways:
            raise BadOption("--path-map", f"{text!r} is not OLD=NEW with two absolute paths or URIs")
        if len(ways) > 1:  # more than one path in it may begin after a `=`: the one that is an input was meant
            inputs = [one.path for one in store.inputs()]
            ways.sort(key=lambda way: not any(path.startswith(f"{way.old}/") for path in inputs))
        moves.append(ways[0])
    return moves


def _absolute(path: str) -> bool:
    return path.startswith("/") or ":/" in path


def _check_moves(body: SparkPlan) -> None:
    """A place that no input lies below is a slip of the pen, and would make the query read all of them again."""
    for move in body.moved:
        if not any(f"{place.folder}/".startswith(f"{move.old}/") for place in body.inputs):
            folders = ", ".join(place.folder for place in body.inputs[:3]) or "no file source"
            raise BadOption("--path-map", f"no input lies below {move.old}; inputs are of {folders}")
