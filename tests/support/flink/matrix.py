"""Snapshots that Flink 1.20, 2.0 and 2.3 made, over backends, layouts, compression and changelogs.

tests/flink_java/MatrixJob.java made them; what every key holds in the end follows from its number. The paths in them
are of a machine that is not here.
"""

from __future__ import annotations

import dataclasses
import re
import tarfile
from pathlib import Path

import pytest

from formats.flink.store import FlinkStore
from tests.support.archives import unpacked
from tests.support.flink.truth import DATA

ARCHIVE = DATA / "matrix.tar.xz"
KEYS = 20


@dataclasses.dataclass(frozen=True)
class Case:
    """A snapshot of the archive: Flink's version and what it ran with; folder: of its `_metadata`."""

    version: str
    name: str
    folder: str

    @property
    def kind(self) -> str:
        return "savepoint" if "/sp/" in self.folder else "checkpoint"

    def __str__(self) -> str:
        return f"{self.version} {self.name} {self.kind}"


def _cases() -> list[Case]:
    with tarfile.open(ARCHIVE) as archive:
        folders = {name.rpartition("/")[0] for name in archive.getnames() if name.endswith("/_metadata")}
    newest: dict[tuple[str, str, str], Case] = {}
    for folder in sorted(folders, key=lambda path: [int(n) for n in re.findall(r"chk-(\d+)$", path)]):
        case = Case(*folder.split("/")[:2], folder)
        newest[case.version, case.name, case.kind] = case
    return [newest[key] for key in sorted(newest)]


CASES = _cases()


def unpack() -> Path:
    """Return the folder with the archive's members. Tests must not change it."""
    return unpacked(ARCHIVE)


def opened(data: Path, case: Case) -> tuple[FlinkStore, int]:
    store = FlinkStore(str(data / case.folder), search=[str(data / case.version / case.name)])
    assert store.only is not None
    return store, store.only


def needs(case: Case) -> None:
    if "rocksdb" in case.name:
        pytest.importorskip("rocksdict", reason="needs the package rocksdict")
