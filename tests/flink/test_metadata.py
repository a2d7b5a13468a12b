"""Flink's `_metadata`: read as Flink's own loader reads it, written byte for byte, and never trusted."""

from __future__ import annotations

import contextlib
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mmh3 import mmh3_x64_128_digest

from formats.errors import Damaged, FormatError, UnsupportedVersion
from formats.flink import facts
from formats.flink.bytes import Reader, decode_utf, encode_utf
from formats.flink.ids import operator_id, proved
from formats.flink.java_object import JavaObject, read_value
from formats.flink.metadata import properties
from formats.flink.metadata.file import encode, parse
from formats.flink.metadata.handle_codec import Unwritable
from formats.flink.metadata.handles import (
    ChangelogHandle,
    ChangeStream,
    ChannelHandle,
    ChannelPart,
    EmptySegmentHandle,
    FileChangelogHandle,
    FileHandle,
    IncrementalHandle,
    InlineHandle,
    InMemoryChange,
    InMemoryChangelogHandle,
    KeyedHandle,
    KeyGroupsHandle,
    LocalFile,
    MasterState,
    MergedFolders,
    Metadata,
    Mode,
    OperatorPart,
    OperatorState,
    OperatorStateHandle,
    RelativeHandle,
    SegmentHandle,
    StreamHandle,
    Subtask,
)
from tests.support.flink.truth import DATA, differences, load
from tests.tiers import examples

CASES = sorted(DATA.glob("**/_metadata"))
NAMES = [str(path.parent.relative_to(DATA)) for path in CASES]
SMALL = DATA / "in-progress" / "24c349cbab07786e4c710aef6bb480dd" / "chk-2" / "_metadata"
TRUTHS = sorted(path.name for path in (DATA / "truth").glob("*.meta.json"))


@pytest.mark.parametrize("name", TRUTHS)
def test_every_field_is_what_flinks_own_loader_says(name: str) -> None:
    truth = load(name)
    path = DATA / truth["path"].removeprefix("$ROOT/") / "_metadata"
    assert differences(parse(path.read_bytes(), str(path)), truth) == []


@pytest.mark.parametrize("path", CASES, ids=NAMES)
def test_a_file_that_is_read_and_written_is_the_same_file(path: Path) -> None:
    data = path.read_bytes()
    metadata = parse(data)
    assert encode(metadata) == data
    if metadata.version < 4:
        assert metadata.tail is None
    else:
        assert metadata.properties is not None
        assert properties.encode(metadata.properties) == metadata.tail


@pytest.mark.parametrize("version", [3, 4, 5, 6])
def test_the_same_state_is_read_from_every_version_that_flinks_own_serializers_write(version: int) -> None:
    """`made/`: one metadata with many kinds of handles, written by the serializers of Flink 2.3.0 for each version."""
    found = parse((DATA / "made" / f"v{version}" / "_metadata").read_bytes())
    assert (found.version, found.checkpoint_id) == (version, 42)
    assert found.master_states == (MasterState(5, "hook", b"\1\2\3"),)
    kinds = [type(s.managed_keyed).__name__ for o in found.operators[:4] for s in o.subtasks]
    assert kinds == [
        "KeyGroupsHandle",
        "KeyGroupsHandle",
        "IncrementalHandle",
        "ChangelogHandle",
        "ChangelogHandle",
        "KeyGroupsHandle",
        "KeyGroupsHandle",
        "ChangelogHandle",
    ]
    first = found.operators[0]
    assert first.coordinator == InlineHandle("coord", b"\7" * 4)
    canonical = first.subtasks[1].managed_keyed
    assert isinstance(canonical, KeyGroupsHandle)
    assert canonical.stream == InlineHandle("käse 😀", b"\7" * 12)
    assert first.subtasks[0].input_channels[0].parts == (ChannelPart(0, 1, 20, (4, 14)),)
    assert first.subtasks[0].output_channels[0].parts == (ChannelPart(1, 0, 10, (24,)),)
    assert [part.mode for part in (first.subtasks[1].raw_operator or OperatorStateHandle((), None)).states] == [
        Mode.SPLIT_DISTRIBUTE,
        Mode.BROADCAST,
        Mode.UNION,
    ]
    assert found.operators[4].finished
    assert {s.index: s.finished for s in found.operators[5].subtasks} == {0: False, 2: True}
    names = [(o.name, o.uid) for o in found.operators]
    named = [("op 1", "uid-1"), (None, "uid-2"), ("op 3", None), ("op 4", "uid-4"), ("done", "done"), (None, None)]
    assert names == (named if version >= 5 else [(None, None)] * 6)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (3, facts.KindFacts("savepoint", "canonical", None, certain=False)),
        (4, facts.KindFacts("checkpoint", None, None, certain=True)),
        (5, facts.KindFacts("savepoint", "canonical", "suspend", certain=True)),
        (6, facts.KindFacts("savepoint", "native", "terminate", certain=True)),
    ],
)
def test_the_kind_is_what_was_asked_for_or_a_guess_that_says_so(version: int, expected: facts.KindFacts) -> None:
    assert facts.kind(parse((DATA / "made" / f"v{version}" / "_metadata").read_bytes())) == expected


@pytest.mark.parametrize("version", [4, 5, 6])
def test_properties_may_be_javas_null(version: int) -> None:
    """The State Processor API calls the constructor of `CheckpointMetadata` without properties; Flink restores that."""
    file = min((DATA / "made" / f"v{version}").rglob("_metadata"))
    made = parse(file.read_bytes())
    assert made.tail is not None
    data = file.read_bytes().removesuffix(made.tail) + bytes.fromhex("ACED000570")
    found = parse(data)
    assert (found.properties, found.problem) == (None, None)
    assert encode(found) == data
    assert (facts.kind(found).kind, facts.kind(found).certain) == ("savepoint", True)
    for damaged in (data[:-1], data + b"p", data[:-1] + b"q"):
        assert parse(damaged).problem is not None


def test_a_uid_proves_itself_against_an_operators_hash() -> None:
    assert operator_id("totals") == "8eeed16b661251f13cfc6a3c5e75c420"
    old = parse((next((DATA / "old-1.20-hashmap-checkpoint").glob("*/chk-4")) / "_metadata").read_bytes())
    assert all(operator.uid is None for operator in old.operators)
    assert proved(["totals", "nobody"], [o.id for o in old.operators]) == {"8eeed16b661251f13cfc6a3c5e75c420": "totals"}


def test_bytes_that_are_no_text_are_nobodys_uid() -> None:
    assert proved([b"caf\xe9".decode("utf-8", "surrogateescape"), "totals"], [operator_id("totals")]) == {
        operator_id("totals"): "totals"
    }


def test_the_hash_is_murmur3_for_every_length_of_the_tail() -> None:
    # the verification value of the reference implementation: hashes of n bytes with seed 256 - n, hashed together
    keys = [mmh3_x64_128_digest(bytes(range(n)), 256 - n) for n in range(256)]
    assert int.from_bytes(mmh3_x64_128_digest(b"".join(keys))[:4], "little") == 0x6384BA69


# -- damage -----------------------------------------------------------------------------------------------


def test_a_file_cut_short_anywhere_is_damaged_or_has_lost_its_properties_alone() -> None:
    data = SMALL.read_bytes()
    whole = parse(data)
    assert whole.tail is not None
    for length in range(len(data)):
        if length < len(data) - len(whole.tail):
            with pytest.raises(Damaged):
                parse(data[:length])
        else:
            found = parse(data[:length])
            assert found.properties is None
            assert found.problem is not None
            assert found.operators == whole.operators


@pytest.mark.parametrize("flip", [0x01, 0x80, 0xFF])
def test_a_flipped_byte_gives_an_error_or_an_answer(flip: int) -> None:
    data = bytearray(SMALL.read_bytes())
    for i in range(len(data)):
        data[i] ^= flip
        with contextlib.suppress(FormatError):
            assert encode(parse(bytes(data))) == data
        data[i] ^= flip


def test_a_damaged_length_costs_no_memory() -> None:
    data = bytearray(SMALL.read_bytes())
    tracemalloc.start()
    try:
        for i in range(8, len(data) - 4):
            kept = data[i : i + 4]
            data[i : i + 4] = b"\x7f\xff\xff\xf0"
            with contextlib.suppress(FormatError):
                parse(bytes(data))
            data[i : i + 4] = kept
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@given(st.binary(max_size=200))
def test_bytes_of_any_kind_are_an_error_or_an_answer(data: bytes) -> None:
    for head in (b"", b"\x49\x60\x67\x2d\0\0\0\x06", b"\x49\x60\x67\x2d\0\0\0\x03"):
        with contextlib.suppress(FormatError):
            parse(head + data)


def test_an_error_says_the_offset_the_operator_the_subtask_and_the_field() -> None:
    data = SMALL.read_bytes()
    place = data.index(b"\x0c\0\0\0\0\0\0\0\x04")  # the first handle of key groups
    damaged = data[:place] + b"\x63" + data[place + 1 :]
    with pytest.raises(Damaged) as caught:
        parse(damaged, "chk-2/_metadata")
    said = str(caught.value)
    assert f"offset {place}" in said
    assert "unknown type 99" in said
    assert "subtask 0" in said
    assert "managed keyed state" in said
    assert "operators before it can be read" in said


@pytest.mark.parametrize(("version", "said"), [(1, "Flink 1.2 or older"), (8, "version 8"), (99, "version 99")])
def test_other_versions_are_refused_with_what_wrote_them(version: int, said: str) -> None:
    data = SMALL.read_bytes()
    with pytest.raises(UnsupportedVersion, match=said):
        parse(data[:4] + version.to_bytes(4, "big") + data[8:])


def test_an_empty_file_and_another_file_are_told_apart() -> None:
    with pytest.raises(Damaged, match="is empty"):
        parse(b"")
    with pytest.raises(Damaged, match="no metadata of Flink"):
        parse(b"PAR1" + bytes(100))


def test_handles_within_handles_have_an_end() -> None:
    header = b"\x49\x60\x67\x2d\0\0\0\x06" + bytes(12) + b"\0\0\0\x01" + bytes(4) + bytes(16)
    deep = b"\0\0\0\x01\0\0\0\x01" + (b"\x03" + bytes(8)) * 5000
    with pytest.raises(Damaged, match="deep"):
        parse(header + deep)


def test_a_java_object_with_loops_and_lies_is_an_error() -> None:
    tail = parse(SMALL.read_bytes()).tail or b""
    found = read_value(Reader(tail))
    assert isinstance(found, JavaObject)
    for i in range(len(tail)):
        for flip in (0x01, 0x08, 0xFF):
            with contextlib.suppress(Damaged):
                read_value(Reader(tail[:i] + bytes([tail[i] ^ flip]) + tail[i + 1 :]))


# -- text -------------------------------------------------------------------------------------------------


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_text_goes_through_modified_utf8_and_back(text: str) -> None:
    data = encode_utf(text)
    assert b"\0" not in data
    assert decode_utf(data) == text


@pytest.mark.parametrize("data", [b"\0", b"\xff", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", b"\xc1\x81"])
def test_what_java_does_not_write_is_no_text(data: bytes) -> None:
    with pytest.raises(UnicodeError):
        decode_utf(data)


# -- every version and every handle -----------------------------------------------------------------------

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
sizes = st.integers(0, 2**62)
signed = st.integers(-(2**63), 2**63 - 1)
offsets = st.lists(signed, max_size=4).map(tuple)
firsts = st.integers(0, 100)

files = st.one_of(
    st.builds(FileHandle, words, sizes),
    st.builds(RelativeHandle, words, sizes),
    st.builds(SegmentHandle, words, sizes, sizes, st.integers(0, 1), words),
    st.builds(InlineHandle, words, st.binary(max_size=20)),
    st.builds(EmptySegmentHandle),
)
streams: st.SearchStrategy[StreamHandle | None] = st.one_of(
    st.none(), files, st.builds(KeyGroupsHandle, st.just(3), firsts, offsets, files)
)
local = st.lists(st.builds(LocalFile, words, streams), max_size=3).map(tuple)
plain_keyed: st.SearchStrategy[KeyedHandle] = st.one_of(
    st.builds(KeyGroupsHandle, st.sampled_from([3, 7]), firsts, offsets, streams),
    st.builds(KeyGroupsHandle, st.just(12), firsts, offsets, streams, words),
    st.builds(IncrementalHandle, st.just(5), signed, words, firsts, firsts, st.none(), streams, local, local),
    st.builds(IncrementalHandle, st.just(11), signed, words, firsts, firsts, signed, streams, local, local, words),
    st.builds(
        InMemoryChangelogHandle,
        firsts,
        firsts,
        signed,
        signed,
        st.lists(st.builds(InMemoryChange, st.integers(-1, 99), st.binary(max_size=9)), max_size=3).map(tuple),
        words,
    ),
)
of_changes = st.one_of(
    st.none(),
    st.builds(FileHandle, words, sizes, st.just(True)),
    st.builds(RelativeHandle, words, sizes, st.just(True)),
)
parts = st.lists(st.builds(ChangeStream, sizes, of_changes), max_size=3).map(tuple)
file_changes = st.one_of(
    st.builds(FileChangelogHandle, st.just(10), firsts, firsts, parts, sizes, signed, words),
    st.builds(FileChangelogHandle, st.just(13), firsts, firsts, parts, sizes, signed, words, words),
)
several = st.lists(st.one_of(st.none(), plain_keyed, file_changes), max_size=2).map(tuple)
keyed = st.one_of(
    st.none(),
    plain_keyed,
    file_changes,
    st.builds(ChangelogHandle, st.just(8), firsts, firsts, signed, several, several, signed, st.none(), words),
    st.builds(ChangelogHandle, st.just(14), firsts, firsts, signed, several, several, signed, signed, words),
)
operator_states = st.one_of(
    st.none(),
    st.builds(
        OperatorStateHandle,
        st.lists(st.builds(OperatorPart, words, st.sampled_from(Mode), offsets), max_size=3).map(tuple),
        streams,
        st.one_of(st.none(), st.builds(MergedFolders, words, words, st.booleans())),
    ),
)


@st.composite
def channels(draw: st.DrawFn, typed: bool) -> ChannelHandle:
    subtask, stream, size = draw(firsts), draw(streams), draw(sizes)
    count = draw(st.integers(0, 3)) if typed and draw(st.booleans()) else None
    channel = st.builds(ChannelPart, firsts, firsts, st.just(size) if count is None else sizes, offsets)
    if count is None:
        return ChannelHandle(subtask, size, stream, (draw(channel),))
    found = tuple(draw(channel) for _ in range(count))
    packed = count.to_bytes(4, "big")
    for part in found:
        packed += part.gate.to_bytes(4, "big") + part.channel.to_bytes(4, "big") + part.size.to_bytes(8, "big")
        packed += len(part.offsets).to_bytes(4, "big")
        packed += b"".join(offset.to_bytes(8, "big", signed=True) for offset in part.offsets)
    return ChannelHandle(subtask, size, stream, found, packed)


@st.composite
def metadata(draw: st.DrawFn) -> Metadata:
    version = draw(st.integers(2, 7))
    old = version == 2
    some = st.lists(channels(version >= 6), max_size=2).map(tuple) if not old else st.just(())
    operators = []
    for _ in range(draw(st.integers(0, 3))):
        width = draw(st.integers(1, 4))
        subtasks = []
        for index in draw(st.permutations(range(width))):
            if not old and draw(st.booleans()):
                subtasks.append(Subtask(index, True))
                continue
            state = (draw(operator_states), draw(operator_states), draw(keyed), draw(keyed), draw(some), draw(some))
            reference = draw(st.one_of(st.none(), signed)) if version >= 7 else None
            subtasks.append(Subtask(index, False, *state, reference, draw(signed) if old else 0))
        finished = not old and draw(st.booleans())
        operators.append(
            OperatorState(
                id=draw(st.binary(min_size=16, max_size=16)).hex(),
                name=draw(words) or None if version >= 5 else None,
                uid=draw(words) or None if version >= 5 else None,
                parallelism=width,
                max_parallelism=draw(st.integers(width, 32768)),
                coordinator=None if old else draw(st.one_of(st.none(), st.builds(InlineHandle, words, st.binary()))),
                subtasks=() if finished else tuple(subtasks),
                finished=finished,
                chain_length=draw(firsts) if old else 0,
            )
        )
    masters = draw(st.lists(st.builds(MasterState, st.integers(0, 9), words, st.binary(max_size=9)), max_size=2))
    said = draw(st.sampled_from([properties.CHECKPOINT, properties.savepoint("NATIVE")])) if version >= 4 else None
    tail = properties.encode(said) if said is not None else None
    return Metadata(version, draw(st.integers(0, 2**62)), tuple(masters), tuple(operators), said, tail)


@given(metadata())
@settings(max_examples=examples(100))
def test_every_version_and_every_handle_goes_into_bytes_and_back(found: Metadata) -> None:
    assert parse(encode(found)) == found


def test_what_a_version_has_no_bytes_for_is_not_written() -> None:
    whole = parse(SMALL.read_bytes())
    with pytest.raises(Unwritable, match="properties"):
        encode(Metadata(6, 1, (), whole.operators))
    merged = ChannelHandle(0, 0, None, (), b"\0\0\0\0")
    subtask = Subtask(0, input_channels=(merged,))
    operator = OperatorState("0" * 32, None, None, 1, 1, None, (subtask,))
    with pytest.raises(Unwritable, match="version 6"):
        encode(Metadata(3, 1, (), (operator,)))
