"""`Job.test`: what is right passes, and what a kill or another batch changes is caught and shown."""

from __future__ import annotations

import os
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from abscli import EngineStopped, Job, JobFailed, Stream, UsageError, col, count
from abscli.jobs.attempts import Answer, Attempts, Order
from abscli.jobs.trial import Written, _last
from formats.native.store import NativeStore
from formats.scratch import scratch
from formats.storage import LocalStorage
from tests.jobs.functions import (
    bad_row,
    for_ever,
    hashed,
    known,
    leave,
    next_nodes,
    number,
    numbered_until_18,
    size_of_batch,
    split,
    step,
    third,
)
from tests.support.processes import children

PATIENCE = "10m"
LINES = [f"{word} b {word}" for word in "cadef" * 4]


def lines_of(job: Job, **marks: Any) -> Stream:
    return job.text("nowhere/*.txt", id="lines", **marks)


def word_count(emit: Any = "epoch", parallelism: int = 2) -> Job:
    job = Job("words", parallelism=parallelism)
    counts = lines_of(job).flat_map(split).group_by("word").agg(n=count(), emit=emit, id="counts")
    counts.to_jsonl("out", id="printed")
    return job


# -- what is right ---------------------------------------------------------------------------------------------


@pytest.mark.sample(1)
@pytest.mark.parametrize("emit", ["epoch", "record"])
def test_a_word_count_is_the_same_through_kills(emit: str) -> None:
    rows = word_count(emit).test({"lines": LINES}, timeout=PATIENCE)
    expected = {"b": 20, **dict.fromkeys("cadef", 8)}
    assert {row["word"]: row["n"] for row in rows["printed"]} == expected
    assert len(rows["printed"]) == len(expected)


def test_rows_stand_in_for_files_of_other_kinds() -> None:
    job = Job("files", parallelism=2)
    job.csv("nowhere/*.csv", schema={"word": "string"}, id="csv").to_jsonl("out/csv", id="of_csv")
    job.parquet("nowhere/*.parquet", columns=["word"], id="parquet").to_jsonl("out/parquet", id="of_parquet")
    rows = [{"word": word} for word in "abcdef"]
    shown = job.test({"csv": rows, "parquet": rows}, timeout=PATIENCE)
    assert [sorted(row["word"] for row in sink) for sink in shown.values()] == [list("abcdef")] * 2


def test_a_key_is_forgotten_at_the_same_rows_whenever_epochs_end() -> None:
    """Times may be given as what they are."""
    job = Job("once", parallelism=1)
    visits = job.jsonl("nowhere", schema={"user": "string", "at": "timestamp"}, event_time="at", id="visits")
    visits.group_by("user").ttl("at", "10m").distinct().to_jsonl("out/new", id="new")
    visits.group_by("user").ttl("at", "10m").agg(n=count()).to_jsonl("out/counts", id="counts")
    visits.group_by("user").ttl("at", "10m").agg(n=count(), emit="record", id="each").to_jsonl("out/each", id="all")
    minutes = [0, 5, 14, 24, 30, 45, 55, 56, 57, 58]
    rows = [{"user": user, "at": datetime(2026, 1, 1, 0, minute)} for minute in minutes for user in "ab"]
    shown = job.test({"visits": rows}, timeout=PATIENCE)
    assert [row["at"][14:16] for row in shown["new"] if row["user"] == "a"] == ["00", "24", "45", "55"]
    assert [{row["user"]: row["n"] for row in shown[sink]} for sink in ("counts", "all")] == [{"a": 4, "b": 4}] * 2


def test_a_loop_comes_to_the_same_pairs() -> None:
    job = Job("reach", parallelism=2)
    loop = job.jsonl("nowhere", schema={"start": "string", "node": "string"}, id="pairs").iterate()
    reached = loop.distinct("start", "node")
    loop.closed_by(reached.flat_map(next_nodes))
    reached.to_jsonl("out", id="out", parallelism=1)
    rows = job.test({"pairs": [{"start": node, "node": node} for node in "abcd"]}, kills=3, timeout=PATIENCE)
    assert sorted((row["start"], row["node"]) for row in rows["out"]) == sorted(
        [(start, node) for start in "abc" for node in "abcd"] + [("d", "d")]
    )


def test_nothing_is_left_behind_and_nothing_real_is_read_or_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    started = children(os.getpid())  # servers of other tests
    before = os.listdir(scratch()), os.environ.copy(), sorted(Path(__file__).parent.iterdir())
    rows = word_count(parallelism=1).test({"lines": ["a"]}, kills=1, timeout=PATIENCE)
    assert rows == {"printed": [{"word": "a", "n": 1}]}
    assert (os.listdir(scratch()), os.environ.copy(), sorted(Path(__file__).parent.iterdir())) == before
    assert children(os.getpid()) == started
    assert list(tmp_path.iterdir()) == []


def test_sums_of_floats_may_differ_in_their_last_bits() -> None:
    job = Job("sums", parallelism=2)
    values = job.jsonl("nowhere", schema={"k": "string", "v": "int64"}, id="rows").rebalance()
    values.map(third).group_by("k").agg(total=col("v").sum()).to_jsonl("out", id="out")
    rows = job.test({"rows": [{"k": "a", "v": 10**n} for n in range(12)]}, kills=2, timeout=PATIENCE)
    assert rows["out"][0]["total"] == pytest.approx(sum(10**n / 3 for n in range(12)))


def test_sources_without_a_row_are_allowed() -> None:
    job = Job("both")
    lines_of(job).union(job.text("other", id="other")).to_jsonl("out", id="out")
    rows = job.test({"lines": [], "other": ["a", {"line": "b"}]}, kills=1, timeout=PATIENCE)
    assert rows == {"out": [{"line": "a"}, {"line": "b"}]}


# -- what is wrong ---------------------------------------------------------------------------------------------


def test_a_function_that_keeps_a_number_loses_it_at_a_kill() -> None:
    job = Job("numbered")
    lines_of(job).map(number).to_jsonl("out", id="out")
    with pytest.raises(AssertionError) as caught:
        job.test({"lines": [f"line {n}" for n in range(10)]}, timeout=PATIENCE)
    message = str(caught.value)
    assert "killed after every epoch (+) than in one batch and without a kill (-) (SIGKILL when epochs 1, " in message
    assert "  - {'line': 'line 2', 'number': 2}" in message
    assert re.search(r"\+ \{'line': 'line \d', 'number': 0\}, written in epoch \d+, after kill \d", message)
    assert "a function keeps something of its own" in message


def test_a_set_in_a_module_is_no_distinct() -> None:
    job = Job("known")
    fresh = lines_of(job).flat_map(split).filter(known)
    fresh.to_jsonl("out", id="out")
    with pytest.raises(AssertionError, match=r"0 rows are others, 0 are gone, \d+ are new") as caught:
        job.test({"lines": LINES}, timeout=PATIENCE)
    assert "after kill" in str(caught.value)


def test_a_function_that_looks_at_its_batch_is_caught_without_a_kill() -> None:
    job = Job("sized")
    lines_of(job).map(size_of_batch).to_jsonl("out", id="out")
    with pytest.raises(AssertionError, match="each row's output must depend on that row alone") as caught:
        job.test({"lines": LINES}, timeout=PATIENCE)
    assert "without a kill (+)" in str(caught.value)


def windowed(function: Any, lateness: str | None = None) -> Job:
    job = Job("windowed", parallelism=1)
    rows = job.jsonl(
        "nowhere", schema={"user": "string", "at": "timestamp", "v": "int64"}, event_time="at", delay="1m", id="rows"
    )
    by_user = rows.map(function).group_by("user").window("at", tumbling="1m", lateness=lateness)
    by_user.agg(total=col("v").sum()).to_jsonl("out", id="out")
    return job


VISITS = [{"user": "a", "at": datetime(2026, 1, 1, 0, n // 6, n % 6 * 10), "v": n} for n in range(24)]


@pytest.mark.parametrize("lateness", [None, "10s"])
def test_every_window_of_a_key_counts(lateness: str | None) -> None:
    """The last window alone is the same in each run."""
    with pytest.raises(AssertionError, match=r"sink out: [123] rows are others|[1-6] are gone") as caught:
        windowed(numbered_until_18, lateness).test({"rows": VISITS}, timeout=PATIENCE)
    assert "2026-01-01T00:00:00" in str(caught.value)


def test_windows_are_the_same_through_kills() -> None:
    shown = windowed(step).test({"rows": VISITS}, timeout=PATIENCE)["out"]
    assert [row["total"] for row in shown] == [sum(range(6 * n, 6 * n + 6)) for n in range(4)]


def test_the_hash_of_a_text_differs_after_a_kill() -> None:
    job = Job("hashed", parallelism=1)
    lines_of(job).map(hashed).to_jsonl("out", id="out")
    with pytest.raises(AssertionError, match="sink out: "):
        job.test({"lines": LINES}, timeout=PATIENCE)


def test_a_job_that_goes_by_the_order_of_rows_is_told_that_its_source_has_none() -> None:
    job = Job("ordered", parallelism=2)
    rows = job.jsonl("nowhere", schema={"k": "string", "n": "int64"}, id="rows")
    rows.group_by("k").agg(n=col("n").collect(400), id="listed").to_jsonl("out")
    with pytest.raises(AssertionError, match=r"listed may see the rows of a key in another order, .* parallelism 1"):
        job.test({"rows": [{"k": "a", "n": n} for n in range(400)]}, timeout=PATIENCE)


def test_a_function_that_raises_is_said_as_in_a_run() -> None:
    job = Job("poisoned")
    lines_of(job).map(bad_row).to_jsonl("out")
    with pytest.raises(JobFailed, match=r"operator bad_row, .*poison.*ValueError: no such line \(functions.py, line"):
        job.test({"lines": ["fine", "poison"]}, timeout=PATIENCE)


def test_a_function_that_leaves_ends_the_test() -> None:
    job = Job("leaving")
    lines_of(job).map(leave).to_jsonl("out")
    with pytest.raises(EngineStopped, match="its process ended with status 3"):
        job.test({"lines": ["a"]}, timeout=PATIENCE)


def test_a_job_that_does_not_end_is_given_up() -> None:
    job = Job("turning")
    loop = lines_of(job).iterate()
    turning = loop.flat_map(for_ever)
    loop.closed_by(turning)
    turning.to_jsonl("out")
    with pytest.raises(EngineStopped, match="has not ended within 2 s"):
        job.test({"lines": ["a"]}, timeout="2s")


# -- what is asked ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({}, "no rows for source lines"),
        ({"line": []}, "rows: 'line' is not a source of the job"),
        ({"lines": [1]}, "source lines: 1 is not a line of text"),
        ({"lines": ["a\nb"]}, "is not a line of text"),
    ],
)
def test_rows_that_no_source_could_read_are_refused(rows: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        word_count().test(rows)


def test_how_often_and_how_long_is_said_in_numbers_above_zero() -> None:
    with pytest.raises(UsageError, match="kills must be at least 1, got 0"):
        word_count().test({"lines": []}, kills=0)
    with pytest.raises(UsageError, match="timeout: 'soon' is not a duration"):
        word_count().test({"lines": []}, timeout="soon")


def test_keys_are_of_sinks() -> None:
    with pytest.raises(UsageError, match="keys: 'counts' is not a sink of the job") as caught:
        word_count().test({"lines": []}, keys={"counts": ["word"]})
    assert caught.value.hint == "sinks: printed"


def test_which_rows_count_has_to_be_said_where_it_does_not_follow() -> None:
    rows = [Written({"a": 1, "b": 2}, 1), Written({"a": 1, "b": 3}, 2)]
    with pytest.raises(UsageError, match="cannot determine which rows of sink out to compare"):
        _last(rows, None, "out")
    with pytest.raises(UsageError, match="cannot determine which rows of sink out to compare"):
        _last(rows, ("c",), "out")
    assert [one.row["b"] for one in _last(rows, ("a",), "out").values()] == [3]
    assert len(_last(rows + rows, (), "out")) == 4


def test_both_counted_and_other_rows_in_one_sink_need_keys() -> None:
    job = Job("mixed")
    words = lines_of(job).flat_map(split)
    counts = words.group_by("word").agg(n=count())
    words.merge(counts).to_jsonl("out", id="out")
    with pytest.raises(UsageError, match="cannot determine which rows of sink out to compare"):
        job.test({"lines": ["a"]}, kills=1, timeout=PATIENCE)
    rows = job.test({"lines": ["a a"]}, keys={"out": "word"}, kills=1, timeout=PATIENCE)
    assert [row["word"] for row in rows["out"]] == ["a"]


# -- how it is done --------------------------------------------------------------------------------------------


def test_an_attempt_is_ended_by_sigkill_and_the_next_goes_on(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in LINES))
    job = Job("words")
    job.text(str(tmp_path / "in")).flat_map(split).to_jsonl("out", id="out")
    here = str(Path(__file__).parent)
    answers: list[Answer] = []
    with Attempts() as attempts:
        while not answers or answers[-1].killed:
            epoch = answers[-1].epoch if answers else 0
            order = Order(job.topology, here, str(tmp_path / "store"), str(tmp_path / "sinks"), epoch, 5, 1)
            answers.append(attempts.run(order, 600.0))
        processes = attempts._processes
    assert [process.returncode for process in processes] == [-9, -9]
    assert [answer.failure for answer in answers] == [None] * len(answers)
    assert len(answers) >= 5
    store = NativeStore(LocalStorage(tmp_path / "store"))
    assert len({attempt.id for attempt in store.attempts()}) == len(answers)
    assert sum(path.read_text().count("\n") for path in (tmp_path / "sinks" / "out").glob("part-*")) == 3 * len(LINES)
