"""Sources whose files a server has: the same rows as from a directory, each once, and what was read is known again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from abscli.engine.errors import JobFailed, UsageError
from abscli.engine.job import JobOptions, rehearse, run_job
from abscli.engine.runnable import all_faults
from abscli.engine.sources.files import fingerprints, input_files
from abscli.engine.sources.files.fingerprints import Fingerprint
from abscli.engine.sources.files.input_files import ServedFile, matching_files, status_of
from abscli.engine.sources.inputs import LaterInput
from abscli.engine.sources.making import make_source
from abscli.jobs.attempts import Attempts, Order
from formats.errors import UnsafePath
from formats.job.model import Edge, Kind, Partition, Topology
from formats.native.store import NativeStore
from formats.storage import open_writable
from formats.view import Position
from tests.engine.sources.test_files import TYPED, WRITE, everything, of_kind, rows, rows_of
from tests.support.jobs.small import operator
from tests.support.objects.fixtures import SERVERS, Servers, use
from tests.support.objects.places import bucket_place
from tests.support.objects.servers import ObjectServer


@pytest.fixture
def place(s3: ObjectServer) -> str:
    """The URI of a place in a bucket of moto's."""
    return str(bucket_place(s3).root)


def put(place: str, folder: Path, kind: str, counts: tuple[int, ...] = (8, 8, 8)) -> None:
    """Files at the place; what is beside them does not match."""
    storage = open_writable(place)
    for file, count in enumerate(counts):
        WRITE[kind](folder / f"{file}.{kind}", rows_of(file, count))
        storage.put(f"in/{file}.{kind}", (folder / f"{file}.{kind}").read_bytes(), replace=True)
    storage.put(f"in/deeper/9.{kind}", b"not this one\n", replace=True)
    storage.put(f"in/.hidden.{kind}", b"nor this one\n", replace=True)


def topology(place: str, kind: str) -> Topology:
    connector: dict[str, Any] = {"type": kind, "path": f"{place}/in/*.{kind}", **TYPED.get(kind, {})}
    sink = operator("out", Kind.SINK, 2, connector={"type": "jsonl", "path": "out"})
    source = operator("rows", Kind.SOURCE, 2, connector=connector)
    return Topology("served", (source, sink), (Edge("rows", "out", Partition.FORWARD),))


def options(folder: Path, epoch: int | None = None) -> JobOptions:
    return JobOptions(
        str(folder), "job.yaml", engine="inline", interval=0.005, workers=1, keep=None, from_epoch=epoch,
        sinks_in=str(folder / "shown"),
    )  # fmt: skip


def read_all(place: str, folder: Path, kind: str) -> list[dict[str, Any]]:
    source = make_source(of_kind(kind, path=f"{place}/in/*.{kind}"), 0, str(folder), None, None)
    return rows(everything(source))


def list_files(pattern: str, directory: str) -> list[str]:
    """Whose versions are those that a server says of each alone."""
    files = matching_files(pattern, directory)
    assert files == {path: status_of(path) for path in files}
    return list(files)


@pytest.mark.minutes
@pytest.mark.parametrize("server", SERVERS)
def test_files_of_every_kind_are_read_from_any_server_in_slices(
    server: str, servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = str(bucket_place(use(servers.get(server), monkeypatch)).root)
    monkeypatch.setattr(input_files, "AHEAD", 50)
    monkeypatch.setattr(input_files, "AHEAD_OF_ROWS", 50)
    for kind in WRITE:
        put(place, tmp_path, kind, (7, 12, 1))
        expected = [row for file, count in enumerate((7, 12, 1)) for row in rows_of(file, count)]
        assert read_all(place, tmp_path, kind) == expected
        assert list_files(f"{place}/in/*.{kind}", "") == [f"{place}/in/{file}.{kind}" for file in range(3)]
        assert list_files(f"{place}/**/*.{kind}", "") == [
            *(f"{place}/in/{file}.{kind}" for file in range(3)), f"{place}/in/deeper/9.{kind}",
        ]  # fmt: skip
        assert list_files(f"{place}/in/1.{kind}", "") == [f"{place}/in/1.{kind}"]
        assert list_files(f"{place}/[a-i]n/[02].{kind}", "") == [f"{place}/in/{n}.{kind}" for n in (0, 2)]
        assert list_files(f"{place}/in", "") == []


@pytest.mark.minutes
@pytest.mark.parametrize("kind", WRITE)
def test_every_row_is_shown_once_through_a_real_kill_after_every_epoch(
    place: str, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(place, tmp_path, kind)
    epoch, kills = 0, 0
    with Attempts() as attempts:
        while True:
            after = 1 if kills < 5 else None
            answer = attempts.run(
                Order(topology(place, kind), str(tmp_path), str(tmp_path / "store"), str(tmp_path / "shown"), epoch, 2,
                      after), 120,
            )  # fmt: skip
            assert answer.failure is None, answer.failure
            if not answer.killed:
                break
            epoch, kills = answer.epoch, kills + 1
            if kills == 2:
                positions = [at for part in NativeStore(open_writable(str(tmp_path / "store"))).parts(epoch)
                             for at in part.positions or ()]  # fmt: skip
                assert {at.split for at in positions} == {f"{place}/in/{file}.{kind}" for file in range(3)}
                read = next(at for at in positions if at.fingerprint)
                of_it = Fingerprint.parse(read.fingerprint or "")
                assert of_it is not None
                assert (bool(of_it.tag), of_it.modified) == (True, None)

                storage, name = open_writable(place), read.split.removeprefix(place + "/")
                whole = storage.read(name)
                storage.put(name, whole.replace(b"0", b"7").replace(b"1", b"7"), replace=True)
                with pytest.raises(JobFailed, match=f"source rows: {read.split} has changed"):
                    rehearse(topology(place, kind), str(tmp_path / "store"), options(tmp_path, epoch))
                storage.put(name, whole, replace=True)  # the same again, which may be another version
    assert kills >= 4
    shown = "".join(path.read_text() for path in sorted((tmp_path / "shown" / "out").glob("part-*.jsonl")))
    for row in (row for file in range(3) for row in rows_of(file, 8)):
        assert shown.count(f'"n":{row["n"]},') + shown.count(f'"n":{row["n"]}' + "}") == 1, row
    assert shown.count('"n":') == 24


def test_a_file_that_is_put_anew_while_it_is_read_is_told_apart(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = open_writable(place)
    storage.put("in/0.text", b"one\ntwo\nthree\n")
    file = ServedFile(f"{place}/in/0.text", ahead=4)
    assert file.read(4) == b"one\n"
    storage.put("in/0.text", b"ONE\nTWO\nTHREE\n", replace=True)
    with pytest.raises(OSError, match="replaced"):
        file.read(4)
    assert file.read(0) == b""
    with pytest.raises(FileNotFoundError):
        ServedFile(f"{place}/in/1.text")


def test_nothing_is_read_to_compare_where_a_file_has_the_version_that_it_had(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(place, tmp_path, "jsonl")
    job, store = topology(place, "jsonl"), str(tmp_path / "store")
    outcome = run_job(job, store, options(tmp_path))
    monkeypatch.setattr(fingerprints, "_BLOCK", 0)  # whoever reads, reads nothing, and finds another checksum
    assert rehearse(job, store, options(tmp_path, outcome.epoch)).news == ()
    monkeypatch.undo()


def test_lines_and_files_that_came_later_are_named(place: str, tmp_path: Path) -> None:
    put(place, tmp_path, "jsonl")
    job, store = topology(place, "jsonl"), str(tmp_path / "store")
    outcome = run_job(job, store, options(tmp_path))
    storage = open_writable(place)
    storage.put("in/1.jsonl", storage.read("in/1.jsonl") + b'{"n": 1}\n', replace=True)
    storage.put("in/4.jsonl", b'{"n": 1}\n')
    later = LaterInput("rows", (f"{place}/in/4.jsonl",), (f"{place}/in/1.jsonl",))
    assert rehearse(job, store, options(tmp_path, outcome.epoch)).news == (later,)
    storage.put("in/1.jsonl", storage.read("in/1.jsonl")[:-20], replace=True)
    with pytest.raises(JobFailed, match="has shrunk"):
        rehearse(job, store, options(tmp_path, outcome.epoch))


def test_a_store_does_not_choose_which_server_is_asked(tmp_path: Path) -> None:
    """No server is there: nothing is asked."""
    (tmp_path / "1.text").write_text("x\n")
    for path in ("*.text", "s3://own/in/*.text"):
        op = of_kind("text", path=path)
        for split in ("s3://other/in/1.text", "s3://own/in/deeper/1.text", "az://own/in/1.text"):
            with pytest.raises(UnsafePath, match="does not match the file"):
                make_source(op, 0, str(tmp_path), [Position(split, 2, 1)], None)
    with pytest.raises(UnsafePath, match="does not match the file"):
        make_source(of_kind("text", path="s3://own/in/*.text"), 0, str(tmp_path), [Position("1.text", 2, 1)], None)


def test_what_matches_nothing_and_what_leads_nowhere_is_refused(place: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no file matches"):
        make_source(of_kind("text", path=f"{place}/none/*.text"), 0, str(tmp_path), None, None)
    job = topology("ftp://host", "parquet")
    (fault, *_) = all_faults(job, str(tmp_path), from_start=False)
    assert "not a known kind of location" in fault.message
    assert fault.keys == ("source", "path")


def test_a_large_file_is_asked_for_in_large_slices(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = b"".join(b"%07d\n" % n for n in range(1 << 18))
    open_writable(place).put("in/0.text", text)
    asked: list[int] = []
    fetch = ServedFile._fetch

    def counted(file: ServedFile, length: int) -> None:
        asked.append(length)
        fetch(file, length)

    monkeypatch.setattr(ServedFile, "_fetch", counted)
    source = make_source(of_kind("text", path=f"{place}/in/*.text"), 0, str(tmp_path), None, None)
    assert sum(batch.num_rows for batch in everything(source)) == 1 << 18
    assert asked == [len(text)]
