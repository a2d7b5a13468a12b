"""Where the bytes are: read whole it is exact; a sample of what RocksDB wrote comes close, and says that it is one."""

from __future__ import annotations

import json
import lzma
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.flink.metadata.handles import KeyGroupsHandle
from formats.flink.state import keyed_canonical
from formats.flink.state.key_groups import spans
from formats.flink.state.keyed import described, keyed_state, read_blocks
from formats.flink.statistics import EXACT, Question, statistics
from formats.flink.store import FlinkStore
from formats.query.measured import tally_rows
from formats.statistics import LARGEST, StateStatistics, Tally, of_state, skew, timers
from tests.support.commands import result_of, run_command
from tests.support.flink.matrix import unpack
from tests.support.flink.rocks import Row, entry, key, long, text, write_checkpoint
from tests.support.spark.data import copy_of
from tests.support.stores.small import make_store

DATA = Path(__file__).parents[2] / "data" / "flink"
HEAP = next((DATA / "hashmap-checkpoint").iterdir())
CANONICAL = next((DATA / "hashmap-savepoint-canonical").iterdir())
DAY = 86_400_000

run = partial(run_command, "inspect")
result = partial(result_of, "inspect")


def of(
    store: FlinkStore, *, exact: int = EXACT, question: Question | None = None
) -> dict[tuple[str, str | None], StateStatistics]:
    epoch = store.resolve(None)
    metadata = store.metadata(epoch)
    rows = statistics(metadata, store.names(metadata), store.streams(epoch), question or Question(), exact=exact)
    return {(row.operator, row.state): row for row in rows}


@pytest.mark.parametrize("place", [HEAP, CANONICAL], ids=["heap", "canonical"])
def test_rows_are_those_that_flink_says_by_key_group_and_subtask(place: Path) -> None:
    name = "hashmap-checkpoint.chk-2" if place == HEAP else "hashmap-savepoint-canonical"
    with lzma.open(DATA / "truth" / f"{name}.state.jsonl.xz", "rt") as file:
        lines = [json.loads(line) for line in file]
    keyed = [line for line in lines if line["kind"] == "keyed" and line["type"] in ("VALUE", "REDUCING", "LIST")]
    by_state: dict[tuple[str, str], Counter[tuple[int, int]]] = {}
    for line in keyed:
        rows = by_state.setdefault((line["uid"], line["state"]), Counter())
        rows[line["key_group"], line["subtask"]] += 1
    found = of(FlinkStore(str(place)))
    compared = 0
    for (operator, state), rows in by_state.items():
        row = found[operator, state]
        if row.unknown is not None or (place == CANONICAL and state == "opaque"):
            continue
        assert row.groups is not None
        assert {(one.group, one.subtask): one.rows for one in row.groups} == dict(rows), (operator, state)
        assert {one.subtask: one.rows for one in row.subtasks if one.rows} == dict(
            Counter(subtask for _, subtask in rows.elements())
        )
        assert (row.method, row.rows) == ("read", rows.total())
        compared += 1
    assert compared > 20


def test_sizes_are_those_of_the_rows_and_what_is_hidden_is_not_known() -> None:
    store = FlinkStore(str(CANONICAL))
    counted = {(row.operator, row.name): row for row in store.counted_states(store.resolve(None))}
    found = of(store)
    for at, row in found.items():
        if counted[at].bytes is not None and counted[at].kind not in ("list", "union", "broadcast"):
            assert (row.rows, row.bytes) == (counted[at].rows, counted[at].bytes), at
    heap = of(FlinkStore(str(HEAP)))
    opaque = heap["totals", "opaque"]
    assert (opaque.rows, opaque.bytes) == (None, None)
    assert "Orders$Opaque" in (opaque.unknown or "")
    assert heap["totals", "count"].largest_values is not None
    assert [one.bytes for one in heap["totals", "count"].largest_values] == [8] * LARGEST


def test_a_share_is_expired_once_the_time_to_live_is_named_and_timers_are_due_by_time() -> None:
    store = FlinkStore(str(HEAP))
    plain = of(store)["totals", "note-ttl"].ttl
    assert plain is not None
    assert plain.expired is None
    middle = plain.median
    shares = [
        (row.ttl.expired if row.ttl is not None else None)
        for taken in (plain.oldest - 1, middle, plain.newest)
        for row in [of(store, question=Question(taken + 1000, 1000))["totals", "note-ttl"]]
    ]
    assert shares[0] == 0.0
    assert shares[1] is not None
    assert 0.3 < shares[1] < 0.8
    assert shares[2] == 1.0
    due = of(store, question=Question(1_700_003_610_000))["totals", "_timer_state/event_user-timers"].timers
    assert due is not None
    by = {one.when: one.timers for one in due.by or ()}
    assert sum(by.values()) == 200
    assert 0 < by["overdue"] < 200
    assert by["within 1 min"] == 200 - by["overdue"]


# -- RocksDB ----------------------------------------------------------------------------------------------

HOT, LONG = 20_000, 30_000
A_BLOCK = 200
"""Rows that a block may have: what an index says of a key group is true to a block."""


def rows(groups: range) -> Iterator[Row]:
    """Even but for key group 5, with 20 times the counts; a key `hot` with a large map; a long text."""
    for group in groups:
        for i in range(400 if group != 5 else 8000):
            yield "count", key(group, f"user-{i:06}"), long(i)
        for i in range(40):
            for j in range(5):
                yield "items", key(group, f"user-{i:06}", f"item-{j}"), entry(j)
        if group == 9:
            for j in range(HOT):
                yield "items", key(group, "hot", f"item-{j:06}"), entry(j)
        for i in range(40):
            yield "text", key(group, f"user-{i:06}"), text("x" * (i if (group, i) != (77, 3) else LONG))


@pytest.fixture(scope="module")
def rocks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("rocksdict", reason="needs the package rocksdict")
    job = tmp_path_factory.mktemp("rocks") / ("d" * 32)
    write_checkpoint(job, [rows(range(64)), rows(range(64, 128))], table_bytes=1 << 20)
    return job


def test_a_sample_of_rocksdb_comes_close_to_what_is_there(rocks: Path) -> None:
    store = FlinkStore(str(rocks))
    whole, sample = of(store), of(store, exact=1)
    assert whole.keys() == sample.keys()
    for at, exact in whole.items():
        guess = sample[at]
        assert (exact.method, guess.method) == ("read", "sampled")
        assert (guess.rows, guess.bytes) == (exact.rows, exact.bytes), "the properties of the tables say so"
        assert guess.unknown is None
        assert guess.sample is not None
        assert guess.groups is not None
        assert exact.groups is not None
        near = {one.group: one.rows or 0 for one in guess.groups}
        for one in exact.groups:
            assert abs(near.get(one.group, 0) - (one.rows or 0)) <= 0.1 * (one.rows or 0) + A_BLOCK, (at, one)
    operator = "a" * 32
    assert sample[operator, "count"].skew_groups == pytest.approx(20, rel=0.1)
    hot = (sample[operator, "items"].largest_keys or ())[0]
    assert (hot.key, hot.group) == ("hot", 9)
    assert hot.rows == pytest.approx(HOT, rel=0.3)
    longest = (sample[operator, "text"].largest_values or ())[0]
    assert (longest.key, longest.group, longest.bytes) == ("user-000003", 77, LONG + 3)


def test_a_state_that_does_not_fit_is_sampled_and_the_page_says_so(
    rocks: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("formats.flink.statistics.EXACT", 1)
    monkeypatch.setattr(statistics, "__kwdefaults__", {"exact": 1})
    told = result(capsys, rocks, "--stats")
    assert {row["method"] for row in told["states"]} == {"sampled"}
    for columns in (80, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        code, out, err = run(capsys, rocks, "--stats")
        assert (code, err) == (0, "")
        assert "~" in out
        assert "estimated from a sample" in out
        assert "  sampled: " in out
        assert "  keys: hot " in out
        assert "  key groups: 5 (task 0) " in out
        assert max(len(line) for line in out.splitlines() if "/" not in line) <= columns


def test_a_damaged_table_is_left_out_with_the_reason(rocks: Path) -> None:
    victim = max((rocks / "shared").iterdir(), key=lambda path: path.stat().st_size)
    before = victim.read_bytes()
    try:
        victim.write_bytes(before[:-1] + b"\xff")
        troubles = [row.unknown for row in of(FlinkStore(str(rocks)), exact=1).values() if row.unknown]
        assert any(victim.name in trouble and "left out" in trouble for trouble in troubles)
        victim.write_bytes(before[:500] + b"\xff" * 50 + before[550:])
        found = of(FlinkStore(str(rocks)), exact=1)
        assert any("checksum" in (row.unknown or "") for row in found.values())
    finally:
        victim.write_bytes(before)


def test_tables_that_flink_itself_wrote_are_sampled() -> None:
    pytest.importorskip("rocksdict", reason="needs the package rocksdict")
    folder = unpack()
    looked = 0
    for metadata in sorted(folder.glob("*/rocksdb*/**/_metadata")):
        job = metadata.relative_to(folder).parts
        store = FlinkStore(str(metadata.parent), search=[str(folder / job[0] / job[1])])
        whole, sample = of(store), of(store, exact=1)
        for at, exact in whole.items():
            guess = sample[at]
            if exact.method == guess.method or guess.sample is None or guess.sample.units != "blocks":
                continue
            assert guess.unknown is None, (metadata, at)
            assert (guess.rows or 0) >= (exact.rows or 0), "versions of keys, each at least once"
            assert sum(one.rows or 0 for one in guess.groups or ()) == pytest.approx(guess.rows or 0, abs=64)
            looked += 1
    assert looked > 20


def test_key_groups_are_sampled_by_their_offsets() -> None:
    store = FlinkStore(str(CANONICAL))
    whole = of(store)
    sample = of(store, exact=20_000)
    sampled = [row for row in sample.values() if row.method == "sampled"]
    assert sampled
    for row in sampled:
        assert row.sample is not None
        assert row.sample.units == "key groups"
        assert 0 < row.sample.read < row.sample.of
    count, exact = sample["totals", "count"], whole["totals", "count"]
    assert count.rows == pytest.approx(exact.rows or 0, rel=0.6)


def test_a_key_group_is_read_piece_by_piece_as_it_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_canonical, "PIECE", 3)
    monkeypatch.setattr(keyed_canonical._Frames, "AHEAD", 7)
    store = FlinkStore(str(CANONICAL))
    epoch = store.resolve(None)
    streams, compared = store.streams(epoch), 0
    for operator in store.metadata(epoch).operators:
        for subtask in operator.subtasks:
            handle = subtask.managed_keyed
            if not isinstance(handle, KeyGroupsHandle):
                continue
            meta, path = described(handle.stream, streams, min(filter(None, handle.offsets)))
            state = keyed_state(meta, path, operator.max_parallelism)
            for group, begin, end in spans(handle):
                whole: dict[str, list[Any]] = {}
                parts: dict[str, list[Any]] = {}
                of_group = range(group, group + 1)
                for rows, blocks in (
                    (whole, read_blocks(handle, streams, operator.max_parallelism, groups=of_group)),
                    (parts, keyed_canonical.pieces(handle, streams, state, group, begin, end)),
                ):
                    for block in blocks:
                        assert block.problem is None
                        assert rows is whole or len(block.keys) <= 3
                        own = zip(map(str, block.keys), map(str, block.values), strict=True)
                        rows.setdefault(block.table.name, []).extend(own)
                assert parts == whole
                compared += 1
    assert compared > 10


def test_key_groups_too_large_for_memory_are_told_and_none_is_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("formats.flink.statistics.LARGEST_GROUP", 1)
    monkeypatch.setattr("formats.flink.statistics.WALKED", 1)
    for place in (HEAP, CANONICAL):
        keyed = [row for row in of(FlinkStore(str(place)), exact=1).values() if row.kind == "keyed"]
        assert keyed
        assert all(row.rows is None and "too large for a sample" in (row.unknown or "") for row in keyed)


# -- other systems, growth --------------------------------------------------------------------------------


def test_other_systems_answer_by_their_own_places(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Our own by key group and task, Spark by partition."""
    make_store(tmp_path / "own")
    (seen,) = result(capsys, tmp_path / "own", "--stats")["states"]
    rows = result_of("state", capsys, tmp_path / "own", "--place")["rows"]
    by_group = Counter(row["__key_group"] for row in rows)
    assert {group["group"]: group["rows"] for group in seen["groups"]} == dict(by_group)
    assert (seen["method"], seen["rows"], seen["sample"]) == ("read", len(rows), None)
    lines = {row["line"] for row in rows}
    assert seen["largest_keys"][0]["key"] in {line for line in lines if len(line) == max(map(len, lines))}
    place = copy_of("wc_rocks", tmp_path)
    (counts,) = result(capsys, place, "--stats")["states"]
    rows = result_of("state", capsys, place, "--limit", "1000000")["rows"]
    by_task = Counter(row["partition_id"] for row in rows)
    assert {task["subtask"]: task["rows"] for task in counts["subtasks"] if task["rows"]} == dict(by_task)
    assert (counts["method"], counts["groups"], counts["skew_groups"]) == ("read", None, None)


def test_what_is_too_much_to_read_is_told_by_files_and_the_rest_is_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("formats.statistics.READ_UP_TO", 1)
    make_store(tmp_path / "own")
    (seen,) = result(capsys, tmp_path / "own", "--stats")["states"]
    assert (seen["method"], seen["groups"], seen["largest_keys"], seen["rows"]) == ("files", None, None, 12)
    assert "not known" in seen["unknown"]
    code, out, _ = run(capsys, tmp_path / "own", "--stats")
    assert code == 0
    assert "By files, not read" in out


@given(
    st.lists(
        st.tuples(
            st.text(max_size=9), st.integers(0, 3), st.none() | st.binary(max_size=9), st.lists(st.text(max_size=4))
        ),
        max_size=30,
    )
)
def test_sizes_of_rows_are_those_of_their_values(rows: list[tuple[str, int, bytes | None, list[str]]]) -> None:
    schema = pa.schema(
        [("k", pa.string()), ("p", pa.int32()), ("v", pa.binary()), ("l", pa.list_(pa.string())), ("n", pa.int64())]
    )
    batch = pa.RecordBatch.from_pylist(
        [{"k": key, "p": place, "v": value, "l": items, "n": 1} for key, place, value, items in rows], schema
    )
    tally = tally_rows(
        [batch], ("k",), lambda one: (one.column("p").to_numpy(), one.column("p").to_numpy() * 0 - 1), frozenset({"p"})
    )
    expected: Counter[tuple[int, int]] = Counter()
    for name, place, value, items in rows:
        expected[place, -1] += len(name.encode()) + len(value or b"") + sum(len(one.encode()) for one in items) + 8
    assert tally.bytes == dict(expected)
    assert sum(tally.rows.values()) == len(rows)


def test_growth_is_shown_over_all_complete_epochs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_store(tmp_path / "own")
    told = result(capsys, tmp_path / "own", "--trend")
    (seen,) = [row for row in told["operators"] if row["id"] == "seen"]
    assert [point["epoch"] for point in seen["points"]] == [1, 2, 4]
    sizes = [point["bytes"] for point in seen["points"]]
    assert sizes == sorted(sizes)
    assert told["total"]["points"][-1]["epoch"] == 4
    job = next((DATA / "file-merging").iterdir())
    for columns in (80, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        code, out, _ = run(capsys, job, "--trend")
        assert code == 0
        assert "GREW" in out
        assert max(len(line) for line in out.splitlines() if "/" not in line) <= columns


def test_choices_that_do_not_go_together_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--stats", "--trend"], ["--stats", "--watch"], ["--trend", "--task", "totals/0"]):
        assert run(capsys, HEAP, *words)[0] == 2


# -- counting ---------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 3), st.integers(1, 50), st.integers(0, 50)), max_size=60))
def test_the_largest_are_those_of_all_rows(rows: list[tuple[int, int, int, int]]) -> None:
    tally = Tally()
    totals: dict[tuple[str, int], int] = {}
    values: dict[tuple[str, int], int] = {}
    for name, group, key_bytes, value_bytes in sorted(rows, key=lambda row: row[:2]):
        tally.row(name, group, key_bytes, value_bytes)
        at = (str(name), group)
        totals[at] = totals.get(at, 0) + key_bytes + value_bytes
        values[at] = max(values.get(at, 0), value_bytes)
    assert [one.bytes for one in tally.largest_keys] == sorted(totals.values(), reverse=True)[:LARGEST]
    largest = sorted((size for size in values.values() if size), reverse=True)[:LARGEST]
    assert [one.bytes for one in tally.largest_values] == largest


@given(st.dictionaries(st.tuples(st.integers(0, 3), st.integers(0, 15)), st.integers(1, 1000), min_size=1))
def test_rows_by_group_and_by_subtask_have_the_same_sum(counts: dict[tuple[int, int], int]) -> None:
    tally = Tally()
    for (subtask, group), number in counts.items():
        tally.count(subtask, group, number, 10 * number)
    row: Any = of_state("op", "s", "value", tally, "read", subtasks=range(4), groups=16, at=None, ttl=None)
    assert row.rows == sum(counts.values()) == sum(one.rows for one in row.groups)
    assert row.rows == sum(one.rows for one in row.subtasks)
    assert row.bytes == 10 * row.rows


@given(st.lists(st.integers(0, 30 * DAY), min_size=1), st.integers(0, 30 * DAY))
def test_every_timer_is_due_by_one_time(times: list[int], at: int) -> None:
    due = timers(times, len(times), at)
    assert due is not None
    assert sum(one.timers for one in due.by or ()) == len(times)
    assert next(one.timers for one in due.by or ()) == sum(time <= at for time in times)


def test_skew_is_the_largest_to_the_median() -> None:
    assert skew([1, 1, 4]) == 4
    assert skew([0, 0, 4]) is None
    assert skew([3]) is None
    assert skew([1, None]) is None
