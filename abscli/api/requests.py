"""What the methods of a store are given, put to its system as it is asked; what means nothing there is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from abscli.api.contents import Contents
    from abscli.api.plans import RecoveryPlan
    from abscli.stores.base import System
    from abscli.stores.recovery import PlanRequest
    from formats.reference import ReadOptions


def plan_request(
    system: System, asked: PlanRequest, search: tuple[str, ...], opened: ReadOptions
) -> tuple[PlanRequest, ReadOptions]:
    """The request for a plan, and how the store is to be read for it; BadOption for what means nothing to the system.

    search: directories, as asked for with the plan.
    opened: how the store was opened: it counts where the plan was asked for without.
    """
    from abscli.stores.recovery import lasting, refuse_others

    recovery = system.recovery()
    search, path_map = search or opened.search, asked.path_map or opened.path_map
    given = {
        "--failed": asked.failed, "--failed-worker": asked.failed_workers, "--recovery": asked.local,
        "--strategy": asked.repair, "--distrust": asked.distrust, "--parallelism": asked.parallelism,
        "--query-id": asked.query_id, "--keep-in-flight": asked.keep_in_flight, "--sink": asked.sink,
        "--set-offset": asked.set_offset, "--recreated": asked.recreated, "--name-source": asked.name_source,
        "--search": search, "--path-map": path_map,
    }  # fmt: skip
    refuse_others(given, recovery.plan_options, recovery.words)
    # A system may take an option for its plans alone, as Spark's --path-map: it does not read its files by it.
    options = replace(
        opened,
        search=search if "search" in system.options else (),
        path_map=path_map if "path_map" in system.options else (),
    )
    return replace(asked, path_map=path_map, read=lasting(options)), options


def release_of(system: System, target: str) -> str:
    """`2.2` of `flink:2.2`; BadOption if it is no release of this system."""
    from abscli.stores.recovery import BadOption

    name, colon, version = target.partition(":")
    if not colon or name != system.name:
        raise BadOption("--for", f"{target!r} is not a release of {system.name}: write {system.name}:VERSION")
    return version


def refuse_other_stores(plan: RecoveryPlan, store: Contents) -> None:
    """BadOption for a plan of another store than this."""
    from abscli.stores.recovery import BadOption
    from formats.storage import absolute

    if plan.plan.store is not None and plan.plan.store != absolute(store.view.path):
        raise BadOption("PLAN", f"the plan is of {plan.plan.store}, not of {store.path}")


def refuse_one_epoch(store: Contents) -> None:
    """BadOption where an epoch was named, and the whole store is meant."""
    from abscli.stores.recovery import BadOption

    if store.named is not None:
        raise BadOption("PATH", f"{store.path}@{store.named} is one epoch: name the store, {store.path}")
