"""Input that has changed since it was read: a job that goes on notices it, and says what it will not read."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from abscli.engine.errors import JobFailed
from abscli.engine.job import JobOptions, rehearse, run_job
from abscli.engine.sources.files import fingerprints
from abscli.engine.sources.files.fingerprints import Fingerprint, of_pieces
from abscli.engine.sources.inputs import LaterInput
from abscli.engine.telemetry.news import News
from abscli.jobs.attempts import Attempts, Order
from formats.job.model import Edge, Kind, Partition, Topology
from formats.native.store import NativeStore
from formats.storage import open_writable
from tests.engine.sources.test_files import TYPED, WRITE, rows_of
from tests.support.jobs.small import operator


def topology(kind: str, tasks: int = 2) -> Topology:
    connector = {"type": kind, "path": f"in/*.{kind}", **TYPED.get(kind, {})}
    if kind == "text":
        connector["path"] = "in/*.jsonl"
    sink = operator("out", Kind.SINK, tasks, connector={"type": "jsonl", "path": "out"})
    return Topology(
        "copied", (operator("rows", Kind.SOURCE, tasks, connector=connector), sink),
        (Edge("rows", "out", Partition.FORWARD),),
    )  # fmt: skip


def write_input(folder: Path, kind: str) -> None:
    (folder / "in").mkdir()
    for file in range(3):
        kind_of_file = "jsonl" if kind == "text" else kind
        WRITE[kind_of_file](folder / "in" / f"{file}.{kind_of_file}", rows_of(file, 8))


def options(folder: Path, epoch: int | None = None) -> JobOptions:
    return JobOptions(
        str(folder), "job.yaml", engine="inline", interval=0.005, workers=1, keep=None, from_epoch=epoch,
        sinks_in=str(folder / "shown"),
    )  # fmt: skip


def one_epoch(folder: Path, kind: str) -> int:
    """The job was killed once it had an epoch with some rows of each of two files; that epoch."""
    store, epoch, read = str(folder / "store"), 0, 0
    with Attempts() as attempts:
        while read < 2:  # the first epoch may come before the first row
            answer = attempts.run(Order(topology(kind), str(folder), store, str(folder / "shown"), epoch, 3, 1), 120)
            assert answer.killed, answer
            epoch = answer.epoch
            parts = NativeStore(open_writable(store)).parts(epoch)
            read = sum(bool(at.records) for part in parts for at in part.positions or ())
    return epoch


def go_on(folder: Path, kind: str, epoch: int) -> list[LaterInput]:
    """What is said, of a rehearsal and of the run."""
    would = rehearse(topology(kind), str(folder / "store"), options(folder, epoch))
    news: list[News] = []
    run_job(topology(kind), str(folder / "store"), options(folder, epoch), on_news=news.append)
    said_before = [one for one in would.news if isinstance(one, LaterInput)]
    assert said_before == [one for one in news if isinstance(one, LaterInput)]
    return said_before


def touched(path: Path, change: Callable[[bytes], bytes]) -> None:
    """The file with other bytes and another time."""
    path.write_bytes(change(path.read_bytes()))
    os.utime(path, ns=(time.time_ns(), time.time_ns() - 5_000_000_000))


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", ["text", *WRITE])
def test_every_row_is_shown_once_through_a_real_kill_after_every_epoch(tmp_path: Path, kind: str) -> None:
    write_input(tmp_path, kind)
    epoch, kills = 0, 0
    with Attempts() as attempts:
        while True:
            after = 1 if kills < 6 else None
            answer = attempts.run(
                Order(topology(kind), str(tmp_path), str(tmp_path / "store"), str(tmp_path / "shown"), epoch, 2, after),
                120,
            )  # fmt: skip
            assert answer.failure is None, answer.failure
            if not answer.killed:
                break
            epoch, kills = answer.epoch, kills + 1
    assert kills >= 4
    shown = "".join(path.read_text() for path in sorted((tmp_path / "shown" / "out").glob("part-*.jsonl")))
    column = "line" if kind == "text" else "n"
    assert shown.count(f'"{column}":') == 24
    for file in range(3):
        for row in rows_of(file, 8):
            text = f'\\"n\\": {row["n"]},' if kind == "text" else f'"n":{row["n"]}'
            assert shown.count(text + ("" if kind == "text" else ",")) + shown.count(text + "}") == 1, text


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", ["text", *WRITE])
def test_a_file_that_is_another_than_was_read_is_noticed_before_anything_starts(tmp_path: Path, kind: str) -> None:
    write_input(tmp_path, kind)
    epoch = one_epoch(tmp_path, kind)
    path = next(iter(sorted((tmp_path / "in").iterdir())))
    whole = path.read_bytes()
    attempts = len(NativeStore(open_writable(str(tmp_path / "store"))).attempts())

    touched(path, lambda data: data.replace(b"plain", b"PLAIN", 1))
    for go in (rehearse, run_job):
        with pytest.raises(JobFailed, match=r"source rows: .*in/0\..* has changed") as refused:
            go(topology(kind), str(tmp_path / "store"), options(tmp_path, epoch))
        assert "--from-epoch 0" in (refused.value.hint or "")
    assert len(NativeStore(open_writable(str(tmp_path / "store"))).attempts()) == attempts

    touched(path, lambda _: whole)  # at another time, and the same: nothing is wrong
    assert go_on(tmp_path, kind, epoch) == []


def test_a_file_that_has_shrunk_is_noticed_where_its_source_had_ended_too(tmp_path: Path) -> None:
    write_input(tmp_path, "text")
    outcome = run_job(topology("text"), str(tmp_path / "store"), options(tmp_path))
    touched(tmp_path / "in" / "1.jsonl", lambda data: data[:-10])
    with pytest.raises(JobFailed, match=r"in/1\.jsonl has [0-9]+ bytes, and [0-9]+ were read of it: it has shrunk"):
        rehearse(topology("text"), str(tmp_path / "store"), options(tmp_path, outcome.epoch))


def test_files_and_lines_that_came_later_are_named(tmp_path: Path) -> None:
    write_input(tmp_path, "text")
    outcome = run_job(topology("text"), str(tmp_path / "store"), options(tmp_path))
    touched(tmp_path / "in" / "1.jsonl", lambda data: data + b"more\n")
    (tmp_path / "in" / "0a.jsonl").write_text("new\n")
    assert go_on(tmp_path, "text", outcome.epoch) == [LaterInput("rows", ("in/0a.jsonl",), ("in/1.jsonl",))]


def test_a_file_that_has_grown_before_its_source_ended_is_read_on(tmp_path: Path) -> None:
    write_input(tmp_path, "text")
    epoch = one_epoch(tmp_path, "text")
    touched(tmp_path / "in" / "0.jsonl", lambda data: data + b"more\n")
    assert go_on(tmp_path, "text", epoch) == []
    shown = "".join(path.read_text() for path in (tmp_path / "shown" / "out").glob("part-*"))
    assert '{"line":"more"}' in shown


def test_nothing_is_read_to_compare_where_a_file_stands_as_it_stood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_input(tmp_path, "text")
    for path in (tmp_path / "in").iterdir():
        os.utime(path, ns=(0, time.time_ns() - 5_000_000_000))
    epoch = one_epoch(tmp_path, "text")
    monkeypatch.setattr(fingerprints, "_BLOCK", 0)  # whoever reads, reads nothing, and finds another checksum
    assert go_on(tmp_path, "text", epoch) == []


def test_positions_without_fingerprints_are_gone_on_from_as_ever(tmp_path: Path) -> None:
    """Stores of older versions have none; what a newer one may write is not understood, and proves nothing."""
    assert Fingerprint.parse("") is None
    assert Fingerprint.parse("sha256 00") is None
    fingerprint = Fingerprint(True, 7, 20, 30)
    assert Fingerprint.parse(str(fingerprint)) == fingerprint
    assert Fingerprint.parse(str(Fingerprint(False, 7))) == Fingerprint(False, 7)


def test_a_change_anywhere_in_a_small_file_that_is_written_once_changes_its_fingerprint(tmp_path: Path) -> None:
    path = tmp_path / "f"
    data = bytes(pa.py_buffer(bytes(range(256)) * 1200))
    crcs = set()
    for at in range(0, len(data), 4096):
        path.write_bytes(data[:at] + b"!!" + data[at + 2 :])
        with path.open("rb") as file:
            crcs.add(of_pieces(file).crc)
    assert len(crcs) == len(range(0, len(data), 4096))
