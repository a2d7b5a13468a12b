"""State of real snapshots, row by row, against what Flink's own restored backends say."""

from __future__ import annotations

import json
import lzma
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from formats.errors import Damaged, NotFound, UnsupportedVersion
from formats.flink.bytes import Reader
from formats.flink.evidence import gather
from formats.flink.metadata.handles import (
    InlineHandle,
    KeyGroupsHandle,
    Subtask,
)
from formats.flink.state import key_groups, keyed_canonical, keyed_heap
from formats.flink.state.columns import keyed_batches
from formats.flink.state.keyed import read_blocks
from formats.flink.state.keyed_tables import KeyedState
from formats.flink.state.keys import GroupOf
from formats.flink.state.meta import KeyedMeta, read_keyed_meta
from formats.flink.state.rows import batches, summaries
from formats.flink.store import FlinkStore
from formats.flink.stream_check import check_state
from formats.flink.types.codecs import codec
from formats.flink.types.python_types import named_types
from formats.flink.types.serializers import Snapshot
from tests.support.flink.state_truth import tally
from tests.support.flink.streams import Inline, plain_heap
from tests.support.flink.truth import DATA, folder, opened

OPAQUE = {
    "hashmap-checkpoint.chk-2": 44,
    "hashmap-savepoint-canonical": 44,
    "hashmap-inline.chk-2": 37,
    "hashmap-plain.chk-2": 34,
    "file-merging.chk-3": 37,
    "in-progress.chk-2": 37,
    "old-1.20-hashmap-checkpoint.chk-4": 37,
    "sql.chk-2": 37,
    "unaligned.chk-2": 0,
}
"""Cases, and their rows whose values are of a class of the job's own (Kryo; in SQL: a RAW accumulator)."""


@pytest.mark.parametrize("case", OPAQUE)
def test_every_row_is_equal_or_of_a_class_of_the_jobs_own(case: str, tmp_path: Path) -> None:
    store, epoch = opened(folder(case))
    truth = tmp_path / "truth.jsonl"
    truth.write_bytes(lzma.decompress((DATA / "truth" / f"{case}.state.jsonl.xz").read_bytes()))
    counts, said = tally(store, epoch, truth)
    verdicts: Counter[str] = Counter()
    for (_, verdict), n in counts.items():
        verdicts[verdict] += n
    assert not said
    assert verdicts["opaque"] == OPAQUE[case]
    assert verdicts["equal"] == len(truth.read_text().splitlines()) - OPAQUE[case] > 0


# -- snapshots of a job whose state follows from the numbers of its keys (flink_java/StateJob.java) -------

N = 24

MADE = sorted(path.parent for path in (DATA / "state").rglob("_metadata"))


def namespace(i: int) -> str:
    return "ns-" + "z" * (300 if i == 5 else i % 3)


def due() -> dict[str, dict[str, dict[Any, Any]]]:
    """What each state of the job must hold."""
    op: dict[str, dict[Any, Any]] = {name: {} for name in ("v", "l", "m", "r")}
    event: dict[Any, Any] = {}
    processing: dict[Any, Any] = {}
    for i in range(N):
        key = (f"key-{i}", namespace(i))
        again = i % 2 == 0
        op["v"][key] = f"value {i}" + (" again" if again else "")
        op["l"][key] = [f"e{i}"] + ([f"e{i}", ",comma,"] if again else [])
        if i % 4:
            op["m"][(*key, "a")] = i
        op["m"][(*key, f"b{i}")] = -1 if again else i
        if i % 10:
            op["r"][key] = 2 * i if again else i
        if again:
            processing[(*key, 4102444800000 + i)] = None
        else:
            event[(*key, 5000 + i)] = None
    op["_timer_state/event_strings"], op["_timer_state/processing_strings"] = event, processing
    ttl: dict[str, dict[Any, Any]] = {name: {} for name in ("tv", "tl", "tm", "_timer_state/event_user-timers")}
    for i in (*range(N), *(1000 + i for i in range(0, N, 2))):
        ttl["tv"][(i,)] = f"t{i}"
        ttl["tl"][(i,)] = [i, i + 1]
        ttl["tm"][(i, i % 7)] = f"m{i}"
        ttl["_timer_state/event_user-timers"][(i, 9000 + i)] = None
    return {"op": op, "ttl": ttl}


def read_rows(store: FlinkStore, epoch: int, name: str, state: str) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for batch in batches(store.find_operator(epoch, name), store.streams(epoch), state):
        for row in batch.to_pylist():
            key = tuple(row[column] for column in ("key", "namespace", "map_key", "timestamp") if column in row)
            value = row.get("value")
            if isinstance(value, list) and value and isinstance(value[0], dict):
                value = [item["value"] for item in value]
            assert key not in found
            found[key] = value
    return found


@pytest.mark.parametrize("path", MADE, ids=lambda path: "-".join(path.relative_to(DATA / "state").parts))
def test_every_layout_holds_what_the_job_put_into_it(path: Path) -> None:
    if "rocksdb" in path.parts:
        pytest.importorskip("rocksdict", reason="needs the package rocksdict")
    store, epoch = opened(path)
    for name, states in due().items():
        there = {row.name: row for row in summaries(store.find_operator(epoch, name), store.streams(epoch), count=True)}
        for state, rows in states.items():
            assert read_rows(store, epoch, name, state) == rows, (name, state)
            assert there[state].rows == len(rows)
            assert there[state].problem is there[state].opaque is None
    source = store.find_operator(epoch, "src")
    values = [row for batch in batches(source, store.streams(epoch), "names") for row in batch["value"].to_pylist()]
    assert values == ["first", "second café", "x" * 1000]
    union = [row for batch in batches(source, store.streams(epoch), "union") for row in batch["value"].to_pylist()]
    assert union == [1, 2, 3]
    cast = [row for batch in batches(source, store.streams(epoch), "cast") for row in batch.to_pylist()]
    assert {row["map_key"]: row["value"] for row in cast} == {f"b{i}": i for i in range(5)}


@pytest.mark.parametrize("path", MADE, ids=lambda path: "-".join(path.relative_to(DATA / "state").parts))
def test_every_stream_is_read_to_its_end_and_every_key_lies_in_its_key_group(path: Path) -> None:
    if "rocksdb" in path.parts:
        pytest.importorskip("rocksdict", reason="needs the package rocksdict")
    store, epoch = opened(path)
    evidence = gather(store, epoch, checks=(check_state,))
    assert evidence.problems == ()
    assert "misplaced-key" not in evidence.unchecked


def test_state_without_a_key_serializer_is_read_by_the_one_type_that_fits_every_hash() -> None:
    """A changelog that nothing was materialised of does not say what its keys are."""
    store, epoch = opened(folder("changelog.chk-3"))
    (history,) = (o for o in store.metadata(epoch).operators if any(s.managed_keyed for s in o.subtasks))
    rows = [row for batch in batches(history, store.streams(epoch), "last") for row in batch.to_pylist()]
    assert len(rows) == 102
    assert all(row["value"] in (f"value {row['key']}", f"value {row['key'] + 500000}") for row in rows)


# -- the view ---------------------------------------------------------------------------------------------


def test_states_are_listed_by_name_with_kind_and_key() -> None:
    store, epoch = opened(folder("hashmap-savepoint-canonical"))
    rows = {(row.operator, row.name): row for row in store.states(epoch)}
    assert rows["totals", "per-item"].kind == "map"
    assert rows["totals", "recent"].kind == "list"
    assert rows["win-avg", "_timer_state/event_window-timers"].kind == "timers"
    assert rows["op-state", "rules-broadcast"].kind == "broadcast"
    assert rows["op-state", "offsets-union"].kind == "union"
    assert rows["totals", "count"].key == ("key",)
    assert rows["totals", "count"].rows is None
    assert (
        rows["totals", "opaque"].opaque == "values are of Orders$Opaque (KryoSerializer), which only its class can read"
    )
    counted = {(row.operator, row.name): row for row in store.counted_states(epoch)}
    assert counted["totals", "count"].rows == 37
    assert counted["totals", "per-item"].rows == 185


def test_a_state_has_a_typed_schema() -> None:
    store, epoch = opened(folder("hashmap-savepoint-canonical"))

    def schema(name: str, state: str) -> dict[str, str]:
        batch = next(store.state(epoch, name, state))
        return {field.name: str(field.type) for field in batch.schema}

    assert schema("totals", "count") == {"key": "string", "value": "int64"}
    assert schema("totals", "per-item") == {"key": "string", "map_key": "string", "value": "int64"}
    assert schema("totals", "note-ttl") == {"key": "string", "value": "string", "ttl_last_access": "int64"}
    assert schema("totals", "opaque") == {
        "key": "string",
        "value": "struct<class: string, length: int64, bytes: binary>",
    }
    assert schema("win-avg", "window-contents") == {
        "key": "string",
        "window_start": "int64",
        "window_end": "int64",
        "value": "struct<f0: int64, f1: int64>",
    }
    assert schema("join", "_timer_state/processing_user-timers") == {"key": "int64", "timestamp": "int64"}
    assert schema("op-state", "rules-broadcast") == {
        "subtask": "int32",
        "map_key": "string",
        "value": "struct<limit: int32, name: string>",
        "value.opaque": "struct<class: string, length: int64, bytes: binary>",  # a Pojo: it may be of a subclass
    }


def test_the_key_of_sql_state_has_a_column_per_field() -> None:
    store, epoch = opened(folder("sql.chk-2"))
    batch = next(store.state(epoch, "85d28dc2edf24f781675a468efc10479", "deduplicate-state"))
    assert batch.schema.names == ["key.f0", "value"]
    assert str(batch.schema.field("value").type) == (
        "struct<row_kind: string, f0: int64, f1: string, f2: timestamp[ms, tz=UTC]>"
    )


def test_a_state_that_is_not_there_is_named_with_those_that_are() -> None:
    store, epoch = opened(folder("hashmap-plain.chk-2"))
    found = next(o for o in store.metadata(epoch).operators if any(s.managed_keyed for s in o.subtasks))
    with pytest.raises(NotFound, match=r"no state 'x'; it has .*opaque"):
        list(store.state(epoch, found.id, "x"))
    with pytest.raises(NotFound, match="states: "):
        list(store.state(epoch, found.id, None))


def test_only_the_key_groups_that_are_asked_for_are_read() -> None:
    store, epoch = opened(folder("hashmap-savepoint-canonical"))
    totals = store.find_operator(epoch, "totals")
    every = list(batches(totals, store.streams(epoch), "count"))
    some = list(batches(totals, store.streams(epoch), "count", groups=range(4)))
    rest = list(batches(totals, store.streams(epoch), "count", groups=range(4, 16)))
    assert sum(map(len, some)) + sum(map(len, rest)) == sum(map(len, every)) == 37
    assert 0 < sum(map(len, some)) < 37


def test_types_that_the_user_names_stand_in_the_place_of_bytes() -> None:
    """Source splits are byte arrays: u32 version, u32 length, then the split."""
    store, epoch = opened(folder("hashmap-plain.chk-2"))
    source = next(o for o in store.metadata(epoch).operators if not any(s.managed_keyed for s in o.subtasks))
    types = named_types({"SourceReaderState": "tuple(version: int, split: bytes)"})
    found = [
        row
        for batch in batches(source, store.streams(epoch), "SourceReaderState", types=types)
        for row in batch.to_pylist()
    ]
    assert found
    assert all(row["value"]["version"] == 1 and len(row["value"]["split"]) == 19 for row in found)
    wrong = named_types({"SourceReaderState": "long"})
    with pytest.raises(Damaged, match="of which the type named for 'SourceReaderState' uses 8"):
        list(batches(source, store.streams(epoch), "SourceReaderState", types=wrong))


# -- damage -----------------------------------------------------------------------------------------------


def test_a_key_in_another_key_group_is_found() -> None:
    """Two key groups of one savepoint, each under the other's number."""
    found, handle = plain_heap("hashmap-inline.chk-2", "win-avg")
    assert isinstance(handle.stream, InlineHandle)
    spans = {group: (begin, end) for group, begin, end in key_groups.spans(handle)}
    full = [
        block.group
        for block in read_blocks(handle, Inline(), found.max_parallelism)
        if block.table.name == "window-contents" and block.keys
    ]
    one = full[0]
    other = next(group for group in spans if group not in full)
    data = bytearray(handle.stream.data)
    offsets = list(handle.offsets)
    for group, number in ((one, other), (other, one)):
        begin = spans[group][0]
        data[begin : begin + 4] = number.to_bytes(4, "big")
        offsets[number - handle.first] = begin
    swapped = KeyGroupsHandle(handle.tag, handle.first, tuple(offsets), InlineHandle("s", bytes(data)))
    subtask = Subtask(0, managed_keyed=swapped)
    result = check_state("win-avg/0", found, subtask, "managed_keyed", swapped, Inline())
    assert {problem.code for problem in result.problems} == {"misplaced-key"}
    assert f"key group {other} belong in key group {one}" in result.problems[0].message


def test_key_groups_of_another_subtask_are_found() -> None:
    found, handle = plain_heap("hashmap-inline.chk-2", "win-avg")
    other = Subtask(found.parallelism - 1, managed_keyed=handle)
    result = check_state("win-avg/1", found, other, "managed_keyed", handle, Inline())
    assert any("key groups 0 to 7, but subtask 1 of 2 has 8 to 15" in problem.message for problem in result.problems)


def test_rows_before_the_damage_are_given_and_then_the_damage() -> None:
    found, handle = plain_heap("hashmap-inline.chk-2", "win-avg")
    assert isinstance(handle.stream, InlineHandle)
    cut = handle.stream.data[:-1]
    broken = KeyGroupsHandle(handle.tag, handle.first, handle.offsets, InlineHandle("s", cut))
    blocks = read_blocks(broken, Inline(), found.max_parallelism, states={"window-contents"})
    given = keyed_batches(blocks)
    assert len(next(given)) > 0
    with pytest.raises(Damaged, match="key group"):
        next(given)


def test_keys_whose_hash_is_not_known_are_counted_as_unchecked() -> None:
    check = GroupOf(128)
    enum = codec(Snapshot("enum", "", 1, names=("A", "B")))
    assert check(enum).read(b"\0\0\0\1", 0) == (None, 4)
    assert (check.checked, check.unchecked) == (0, 1)


def test_state_of_before_flink_1_7_is_refused_by_its_version() -> None:
    with pytest.raises(UnsupportedVersion, match="version 4"):
        read_keyed_meta(Reader(b"\0\0\0\4\0" + b"\0" * 40))


def test_listing_the_states_of_a_small_snapshot_takes_little_time() -> None:
    store, epoch = opened(folder("hashmap-savepoint-canonical"))
    begin = time.process_time()
    store.states(epoch)
    assert time.process_time() - begin < 20


def test_serializers_are_told_as_plain_values() -> None:
    store, epoch = opened(folder("hashmap-savepoint-canonical"))
    rows = {row.name: row for row in summaries(store.find_operator(epoch, "totals"), store.streams(epoch))}
    told = json.loads(json.dumps(rows["per-item"].serializers))
    assert told["value"]["serializer"] == "MapSerializer"
    assert told["key"]["serializer"] == "StringSerializer"


# -- layouts that look alike ------------------------------------------------------------------------------

GLOBAL = next((DATA / "sql-global").iterdir())


def test_the_only_key_group_of_a_global_aggregate_is_not_taken_for_a_savepoints() -> None:
    store = FlinkStore(str(GLOBAL))
    metadata = store.metadata(4)
    lone = [operator for operator in metadata.operators if operator.max_parallelism == 1]
    states = {operator.id: [s.name for s in store.states(4) if s.operator == operator.id] for operator in lone}
    assert sorted(name or "" for names in states.values() for name in names if "_timer" not in (name or "")) == [
        "accState", "data-state-with-update",
    ]  # fmt: skip
    (ranked,) = [id for id, names in states.items() if "data-state-with-update" in names]
    rows = [row for batch in store.state(4, ranked, "data-state-with-update") for row in batch.to_pylist()]
    assert sorted(row["value"]["f1"] for row in rows) == [1, 2, 3, 4], "the three best and the next"
    (counted,) = [id for id, names in states.items() if "accState" in names]
    ((total,),) = [[row["value"]["f0"] for row in batch.to_pylist()] for batch in store.state(4, counted, "accState")]
    assert total == 300


def test_a_savepoints_only_key_group_is_told_by_its_frames() -> None:
    meta = KeyedMeta(False, None, (), None)
    frames = b"\0\0" + b"\0\0\0\2\x80k" + b"\0\0\0\1v" + b"\xff\xff"
    heap = b"\0\0\0\0" + b"\0\0" + b"\0\0\0\1" + b"\0" + b"\0\0\0\0\0\0\0\7" + b"\0\0\0\0\0\0\0\1"
    for data, canonical in ((frames, True), (heap, False), (frames[:-1], False), (frames + b"x", False)):
        stream = InlineHandle("x", b"meta" + data)
        handle = KeyGroupsHandle(12, 0, (4,), stream, "id")
        assert keyed_canonical.is_canonical(handle, Inline(), meta) is canonical


def test_key_groups_without_a_state_are_damage_in_both_layouts() -> None:
    state = KeyedState(KeyedMeta(False, None, (), None), "chk-1/x", 1)
    for layout, data in ((keyed_canonical, b"\0\0" + b"\0\0\0\2\x80k"), (keyed_heap, b"\0\0\0")):
        handle = KeyGroupsHandle(7, 0, (4,), InlineHandle("x", b"meta" + data), None)
        with pytest.raises(Damaged, match="no state"):
            list(layout.read(handle, Inline(), state, None, None))


def test_a_savepoint_without_a_key_holds_no_rows() -> None:
    store = FlinkStore(str(next((DATA / "hashmap-savepoint-canonical").iterdir())))
    (epoch,) = store.epoch_numbers()
    handle = next(
        subtask.managed_keyed
        for operator in store.metadata(epoch).operators
        for subtask in operator.subtasks
        if isinstance(subtask.managed_keyed, KeyGroupsHandle)
    )
    empty = msgspec.structs.replace(handle, offsets=(0,) * len(handle.offsets))
    assert list(read_blocks(empty, store.streams(epoch), 16)) == []
