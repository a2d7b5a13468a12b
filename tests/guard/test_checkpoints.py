"""Whatever a checkpoint of Flink or Spark names as files, hosts and classes, a command that reads it touches nothing of
it but what lies in the folder that the user named."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.guard.checkpoints import hostile_flink, hostile_spark, named_by_flink, with_offsets, with_other_classes
from tests.guard.commands import Reading, of_other_systems, run
from tests.guard.events import Action, Event
from tests.guard.victim import Victim

Tolerated = Callable[[Event], bool]


def of_flink(victim: Victim, store: Path, reading: Reading) -> Tolerated:
    """What is known of checkpoints of Flink: a file outside of the folders that were named is not opened, but it is
    asked whether it is there. `gc` lists the folder that the job's lies in, for the checkpoints of other jobs."""
    named = named_by_flink(store)
    folders = {os.path.dirname(path) for path in named}

    def tolerated(event: Event) -> bool:
        if event.action is Action.LOOK:
            return event.target in named | folders or Path(event.target).is_relative_to(victim.work)
        return event == Event(Action.READ, str(victim.work)) and reading.words[0] == "gc"

    return tolerated


def ids(reading: Reading) -> str:
    return reading.name


def assert_harmless(victim: Victim, store: Path, reading: Reading, tolerated: Tolerated = lambda event: False) -> None:
    ran = run(victim, store, reading)
    assert ran._replace(violations=tuple(e for e in ran.violations if not tolerated(e))).report() == ""
    assert ran.code != 1, ran.err
    assert "Traceback" not in ran.err


@pytest.mark.sample(3)
@pytest.mark.parametrize("reading", of_other_systems(4, "counts --all --out OUT/all"), ids=ids)
def test_a_flink_checkpoint_that_names_files_elsewhere(somebody: Victim, reading: Reading) -> None:
    store = hostile_flink(somebody, "rocksdb-incremental")
    assert_harmless(somebody, store, reading, of_flink(somebody, store, reading))


@pytest.mark.parametrize("name", ["validate STORE", "state STORE@2 --all --out OUT/all"])
def test_a_flink_checkpoint_that_names_other_classes(somebody: Victim, name: str) -> None:
    store = hostile_flink(somebody, "hashmap-plain")
    with_other_classes(store)
    reading = Reading(name, tuple(name.split()))
    assert_harmless(somebody, store, reading, of_flink(somebody, store, reading))


@pytest.mark.sample(3)
@pytest.mark.parametrize("reading", of_other_systems(3, "--all --out OUT/all"), ids=ids)
def test_a_spark_checkpoint_that_names_files_elsewhere(somebody: Victim, tmp_path: Path, reading: Reading) -> None:
    assert_harmless(somebody, hostile_spark(somebody, "file_compact", tmp_path), reading)


@pytest.mark.parametrize(
    "line",
    [
        "inspect STORE@3", "validate STORE", "plan-recovery STORE --out OUT/plan.json",
        "plan-recovery STORE --set-offset 0:t-0=2 --keep-in-flight --out OUT/plan.json",
    ],
)  # fmt: skip
def test_a_spark_checkpoint_of_topics_and_tables(somebody: Victim, tmp_path: Path, line: str) -> None:
    store = hostile_spark(somebody, "two_sources", tmp_path)
    with_offsets(store, somebody)
    assert_harmless(somebody, store, Reading(line, tuple(line.split())))
