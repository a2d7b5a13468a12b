"""An SST file of another attempt has the right name, size and rows, and another unique id than MANIFEST names."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from abscli.cli.main import main
from abscli.report.findings import Code, StoreReport
from abscli.stores.spark.verdict import check_spark
from formats.codec.manifest import session_half, unique_ids
from formats.codec.sst import read_table
from formats.errors import Damaged, UnsupportedVersion
from formats.spark.checkpoint import Checkpoint
from formats.spark.evidence.gathering import gather
from formats.spark.state.rocks import Sst, parse_zip, why_foreign
from formats.storage import LocalStorage
from tests.support.spark import cases
from tests.support.spark.data import CASES, copy_of, unpack
from tests.support.spark.words import CONFS, add_files, counts, go_on


def check(root: Path) -> StoreReport:
    return check_spark(gather(Checkpoint(LocalStorage(root))))


def tables(root: Path) -> Iterator[tuple[Path, Sst, str | None]]:
    """Every table of every snapshot, and what is wrong with its id."""
    for path in root.glob("state/**/*.zip"):
        snapshot = parse_zip(path.read_bytes(), path.name)
        for sst in snapshot.ssts:
            own = path.parent / "SSTs" / sst.name
            if sst.local.endswith(".sst") and own.exists():
                try:
                    table = read_table(own.read_bytes(), sst.name)
                except UnsupportedVersion:
                    continue
                ids = snapshot.unique_ids(path.name)
                assert int(sst.local[:-4]) in ids
                yield own, sst, why_foreign(sst, table, ids)


def test_every_table_of_spark_3_4_to_4_3_has_the_id_that_its_manifest_names() -> None:
    seen = [why for case in CASES if not case.damaged for _, _, why in tables(unpack(case))]
    assert len(seen) > 200
    assert set(seen) == {None}


def test_a_table_of_another_attempt_is_named(tmp_path: Path) -> None:
    """Real ones: batch 2 was run twice from the same start. Spark: "Mismatch in unique ID on table file 16"."""
    root = copy_of("incidents/sst_of_another_attempt", tmp_path)
    report = check(root)
    assert report.restorable == (0, 1)
    names = {path.name for path in root.glob("state/0/*/SSTs/000016-*")}
    found = {(one.code, Path(one.path or "").name) for one in report.all_findings}
    assert found == {(Code.DIGEST_MISMATCH, name) for name in names}
    assert main(["plan-recovery", f"{root}@2"]) == 4
    plan, to = str(tmp_path / "plan.json"), tmp_path / "copy"
    assert main(["plan-recovery", str(root), "--out", plan]) == 0
    assert main(["restore", plan, "--to", str(to)]) == 0
    assert check(to).all_findings == ()


def test_two_tables_of_one_attempt_that_were_exchanged_are_told_apart() -> None:
    pairs = 0
    for path in unpack(next(case for case in CASES if case.name == "purged_rocks")).glob("state/**/*.zip"):
        snapshot = parse_zip(path.read_bytes(), path.name)
        ids = snapshot.unique_ids(path.name)
        read = [(sst, read_table((path.parent / "SSTs" / sst.name).read_bytes(), sst.name)) for sst in snapshot.ssts]
        for sst, own in read:
            for _, other in read:
                assert (why_foreign(sst, other, ids) is None) == (own == other)
                pairs += own != other
    assert pairs


def test_a_damaged_manifest_is_named_or_says_nothing_else(tmp_path: Path) -> None:
    path = next(unpack(next(case for case in CASES if case.name == "wc_rocks")).glob("state/0/0/*.zip"))
    with zipfile.ZipFile(path) as archive:
        data = archive.read(next(name for name in archive.namelist() if name.startswith("MANIFEST-")))
    whole = unique_ids(data, "MANIFEST")
    assert whole
    for at in range(len(data)):
        flipped = data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]
        with pytest.raises(Damaged):
            unique_ids(flipped, "MANIFEST")


@pytest.mark.parametrize(("session", "half"), [
    ("0000000000001", 1), ("000000000000A", 10), ("", None), ("123456789012", None), ("0" * 25, None), ("_" * 20, None),
    ("3ZZZZZZZZZZZZ", (36**12 - 1) & ((1 << 62) - 1) | 3 << 62),
])  # fmt: skip
def test_the_half_of_a_session(session: str, half: int | None) -> None:
    assert session_half(session) == half


@pytest.fixture(scope="module")
def session(spark: Any) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    session = SparkSession(spark)
    cases.set_conf(session, CONFS["rocks"])
    yield session
    for key in (*cases.BASE, cases.PROVIDER):
        session.conf.unset(key)


@pytest.mark.minutes
def test_spark_refuses_the_table_and_goes_on_from_the_copy(session: Any, tmp_path: Path) -> None:
    source, checkpoint, second = (tmp_path / name for name in ("input", "checkpoint", "second"))
    add_files(source, range(2))
    go_on(session, source, checkpoint)
    shutil.copytree(checkpoint, second, ignore=shutil.ignore_patterns("*.tmp", "*.tmp.crc"))
    add_files(source, range(2, 3))
    for attempt in (checkpoint, second):
        go_on(session, source, attempt)
    replaced = 0
    for own in checkpoint.glob("state/0/*/SSTs/*.sst"):
        twins = (second / own.relative_to(checkpoint)).parent.glob(f"{own.name[:6]}-*.sst")
        other = next((twin for twin in twins if twin.name != own.name), None)
        if other is not None and other.stat().st_size == own.stat().st_size:
            own.write_bytes(other.read_bytes())
            own.with_name(f".{own.name}.crc").unlink()
            replaced += 1
    assert replaced
    assert main(["validate", str(checkpoint)]) == 3
    plan, to = str(tmp_path / "plan.json"), tmp_path / "copy"
    assert main(["plan-recovery", str(checkpoint), "--out", plan]) == 0
    assert main(["restore", plan, "--to", str(to)]) == 0
    add_files(source, range(3, 4))
    assert go_on(session, source, to) == counts(source)
    with pytest.raises(Exception, match="STREAM_FAILED"):
        go_on(session, source, checkpoint)
