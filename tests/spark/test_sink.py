"""The log of a file sink brought back with a checkpoint: by its entries alone, and with a real query that goes on."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from abscli.cli.main import main
from abscli.stores.spark.sink import SinkBack, back_to
from formats.errors import NoRecovery
from formats.spark.logs.sink_log import FOLDER, SinkLog, output_files, read_sink
from formats.storage import MemoryStorage
from tests.support.schemas import checked
from tests.support.spark import cases
from tests.support.spark.data import copy_of
from tests.support.spark.windows import add_times
from tests.support.spark.words import CONFS, add_files

FILES = 8


def line(batch: int, part: int) -> str:
    path = f"file:///out/part-{part:05d}-of-{batch}.parquet"
    return json.dumps({"path": path, "size": 10, "isDir": False, "modificationTime": batch, "action": "add"})


def written(counts: list[int], interval: int) -> dict[str, bytes]:
    """The log of a sink as Spark writes it. counts: files of each batch; interval: of compactions."""
    out, whole = {}, list[str]()
    for batch, count in enumerate(counts):
        own = [line(batch, part) for part in range(count)]
        whole += own
        compact = (batch + 1) % interval == 0
        name = f"{FOLDER}/{batch}.compact" if compact else f"{FOLDER}/{batch}"
        out[name] = "\n".join(["v1", *(whole if compact else own)]).encode()
    return out


def log_of(files: dict[str, bytes]) -> SinkLog:
    storage = MemoryStorage()
    for name, data in files.items():
        storage.put(name, data)
    return read_sink(storage)


def as_spark_reads(files: dict[str, bytes], back: SinkBack) -> list[str]:
    """The lines that Spark comes to from the copy: of its last compaction and what follows."""
    copy = {name: files[f"{FOLDER}/{name}"] for name in back.keep} | back.write
    log = log_of({f"{FOLDER}/{name}": data for name, data in copy.items()})
    base = max(log.compact, default=-1)
    assert sorted(n for n in log.single if n > base) == list(range(base + 1, log.newest + 1))
    return [*log.compact.get(base, ()), *(one for n in range(base + 1, log.newest + 1) for one in log.single[n])]


logs = st.tuples(st.lists(st.integers(0, 3), min_size=1, max_size=14), st.integers(2, 5))


@given(logs, st.data())
def test_a_copy_has_the_files_of_the_batches_up_to_its_own(log: tuple[list[int], int], data: st.DataObject) -> None:
    counts, interval = log
    batch = data.draw(st.integers(0, len(counts) - 1))
    files = written(counts, interval)
    back = back_to(log_of(files), batch)
    assert as_spark_reads(files, back) == [line(n, part) for n in range(batch + 1) for part in range(counts[n])]
    later = [line(n, part) for n in range(batch + 1, len(counts)) for part in range(counts[n])]
    assert list(back.later) == later
    assert back.write == {}


@given(logs, st.data())
def test_a_lost_entry_is_had_again_from_a_compaction_or_refused(
    log: tuple[list[int], int], data: st.DataObject
) -> None:
    counts, interval = log
    files = written(counts, interval)
    lost = data.draw(st.sampled_from(sorted(files)))
    batch = data.draw(st.integers(0, len(counts) - 1))
    damaged = {name: b"v1\n{" if name == lost else content for name, content in files.items()}
    try:
        back = back_to(log_of(damaged), batch)
    except NoRecovery:
        return
    assert as_spark_reads(damaged, back) == [line(n, part) for n in range(batch + 1) for part in range(counts[n])]


def test_a_lost_entry_between_others_is_had_again() -> None:
    files = written([2, 1, 3, 1, 1, 2], 6)
    del files[f"{FOLDER}/2"]
    back = back_to(log_of(files), 3)
    assert set(back.write) == {"2"}
    assert [file.path for file in output_files(back.lines)][3:6] == [json.loads(line(2, n))["path"] for n in range(3)]


@given(logs, st.data())
def test_a_batch_that_no_sink_saw_has_an_empty_entry(log: tuple[list[int], int], data: st.DataObject) -> None:
    """Which is a compaction where Spark looks for one, whether it goes by its own setting or by what is there. Without
    the entry Spark does not come to the next compaction."""
    counts, interval = log
    silent = data.draw(st.integers(0, len(counts) - 1))
    following = (silent + 1) // interval * interval + interval - 1
    counts = [0 if n == silent else count for n, count in enumerate(counts[: max(following, silent + 1)])]
    files = {name: lines for name, lines in written(counts, interval).items()
             if name.removeprefix(f"{FOLDER}/").partition(".")[0] != str(silent)}  # fmt: skip
    batch = data.draw(st.integers(silent, len(counts) - 1))
    assume(files)
    back = back_to(log_of(files), batch, {silent})
    copy = {name: files[f"{FOLDER}/{name}"] for name in back.keep} | back.write
    ends = sorted(int(name.partition(".")[0]) + 1 for name in copy if name.endswith(".compact"))
    spark = interval
    if len(ends) == 1:
        spark = derived(interval, ends[0])
    elif ends:
        spark = ends[-1] - ends[-2]
    start = max(0, (batch + 1) // spark * spark - 1)
    names = [f"{n}.compact" if (n + 1) % spark == 0 else str(n) for n in range(start, batch + 1)]
    lines = [one for name in names for one in copy[name].decode().split("\n")[1:] if one]
    assert lines == [line(n, part) for n in range(batch + 1) for part in range(counts[n])]


def derived(interval: int, end: int) -> int:
    """What Spark takes for the interval where there is one compaction (`deriveCompactInterval`)."""
    if end <= interval or interval >= end / 2:
        return end
    return next(size for size in (*range(interval, end // 2 + 1), end) if end % size == 0)


def test_an_entry_with_a_file_of_a_negative_size_is_damaged_and_had_again_or_refused() -> None:
    files = written([2, 1, 3, 1, 1, 2], 6)
    bad = {**files, f"{FOLDER}/2": files[f"{FOLDER}/2"].replace(b'"size": 10', b'"size": -10', 1)}
    assert log_of(bad).damaged == {"2": "an entry has a file of -10 bytes"}
    assert set(back_to(log_of(bad), 3).write) == {"2"}
    del bad[f"{FOLDER}/5.compact"]
    with pytest.raises(NoRecovery, match="a file of -10 bytes") as caught:
        back_to(log_of(bad), 3)
    assert str(caught.value).count(FOLDER) == 1, "the path is told once"


def test_a_sink_that_has_not_come_as_far_is_refused() -> None:
    with pytest.raises(NoRecovery, match="ends with batch 1"):
        back_to(log_of(written([1, 1], 10)), 4)


@pytest.fixture
def planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A folder with a checkpoint of seven batches, the output of its sink, and a plan back to the fourth."""
    copy_of("file_compact", tmp_path).rename(tmp_path / "checkpoint")
    for name, data in written([1] * 7, 3).items():
        path = tmp_path / "out" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    words = ("--sink", tmp_path / "out", "--out", tmp_path / "plan.json")
    code, made = run(capsys, "plan-recovery", f"{tmp_path / 'checkpoint'}@3", *words)
    assert code == 0, made
    return tmp_path


@pytest.mark.parametrize(
    ("to", "sink_to"), [("copy", f"out/{FOLDER}/9"), (f"out/{FOLDER}/9", "log"), ("copy", "copy/log"), ("log/x", "log")]
)
def test_no_copy_is_made_in_the_log_of_the_sink(
    to: str, sink_to: str, planned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The query would take it for an entry."""
    before = sorted(planned.rglob("*"))
    code, error = run(capsys, "restore", planned / "plan.json", "--to", planned / to, "--sink-to", planned / sink_to)
    assert (code, "which the command reads" in error["message"]) == (2, True)
    assert sorted(planned.rglob("*")) == before


@pytest.mark.parametrize(("output", "message"), [("nowhere", "no such directory"), ("checkpoint", "no file sink")])
def test_what_is_no_output_is_told_with_what_is_wanted(
    output: str, message: str, planned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, error = run(capsys, "plan-recovery", planned / "checkpoint", "--sink", planned / output)
    assert (code, message in error["message"]) == (10, True)
    assert "the query's file sink" in error["hint"]


def stream_to(session: Any, source: Path, home: Path, checkpoint: Path) -> None:
    """A query without state whose file sink compacts its log every three batches."""
    lines = session.readStream.option("maxFilesPerTrigger", 1).text(str(source))
    words = lines.selectExpr("explode(split(value, ' ')) as word").selectExpr("word", "length(word) % 2 as odd")
    session.conf.set("spark.sql.streaming.fileSink.log.compactInterval", "3")
    try:
        writer = words.writeStream.format("parquet").option("path", str(home / "out")).partitionBy("odd")
        writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()
    finally:
        session.conf.unset("spark.sql.streaming.fileSink.log.compactInterval")


def output(session: Any, home: Path) -> Counter[str]:
    """As Spark reads it, through the log of the sink."""
    return Counter(row["word"] for row in session.read.parquet(str(home / "out")).collect())


def words(source: Path) -> Counter[str]:
    return Counter(word for path in source.glob("*.txt") for word in path.read_text().split())


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, dict[str, Any]]:
    code = main([*(str(one) for one in arguments), "-o", "json"])
    captured = capsys.readouterr()
    return code, checked(captured.out or captured.err)


@pytest.fixture(scope="module")
def home(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A query that has read its input, with its file sink's output."""
    from pyspark.sql import SparkSession

    session = SparkSession(spark)
    home = tmp_path_factory.mktemp("sink")
    add_files(home / "input", range(FILES))
    cases.set_conf(session, {})
    stream_to(session, home / "input", home, home / "checkpoint")
    return home


@pytest.mark.soak
def test_the_output_of_a_query_that_goes_on_is_exact_however_often_it_goes_back(
    home: Path, spark: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """What later batches wrote is no longer of the output, and its input comes again. The second time the log is one
    that was brought back before, and goes back further; the third time to batches that the second has written."""
    from pyspark.sql import SparkSession

    session = SparkSession(spark)
    for turn, batch in enumerate((4, 2, 7)):
        plan, copy, log = (tmp_path / f"{name}-{turn}" for name in ("plan", "copy", "log"))
        words_of = ("--sink", home / "out", "--out", plan)
        code, made = run(capsys, "plan-recovery", f"{home / 'checkpoint'}@{batch}", *words_of)
        assert code == 0, made
        sink = made["body"]["sink"]
        before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
        code, error = run(capsys, "restore", plan, "--to", copy)
        assert (code, "--sink-to" in error["message"]) == (2, True)
        assert main(["restore", str(plan), "--to", str(copy), "--sink-to", str(log)]) == 0
        text = capsys.readouterr().out
        assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == before
        assert (sink["newest"], sink["missing"]) == (max(map(numbered, (home / "out" / FOLDER).glob("[0-9]*"))), [])
        for command in [one.strip() for one in text.splitlines() if one.startswith("  mv ")]:
            subprocess.run(command, shell=True, check=True)
        assert output(session, home) == sum(
            (Counter((home / f"input/part {n:03d}.txt").read_text().split()) for n in range(batch + 1)), Counter()
        )
        add_files(home / "input", range(FILES + turn, FILES + turn + 1))
        cases.set_conf(session, {})
        stream_to(session, home / "input", home, copy)
        assert output(session, home) == words(home / "input")
        shutil.rmtree(home / "checkpoint")
        shutil.move(copy, home / "checkpoint")  # it and the output go together


def numbered(path: Path) -> int:
    return int(path.name.partition(".")[0])


def test_a_log_that_has_gone_on_makes_the_plan_stale(
    home: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    own = tmp_path / "own"
    shutil.copytree(home, own)
    plan = tmp_path / "plan.json"
    code, made = run(capsys, "plan-recovery", f"{own / 'checkpoint'}@3", "--sink", own / "out", "--out", plan)
    assert code == 0, made
    (own / "out" / FOLDER / "77").write_bytes(b"v1")
    code, error = run(capsys, "restore", plan, "--to", tmp_path / "copy", "--sink-to", tmp_path / "log")
    assert (code, "77" in error["message"]) == (5, True)
    code, error = run(capsys, "plan-recovery", f"{own / 'checkpoint'}@3", "--sink", own / "out", "--out", plan)
    assert (code, "another query" in error["message"]) == (4, True)
    code, error = run(capsys, "plan-recovery", own / "checkpoint", "--sink", own / "input", "--out", plan)
    assert (code, FOLDER in error["message"]) == (10, True)


def windows_to(session: Any, source: Path, home: Path, checkpoint: Path) -> None:
    """Counts by window of what has come, into a file sink that compacts its log every four batches."""
    from pyspark.sql import functions as f

    stream = session.readStream.schema("at timestamp").option("maxFilesPerTrigger", 1).json(str(source))
    counted = stream.withWatermark("at", "10 seconds").groupBy(f.window("at", "20 seconds")).count()
    writer = counted.selectExpr("cast(window.start as string) start", "count").writeStream.format("parquet")
    session.conf.set("spark.sql.streaming.fileSink.log.compactInterval", "4")
    try:
        writer = writer.option("path", str(home / "windows")).option("checkpointLocation", str(checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()
    finally:
        session.conf.unset("spark.sql.streaming.fileSink.log.compactInterval")


@pytest.mark.soak
@pytest.mark.minutes
def test_the_log_of_a_sink_has_an_empty_entry_for_a_repartition_without_which_spark_does_not_read_it(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A repartition is a batch that no sink sees, and Spark reads no log that lacks a batch."""
    from pyspark.sql import SparkSession

    session = SparkSession(spark)
    source, own = tmp_path / "times", tmp_path / "checkpoint"
    cases.set_conf(session, CONFS["rocks"])
    try:
        for turn in range(2):
            for number in range(2 * turn, 2 * turn + 2):
                add_times(source, number)
            windows_to(session, source, tmp_path, own)
            if not turn:
                session._streamingCheckpointManager.repartition(str(own), 5, True)
            else:
                with pytest.raises(Exception, match="parquet"):
                    session.read.parquet(str(tmp_path / "windows"))
        for turn, to in enumerate(("copy", "again")):
            # To the repartition itself, and then to the newest batch.
            at = "@3" if not turn else ""
            plan, log = tmp_path / f"{to}.json", tmp_path / f"{to}-log"
            words_of = ("--sink", tmp_path / "windows", "--out", plan)
            code, made = run(capsys, "plan-recovery", f"{own}{at}", *words_of)
            assert code == 0, made
            assert [file["path"] for file in made["body"]["sink"]["write"]] == (["3.compact"] if not turn else [])
            assert main(["restore", str(plan), "--to", str(tmp_path / to), "--sink-to", str(log)]) == 0
            for command in [one.strip() for one in capsys.readouterr().out.splitlines() if one.startswith("  mv ")]:
                subprocess.run(command, shell=True, check=True)
            session.read.parquet(str(tmp_path / "windows")).collect()
            for number in range(2 * turn + 4, 2 * turn + 6):
                add_times(source, number)
            own = tmp_path / to
            windows_to(session, source, tmp_path, own)
            rows = session.read.parquet(str(tmp_path / "windows")).collect()
            assert sorted((row["start"], row["count"]) for row in rows) == all_windows(2 * turn + 6)
    finally:
        for key in (*cases.BASE, cases.PROVIDER):
            session.conf.unset(key)


def all_windows(files: int) -> list[tuple[str, int]]:
    """Those that are closed after so many files of half a minute."""
    ends = 30 * files - 1 - 10
    starts = [start for start in range(0, 30 * files, 20) if start + 20 <= ends]
    return [(time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(1_767_225_600 + start)), 20) for start in starts]
