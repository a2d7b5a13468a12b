"""Real checkpoints of kinds that a first look at Spark's formats misses, against what Spark's own reader gives.

Made with Spark 4.3 by `spark_kinds.py`. `flat` of their truth: rows as Spark's reader has them, by batch and state. Of
joins of format 4 it has no `matched`, and its event times are not those of the rows: that column is left out.
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from abscli.report.findings import Code
from abscli.stores.spark.check import check, only
from abscli.stores.spark.verdict import check_spark, judge
from formats.errors import Damaged, UnsupportedVersion
from formats.spark.checkpoint import Checkpoint
from formats.spark.evidence.gathering import gather
from formats.spark.state.blocks import unpack as unpack_file
from formats.spark.store import SparkStore
from formats.storage import LocalStorage
from tests.spark.test_state import fingerprint
from tests.support.spark.data import CASES, Case, copy_of, unpack

KINDS = ["kind_lzf", "kind_join_v4", "kind_uncounted", "killed_groups_v1", "kind_lists_checksummed", "kind_avro"]
OF_OTHER_VERSIONS = ["spark34_sessions", "spark35_sessions", "spark40_sessions"]
"""Made by the Sparks that they are named after."""
UNREAD = {"kind_sst_6": "SST file of version 6"}
BEYOND_HASHES = {Code.CONSERVATION, Code.TOPOLOGY_MISSING, Code.MISSING_ACK, Code.MISSING_FILE}


@pytest.mark.parametrize("name", [*KINDS, "tws_repartitioned"])
def test_rows_of_every_kind_are_those_that_sparks_reader_gives(name: str) -> None:
    case = Case.of(name)
    store = SparkStore(LocalStorage(unpack(case)))
    for read in case.truth["flat"]:
        got: Counter[str] = Counter()
        for batch in store.state(read["batch"], read["operator"], read["name"]):
            columns = [batch.column(column).to_pylist() for column in read["columns"]]
            got.update(fingerprint(list(row)) for row in zip(*columns, strict=True))
        assert got == Counter(read["rows"]), (read["batch"], read["name"])


def test_times_of_groups_of_format_1_are_longs() -> None:
    """Its schema says integer; Spark's own reader gives up on it."""
    store = SparkStore(LocalStorage(unpack(Case.of("killed_groups_v1"))))
    times = [time for batch in store.state(2, "0") for time in batch.column("timeoutTimestamp").to_pylist()]
    assert times
    assert all(1_700_000_000_000 < time < 1_900_000_000_000 for time in times)


def test_a_column_family_that_is_named_and_was_never_made_has_no_rows() -> None:
    """Of lists with a time to live Spark 4.0 names a counter that its snapshots do not have: diff refused all of it."""
    store = SparkStore(LocalStorage(unpack(Case.of("spark40_ttl"))))
    families = store.families(4)
    assert "$rowCounter_l" in [family.name for family in families]
    counts = {family.name: sum(batch.num_rows for batch in store.state(4, "0", family.name)) for family in families}
    assert counts["$rowCounter_l"] == 0
    assert min(counts[name] for name in ("v", "l", "m", "$count_l")) > 0


def test_a_join_of_format_4_has_the_times_of_its_rows() -> None:
    store = SparkStore(LocalStorage(unpack(Case.of("kind_join_v4"))))
    rows = [row for batch in store.state(4, "0", "left-keyWithTsToValues") for row in batch.to_pylist()]
    assert rows
    assert all(row["__event_time"] == int(row["ts"].timestamp() * 1_000_000) for row in rows)


@pytest.mark.parametrize("name", [*KINDS, *OF_OTHER_VERSIONS])
def test_a_healthy_checkpoint_of_any_kind_is_clean_and_all_of_it_checked(name: str) -> None:
    report = check_spark(gather(Checkpoint(LocalStorage(unpack(Case.of(name))))))
    committed = [one for one in report.epochs if one.epoch in report.restorable]
    assert [finding for one in report.epochs for finding in one.findings] == []
    assert not report.findings or name in KINDS
    assert {one.epoch for one in report.epochs} - set(report.restorable) <= {report.epochs[-1].epoch}
    assert all(set(one.unchecked) <= BEYOND_HASHES for one in committed)


@pytest.mark.parametrize(("name", "said"), UNREAD.items())
def test_what_is_not_read_is_unchecked_with_its_reason_and_the_way_out(name: str, said: str) -> None:
    path = unpack(Case.of(name))
    report, why = judge(gather(Checkpoint(LocalStorage(path))))
    newest = report.epochs[-1]
    assert newest.epoch in report.restorable
    assert not newest.findings
    assert {Code.ROW_MISMATCH, Code.MISPLACED_KEY} <= set(newest.unchecked)
    assert said in why[newest.epoch]["row-mismatch"]
    assert "--deep" in why[newest.epoch]["row-mismatch"]
    store = SparkStore(LocalStorage(path))
    family = next(family for family in store.families(newest.epoch) if family.kind not in ("internal", "timers"))
    with pytest.raises(UnsupportedVersion) as caught:
        list(store.state(newest.epoch, "0", family.name))
    assert said in str(caught.value)
    assert "--engine spark" in f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize("name", ["kind_lzf", "kind_join_v4", "kind_lists_checksummed"])
def test_files_of_two_partitions_swapped_are_found_in_every_kind(name: str, tmp_path: Path) -> None:
    root = copy_of(name, tmp_path, sidecars=False)
    before = check_spark(gather(Checkpoint(LocalStorage(root)))).latest_restorable
    swapped = 0
    for one in sorted(root.glob("state/0/0/*")):
        other = root / "state/0/1" / one.name
        if one.suffix in (".delta", ".changelog", ".zip", ".snapshot") and other.exists():
            kept = one.read_bytes()
            one.write_bytes(other.read_bytes())
            other.write_bytes(kept)
            swapped += 1
    if (root / "state/0/0/SSTs").exists():
        for partition, name_ in (("0", "x"), ("1", "0"), ("x", "1")):
            shutil.move(root / f"state/0/{partition}/SSTs", root / f"state/0/{name_}/SSTs")
    assert swapped
    report = check_spark(gather(Checkpoint(LocalStorage(root))))
    codes = {finding.code for one in report.epochs for finding in one.findings}
    assert Code.MISPLACED_KEY in codes
    assert report.latest_restorable is None or report.latest_restorable < (before or 0)


@pytest.mark.sample(15)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_one_batch_is_judged_as_in_the_whole(case: Case) -> None:
    """`REF@N` reads what is around the batch, and comes to the same."""
    storage = LocalStorage(unpack(case))
    whole = check(storage, None, quick=False, progress=lambda *_: None).report
    for one in whole.epochs:
        alone = check(storage, one.epoch, quick=False, progress=lambda *_: None).report
        assert (alone.epochs, alone.restorable) == (only(whole, one.epoch).epochs, only(whole, one.epoch).restorable)


def test_one_batch_of_many_needs_few_files() -> None:
    root = unpack(Case.of("wc_hdfs"))
    store = SparkStore(LocalStorage(root))
    evidence = gather(store.checkpoint, only=1)
    read = [name for part in evidence.partitions for name in part.evidence]
    assert {name.split(".")[0] for name in read} <= {"1", "2", "3", "4"}
    assert [batch.batch for batch in evidence.batches] == [0, 1]


def test_another_state_store_provider_is_unchecked_not_damaged(tmp_path: Path) -> None:
    root = copy_of("wc_hdfs", tmp_path, sidecars=False)
    for log in root.glob("offsets/*"):
        log.write_text(log.read_text().replace("HDFSBackedStateStoreProvider", "CloudStateStoreProvider"))
    for partition in ("0", "1"):
        for file in (root / f"state/0/{partition}").glob("*.*"):
            file.rename(file.with_suffix(".blob"))
    report, why = judge(gather(Checkpoint(LocalStorage(root))))
    assert report.restorable == tuple(range(7))
    assert "CloudStateStoreProvider" in why[6]["row-mismatch"]
    store = SparkStore(LocalStorage(root))
    assert {facts.status.value for facts in store.epochs()} == {"complete"}
    store.detail(6)
    with pytest.raises(UnsupportedVersion, match="CloudStateStoreProvider"):
        list(store.state(6, "0"))


def test_an_lz4_block_that_says_it_is_huge_is_refused_at_once(tmp_path: Path) -> None:
    """A flipped bit in its size once had 32 MiB made of 100 bytes, and hashed."""
    root = copy_of("wc_hdfs", tmp_path, sidecars=False)
    path = root / "state/0/1/7.delta"
    whole = path.read_bytes()
    for bit in range(32):
        data = bytearray(whole)
        data[13 + bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        with pytest.raises(Damaged):
            unpack_block(path.read_bytes(), "7.delta", largest=1 << 16)


def unpack_block(data: bytes, path: str, largest: int) -> bytes:
    found = unpack_file(data, path).data
    assert len(found) <= largest
    return found
