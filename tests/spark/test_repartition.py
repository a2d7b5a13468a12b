"""Checkpoints whose state the real Spark has repartitioned: which batches can be gone back to, and what a copy makes of
batches that were given up for it, or of a repartition that did not end."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from abscli.cli.main import main
from tests.support.commands import result_of, run_command
from tests.support.schemas import checked
from tests.support.spark import cases
from tests.support.spark.data import copy_of, copy_of_running
from tests.support.spark.windows import add_times
from tests.support.spark.words import CONFS, add_files, counts, go_on, killed

FILES = 5
NO_DATA = "spark.sql.streaming.noDataMicroBatches.enabled"


@pytest.fixture(scope="module")
def session(spark: Any) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    session = SparkSession(spark)
    yield session
    for key in (*cases.BASE, cases.PROVIDER, cases.CHANGELOG, cases.IDS, NO_DATA):
        session.conf.unset(key)


def repartition(session: Any, checkpoint: Path, partitions: int = 5, *, exactly_once: bool = True) -> None:
    session._streamingCheckpointManager.repartition(str(checkpoint), partitions, exactly_once)


def restored(checkpoint: Path, to: Path, capsys: pytest.CaptureFixture[str], *, at: str = "") -> dict[str, Any]:
    """Plans and restores; the plan's body."""
    assert main(["plan-recovery", f"{checkpoint}{at}", "--out", f"{to}.json", "-o", "json"]) == 0
    body: dict[str, Any] = checked(capsys.readouterr().out)["body"]
    assert main(["restore", f"{to}.json", "--to", str(to), "-q"]) == 0
    assert main(["validate", str(to), "-q"]) == 0, capsys.readouterr().out
    capsys.readouterr()
    return body


def verdicts(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> tuple[list[str], list[int]]:
    _, out, _ = run_command("validate", capsys, checkpoint, "-o", "json")
    report = checked(out)
    assert not any(epoch["findings"] for epoch in report["epochs"]), out
    return [epoch["verdict"] for epoch in report["epochs"]], report["restorable"]


@pytest.mark.sample(1)
@pytest.mark.parametrize("conf", ["rocks", "ids"])
def test_a_copy_of_before_has_the_old_number_of_partitions(
    conf: str, session: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_files(tmp_path / "input", range(FILES))
    cases.set_conf(session, CONFS[conf])
    go_on(session, tmp_path / "input", tmp_path / "checkpoint")
    repartition(session, tmp_path / "checkpoint")
    assert verdicts(tmp_path / "checkpoint", capsys) == (["complete"] * (FILES + 1), list(range(FILES + 1)))
    body = restored(tmp_path / "checkpoint", tmp_path / "copy", capsys, at=f"@{FILES - 2}")
    assert body["reverted_repartitions"] == [{"batch": FILES, "from": 3, "to": 5}]
    assert [one["batch"] for one in body["replayed"]] == [FILES - 1], "no sink has seen the repartition"
    _, out, _ = run_command("plan-recovery", capsys, f"{tmp_path / 'checkpoint'}@{FILES - 2}")
    assert f"batch {FILES}: it had repartitioned state from 3 to 5 partitions" in " ".join(out.split())
    add_files(tmp_path / "input", range(FILES, FILES + 1))
    assert go_on(session, tmp_path / "input", tmp_path / "copy") == counts(tmp_path / "input")


def test_one_that_did_not_end_is_left_behind_and_never_kept_in_flight(
    session: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark begins it before it sees that it cannot repartition this provider, and the query does not start again."""
    add_files(tmp_path / "input", range(FILES))
    cases.set_conf(session, CONFS["hdfs"])
    go_on(session, tmp_path / "input", tmp_path / "checkpoint")
    with pytest.raises(Exception, match="UNSUPPORTED_PROVIDER"):
        repartition(session, tmp_path / "checkpoint")
    add_files(tmp_path / "input", range(FILES, FILES + 1))
    with pytest.raises(Exception, match="STREAMING_UNFINISHED_REPARTITION_DETECTED"):
        go_on(session, tmp_path / "input", copy_of_running(tmp_path / "checkpoint", tmp_path / "own"))
    code, out, err = run_command("plan-recovery", capsys, tmp_path / "checkpoint", "--keep-in-flight", "-o", "json")
    error = checked(out or err)
    assert (code, error["path"]) == (4, f"offsets/{FILES}")
    assert f"batch {FILES} only repartitions state, from 3 to 5 partitions" in error["message"]
    body = restored(tmp_path / "checkpoint", tmp_path / "copy", capsys)
    assert (body["batch"], body["replayed"]) == (FILES - 1, [])
    assert go_on(session, tmp_path / "input", tmp_path / "copy") == counts(tmp_path / "input")


@pytest.mark.soak
def test_batches_given_up_for_it_are_not_gone_back_to_and_the_copy_starts_where_spark_does_not(
    session: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A source of files cannot go back from what the batch that was in flight has read."""
    add_files(tmp_path / "input", range(FILES))
    killed(tmp_path / "input", tmp_path / "checkpoint", CONFS["changelog"], "after", 3)
    cases.set_conf(session, CONFS["changelog"])
    repartition(session, tmp_path / "checkpoint", exactly_once=False)
    complete = ["complete"] * 3
    assert verdicts(tmp_path / "checkpoint", capsys) == ([*complete, "aborted", "complete"], [0, 1, 2, 4])
    with pytest.raises(Exception, match="assertion failed"):
        go_on(session, tmp_path / "input", copy_of_running(tmp_path / "checkpoint", tmp_path / "own"))
    body = restored(tmp_path / "checkpoint", tmp_path / "copy", capsys)
    assert (body["batch"], body["reverted_repartitions"]) == (4, [])
    assert {"offsets/3", "commits/3"} == {file["path"] for file in body["write"]}
    assert go_on(session, tmp_path / "input", tmp_path / "copy") == counts(tmp_path / "input")
    body = restored(tmp_path / "checkpoint", tmp_path / "back", capsys, at="@2")
    assert body["replayed"] == [{"batch": 3, "committed": False}]
    assert [one["batch"] for one in body["reverted_repartitions"]] == [4]
    assert go_on(session, tmp_path / "input", tmp_path / "back") == counts(tmp_path / "input")
    code, _, err = run_command("plan-recovery", capsys, f"{tmp_path / 'checkpoint'}@3")
    assert (code, "and was dropped" in err) == (4, True)


def test_a_repartition_numbers_column_families_anew_and_is_gone_back_across(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A real one of `transformWithState` (Spark 4.3), with a batch in flight that it has given up: values, lists and
    maps have other numbers in the snapshots that it made, by which no row of before may be read."""
    root = copy_of("tws_repartitioned", tmp_path)
    assert verdicts(root, capsys) == ([*["complete"] * 3, "aborted", "complete"], [0, 1, 2, 4])
    for at, undone in ((1, [(4, 3, 5)]), (2, [(4, 3, 5)]), (4, [])):
        body = restored(root, tmp_path / f"copy-{at}", capsys, at=f"@{at}")
        assert [(one["batch"], one["from"], one["to"]) for one in body["reverted_repartitions"]] == undone
        rows = [result_of("state", capsys, f"{one}@{at}", "0", "--state", "l", "--limit", "1000")["rows"]
                for one in (root, tmp_path / f"copy-{at}")]  # fmt: skip
        assert rows[0] == rows[1]
        assert len(rows[0]) == 30 * min(at + 1, 3)


def go_on_with_windows(session: Any, source: Path, checkpoint: Path) -> set[tuple[str, int]]:
    """Counts by window of what has come, each window once, when the watermark has passed it."""
    from pyspark.sql import functions as f

    seen: set[tuple[str, int]] = set()

    def sink(frame: Any, batch: int) -> None:
        seen.update((str(row["window"]["start"]), row["count"]) for row in frame.collect())

    stream = session.readStream.schema("at timestamp").option("maxFilesPerTrigger", 1).json(str(source))
    counted = stream.withWatermark("at", "10 seconds").groupBy(f.window("at", "20 seconds")).count()
    writer = counted.writeStream.foreachBatch(sink).outputMode("append").option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
    return seen


@pytest.mark.soak
@pytest.mark.sample(1)
@pytest.mark.parametrize("lost", [None, FILES - 1])
def test_a_watermark_that_moved_with_the_last_batch_is_no_contradiction(
    lost: int | None, session: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The repartition begins with the watermark of before that batch. lost: a commit that is made anew."""
    for number in range(FILES):
        add_times(tmp_path / "input", number)
    cases.set_conf(session, CONFS["changelog"])
    session.conf.set(NO_DATA, "false")
    whole = go_on_with_windows(session, tmp_path / "input", tmp_path / "checkpoint")
    repartition(session, tmp_path / "checkpoint")
    commit = (tmp_path / f"checkpoint/commits/{FILES - 1}").read_bytes()
    if lost is None:
        assert verdicts(tmp_path / "checkpoint", capsys) == (["complete"] * (FILES + 1), list(range(FILES + 1)))
    else:
        (tmp_path / f"checkpoint/commits/{lost}").unlink()
    body = restored(tmp_path / "checkpoint", tmp_path / "copy", capsys, at=f"@{FILES - 1}")
    assert (tmp_path / f"copy/commits/{FILES - 1}").read_bytes() == commit
    assert [one["batch"] for one in body["reverted_repartitions"]] == [FILES]
    add_times(tmp_path / "input", FILES)
    rest = go_on_with_windows(session, tmp_path / "input", tmp_path / "copy")
    shutil.rmtree(tmp_path / "anew", ignore_errors=True)
    assert whole | rest == go_on_with_windows(session, tmp_path / "input", tmp_path / "anew")
    assert not whole & rest


def same_counts(session: Any, source: Path, checkpoint: Path) -> None:
    """The query goes on to the counts of all its input; one more file, so that every batch shows the whole state."""
    number = len(list(source.glob("*.txt")))
    add_files(source, range(number, number + 1))
    assert go_on(session, source, checkpoint) == counts(source)


@pytest.mark.soak
@pytest.mark.minutes
@pytest.mark.parametrize("conf", ["rocks", "ids"])
def test_a_query_that_was_repartitioned_twice_goes_on_from_any_of_its_batches(
    conf: str, session: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the first, at it, between the two, and at the second; what was gone back to is repartitioned in its turn,
    twice without input between, and gone back in."""
    source, own = tmp_path / "input", tmp_path / "checkpoint"
    cases.set_conf(session, CONFS[conf])
    for number, partitions in ((0, 5), (2, 2), (4, None)):
        add_files(source, range(number, number + 2))
        go_on(session, source, own)
        if partitions is not None:
            repartition(session, own, partitions)
    assert verdicts(own, capsys) == (["complete"] * 8, list(range(8)))  # of which 2 and 5 are repartitions
    undone = {1: [(2, 3, 5), (5, 5, 2)], 2: [(5, 5, 2)], 3: [(5, 5, 2)], 5: []}
    for at, moves in undone.items():
        body = restored(own, tmp_path / f"copy-{at}", capsys, at=f"@{at}")
        assert [(one["batch"], one["from"], one["to"]) for one in body["reverted_repartitions"]] == moves
        same_counts(session, source, copy_of_running(tmp_path / f"copy-{at}", tmp_path / f"on-{at}"))
    between = tmp_path / "copy-3"
    repartition(session, between, 4)
    assert verdicts(between, capsys)[1][-1] == 4
    same_counts(session, source, copy_of_running(between, tmp_path / "between-on"))
    repartition(session, between, 6)
    repartition(session, between, 3)
    assert verdicts(between, capsys)[1][-3:] == [4, 5, 6]
    for at, moves in {5: [(6, 6, 3)], 4: [(5, 4, 6), (6, 6, 3)], 3: [(4, 5, 4), (5, 4, 6), (6, 6, 3)]}.items():
        body = restored(between, tmp_path / f"again-{at}", capsys, at=f"@{at}")
        assert [(one["batch"], one["from"], one["to"]) for one in body["reverted_repartitions"]] == moves
        same_counts(session, source, tmp_path / f"again-{at}")
    same_counts(session, source, between)
