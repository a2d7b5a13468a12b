"""Property tests say nothing of how busy the machine is."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import HealthCheck, settings

TESTS = Path(__file__).resolve().parents[1]


def test_no_property_fails_because_the_machine_is_busy() -> None:
    assert settings().deadline is None
    assert HealthCheck.too_slow in settings().suppress_health_check


def test_it_is_said_once_for_all() -> None:
    own = [path.name for path in TESTS.rglob("test_*.py") if re.search(r"@settings\(.*deadline=", path.read_text())]
    assert own == []
