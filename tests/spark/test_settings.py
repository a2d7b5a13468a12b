"""A damaged setting in the offsets of one batch is a fault of that log, and does not decide how state is read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from abscli.cli.main import main
from abscli.report.findings import HARMLESS, Code
from abscli.stores.spark.verdict import check_spark
from formats.spark.checkpoint import Checkpoint
from formats.spark.evidence.gathering import gather
from formats.spark.logs.offsets import CONF, PARTITIONS
from formats.spark.logs.settings import right_value, why_illegal
from formats.spark.store import SparkStore
from formats.storage import LocalStorage
from formats.view import Status
from tests.support.spark.damages import conf
from tests.support.spark.data import copy_of

CASES = ["words", "wc_rocks_v2", "types_zstd_checksummed", "kind_avro", "ss_join", "purged_rocks"]


def settings_of(root: Path, batch: int) -> dict[str, str]:
    settings: dict[str, str] = json.loads((root / f"offsets/{batch}").read_text().split("\n")[1])["conf"]
    return settings


def changed(name: str, value: str) -> str:
    """Another value, in one byte; or the opposite of a boolean."""
    if value in ("true", "false"):
        return {"true": "trve", "false": "fblse"}[value]
    if value.isdigit():
        return "x" if len(value) == 1 else "x" + value[1:]
    return value[:-3] + chr(ord(value[-3]) ^ 1) + value[-2:]


@pytest.mark.parametrize("back", [0, 1], ids=["newest", "the one before"])
@pytest.mark.parametrize("case", CASES)
def test_whatever_setting_is_damaged_only_that_batch_is(case: str, back: int, tmp_path: Path) -> None:
    root = copy_of(case, tmp_path, sidecars=False)
    healthy = check_spark(gather(Checkpoint(LocalStorage(root))))
    batch = healthy.epochs[-1].epoch - back
    path = f"offsets/{batch}"
    whole = (root / path).read_bytes()
    for name, value in settings_of(root, batch).items():
        conf(path, name, changed(name, value))(root)
        report = check_spark(gather(Checkpoint(LocalStorage(root))))
        damaged = [one.epoch for one in report.epochs if one.verdict is Status.DAMAGED]
        assert damaged == [batch], (name, report.all_findings)
        found = {(one.code, one.path) for one in report.all_findings if one.code not in HARMLESS}
        assert found == {(Code.LOG_MISMATCH, path)}, name
        assert report.restorable == tuple(number for number in healthy.restorable if number != batch), name
        (root / path).write_bytes(whole)


@pytest.mark.parametrize("name", ["rowChecksum.enabled", "providerClass", "encodingFormat", "compression.codec"])
@pytest.mark.parametrize("case", ["words", "types_zstd_checksummed", "kind_avro", "ids_v2"])
def test_the_plan_for_the_batch_before_can_be_restored(case: str, name: str, tmp_path: Path) -> None:
    root = copy_of(case, tmp_path, sidecars=False)
    newest = SparkStore(LocalStorage(root)).latest() or 0
    own = settings_of(root, newest)[CONF + name]
    conf(f"offsets/{newest}", CONF + name, changed(CONF + name, own))(root)
    plan, to = tmp_path / "plan.json", tmp_path / "copy"
    assert main(["plan-recovery", str(root), "--out", str(plan), "-o", "json"]) == 0
    assert json.loads(plan.read_text())["body"]["batch"] == newest - 1
    assert main(["restore", str(plan), "--to", str(to)]) == 0


@pytest.mark.parametrize(
    ("case", "newest"), [("newest_offsets_rowchecksum", 2), ("newest_offsets_provider", 5)]
)
def test_one_byte_in_the_newest_offsets_takes_away_one_batch(case: str, newest: int, tmp_path: Path) -> None:
    """Real checkpoints with `rowChecksum.enabled` "trve", and a provider ...RocksDBStateStorePrnvider."""
    root = copy_of(f"incidents/{case}", tmp_path)
    report = check_spark(gather(Checkpoint(LocalStorage(root))))
    assert report.restorable == tuple(range(newest + 1))
    assert {(one.code, one.path) for one in report.all_findings} == {(Code.LOG_MISMATCH, f"offsets/{newest + 1}")}
    plan, to = tmp_path / "plan.json", tmp_path / "copy"
    assert main(["plan-recovery", str(root), "--out", str(plan)]) == 0
    assert main(["restore", str(plan), "--to", str(to)]) == 0


@pytest.mark.parametrize("batch", [0, 3])
def test_state_is_read_by_the_settings_that_the_query_keeps(batch: int, tmp_path: Path) -> None:
    root = copy_of("types_zstd_checksummed", tmp_path, sidecars=False)
    store = SparkStore(LocalStorage(root))
    before = [one.to_pylist() for one in store.state(batch, "0")]
    for name in ("rowChecksum.enabled", "providerClass"):
        conf(f"offsets/{batch}", CONF + name, "false" if name == "rowChecksum.enabled" else "a.B")(root)
    assert [one.to_pylist() for one in SparkStore(LocalStorage(root)).state(batch, "0")] == before


@pytest.mark.parametrize(
    ("name", "values", "right"),
    [
        (CONF + "rowChecksum.enabled", ["trve", "true"], "true"),
        (CONF + "rowChecksum.enabled", ["false", "true"], "false"),
        (CONF + "rowChecksum.enabled", ["trve"], None),
        (CONF + "providerClass", ["a.B", "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"],
         "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"),
        (CONF + "providerClass", ["a.B", "a.B", "a.C"], "a.B"),
        ("a.setting.of.the.future", ["??", None], "??"),
    ],
)  # fmt: skip
def test_the_legal_value_that_most_batches_have_is_right(
    name: str, values: list[str | None], right: str | None
) -> None:
    assert right_value(name, values) == right


@pytest.mark.parametrize("value", ["", "-1", "3.0", "x3", "12345678"])
def test_a_number_of_partitions_is_a_number(value: str) -> None:
    assert why_illegal(PARTITIONS, value) == "is not a number"
