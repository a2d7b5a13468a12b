"""The job of lines, for tests of what becomes of its sink."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from tests.support.archives import extract
from tests.support.jobs.lines import ROOT, Gate, Lines, write_lines

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


@pytest.fixture
def first_version(tmp_path: Path, gate: Gate) -> Lines:
    """A store of version 1 with its sink: five epochs, two more from the third, and one whose parts of two epochs were
    never shown, as after a SIGKILL."""
    with tarfile.open(ROOT / "tests" / "data" / "store-1-with-sink.tar.gz") as archive:
        extract(archive, tmp_path / "job")
    return Lines(tmp_path / "job", gate)
