"""What all tests share: one Spark context, and the switch that renews golden files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="renew golden files instead of comparing with them")


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One Spark context for the whole run."""
    from abscli.engine.spark import start_context

    context = start_context("local[4]")
    yield context
    context.stop()
