"""`abs diff`: keys that came, went, changed and stayed, against Python's dictionaries; positions, logs, job graphs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abscli.cli.main import main
from abscli.diff import any_order as diff_any
from abscli.diff.any_order import compare_any
from abscli.diff.epochs import diff_topology
from abscli.diff.rows import Compared, Counts, compare
from abscli.diff.state import Side, diff_operators
from abscli.stores.native import diff as diff_native
from abscli.stores.native.diff import shared_files
from formats import storage as storages
from formats.ids import AnyChannelId
from formats.job.model import Edge, Kind, Operator, Partition, Topology, key_group_range
from formats.native import layout
from formats.native.facts import FooterFacts, PartFacts, StateFileFacts, header
from formats.native.hashing import key_groups
from formats.native.state.live_rows import TaskRows
from formats.native.state.row_groups import described, put_state
from formats.native.state.tables import KEY_GROUP, encode_state
from formats.native.store import NativeStore
from formats.storage import MemoryStorage
from formats.view import CheckpointStore, EpochDetail, EpochFacts, OperatorFacts, StateFacts, Status
from tests.support.commands import result_of, run_command
from tests.support.schemas import checked
from tests.support.stores.large import Synthetic
from tests.support.stores.small import FIRST, Build, loop_job, make_store
from tests.tiers import examples

# -- tables against dictionaries ------------------------------------------------------------------------------

Values = dict[tuple[int, str | None], float | None]
keys = st.tuples(st.integers(0, 6), st.none() | st.sampled_from(["a", "b"]))
states: st.SearchStrategy[Values] = st.dictionaries(
    keys, st.none() | st.sampled_from([0.0, 1.5, float("nan")]), max_size=12
)
SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string()), ("v", pa.float64())])
Change = tuple[str, Any, Any, Any]


def table(values: Values) -> pa.Table:
    return pa.Table.from_pylist([{"k": k, "s": s, "v": v} for (k, s), v in values.items()], SCHEMA)


def expected(left: Values, right: Values) -> tuple[Counts, set[Change]]:
    both = left.keys() & right.keys()
    changed = {k for k in both if repr(left[k]) != repr(right[k])}
    counts = Counts(len(right.keys() - both), len(left.keys() - both), len(changed), len(both) - len(changed))
    changes = {("changed", k, repr(left[k]), repr(right[k])) for k in changed}
    changes |= {("added", k, None, repr(right[k])) for k in right.keys() - both}
    return counts, changes | {("removed", k, repr(left[k]), None) for k in left.keys() - both}


def said(rows: pa.Table | None) -> set[Change]:
    assert rows is not None
    return {
        (
            row["change"],
            (row["key"]["k"], row["key"]["s"]),
            None if row["from"] is None else repr(row["from"]["v"]),
            None if row["to"] is None else repr(row["to"]["v"]),
        )
        for row in rows.to_pylist()
    }


def summed(results: list[Compared]) -> tuple[Counts, set[Change]]:
    counts, changes = Counts(), set()
    for result in results:
        counts = counts.plus(result.counts)
        changes |= said(result.rows) if result.rows is not None else set()
    return counts, changes


@settings(max_examples=examples(200))
@given(states, states)
def test_two_tables_differ_as_two_dictionaries_do(left: Values, right: Values) -> None:
    for a, b in ((left, right), (left, dict(left)), (left, {**left, **right})):
        found = compare(table(a), table(b), ["k", "s"], rows=True)
        assert (found.counts, said(found.rows)) == expected(a, b)
        assert compare(table(a), table(b), ["k", "s"], rows=False) == Compared(found.counts, None)


def test_long_tables_are_aligned_with_rows_that_come_and_go() -> None:
    left = {(i, str(i)): float(i) for i in range(20_000)}
    right = {k: (v + 1 if k[0] % 101 == 0 else v) for k, v in left.items() if k[0] % 501}
    right |= {(i, "new"): 0.0 for i in range(0, 20_000, 700)} | {(-i, "front"): 0.0 for i in range(300)}
    right = dict(sorted(right.items()))
    found = compare(table(left), table(right), ["k", "s"], rows=True)
    assert (found.counts, said(found.rows)) == expected(left, right)
    shuffled = dict(reversed(right.items()))
    assert compare(table(left), table(shuffled), ["k", "s"], rows=False).counts == found.counts


@pytest.mark.parametrize(("values", "others"), [
    ([None, 2**53], [0, 2**53 + 1]), ([None, 1.5], [float("nan"), 2.5]), ([None, True], [False, False]),
])  # fmt: skip
def test_a_null_on_one_side_is_a_change_and_takes_nothing_from_the_other_rows(
    values: list[Any], others: list[Any]
) -> None:
    left, right = pa.table({"k": [0, 1], "v": values}), pa.table({"k": [0, 1], "v": others})
    assert compare(left, right, ["k"], rows=False).counts == Counts(changed=2)
    assert compare(right, left, ["k"], rows=False).counts == Counts(changed=2)


@pytest.mark.parametrize("values", [
    [[1, 2], None, [3]], [{"x": 1}, {"x": None}, None], [b"a", None, b""], [True, None, False],
    [[1, 2], [1, 3], [3]], [{"x": float("nan")}, {"x": 1.0}, {"x": 2.0}], [7, None, 2**53 + 1],
])  # fmt: skip
def test_values_of_any_type_are_compared(values: list[Any]) -> None:
    left = pa.table({"k": [0, 1, 2], "v": values})
    assert compare(left, left, ["k"], rows=False).counts == Counts(unchanged=3)
    turned = pa.table({"k": [0, 1, 2], "v": pa.array([*values[1:], values[0]], left["v"].type)})
    assert compare(left, turned, ["k"], rows=True).counts == Counts(changed=3)


@pytest.mark.parametrize("nulls", [0, 1])
@pytest.mark.parametrize("shift", [0, 1])
def test_intervals_are_compared_as_keys_and_as_values(nulls: int, shift: int) -> None:
    """Of months, days and nanoseconds Arrow compares nothing, and numpy knows no such number: it was a crash."""
    months = [*range(6)] if not nulls else [*range(5), None]
    spans = [None if m is None else (m, -m, m * 10**9) for m in months]
    moved = spans[shift:] + spans[:shift]
    kind = pa.month_day_nano_interval()
    left = pa.table({"k": range(6), "v": pa.array(spans, kind)})
    right = pa.table({"k": range(6), "v": pa.array(moved, kind)})
    changed = 6 if shift else 0
    assert compare(left, right, ["k"], rows=True).counts == Counts(changed=changed, unchanged=6 - changed)
    assert compare(left, right, ["v"], rows=True).counts == Counts(changed=changed, unchanged=6 - changed)
    assert compare(left, right, ["k", "v"], rows=False).counts == Counts(changed, changed, 0, 6 - changed)
    parts = compare_any(left.to_batches(2), right.to_batches(4), ["v"], rows=True)
    assert sum(part().counts.changed for part in parts) == changed


def test_values_of_other_types_are_compared_as_the_newer_type_or_as_text() -> None:
    numbers = pa.table({"k": [0, 1], "v": [1, 2]})
    for values in (["1", "3"], ["1", "x"]):
        words = pa.table({"k": [0, 1], "v": values})
        assert compare(words, numbers, ["k"], rows=False).counts == Counts(changed=1, unchanged=1)
        assert compare(numbers, words, ["k"], rows=False).counts == Counts(changed=1, unchanged=1)


def test_truths_without_a_null_are_compared_row_by_row() -> None:
    left, right = pa.table({"k": [0, 1], "v": [True, False]}), pa.table({"k": [1, 0], "v": [True, True]})
    assert compare(left, right, ["k"], rows=False).counts == Counts(changed=1, unchanged=1)
    assert compare(left, left, ["k"], rows=False).counts == Counts(unchanged=2)


@given(states, states, st.integers(1, 5))
def test_rows_in_any_order_are_compared_in_buckets(left: Values, right: Values, size: int) -> None:
    def batches(values: Values) -> list[pa.RecordBatch]:
        return table(values).to_batches(max_chunksize=size)

    before = diff_any.MEMORY
    try:
        for memory in (before, 1):  # all in memory; everything to files
            diff_any.MEMORY = memory
            results = [job() for job in compare_any(batches(left), batches(right), ["k", "s"], rows=True)]
            assert summed(results) == expected(left, right)
    finally:
        diff_any.MEMORY = before


def test_structs_with_other_fields_in_some_rows_are_compared_by_the_fields_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A subtask of Flink describes a subclass only once it has met it: batches of one state differ in their fields."""
    short, long = pa.array([{"a": 1}, {"a": 2}]), pa.array([{"b": None, "a": 1}, {"b": "x", "a": 2}])
    one = [pa.record_batch([pa.array([i, i + 10]), value], ["k", "v"]) for i, value in enumerate((short, long))]
    other = [one[1], one[0]]
    for memory in (diff_any.MEMORY, 1):
        monkeypatch.setattr(diff_any, "MEMORY", memory)
        for key in (["k"], []):
            results = [job() for job in compare_any(one, other, key, rows=True)]
            assert sum_of(results)[:3] == (0, 0, 0), key
    results = [job() for job in compare_any(one[:1], [one[1].set_column(0, "k", one[0].column(0))], ["k"], rows=True)]
    assert sum_of(results) == Counts(changed=1, unchanged=1)


def sum_of(results: list[Compared]) -> Counts:
    counts = Counts()
    for result in results:
        counts = counts.plus(result.counts)
    return counts


def test_types_that_have_nothing_in_common_are_not_compared() -> None:
    numbers, words, kinds = (
        pa.record_batch([values], ["v"]) for values in (pa.array([1]), pa.array(["a"]), pa.array([{"kind": 1}]))
    )
    for left, right in (([numbers, words], [numbers]), ([numbers], [words]), ([kinds], [words])):
        with pytest.raises(diff_any.Incomparable, match="incompatible types"):
            list(compare_any(left, right, [], rows=False))


def test_rows_without_a_key_are_counted_as_often_as_they_are_there() -> None:
    def batches(values: list[int]) -> list[pa.RecordBatch]:
        return pa.table({"v": pa.array(values, pa.int64())}).to_batches()

    results = [job() for job in compare_any(batches([1, 1, 2]), batches([1, 2, 2, 3]), [], rows=True)]
    counts = Counts()
    rows = []
    for result in results:
        counts = counts.plus(result.counts)
        rows += result.rows.to_pylist() if result.rows is not None else []
    assert counts == Counts(added=2, removed=1, changed=0, unchanged=2)
    assert sorted((r["change"], r["key"]["v"]) for r in rows) == [("added", 2), ("added", 3), ("removed", 1)]


# -- files of tasks against dictionaries ----------------------------------------------------------------------

M = 8


def task_files(storage: MemoryStorage, updates: list[Values], own: range, label: str) -> list[StateFileFacts]:
    files = []
    for i, update in enumerate(updates):
        rows = table(update)
        groups = key_groups([rows["k"].combine_chunks(), rows["s"].combine_chunks()], M) if update else []
        rows = rows.add_column(0, KEY_GROUP, pa.array(groups, pa.int32()))
        rows = rows.filter(pa.array([g in own for g in rows[KEY_GROUP].to_pylist()], pa.bool_()))
        data = encode_state(rows, ["k", "s"])
        path = f"{label}-{i}-{own.start}-{own.stop}.parquet"
        storage.put(path, data, replace=True)
        files.append(StateFileFacts(path, len(data), rows.num_rows, f"{hash(data):x}", *described(data)))
    return files


def owned(storage: MemoryStorage, files: dict[range, list[StateFileFacts]]) -> diff_native.Owned:
    found = []
    for own, mine in files.items():
        task = TaskRows(storage, mine, own)
        rows = task.read(own).num_rows if mine else 0
        part = PartFacts(
            epoch=1, attempt=1, task_name=f"t/{own.start}", state=tuple(mine), rows=rows, logs=(), sent={}, received={},
            positions=None, round_robin={}, connector=None, sink=(), finished=False, alignment=0, sync=0, async_=0,
            attempt_id="", **header(PartFacts),
        )  # fmt: skip
        if mine:
            found.append((part, task))
    return found


@settings(max_examples=examples(60))
@given(
    st.lists(states, max_size=2), st.lists(states, max_size=2), st.lists(states, max_size=2),
    st.sampled_from([1, 2, 3]), st.sampled_from([1, 2, 3]), st.sampled_from([1, 4, 1000]),
)  # fmt: skip
def test_epochs_that_share_files_differ_as_dictionaries_do(
    shared: list[Values], left: list[Values], right: list[Values], p: int, q: int, chunk: int
) -> None:
    storage = MemoryStorage()
    sides, truths = [], []
    for label, own, width in (("a", left, p), ("b", right, q)):
        ranges = [key_group_range(i, width, M) for i in range(width)]
        files = {
            groups: task_files(storage, shared, groups, "shared") + task_files(storage, own, groups, label)
            for groups in ranges
        }
        sides.append(owned(storage, files))
        truth: Values = {}
        for update in (*shared, *own):
            truth |= update
        truths.append(truth)
    before = diff_native.CHUNK_ROWS
    try:
        diff_native.CHUNK_ROWS = chunk
        results = [job() for job in diff_native.jobs(*sides, rows=True)]
    finally:
        diff_native.CHUNK_ROWS = before
    assert summed(results) == expected(*truths)


def test_files_are_shared_as_long_as_digests_are_known_and_the_same() -> None:
    digests = (("a", "1"), ("b", "2"), ("c", None))
    a, b, c = (StateFileFacts(name, 1, 1, sha, (), FooterFacts(0, "")) for name, sha in digests)
    pairs = (([a, b], [a, b]), ([a, b], [a]), ([b, a], [a, b]), ([c], [c]))
    assert [shared_files(x, y, range(8)) for x, y in pairs] == [2, 1, 0, 0]


# -- the command ----------------------------------------------------------------------------------------------


def words(numbers: range, add: int = 0) -> pa.Table:
    return pa.table({"word": [f"w{i}" for i in numbers], "n": pa.array([i + add for i in numbers], pa.int64())})


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Epoch 1: words 0 to 999; 2: on top of it 10 changed and 10 new; 3: 2 tasks' files as in 1, one rewritten
    without word 5 if that task has it."""
    path = tmp_path_factory.mktemp("stores") / "store"
    made = Synthetic(str(path), 3, 16)
    first = made.slices(words(range(1000)))
    base = [(made.write(1, i, rows),) for i, rows in enumerate(first)]
    made.epoch(1, 0, base)
    second = made.slices(words(range(990, 1010), 5000))
    live = [a.num_rows + sum(n >= 6000 for n in b["n"].to_pylist()) for a, b in zip(first, second, strict=True)]
    made.epoch(2, 1, [(*a, made.write(2, i, b)) for i, (a, b) in enumerate(zip(base, second, strict=True))], live)
    (owner,) = [i for i, rows in enumerate(first) if "w5" in rows["word"].to_pylist()]
    less = first[owner].filter(pa.array([w != "w5" for w in first[owner]["word"].to_pylist()]))
    made.epoch(3, 1, [(made.write(3, i, less),) if i == owner else base[i] for i in range(3)])
    return path


run = partial(run_command, "diff")
result = partial(result_of, "diff")


def counted(told: dict[str, Any]) -> tuple[int, ...]:
    (counts,) = [op for op in told["operators"] if op["id"] == "counts"]
    return tuple(counts[name] for name in ("added", "removed", "changed", "unchanged"))


@pytest.mark.parametrize(("a", "b", "counts"), [
    (1, 2, (10, 0, 10, 990)), (2, 1, (0, 10, 10, 990)), (1, 3, (0, 1, 0, 999)), (2, 3, (0, 11, 10, 989)),
    (1, 1, (0, 0, 0, 1000)),
])  # fmt: skip
def test_keys_are_counted(
    store: Path, capsys: pytest.CaptureFixture[str], a: int, b: int, counts: tuple[int, ...]
) -> None:
    told = result(capsys, f"{store}@{a}", f"{store}@{b}")
    assert counted(told) == counts
    assert told["identical"] is (a == b)
    assert told["rows"] is None
    assert run(capsys, f"{store}@{a}", f"{store}@{b}", "--exit-code")[0] == (0 if a == b else 3)


def test_changes_are_rows_with_what_was_and_what_is(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = result(capsys, f"{store}@1", f"{store}@2", "--rows")["rows"]
    assert len(rows) == 20
    by_key = {row["key"]["word"]: row for row in rows}
    assert by_key["w995"] == {
        "operator": "counts", "state": None, "change": "changed", "key": {"word": "w995"}, "from": {"n": 995},
        "to": {"n": 5995},
    }  # fmt: skip
    assert (by_key["w1003"]["change"], by_key["w1003"]["from"], by_key["w1003"]["to"]) == ("added", None, {"n": 6003})
    (gone,) = result(capsys, f"{store}@1", f"{store}@3", "--rows")["rows"]
    assert (gone["change"], gone["key"], gone["from"], gone["to"]) == ("removed", {"word": "w5"}, {"n": 5}, None)


def test_ndjson_streams_the_rows_and_ends_in_the_result(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, f"{store}@1", f"{store}@2", "--rows", "-o", "ndjson")
    head, *items = [json.loads(line) for line in out.splitlines()]
    checked(head)
    assert code == 0
    assert [item["type"] for item in items].count("row") == 20
    assert items[-1] == {"type": "result", "identical": False}
    whole = result(capsys, f"{store}@1", f"{store}@2")
    assert [{"type": "operator", **op} for op in whole["operators"]] == [i for i in items if i["type"] == "operator"]


@pytest.mark.parametrize("ending", ["parquet", "arrow", "jsonl"])
def test_changes_go_to_a_file(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], ending: str) -> None:
    path = tmp_path / f"changes.{ending}"
    told = result(capsys, f"{store}@1", f"{store}@2", "--out", path)
    assert (told["out"], told["rows"]) == (str(path), None)
    if ending == "parquet":
        rows = pq.read_table(path).to_pylist()
    elif ending == "arrow":
        rows = pa.ipc.open_file(path).read_all().to_pylist()
    else:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert sorted(row["change"] for row in rows) == ["added"] * 10 + ["changed"] * 10
    assert {row["to"]["n"] - row["from"]["n"] for row in rows if row["from"]} == {5000}
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_files_that_both_sides_have_are_not_read(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = Path(shutil.copytree(store, tmp_path / "own"))
    owner = next(i for i in range(3) if (own / layout.state(3, f"counts/{i}", FIRST)).exists())
    for i in {1, 2} - {owner}:  # the first file tells the columns
        file = own / layout.state(1, f"counts/{i}", FIRST)
        file.write_bytes(b"x" * file.stat().st_size)
    told = result(capsys, f"{own}@1", f"{own}@3", "--operator", "counts")
    assert counted(told) == (0, 1, 0, 999)


def test_wrong_usage_says_so(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for args, code, says in (
        ((f"{store}@1", f"{store}@9"), 10, "no epoch 9"),
        ((f"{store}@1", f"{store}@2", "--operator", "nobody"), 2, "lines, counts, printed"),
        ((f"{store}@1", f"{store}@2", "--out", "x.csv"), 2, "CSV"),
        ((f"{store}@1",), 2, "missing argument"),
    ):
        found, out, err = run(capsys, *args)
        assert (found, out) == (code, "")
        assert says in err


def test_positions_say_how_far_they_moved(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (position,) = result(capsys, f"{store}@1", f"{store}@3")["positions"]
    assert position == {
        "task": "lines/0", "split": "in/a", "from": {"offset": 100_000, "records": 3000, "text": None},
        "to": {"offset": 300_000, "records": 9000, "text": None},
        "moved": {"offset": 200_000, "records": 6000, "text": None},
    }  # fmt: skip


def test_logs_are_compared_by_channel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_store(tmp_path)
    logs = result(capsys, f"{tmp_path}@1", f"{tmp_path}@4")["logs"]
    assert [(log["channel"], log["from"], log["to"], log["same"]) for log in logs] == [
        (f"seen/{i}->seen/{j}", 2, 2, True) for i in (0, 1) for j in (0, 1)
    ]
    assert result(capsys, f"{tmp_path}@4", f"{tmp_path}@4")["identical"] is True


@pytest.mark.parametrize("width", [80, 200])
def test_tables_fit_their_width(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.chdir(store.parent)
    code, out, err = run(capsys, "store@1", "store@2", "--rows")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= width
    assert "~ counts word=\"w995\": n=995 -> n=5995" in out
    assert "lines/0  in/a   100,000  200,000  +100,000" in out
    assert "Identical" in run(capsys, "store@1", "store@1")[1]


# -- another job graph ----------------------------------------------------------------------------------------


def build(path: Path, parallelism: int, job: Topology | None = None) -> Path:
    path.mkdir()
    made = Build(storages.LocalStorage(path), job or loop_job(parallelism))
    made.begin()
    made.complete(1, 0)
    return path


def test_a_state_spread_over_other_tasks_is_the_same_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = words(range(500))
    for name, tasks, width in (("a", 2, 16), ("b", 3, 16), ("c", 3, 24)):
        made = Synthetic(str(tmp_path / name), tasks, width)
        made.epoch(1, 0, [(made.write(1, i, mine),) for i, mine in enumerate(made.slices(rows))])
    told = result(capsys, tmp_path / "a", tmp_path / "b")
    assert counted(told) == (0, 0, 0, 500)
    assert told["identical"] is False
    assert [(d["change"], d["subject"], d["from"], d["to"]) for d in told["topology"]] == [
        ("parallelism", "counts", "2", "3"),
    ]
    assert "rescale" in told["topology"][0]["impact"]
    told = result(capsys, tmp_path / "a", tmp_path / "c")  # other key groups: compared in buckets
    assert counted(told) == (0, 0, 0, 500)
    assert {"max-parallelism", "parallelism"} == {d["change"] for d in told["topology"] if d["subject"] == "counts"}


def test_a_state_by_another_key_is_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, rename in (("a", "word"), ("b", "term")):
        made = Synthetic(str(tmp_path / name), 1, 16)
        (mine,) = made.slices(words(range(10)))
        path = layout.state(1, "counts/0", FIRST)
        made.epoch(1, 0, [(put_state(made.storage, path, mine.rename_columns([KEY_GROUP, rename, "n"]), [rename]),)])
    told = result(capsys, tmp_path / "a", tmp_path / "b")
    (counts,) = [op for op in told["operators"] if op["id"] == "counts"]
    assert (counts["change"], counts["added"]) == ("unknown", None)
    assert "the key was word and is term" in counts["states"][0]["note"]
    assert told["identical"] is None
    code, out, err = run(capsys, tmp_path / "a", tmp_path / "b", "--exit-code")
    assert code == 3
    assert "not everything could be compared" in out
    assert "there may be differences" in err


def detail(*operators: OperatorFacts) -> EpochDetail:
    return EpochDetail(EpochFacts(1, Status.COMPLETE, 0, 1, 1, 1, (), 1, None, None), operators, ())


def graph(*operators: Operator, edges: tuple[Edge, ...] = ()) -> Topology:
    return Topology("j", operators, edges)


def test_what_another_job_graph_means_for_a_restore() -> None:
    facts = detail(OperatorFacts("a", None, 2, 10, 5, ()), OperatorFacts("b", None, 1, 0, 0, ()))
    a = Operator("a", Kind.DISTINCT, 2, 8, key=("x",))
    b = Operator("b", Kind.MAP, 1, 8, function="m:f")
    edge = Edge("b", "a", Partition.HASH, ("x",))
    changed = msgspec.structs.replace
    cases = [
        (graph(a), graph(a), []),
        (graph(a, b), graph(b), [("operator-removed", "its state (5 rows) would have no owner")]),
        (graph(a, b), graph(a), [("operator-removed", "nothing is lost")]),
        (graph(b), graph(a, b), [("operator-added", "start without state")]),
        (graph(a), graph(changed(a, key=("y",))), [("key", "kept by other keys")]),
        (graph(a), graph(changed(a, max_parallelism=16)), [("max-parallelism", "rewritten key by key")]),
        (graph(a), graph(changed(a, kind=Kind.REDUCE)), [("kind", "another kind")]),
        (graph(b), graph(changed(b, function="m:g")), [("function", "logs were made by other code")]),
        (graph(a, b, edges=(edge,)), graph(a, b), [("edge-removed", "no receiver")]),
        (graph(a, b), graph(a, b, edges=(edge,)), [("edge-added", "none")]),
        (graph(a, b, edges=(edge,)), graph(a, b, edges=(changed(edge, partition=Partition.REBALANCE, key=()),)),
         [("edge", "routed anew")]),
    ]  # fmt: skip
    for before, after, wanted in cases:
        found = diff_topology(before, after, (facts, facts))
        assert [d.change for d in found] == [change for change, _ in wanted]
        assert all(text in d.impact for d, (_, text) in zip(found, wanted, strict=True))


def test_without_a_job_graph_the_operators_of_the_epochs_are_compared() -> None:
    before = detail(OperatorFacts("a", "Map", 2, 10, None, ()), OperatorFacts("b", None, 1, None, None, ()))
    after = detail(OperatorFacts("a", "Map", 3, 10, None, ()), OperatorFacts("c", None, 1, None, None, ()))
    found = {(d.change, d.subject): d.impact for d in diff_topology(None, None, (before, after))}
    assert found[("operator-removed", "b")] == "its state, if it has any, would have no owner"
    assert found.keys() == {("parallelism", "a"), ("operator-removed", "b"), ("operator-added", "c")}


class Viewed(CheckpointStore):
    """A store that answers only what every format does."""

    format = "viewed"

    def __init__(self, store: NativeStore) -> None:
        self._store = store

    @property
    def path(self) -> str:
        return self._store.path

    @property
    def job(self) -> str:
        return self._store.job

    def epochs(self) -> list[EpochFacts]:
        return self._store.epochs()

    def detail(self, epoch: int) -> EpochDetail:
        return self._store.detail(epoch)

    def states(self, epoch: int) -> list[StateFacts]:
        return self._store.states(epoch)

    def state(self, epoch: int, operator: str, name: str | None = None) -> Iterator[pa.RecordBatch]:
        return self._store.state(epoch, operator, name)

    def log(self, epoch: int, channel: AnyChannelId) -> Iterator[pa.RecordBatch]:
        return self._store.log(epoch, channel)


def test_any_two_stores_are_compared_through_the_view(store: Path) -> None:
    native = NativeStore(storages.LocalStorage(store))
    viewed = Viewed(native)
    for left, right in ((viewed, native), (native, viewed), (viewed, viewed)):
        (found,) = diff_operators(Side(left, 1), Side(right, 2), (["counts"], ["counts"]), only="counts")
        assert (found.added, found.removed, found.changed, found.unchanged) == (10, 0, 10, 990)


def test_of_many_splits_that_moved_the_sums_by_task_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_store(tmp_path / "store")
    monkeypatch.setattr("abscli.text.diff.ROWS", 1)
    assert main(["diff", f"{tmp_path}/store@1", f"{tmp_path}/store@2"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["lines/0", "(1", "split)", "100", "200", "+100", "+20"] in rows
    assert ["sums", "over", "2", "splits;", "-o", "json", "has", "each"] in rows
