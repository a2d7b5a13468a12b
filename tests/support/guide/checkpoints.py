"""Checkpoints that pages of the guide begin with, as a real Flink and a real Spark wrote them."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.support.archives import extract
from tests.support.imports import ROOT
from tests.support.spark.data import copy_of

DATA = ROOT / "tests" / "data" / "flink"
JOB = "10d2f428c00a04dfaad672ff7b7e0dbc"
TRUNCATED = f"{JOB}/chk-5/a4333949-ee81-4084-baff-57b228667444"
CLAIMED = "6e07414fd66f9c8e8cd4ba86c2bbafa5"
UPGRADED = "a4418932fefd745ff21c57ec1541d9c2"


def make_retained(folder: Path) -> None:
    """Make the folder of a job with checkpoints 1, 2 and 5, of which the last has a truncated state file."""
    _unpack("retained", "hashmap-checkpoint", folder)
    state = folder / TRUNCATED
    state.write_bytes(state.read_bytes()[:-10])


def make_incident(folder: Path) -> None:
    """Make the checkpoints and the savepoint of a job that claimed a native savepoint (FLINK-39964)."""
    _unpack("incident", "claimed-native", folder)
    shutil.move(folder / "savepoint", folder / "savepoint-711d22")


def _flink(folder: Path) -> None:
    make_retained(folder / "checkpoints")
    make_incident(folder / "incident")
    for path in (folder / "incident").iterdir():
        if path.name in (CLAIMED, "savepoint-711d22"):
            shutil.move(path, folder / "checkpoints" / path.name)
    shutil.rmtree(folder / "incident")
    shutil.copytree(folder / "checkpoints" / JOB / "chk-5", folder / "only" / JOB / "chk-5")


def _upgrade(folder: Path) -> None:
    shutil.copytree(DATA / "old-1.20-hashmap-checkpoint" / UPGRADED / "chk-4", folder / "savepoint-a44189")


def _spark_fails(folder: Path) -> None:
    _spark("broken_missing_sst", folder / "words-checkpoint")


def _spark_wrong(folder: Path) -> None:
    _spark("broken_swapped_delta", folder / "words-checkpoint")


def _spark(name: str, target: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        shutil.move(copy_of(name, Path(scratch)), target)


def _unpack(archive: str, member: str, folder: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch, tarfile.open(DATA / f"{archive}.tar.xz") as packed:
        extract(packed, Path(scratch))
        shutil.move(Path(scratch, member), folder)


_BEGIN_WITH: dict[str, Callable[[Path], None]] = {
    "runbooks/flink-does-not-start.md": _flink,
    "runbooks/flink-upgrade.md": _upgrade,
    "runbooks/spark-query-fails.md": _spark_fails,
    "runbooks/spark-wrong-results.md": _spark_wrong,
}


def prepare(page: str, folder: Path) -> None:
    """Put into a folder the checkpoints that a page begins with. page: its path below the guide's pages."""
    if page in _BEGIN_WITH:
        _BEGIN_WITH[page](folder)
