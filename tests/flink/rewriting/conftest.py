"""Snapshots of every layout that changed copies are made of."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.flink.matrix import unpack


@pytest.fixture(scope="module")
def matrix() -> Path:
    return unpack()
