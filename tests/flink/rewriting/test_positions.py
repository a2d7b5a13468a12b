"""Changed copies of snapshots: splits are read on elsewhere, and go."""

from __future__ import annotations

import struct
import tarfile
from pathlib import Path

import msgspec
import pytest

from formats.flink.bytes import encode_utf
from formats.flink.connectors import old_kafka
from formats.flink.connectors.enumerators import enumerator
from formats.flink.connectors.splits import moved_to, read_element, splits
from formats.flink.metadata.handles import InlineHandle, OperatorState
from formats.flink.rewriting.changes import (
    RemoveSplit,
    SetPosition,
    parse_changes,
)
from formats.flink.rewriting.enumerators import with_waiting
from formats.flink.rewriting.operators import Rewriter
from formats.flink.rewriting.prefix import CannotRewrite
from formats.flink.rewriting.resolve import Work
from formats.flink.rewriting.sink import Measured
from formats.flink.store import FlinkStore
from tests.support.archives import extract
from tests.support.flink.cases import HASHMAP, UNALIGNED
from tests.support.flink.rewritten import rewritten


def positions(store: FlinkStore) -> dict[str, int | None]:
    """Where each split is read on."""
    epoch = store.resolve(None)
    return {
        split.id or "?": split.next
        for operator in store.metadata(epoch).operators
        for subtask in operator.subtasks
        for split in splits(subtask, store.streams(epoch)) or ()
    }


def test_a_split_is_read_on_elsewhere_and_another_goes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = positions(FlinkStore(str(UNALIGNED)))
    one, other = sorted(before)
    lines = (
        f"set: [{{operator: numbers, split: '{one}', position: 42}}]\n"
        f"removed: [{{operator: numbers, split: '{other}'}}, {{operator: numbers, split: gone-1}}]"
    )
    done = rewritten(capsys, tmp_path, UNALIGNED, lines)
    assert positions(FlinkStore(str(tmp_path / "copy"))) == {one: 42}
    assert [(c["split"], c["before"], c["after"], c["no_effect"]) for c in done["changes"]] == [
        (one, f"at {before[one]}", "at 42", None),
        (other, f"at {before[other]}", None, None),
        ("gone-1", None, None, "the operator has no such split"),
    ]
    assert any("enumerator" in note for note in done["notes"])


def test_a_kafka_partition_takes_an_offset_and_words() -> None:
    body = encode_utf("orders")
    split = len(body).to_bytes(2, "big") + body + struct.pack(">iqq", 3, 100, -(1 << 63))
    data = struct.pack(">ii", 0, len(split)) + split
    element = struct.pack(">i", len(data)) + data
    moved = moved_to(element, 7)
    assert moved is not None
    assert read_element(element).next == 100
    assert read_element(moved) == msgspec.structs.replace(read_element(element), next=7)
    (line,) = parse_changes(b"version: 1\nset: [{operator: o, split: orders-3, position: earliest}]", "f").lines
    assert isinstance(line, SetPosition)
    assert line.position == -2


@pytest.mark.parametrize("times", [(5, 6), ()])
@pytest.mark.parametrize("position", [(), (-1, 7), (64, 2)])
def test_a_file_is_read_again_but_for_some_of_its_records(times: tuple[int, ...], position: tuple[int, ...]) -> None:
    def text(value: str) -> bytes:
        return bytes([1, len(value) + 1]) + value.encode()

    path = b"\1" + text("s3") + b"\0" + text("shop") + struct.pack(">i", -1) + text("/in/a.txt") + b"\0\0"
    hosts = struct.pack(">ih", 1, 4) + b"host"
    fields = struct.pack(f">{2 + len(times)}q", 100, 50, *times)
    end = struct.pack(f">?{len(position)}q", bool(position), *position)
    body = struct.pack(">h", 3) + b"001" + path + fields + hosts + end
    data = struct.pack(">ii", 1, len(body)) + body
    element = struct.pack(">i", len(data)) + data
    split = read_element(element)
    assert (split.kind, split.id) == ("file", "s3://shop/in/a.txt:100")
    assert split.next == (7 if position == (-1, 7) else None if position else 0)
    moved = moved_to(element, 3)
    assert moved is not None
    assert (read_element(moved).next, read_element(moved).id) == (3, split.id)
    assert moved_to(element, -1) is None


def coordinator(version: int, state: bytes) -> OperatorState:
    data = struct.pack(">iii", 1, version, len(state)) + state
    return OperatorState("0" * 32, None, None, 1, 1, InlineHandle("state", data), ())


def utf(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


@pytest.mark.parametrize("connector", ["file", "numbers", "kafka-2", "kafka-3", "kinesis"])
def test_a_split_that_no_task_has_yet_goes_or_is_read_on_elsewhere(
    connector: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the file source as it wrote it, of the others as our own writer does; two wait, and what tasks have stays."""
    with tarfile.open(HASHMAP.parents[1] / "connectors.tar.xz") as archive:
        extract(archive, tmp_path)
    (folder,) = (tmp_path / "files").iterdir()
    store = FlinkStore(str(folder))
    source = store.find_operator(store.resolve(None), "lines")
    partitions = [utf("orders") + struct.pack(">i", number) for number in range(3)]
    if connector == "numbers":
        source = coordinator(1, struct.pack(">i", 2) + utf("7") + struct.pack(">qq", 3, 9) + utf("8") + bytes(16))
    elif connector == "kafka-2":
        body = b"".join(one + struct.pack(">i", number) for number, one in enumerate(partitions))
        source = coordinator(2, struct.pack(">i", 3) + body + b"\1")
    elif connector == "kafka-3":
        bodies = [one + struct.pack(">qq", -2, -(1 << 63)) for one in partitions]
        framed = [struct.pack(">i", len(one)) + one + struct.pack(">i", i) for i, one in enumerate(bodies)]
        source = coordinator(3, struct.pack(">ii", 3, 0) + b"".join(framed) + b"\0")
    elif connector == "kinesis":
        shards = b""
        for number in range(3):
            split = utf("arn:aws:kinesis:us-east-1:1:stream/orders") + utf(f"shard-{number}") + utf("LATEST") + b"\0"
            split += struct.pack(">i", 0) + utf("0") + utf("9") + b"\0"
            shards += struct.pack(">i", len(split)) + split + struct.pack(">i", number)
        source = coordinator(1, b"\1" + utf("shard-2") + struct.pack(">ii", 3, 2) + shards)
    before = enumerator(source)
    assert before is not None
    one, other, *_ = before.splits
    assert with_waiting(source, lambda split, body: body) == source.coordinator, "byte for byte"
    work = Work(source)
    work.splits = {one.id or "": RemoveSplit(operator="o", split=one.id or "")}
    copy = rewriter().changed(work)
    after = enumerator(copy)
    assert after is not None
    assert after == msgspec.structs.replace(before, splits=before.splits[1:])
    position = SetPosition(operator="o", split=other.id or "", position=5)
    work.splits = {other.id or "": position}
    if connector in ("kafka-2", "kinesis"):
        with pytest.raises(CannotRewrite, match="position is not known"):
            rewriter().changed(work)
        return
    if connector == "numbers":
        with pytest.raises(CannotRewrite, match="ends at 0, position 5 is behind that"):
            rewriter().changed(work)
        work.splits = {one.id or "": SetPosition(operator="o", split=one.id or "", position=5)}
        other = one
    own = rewriter()
    after = enumerator(own.changed(work))
    assert after is not None
    assert {split.id: split.next for split in after.splits} == {
        split.id: 5 if split.id == other.id else split.next for split in before.splits
    }
    (met,) = own.met.values()
    stood = {"file": "at 0", "numbers": "at 3", "kafka-3": "at earliest"}
    assert (met.before, met.after) == (f"with no task yet, {stood[connector]}", "at 5")


def rewriter() -> Rewriter:
    """Of an operator without keyed state, whose streams are not asked for."""
    store = FlinkStore(str(HASHMAP))
    epoch = store.resolve(None)
    return Rewriter(store.metadata(epoch), store.streams(epoch), Measured())


def test_positions_of_the_old_source_of_kafka_go_and_are_set() -> None:
    """FlinkKafkaConsumer keeps the offset that was read last; Kafka's words stand for numbers of its own."""
    old = bytes.fromhex("5701879998ff0802016f72646572f30000000000000019")
    assert old_kafka.read_position(old_kafka.position_moved_to(old, 40)).next == 40
    for number, word in ((-1, "latest"), (-2, "earliest"), (-3, "committed")):
        moved = old_kafka.read_position(old_kafka.position_moved_to(old, number))
        assert (moved.id, moved.next, moved.position) == ("orders-1", None, word)
