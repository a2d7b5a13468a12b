"""A real Flink starts from copies of another layout with another backend, and has just the same rows then.

One snapshot of each kind; all of them: `python -m tests.bench.flink.bench_flink_round_trips`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.flink.java import compiled
from tests.support.flink.matrix import CASES, Case, needs, opened, unpack
from tests.support.flink.starts import difference, other_backend, rewritten, starts

pytestmark = [
    pytest.mark.usefixtures("jvm"),
    pytest.mark.minutes,
    pytest.mark.skipif(shutil.which("javac") is None, reason="there is no Java compiler"),
]

CHOSEN = {("hashmap", "checkpoint"), ("rocksdb", "checkpoint"), ("changelog-files", "checkpoint")}


@pytest.fixture(scope="module")
def matrix() -> Path:
    return unpack()


@pytest.fixture(scope="module")
def class_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compiled(tmp_path_factory.mktemp("java") / "classes", "MatrixJob.java")


@pytest.mark.sample(1)
@pytest.mark.parametrize("how", ["canonical", "changed"])
@pytest.mark.parametrize("case", [c for c in CASES if c.version == "2.3" and (c.name, c.kind) in CHOSEN], ids=str)
def test_flink_starts_from_a_copy_with_another_backend_and_has_the_same_rows(
    matrix: Path, class_path: str, case: Case, how: str, tmp_path: Path
) -> None:
    needs(case)
    claim = rewritten(matrix / case.folder, matrix / case.version / case.name, tmp_path / "copy", how)
    savepoint, log = starts(class_path, tmp_path / "job", tmp_path / "copy", other_backend(case), claim)
    assert savepoint is not None, log[-3000:]
    assert difference(opened(matrix, case)[0], savepoint, how) is None
