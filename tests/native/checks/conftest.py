"""A small store, and the evidence of one of its whole epochs."""

from __future__ import annotations

import pytest

from formats.native.evidence import EpochEvidence
from formats.storage import MemoryStorage
from tests.support.stores.evidence import evidence
from tests.support.stores.small import Build, make_store


@pytest.fixture(scope="module")
def build() -> Build:
    return make_store(MemoryStorage())


@pytest.fixture
def whole(build: Build) -> EpochEvidence:
    return evidence(build, 4)
