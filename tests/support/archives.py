"""Archives of the test data."""

from __future__ import annotations

import atexit
import functools
import shutil
import tarfile
import tempfile
from pathlib import Path


def extract(archive: tarfile.TarFile, target: Path) -> None:
    """Extract every member, and nothing outside of the folder."""
    safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # not before Python 3.11.4
    archive.extractall(target, **safe)  # type: ignore[arg-type]


BASE = Path(tempfile.gettempdir())
"""The folder in which archives are extracted; a test session sets it to a folder that it removes."""


@functools.cache
def unpacked(archive: Path) -> Path:
    """Return a folder with the members of an archive, extracted once per process. Tests must not change it."""
    folder = Path(tempfile.mkdtemp(prefix="abs-archive-", dir=BASE))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with tarfile.open(archive) as opened:
        extract(opened, folder)
    return folder
