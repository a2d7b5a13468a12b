"""Spark checkpoints through the commands that read: what a person and a script are told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from abscli.cli.main import main
from abscli.stores.spark.text.inspect import ddl
from tests.support.schemas import checked
from tests.support.spark.data import Case, copy_of, unpack


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command with -o json; its exit code and its object, which its schema holds for."""

    def run(*arguments: object) -> tuple[int, dict[str, Any]]:
        code = main([*(str(a) for a in arguments), "-o", "json"])
        captured = capsys.readouterr()
        return code, checked(captured.out or captured.err)

    return run


def test_a_checkpoint_is_recognised_and_its_batches_are_shown(told: Any) -> None:
    root = unpack(Case.of("killed_partial_state"))
    code, page = told("inspect", root)
    assert (code, page["format"], page["latest_complete"]) == (0, "spark", 2)
    assert [(e["epoch"], e["status"], e["missing"]) for e in page["epochs"][2:]] == [
        (2, "complete", []), (3, "in-progress", ["0/1"]),
    ]  # fmt: skip
    _, page = told("inspect", f"{root}@latest")
    assert page["raw"]["in_flight"] == 3
    assert [op["name"] for op in page["operators"]] == ["file source", "stateStoreSave"]


@pytest.mark.parametrize("width", [80, 200])
def test_a_batch_is_told_in_words(width: int, capsys: pytest.CaptureFixture[str],
                                  monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["inspect", f"{unpack(Case.of('ss_join'))}@latest"]) == 0
    out = capsys.readouterr().out
    assert "state store: hdfs, codec lz4, checkpoint format 1" in out
    assert "operator 0 (symmetricHashJoin), store left-keyToNumValues: 2 partitions" in out
    assert "(field0 int) -> (value bigint)" in out
    assert max(map(len, out.splitlines())) <= width


def test_the_files_of_a_rocksdb_snapshot_are_the_partitions(told: Any) -> None:
    _, page = told("inspect", f"{unpack(Case.of('wc_rocks'))}@latest", "--task", "0/1")
    files = page["operators"][0]["tasks"][0]["files"]
    assert files[0]["path"].endswith(".zip")
    assert all(file["path"].endswith(".sst") and file["bytes"] for file in files[1:])
    assert len(files) > 1


def test_schemas_are_shown_as_sql_writes_them() -> None:
    field = {"name": "a", "type": {"type": "array", "elementType": "long"}}
    inner = {"type": "map", "keyType": "string", "valueType": {"type": "struct", "fields": [field]}}
    said = json.dumps({"type": "struct", "fields": [{"name": "m", "type": inner}]})
    assert ddl(said) == "(m map<string, (a array<bigint>)>)"
    assert ddl("{}") == "{}"


def test_a_whole_checkpoint_passes_and_a_damaged_one_names_file_batch_and_partition(told: Any) -> None:
    assert told("validate", unpack(Case.of("wc_hdfs")))[0] == 0
    code, report = told("validate", unpack(Case.of("broken_swapped_delta")))
    assert (code, report["latest_restorable"]) == (3, 5)
    found = {(e["epoch"], f["task"], f["code"], f["path"]) for e in report["epochs"] for f in e["findings"]}
    assert (6, "0/0", "misplaced-key", "state/0/0/7.delta") in found
    assert (6, "0/1", "misplaced-key", "state/0/1/7.delta") in found
    assert told("validate", f"{unpack(Case.of('broken_swapped_delta'))}@5")[0] == 0
    assert told("validate", f"{unpack(Case.of('broken_swapped_delta'))}@6")[0] == 3


def test_quick_looks_at_presence_and_says_what_it_left_out(told: Any) -> None:
    code, report = told("validate", unpack(Case.of("broken_swapped_delta")), "--quick")
    assert code == 0
    assert "misplaced-key" in report["epochs"][6]["unchecked"]
    assert told("validate", unpack(Case.of("broken_missing_sst")), "--quick")[0] == 3


def test_rows_are_read_with_a_key_and_a_condition(told: Any) -> None:
    root = unpack(Case.of("wc_hdfs"))
    _, page = told("state", f"{root}@6", "--key", "spark")
    assert [row["word"] for row in page["rows"]] == ["spark"]
    _, page = told("state", unpack(Case.of("tws_row")), 0, "--state", "perbatch", "--limit", 1)
    assert page["states"][-1]["key"] == ["word", "k"]
    assert [column["name"] for column in page["columns"]] == ["word", "k", "v", "partition_id"]


def test_two_batches_differ_by_keys_and_positions(told: Any) -> None:
    root = unpack(Case.of("tws_row"))
    code, diff = told("diff", f"{root}@1", f"{root}@2", "--exit-code")
    assert code == 3
    states = {state["state"]: state for state in diff["operators"][1]["states"]}
    assert (states["perbatch"]["added"], states["perbatch"]["note"]) == (4, None)
    assert diff["positions"][0]["moved"]["offset"] == 1
    assert diff["topology"] == []


@pytest.mark.parametrize("options", [[], ["--rows"]])
def test_a_query_may_name_a_column_as_formats_name_their_own(options: list[str], told: Any) -> None:
    """Spark's joins of format 4 have `__event_time` in their keys."""
    root = unpack(Case.of("kind_join_v4"))
    code, diff = told("diff", f"{root}@1", f"{root}@2", "--exit-code", *options)
    assert code == 3
    keys = {name for op in diff["operators"] for state in op.get("states", ()) for name in state["key"]}
    assert "__event_time" in keys
    assert told("diff", root, unpack(Case.of("wc_hdfs")))[0] == 0
    assert told("diff", unpack(Case.of("dedup_wm")), root)[0] == 0
    _, page = told("state", root, "0", "--state", "left-keyWithTsToValues", "--limit", "1")
    assert "__event_time" in page["rows"][0]


def test_two_checkpoints_differ_by_settings_and_by_what_a_restart_refuses(told: Any) -> None:
    words, rocks, ids = (unpack(Case.of(name)) for name in ("wc_hdfs", "wc_rocks", "ids_v2"))
    _, diff = told("diff", f"{words}@3", f"{rocks}@3")
    assert diff["operators"][1]["change"] == "unchanged"
    assert {d["subject"].rpartition(".")[2] for d in diff["topology"]} == {"codec", "providerClass"}
    assert {d["change"] for d in diff["topology"]} == {"setting"}
    _, diff = told("diff", f"{words}@3", f"{ids}@3")
    (schema,) = [d for d in diff["topology"] if d["change"] == "schema"]
    assert schema["impact"].startswith("refused: Spark does not start with another key schema")
    _, diff = told("diff", f"{words}@3", f"{unpack(Case.of('ss_join'))}@3")
    assert any(d["change"] == "kind" and d["impact"].startswith("refused") for d in diff["topology"])


def test_keys_that_lie_in_another_partition_are_not_changed_by_that(told: Any, tmp_path: Path) -> None:
    one, other = (unpack(Case.of("wc_hdfs")), copy_of("wc_hdfs", tmp_path, sidecars=False))
    for name in ("4.snapshot", *(f"{n}.delta" for n in range(1, 8))):
        here, there = other / "state/0/0" / name, other / "state/0/1" / name
        mine, yours = here.read_bytes(), there.read_bytes()
        here.write_bytes(yours)
        there.write_bytes(mine)
    assert told("diff", one, other)[1]["identical"] is True


@pytest.mark.parametrize("command", [["state", "--engine", "spark"], ["validate", "--deep"]])
def test_only_sparks_checkpoints_can_be_asked_of_spark(command: list[str], tmp_path: Path, told: Any) -> None:
    from tests.support.stores.small import make_store

    make_store(tmp_path / "store")
    operator = ["seen"] if command[0] == "state" else []
    code, error = told(command[0], tmp_path / "store", *operator, *command[1:])
    assert code == 2
    assert "only Spark's checkpoints" in error["message"]


def test_spark_itself_is_asked_where_that_was_wanted(spark: Any, told: Any,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    class Shared:
        def __getattr__(self, name: str) -> Any:
            return getattr(spark, name)

        def stop(self) -> None:
            """Other tests use it, too."""

    monkeypatch.setattr("abscli.stores.spark.reader.start_context", lambda master: Shared())
    root = unpack(Case.of("wc_rocks_v2"))
    rows = [told("state", root, *more)[1]["rows"] for more in ([], ["--engine", "spark"])]
    assert sorted(map(str, rows[0])) == sorted(map(str, rows[1])) != []
    assert told("validate", f"{root}@latest", "--deep")[0] == 0
    code, error = told("state", unpack(Case.of("tws_row")), 0, "--state", "cnt", "--engine", "spark")
    assert code == 1
    assert "_stateSchema" in error["message"]
    assert "abs restore" in error["hint"]


def test_what_spark_finds_takes_a_batch_from_those_that_can_be_restored() -> None:
    from abscli.report.findings import Code, Finding
    from abscli.stores.spark.check import with_findings
    from abscli.stores.spark.verdict import check_spark
    from formats.spark.checkpoint import Checkpoint
    from formats.spark.evidence.gathering import gather
    from formats.storage import LocalStorage

    report = check_spark(gather(Checkpoint(LocalStorage(unpack(Case.of("wc_hdfs")))), quick=True))
    wrong = Finding(Code.UNREADABLE, None, None, "state/0", "Spark's own reader: no")
    merged = with_findings(report, {6: [wrong], 5: []})
    assert merged.latest_restorable == 5
    assert merged.epochs[6].findings == (wrong,)
    assert Code.ROW_MISMATCH in merged.epochs[6].unchecked
    assert Code.ROW_MISMATCH not in merged.epochs[5].unchecked


def test_the_newest_batch_for_a_script_is_verified_or_warned_about(capsys: pytest.CaptureFixture[str]) -> None:
    """The newest batch of this checkpoint has exchanged deltas: presence and sizes are right."""
    checkpoint = unpack(Case.of("broken_swapped_delta"))
    assert main(["inspect", str(checkpoint), "--latest-restorable", "-q"]) == 0
    out, err = capsys.readouterr()
    assert out.endswith("@6\n")
    assert "warning: only the presence and sizes of files were checked" in err
    assert "--verify" in err
    assert main(["inspect", str(checkpoint), "--latest-restorable", "--verify", "-q"]) == 0
    assert capsys.readouterr() == (f"{checkpoint}@5\n", "")
