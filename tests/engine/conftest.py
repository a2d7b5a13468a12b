"""Jobs that last for some epochs, however small their input is."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from abscli.engine.sources.files import line_files
from tests.support.jobs.inline import Middle, store


@pytest.fixture
def small_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Middle:
    """Sources read little at a time, and slowly while the job is in its middle: a worker acks between two reads."""
    middle = Middle()
    monkeypatch.setattr(line_files, "CHUNK", 1024)
    read = line_files.LineFiles.next_lines

    def slowly(files: line_files.LineFiles) -> tuple[str, bytes] | None:
        if (store(tmp_path).latest() or 0) < middle.epochs:
            time.sleep(0.05)
        return read(files)

    monkeypatch.setattr(line_files.LineFiles, "next_lines", slowly)
    return middle
