"""Who the commands are tried on, and what watches them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.guard.recorders import Recorder, recorder
from tests.guard.victim import Victim, victim


@pytest.fixture(scope="session")
def watching() -> Recorder:
    """A recorder; skips where there is none."""
    found = recorder()
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.fixture(scope="module")
def somebody(tmp_path_factory: pytest.TempPathFactory, watching: Recorder) -> Iterator[Victim]:
    """A victim, who has nothing of an attacker's yet."""
    with victim(tmp_path_factory.mktemp("victim"), watching) as one:
        yield one


@pytest.fixture(scope="module")
def base(somebody: Victim) -> Path:
    """Where all files of the victim lie."""
    return somebody.base
