"""What all tests share: one Spark session, and the switch that renews golden files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="renew golden files instead of comparing with them")


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One Spark session for the whole run."""
    from abscli.engine.spark import start_session

    session = start_session("local[4]")
    yield session
    session.stop()
