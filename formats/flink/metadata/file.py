"""`_metadata` between bytes and values: header, operators, subtasks, tail.

Versions 2 to 7 are read and written; 1 (Flink 1.2 and older) and versions that are newer are refused. Reading never
takes what does not fit: an error is Damaged with the offset, the operator, the subtask and the field.
`encode(parse(data)) == data` for every file that Flink writes.
"""

from __future__ import annotations

from typing import Final

from formats.errors import Damaged, UnsupportedVersion
from formats.flink.bytes import Reader, Writer
from formats.flink.ids import OperatorHash
from formats.flink.metadata import properties
from formats.flink.metadata.handle_codec import (
    MAX_KEY_GROUPS,
    Unwritable,
    read_channels,
    read_keyed,
    read_operator,
    read_stream,
    write_channels,
    write_keyed,
    write_operator,
    write_stream,
)
from formats.flink.metadata.handles import InlineHandle, MasterState, Metadata, OperatorState, Subtask

FILE: Final = "_metadata"

MAGIC: Final = 0x4960672D
_MASTER_MAGIC: Final = 0xC96B1696 - (1 << 32)

OLDEST, NEWEST = 2, 7
"""Versions that are read."""

WRITTEN_BY: Final = {
    1: "Flink 1.2 or older",
    2: "Flink 1.3 to 1.10",
    3: "Flink 1.11 to 1.15",
    4: "Flink 1.16 to 1.20",
    5: "Flink 2.0",
    6: "Flink 2.1 to 2.3",
    7: "a Flink newer than 2.3",
}
"""Which Flink can have written a version of the file."""


def kryo_of(metadata: Metadata) -> int:
    """The major version of Kryo of the Flink that wrote the file: 2 in Flink 1.x, 5 in Flink 2.x."""
    return 2 if metadata.version <= 4 else 5


def parse(data: bytes, path: str | None = None) -> Metadata:
    """The whole file.

    path: what messages call it. A tail that cannot be understood is no error: `properties` is None then, and `problem`
    says why. Raises Damaged, and UnsupportedVersion for version 1 and those after 7.
    """
    r = Reader(data, path)
    version = _header(r)
    checkpoint = r.i64("checkpoint id")
    if checkpoint < 0:
        raise r.error(f"a checkpoint id of {checkpoint}", "checkpoint id", r.pos - 8)
    masters = tuple(_read_master(r, i) for i in range(r.count(8, "number of master states")))
    operators = []
    number = r.count(28, "number of operators")
    for i in range(number):
        r.place = [f"operator {i + 1} of {number}"]
        try:
            operators.append(_read_operator(r, version))
        except Damaged as error:
            whole = f"{error.message}; the {i} operators before it can be read" if i else error.message
            raise Damaged(whole, path=path, hint=error.hint) from None
    r.place = []
    if version < 4:
        if r.left:
            raise r.error(f"{r.left} bytes after the last operator", "end of the file")
        return Metadata(version, checkpoint, masters, tuple(operators))
    # kept as it stands, so that a copy writes what Flink wrote, whether it can be understood or not
    tail = data[r.pos :]
    problem = None
    try:
        parsed = properties.parse(r)
    except Damaged as error:
        parsed, problem = None, error.message
    return Metadata(version, checkpoint, masters, tuple(operators), parsed, tail, problem)


def encode(metadata: Metadata) -> bytes:
    """The file's bytes. The tail is written as it was read; Unwritable if the version needs one and there is none."""
    w = Writer()
    version = metadata.version
    w.i32(MAGIC)
    w.i32(version)
    w.i64(metadata.checkpoint_id)
    w.i32(len(metadata.master_states))
    for master in metadata.master_states:
        _write_master(w, master)
    w.i32(len(metadata.operators))
    for operator in metadata.operators:
        _write_operator(w, operator, version)
    if version >= 4:
        if metadata.tail is None:
            raise Unwritable(f"version {version} of {FILE} ends with properties, and none are given")
        w.raw(metadata.tail)
    return bytes(w.data)


def _header(r: Reader) -> int:
    if not r.left:
        raise r.error("is empty", "magic number")
    magic = r.i32("magic number")
    if magic != MAGIC:
        message = f"begins with 0x{magic & 0xFFFFFFFF:08x}, not with 0x{MAGIC:08x}: no metadata of Flink, or damaged"
        raise r.error(message, "magic number", 0)
    version = r.i32("version")
    if OLDEST <= version <= NEWEST:
        return version
    if version == 1:
        raise UnsupportedVersion(
            f"has version 1, written by {WRITTEN_BY[1]}; versions {OLDEST} to {NEWEST} are read",
            path=r.path,
            hint="restore it with Flink 1.3 to 1.10 and take a savepoint there",
        )
    raise UnsupportedVersion(
        f"has version {version}; versions {OLDEST} to {NEWEST} are read",
        path=r.path,
        hint="a newer abs may read it, or its header is damaged",
    )


def _read_master(r: Reader, i: int) -> MasterState:
    r.place = [f"master state {i + 1}"]
    at = r.pos
    magic = r.i32("magic number")
    if magic != _MASTER_MAGIC:
        raise r.error(
            f"begins with 0x{magic & 0xFFFFFFFF:08x}, not with 0x{_MASTER_MAGIC & 0xFFFFFFFF:08x}", "magic", at
        )
    length = r.count(1, "length")
    end = r.pos + length
    version, name = r.i32("version"), r.utf("name")
    data = r.take(r.i32("data"), "data")
    if r.pos != end:
        raise r.error(f"has {r.pos - end:+d} bytes, compared with its length of {length}", "length")
    r.place = []
    return MasterState(version, name, data)


def _write_master(w: Writer, state: MasterState) -> None:
    inner = Writer()
    inner.i32(state.version)
    inner.utf(state.name)
    inner.i32(len(state.data))
    inner.raw(state.data)
    w.i32(_MASTER_MAGIC)
    w.i32(len(inner.data))
    w.raw(bytes(inner.data))


def _read_operator(r: Reader, version: int) -> OperatorState:
    name = uid = None
    if version >= 5:
        name, uid = r.utf("operator name") or None, r.utf("operator uid") or None
    ident = OperatorHash(r.take(16, "operator id").hex())
    r.place.append(repr(name or uid) if name or uid else ident)
    at = r.pos
    parallelism, most = r.i32("parallelism"), r.i32("max parallelism")
    if not 0 < parallelism <= MAX_KEY_GROUPS:
        raise r.error(f"a parallelism of {parallelism}", "parallelism", at)
    if not (parallelism <= most <= MAX_KEY_GROUPS or most == -1):
        raise r.error(f"a max parallelism of {most} with a parallelism of {parallelism}", "max parallelism", at + 4)
    chain = r.i32("chain length") if version == 2 else 0
    at = r.pos
    coordinator = read_stream(r, "coordinator state") if version >= 3 else None
    if coordinator is not None and not isinstance(coordinator, InlineHandle):
        raise r.error("coordinator state that is not inline", "coordinator state", at)
    at = r.pos
    number = r.i32("number of subtasks")
    if number == -1 and version >= 3:
        return OperatorState(ident, name, uid, parallelism, most, coordinator, (), True, chain)
    if not 0 <= number <= parallelism:
        raise r.error(f"{number} subtasks with a parallelism of {parallelism}", "number of subtasks", at)
    place = len(r.place)
    subtasks = []
    seen: set[int] = set()
    for _ in range(number):
        del r.place[place:]
        subtask = _read_subtask(r, version, parallelism)
        if subtask.index in seen:
            raise r.error(f"a second subtask {subtask.index}", "subtask index")
        seen.add(subtask.index)
        subtasks.append(subtask)
    return OperatorState(ident, name, uid, parallelism, most, coordinator, tuple(subtasks), False, chain)


def _write_operator(w: Writer, operator: OperatorState, version: int) -> None:
    if version >= 5:
        w.utf(operator.name or "")
        w.utf(operator.uid or "")
    w.raw(bytes.fromhex(operator.id))
    w.i32(operator.parallelism)
    w.i32(operator.max_parallelism)
    if version == 2:
        w.i32(operator.chain_length)
    else:
        write_stream(w, operator.coordinator)
    if operator.finished:
        w.i32(-1)
        return
    w.i32(len(operator.subtasks))
    for subtask in operator.subtasks:
        _write_subtask(w, subtask, version)


def _read_subtask(r: Reader, version: int, parallelism: int) -> Subtask:
    at = r.pos
    index = r.i32("subtask index")
    finished = index < 0 and version >= 3
    if finished:
        index = -index - 1
    if not 0 <= index < parallelism:
        raise r.error(f"subtask {index} of an operator with a parallelism of {parallelism}", "subtask index", at)
    if finished:
        return Subtask(index, True)
    r.place.append(f"subtask {index}")
    legacy = 0
    if version == 2:
        legacy = r.i64("duration")
        if (old := r.i32("legacy state")) != 0:
            raise r.error(f"{old} states of the kind that Flink gave up in 1.4", "legacy state", r.pos - 4)
    managed = read_operator(r, "managed operator state")
    raw = read_operator(r, "raw operator state")
    keyed = read_keyed(r, "managed keyed state")
    raw_keyed = read_keyed(r, "raw keyed state")
    if version == 2:
        return Subtask(index, False, managed, raw, keyed, raw_keyed, legacy=legacy)
    inputs = read_channels(r, "input channel state", typed=version >= 6, output=False)
    outputs = read_channels(r, "result subpartition state", typed=version >= 6, output=True)
    reference = None
    if version >= 7 and r.flag("whether it refers to a checkpoint"):
        reference = r.i64("checkpoint that it refers to")
    return Subtask(index, False, managed, raw, keyed, raw_keyed, inputs, outputs, reference)


def _write_subtask(w: Writer, subtask: Subtask, version: int) -> None:
    if subtask.finished:
        w.i32(-subtask.index - 1)
        return
    w.i32(subtask.index)
    if version == 2:
        w.i64(subtask.legacy)
        w.i32(0)
    write_operator(w, subtask.managed_operator)
    write_operator(w, subtask.raw_operator)
    write_keyed(w, subtask.managed_keyed)
    write_keyed(w, subtask.raw_keyed)
    if version == 2:
        return
    write_channels(w, subtask.input_channels, typed=version >= 6, output=False)
    write_channels(w, subtask.output_channels, typed=version >= 6, output=True)
    if version >= 7:
        w.u8(subtask.ref_checkpoint is not None)
        if subtask.ref_checkpoint is not None:
            w.i64(subtask.ref_checkpoint)
