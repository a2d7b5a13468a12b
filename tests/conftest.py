"""What all tests share: a folder for temporary files, one Spark context, and the switch that renews golden files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="renew golden files instead of comparing with them")


@pytest.fixture(scope="session", autouse=True)
def temporary() -> Iterator[None]:
    """Temporary files of the tests and of what they start: a process killed with SIGKILL does not remove its own."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="abs-tests-") as folder:
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", None)
        for name in ("SPARK_LOCAL_DIRS", "LOCAL_DIRS"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One Spark context for the whole run."""
    from abscli.engine.spark import start_context

    context = start_context("local[4]")
    yield context
    context.stop()
