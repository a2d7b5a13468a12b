"""From a plan to its system: who says what a plan says, who opens its store, who carries it out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from abscli.stores.recovery import Recovery
from abscli.stores.registry import parse_job, system_named
from formats.plan import Plan, decode
from formats.storage import open_storage
from formats.view import CheckpointStore


def recovery_of(system: str) -> Recovery[Any, Any, Any]:
    """Who plans and restores for a system; OtherFormat for one that is not known."""
    return system_named(system).recovery()


def read_plan(data: bytes, name: str) -> Plan[Any]:
    """The plan in the bytes of the file called `name`; BadPlan, UnsupportedVersion, UnsafePath, OtherFormat."""
    return decode(data, name, lambda system: recovery_of(system).body)


def open_planned(plan: Plan[Any]) -> CheckpointStore:
    """The store of a plan, opened as it was for the plan; NotFound if it is gone."""
    assert plan.store is not None
    return system_named(plan.system).open(open_storage(plan.store), plan.read)


def plan_graph(job: str, failed: Sequence[str], *, local: bool = False) -> Plan[Any]:
    """What must restart when these tasks have died, from a file of a job's graph alone; UnknownTask."""
    from abscli.stores.native import plan

    return plan.plan_graph(parse_job(job).topology, failed, local=local)
