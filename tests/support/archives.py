"""Archives of the test data."""

from __future__ import annotations

import tarfile
from pathlib import Path


def extract(archive: tarfile.TarFile, target: Path) -> None:
    """Everything in it, with nothing outside of the folder."""
    safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # not before Python 3.11.4
    archive.extractall(target, **safe)  # type: ignore[arg-type]
