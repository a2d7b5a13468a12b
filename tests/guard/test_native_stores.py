"""Whatever a store of abs names as sources, sinks, tables and code: a command that reads it contacts nobody, runs none
of it, and opens no file but the store's own, unless the user has named a job file."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from tests.guard.commands import READING, Reading, run
from tests.guard.stores import FAMILIES, hostile_store
from tests.guard.victim import Ran, Victim

NAME = "downloaded"


@pytest.fixture(scope="module")
def pristine(somebody: Victim) -> Path:
    """A store with every trap, put aside."""
    traps = {name: trap for family in FAMILIES.values() for name, trap in family(somebody, NAME).items()}
    store = hostile_store(somebody, NAME, traps)
    return store.rename(somebody.place("aside") / NAME)


@pytest.fixture
def store(somebody: Victim, pristine: Path) -> Path:
    """The same where the victim has unpacked it."""
    path = somebody.work / NAME
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(pristine, path)
    return path


def contents(store: Path) -> dict[str, str]:
    """Digests of all files, but for the lock, by which a reader is seen."""
    return {
        str(path.relative_to(store)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in store.rglob("*")
        if path.is_file() and path.name != "lock"
    }


def assert_harmless(ran: Ran, victim: Victim) -> None:
    """Nothing was done that may not be, and nobody got anything."""
    assert ran.report() == ""
    assert [str(path) for path in victim.base.rglob("*.ran")] == []
    assert "Traceback" not in ran.err


def test_the_hostile_store_is_accepted(somebody: Victim, store: Path) -> None:
    ran = run(somebody, store, Reading("inspect", ("inspect", "STORE", "-o", "json")))
    assert ran.code == 0, ran.err
    assert ran.out.count('"complete"') == 2


@pytest.mark.sample(8)
@pytest.mark.parametrize("reading", READING, ids=lambda reading: reading.name)
def test_a_command_touches_nothing_that_a_store_names(somebody: Victim, store: Path, reading: Reading) -> None:
    before = contents(store)
    ran = run(somebody, store, reading)
    assert_harmless(ran, somebody)
    assert ran.code != 1, ran.err
    if not reading.changes:
        assert contents(store) == before
