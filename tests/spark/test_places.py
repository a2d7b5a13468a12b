"""What the offsets of each kind of source say, how batches are compared by them, and which of them can be set."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from abscli.cli.main import main
from formats.spark.logs.places import is_file_source, kind_of, positions, why_not_set, with_position
from formats.view import Position
from tests.support.commands import result_of, run_command
from tests.support.spark.data import Case, copy_of

RESERVOIR = "1fc55699-c616-4135-9549-5f333d967106"
AT = "49590338271490256608559692538361571095921575989136588898"


def delta(version: int, index: int = -1, *, snapshot: bool = False) -> str:
    return json.dumps(
        {"sourceVersion": 1, "reservoirId": RESERVOIR, "reservoirVersion": version, "index": index,
         "isStartingVersion": snapshot}, separators=(",", ":"),
    )  # fmt: skip


def auto_loader(number: int) -> str:
    """As Databricks documents an offset of Auto Loader in the progress of a query."""
    times = {"lastBackfillStartTimeMs": 1667453455118, "lastBackfillFinishTimeMs": 1667453456546}
    return json.dumps({"seqNum": number, "sourceVersion": 1, **times}, separators=(",", ":"))


def kinesis(at: str, **more: str) -> str:
    shard = {"iteratorType": "AFTER_SEQUENCE_NUMBER", "iteratorPosition": at, **more}
    return json.dumps({"metadata": {"streamName": "clicks", "batchId": "3"}, "shardId-1": shard}, separators=(",", ":"))


@pytest.mark.parametrize(
    "offset", ['{"logOffset":"6"}', '{"logOffset":true}', "true", '{"offset":null,"timestamp":1}', "-", None, "{",
               '{"topic":{"²":1}}', '{"topic":{"0":true}}', '{"shard":"x"}',
               '{"reservoirId":"x","reservoirVersion":1,"index":null}', '{"seqNum":"1","sourceVersion":1}'],
)  # fmt: skip
def test_an_offset_that_is_no_number_is_of_no_known_source(offset: str | None) -> None:
    assert (kind_of(offset), positions(offset), is_file_source(offset)) == (None, None, None)
    assert with_position(offset, "x", 1) is None


@pytest.mark.parametrize(
    ("offset", "kind", "places"),
    [
        ('{"topic":{"1":7,"0":5}}', "kafka", (Position("topic-0", 5, 5), Position("topic-1", 7, 7))),
        ("42", "rate", (Position("seconds", 42, None),)),
        ('{"offset":30,"timestamp":3000}', "rate-micro-batch", (Position("rows", 30, 30),)),
        ('{"logOffset":3}', "file", (Position("log", 3, None),)),
        (delta(5), "delta", (Position("version", 5, None), Position("files of version 5", 0, None))),
        (delta(5, 8), "delta", (Position("version", 5, None), Position("files of version 5", 9, None))),
        (delta(5, -20), "delta", (Position("version", 5, None), Position("files of version 5", 0, None))),
        (delta(1, 3, snapshot=True), "delta",
         (Position("version", 1, None), Position("files of snapshot 1", 4, None))),
        (auto_loader(234), "auto-loader", (Position("files", 234, None),)),
        (kinesis(AT), "kinesis", (Position("shardId-1", None, None, f"AFTER_SEQUENCE_NUMBER {AT}"),)),
        (kinesis(AT, subSequenceNumber="-1", isLast="true"), "kinesis",
         (Position("shardId-1", None, None, f"AFTER_SEQUENCE_NUMBER {AT}"),)),
        (kinesis(AT, subSequenceNumber="7", isLast="false"), "kinesis",
         (Position("shardId-1", None, None, f"AFTER_SEQUENCE_NUMBER {AT} 7"),)),
    ],
)  # fmt: skip
def test_positions_of_known_sources(offset: str, kind: str, places: tuple[Position, ...]) -> None:
    assert (kind_of(offset), positions(offset)) == (kind, places)


@pytest.mark.parametrize(
    ("offset", "reason"),
    [
        ("42", "come with the clock"),
        ('{"offset":30,"timestamp":3000}', "the times of its rows"),
        ('{"logOffset":3}', "its log says which files"),
        (delta(5), "set by its version"),
        (auto_loader(5), "is not public"),
        (kinesis(AT), "sequence numbers"),
        ('{"shard":"x"}', "not known here"),
        ('{"topic":{"0":5}}', "it has topic-0"),
    ],
)
def test_what_cannot_be_set_is_refused_with_the_reason(offset: str, reason: str) -> None:
    assert reason in (why_not_set(offset, "elsewhere") or "")
    assert with_position(offset, "elsewhere", 1) is None


# -- through the commands -------------------------------------------------------------------------------------


def of_source(root: Path, offset: Callable[[int], str]) -> Path:
    """A checkpoint whose only source is another one, with its offset after each batch."""
    for path in root.glob("offsets/[0-9]*"):
        lines = path.read_text().split("\n")
        path.write_text("\n".join([*lines[:2], offset(int(path.name))]))
    return root


SOURCES: Mapping[str, Callable[[int], str]] = {
    "delta": lambda n: delta(1, n, snapshot=True) if n < 2 else delta(n, 1 if n % 2 else -1),
    "auto-loader": lambda n: auto_loader(10 * n),
    "kinesis": lambda n: kinesis(f"{AT}{n}"),
    "rate-micro-batch": lambda n: json.dumps({"offset": 7 * n, "timestamp": 1000 * n}, separators=(",", ":")),
    "rate": str,
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_checkpoint_of_any_of_them_is_shown_checked_and_gone_back_in(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = of_source(copy_of("wc_hdfs", tmp_path, sidecars=False), SOURCES[name])
    report = result_of("validate", capsys, root)
    assert not [finding for epoch in report["epochs"] for finding in epoch["findings"]]
    assert report["latest_restorable"] == 6
    code, out, _ = run_command("inspect", capsys, f"{root}@3")
    assert (code, f"({name} source)" in out) == (0, True)
    assert main(["plan-recovery", f"{root}@4", "--out", str(tmp_path / "plan"), "-q"]) == 0
    assert main(["restore", str(tmp_path / "plan"), "--to", str(tmp_path / "copy"), "-q"]) == 0
    assert (tmp_path / "copy/offsets/4").read_bytes() == (root / "offsets/4").read_bytes()


@pytest.mark.parametrize(
    ("name", "moved"),
    [
        ("delta", {"version": (1, 5, 4, None), "files of snapshot 1": (2, None, None, None),
                   "files of version 5": (None, 2, None, None)}),
        ("auto-loader", {"files": (10, 50, 40, None)}),
        ("rate-micro-batch", {"rows": (7, 35, 28, 28)}),
        ("rate", {"seconds": (1, 5, 4, None)}),
    ],
)  # fmt: skip
def test_batches_are_compared_in_numbers_where_they_are_numbers(
    name: str, moved: dict[str, tuple[int | None, ...]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = of_source(copy_of("wc_hdfs", tmp_path, sidecars=False), SOURCES[name])
    at = {one["split"]: one for one in result_of("diff", capsys, f"{root}@1", f"{root}@5")["positions"]}
    seen = {}
    for split, one in at.items():
        ends = ((one[end] or {"offset": None})["offset"] for end in ("from", "to"))
        seen[split] = (*ends, one["moved"]["offset"], one["moved"]["records"])
    assert seen == moved


def test_places_that_are_no_numbers_are_compared_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = of_source(copy_of("wc_hdfs", tmp_path, sidecars=False), SOURCES["kinesis"])
    (at,) = result_of("diff", capsys, f"{root}@1", f"{root}@2")["positions"]
    assert [at[end]["text"] for end in ("from", "to")] == [f"AFTER_SEQUENCE_NUMBER {AT}{n}" for n in (1, 2)]
    assert at["moved"] == {"offset": None, "records": None, "text": None}
    (task,) = (
        task for operator in result_of("inspect", capsys, f"{root}@1")["operators"] for task in operator["tasks"]
        if task["position"]
    )  # fmt: skip
    assert task["position"][0]["text"] == f"AFTER_SEQUENCE_NUMBER {AT}1"
    for command in (("diff", f"{root}@1", f"{root}@2"), ("inspect", f"{root}@1")):
        code, out, _ = run_command(command[0], capsys, *command[1:])
        assert (code, f"AFTER_SEQUENCE_NUMBER {AT}1" in " ".join(out.split())) == (0, True), out


def test_batches_of_files_are_compared_in_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As many as their log names: entries of one source, and a compaction that has replaced some."""
    root = copy_of("file_compact", tmp_path, sidecars=False)
    last = result_of("inspect", capsys, root)["latest_complete"]
    first = last - 1
    at = {one["split"]: one for one in result_of("diff", capsys, f"{root}@{first}", f"{root}@{last}")["positions"]}
    named = [
        json.loads(line)["path"]
        for path in (root / "sources/0").iterdir()
        for line in path.read_text().split("\n")[1:]
        if not path.name.startswith(".")
    ]
    assert at["files"]["to"]["offset"] == len(set(named)) > at["files"]["from"]["offset"] > 0
    assert at["files"]["moved"]["offset"] == len(set(named)) - at["files"]["from"]["offset"]
    (root / "sources/0" / str(last)).unlink()
    (lost,) = result_of("diff", capsys, f"{root}@{first}", f"{root}@{last}")["positions"][1:]
    assert (lost["split"], lost["to"]) == ("files", None)


@pytest.mark.parametrize(
    ("batch", "version", "line", "told"),
    [
        (5, 5, delta(5), "what had been read of version 5 is read twice"),
        (5, 9, delta(9), "what had not been read of versions 5 to 8 is skipped"),
        (0, 2, delta(2), "what had not been read of version 1 is skipped"),
    ],
)
def test_a_delta_table_goes_on_from_the_version_that_it_is_set_to(
    batch: int, version: int, line: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = of_source(copy_of("wc_hdfs", tmp_path, sidecars=False), SOURCES["delta"])
    plan = tmp_path / "plan"
    command = ["plan-recovery", f"{root}@{batch}", "--set-offset", f"0:version={version}", "--out", str(plan)]
    assert main(command) == 0
    assert told in " ".join(capsys.readouterr().out.split())
    assert main(["restore", str(plan), "--to", str(tmp_path / "copy"), "-q"]) == 0
    assert (tmp_path / f"copy/offsets/{batch}").read_text().split("\n")[2] == line


def test_what_a_real_delta_table_says_and_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Made with Spark 4.2 and Delta 4.4: five versions of ten rows in three files each, of which the first two are the
    table as it stood, read two files a batch. `set` of its truth: what a query of theirs read that was given a copy of
    batch 4 with another version."""
    truth = Case.of("kind_delta").truth
    root = copy_of("kind_delta", tmp_path)
    places = {
        batch: [one.offset for one in positions((root / f"offsets/{batch}").read_text().split("\n")[2]) or ()]
        for batch in range(8)
    }
    assert places == {0: [1, 2], 1: [1, 4], 2: [2, 0], 3: [2, 2], 4: [3, 1], 5: [4, 0], 6: [4, 2], 7: [5, 0]}
    for version, real in truth["set"].items():
        plan, copy = tmp_path / f"plan-{version}", tmp_path / f"copy-{version}"
        assert main(["plan-recovery", f"{root}@4", "--set-offset", f"0:version={version}", "--out", str(plan)]) == 0
        capsys.readouterr()
        assert main(["restore", str(plan), "--to", str(copy), "-q"]) == 0
        assert (copy / "offsets/4").read_text().split("\n")[2] == real["offset"]
        read = sorted(key for batch in real["batches"].values() for key in batch)
        assert read == list(range(10 * int(version), 50)), "whole versions from there on"


@pytest.mark.parametrize(
    ("batch", "place", "message"),
    [
        (5, "version=3", "can be 4 or more after batch 5"),
        (5, "version=4", "at which batch 5 began"),
        (1, "version=1", "can be 2 or more after batch 1"),
        (4, "version=3", "can be 4 or more after batch 4"),
        (5, "files of version 5=1", "is set by its version"),
    ],
)
def test_versions_whose_files_state_had_before_are_refused(
    batch: int, place: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = of_source(copy_of("wc_hdfs", tmp_path, sidecars=False), SOURCES["delta"])
    code, _, err = run_command("plan-recovery", capsys, f"{root}@{batch}", "--set-offset", f"0:{place}")
    assert (code, message in " ".join(err.split())) == (4, True), err


@pytest.mark.parametrize("name", ["auto-loader", "kinesis", "rate-micro-batch", "rate"])
def test_sources_that_cannot_be_set_say_why(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = of_source(copy_of("wc_hdfs", tmp_path, sidecars=False), SOURCES[name])
    code, _, err = run_command("plan-recovery", capsys, root, "--set-offset", "0:x=1")
    assert (code, f"positions of {name} cannot be set" in " ".join(err.split())) == (4, True), err
