"""Flink's checkpoints through the commands: real ones of Flink 1.20 and 2.3, whole and broken."""

from __future__ import annotations

import json
import lzma
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from formats.flink.facts import file_handles
from formats.flink.ids import operator_id
from formats.flink.metadata.handles import RelativeHandle
from formats.flink.store import FlinkStore
from tests.support.commands import answer_of, result_of, run_command
from tests.support.flink.cases import CANONICAL, HASHMAP, OLD, OPEN, UNALIGNED, latest
from tests.support.flink.truth import DATA, load
from tests.support.schemas import checked

CLAIMED = next(path for path in (DATA / "claimed-native").iterdir() if path.name != "savepoint")
ROCKSDB = next((DATA / "rocksdb-incremental").iterdir())


def fill(checkpoint: Path, relative: Path, absolute: Path) -> None:
    """Files of the right sizes for a `_metadata` that is alone: those beside it, and those with a path of their own."""
    store = FlinkStore(str(checkpoint))
    for _, _, handle in file_handles(store.metadata(store.epoch_numbers()[0])):
        folder = relative if isinstance(handle, RelativeHandle) else absolute
        folder.mkdir(exist_ok=True)
        (folder / handle.path.rpartition("/")[2]).write_bytes(bytes(handle.size))


# -- inspect --------------------------------------------------------------------------------------------------


def test_a_jobs_directory_is_its_checkpoints(capsys: pytest.CaptureFixture[str]) -> None:
    told = result_of("inspect", capsys, OPEN)
    assert (told["format"], told["job"]) == ("flink", OPEN.name)
    assert [epoch["status"] for epoch in told["epochs"]][-1] == "in-progress"
    assert told["raw"]["checkpoints"][-1]["backends"] == ["heap"]
    code, out, _ = run_command("inspect", capsys, OPEN)
    assert code == 0
    assert "no _metadata" in out


def test_the_columns_of_a_checkpoint_are_those_of_savepoint_metadata(capsys: pytest.CaptureFixture[str]) -> None:
    told = result_of("inspect", capsys, latest(HASHMAP))
    truth = load("hashmap-checkpoint.chk-2.meta.json")
    operators = {op["operator-uid-hash"]: op for op in told["raw"]["operators"]}
    assert len(operators) == len(truth["operators"])
    totals = operators["8eeed16b661251f13cfc6a3c5e75c420"]
    assert (totals["operator-uid"], totals["operator-parallelism"], totals["operator-max-parallelism"]) == (
        "totals", 2, 16,
    )  # fmt: skip
    assert {state["name"]: state["kind"] for state in totals["states"] if state["kind"] != "timers"} == {
        "avg": "aggregating", "opaque": "value", "count": "value", "last-order": "value", "recent": "list",
        "sum": "reducing", "note-ttl": "value", "per-item": "map",
    }  # fmt: skip


@pytest.mark.parametrize("width", [80, 200])
def test_a_checkpoint_is_shown_at_every_width(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    code, out, _ = run_command("inspect", capsys, latest(UNALIGNED))
    assert code == 0
    for word in ("checkpointed size", "total-size-in-bytes", "numbers->counter", "number-sequence", "unaligned"):
        assert word in out
    heading = out.split("\n\n")[0]
    assert all(len(line) <= width or "/" in line for line in heading.splitlines())
    assert all(len(line) <= width for line in out.splitlines() if "-user-timers" in line or "Tuple2" in line)
    code, out, _ = run_command("inspect", capsys, UNALIGNED)
    assert code == 0
    assert all(len(line) <= width for line in out.splitlines() if "(heap), unaligned" in line)


def test_one_operator_is_shown_with_its_subtasks_and_counted_rows(capsys: pytest.CaptureFixture[str]) -> None:
    told = result_of("inspect", capsys, latest(HASHMAP), "--operator", "totals")
    states = {s["name"]: s for op in told["raw"]["operators"] if op["operator-uid"] == "totals" for s in op["states"]}
    assert states["count"]["rows"] == states["sum"]["rows"] > 0
    code, out, _ = run_command("inspect", capsys, latest(HASHMAP), "--task", "totals/1")
    assert code == 0
    assert re.search(r"totals/1 +8-15 ", out)
    assert "totals/0" not in out


def test_an_operator_whose_name_is_not_stored_is_called_by_its_hash(capsys: pytest.CaptureFixture[str]) -> None:
    totals = operator_id("totals")
    code, out, _ = run_command("inspect", capsys, latest(OLD), "--operator", totals)
    assert code == 0
    assert re.search(rf"{totals} +sum ", out)
    assert "None" not in out


def test_a_guessed_uid_is_proved_by_its_hash(capsys: pytest.CaptureFixture[str]) -> None:
    told = result_of("inspect", capsys, latest(OLD), "--uid", "totals", "--uid", "no-such")
    assert [op["proved-uid"] for op in told["raw"]["operators"] if op["proved-uid"]] == ["totals"]
    assert "totals" in [op["id"] for op in told["operators"]]
    assert told["raw"]["written_by"] == "Flink 1.16 to 1.20"


def test_a_savepoint_and_its_metadata_file_name_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    told = result_of("inspect", capsys, CANONICAL)
    assert (told["raw"]["kind"], told["raw"]["layout"]) == ("savepoint", "canonical")
    assert result_of("inspect", capsys, CANONICAL / "_metadata")["raw"] == told["raw"]


def test_names_from_a_checkpoint_cannot_move_the_cursor(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    own = Path(shutil.copytree(latest(HASHMAP), tmp_path / "own"))
    data = (own / "_metadata").read_bytes()
    (own / "_metadata").write_bytes(data.replace(b"Totals per user", b"Totals\x1b[2J user"))
    code, out, _ = run_command("inspect", capsys, own)
    assert code == 0
    assert "\x1b" not in out
    assert "Totals\\x1b[2J user" in out


def test_options_of_flinks_mean_nothing_to_another_store(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "abs-store.json").write_text("{}")
    code, _, err = run_command("inspect", capsys, tmp_path, "--uid", "x")
    assert code == 2
    assert "--uid" in err


# -- validate -------------------------------------------------------------------------------------------------


def test_a_whole_checkpoint_passes_and_says_what_is_not_checked(capsys: pytest.CaptureFixture[str]) -> None:
    told = result_of("validate", capsys, CANONICAL)
    assert told["findings"] == []
    epoch = told["epochs"][0]
    assert epoch["verdict"] == "complete"
    assert set(epoch["why_unchecked"]) == set(epoch["unchecked"])
    assert "digest-mismatch" in epoch["unchecked"]
    code, out, _ = run_command("validate", capsys, CANONICAL)
    assert code == 0
    assert "Flink writes no digests" in out


def test_a_missing_file_is_put_down_to_its_task_and_state(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    own = Path(shutil.copytree(CANONICAL, tmp_path / CANONICAL.name))
    gone = max((path for path in own.iterdir() if path.name != "_metadata"), key=lambda path: path.stat().st_size)
    gone.unlink()
    told = answer_of("validate", capsys, own, code=3)
    found = told["epochs"][0]["findings"]
    assert [(f["code"], f["path"]) for f in found] == [("missing-file", gone.name)]
    assert found[0]["task"]
    assert "keyed state (" in found[0]["message"]
    assert "all files are there of" in told["epochs"][0]["notes"][0]


def test_a_path_map_finds_what_was_moved_apart(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    own, there = Path(shutil.copytree(latest(ROCKSDB), tmp_path / "moved")), tmp_path / "elsewhere"
    fill(own, own, there)
    told = answer_of("validate", capsys, own, "--quick", code=3)
    assert told["epochs"][0]["findings"] == [], "nobody said where its files are: that is no loss"
    assert (told["epochs"][0]["verdict"], told["latest_restorable"]) == ("complete", None)
    assert {"missing-file", "size-mismatch"} <= set(told["epochs"][0]["unchecked"])
    old = told["epochs"][0]["why_unchecked"]["missing-file"].partition("--path-map ")[2].partition("=")[0]
    told = result_of("validate", capsys, own, "--quick", "--path-map", f"{old}={there}")
    assert told["latest_restorable"] is not None
    assert told["epochs"][0]["verdict"] == "complete"
    assert "--path-map" in told["epochs"][0]["notes"][0]
    code, _, err = run_command("validate", capsys, own, "--path-map", "nonsense")
    assert code == 2
    assert "OLD=NEW" in err


def test_what_a_claimed_savepoint_left_is_a_finding_also_when_it_is_found(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    job, savepoint = Path(shutil.copytree(CLAIMED, tmp_path / CLAIMED.name)), tmp_path / "savepoint"
    fill(job / "chk-9", savepoint, job / "shared")
    told = answer_of("validate", capsys, f"{job}@9", "--search", savepoint, "--quick", code=3)
    assert {f["code"] for f in told["epochs"][0]["findings"]} == {"missing-file"}
    assert all("not where Flink looks" in f["message"] for f in told["epochs"][0]["findings"])


def test_damaged_metadata_is_a_finding_of_validate_and_an_error_of_inspect(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    own = Path(shutil.copytree(CANONICAL, tmp_path / CANONICAL.name))
    data = (own / "_metadata").read_bytes()
    (own / "_metadata").write_bytes(data[: len(data) // 2])
    told = answer_of("validate", capsys, own, code=3)
    assert [f["code"] for f in told["epochs"][0]["findings"]] == ["manifest-unreadable"]
    code, _, err = run_command("inspect", capsys, own)
    assert code == 3
    assert "operators before it can be read" in err
    code, out, err = run_command("inspect", capsys, own, "-o", "json")
    assert (code, out) == (3, "")
    assert checked(err)["code"] == 3


# -- state ----------------------------------------------------------------------------------------------------


def rows(capsys: pytest.CaptureFixture[str], *args: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = result_of("state", capsys, *args)["rows"]
    return found


def test_the_states_of_a_checkpoint_with_their_rows(capsys: pytest.CaptureFixture[str]) -> None:
    told = result_of("state", capsys, HASHMAP)
    found = {(s["operator"], s["name"]): s for s in told["states"]}
    assert found["totals", "count"]["rows"] == 37
    assert found["op-state", "offsets-union"]["kind"] == "union"
    assert "37 entries of Orders$Opaque (KryoSerializer)" in found["totals", "opaque"]["opaque"]


@pytest.mark.parametrize("operator", ["totals", "8eeed16b661251f13cfc6a3c5e75c420", "Totals per user"])
def test_an_operator_is_meant_by_uid_hash_or_name(capsys: pytest.CaptureFixture[str], operator: str) -> None:
    (row,) = rows(capsys, HASHMAP, operator, "--state", "count", "--key", "user-9")
    assert row["key"] == "user-9"
    assert row["value"] > 0


def test_a_state_of_one_operator_alone_needs_no_operator(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(rows(capsys, HASHMAP, "--state", "rules-broadcast")) == 40
    (window, *_) = rows(capsys, HASHMAP, "--state", "window-contents")
    assert window["window_end"] - window["window_start"] == 1000


def test_values_of_a_class_of_the_jobs_own_are_shown_as_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    (row, *_) = rows(capsys, CANONICAL, "totals", "--state", "opaque")
    assert row["value"]["class"] == "Orders$Opaque (KryoSerializer)"
    assert len(row["value"]["bytes"]) == 2 + 2 * row["value"]["length"]


@pytest.mark.parametrize("ending", ["parquet", "arrow", "jsonl"])
def test_state_goes_to_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path, ending: str) -> None:
    out = tmp_path / f"orders.{ending}"
    told = result_of("state", capsys, CANONICAL, "totals", "--state", "last-order", "--out", out)
    assert told["count"] == 37
    assert out.stat().st_size > 0


def test_a_type_that_is_none_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("count", "count=nonsense"):
        code, _, err = run_command("state", capsys, HASHMAP, "totals", "--state", "count", "--type", text)
        assert code == 2
        assert "type" in err or "TYPE" in err


def test_rows_before_a_damaged_file_are_shown_then_the_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    own = Path(shutil.copytree(latest(HASHMAP), tmp_path / "own"))
    inspected = result_of("inspect", capsys, own, "--task", "totals/1")
    files = inspected["operators"][0]["tasks"][0]["files"]
    (own / files[0]["path"]).unlink()
    code, out, err = run_command("state", capsys, own, "totals", "--state", "count")
    assert code == 3
    assert "user-9 " in out
    assert "is not there" in err


def test_a_row_says_where_it_lies_and_a_key_group_can_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """Against Flink's own key groups."""
    with lzma.open(DATA / "truth" / "hashmap-savepoint-canonical.state.jsonl.xz", "rt") as file:
        lines = [json.loads(line) for line in file]
    truth = {
        row["key"]: (row["key_group"], row["subtask"])
        for row in lines
        if (row["uid"], row["state"]) == ("totals", "count")
    }
    told = result_of("state", capsys, CANONICAL, "totals", "--state", "count", "--place")
    assert [column["name"] for column in told["columns"]][:3] == ["__key_group", "__subtask", "key"]
    assert {row["key"]: (row["__key_group"], row["__subtask"]) for row in told["rows"]} == truth
    group = min(group for group, _ in truth.values())
    wanted = sorted(key for key, (own, _) in truth.items() if own == group)
    for condition in (f"__key_group = {group}", f"__key_group in ({group})"):
        rows = result_of("state", capsys, CANONICAL, "totals", "--state", "count", "--where", condition)["rows"]
        assert sorted(row["key"] for row in rows) == wanted
        assert set(rows[0]) == {"key", "value"}
    rows = result_of("state", capsys, CANONICAL, "totals", "--state", "count", "--where", "__subtask = 1")["rows"]
    assert sorted(row["key"] for row in rows) == sorted(key for key, (_, subtask) in truth.items() if subtask == 1)
    rows = result_of("state", capsys, CANONICAL, "totals", "--state", "count", "--where", "__key_group = 99")["rows"]
    assert rows == []
    own = result_of("state", capsys, CANONICAL, "op-state", "--state", "buffer", "--place")["rows"]
    assert {(row["__key_group"], row["__subtask"] == row["subtask"]) for row in own} == {(None, True)}


# -- diff -----------------------------------------------------------------------------------------------------


def test_two_snapshots_by_keys_files_and_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    told = result_of("diff", capsys, latest(HASHMAP), CANONICAL)
    operators = {op["id"]: op for op in told["operators"]}
    states = {state["state"]: state for state in operators["totals"]["states"]}
    assert states["count"]["unchanged"] == 37 or states["count"]["changed"]
    assert states["per-item"]["key"] == ["key", "map_key"]
    assert states["opaque"]["added"] is None, "hidden rows are not compared, and do not count as equal"
    assert "37 entries" in states["opaque"]["note"]
    assert told["raw"]["shared"]["files"] == 0
    assert told["raw"]["new"]["files"] > 0


def test_a_checkpoint_differs_from_itself_in_nothing_that_can_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    told = result_of("diff", capsys, CANONICAL, CANONICAL)
    assert told["identical"] is True
    assert told["raw"]["removed"] == {"files": 0, "bytes": 0}


def test_state_that_would_have_no_owner(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    uids = tmp_path / "uids.txt"
    uids.write_text("# the new job\ntotals\njoin\n\nnew-one\n")
    told = result_of("diff", capsys, CANONICAL, "--uids", uids)
    assert [(one["operator"], one["by"]) for one in told["owned"]] == [("totals", "uid"), ("join", "uid")]
    assert {"op-state", "types", "win-avg"} <= {one["operator"] for one in told["orphans"]}
    assert told["new"] == ["new-one"]
    assert run_command("diff", capsys, CANONICAL, "--uids", uids)[0] == 0
    code, out, _ = run_command("diff", capsys, CANONICAL, "--uids", uids, "--exit-code")
    assert code == 3
    assert "State without an owner" in out


def rest_plan(names: dict[str, str]) -> dict[str, Any]:
    """A plan as REST gives it: vertex id -> description, in a line from the first to the last."""
    ids = list(names)
    return {
        "plan": {
            "jid": "0" * 32,
            "name": "orders",
            "nodes": [
                {
                    "id": id,
                    "parallelism": 2,
                    "description": names[id],
                    "inputs": [{"id": ids[i - 1], "num": 0, "ship_strategy": "HASH", "exchange": "pipelined_bounded"}]
                    if i
                    else [],
                }
                for i, id in enumerate(ids)
            ],
        }
    }


def test_owners_by_the_ids_of_a_plan(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(rest_plan({
        "4b0df09fa2c712a6d78c4c9e4085c859": "Source: orders source<br/>",
        "8eeed16b661251f13cfc6a3c5e75c420": "Totals per user<br/>+- One state per type<br/>",
        "f" * 32: "Join orders with rules<br/>",
    })))  # fmt: skip
    told = result_of("diff", capsys, CANONICAL, "--uids", plan)
    assert {one["operator"]: one["by"] for one in told["owned"]} == {
        "src-orders": "id", "totals": "id", "types": "name",
    }  # fmt: skip
    reasons = {one["operator"]: one["reason"] for one in told["orphans"]}
    assert "another id" in reasons["join"]
    assert told["new"] == ["Join orders with rules"]


# -- plans of Flink's -----------------------------------------------------------------------------------------


def test_a_rest_plan_is_a_job_graph(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(rest_plan({"a" * 32: "Source: in<br/>", "b" * 32: "count<br/>+- out: Writer<br/>"})))
    told = result_of("topology", capsys, plan)
    assert [(op["id"], op["parallelism"], op["max_parallelism"]) for op in told["operators"]] == [
        ("Source: in", 2, 128), ("count", 2, 128),
    ]  # fmt: skip
    assert [(e["from"], e["to"], e["partition"]) for e in told["edges"]] == [("Source: in", "count", "hash")]
    told = result_of("plan-recovery", capsys, "--topology", plan, "--failed", "count/1")
    assert told["body"]["kind"] == "partial"


def test_an_execution_plan_is_a_job_graph(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    nodes = [
        {"id": 1, "type": "Source: in", "pact": "Data Source", "contents": "Source: in", "parallelism": 3},
        {"id": 2, "type": "Map", "pact": "Operator", "contents": "Map", "parallelism": 2,
         "predecessors": [{"id": 1, "ship_strategy": "REBALANCE", "side": "second"}]},
        {"id": 3, "type": "Map", "pact": "Operator", "contents": "Map", "parallelism": 2,
         "predecessors": [{"id": 2, "ship_strategy": "FORWARD", "side": "second"}]},
    ]  # fmt: skip
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"nodes": nodes}))
    told = result_of("topology", capsys, plan)
    assert [op["id"] for op in told["operators"]] == ["Source: in", "2", "3"]
    assert [e["partition"] for e in told["edges"]] == ["rebalance", "forward"]


@pytest.mark.parametrize("text", [
    '{"nodes": []}', '{"nodes": [{}]}', '{"plan": {"nodes": [{"id": "a", "parallelism": 0}]}}', '{"nodes": [3]}',
    '{"nodes": [{"id": "a", "parallelism": 1, "inputs": [{"id": "b"}]}]}',
    '{"nodes": [{"id": "a", "parallelism": 1, "inputs": [{"id": "a"}]}]}',
])  # fmt: skip
def test_a_plan_that_does_not_hold_is_a_usage_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(text)
    code, _, err = run_command("topology", capsys, plan)
    assert code == 2
    assert "plan.json" in err or "no source" in err
