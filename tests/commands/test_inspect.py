"""`abs inspect`: what a store or an epoch holds, for people and for scripts."""

from __future__ import annotations

import itertools
import json
import os
import pty
import select
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abscli.text.columns import bar, clean, columns, moment, seconds, size, some, wrapped
from abscli.text.inspect import next_commands
from abscli.text.inspect_page import StorePage
from formats.native import layout, lock
from formats.native.store import NativeStore
from formats.storage import LocalStorage
from formats.view import Status
from tests.support.commands import result_of, run_command
from tests.support.schemas import checked
from tests.support.stores.small import FIRST, make_store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stores") / "store"
    make_store(path)
    return path


@pytest.fixture
def own(store: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    return Path(shutil.copytree(store, tmp_path / "own"))


ABS = [sys.executable, "-c", "import sys; from abscli.cli.main import main; sys.exit(main())"]
run = partial(run_command, "inspect")
result = partial(result_of, "inspect")


# -- for scripts ----------------------------------------------------------------------------------------------


def test_a_store_is_its_epochs(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = result(capsys, store)
    assert (told["format"], told["job"], told["latest_complete"]) == ("abs", "reach", 4)
    assert [(e["epoch"], e["status"], e["parent"]) for e in told["epochs"]] == [
        (1, "complete", 0), (2, "complete", 1), (3, "aborted", 2), (4, "complete", 2), (5, "incomplete", 4),
    ]
    assert told["epochs"][4]["tasks"] == {"expected": 5, "acked": 3}
    assert told["epochs"][4]["missing"] == ["seen/1", "out/0"]
    assert told["epochs"][4]["duration"] is None
    assert "operators" not in told


def test_an_epoch_is_its_operators_and_channels(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for ref in (f"{store}@4", f"{store}@latest"):
        told = result(capsys, ref)
        assert [e["epoch"] for e in told["epochs"]] == [4]
        assert [(op["id"], op["rows"], len(op["tasks"])) for op in told["operators"]] == [
            ("lines", 0, 2), ("seen", 12, 2), ("out", 0, 1),
        ]
        assert {c["channel"]: c["logged"] for c in told["channels"] if c["back_edge"]} == {
            f"seen/{i}->seen/{j}": 2 for i in (0, 1) for j in (0, 1)
        }
        assert told["operators"][0]["tasks"][0]["position"] == [{"split": "in/0.txt", "offset": 400, "records": 80}]
        assert told["operators"][1]["tasks"][0]["async"] == 0.002


def test_every_file_is_named_with_size_rows_and_digest(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = result(capsys, f"{store}@4")["operators"][1]["tasks"][1]
    assert [f["path"].split("/")[1] for f in task["files"]] == ["0000000001", "0000000002", *["0000000004"] * 3]
    for file in task["files"]:
        assert (store / file["path"]).stat().st_size == file["bytes"]
        assert (file["rows"], len(file["sha256"])) == (2, 64)


def test_what_missing_tasks_would_know_is_null(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = result(capsys, f"{store}@5")
    assert told["operators"][1]["rows"] is None
    assert [t["task"] for t in told["operators"][1]["tasks"]] == ["seen/0"]
    assert {c["received"] for c in told["channels"] if c["channel"].endswith("->out/0")} == {None}


def test_a_page_can_be_narrowed_to_an_operator_or_a_task(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = result(capsys, f"{store}@4", "--operator", "out")
    assert ([op["id"] for op in told["operators"]], len(told["channels"])) == (["out"], 2)
    told = result(capsys, store, "--task", "seen/1")
    assert [t["task"] for t in told["operators"][0]["tasks"]] == ["seen/1"]
    assert len(told["channels"]) == 2 + 3 + 1
    assert all("seen/1" in c["channel"].split("->") for c in told["channels"])


@pytest.mark.parametrize(("option", "value", "says"), [
    ("--operator", "nope", "'nope'"), ("--task", "nope/0", "'nope/0'"), ("--task", "seen/2", "seen/0 to seen/1"),
    ("--task", "seen", "'seen'"),
])
def test_an_unknown_operator_or_task_is_told_with_what_there_is(
    store: Path, capsys: pytest.CaptureFixture[str], option: str, value: str, says: str
) -> None:
    code, out, err = run(capsys, f"{store}@4", option, value)
    assert (code, out) == (2, "")
    assert says in err


@pytest.mark.parametrize(("ref", "code"), [("@9", 10), ("@x", 10), ("@_x", 2), ("/none", 10)])
def test_what_is_not_there_has_an_exit_code_and_an_error_object(
    store: Path, capsys: pytest.CaptureFixture[str], ref: str, code: int
) -> None:
    found, out, err = run(capsys, f"{store}{ref}", "-o", "json")
    assert (found, out) == (code, "")
    assert checked(err, "abs.error")["code"] == code


def test_ndjson_is_a_header_then_items_with_their_type(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, f"{store}@4", "-o", "ndjson")
    header, *items = [json.loads(line) for line in out.splitlines()]
    assert (header["schema"], header["latest_complete"]) == ("abs.inspect", 4)
    kinds = [(kind, len(list(same))) for kind, same in itertools.groupby(items, lambda item: item["type"])]
    assert kinds == [("epoch", 1), ("operator", 3), ("channel", 10)]


def test_a_damaged_epoch_is_one_row_and_does_not_hide_the_others(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (own / layout.outcome(2)).write_bytes(b"garbage")
    (own / layout.state(4, "seen/0", FIRST)).unlink()
    told = result(capsys, own)
    assert [e["status"] for e in told["epochs"]] == ["complete", "damaged", "aborted", "damaged", "incomplete"]
    assert told["latest_complete"] == 1
    assert "outcome.json" in told["epochs"][1]["reason"]
    assert "seen/0" in told["epochs"][3]["reason"]
    assert run(capsys, f"{own}@2")[0] == 3
    assert result(capsys, f"{own}@4")["epochs"][0]["status"] == "damaged"


def test_a_store_in_use_shows_its_open_epoch_in_progress(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with lock.exclusive(LocalStorage(own)):
        assert result(capsys, own)["epochs"][4]["status"] == "in-progress"


@pytest.mark.parametrize("format", ["spark", "flink"])
def test_a_store_is_not_of_the_format_that_is_named(
    store: Path, capsys: pytest.CaptureFixture[str], format: str
) -> None:
    assert run(capsys, store, "--format", format)[0] == 10


# -- for people -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [50, 60, 80, 200])
@pytest.mark.parametrize("ref", ["", "@4", "@5"])
def test_tables_fit_their_width_and_hold_no_escapes(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int, ref: str
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.chdir(store.parent)
    code, out, err = run(capsys, f"store{ref}")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= width
    assert "\x1b" not in out


def test_a_status_is_a_word_and_missing_tasks_are_named(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, store)
    assert out.count(" complete ") == 3
    assert "missing: seen/1, out/0" in out
    assert "because: timed out, waiting for out/0" in out
    assert "Newest complete: epoch 4." in out


def test_later_epochs_say_why_they_are_not_complete(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (own / layout.outcome(4)).write_bytes(b"garbage")
    _, out, _ = run(capsys, own)
    assert out.startswith(
        "DAMAGED: epoch 4. Newest complete: epoch 2.\n  epoch 3: aborted\n  epoch 4: damaged\n"
        "  epoch 5: incomplete; 2 of 5 tasks have not acked\n\n"
    )
    with lock.exclusive(LocalStorage(own)):
        assert "epoch 5: in progress; 2 of 5" in run(capsys, own)[1]


def test_a_wide_table_has_what_an_epoch_refers_to_and_what_is_new(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    rows = [line.split() for line in run(capsys, store)[1].splitlines()]
    assert next(row for row in rows if row[:1] == ["EPOCH"])[5:9] == ["NEW", "STATE", "STATE", "ROWS"]
    (fourth,) = (row for row in rows if row[:1] == ["4"])
    assert fourth[10:12] == ["12", "8"]
    told = result(capsys, f"{store}@4")
    assert (told["epochs"][0]["state_rows"], told["epochs"][0]["log_records"]) == (12, 8)
    seen = told["operators"][1]
    own = [f for task in seen["tasks"] for f in task["files"] if "0000000004" in f["path"]]
    assert seen["new_bytes"] == sum(f["bytes"] for f in own if f["path"].endswith(".parquet"))
    assert seen["bytes"] > seen["new_bytes"]


def test_the_slowest_tasks_are_named(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert result(capsys, f"{store}@4")["slowest"]["async"] == {"task": "lines/0", "seconds": 0.002}
    assert "slowest of all: aligning lines/0 1.0 ms" in " ".join(run(capsys, f"{store}@4")[1].split())


def test_files_that_were_not_looked_for_are_not_said_to_be_there(
    own: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (own / layout.state(1, "seen/0", FIRST)).unlink()
    assert [e["present"] for e in result(capsys, own)["epochs"]] == [False, False, None, False, None]
    monkeypatch.setattr("formats.native.store.PRESENCE_LIMIT", 7)
    told = result(capsys, own)
    assert [e["present"] for e in told["epochs"]] == [None, None, None, False, None]
    assert told["latest_complete"] == 2
    assert "files of 2 epochs were not looked for" in " ".join(run(capsys, own)[1].split())


def test_a_file_is_looked_for_once_however_many_epochs_refer_to_it(store: Path) -> None:
    asked: list[str] = []

    class Counting(LocalStorage):
        def size(self, path: str) -> int | None:
            asked.append(path)
            return super().size(path)

    NativeStore(Counting(store)).epochs()
    states = [path for path in asked if path.endswith(".parquet")]
    assert len(states) == len(set(states)) == 6


def test_an_epoch_shows_back_edges_positions_and_times(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, f"{store}@4")
    rows = [line.split() for line in out.splitlines()]
    assert ["seen->seen", "back", "4", "64", "56", "8"] in rows
    assert ["lines/1", "in/1.txt", "400", "80"] in rows
    (seen,) = (row for row in rows if row[:3] == ["seen", "2", "12"])
    assert seen[4:] == ["KiB", "8", "1.0", "ms", "0.5", "ms", "2.0", "ms"]


def test_of_many_splits_the_sums_by_task_are_shown(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("abscli.text.inspect_epoch.ROWS", 1)
    rows = [line.split() for line in run(capsys, f"{store}@4")[1].splitlines()]
    assert ["lines/0", "(1", "split)", "400", "80"] in rows
    assert ["sums", "over", "2", "splits;", "-o", "json", "has", "each"] in rows
    assert ["...", "and", "1", "more;", "-o", "json", "has", "them", "all"] in rows


def test_an_operator_shows_its_tasks_and_a_task_its_files(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, f"{store}@4", "--operator", "seen")
    assert [line.split()[0] for line in out.splitlines() if line.startswith("seen/") and "->" not in line] == [
        "seen/0", "seen/1",
    ]
    assert "sha256" not in out
    _, out, _ = run(capsys, f"{store}@4", "--task", "seen/1")
    assert out.count("sha256") == 5


def test_what_to_type_next_is_about_the_epoch_that_was_shown(store: Path) -> None:
    page = StorePage.of(NativeStore(LocalStorage(store)))
    whole, *_ = (epoch.epoch for epoch in page.epochs if epoch.status is Status.COMPLETE)
    broken, *_ = (epoch.epoch for epoch in page.epochs if epoch.status is not Status.COMPLETE)
    latest = f"abs plan-recovery {store}@{page.latest_complete} --out plan.json"
    assert next_commands(page) == [f"abs validate {store}", latest]
    assert next_commands(page, whole) == [
        f"abs validate {store}@{whole}", f"abs plan-recovery {store}@{whole} --out plan.json"
    ]  # fmt: skip
    assert next_commands(page, broken) == [f"abs validate {store}@{broken}", latest]


def test_an_empty_store_says_so(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(own / "epochs")
    assert "There is no epoch yet." in run(capsys, own)[1]
    assert result(capsys, own)["latest_complete"] is None


def test_names_cannot_move_the_cursor() -> None:
    assert clean("a\x1b[2J\nb\u202e") == "a\\x1b[2J\\nb\\u202e"


@given(st.integers(0, 10**18))
def test_sizes_are_short_and_in_order_of_magnitude(value: int) -> None:
    text = size(value)
    assert len(text) <= 8
    number, unit = text.split()
    scale = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"].index(unit)
    assert abs(float(number) * 1024**scale - value) <= 0.051 * value


@pytest.mark.parametrize(("value", "text"), [
    (None, "?"), (0.0004, "0.4 ms"), (0.0099, "9.9 ms"), (0.25, "250 ms"), (3.14159, "3.1 s"), (119.0, "119.0 s"),
    (600.0, "10 min"), (7200.0, "2.0 h"), (864000.0, "10 d"),
])
def test_durations_are_easily_read(value: float | None, text: str) -> None:
    assert seconds(value) == text


def test_progress_is_a_bar_with_bytes_and_their_rate() -> None:
    assert bar(512, 1024, 2.0) == "[##########----------]  50 %  512 B of 1.0 KiB  256 B/s"
    assert bar(512, None, 0.1) == "512 B"
    assert bar(2048, 1024, 0.1).startswith("[####################] 100 %")


def test_small_helpers_of_tables() -> None:
    assert size(None) == moment(None) == "?"
    assert moment("2026-01-02T03:04:05.678Z") == "2026-01-02 03:04:05"
    assert (some(["a", "b"], 2), some(["a", "b", "c"], 2)) == ("a, b", "a, b and 1 more")
    assert columns(("A", "BB"), [("long", "1")], "lr", 80) == ["A     BB", "long   1"]
    assert columns(("A", "BB"), [("long", "1")], "lr", 5) == ["A    BB", "long  1"]
    assert columns(("A", "BB"), [("long", "1")], "lr", 5, ("A", "BB")) == ["BB", " 1"]
    assert columns(("A", "BB"), [("long", "1")], "lr", 8, ("A",)) == ["A     BB", "long   1"]
    assert wrapped("/a/long/path-that-nobody-cuts here", 20, "  ") == ["  /a/long/path-that-nobody-cuts", "  here"]


# -- cost -----------------------------------------------------------------------------------------------------


def test_inspect_as_json_imports_nothing_heavy(store: Path) -> None:
    code = (
        "import sys; from abscli.cli.main import main; main(['inspect', sys.argv[1], '-o', 'json']);"
        "heavy = {'pyarrow', 'numpy', 'rich', 'yaml', 'pyspark', 'pydantic'};"
        "print(sorted(heavy & sys.modules.keys()), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(store)], capture_output=True, text=True, check=True)
    checked(done.stdout)
    assert done.stderr.strip() == "[]"


def test_watching_empties_the_terminal_when_there_is_something_else_to_show(own: Path) -> None:
    ours, theirs = pty.openpty()
    args = [*ABS, "inspect", str(own.with_name("late")), "--watch"]
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "80"}
    with subprocess.Popen(args, stdout=theirs, stderr=theirs, stdin=theirs, env=environment) as watch:
        try:
            os.close(theirs)
            assert "waiting until the store exists" in shown_until(ours, "waiting until the store exists")
            own.rename(own.with_name("late"))
            page = shown_until(ours, "Newest complete")
            assert page.count("\x1b[2J\x1b[HNewest complete") == 1
            assert "\\x1b" not in page
        finally:
            watch.kill()
            os.close(ours)


def shown_until(terminal: int, words: str) -> str:
    """What a terminal shows until it has these words."""
    shown, ends = "", time.monotonic() + 120
    while words not in shown:
        assert time.monotonic() < ends, shown
        if select.select([terminal], [], [], 1.0)[0]:
            shown += os.read(terminal, 1 << 16).decode(errors="replace")
    return shown


def test_watching_ends_when_nobody_reads(store: Path) -> None:
    args = [*ABS, "inspect", str(store), "--watch", "-o", "ndjson"]
    with subprocess.Popen(args, stdout=subprocess.PIPE, bufsize=0) as watch:
        try:
            assert watch.stdout is not None
            assert watch.stdout.read(1) == b"{"
            watch.stdout.close()
            assert watch.wait(timeout=120) == 0
        finally:
            watch.kill()


def test_an_epoch_without_operators_has_no_slowest_task() -> None:
    """Metadata of Flink that somebody has edited may name no operator."""
    from abscli.text.inspect_page import slowest_tasks, slowest_times

    assert slowest_tasks([], slowest_times([])) == {"alignment": None, "sync": None, "async": None}
