"""Files that come and lines that are appended while a source follows them: each once, whoever reads on, and a file
that is not what it was is told apart."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from abscli.engine.errors import JobFailed, UsageError
from abscli.engine.runnable import all_faults
from abscli.engine.sources.contract import Source
from abscli.engine.sources.event_times import EventTimes
from abscli.engine.sources.files import following, input_files, line_files
from abscli.engine.sources.making import make_source
from formats.ids import TaskId
from formats.job.event_time import EventTime
from formats.job.following import split_number
from formats.job.model import Edge, Kind, Partition, Topology
from formats.storage import open_writable
from formats.view import Position
from formats.watermark import IDLE
from tests.engine.sources.test_files import WRITE, of_kind, rows_of
from tests.support.jobs.small import operator
from tests.support.objects.places import bucket_place
from tests.support.objects.servers import ObjectServer

EVERY_LOOK = {"follow": True, "every": "1ms"}


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "WAIT_SECONDS", 0.0011)  # so that each read without rows is followed by a look


def follow(
    folder: Path | str,
    kind: str = "text",
    task: int = 0,
    tasks: int = 1,
    positions: tuple[Position, ...] | None = None,
    others: Collection[str] = (),
) -> Source:
    place = "" if isinstance(folder, Path) else f"{folder}/"
    op = of_kind(kind, tasks, path=f"{place}in/*.{kind}", **EVERY_LOOK)
    return make_source(op, task, str(folder), positions, None, others)


def drain(source: Source) -> list[dict[str, Any]]:
    """All that there is now, and no more twice in a row."""
    rows: list[dict[str, Any]] = []
    empty = 0
    while empty < 2:
        batch = source.read()
        assert batch is not None
        assert not source.finished
        empty = 0 if batch.num_rows else empty + 1
        rows += batch.to_pylist()
    return rows


def lines(source: Source) -> list[str]:
    return [row["line"] for row in drain(source)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path


def append(path: Path, text: str) -> None:
    with open(path, "a") as file:
        file.write(text)


def test_whole_lines_are_read_as_they_come_and_files_as_well(folder: Path) -> None:
    source = follow(folder)
    assert lines(source) == []
    append(folder / "in" / "b.text", "one\ntw")
    assert lines(source) == ["one"]
    append(folder / "in" / "a.text", "zero\n")
    append(folder / "in" / "b.text", "o\nthree")
    assert sorted(lines(source)) == ["two", "zero"]
    (at,) = [at for at in source.positions if at.split == "in/b.text"]
    assert (at.offset, at.records) == (len("one\ntwo\n"), 2)

    source = follow(folder, positions=source.positions)  # as after a kill
    assert lines(source) == []
    append(folder / "in" / "b.text", "\n")
    assert lines(source) == ["three"]


@pytest.mark.parametrize("kind", WRITE)
def test_files_of_every_kind_are_taken_when_they_are_there(folder: Path, kind: str) -> None:
    WRITE[kind](folder / "in" / f"0.{kind}", rows_of(0, 3))
    source = follow(folder, kind)
    assert drain(source) == rows_of(0, 3)
    WRITE[kind](folder / f"1.{kind}", rows_of(1, 4))
    os.rename(folder / f"1.{kind}", folder / "in" / f"1.{kind}")
    assert drain(source) == rows_of(1, 4)
    source = follow(folder, kind, positions=source.positions)
    assert drain(source) == []


def test_csv_waits_for_the_end_of_a_record_within_quotes(folder: Path) -> None:
    path = folder / "in" / "0.csv"
    append(path, "n,na")
    source = follow(folder, "csv")
    assert drain(source) == []
    append(path, 'me\n1,"two\nli')
    assert drain(source) == []
    append(path, 'nes"\n2,x\n3')
    assert drain(source) == [{"n": 1, "name": "two\nlines"}, {"n": 2, "name": "x"}]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: path.write_text("on"), "has shrunk"),
        (lambda path: path.unlink(), "is gone"),
        (lambda path: (path.with_name("x").write_text("ONE\ntwo\n"), os.replace(path.with_name("x"), path)),
         "was replaced since it was read"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_only_appended_to_is_refused(folder: Path, change: Any, message: str) -> None:
    path = folder / "in" / "a.text"
    append(path, "one\n")
    source = follow(folder)
    assert lines(source) == ["one"]
    change(path)
    with pytest.raises(JobFailed, match=message):
        lines(source)


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
@pytest.mark.parametrize("again", [False, True], ids=["the same reader", "another reader"])
def test_a_file_that_was_truncated_and_has_grown_again_is_refused_before_a_row(
    folder: Path, kind: str, again: bool
) -> None:
    """As with copytruncate of logrotate, whose file is longer again before anybody looks."""
    path = folder / "in" / f"0.{kind}"
    WRITE[kind](path, rows_of(0, 3))
    inode = path.stat().st_ino
    source = follow(folder, kind)
    assert drain(source) == rows_of(0, 3)
    if again:
        source = follow(folder, kind, positions=source.positions)
        assert drain(source) == []
    WRITE[kind](path, rows_of(7, 9))
    assert path.stat().st_ino == inode
    with pytest.raises(JobFailed, match=r"0\.\w+ was truncated or rewritten in place since it was read: the \d+ bytes"):
        drain(source)


def test_a_file_that_is_rewritten_with_its_own_beginning_is_read_on(folder: Path) -> None:
    path = folder / "in" / "a.text"
    append(path, "one\n" * 3000)
    source = follow(folder)
    assert len(lines(source)) == 3000
    path.write_text("one\n" * 3000 + "two\n")
    assert lines(source) == ["two"]


def test_a_copy_that_is_longer_takes_the_place_of_a_file(folder: Path) -> None:
    path = folder / "in" / "a.text"
    append(path, "one\n")
    source = follow(folder)
    assert lines(source) == ["one"]
    append(folder / "new", "one\ntwo\n")
    os.replace(folder / "new", path)
    assert lines(source) == ["two"]


def test_another_file_in_place_of_one_is_noticed_by_a_worker_that_goes_on(folder: Path) -> None:
    path = folder / "in" / "a.text"
    append(path, "one\n")
    source = follow(folder)
    assert lines(source) == ["one"]
    path.write_text("ONE\ntwo\n")
    with pytest.raises(JobFailed, match="was replaced since it was read"):
        lines(follow(folder, positions=source.positions))


def test_a_file_of_rows_that_is_replaced_is_refused(folder: Path) -> None:
    path = folder / "in" / "0.parquet"
    WRITE["parquet"](path, rows_of(0, 3))
    source = follow(folder, "parquet")
    assert drain(source) == rows_of(0, 3)
    WRITE["parquet"](folder / "new", rows_of(5, 9))
    os.replace(folder / "new", path)
    with pytest.raises(JobFailed, match="was replaced since it was read"):
        drain(source)
    with pytest.raises(JobFailed, match="was replaced after 3 rows were read"):
        drain(follow(folder, "parquet", positions=source.positions))


def test_each_file_has_one_task_whatever_their_number_and_whoever_had_it_before(folder: Path) -> None:
    def read_by(tasks: int, positions: dict[int, tuple[Position, ...]] | None) -> list[Source]:
        others = {at.split for each in (positions or {}).values() for at in each}
        given = positions or {}
        return [
            follow(folder, task=task, tasks=tasks, positions=given.get(task) if positions else None, others=others)
            for task in range(tasks)
        ]

    for file in range(9):
        append(folder / "in" / f"{file}.text", f"{file}\n")
    sources = read_by(3, None)
    assert sorted(line for source in sources for line in lines(source)) == [str(file) for file in range(9)]
    assert all(split_number(at.split) % 3 == task for task, s in enumerate(sources) for at in s.positions)

    splits = sorted((at for source in sources for at in source.positions), key=lambda at: at.split)
    dealt = {task: tuple(splits[task::2]) for task in range(2)}  # as a rescale deals them, in order of their names
    sources = read_by(2, dealt)
    for file in range(9, 20):
        append(folder / "in" / f"{file}.text", f"{file}\n")
    append(folder / "in" / "0.text", "more\n")
    assert sorted(line for s in sources for line in lines(s)) == sorted([*(str(f) for f in range(9, 20)), "more"])


@pytest.mark.parametrize("kind", ["text", "csv", "jsonl", "parquet"])
@pytest.mark.parametrize("seed", range(4))
def test_reads_that_are_taken_again_return_the_same_though_more_is_there(
    folder: Path, kind: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_files, "CHUNK", 40)
    dice = random.Random(seed)
    if kind == "parquet":
        WRITE[kind](folder / "in" / "0.parquet", rows_of(0, 3))
    source, steps, count = follow(folder, kind), list[tuple[int, pa.RecordBatch]](), 0
    for _ in range(60):
        if dice.random() < 0.5:
            file, count = dice.randrange(5), count + 1
            path = folder / "in" / f"{file}.{kind}"
            if kind == "parquet":
                WRITE[kind](folder / "new", rows_of(count, dice.randrange(1, 5)))
                os.rename(folder / "new", folder / "in" / f"{dice.random()}.parquet")
            elif kind == "csv":
                append(path, ("" if path.exists() else "n,name\n") + f'{count},"a\nb"\n' * dice.randrange(1, 4))
            else:
                blank = "\n" if kind == "jsonl" and dice.random() < 0.5 else ""
                append(path, f'{{"n": {count}, "name": "x"}}\n{blank}' * dice.randrange(1, 4))
        source.stop_at(lines=dice.choice([None, 2]))
        batch = source.read()
        assert batch is not None
        steps.append((source.split if batch.num_rows else 0, batch))
    assert len({split for split, batch in steps if batch.num_rows}) > 2
    again = follow(folder, kind)
    for split, batch in steps:
        repeated = again.read_again(split, batch.num_rows)
        assert repeated is not None
        assert repeated.equals(batch)
    source.stop_at()
    rest = (drain(source), drain(again))
    key = lambda row: json.dumps(row, sort_keys=True)  # noqa: E731
    assert sorted(rest[0], key=key) == sorted(rest[1], key=key)


def test_offsets_of_an_epoch_are_read_to_whatever_has_come_since(folder: Path) -> None:
    for name in "abc":
        append(folder / "in" / f"{name}.text", "one\ntwo\nthree\n")
    source = follow(folder)
    source.stop_at({"in/b.text": 8, "in/c.text": 4})
    read = []
    while (batch := source.read()) is not None:
        read += batch.column(0).to_pylist()
    assert sorted(read) == ["one", "one", "two"]
    source.stop_at({"in/b.text": 14, "in/c.text": 4})
    assert source.read().column(0).to_pylist() == ["three"]  # type: ignore[union-attr]
    source.stop_at(None)
    assert sorted(lines(source)) == ["one", "three", "three", "two", "two"]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_split_that_waits_keeps_no_watermark_back_once_it_is_idle(folder: Path) -> None:
    clock, second = Clock(), 1_000_000
    op = operator(
        "rows", Kind.SOURCE, 1,
        connector={"type": "jsonl", "path": "in/*.jsonl", "schema": {"at": "timestamp[s]"}, **EVERY_LOOK},
    )  # fmt: skip
    timed = EventTimes(
        make_source(op, 0, str(folder), None, None), EventTime("at", idle=5 * second), TaskId("rows", 0), None, clock
    )

    def put(name: str, at: int) -> None:
        append(folder / "in" / f"{name}.jsonl", f'{{"at": "1970-01-01T00:00:{at:02}"}}\n')

    assert timed.watermark == IDLE  # a task without a file keeps nobody waiting
    put("a", 10)
    drain(timed)
    assert timed.watermark == 10 * second
    put("b", 20)
    drain(timed)
    assert timed.watermark == 10 * second
    clock.now = 6.0
    put("b", 30)
    while not (batch := timed.read()) or not batch.num_rows:
        pass
    # The last read had rows, of another split: a has none to read, and had none for 6 s.
    assert timed.watermark == 30 * second
    put("a", 31)
    drain(timed)
    assert timed.watermark == 30 * second
    clock.now = 20.0
    timed.read()
    assert timed.watermark == IDLE


def test_what_a_job_file_may_not_say_is_refused(folder: Path) -> None:
    def faults(**connector: Any) -> list[str]:
        source = operator("rows", Kind.SOURCE, 1, connector=connector)
        sink = operator("out", Kind.SINK, 1, connector={"type": "jsonl", "path": "out"})
        job = Topology("follows", (source, sink), (Edge("rows", "out", Partition.FORWARD),))
        return [fault.message for fault in all_faults(job, str(folder), from_start=True)]

    assert faults(type="text", path="in/*.text", follow=True) == []
    assert faults(type="csv", path="in/*.csv", follow=True, schema={"n": "int"}) == []
    (message, *_) = faults(type="csv", path="in/*.csv", follow=True)
    assert "needs a schema with their columns" in message
    (message, *_) = faults(type="text", path="in/*.text", every="5s")
    assert "but not follow" in message
    with pytest.raises(UsageError, match="no file matches"):
        follow(folder, "parquet")


@pytest.mark.minutes
def test_a_bucket_is_followed(s3: ObjectServer, tmp_path: Path) -> None:
    place = str(bucket_place(s3).root)
    storage = open_writable(place)
    source = follow(place)
    assert lines(source) == []
    storage.put("in/a.text", b"one\ntw")
    assert lines(source) == ["one"]
    storage.put("in/b.text", b"zero\n")
    storage.put("in/a.text", b"one\ntwo\nthree\n", replace=True)
    assert sorted(lines(source)) == ["three", "two", "zero"]
    storage.put("in/b.text", b"ZERO\nand\n", replace=True)
    with pytest.raises(JobFailed, match="was replaced since it was read"):
        lines(source)


@pytest.mark.minutes
def test_an_object_that_grows_while_it_is_read_is_read_on(
    s3: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for opened in (input_files.open_file, input_files.open_text):
        monkeypatch.setattr(opened, "__defaults__", (8,))
    monkeypatch.setattr(line_files, "CHUNK", 8)
    place = str(bucket_place(s3).root)
    storage = open_writable(place)
    storage.put("in/a.text", b"one\ntwo\nthree\nfour\n")
    source = follow(place)
    source.stop_at(lines=1)
    first = source.read()
    assert first is not None
    assert first.column(0).to_pylist() == ["one"]
    source.stop_at()
    storage.put("in/a.text", b"one\ntwo\nthree\nfour\nfive\n", replace=True)
    assert lines(source) == ["two", "three", "four", "five"]
