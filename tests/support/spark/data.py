"""The real Spark checkpoints under `data/spark`: packed, with what Spark's own reader said of each."""

from __future__ import annotations

import json
import shutil
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.archives import unpacked

DATA = Path(__file__).parents[2] / "data" / "spark"


@dataclass(frozen=True)
class Case:
    """One checkpoint. truth: {`reads`: [{`options`, `rows` or `error`}]}, of Spark 4.3's `statestore` reader."""

    name: str
    truth: dict[str, Any] = field(compare=False)

    @staticmethod
    def of(name: str) -> Case:
        with tarfile.open(DATA / f"{name}.tar.gz") as archive:
            member = archive.extractfile("truth.json")
            assert member is not None
            return Case(name, json.load(member))

    @property
    def damaged(self) -> bool:
        return self.name.startswith("broken")

    def __str__(self) -> str:
        return self.name


def unpack(case: Case) -> Path:
    """Return the checkpoint of a case. Tests must not change it."""
    return unpacked(DATA / f"{case.name}.tar.gz") / "checkpoint"


def copy_of(name: str, folder: Path, *, sidecars: bool = True) -> Path:
    """A checkpoint of its own, to be damaged. sidecars: with the checksum files that a local file system has."""
    target = folder / f"own-{name}"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(unpacked(DATA / f"{name}.tar.gz") / "checkpoint", target)
    if not sidecars:
        for path in target.rglob("*.crc"):
            path.unlink()
    return target


def copy_of_running(checkpoint: Path, target: Path) -> Path:
    """A copy of a checkpoint whose Spark session lives: its maintenance thread may be writing temporary files."""
    return Path(shutil.copytree(checkpoint, target, ignore=shutil.ignore_patterns("*.tmp", "*.tmp.crc")))


CASES = [Case.of(path.name.removesuffix(".tar.gz")) for path in sorted(DATA.glob("*.tar.gz"))]
