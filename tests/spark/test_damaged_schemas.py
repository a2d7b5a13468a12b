"""Damaged schemas of state, and damaged metadata of operators, stay out of a copy: Spark writes them again."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from abscli.cli.main import main
from abscli.report.findings import Code
from abscli.stores.spark.verdict import check_spark
from formats.spark.checkpoint import Checkpoint
from formats.spark.evidence.gathering import gather
from formats.storage import LocalStorage
from tests.support.spark import cases
from tests.support.spark.data import copy_of
from tests.support.spark.joins import go_on_joining, join_of

Damage = Callable[[Path], None]
SCHEMA, SCHEMA_3 = "state/0/0/_metadata/schema", "state/0/_stateSchema/default/[0-9]*"
METADATA = "state/0/_metadata/v2/0"


def zeroed(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] + bytes(len(data) - len(data) // 2))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


DAMAGES = [zeroed, cut, emptied]


def copied(root: Path, to: Path) -> int:
    """Plan and restore; the exit code of the plan if there is none."""
    plan = to.with_suffix(".json")
    return main(["plan-recovery", str(root), "--out", str(plan)]) or main(["restore", str(plan), "--to", str(to)])


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(
    ("case", "pattern"),
    [("words", SCHEMA), ("wc_rocks_v2", SCHEMA), ("ss_join", "state/0/0/left-keyToNumValues/_metadata/schema"),
     ("join_v3", SCHEMA_3), ("tws_row", SCHEMA_3)],
)  # fmt: skip
def test_a_damaged_schema_is_named_and_stays_out_of_the_copy(
    case: str, pattern: str, damage: Damage, tmp_path: Path
) -> None:
    root, to = copy_of(case, tmp_path), tmp_path / "copy"
    (schema,) = root.glob(pattern)
    path = schema.relative_to(root)
    damage(schema)
    report = check_spark(gather(Checkpoint(LocalStorage(root))))
    assert str(path) in {one.path for one in report.findings}
    assert copied(root, to) == 0
    assert not (to / path).exists()
    assert not (to / path).with_name(f".{path.name}.crc").exists()
    if pattern == SCHEMA_3:  # Spark does not start if it is still listed (4.3, transformWithState)
        assert '"stateSchemaFilePaths":[]' in (to / METADATA).read_text()


def test_a_schema_of_a_newer_version_is_kept(tmp_path: Path) -> None:
    root, to = copy_of("words", tmp_path, sidecars=False), tmp_path / "copy"
    newer = b"\0\2v9" + (root / SCHEMA).read_bytes()[4:]
    (root / SCHEMA).write_bytes(newer)
    assert copied(root, to) == 0
    assert (to / SCHEMA).read_bytes() == newer


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("case", ["join_v3", "tws_row"])
def test_no_batch_can_be_restored_without_metadata_of_version_2(case: str, damage: Damage, tmp_path: Path) -> None:
    root = copy_of(case, tmp_path)
    damage(root / METADATA)
    report = check_spark(gather(Checkpoint(LocalStorage(root))))
    assert report.restorable == ()
    assert {(one.code, one.path) for one in report.epochs[-1].findings} == {(Code.MISSING_FILE, "state/0/_metadata/v2")}
    assert METADATA in {one.path for one in report.findings}
    assert copied(root, tmp_path / "copy") == 4


def test_of_several_metadata_files_the_damaged_stay_out_of_the_copy(tmp_path: Path) -> None:
    """A query writes one at each start; the newest that can be read is used."""
    root, to = copy_of("join_v3", tmp_path, sidecars=False), tmp_path / "copy"
    shutil.copy(root / METADATA, root / "state/0/_metadata/v2/3")
    zeroed(root / "state/0/_metadata/v2/3")
    report = check_spark(gather(Checkpoint(LocalStorage(root))))
    assert [one.path for one in report.findings if one.code is Code.UNREADABLE] == ["state/0/_metadata/v2/3"]
    assert report.latest_restorable == 4
    assert copied(root, to) == 0
    assert sorted(path.name for path in (to / "state/0/_metadata/v2").iterdir()) == ["0"]


def test_metadata_of_later_batches_does_not_help_an_earlier_one(tmp_path: Path) -> None:
    root = copy_of("join_v3", tmp_path, sidecars=False)
    shutil.move(root / METADATA, root / "state/0/_metadata/v2/3")
    assert check_spark(gather(Checkpoint(LocalStorage(root)))).restorable == (3, 4)


@pytest.fixture(scope="module")
def session(spark: Any) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    session = SparkSession(spark)
    yield session
    for key in (*cases.BASE, cases.PROVIDER, cases.CHANGELOG, cases.IDS, JOIN):
        session.conf.unset(key)


JOIN = "spark.sql.streaming.join.stateFormatVersion"


def add(home: Path, number: int) -> None:
    for side in ("input", "other"):
        (home / side).mkdir(exist_ok=True)
        path = home / side / f"{number:03d}.txt"
        path.write_text("\n".join(f"k{i % 5} {side}-{number}-{i}" for i in range(8)))
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


@pytest.mark.minutes
@pytest.mark.parametrize(
    ("version", "pattern"),
    [("3", SCHEMA_3), pytest.param("2", "state/0/0/*/_metadata/schema", marks=pytest.mark.soak)],
)
def test_the_query_goes_on_from_a_copy_without_its_damaged_schemas(
    version: str, pattern: str, session: Any, tmp_path: Path
) -> None:
    for number in range(3):
        add(tmp_path, number)
    cases.set_conf(session, {cases.PROVIDER: cases.ROCKS, cases.CHANGELOG: "true", JOIN: version})
    seen = list(go_on_joining(session, tmp_path, tmp_path / "checkpoint").values())
    schemas = [path for path in (tmp_path / "checkpoint").glob(pattern) if not path.name.endswith(".crc")]
    for damage, path in zip(DAMAGES * 2, schemas, strict=False):
        damage(path)
        path.with_name(f".{path.name}.crc").unlink()
    assert copied(tmp_path / "checkpoint", tmp_path / "copy") == 0
    for number in (3, 4):  # the second start reads what the first one has written
        add(tmp_path, number)
        seen += go_on_joining(session, tmp_path, tmp_path / "copy").values()
    assert sum(seen, Counter()) == join_of(tmp_path)
    assert main(["validate", str(tmp_path / "copy"), "-o", "json"]) == 0
