"""Values of Kryo: bytes that Flink 1.20 (Kryo 2.24) and Flink 2.3 (Kryo 5.6) wrote of classes of the JDK."""

from __future__ import annotations

import contextlib
import json
import lzma
import random
import time
from typing import Any

import pytest

from formats.errors import FormatError
from formats.flink.bytes import Reader, Writer
from formats.flink.state.keys import hash_of
from formats.flink.types.codecs import codec
from formats.flink.types.kryo.names import BOXES, COLLECTIONS, ENUMS, MAPS
from formats.flink.types.kryo.values import MAY_HIDE
from formats.flink.types.serializers import Snapshot, Unknown, read_versioned
from formats.flink.types.values import BROKEN, Codec, HiddenValue
from tests.support.flink.truth import DATA

VECTORS: list[dict[str, Any]] = [
    json.loads(line) for line in lzma.decompress((DATA / "kryo.jsonl.xz").read_bytes()).splitlines()
]
OPAQUE = {"opaque": True}
UNREAD = {(2, "sun.nio.cs.UTF_8")}
"""Classes of the JDK that are not read: the fields of a Charset are those of the Java that wrote it."""


def made(vector: dict[str, Any]) -> Codec:
    reader = Reader(bytes.fromhex(vector["snapshot"]))
    reader.kryo = vector["kryo"]
    found = codec(read_versioned(reader))
    assert reader.left == 0
    return found


def readable(vector: dict[str, Any]) -> bool:
    return vector["is"] != OPAQUE and (vector["kryo"], vector["name"]) not in UNREAD


@pytest.mark.parametrize("version", [2, 5])
def test_values_of_the_jdk_are_read_as_what_they_were(version: int) -> None:
    wrong = []
    read = 0
    for vector in VECTORS:
        if vector["kryo"] != version or not readable(vector):
            continue
        found, data = made(vector), bytes.fromhex(vector["hex"])
        try:
            value, end = found.read(data + b"what follows", 0)
        except (HiddenValue, *BROKEN) as error:
            wrong.append((vector["name"], vector["class"], repr(error)))
            continue
        if found.hides is not None:  # of its class may be anything: JSON
            value = json.loads(value) if value is not None else None
        if (value, end) != (vector["is"], len(data)):
            wrong.append((vector["name"], vector["class"], f"{value!r} is {vector['is']!r}, {end} of {len(data)}"))
        read += 1
    assert wrong == []
    assert read > 400


def test_what_only_the_job_has_is_hidden_and_never_guessed() -> None:
    hidden = [vector for vector in VECTORS if not readable(vector)]
    assert {vector["kryo"] for vector in hidden} == {2, 5}
    for vector in hidden:
        with pytest.raises(HiddenValue):
            made(vector).read(bytes.fromhex(vector["hex"]), 0)


def test_a_class_that_leaves_no_choice_has_a_column_of_text_alone() -> None:
    for vector in VECTORS:
        found = made(vector)
        if vector["class"] in ("java.util.UUID", "java.time.LocalDateTime", "java.math.BigDecimal"):
            assert (found.shape, found.hides) == ("string", None)
        elif vector["class"] in ("java.lang.Object", "java.util.ArrayList"):
            assert (found.shape, found.hides) == ("string", MAY_HIDE)


def test_a_value_cut_short_is_broken_and_never_another_value_of_all_its_bytes() -> None:
    for vector in VECTORS:
        found, data = made(vector), bytes.fromhex(vector["hex"])
        for length in range(min(len(data), 200)):
            try:
                _, end = found.read(data[:length], 0)
            except (HiddenValue, *BROKEN):
                continue
            assert end > length or vector["name"] == "java.util.Locale", "a part was taken for the whole"


def test_a_flipped_bit_gives_a_value_or_is_broken() -> None:
    for number, vector in enumerate(VECTORS):
        dice = random.Random(number)
        found, data = made(vector), bytes.fromhex(vector["hex"])
        for _ in range(20):
            at = dice.randrange(len(data))
            with contextlib.suppress(HiddenValue, *BROKEN):
                found.read(data[:at] + bytes([data[at] ^ 1 << dice.randrange(8)]) + data[at + 1 :], 0)


def test_a_flipped_snapshot_is_read_or_refused() -> None:
    for number, vector in enumerate(VECTORS[::9]):
        dice = random.Random(number)
        data = bytes.fromhex(vector["snapshot"])
        for _ in range(60):
            at = dice.randrange(len(data))
            with contextlib.suppress(FormatError, Unknown):
                codec(read_versioned(Reader(data[:at] + bytes([data[at] ^ 1 << dice.randrange(8)]) + data[at + 1 :])))


HASHED = {
    "java.util.UUID",
    "java.math.BigInteger",
    "java.math.BigDecimal",
    "java.time.LocalDate",
    "java.time.LocalTime",
    "java.time.LocalDateTime",
    "java.time.Instant",
    "java.util.Date",
}


def test_keys_of_usual_classes_have_javas_hash() -> None:
    seen = set()
    for vector in VECTORS:
        hashed = hash_of(made(vector))
        assert (hashed is not None) == (vector["class"] in HASHED), vector["class"]
        if hashed is not None:
            data = bytes.fromhex(vector["hex"])
            value, end = made(vector).read(data, 0)
            assert hashed(data, 0, end, value) == vector["hash"] & 0xFFFFFFFF, vector["is"]
            seen.add(vector["class"])
    assert seen == HASHED


# -- serializers of the job's own -------------------------------------------------------------------------


def snapshot(version: int, about: str, registered: tuple[str, ...] = (), custom: tuple[str, ...] = ()) -> Snapshot:
    names = (about, *registered)
    return Snapshot("kryo", "", 2, about, names=names, others=tuple((name, None) for name in custom), number=version)


def vector_of(version: int, name: str) -> bytes:
    """A value of a class, of a serializer of Object (so that its class is written by its name)."""
    return next(
        bytes.fromhex(v["hex"])
        for v in VECTORS
        if (v["kryo"], v["name"], v["class"]) == (version, name, "java.lang.Object")
    )


@pytest.mark.parametrize("version", [2, 5])
def test_a_serializer_of_the_jobs_own_is_not_taken_for_kryos(version: int) -> None:
    data = vector_of(version, "java.time.Duration")
    assert codec(snapshot(version, "java.lang.Object")).read(data, 0)[1] == len(data)
    for custom in ("java.time.Duration", "java.io.Serializable"):  # an interface may be any class's
        with pytest.raises(HiddenValue):
            codec(snapshot(version, "java.lang.Object", custom=(custom,))).read(data, 0)
    assert codec(snapshot(version, "java.time.Duration", custom=("java.time.Duration",))).kind == "opaque"


@pytest.mark.parametrize("version", [2, 5])
def test_registered_classes_are_numbered_in_the_order_of_the_snapshot(version: int) -> None:
    body = vector_of(version, "java.time.Duration").partition(b"Duratio\xee")[2]
    # Object is 85, UUID has a number already, the next is 86; 2 more stand in the bytes
    found = codec(snapshot(version, "java.lang.Object", ("java.util.UUID", "java.time.Duration")))
    value, end = found.read(bytes([86 + 2]) + body, 0)
    assert (json.loads(value), end) == ("PT1H1M1.000000005S", 1 + len(body))
    with pytest.raises(ValueError, match="registered"):
        found.read(bytes([87 + 2]) + body, 0)
    with pytest.raises(HiddenValue):  # one of Scala's, where that is on the class path
        found.read(bytes([30 + 2]) + body, 0)


# -- hostile bytes ----------------------------------------------------------------------------------------


def named(name: str) -> bytes:
    """The first class of a value, by its name."""
    data = name.encode()
    return b"\1\0" + data[:-1] + bytes([data[-1] | 0x80])


def test_a_value_that_holds_itself_many_times_over_is_not_spelt_out() -> None:
    """A list of two references to a list of two references ...: forty bytes a level, 2**60 parts."""
    data = named("java.util.ArrayList") + b"\1"
    for _ in range(60):
        data += b"\2" + b"\1\0\1"
    data += b"\0"
    for depth in range(60, 0, -1):
        data += b"\1\0" + bytes([depth + 2])
    begin = time.process_time()
    with pytest.raises(HiddenValue, match="parts"):
        codec(snapshot(2, "java.lang.Object")).read(data, 0)
    assert time.process_time() - begin < 60


@pytest.mark.parametrize("version", [2, 5])
def test_lengths_and_depths_that_the_bytes_do_not_bear_are_refused(version: int) -> None:
    found = codec(snapshot(version, "java.lang.Object"))
    for name in ("java.util.ArrayList", "java.util.HashMap", "[J", "[B", "java.util.BitSet", "[Ljava.lang.Object;"):
        with pytest.raises(BROKEN):
            found.read(named(name) + b"\1" + b"\xfd\xff\xff\xff\7" * 2, 0)
    deep = named("java.util.Optional") + b"\1" + b"\1\0\1" * 5000
    with pytest.raises(BROKEN):
        found.read(deep, 0)


def test_the_tables_of_names_do_not_overlap() -> None:
    groups = [set(BOXES), set(COLLECTIONS), set(MAPS), set(ENUMS)]
    assert sum(map(len, groups)) == len(set().union(*groups))


def test_a_snapshot_with_a_registration_that_is_lost_names_no_serializer() -> None:
    writer = Writer()
    writer.utf("java.lang.Object")
    for names in (("java.lang.Object", "lost.Class"), (), ()):
        writer.i64(0)
        writer.i32(len(names))
        for name in names:
            writer.utf(name)
            writer.u8(0)
            writer.u8(0)
    data = b"".join(
        (
            len(name := b"org.apache.flink.api.java.typeutils.runtime.kryo.KryoSerializerSnapshot").to_bytes(2, "big"),
            name,
            (2).to_bytes(4, "big"),
            bytes(writer.data),
        )
    )
    found = read_versioned(Reader(data))
    assert dict(found.others).keys() == {"java.lang.Object", "lost.Class"}
