"""One set of tests for every place that a store can lie in."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.objects.fixtures import SERVERS, Servers, use
from tests.support.objects.places import Place, bucket_place, local_place, memory_place


@pytest.fixture(params=["local", "memory", *SERVERS])
def place(request: pytest.FixtureRequest, tmp_path: Path, servers: Servers, monkeypatch: pytest.MonkeyPatch) -> Place:
    if request.param == "local":
        return local_place(tmp_path / "root")
    if request.param == "memory":
        return memory_place()
    return bucket_place(use(servers.get(request.param), monkeypatch))


@pytest.fixture
def shared(place: Place) -> Place:
    """A place that other processes see."""
    if place.root is None:
        pytest.skip("no other process sees this one's memory")
    return place


@pytest.fixture
def served(place: Place) -> Place:
    """A place that a server has."""
    if place.server is None:
        pytest.skip("no server has it")
    return place
