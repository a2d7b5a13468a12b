"""A job that was stopped, whose store the tests damage."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.jobs.damaged import stopped


@pytest.fixture(scope="package")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """To be read only; `job` is a copy."""
    return stopped(tmp_path_factory.mktemp("counted") / "job", "counting")


@pytest.fixture
def job(counted: Path, tmp_path: Path) -> Path:
    shutil.copytree(counted, tmp_path / "job")
    return tmp_path / "job"
