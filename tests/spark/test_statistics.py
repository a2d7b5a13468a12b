"""Where the bytes of a batch's state are: held against its rows, read whole or estimated from some partitions."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from struct import pack as struct_pack

import pytest

from abscli.text.statistics import StatisticsPage, text
from formats.spark.ids import StorePartition
from formats.spark.layout import store_dir
from formats.spark.logs.operators import OperatorInfo
from formats.spark.replay import load
from formats.spark.state.codings import Family, family_numbers
from formats.spark.state.types import Field, Type, struct
from formats.spark.statistics import EXACT, Part, Stored, statistics
from formats.spark.store import SparkStore
from formats.statistics import Expiring, Expiry, StateStatistics
from formats.storage import LocalStorage
from tests.support.commands import result_of, run_command
from tests.support.spark.data import copy_of

WHOLE = ["wc_hdfs", "wc_rocks", "wc_rocks_v2", "words", "types", "sessions_changelog", "ss_join", "tws_row", "multi_op",
         "kind_join_v4", "kind_avro", "repartitioned"]  # fmt: skip


def opened(name: str, folder: Path) -> tuple[SparkStore, int]:
    store = SparkStore(LocalStorage(copy_of(name, folder)))
    epoch = store.latest()
    assert epoch is not None
    return store, epoch


@pytest.mark.parametrize("name", WHOLE)
def test_rows_of_every_partition_are_those_of_the_state(name: str, tmp_path: Path) -> None:
    store, epoch = opened(name, tmp_path)
    seen = store.statistics(epoch)
    assert [(row.operator, row.state) for row in seen] == [(one.operator, one.name) for one in store.states(epoch)]
    for row in seen:
        if row.unknown is not None:
            continue
        counted: Counter[int] = Counter()
        for batch in store.state(epoch, row.operator, row.state):
            counted.update(batch.column("partition_id").to_pylist())
        assert {part.subtask: part.rows for part in row.subtasks if part.rows} == dict(counted)
        assert (row.method, row.rows, row.groups) == ("read", counted.total(), None)
        assert (row.bytes or 0) == sum(part.bytes or 0 for part in row.subtasks)
        assert bool(row.largest_keys) == bool(counted)


def test_the_largest_keys_are_named_as_people_write_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = copy_of("words", tmp_path)
    (state,) = result_of("inspect", capsys, root, "--stats")["states"]
    words = {row["word"] for row in result_of("state", capsys, root, "--limit", "1000000")["rows"]}
    longest = max(-(-len(word.encode()) // 8) for word in words)  # Spark pads text to eight bytes
    for large in state["largest_keys"]:
        assert large["key"] in words
        assert (-(-len(large["key"].encode()) // 8), large["group"], large["rows"]) == (longest, None, 1)


def test_a_list_counts_its_values_and_is_one_key(tmp_path: Path) -> None:
    store, epoch = opened("tws_row", tmp_path)
    state = next(row for row in store.statistics(epoch) if row.state == "last")
    counted: Counter[str] = Counter()
    for batch in store.state(epoch, "0", "last"):
        counted.update(batch.column("word").to_pylist())
    assert state.largest_keys
    for large in state.largest_keys:
        assert large.rows == counted[large.key]


@pytest.mark.parametrize("name", ["wc_rocks", "wc_hdfs", "words"])
def test_of_too_much_some_partitions_are_read_and_it_says_so(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = copy_of(name, tmp_path)
    (whole,) = result_of("inspect", capsys, root, "--stats")["states"]
    monkeypatch.setattr("formats.spark.statistics.EXACT", 1)
    (state,) = result_of("inspect", capsys, root, "--stats")["states"]
    partitions = len(whole["subtasks"])
    assert state["method"] == "sampled"
    assert (state["sample"]["units"], state["sample"]["read"], state["sample"]["of"]) == ("partitions", 1, partitions)
    read = state["subtasks"][0]
    assert read == whole["subtasks"][0], "what is read is exact"
    if name == "wc_rocks":
        assert [part["rows"] for part in state["subtasks"]] == [part["rows"] for part in whole["subtasks"]]
    assert whole["rows"] / 4 <= state["rows"] <= whole["rows"] * 4
    _, out, _ = run_command("inspect", capsys, root, "--stats")
    text = " ".join(out.split())
    assert f"sampled: 1 of about {partitions} partitions" in text
    assert "some partitions were read" in text
    assert "RocksDB counts versions" not in text


def test_a_sample_is_spread_evenly_and_leaves_the_largest_partitions_out(tmp_path: Path) -> None:
    store, epoch = opened("words", tmp_path)
    (family,) = store.families(epoch)
    read: list[int] = []

    def part(number: int, size: int) -> Part:
        def rows() -> dict[bytes, bytes]:
            read.append(number)
            return {}

        return Part(number, "state/0/0", size, None, rows, dict)

    def ask(sizes: list[int]) -> StateStatistics:
        read.clear()
        (row,) = statistics([stored_of(family, [part(n, size) for n, size in enumerate(sizes)])], None)
        return row

    assert ask([EXACT // 8] * 8).sample is None
    assert read == list(range(8))
    assert ask([EXACT // 4] * 8).method == "sampled"
    assert read == [0, 2, 4, 6]
    ask([EXACT * 5, EXACT // 2, EXACT // 2, EXACT * 5])
    assert read == [1]
    nothing = ask([EXACT * 5] * 3)
    assert (read, nothing.rows, nothing.bytes) == ([], None, None)


@pytest.mark.parametrize("kind", ["value", "list", "map"])
def test_of_rows_with_a_time_to_live_it_is_told_when_they_expire(kind: str, tmp_path: Path) -> None:
    """As Spark lays them out: the value, and the time at which it expires, which has come when a batch begins then."""
    store, epoch = opened("tws_row", tmp_path)
    family = next(one for one in store.families(epoch) if one.kind == kind)
    schema = struct(Field("value", family.schema.value), Field("ttlExpirationMs", Type("long")))
    family = replace(family, schema=replace(family.schema, value=schema))
    taken, minute = 1_700_000_000_000, 60_000
    times = [taken - minute, taken, taken + 1, taken + minute, taken + 30 * minute, taken + 999_999 * minute]
    own = family.coding(True, {family.schema.name: 7})
    assert own is not None
    keys = [key for key in real_rows(store, epoch, family.operator, family.schema.name) if key]

    def rows() -> dict[bytes, bytes]:
        values = [b"\0" + struct_pack("<qqqqq", 0, 24 << 32 | 16, at, 0, 1) for at in times]
        if kind == "list":
            return {b"\7\0" + keys[0]: b",".join(len(value).to_bytes(4, "little") + value for value in values)}
        return {b"\7\0" + key: value for key, value in zip(keys, values, strict=False)}

    assert kind == "list" or len(keys) >= len(times)
    parts = [Part(0, "state/0/0", 100, None, rows, lambda: {family.schema.name: 7})]
    (row,) = statistics([Stored([family], parts, True, None)], taken)
    assert row.unknown is None
    assert row.expiry == Expiry(
        times[0], times[3], times[-1], 0.3333,
        tuple(Expiring(*one) for one in (("expired", 2), ("within 1 min", 2), ("within 1 h", 1), ("within 1 d", 0),
                                         ("within 7 d", 0), ("later", 1))),
    )  # fmt: skip
    (row,) = statistics([Stored([family], parts, True, None)], None)
    assert row.expiry == Expiry(times[0], times[3], times[-1], None, None)
    page = StatisticsPage("words", "spark", None, epoch, None, None, [row])
    assert "expires 2023-11-14" in " ".join(text(page).split())


def test_real_rows_expire_when_they_say(tmp_path: Path) -> None:
    """Of `transformWithState`, before and after a repartition, which numbers column families anew."""
    store = SparkStore(LocalStorage(copy_of("tws_repartitioned", tmp_path)))
    for epoch in (2, 4):
        rows = {row.state: row for row in store.statistics(epoch)}
        assert [name for name, row in rows.items() if row.expiry is not None] == ["l", "n"]
        for name, count in (("n", 30), ("l", 90)):
            times = [
                time for batch in store.state(epoch, "0", name) for time in batch.column("ttlExpirationMs").to_pylist()
            ]
            own = rows[name].expiry
            assert own is not None
            assert (own.first, own.last, own.expired, len(times)) == (min(times), max(times), 0.0, count)
            assert sum(one.rows for one in own.by or ()) == count


def real_rows(store: SparkStore, epoch: int, operator: OperatorInfo, name: str) -> list[bytes]:
    """Keys of a column family, without its number."""
    offsets = store.checkpoint.offsets(epoch)
    out: list[bytes] = []
    for partition in range(offsets.partitions or 0):
        part = StorePartition(operator.id, partition, operator.stores[0].name)
        files = store.partition(operator, partition, operator.stores[0])
        numbers = family_numbers(store.checkpoint, part, epoch + 1)
        rows = load(store.checkpoint, store_dir(part), files, epoch + 1, offsets.row_checksum)
        out += [key[2:] for key in rows if key[:2] == numbers[name].to_bytes(2, "little")]
    return out


def stored_of(family: Family, parts: list[Part]) -> Stored:
    return Stored([family], parts, False, None)


def test_what_is_lost_is_unknown_and_the_rest_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = copy_of("words", tmp_path)
    shutil.rmtree(root / "state/0/1")
    (state,) = result_of("inspect", capsys, root, "--stats")["states"]
    assert (state["rows"], state["bytes"]) == (None, None)
    assert "state of 1 of 3 partitions is not all there" in state["unknown"]
    assert state["subtasks"][0]["rows"] > 0
