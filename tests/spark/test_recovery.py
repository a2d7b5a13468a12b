"""`abs plan-recovery` and `abs restore` of Spark checkpoints: what is planned, refused, pinned, and made."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from abscli.cli.main import main
from abscli.stores import pinned
from abscli.stores.plans import read_plan
from formats.plan import BadPlan, Plan, encode
from formats.spark.plan import SparkPlan
from formats.spark.store import SparkStore
from formats.storage import LocalStorage
from tests.support.schemas import checked
from tests.support.spark.data import copy_of


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command with -o json; its exit code and its object, which its schema holds for."""

    def run(*arguments: object) -> tuple[int, dict[str, Any]]:
        code = main([*(str(a) for a in arguments), "-o", "json"])
        captured = capsys.readouterr()
        return code, checked(captured.out or captured.err)

    return run


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def restored(told: Any, root: object, to: Path, *options: object) -> dict[str, Any]:
    """Plans, restores, checks that the original is as it was and that the copy is whole; the plan's body."""
    path = Path(str(root).partition("@")[0])
    before, file = contents(path), to.parent / "plan.json"
    code, plan = told("plan-recovery", root, "--out", file, *options)
    assert code == 0, plan
    code, done = told("restore", file, "--to", to)
    assert code == 0, done
    body = dict(plan["body"])
    assert done["batch"] == body["batch"]
    assert done["files"] == len({file["path"] for file in [*plan["relies_on"], *body["write"]]})
    assert contents(path) == before
    assert len(contents(to)) == done["files"]
    code, report = told("validate", to)
    assert report["latest_restorable"] == body["batch"]
    assert code == 0 or options
    return body


def rows(root: Path, batch: int) -> set[str]:
    store = SparkStore(LocalStorage(root))
    return {str(row) for batches in store.state(batch, "0") for row in batches.to_pylist()}


def overwritten(root: Path) -> Path:
    """The newest state of a partition is lost: there is another one's in its place."""
    shutil.copyfile(root / "state/0/0/7.delta", root / "state/0/1/7.delta")
    return root


def test_the_newest_exact_batch_is_planned_for_and_why_not_a_newer_one(tmp_path: Path, told: Any) -> None:
    root = overwritten(copy_of("wc_hdfs", tmp_path, sidecars=False))
    plan = restored(told, root, tmp_path / "copy")
    assert plan["batch"] == 5
    ((newer),) = plan["skipped"]
    assert newer["batch"] == 6
    assert "partition 0/1 state/0/1/7.delta: 5 of its 5 keys belong elsewhere" in newer["reason"]
    assert plan["replayed"] == [{"batch": 6, "committed": True}]
    assert {left["reason"] for left in plan["excluded"]} == {
        "of later batches", "of earlier batches, whose state is not copied", "seen by a source after the batch",
        "state that the batch does without",
    }  # fmt: skip


def test_the_batch_that_a_reference_names_is_planned_for(tmp_path: Path, told: Any) -> None:
    root = copy_of("wc_rocks", tmp_path)
    plan = restored(told, f"{root}@2", tmp_path / "copy")
    assert plan["batch"] == 2
    assert plan["skipped"][0]["reason"] == "its results are exact, too, but another batch was requested"
    assert rows(tmp_path / "copy", 2) == rows(root, 2)
    code, error = told("plan-recovery", f"{root}@77")
    assert (code, error["name"]) == (10, "not-found")


@pytest.mark.parametrize("name", ["killed_partial_state", "killed_partial_state_rocks"])
def test_a_batch_in_flight_is_dropped_or_kept_with_its_input(name: str, tmp_path: Path, told: Any) -> None:
    root = copy_of(name, tmp_path)
    plan = restored(told, root, tmp_path / "dropped")
    assert plan["skipped"] == [{"batch": 3, "reason": "it was in flight and never committed"}]
    assert not (tmp_path / "dropped/offsets/3").exists()
    plan = restored(told, root, tmp_path / "kept", "--keep-in-flight")
    assert plan["next_batch_unchanged"] is True
    assert (tmp_path / "kept/offsets/3").read_bytes() == (root / "offsets/3").read_bytes()
    assert (tmp_path / "kept/sources/0/3").exists()
    assert not [path for path in contents(tmp_path / "kept") if "/4." in path and path.startswith("state")]


def test_a_damaged_snapshot_and_an_empty_log_are_left_behind(tmp_path: Path, told: Any) -> None:
    root = copy_of("wc_hdfs", tmp_path, sidecars=False)
    healthy = rows(root, 6)
    (root / "state/0/0/4.snapshot").write_bytes(b"LZ4Block")
    (root / "offsets/7").write_bytes(b"")
    plan = restored(told, root, tmp_path / "copy")
    assert plan["skipped"][0]["reason"].startswith("offsets/7: is empty")
    assert "state/0/0/4.snapshot" not in contents(tmp_path / "copy")
    assert rows(tmp_path / "copy", 6) == healthy


def test_names_that_are_not_utf_8_do_not_get_in_the_way(tmp_path: Path, told: Any) -> None:
    root = copy_of("wc_hdfs", tmp_path)
    (root / os.fsdecode(b"state/0/0/\xff\xfe.delta")).write_bytes(b"?")
    plan = restored(told, root, tmp_path / "copy")
    assert "state/0/0/\\udcff\\udcfe.delta" in [path for left in plan["excluded"] for path in left["paths"]]
    named = root.rename(tmp_path / os.fsdecode(b"\xff"))
    code, error = told("plan-recovery", named)
    assert (code, error["name"]) == (2, "invalid-file")
    assert "is not UTF-8" in error["message"]


def test_an_empty_commit_is_written_anew_from_the_batch_after_it(tmp_path: Path, told: Any) -> None:
    root = copy_of("window_append", tmp_path, sidecars=False)
    said = (root / "commits/1").read_bytes()
    (root / "commits/1").write_bytes(b"")
    plan = restored(told, f"{root}@2", tmp_path / "copy")
    assert [file["path"] for file in plan["write"]] == ["commits/1"]
    assert (tmp_path / "copy/commits/1").read_bytes() == said
    assert restored(told, f"{root}@1", tmp_path / "itself")["batch"] == 1


def test_a_lost_query_id_is_asked_for(tmp_path: Path, told: Any) -> None:
    root = copy_of("wc_hdfs", tmp_path)
    (root / "metadata").unlink()
    code, error = told("plan-recovery", root)
    assert (code, error["path"]) == (4, "metadata")
    assert "--query-id" in error["hint"]
    assert told("plan-recovery", root, "--query-id", "mine")[0] == 2
    own = "4b0a6c52-de65-4bfb-a9cf-402bce370337"
    plan = restored(told, root, tmp_path / "copy", "--query-id", own)
    assert plan["query_id"] == own
    assert json.loads((tmp_path / "copy/metadata").read_text()) == {"id": own}


@pytest.mark.parametrize("partition", ["dt=2026-01-01", "dt=1/hour=2", "dt="])
def test_inputs_that_have_moved_may_have_equals_signs_in_their_paths(
    partition: str, tmp_path: Path, told: Any
) -> None:
    """With `dt=` the old path could end before or after `=`: the one that is an input is meant."""
    root = copy_of("file_compact", tmp_path, sidecars=False)
    for path in (root / "sources/0").iterdir():
        version, *lines = path.read_text().split("\n")
        entries = [json.loads(line) for line in lines]
        for entry in entries:
            entry["path"] = f"file:///in/{partition}/part=0/{Path(entry['path']).name}"
        path.write_text("\n".join([version, *map(json.dumps, entries)]))
    options = ("--path-map", f"/in/{partition}/part=0=/new/{partition}/part=0")
    plan = restored(told, root, tmp_path / "copy", *options)
    assert plan["moved"] == [
        {"from": f"file:///in/{partition}/part=0", "to": f"file:///new/{partition}/part=0"}
    ]  # fmt: skip


def test_inputs_that_have_moved_are_named_anew(tmp_path: Path, told: Any) -> None:
    root = copy_of("file_compact", tmp_path)
    code, plan = told("plan-recovery", root)
    ((place),) = plan["body"]["inputs"]
    assert (code, place["exists"]) == (0, False)
    old = place["folder"].removeprefix("file://")
    assert told("plan-recovery", root, "--path-map", "relative=/x")[0] == 2
    code, error = told("plan-recovery", root, "--path-map", "/elsewhere=/x")
    assert (code, place["folder"] in error["message"]) == (2, True)
    plan = restored(told, root, tmp_path / "copy", "--path-map", f"{old}=/new/in put")
    said = {path: data for path, data in contents(tmp_path / "copy").items() if path.startswith("sources/")}
    assert said
    assert not any(old.encode() in data for data in said.values())
    assert b"file:///new/in%20put/" in b"".join(said.values())
    assert not any("crc" in path and path.replace(".crc", "").replace("/.", "/") in said for path in said)
    assert {file["reason"] for file in plan["write"]} == {"names inputs that have moved"}


def test_schemas_are_named_where_they_are(tmp_path: Path, told: Any) -> None:
    root = copy_of("tws_row", tmp_path)
    plan = restored(told, root, tmp_path / "copy")
    assert [file["path"] for file in plan["write"]] == ["state/0/_metadata/v2/0"]
    assert f"file:{tmp_path / 'copy'}/state/0/_stateSchema" in (tmp_path / "copy/state/0/_metadata/v2/0").read_text()
    assert told("validate", tmp_path / "copy")[1]["findings"] == []


def test_what_cannot_be_restored_is_refused_with_the_reason(tmp_path: Path, told: Any) -> None:
    root = copy_of("wc_hdfs", tmp_path, sidecars=False)
    (root / "state/0/1/6.delta").unlink()
    code, error = told("plan-recovery", f"{root}@6")
    assert (code, error["name"]) == (4, "no-recovery")
    assert "partition 0/1 state/0/1/6.delta: is not there" in error["message"]
    assert "batch 4 is the newest" in error["hint"]
    code, error = told("plan-recovery", f"{copy_of('killed_partial_state', tmp_path)}@3")
    assert (code, "it was in flight" in error["message"]) == (4, True)
    for path in root.glob("state/0/1/*.*"):
        path.unlink()
    code, error = told("plan-recovery", root)
    assert (code, "no batch gives exact results (batch 6: partition 0/1" in error["message"]) == (4, True)


def test_a_plan_whose_files_have_changed_is_refused_and_nothing_is_left(
    tmp_path: Path, told: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    root, file, to = copy_of("wc_hdfs", tmp_path, sidecars=False), tmp_path / "plan.json", tmp_path / "copies/copy"
    assert told("plan-recovery", root, "--out", file)[0] == 0
    assert main(["restore", str(file), "--to", str(to), "--dry-run"]) == 0
    assert "the plan is valid" in capsys.readouterr().err
    for path in ("state/0/0/7.delta", "commits/5"):
        own = (root / path).read_bytes()
        (root / path).write_bytes(own[:-1] + bytes([own[-1] ^ 1]))
        for options in ([], ["--dry-run"]):
            code, error = told("restore", file, "--to", to, *options)
            assert (code, error["name"], f"no longer valid: {path} has " in error["message"]) == (5, "stale-plan", True)
        (root / path).unlink()
        assert told("restore", file, "--to", to)[0] == 5
        (root / path).write_bytes(own)
    (root / "offsets/7").write_bytes((root / "offsets/6").read_bytes())
    code, error = told("restore", file, "--to", to)
    assert (code, "the newest batch was 6 when it was made and is 7" in error["message"]) == (5, True)
    assert "the query has continued" in error["message"]
    assert not to.exists()
    assert not list((tmp_path / "copies").glob("*")) if to.parent.exists() else True


def test_a_commit_that_came_since_is_what_makes_a_plan_stale(tmp_path: Path, told: Any) -> None:
    root, file, to = copy_of("wc_hdfs", tmp_path, sidecars=False), tmp_path / "plan.json", tmp_path / "copy"
    commit = (root / "commits/6").read_bytes()
    (root / "commits/6").unlink()
    assert told("plan-recovery", root, "--out", file)[0] == 0
    (root / "commits/6").write_bytes(commit)
    code, error = told("restore", file, "--to", to)
    assert (code, "no longer valid: batch 6 has been committed since it was made: " in error["message"]) == (5, True)


def test_a_file_that_is_written_with_other_places_is_relied_on_as_well(tmp_path: Path, told: Any) -> None:
    root, file = copy_of("tws_row", tmp_path, sidecars=False), tmp_path / "plan.json"
    path = "state/0/_metadata/v2/0"
    assert [made["path"] for made in told("plan-recovery", root, "--out", file)[1]["body"]["write"]] == [path]
    (root / path).write_bytes((root / path).read_bytes() + b" ")
    for options in ([], ["--dry-run"]):
        code, error = told("restore", file, "--to", tmp_path / "copy", *options)
        assert (code, error["name"], f"no longer valid: {path} has " in error["message"]) == (5, "stale-plan", True)


def test_files_are_pinned_and_copied_to_their_end_piece_by_piece(
    tmp_path: Path, told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pinned, "PIECE", 16)
    root = copy_of("wc_hdfs", tmp_path)
    assert restored(told, root, tmp_path / "copy")["write"] == []
    for kept in json.loads((tmp_path / "plan.json").read_bytes())["relies_on"]:
        data = (root / kept["path"]).read_bytes()
        assert (tmp_path / "copy" / kept["path"]).read_bytes() == data
        assert kept["sha256"] == hashlib.sha256(data).hexdigest()


def test_a_copy_that_would_not_be_exact_never_appears(tmp_path: Path, told: Any) -> None:
    """A plan made by other means than the checks: with a batch whose state is not all there."""
    root, file = copy_of("wc_hdfs", tmp_path), tmp_path / "plan.json"
    told("plan-recovery", root, "--out", file)
    plan = json.loads(file.read_bytes())
    plan.pop("sha256")
    plan["relies_on"] = [kept for kept in plan["relies_on"] if not kept["path"].endswith("7.delta")]
    import msgspec

    file.write_bytes(encode(msgspec.convert(plan, Plan[SparkPlan])))
    code, error = told("restore", file, "--to", tmp_path / "copies" / "copy")
    assert (code, "does not give exact results: partition 0/0" in error["message"]) == (4, True)
    assert list((tmp_path / "copies").iterdir()) == []


def test_a_file_that_is_written_anew_from_its_own_bytes_is_a_pinned_one(tmp_path: Path, told: Any) -> None:
    """A plan made by other means than `abs plan-recovery`."""
    import msgspec

    file = tmp_path / "plan.json"
    told("plan-recovery", copy_of("tws_row", tmp_path), "--out", file)
    plan = json.loads(file.read_bytes())
    del plan["sha256"]
    (own,) = plan["body"]["write"]
    assert own["text"] is None
    plan["relies_on"] = [pinned for pinned in plan["relies_on"] if pinned["path"] != own["path"]]
    file.write_bytes(encode(msgspec.convert(plan, Plan[SparkPlan])))
    for more in ((), ("--dry-run",)):
        code, error = told("restore", file, "--to", tmp_path / "copies/copy", *more)
        missing = f"the plan rewrites {own['path']}, but does not contain its checksum"
        assert (code, missing in error["message"]) == (2, True)
    assert not (tmp_path / "copies").exists()


def test_a_dry_run_shows_the_plan_in_the_form_asked_for(
    tmp_path: Path, told: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    root, file = copy_of("wc_hdfs", tmp_path), tmp_path / "plan.json"
    made = told("plan-recovery", root, "--out", file)
    assert told("restore", file, "--to", f"file:{tmp_path}/copy", "--dry-run") == made
    assert main(["restore", str(file), "--to", str(tmp_path / "copy"), "--dry-run", "-o", "ndjson"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0])["schema"] == "abs.plan"
    assert told("restore", file, "--to", f"file:{tmp_path}/copy")[0] == 0
    assert (tmp_path / "copy/metadata").exists()


def test_only_a_new_folder_is_written_to(tmp_path: Path, told: Any) -> None:
    root, file = copy_of("wc_hdfs", tmp_path), tmp_path / "plan.json"
    told("plan-recovery", root, "--out", file)
    assert told("restore", file)[0] == 2
    assert told("restore", file, "--to", "viewfs://host/x")[0] == 2
    assert told("restore", file, "--to", tmp_path / "x", "--job", "job.yaml")[0] == 2
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").write_text("mine")
    for to in (tmp_path / "full", root, root / "state/new", file):
        code, error = told("restore", file, "--to", to)
        assert (code, error["path"]) == (2, str(to))
        assert any(reason in error["message"] for reason in ("is not an empty directory", "which the command reads"))
    (tmp_path / "empty").mkdir()
    assert told("restore", file, "--to", tmp_path / "empty")[0] == 0


def test_a_plan_that_was_changed_or_leads_out_of_the_store_is_refused(tmp_path: Path, told: Any) -> None:
    file = tmp_path / "plan.json"
    told("plan-recovery", copy_of("wc_hdfs", tmp_path), "--out", file)
    data = file.read_bytes()
    assert encode(read_plan(data, "plan.json")) == data
    file.write_bytes(data.replace(b'"batch": 6', b'"batch": 5', 1))
    assert told("restore", file, "--to", tmp_path / "copy")[0] == 2
    with pytest.raises(BadPlan, match="changed after it was made"):
        read_plan(file.read_bytes(), "plan.json")
    for out in (b"../../x", b"/etc/x"):
        with pytest.raises(Exception, match=r"sha256|plain relative path"):
            read_plan(data.replace(b".metadata.crc", out, 1), "plan.json")


@pytest.mark.parametrize("change", ["operatorId", "numPartitions", "cut", "gone"])
def test_an_operators_damaged_metadata_stays_behind_as_spark_writes_it_anew(
    change: str, tmp_path: Path, told: Any
) -> None:
    root = copy_of("wc_hdfs", tmp_path, sidecars=False)
    path = root / "state/0/_metadata/metadata"
    text = path.read_text()
    if change == "gone":
        path.unlink()
    else:
        path.write_text(text[:20] if change == "cut" else text.replace(f'"{change}":', f'"{change}":-9'))
        assert told("validate", root)[0] == 3
    plan = restored(told, root, tmp_path / "copy")
    assert not (tmp_path / "copy/state/0/_metadata/metadata").exists()
    assert plan["batch"] == 6


@pytest.mark.parametrize("option", [["--failed", "0/1"], ["--distrust", "0/1"], ["--parallelism", "0=4"],
                                    ["--strategy", "repair"], ["--epoch", "3"]])  # fmt: skip
def test_options_that_are_not_of_spark_are_refused(option: list[str], tmp_path: Path, told: Any) -> None:
    assert told("plan-recovery", f"{copy_of('wc_hdfs', tmp_path)}@2", *option)[0] == 2


def of_kafka(root: Path) -> Path:
    """A query of the same state that has read twenty records a batch, ten from each of two partitions of a topic."""
    for path in root.glob("offsets/*"):
        *head, _ = path.read_text().split("\n")
        at = 10 * int(path.name) + 10
        path.write_text("\n".join([*head, f'{{"orders":{{"0":{at},"1":{at + 500}}}}}']))
    shutil.rmtree(root / "sources")
    return root


def test_a_source_of_kafka_goes_on_from_where_it_is_set_to(tmp_path: Path, told: Any) -> None:
    root = of_kafka(copy_of("wc_hdfs", tmp_path, sidecars=False))
    plan = restored(told, root, tmp_path / "copy", "--set-offset", "0:orders-0=65", "--set-offset", "0:orders-1=900")
    assert plan["positions"] == [
        {"source": "0", "split": split, "from": was, "to": to, "unit": "records", "recreated": False, "table": None}
        for split, was, to in (("orders-0", 70, 65), ("orders-1", 570, 900))
    ]
    assert (tmp_path / "copy/offsets/6").read_text().endswith('\n{"orders":{"0":65,"1":900}}')
    assert (tmp_path / "copy/offsets/5").read_bytes() == (root / "offsets/5").read_bytes()
    code, shown = told("diff", f"{tmp_path / 'copy'}@5", f"{tmp_path / 'copy'}@6")
    assert code == 0
    assert {at["split"]: at["moved"]["offset"] for at in shown["positions"]} == {"orders-0": 5, "orders-1": 340}


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["0:orders-7=1"], 4, "the position of 0:orders-7 in batch 6 cannot be set"),
        (["1:orders-0=1"], 4, "has no source 1"),
        (["0:orders-0=59"], 4, "was at 60 when batch 6 began"),
        (["0:orders-0=60", "--set-offset", "0:orders-1=560"], 4, "at which batch 6 began"),
        (["0:orders-0=65", "--set-offset", "0:orders-0=66"], 2, "is set twice"),
        (["orders-0=65"], 2, "is not SOURCE:SPLIT=N"),
        (["0:orders-0=65", "--keep-in-flight"], 2, "--keep-in-flight"),
    ],
)
def test_places_that_cannot_be_set_are_refused_with_what_to_do(
    options: list[str], code: int, message: str, tmp_path: Path, told: Any
) -> None:
    root = of_kafka(copy_of("wc_hdfs", tmp_path, sidecars=False))
    got, error = told("plan-recovery", root, "--set-offset", *options)
    assert (got, message in error["message"]) == (code, True), error


def test_what_is_skipped_and_what_is_read_twice_is_told_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = of_kafka(copy_of("wc_hdfs", tmp_path, sidecars=False))
    options = ["--set-offset", "0:orders-0=65", "--set-offset", "0:orders-1=900"]
    assert main(["plan-recovery", str(root), *options]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "0:orders-0: 70 -> 65: up to 5 records are read twice" in text
    assert "0:orders-1: 570 -> 900: up to 330 records are skipped" in text


def test_options_of_spark_are_refused_elsewhere(tmp_path: Path, told: Any) -> None:
    from tests.support.stores.small import make_store

    make_store(tmp_path / "store")
    for option in (["--query-id", "x"], ["--path-map", "/a=/b"], ["--keep-in-flight"], ["--sink", "x"]):
        assert told("plan-recovery", tmp_path / "store", *option)[0] == 2


@pytest.mark.parametrize("width", [80, 200])
def test_plan_and_result_are_told_in_words(width: int, tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                           monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.chdir(tmp_path)
    overwritten(copy_of("wc_hdfs", tmp_path, sidecars=False)).rename(tmp_path / "ck")
    assert main(["plan-recovery", "ck", "--out", "plan.json"]) == 0
    out = capsys.readouterr().out
    said = " ".join(out.split())
    assert "Batch 6 ran to the end: the sink has the output" in said
    assert "loses rows, unless its record of the batches above 5 is removed first" in said
    assert "Next: abs restore plan.json --to NEW_CHECKPOINT" in said
    assert max(map(len, out.splitlines())) <= max(width, 100)
    assert main(["restore", "plan.json", "--to", "copy"]) == 0
    assert "checked: batch 5 can be restored" in capsys.readouterr().out


def test_ndjson_is_a_header_and_an_item_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan-recovery", str(copy_of("killed_partial_state", tmp_path)), "-o", "ndjson"]) == 0
    header, *items = map(json.loads, capsys.readouterr().out.splitlines())
    assert (header["schema"], header["body"]["batch"]) == ("abs.plan", 2)
    assert {"newer", "replayed", "input", "file", "excluded"} == {item["type"] for item in items}
