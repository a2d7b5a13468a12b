"""The job of lines, for tests of what becomes of its sink."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.jobs.lines import Gate, Lines, write_lines

EPOCHS = 14


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    gate = Gate()
    gate.install(monkeypatch.setattr)
    return gate


@pytest.fixture
def lines(tmp_path: Path, gate: Gate) -> Lines:
    """With input for about so many epochs."""
    write_lines(tmp_path, EPOCHS)
    return Lines(tmp_path, gate)
