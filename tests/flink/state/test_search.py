"""The search for states behind values that only the job can read, in heap state: what it finds and what it may cost."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable

import pytest

from formats.flink.metadata.handles import InlineHandle, KeyGroupsHandle
from formats.flink.state import keyed_heap
from formats.flink.state.keyed_tables import KeyedState, RowBlock
from formats.flink.state.keys import key_group, long_hash
from formats.flink.state.meta import KeyedMeta, StateInfo, StateKind
from formats.flink.types.serializers import Snapshot
from tests.support.flink.streams import Inline

PREFIX = b"m"  # offset 0 says that a group is not there


def plain(kind: str) -> Snapshot:
    return Snapshot(kind, "", 3)


MINE = Snapshot("opaque", "Mine", 2, "my.Class")
VOID = plain("voidnamespace")
STATES = (("first", MINE), ("numbers", plain("long")), ("second", MINE), ("texts", plain("string")))
META = KeyedMeta(
    False,
    plain("long"),
    tuple(StateInfo(name, StateKind.KEY_VALUE, "VALUE", namespace=VOID, value=value) for name, value in STATES),
    0,
)


def heap(keys: int, groups: int, values: tuple[Callable[[int], bytes], ...]) -> KeyGroupsHandle:
    """Heap state of all STATES, each with every key."""
    by_group: dict[int, list[int]] = {}
    for key in range(keys):
        by_group.setdefault(key_group(long_hash(key), groups), []).append(key)
    data, offsets = PREFIX, []
    for group in range(groups):
        offsets.append(len(data))
        mine = by_group.get(group, [])
        parts = [struct.pack(">i", group)]
        for index, value in enumerate(values):
            parts.append(struct.pack(">hi", index, len(mine)))
            parts += [b"\0" + struct.pack(">q", key) + value(key) for key in mine]
        data += b"".join(parts)
    return KeyGroupsHandle(12, 0, tuple(offsets), InlineHandle("x", data), "id")


def noise(key: int) -> bytes:
    """A value that looks like nothing."""
    return b"\x57\1" + random.Random(key).randbytes(24)


def zeros(key: int) -> bytes:
    """A value that looks like the beginnings of states."""
    return b"\x57\1" + struct.pack(">hihi", key % 4, 0, (key + 1) % 4, 1) + bytes(8)


def small(key: int) -> bytes:
    """A value between keys of which most bytes are 0, as the places before states are."""
    return b"\x57\1" + struct.pack(">i", key % 50)


def numbers(key: int) -> bytes:
    return struct.pack(">q", key)


def texts(key: int) -> bytes:
    return b"\4abc"


def read(handle: KeyGroupsHandle, groups: int) -> tuple[KeyedState, list[RowBlock]]:
    state = KeyedState(META, "state", groups)
    return state, list(keyed_heap.read(handle, Inline(), state, None, None))


@pytest.mark.parametrize("hidden", [noise, zeros, small])
@pytest.mark.parametrize("groups", [1, 4, 128])
def test_states_behind_several_hidden_ones_are_found_again(hidden: Callable[[int], bytes], groups: int) -> None:
    keys = 2000
    _, blocks = read(heap(keys, groups, (hidden, numbers, hidden, texts)), groups)
    assert [block.problem for block in blocks if block.problem is not None] == []
    rows = {name: {k: v for b in blocks if b.table.name == name for k, v in zip(b.keys, b.values, strict=True)}
            for name, _ in STATES}  # fmt: skip
    for state, due in (("numbers", {key: key for key in range(keys)}), ("texts", dict.fromkeys(range(keys), "abc"))):
        assert rows[state] == due
    lost = sum(block.hidden.resumed is False and bool(block.hidden.states) for block in blocks if block.hidden)
    assert lost == 0


def work(keys: int, groups: int, hidden: Callable[[int], bytes]) -> float:
    """What was spent for a byte of a state all of which was found."""
    handle = heap(keys, groups, (hidden, numbers, hidden, texts))
    assert handle.stream is not None
    state, blocks = read(handle, groups)
    assert all(block.hidden.resumed or not block.hidden.states for block in blocks if block.hidden)
    return (keyed_heap._MOST - state.patience) / handle.stream.size


@pytest.mark.parametrize("hidden", [noise, zeros, small])
@pytest.mark.parametrize("groups", [1, 4, 128])
def test_the_work_grows_as_the_state_does_and_no_faster(groups: int, hidden: Callable[[int], bytes]) -> None:
    less, more = work(2000, groups, hidden), work(8000, groups, hidden)
    assert more <= 1.1 * less
    assert more < 1.2


def test_numbers_that_look_like_the_beginnings_of_long_states_are_not_read_again_and_again() -> None:
    """Those above 65,536 do, and all keys are in the one key group."""
    assert work(140_000, 1, small) < 1.5


def test_the_work_is_bounded_for_the_whole_of_a_handle(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = heap(3000, 16, (noise, numbers, noise, texts))
    monkeypatch.setattr(keyed_heap, "_MOST", 20_000)
    state, blocks = read(handle, 16)
    assert state.patience <= 0
    hidden = [block.hidden for block in blocks if block.hidden is not None]
    assert any(part.resumed for part in hidden), "the first groups were searched"
    assert any(part.states for part in hidden), "and what was not is said"


def test_bytes_made_to_be_searched_for_long_are_not() -> None:
    """Each place looks like a state whose entries have keys of their group, and turns out not to be one at its end."""
    entry = b"\0" + struct.pack(">q", 0)
    bait = b"".join(struct.pack(">hi", index, 50) + entry for index in (1, 2, 3)) * 20_000
    data = PREFIX + struct.pack(">i", 0) + struct.pack(">hi", 0, 1) + entry + b"\x57\1" + bait
    handle = KeyGroupsHandle(12, 0, (len(PREFIX),), InlineHandle("x", data), "id")
    begin = time.process_time()
    _, blocks = read(handle, 1)
    assert time.process_time() - begin < 60
    assert [block.hidden.resumed for block in blocks if block.hidden] == [False]
