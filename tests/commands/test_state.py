"""`abs state`: rows by key and by condition, the newest row of a key, and files that other tools read."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abscli.cli.main import main
from formats.native import layout
from formats.native.facts import StateFileFacts
from formats.native.hashing import key_groups
from formats.native.state.live_rows import StateFile, TaskRows, live_rows
from formats.native.state.row_groups import described
from formats.native.state.tables import KEY_GROUP, encode_state
from formats.native.store import NativeStore
from formats.native.writer import complete, put_part
from formats.query.keys import is_any_of, last_of_each, matches
from formats.query.predicate import parse_predicate
from formats.query.sorting import Order, in_order
from formats.storage import LocalStorage, MemoryStorage, Storage
from formats.values import plain
from tests.support.commands import result_of, run_command
from tests.support.guide.blocks import PAGES
from tests.support.schemas import checked
from tests.support.stores.large import Synthetic
from tests.support.stores.small import FIRST, make_store
from tests.tiers import examples

WORDS = 3000
QUERY_PAGE = PAGES / "operations" / "query.md"


def counts(numbers: range, add: int = 0) -> pa.Table:
    return pa.table({"word": [f"w{i}" for i in numbers], "n": pa.array([i + add for i in numbers], pa.int64())})


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Epoch 1: 3,000 words on 3 tasks; epoch 2: on top of its files 200 of them changed and 10 new ones."""
    path = tmp_path_factory.mktemp("stores") / "store"
    made = Synthetic(str(path), 3, 16)
    first = made.slices(counts(range(WORDS)))
    base = [(made.write(1, i, rows),) for i, rows in enumerate(first)]
    made.epoch(1, 0, base)
    second = made.slices(counts(range(WORDS - 200, WORDS + 10), 1_000_000))
    new = [sum(n >= 1_000_000 + WORDS for n in rows["n"].to_pylist()) for rows in second]
    live = [rows.num_rows + more for rows, more in zip(first, new, strict=True)]
    made.epoch(2, 1, [(*a, made.write(2, i, b)) for i, (a, b) in enumerate(zip(base, second, strict=True))], live)
    return path


run = partial(run_command, "state")
result = partial(result_of, "state")


def test_a_key_has_its_newest_value(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for epoch, word, n in ((1, "w2900", 2900), (2, "w2900", 1_002_900), (2, "w7", 7), (2, "w3005", 1_003_005)):
        told = result(capsys, f"{store}@{epoch}", "counts", "--key", word)
        assert (told["rows"], told["count"], told["more"]) == ([{"word": word, "n": n}], 1, False)
    assert result(capsys, f"{store}@1", "counts", "--key", "w3005")["rows"] == []
    both = result(capsys, store, "counts", "--key", "w1", "--key", "word=w2")["rows"]
    assert sorted(row["n"] for row in both) == [1, 2]


def test_every_live_key_is_there_once(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = result(capsys, store, "counts")["rows"]
    assert {row["word"]: row["n"] for row in rows} == {
        f"w{i}": i + (1_000_000 if i >= WORDS - 200 else 0) for i in range(WORDS + 10)
    }
    assert len(rows) == WORDS + 10


def test_a_condition_on_values_is_held_against_the_newest_row(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert result(capsys, store, "counts", "--where", "n < 2805 and n >= 2795")["count"] == 5
    assert result(capsys, f"{store}@1", "counts", "--where", "n < 2805 and n >= 2795")["count"] == 10
    told = result(capsys, store, "counts", "--where", "n >= 1000000", "--where", "word <= w2802", "--columns", "n")
    assert sorted(row["n"] for row in told["rows"]) == [1_002_800, 1_002_801, 1_002_802]
    assert told["columns"] == [{"name": "n", "type": "int64"}]


def test_columns_of_the_format_are_shown_when_asked_for(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = result(capsys, store, "counts", "--key", "w5", "--columns", "__key_group,word")["rows"]
    assert row == {"__key_group": key_groups([pa.array(["w5"])], 16)[0], "word": "w5"}


def test_a_table_is_cut_and_says_so(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, store)
    assert len(out.splitlines()) == 42
    assert "more than these 40" in out
    _, out, _ = run(capsys, store, "counts", "--limit", "2")
    assert out.splitlines()[0].split() == ["word", "n"]
    assert len(out.splitlines()) == 4
    assert run(capsys, store, "counts", "--key", "nobody")[1] == "No rows.\n"
    told = result(capsys, store, "counts", "--limit", "0")
    assert (told["rows"], told["more"]) == ([], True)


def test_ndjson_has_a_row_a_line(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, store, "counts", "--where", "n < 3", "-o", "ndjson")
    header, *rows = [json.loads(line) for line in out.splitlines()]
    checked(header)
    assert sorted(row["row"]["n"] for row in rows) == [0, 1, 2]
    assert {row["type"] for row in rows} == {"row"}


@pytest.mark.parametrize(("args", "says"), [
    (["nobody"], "there is state of counts"), (["counts", "--where", "x = 1"], "there are __key_group, word, n"),
    (["counts", "--where", "n = many"], "'many' is not a value of type int64"),
    (["counts", "--columns", "x"], "no column 'x'"), (["counts", "--state", "s"], "no state 's'"),
    (["counts", "--out", "x.xlsx"], "use a file name that ends in .parquet"),
    (["counts", "--limit", "-1"], "below 0"), (["counts", "--where", "n ="], "expected a value"),
])  # fmt: skip
def test_wrong_usage_says_what_there_is(
    store: Path, capsys: pytest.CaptureFixture[str], args: list[str], says: str
) -> None:
    code, out, err = run(capsys, store, *args)
    assert (code, out) == (2, "")
    assert says in err


def test_several_states_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = Synthetic(str(tmp_path / "empty"), 2, 4)
    made.epoch(1, 0, [(), ()])
    told = result(capsys, tmp_path / "empty")
    assert (told["states"], told["rows"]) == ([], None)
    assert "No state." in run(capsys, tmp_path / "empty")[1]
    assert run(capsys, tmp_path / "empty", "--key", "x")[0] == 2
    assert run(capsys, tmp_path / "empty", "counts")[0] == 2


def test_a_file_that_is_not_what_was_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_store(tmp_path)
    file = tmp_path / layout.state(1, "seen/0", FIRST)
    whole = file.read_bytes()
    for damage in (whole[:-1], whole[:100] + b"\0" * 30 + whole[130:], b"", whole[:-8] + b"\xff" * 8):
        file.write_bytes(damage)
        code, out, err = run(capsys, tmp_path, "seen")
        assert (code, out) == (3, "")
        assert "parts/seen/0/state.parquet" in err
    file.unlink()
    assert run(capsys, tmp_path, "seen")[0] == 3


class Counting(LocalStorage):
    """Notes which files are opened."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.opened: list[str] = []

    def local_path(self, path: str) -> str:
        self.opened.append(path)
        return super().local_path(path)


def test_a_key_opens_the_files_of_one_task(store: Path) -> None:
    storage = Counting(store)
    native = NativeStore(storage)
    native.topology(1), native.parts(1)
    storage.opened.clear()
    (batch,) = native.select(1, "counts", where=parse_predicate("word = w2900"))
    assert batch.to_pylist()[0]["n"] == 2900
    owner = int(key_groups([pa.array(["w2900"])], 16)[0]) * 3 // 16
    assert {path for path in storage.opened if "parquet" in path} <= {
        layout.state(1, f"counts/{i}", FIRST) for i in {0, owner}  # the first one tells the columns
    }


def test_row_groups_that_cannot_hold_a_key_are_not_read(tmp_path: Path) -> None:
    rows = 200_000
    table = pa.table({KEY_GROUP: pa.array(np.repeat([0, 1], rows // 2).astype(np.int32)),
                      "k": pa.array(np.arange(rows))})  # fmt: skip
    storage = MemoryStorage()
    data = encode_state(table, ["k"])
    storage.put("f.parquet", data)
    file = StateFile(storage, StateFileFacts("f.parquet", len(data), rows, None, *described(data)))
    read: list[int] = []
    inner = file._reader.read_row_groups
    file._reader.read_row_groups = lambda groups, **more: (read.extend(groups), inner(groups, **more))[1]
    assert len(file.row_groups) == 4
    assert file.read(range(1, 2), ["k"], parse_predicate("k = 150000")).to_pylist() == [{"k": 150_000}]
    assert read == [2]


# -- files for other tools ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def files(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("out")
    for ending in ("parquet", "arrow", "jsonl", "csv"):
        assert main(["state", str(store), "counts", "--out", str(where / f"counts.{ending}"), "-q"]) == 0
    return where


def test_rows_are_written_in_four_formats(files: Path) -> None:
    total = sum(range(WORDS + 10)) + 210 * 1_000_000
    assert pa.compute.sum(pq.read_table(files / "counts.parquet")["n"]).as_py() == total
    assert pa.compute.sum(pa.ipc.open_file(files / "counts.arrow").read_all()["n"]).as_py() == total
    assert sum(json.loads(line)["n"] for line in (files / "counts.jsonl").read_text().splitlines()) == total
    head, *lines = (files / "counts.csv").read_text().splitlines()
    assert (head, sum(int(line.split(",")[1]) for line in lines)) == ('"word","n"', total)
    assert {path.name for path in files.iterdir()} == {f"counts.{e}" for e in ("parquet", "arrow", "jsonl", "csv")}


def test_what_was_written_is_said(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = result(capsys, store, "counts", "--where", "n < 5", "--out", tmp_path / "x.parquet")
    assert (told["count"], told["out"], told["rows"]) == (5, str(tmp_path / "x.parquet"), None)


def line_of_the_guide(tool: str) -> str:
    """Return the one line that the guide has for a tool; it reads `counts.parquet` in the current directory."""
    (block,) = re.findall(r"(?ms)^```sh\n(.*?)^```", QUERY_PAGE.read_text(encoding="utf-8"))
    lines = [line for line in block.splitlines() if line.startswith(f"{tool} ") or f"import {tool}" in line]
    assert len(lines) == 1
    return lines[0]


@pytest.mark.parametrize("tool", ["polars", "pandas"])
def test_other_tools_read_it_with_the_line_of_the_guide(files: Path, tool: str) -> None:
    if importlib.util.find_spec(tool) is None:
        pytest.skip(f"{tool} is not installed")
    python, *args = shlex.split(line_of_the_guide(tool))
    assert python == "python"
    done = subprocess.run([sys.executable, *args], capture_output=True, text=True, cwd=files, check=True)
    assert re.search(f"{WORDS + 10:,}".replace(",", "[,_]?"), done.stdout)


def test_duckdb_reads_it_with_the_line_of_the_guide(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("duckdb") is None:
        pytest.skip("duckdb is not installed")
    monkeypatch.chdir(files)
    command, option, query = shlex.split(line_of_the_guide("duckdb"))
    assert (command, option) == ("duckdb", "-c")
    rows = importlib.import_module("duckdb").sql(query).fetchall()
    assert (len(rows), max(n for _, n in rows)) == (10, 1_000_000 + WORDS + 9)


def test_spark_reads_it_with_the_line_of_the_guide(files: Path, spark: Any) -> None:
    from pyspark.sql import SparkSession

    command, option, query = shlex.split(line_of_the_guide("spark-sql"))
    assert (command, option) == ("spark-sql", "-e")
    query = query.replace("*", "count(*), max(n)").replace("counts.parquet", f"{files}/counts.parquet")
    assert tuple(SparkSession(spark).sql(query).first() or ()) == (WORDS + 10, 1_000_000 + WORDS + 9)
    assert not Path("spark-warehouse").exists(), "Spark leaves nothing where a command was called"


# -- which rows have one key ----------------------------------------------------------------------------------

KEYS: list[st.SearchStrategy[Any]] = [
    st.none() | st.text(max_size=2), st.none() | st.integers(-2, 2),
    st.sampled_from([0.0, -0.0, 1.0, float("nan"), None]),
    st.none() | st.booleans(), st.none() | st.lists(st.integers(0, 1), max_size=2),
]  # fmt: skip
TYPES = [pa.string(), pa.int64(), pa.float64(), pa.bool_(), pa.list_(pa.int64())]


def same(value: Any) -> Any:
    """A stand-in that is equal where keys are."""
    if isinstance(value, float):
        return "nan" if value != value else value + 0.0
    return tuple(value) if isinstance(value, list) else value


@given(st.data(), st.lists(st.integers(0, 4), min_size=1, max_size=3))
def test_rows_match_where_python_says_that_their_keys_are_equal(data: st.DataObject, columns: list[int]) -> None:
    row = st.tuples(*(KEYS[c] for c in columns))
    left = data.draw(st.lists(row, max_size=8, unique_by=lambda r: tuple(map(same, r))))
    right = data.draw(st.lists(row | st.sampled_from(left) if left else row, max_size=8))

    def arrays(rows: list[Any]) -> list[pa.Array]:
        return [pa.array([r[i] for r in rows], TYPES[c]) for i, c in enumerate(columns)]

    def key(r: Any) -> Any:
        return tuple(map(same, r))

    places = {key(r): i for i, r in enumerate(left)}
    once = list({key(r): r for r in right}.values())
    assert matches(arrays(left), arrays(once)).tolist() == [places.get(key(r), -1) for r in once]
    assert is_any_of(arrays(right), arrays(left)).tolist() == [key(r) in places for r in right]
    last = {key(r): i for i, r in enumerate(right)}
    assert last_of_each(arrays(right)).tolist() == sorted(last.values()) or not right


@settings(max_examples=examples(40))
@given(
    st.lists(st.dictionaries(st.integers(0, 30), st.integers(), max_size=12), min_size=1, max_size=4),
    st.integers(1, 40),
)
def test_live_rows_are_those_of_a_dictionary_however_they_are_chunked(
    updates: list[dict[int, int]], chunk: int
) -> None:
    storage: Storage = MemoryStorage()
    truth: dict[int, int] = {}
    files = []
    for i, update in enumerate(update for update in updates if update):
        truth |= update
        table = pa.table({"k": pa.array(list(update), pa.int64()), "v": [v % 1000 for v in update.values()]})
        table = table.add_column(0, KEY_GROUP, pa.array(key_groups([table["k"].combine_chunks()], 8)))
        data = encode_state(table, ["k"])
        storage.put(f"{i}.parquet", data)
        files.append(StateFileFacts(f"{i}.parquet", len(data), len(update), None, *described(data)))
    if not files:
        return
    task = TaskRows(storage, files, range(8))
    found = [row for groups in task.chunks(chunk) for row in task.read(groups).to_pylist()]
    assert sorted((row["k"], row["v"]) for row in found) == sorted((k, v % 1000) for k, v in truth.items())
    assert [row[KEY_GROUP] for row in found] == sorted(row[KEY_GROUP] for row in found)
    for k in truth:
        (table,) = live_rows(iter([task]), 8, ["v"], parse_predicate(f"k = {k}"))
        assert table.to_pylist() == [{"v": truth[k] % 1000}]


def test_values_are_such_that_json_can_hold_them() -> None:
    import datetime as dt
    from decimal import Decimal

    odd = {"a": b"\x01", "b": [float("inf"), 1.5], "c": dt.date(2026, 1, 2), "d": Decimal("1.10"), "e": None}
    assert plain(odd) == {"a": "0x01", "b": ["Infinity", 1.5], "c": "2026-01-02", "d": "1.10", "e": None}


# -- through all epochs, and in order ---------------------------------------------------------------------------


def test_a_key_through_all_epochs(
    store: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = result_of("state", capsys, store, "--key", "w2900", "--history")
    assert [(r["__epoch"], r["__present"], r["n"]) for r in told["rows"]] == [(2, True, 1_002_900), (1, True, 2900)]
    assert [column["name"] for column in told["columns"]][:3] == ["__epoch", "__triggered", "__present"]
    new = result_of("state", capsys, store, "counts", "--key", f"w{WORDS}", "--history")["rows"]
    assert [(r["__epoch"], r["__present"], r["word"]) for r in new] == [(2, True, f"w{WORDS}"), (1, False, None)]
    assert len(result_of("state", capsys, f"{store}@1", "--key", "w1", "--history")["rows"]) == 1
    first = result_of("state", capsys, store, "--key", "w2900", "--history", "--limit", "1")
    assert ([r["__epoch"] for r in first["rows"]], first["more"]) == ([2], True)
    ordered = result_of("state", capsys, store, "--key", "w2900", "--history", "--sort", "n")
    assert [r["n"] for r in ordered["rows"]] == [2900, 1_002_900]
    out = tmp_path / "history.parquet"
    result_of("state", capsys, store, "--key", "w1", "--key", "w2", "--history", "--columns", "n", "--out", out)
    written = pq.read_table(out).select(["__epoch", "n"]).to_pylist()
    assert sorted((-row["__epoch"], row["n"]) for row in written) == [(-2, 1), (-2, 2), (-1, 1), (-1, 2)]
    table = run_command("state", capsys, store, "counts", "--key", f"w{WORDS}", "--history")[1]
    rows = [line.split()[2:] for line in table.splitlines()[1:]]
    assert rows == [["true", f"w{WORDS}", str(1_000_000 + WORDS)], ["false"]]
    table = run_command("state", capsys, store, "--key", "w2900", "--history")[1]
    monkeypatch.setenv("COLUMNS", "40")
    narrow = run_command("state", capsys, store, "--key", "w2900", "--history")[1]
    assert "not shown in 40 columns: __triggered" in narrow
    assert max(map(len, narrow.splitlines())) <= 40
    monkeypatch.delenv("COLUMNS")
    assert table.splitlines()[0].split() == ["__epoch", "__triggered", "__present", "word", "n"]


def test_a_key_through_all_epochs_is_shown_though_every_key_has_been_removed_since(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build = make_store(tmp_path)
    line = result_of("state", capsys, f"{tmp_path}@1", "seen", "--limit", "1")["rows"][0]["line"]
    parts = tuple(msgspec.structs.replace(build.part(6, task), state=(), rows=0) for task in build.tasks())
    for part in parts:
        put_part(build.storage, part)
    complete(build.storage, build.trigger(6, 4), build.topology.job, parts, idle=False)
    told = result_of("state", capsys, tmp_path, "seen", "--key", line, "--history")["rows"]
    assert [(row["__epoch"], row["__present"]) for row in told] == [(6, False), (4, True), (2, True), (1, True)]
    code, _, err = run_command("state", capsys, tmp_path, "nobody", "--key", line, "--history")
    assert code == 2
    assert "there is state of no operator" in err


def test_of_each_epoch_only_what_can_hold_the_key_is_read(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    original = StateFile.__init__

    def noted(self: StateFile, storage: Storage, file: StateFileFacts) -> None:
        opened.append(file.path)
        original(self, storage, file)

    monkeypatch.setattr(StateFile, "__init__", noted)
    result_of("state", capsys, store, "--key", "w2900", "--history")
    tasks = {path.split("/parts/")[1] for path in opened}
    # The first task's file says which key columns there are; besides only the key's own task is looked at.
    assert len(tasks) <= 2, tasks


def test_an_epoch_that_cannot_be_read_does_not_hide_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_store(tmp_path)
    line = result_of("state", capsys, f"{tmp_path}@1", "seen", "--limit", "1")["rows"][0]["line"]
    damaged = tmp_path / layout.tasks_file(2, FIRST)
    damaged.write_bytes(b"x" * damaged.stat().st_size)
    code, out, err = run_command("state", capsys, tmp_path, "seen", "--key", line, "--history", "-o", "json")
    assert code == 3
    assert "tasks.json" in err
    assert {row["__epoch"] for row in json.loads(out)["rows"]} <= {1, 4}
    assert json.loads(out)["rows"]


@pytest.mark.parametrize(("words", "message"), [
    (("--history",), "goes with --key"), (("--history", "--key", "w1", "--where", "n > 1"), "nothing with --where"),
    (("--history", "--key", "w1", "--place"), "nothing with --place"), (("--sort", "no"), "no column 'no'"),
    (("--all", "--out", "x", "--sort", "n"), "remove --sort"),
    (("--key", "w1", "--history", "--columns", "no"), "no column 'no'"),
])  # fmt: skip
def test_what_goes_with_neither_is_refused(
    store: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    code, _, err = run_command("state", capsys, store, *words)
    assert code == 2
    assert message in " ".join(err.split())


def test_rows_come_in_the_order_of_a_column(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    numbers = [*range(WORDS - 200), *(1_000_000 + n for n in range(WORDS - 200, WORDS + 10))]
    most = result_of("state", capsys, store, "--sort", "-n", "--limit", "3")
    assert [row["n"] for row in most["rows"]] == sorted(numbers, reverse=True)[:3]
    assert most["more"] is True
    every = result_of("state", capsys, store, "--sort", "n")
    assert [row["n"] for row in every["rows"]] == sorted(numbers)
    words = result_of("state", capsys, store, "--sort", "n", "--columns", "word", "--limit", "2")
    assert words["rows"] == [{"word": "w0"}, {"word": "w1"}]
    last = result_of("state", capsys, store, "--where", "n < 5", "--sort", "-word")
    assert [row["word"] for row in last["rows"]] == ["w4", "w3", "w2", "w1", "w0"]


@given(
    st.lists(st.lists(st.tuples(st.none() | st.integers(-3, 3), st.sampled_from("abc")), max_size=30), max_size=5),
    st.booleans(), st.none() | st.integers(0, 12),
)  # fmt: skip
def test_the_first_rows_in_order_are_those_of_all(
    pieces: list[list[tuple[int | None, str]]], descending: bool, limit: int | None
) -> None:
    schema = pa.schema([("n", pa.int64()), ("w", pa.string())])
    batches = [
        pa.record_batch([pa.array([n for n, _ in rows], pa.int64()), pa.array([w for _, w in rows], pa.string())],
                        schema=schema)
        for rows in pieces
    ]  # fmt: skip
    rows = [row for piece in pieces for row in piece]
    known = sorted([row for row in rows if row[0] is not None], key=lambda row: row[0] or 0, reverse=descending)
    expected = [*known, *(row for row in rows if row[0] is None)][:limit]
    got = in_order(batches, schema, [Order("n", descending)], limit)
    assert [(row["n"], row["w"]) for row in got.to_pylist()] == expected
