"""A fixture that the tests of all kinds of sinks share."""

from __future__ import annotations

import pytest

from tests.support.jobs.kinds import Kinds
from tests.support.jobs.lines import Gate


@pytest.fixture
def kinds(gate: Gate, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Kinds:
    return Kinds(gate, request, monkeypatch)
