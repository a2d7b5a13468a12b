"""A search that tries one order of steps that commute sees what the search of all orders sees."""

from __future__ import annotations

from typing import Any

import pytest

from abscli.protocol.policy import Policy
from abscli.sim import explore as explorer
from abscli.sim.explore import Explored, explore
from abscli.sim.interned import InternedWorld, frozen
from abscli.sim.world import Limits
from formats.job.model import Topology
from tests.support.sim.jobs import CHAIN, SMALL, graph, model

PAIR = graph("s=a")
FAN = graph("s=a s=b")
LATE = graph("s>a a>b", emit="a")
JOINED = graph("s>c t>c c=d")

HURRIED = [
    *[(name, SMALL[name], Policy.ALIGNED, 1, 1) for name in ("diamond", "two inputs", "self-loop", "two-task loop")],
    ("chain of more rows", CHAIN, Policy.ALIGNED, 3, 1),
    ("fan", FAN, Policy.ALIGNED, 2, 1),
    ("once an epoch", LATE, Policy.ALIGNED, 2, 1),
    ("joined", JOINED, Policy.ALIGNED, 1, 0),
    ("chain", CHAIN, Policy.AT_LEAST_ONCE, 2, 1),
    ("two inputs", SMALL["two inputs"], Policy.AT_LEAST_ONCE, 1, 0),
    ("self-loop", SMALL["self-loop"], Policy.AT_LEAST_ONCE, 1, 1),
    ("pair", PAIR, Policy.UNALIGNED, 2, 1),
    ("self-loop", SMALL["self-loop"], Policy.UNALIGNED, 1, 0),
]
"""Scopes small enough to try all steps in each world, but for what is hurried: name, job, policy, rows, crashes."""

ALL = [
    ("pair", PAIR, Policy.ALIGNED, 1, 1),
    ("pair", PAIR, Policy.AT_LEAST_ONCE, 2, 0),
    ("pair", PAIR, Policy.UNALIGNED, 1, 0),
    ("chain", CHAIN, Policy.ALIGNED, 1, 0),
    ("self-loop", SMALL["self-loop"], Policy.ALIGNED, 1, 0),
]
"""Scopes small enough to try all steps in each world."""


def searched(
    job: Topology, policy: Policy, records: int, limits: Limits, monkeypatch: pytest.MonkeyPatch, **how: bool
) -> tuple[Explored, set[Any], set[Any]]:
    """What a search says, every snapshot that became complete in it, and what is left at the ends."""
    snapshots, ends = set(), set()

    class Watched(InternedWorld):
        def _write_manifest(self, epoch: int) -> None:
            snapshots.add((self.disk.attempt, frozenset(self.disk.part(task, epoch) for task in self.model.tasks)))
            super()._write_manifest(epoch)

        def _finish(self) -> None:
            super()._finish()
            assert self.disk.base is not None
            ends.add((self.disk.attempt, self.disk.base.key, frozen(self.disk.visible)))

    monkeypatch.setattr(explorer, "InternedWorld", Watched)
    return explore(model(job, records, rounds=1), policy, limits, **how), snapshots, ends


def names(scopes: list[tuple[str, Topology, Policy, int, int]]) -> list[str]:
    return [f"{name}, {policy}, {records} rows, {crashes} crashes" for name, _, policy, records, crashes in scopes]


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("job", "policy", "records", "crashes", "hurried"),
    [(*scope[1:], True) for scope in HURRIED] + [(*scope[1:], False) for scope in ALL],
    ids=[*names(HURRIED), *(f"all of {name}" for name in names(ALL))],
)
def test_every_snapshot_and_every_end_is_found(
    job: Topology, policy: Policy, records: int, crashes: int, hurried: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = Limits(epochs=1, max_concurrent=2, crashes=crashes)
    few, snapshots, ends = searched(job, policy, records, limits, monkeypatch)
    monkeypatch.undo()
    every, all_snapshots, all_ends = searched(
        job, policy, records, limits, monkeypatch, hurried=hurried, persistent=False
    )
    assert few.whole
    assert every.whole
    assert few.rule is every.rule is None
    assert snapshots == all_snapshots
    assert ends == all_ends
    assert few.worlds < every.worlds
