"""Splits of sources and what sinks have still to commit, as their connectors wrote them.

Checkpoints of tests/flink_java/KafkaJob.java (a real broker) and SplitsJob.java, stopped halfway; splits.jsonl is what
the serializers of Pulsar's and MySQL's connectors write (SplitVectors.java). Kinesis is made here, after its source.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import shutil
import struct
import tarfile
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import Damaged
from formats.flink.bytes import Reader
from formats.flink.connectors.committables import collector, committables
from formats.flink.connectors.enumerators import Enumerator, enumerator
from formats.flink.connectors.files import recoverable
from formats.flink.connectors.iceberg import Branch, Commit, Manifest, Snapshot, Table, known_commit, last_checkpoint
from formats.flink.connectors.old_kafka import read_position
from formats.flink.connectors.pending_files import sink_files
from formats.flink.connectors.split_kinds import Split
from formats.flink.connectors.splits import read_element, read_split, splits
from formats.flink.connectors.writers import Pending, Writer, read_writer
from formats.flink.metadata.file import encode
from formats.flink.metadata.handles import InlineHandle, OperatorState
from formats.flink.rewriting.operator_state import Edit, write_operator_state
from formats.flink.store import FlinkStore
from tests.support.archives import extract
from tests.support.commands import answer_of, result_of, run_command
from tests.support.flink.truth import DATA
from tests.support.schemas import checked

VECTORS = {one["name"]: one for one in map(json.loads, (DATA / "splits.jsonl").read_text().splitlines())}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("connectors")
    with tarfile.open(DATA / "connectors.tar.xz") as archive:
        extract(archive, folder)
    return folder


def store_of(data: Path, name: str) -> FlinkStore:
    (path,) = (data / name).iterdir()
    return FlinkStore(str(path))


def operator(store: FlinkStore, uid: str) -> OperatorState:
    return store.find_operator(store.resolve(None), uid)


# -- splits -----------------------------------------------------------------------------------------------


def test_offsets_of_kafka_are_those_that_a_real_source_had(data: Path) -> None:
    store = store_of(data, "kafka")
    at = store.streams(store.resolve(None))
    found = {one.id: one for subtask in operator(store, "orders").subtasks for one in splits(subtask, at) or ()}
    assert {name: (one.kind, one.next, one.end, one.position) for name, one in found.items()} == {
        "orders-0": ("kafka", 21, 300, None), "orders-1": ("kafka", 21, 300, None),
        "orders-2": ("kafka", -2, 300, "earliest"),
    }  # fmt: skip
    assert enumerator(operator(store, "orders")) == Enumerator("kafka", (), 3)


@pytest.mark.parametrize(
    ("name", "kind", "id", "position"),
    [
        ("pulsar-new", "pulsar", "persistent://public/default/orders-partition-3", "its start"),
        ("pulsar-read", "pulsar", "persistent://public/default/orders-partition-3", "after 1234:56"),
        ("pulsar-whole", "pulsar", "persistent://public/default/orders", "after 1234:56"),
        ("mysql-snapshot", "cdc", "shop.orders:4", "not read yet"),
        ("mysql-snapshot-read", "cdc", "shop.orders:5", "read up to mysql-bin.000003:4567"),
        ("mysql-log", "cdc", "binlog-split", "mysql-bin.000007:154"),
        ("mysql-log-start", "cdc", "binlog-split", "its start to mysql-bin.000009:1"),
    ],
)
def test_splits_of_pulsar_and_of_changes_say_where_reading_goes_on(
    name: str, kind: str, id: str, position: str
) -> None:
    data = bytes.fromhex(VECTORS[name]["hex"])
    assert read_split(VECTORS[name]["version"], data) == Split(kind, id, None, None, len(data), position)
    assert read_split(VECTORS[name]["version"], data + b"\0").kind is None, "a split is used up to its last byte"


def utf(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


@pytest.mark.parametrize(
    ("version", "more", "position"),
    [
        (0, b"\1\0\1" + utf("495903"), "AFTER_SEQUENCE_NUMBER 495903"),
        (1, b"\0" + struct.pack(">i", 1) + utf("shard-7") + utf("0") + utf("9"), "AFTER_SEQUENCE_NUMBER"),
        (1, b"\1\0\1" + utf("5") + struct.pack(">i", 0) + utf("0") + utf("99"), "AFTER_SEQUENCE_NUMBER 5"),
        (2, b"\1\0\1" + utf("5") + struct.pack(">i", 0) + utf("0") + utf("9") + b"\0", "AFTER_SEQUENCE_NUMBER 5"),
        (2, b"\1\1" + struct.pack(">q", 17) + b"\0" + struct.pack(">i", 0) + utf("0") + utf("9") + b"\1", "its end"),
    ],
)
def test_splits_of_kinesis_made_by_our_own_writer(version: int, more: bytes, position: str) -> None:
    body = utf("arn:aws:kinesis:us-east-1:1:stream/orders") + utf("shardId-000000000003") + utf("AFTER_SEQUENCE_NUMBER")
    assert read_split(version, body + more) == Split(
        "kinesis", "orders:shardId-000000000003", None, None, len(body + more), position
    )


OLD = bytes.fromhex("5701879998ff0802016f72646572f30000000000000019")
"""What FlinkKafkaConsumer kept of orders-1 in Flink 1.20.5, having read offset 25 last."""


def test_positions_of_the_old_source_of_kafka_are_those_that_a_real_one_had() -> None:
    assert read_position(OLD) == Split("kafka", "orders-1", 26, None, len(OLD))
    earliest = OLD[:-8] + struct.pack(">q", -915623761775)
    assert read_position(earliest) == Split("kafka", "orders-1", None, None, len(OLD), "earliest")
    assert read_position(OLD + b"\0").kind is None, "it is used up to its last byte"


@given(st.integers(0, len(OLD) - 9), st.integers(0, 255))
def test_a_damaged_position_is_none_or_its_hash_fits(at: int, byte: int) -> None:
    damaged = OLD[:at] + bytes([byte]) + OLD[at + 1 :]
    assert read_position(damaged).id in (None, "orders-1")


@given(st.integers(0, 5), st.sampled_from(sorted(VECTORS)), st.integers(0, 900), st.binary(max_size=8))
def test_a_damaged_split_is_of_no_kind_or_one_that_fits_its_bytes(version: int, name: str, at: int, new: bytes) -> None:
    data = bytes.fromhex(VECTORS[name]["hex"])
    at %= len(data)
    damaged = data[:at] + new + data[at + len(new) :]
    assert read_split(version, damaged).bytes == len(damaged)


class _Folder:
    """Where our own writer puts streams."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write_pieces(self, name: str, pieces: Iterable[bytes]) -> int:
        return (self.path / name).write_bytes(b"".join(pieces))


def with_elements(data: Path, folder: Path, uid: str, edit: Edit) -> Path:
    """The checkpoint that read Kafka, with other elements in the list states of one operator."""
    store = store_of(data, "kafka")
    epoch = store.resolve(None)
    copy = Path(shutil.copytree(store.path, folder))

    def changed(one: OperatorState) -> OperatorState:
        subtasks = []
        for subtask in one.subtasks:
            handle = subtask.managed_operator
            if one.uid == uid and handle is not None:
                name = f"made-{subtask.index}"
                handle = write_operator_state(handle, store.streams(epoch), _Folder(copy), name, edit=edit)
            subtasks.append(msgspec.structs.replace(subtask, managed_operator=handle))
        return msgspec.structs.replace(one, subtasks=tuple(subtasks))

    metadata = store.metadata(epoch)
    operators = tuple(changed(one) for one in metadata.operators)
    (copy / "_metadata").write_bytes(encode(msgspec.structs.replace(metadata, operators=operators)))
    return copy


def with_splits(data: Path, folder: Path, names: dict[str, str]) -> Path:
    """The checkpoint that read Kafka, with bytes of other connectors in the place of its splits. names: of VECTORS."""

    def other(state: str, element: bytes) -> bytes:
        vector = VECTORS[names[str(read_element(element).id)]]
        split = bytes.fromhex(vector["hex"])
        return struct.pack(">iii", len(split) + 8, vector["version"], len(split)) + split

    return with_elements(data, folder, "orders", other)


def test_places_that_are_no_numbers_are_compared_as_text(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    names = {"orders-0": "pulsar-new", "orders-1": "mysql-log", "orders-2": "mysql-snapshot"}
    before = with_splits(data, tmp_path / "chk-7", names)
    after = with_splits(data, tmp_path / "later" / "chk-7", names | {"orders-0": "pulsar-read"})
    found = {one["split"]: (one["from"], one["to"], one["moved"]) for one in
             result_of("diff", capsys, before, after)["positions"]}  # fmt: skip
    unknown = {"offset": None, "records": None, "text": None}
    log = unknown | {"text": "mysql-bin.000007:154"}
    assert found["binlog-split"] == (log, log, unknown)
    assert found["persistent://public/default/orders-partition-3"] == (
        unknown | {"text": "its start"}, unknown | {"text": "after 1234:56"}, unknown,
    )  # fmt: skip
    assert len(found) == 3
    code, out, _ = run_command("diff", capsys, before, after, "--exit-code")
    assert (code, "2 positions did not move" in out) == (3, True)
    assert re.search(r"orders-partition-3 +its start +after 1234:56", out)
    assert run_command("diff", capsys, before, before, "--exit-code")[0] == 0


def test_kafkas_words_are_no_offsets_to_be_subtracted(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = store_of(data, "kafka").path
    found = {one["split"]: (one["from"], one["moved"]["offset"]) for one in
             result_of("diff", capsys, path, path)["positions"]}  # fmt: skip
    assert found["orders-0"] == ({"offset": 21, "records": None, "text": None}, 0)
    assert found["orders-2"] == ({"offset": None, "records": None, "text": "earliest"}, None)


# -- enumerators ------------------------------------------------------------------------------------------


def test_files_that_no_task_has_yet_are_the_enumerators(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = store_of(data, "files")
    held = enumerator(operator(store, "lines"))
    assert held is not None
    assert (held.kind, {str(one.id)[-5:] for one in held.splits}) == ("file", {"a.txt", "c.txt", "e.txt"})
    assert enumerator(operator(store, "numbers")) == Enumerator(None, ())
    _, out, _ = run_command("inspect", capsys, store.path)
    assert "3 splits to hand out" in out


def coordinator(version: int, state: bytes) -> OperatorState:
    data = struct.pack(">iii", 1, version, len(state)) + state
    return OperatorState("0" * 32, None, None, 1, 1, InlineHandle("state", data), ())


def test_enumerators_of_older_versions_of_kafka_and_of_numbers_made_by_our_own_writer() -> None:
    one = utf("orders") + struct.pack(">i", 4)
    assert enumerator(coordinator(1, struct.pack(">i", 1) + one)) == Enumerator("kafka", (), 1)
    two = struct.pack(">i", 2) + one + struct.pack(">i", 0) + utf("orders") + struct.pack(">ii", 5, 1) + b"\1"
    held = enumerator(coordinator(2, two))
    assert held is not None
    assert ([split.id for split in held.splits], held.assigned) == (["orders-5"], 1)
    numbers = struct.pack(">i", 1) + utf("7") + struct.pack(">qq", 3, 9)
    held = enumerator(coordinator(1, numbers))
    assert held is not None
    assert [(split.id, split.next, split.end) for split in held.splits] == [("7", 3, 9)]
    assert enumerator(coordinator(9, b"what only its class knows")) is None


@pytest.mark.parametrize("version", [0, 1])
def test_enumerators_of_kinesis_made_by_our_own_writer(version: int) -> None:
    shards = []
    for number, status in ((1, 0), (2, 1)):
        split = utf("arn:aws:kinesis:us-east-1:1:stream/orders") + utf(f"shard-{number}") + utf("TRIM_HORIZON") + b"\0"
        split += struct.pack(">i", 0) + utf("0") + utf("9") + b"\0"
        shards.append(struct.pack(">i", len(split)) + split + (struct.pack(">i", status) if version else b""))
    state = b"\1" + utf("shard-2") + struct.pack(">ii", 2, 2) + b"".join(shards)
    held = enumerator(coordinator(version, state))
    assert held is not None
    waiting = ["orders:shard-2"] if version else ["orders:shard-1", "orders:shard-2"]
    assert (held.kind, [split.id for split in held.splits], held.assigned) == ("kinesis", waiting, 2 - len(waiting))
    assert enumerator(coordinator(version, state + b"\0")) is None


def test_enumerators_of_pulsar() -> None:
    """Of the newest version as its own serializer wrote it, of older ones as our own writer does."""
    vector = VECTORS["pulsar-enumerator"]
    state = bytes.fromhex(vector["hex"])
    assert enumerator(coordinator(vector["version"], state)) == Enumerator("pulsar", (), 2)
    assert enumerator(coordinator(vector["version"], state + b"\0")) is None
    one = utf("orders") + struct.pack(">i", 4)
    first = struct.pack(">i", 1) + one + struct.pack(">ii", 0, 65535)
    assert enumerator(coordinator(1, first)) == Enumerator("pulsar", (), 1)
    second = struct.pack(">i", 1) + one + struct.pack(">iiii", 1, 0, 65535, 0)
    assert enumerator(coordinator(2, second)) == Enumerator("pulsar", (), 1)


def test_a_split_that_a_task_and_the_enumerator_have_would_be_read_twice(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Made by our own writer: the enumerator's state of the checkpoint names a file that a task is reading."""
    store = store_of(data, "files")
    metadata = store.metadata(store.resolve(None))
    copy = Path(shutil.copytree(store.path, tmp_path / "chk-17"))
    operators = []
    for one in metadata.operators:
        if one.uid == "lines" and isinstance(one.coordinator, InlineHandle):
            changed = one.coordinator.data.replace(b"a.txt", b"b.txt")
            one = msgspec.structs.replace(one, coordinator=InlineHandle(one.coordinator.name, changed))
        operators.append(one)
    (copy / "_metadata").write_bytes(encode(msgspec.structs.replace(metadata, operators=tuple(operators))))
    code, out, _ = run_command("validate", capsys, copy, "-o", "json")
    assert code == 3
    (epoch,) = checked(out)["epochs"]
    (found,) = [one for one in epoch["findings"] if one["code"] == "split-owned-twice"]
    assert "b.txt is the enumerator's, too, which hands it out again" in found["message"]


# -- sinks ------------------------------------------------------------------------------------------------


def test_what_sinks_have_still_to_commit_is_listed(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = store_of(data, "kafka")
    at = store.streams(store.resolve(None))
    held = {
        uid: [one for subtask in operator(store, uid).subtasks for one in committables(subtask, at) or ()]
        for uid in ("Sink Committer: topic", "Sink Committer: files", "slow")
    }
    assert held["slow"] == []
    topic, files = held["Sink Committer: topic"], held["Sink Committer: files"]
    assert [(one.kind, one.name, one.checkpoint, one.subtask, one.state) for one in topic] == [
        ("kafka", "abs-0-7", 7, 0, "received"), ("kafka", "abs-1-7", 7, 1, "received"),
    ]  # fmt: skip
    assert all(str(one.detail).startswith("producer ") for one in topic)
    assert [(one.kind, one.checkpoint, one.size) for one in files] == [("file", 7, 25)] * 2
    for one in files:
        assert "/part-" in str(one.name)
        assert "/.part-" in str(one.detail), "its bytes lie in a hidden file until it is committed"
    _, out, _ = run_command("inspect", capsys, store.path)
    assert "TO COMMIT BY" in out
    assert "abs-0-7" in out
    raw = result_of("inspect", capsys, store.path)["raw"]
    names = [one["name"] for o in raw["operators"] for s in o["subtasks"] for one in s["committables"] or ()]
    assert "abs-1-7" in names


def versioned(version: int, data: bytes) -> bytes:
    return struct.pack(">ii", version, len(data)) + data


def local(target: str, part: str) -> bytes:
    return struct.pack("<Iqii", 0x1E744B57, 9, len(target), len(part)) + target.encode() + part.encode()


@pytest.fixture
def output(data: Path, tmp_path: Path) -> tuple[str, Path, dict[str, int]]:
    """A copy of the output directory of a file sink: where Flink had it, where it is, and its pending files."""
    store = store_of(data, "kafka")
    metadata = store.metadata(store.resolve(None))
    files = list(sink_files(metadata, store.names(metadata), store.streams(store.resolve(None))))
    assert [file.size for file in files] == [25, 25]
    top = os.path.commonpath([os.path.dirname(file.path) for file in files])
    for file in files:
        place = tmp_path / "out" / os.path.relpath(file.path, top)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"x" * (file.size or 0))
    return top, tmp_path / "out", {file.path: file.size or 0 for file in files}


def test_pending_files_of_a_sink_are_looked_for_where_the_user_says(
    data: Path, output: tuple[str, Path, dict[str, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Flink 2.3.0 starts if a file to commit is missing, and loses its rows."""
    (path,) = (data / "kafka").iterdir()
    top, out, files = output
    answer = answer_of("validate", capsys, path)
    assert answer["epochs"][0]["findings"] == []
    assert answer["epochs"][0]["why_unchecked"]["sink-part-missing"] == (
        f"2 pending files of sinks in {top} were not looked for: --search {top}"
    )
    named = ["--path-map", f"{top}={out}"]
    answer = answer_of("validate", capsys, path, *named)
    assert answer["epochs"][0]["findings"] == []
    assert "sink-part-missing" not in answer["epochs"][0]["why_unchecked"]

    pending = sorted(out.rglob(".part-*"))
    committed = pending[0].with_name(pending[0].name[1:].partition(".inprogress")[0])
    pending[0].rename(committed)
    assert answer_of("validate", capsys, path, *named)["epochs"][0]["findings"] == [], "it was committed"
    committed.unlink()
    pending[1].write_bytes(b"short")
    answer = answer_of("validate", capsys, path, *named, code=3)
    found = answer["epochs"][0]["findings"]
    assert [finding["code"] for finding in found] == ["sink-part-missing"] * 2
    assert {finding["path"] for finding in found} == set(files)
    messages = " ".join(finding["message"] for finding in found)
    assert "the file to commit is missing" in messages
    assert "has 5 bytes, 25 were written" in messages
    assert run_command("plan-recovery", capsys, path, *named)[0] == 4


@pytest.mark.parametrize("magic", [0x1E744B57, 0xD7436C5E], ids=["local", "hdfs"])
def test_pending_files_of_hdfs_have_the_layout_of_local_ones(magic: int) -> None:
    stored = local("hdfs://nn:8020/out/a", "hdfs://nn:8020/out/.a")
    stored = struct.pack("<I", magic) + stored[4:]
    assert recoverable(stored) == ("hdfs://nn:8020/out/a", "hdfs://nn:8020/out/.a")
    assert recoverable(stored + b"\0") == (None, None)


def upload(key: str, id: str) -> bytes:
    """`S3Recoverable` with one part of 5 bytes."""
    parts = struct.pack("<iii", 1, 1, 4) + b"etag" + struct.pack("<qiq", 5, 0, 0)
    return (
        struct.pack("<Ii", 0x98761432, len(key)) + key.encode() + struct.pack("<i", len(id)) + id.encode() + parts
    )


def test_pending_files_in_s3_are_uploads_that_are_unchecked_until_they_are_objects(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The committer's state of a real checkpoint, with uploads of our own writer in the place of its local files."""
    part = part_file(PENDING, "s3://sink/out/a", 5, upload("out/a", "U"))
    file = struct.pack(">I", 0x1E765C80) + utf("") + b"\1" + versioned(2, part) + b"\0\0"
    element = to_commit(2, file)
    path = with_elements(data, tmp_path / "chk-7", "Sink Committer: files", lambda state, _: element)
    found = result_of("inspect", capsys, path)["raw"]["operators"]
    pending = [one for o in found for s in o["subtasks"] for one in s["committables"] or () if one["kind"] == "file"]
    assert [(one["name"], one["detail"]) for one in pending] == [("s3://sink/out/a", "multipart upload U")] * 2
    answer = answer_of("validate", capsys, path)
    assert answer["epochs"][0]["findings"] == []
    assert answer["epochs"][0]["why_unchecked"]["sink-part-missing"] == (
        "1 pending files of sinks in s3://sink/out are multipart uploads, which abs does not list: "
        "aws s3api list-multipart-uploads --bucket sink --prefix out"
    )
    out = tmp_path / "out"
    out.mkdir()
    (out / "a").write_bytes(b"x" * 5)
    answer = answer_of("validate", capsys, path, "--path-map", f"s3://sink/out={out}")
    assert answer["epochs"][0]["findings"] == []
    assert "sink-part-missing" not in answer["epochs"][0]["why_unchecked"], "the object exists"


def to_commit(version: int, committable: bytes) -> bytes:
    """An element of the committer's state: a committable of a sink for checkpoint 7, written by subtask 0."""

    def listed(version: int, item: bytes) -> bytes:
        return struct.pack(">iii", version, 1, len(item)) + item

    request = struct.pack(">ii", version, len(committable)) + committable + struct.pack(">ii", 0, 0)
    checkpoint = struct.pack(">qi", 7, 1) + listed(1, struct.pack(">i", 0) + listed(0, request))
    element = versioned(2, struct.pack(">I", 0xB91F252C) + listed(1, checkpoint))
    return struct.pack(">i", len(element)) + element


def part_file(magic: int, path: str | None, size: int | None, state: bytes) -> bytes:
    """Of version 2; without a path and a size, of version 1."""
    named = b"" if path is None else b"\1" + utf(path)
    return struct.pack(">I", magic) + named + (b"" if size is None else struct.pack(">q", size)) + versioned(1, state)


PENDING, IN_PROGRESS = 0x2C853C89, 0xB3A4073D


@pytest.mark.parametrize(
    ("version", "under_way", "closed"),
    [
        (1, local("/out/b", "/out/.b"), local("/out/a", "/out/.a")),
        (2, part_file(IN_PROGRESS, "/out/b", None, local("/out/b", "/out/.b")),
         part_file(PENDING, "/out/a", 5, local("/out/a", "/out/.a"))),
    ],
)  # fmt: skip
def test_files_that_a_writer_of_the_old_kind_has_closed_made_by_our_own_writer(
    version: int, under_way: bytes, closed: bytes
) -> None:
    body = struct.pack(">I", 0x1E764B79) + versioned(1, b"\2\0\0\0b1") + utf("/out/b1") + struct.pack(">q", 7)
    body += b"\1" + versioned(version, under_way)
    body += struct.pack(">iiqii", version, 1, 12, 1, len(closed)) + closed
    data = versioned(version, body)
    assert read_writer(data) == Writer("file", "/out/b1", "/out/.b", (Pending(12, "/out/a", "/out/.a"),))
    assert read_writer(versioned(version, body + b"\0")).kind is None, "it is used up to its last byte"
    assert read_writer(versioned(4, body)).kind is None


def test_what_a_committer_of_1_13_and_1_14_had_made_by_our_own_writer() -> None:
    """Of a sink of the first version, whose committables say neither checkpoint nor subtask."""
    file = struct.pack(">I", 0x1E765C80) + b"\1"
    file += versioned(1, part_file(PENDING, None, None, local("/out/a", "/out/.a"))) + b"\0"
    items = struct.pack(">ii", 1, 1) + struct.pack(">i", len(file)) + file
    (one,) = collector(Reader(versioned(1, struct.pack(">I", 0xB91F252C) + items)))
    assert (one.kind, one.name, one.detail, one.checkpoint, one.subtask) == ("file", "/out/a", "/out/.a", None, None)


@given(st.integers(0, 900), st.binary(max_size=8))
def test_a_damaged_writer_is_of_no_kind_or_one_that_fits_its_bytes(at: int, new: bytes) -> None:
    closed = local("/out/a", "/out/.a")
    body = struct.pack(">I", 0x1E764B79) + versioned(1, b"") + utf("/out") + struct.pack(">q", 7) + b"\0"
    data = versioned(1, body + struct.pack(">iiqii", 1, 1, 12, 1, len(closed)) + closed)
    at %= len(data)
    with contextlib.suppress(Damaged):
        read_writer(data[:at] + new + data[at + len(new) :])


def test_state_shows_what_writers_hold_as_rows(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = store_of(data, "kafka").path
    rows = result_of("state", capsys, path, "topic", "--state", "writer_raw_states")["rows"]
    assert [(row["value"]["kind"], row["value"]["name"], row["value"]["pending"]) for row in rows] == [
        ("kafka", "abs", [{"checkpoint": 7, "name": f"abs-{i}-7", "detail": None}]) for i in (0, 1)
    ]
    rows = result_of("state", capsys, path, "files", "--state", "writer_raw_states")["rows"]
    assert [(row["value"]["kind"], row["value"]["open"]) for row in rows] == [("file", None)] * 2
    assert all(row["value"]["name"].startswith("file:/") for row in rows)


def test_state_shows_splits_and_what_is_pending_as_rows(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = store_of(data, "kafka").path
    rows = result_of("state", capsys, path, "orders", "--state", "SourceReaderState")["rows"]
    found = {(row["value"]["split"], row["value"]["next"], row["value"]["position"]) for row in rows}
    assert found == {("orders-0", 21, None), ("orders-1", 21, None), ("orders-2", -2, "earliest")}
    words = ("Sink Committer: topic", "--state", "streaming_committer_raw_states")
    rows = result_of("state", capsys, path, *words)["rows"]
    assert [[one["name"] for one in row["value"]] for row in rows] == [["abs-0-7"], ["abs-1-7"]]


# -- Iceberg ----------------------------------------------------------------------------------------------


def manifests(*paths: str) -> bytes:
    """`DeltaManifests` of version 2: the manifest of data files, and that of delete files."""
    both = b""
    for path in (*paths, "")[:2]:
        schema = json.dumps({"type": "record", "fields": [{"name": "manifest_path"}, {"name": "manifest_length"}]})
        record = bytes([2 * len(path)]) + path.encode() + bytes([2 * 25]) + b"..."
        one = b"\xc2\1" + utf(schema) + record if path else b""
        both += struct.pack(">i", len(one)) + one
    return versioned(2, both + struct.pack(">i", 0))


def snapshot(id: int, parent: int | None, checkpoint: int, job: str = "j", operator: str | None = None) -> Snapshot:
    summary = {"flink.job-id": job, "flink.max-committed-checkpoint-id": str(checkpoint)}
    return Snapshot(id, parent, summary | ({"flink.operator-id": operator} if operator else {}))


@pytest.mark.parametrize(
    ("table", "last"),
    [
        (Table(), -1),
        (Table(2, (snapshot(1, None, 4), snapshot(2, 1, 5))), 5),
        (Table(1, (snapshot(1, None, 4), snapshot(2, 1, 5))), 4),
        (Table(3, (snapshot(1, None, 4), snapshot(2, 1, 5), snapshot(3, 2, 9, "other"))), 5),
        (Table(2, (snapshot(1, None, 4), snapshot(2, 1, 5, operator="other"))), 4),
        (Table(2, (snapshot(2, 1, 9, "other"),)), -1),
        (Table(1, (snapshot(1, None, 4), snapshot(2, 1, 5)), {"audit": Branch(2)}), 5),
        (Table(1, (snapshot(1, 2, 4, "other"), snapshot(2, 1, 5, "other"))), -1),
        (Table(1, (Snapshot(1, None, {"flink.job-id": "j", "flink.max-committed-checkpoint-id": "x"}),)), -1),
    ],
    ids=["empty", "newest", "rolled back", "another job since", "another sink", "expired", "branch", "a cycle",
         "no number"],
)  # fmt: skip
def test_the_last_checkpoint_that_a_table_has_is_found_as_iceberg_finds_it(table: Table, last: int) -> None:
    assert last_checkpoint(table, "j", "op") == last


@pytest.fixture
def iceberg(tmp_path: Path) -> tuple[Path, list[str]]:
    """The directory of a job that wrote with FlinkSink and IcebergSink of Iceberg 1.10, and the options that name its
    tables. It was killed after checkpoint 5 was complete, and before the tables had its commit."""
    with tarfile.open(DATA / "iceberg.tar.xz") as archive:
        extract(archive, tmp_path)
    (job,) = (tmp_path / "iceberg" / "ck").iterdir()
    return job, ["--path-map", f"/mnt/ckpt/iceberg={tmp_path / 'iceberg'}"]


Said = tuple[list[str], str]


def said(capsys: pytest.CaptureFixture[str], store: object, *options: str, code: int = 0) -> Said:
    """Return the findings of `validate` about files of sinks, and the reasons why files were not checked."""
    (epoch,) = answer_of("validate", capsys, store, *options, code=code)["epochs"]
    found = [one["message"] for one in epoch["findings"] if one["code"] == "sink-part-missing"]
    return found, epoch["why_unchecked"].get("sink-part-missing", "")


def test_manifests_of_a_real_job_are_pending_until_its_tables_have_the_commit(
    iceberg: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """A real job started from either checkpoint, and failed with NotFoundException without a manifest of checkpoint 5.
    Iceberg had deleted those of checkpoint 4 after their commit."""
    job, named = iceberg
    metadata = [job.parents[1] / name / "metadata" for name in ("old", "new")]
    raw = result_of("inspect", capsys, f"{job}@5")["raw"]["operators"]
    pending = [one for o in raw for s in o["subtasks"] for one in s["committables"] or () if one["kind"] == "iceberg"]
    assert [(one["checkpoint"], one["size"]) for one in pending] == [(5, 6933)], "that of IcebergSink"
    assert pending[0]["detail"] == f"job {job.name}, operator 0f1f9036af9a41acdf55ab1cbe5e4f02"
    for number in (4, 5):
        found, unchecked = said(capsys, f"{job}@{number}")
        assert not found
        assert unchecked == (
            "2 manifests of Iceberg commits in /mnt/ckpt/iceberg were not looked for: --search /mnt/ckpt/iceberg"
        )
        assert said(capsys, f"{job}@{number}", *named) == ([], "")
    for manifest in [path for folder in metadata for path in folder.glob("*.avro")]:
        manifest.unlink()
        found, _ = said(capsys, f"{job}@5", *named, code=3)
        assert found[-1] == (
            f"the manifest of the commit of checkpoint 5 is missing, and the table has commits of job {job.name} up to"
            " checkpoint 4: a job that starts from the checkpoint fails"
        )
    assert len(found) == 2
    assert said(capsys, f"{job}@4", *named) == ([], "")
    for folder in metadata:
        for path in folder.iterdir():
            path.unlink()
    for number in (4, 5):
        found, unchecked = said(capsys, f"{job}@{number}", *named)
        assert not found
        assert unchecked.startswith("2 manifests of Iceberg commits in /mnt/ckpt/iceberg do not exist, and neither")


def test_the_newest_metadata_of_an_iceberg_table_tells_what_was_committed(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = utf("j") + utf("op") + struct.pack(">qi", 7, len(manifests("/t/metadata/m.avro")))
    element = to_commit(1, body + manifests("/t/metadata/m.avro"))
    store = with_elements(data, tmp_path / "chk-7", "Sink Committer: files", lambda state, _: element)
    folder = tmp_path / "table" / "metadata"
    folder.mkdir(parents=True)
    named = ("--path-map", f"/t={tmp_path / 'table'}")
    (folder / "00001-a.metadata.json").write_bytes(msgspec.json.encode(Table(1, (snapshot(1, None, 6, "j", "op"),))))
    assert len(said(capsys, store, *named, code=3)[0]) == 2
    newer = msgspec.json.encode(Table(2, (snapshot(1, None, 6), snapshot(2, 1, 7))))
    (folder / "00002-b.gz.metadata.json").write_bytes(gzip.compress(newer))
    assert said(capsys, store, *named) == ([], "")
    (folder / "00003-c.metadata.json").write_bytes(b"{}")
    assert "the table has no commit of job j" in said(capsys, store, *named, code=3)[0][0]
    (folder / "00003-d.metadata.json").write_bytes(newer)
    assert said(capsys, store, *named) == ([], ""), "two that begin at the same number, of which one was not committed"
    (folder / "00004-e.metadata.json").write_bytes(b"{")
    assert "neither does metadata of the table" in said(capsys, store, *named)[1]


@given(st.integers(0, 200), st.binary(max_size=8))
def test_damaged_manifests_are_none_or_those_that_their_bytes_name(at: int, new: bytes) -> None:
    body = utf("j") + utf("op") + struct.pack(">qi", 7, len(manifests("/t/m"))) + manifests("/t/m")
    assert known_commit(1, body) == Commit("j", "op", 7, (Manifest("/t/m", 25),))
    at %= len(body)
    known_commit(1, body[:at] + new + body[at + len(new) :])
