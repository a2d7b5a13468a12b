"""Queues, routes and frames between tasks."""

from __future__ import annotations

import itertools
import random
import selectors
import socket
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abscli.engine.channels.inbox import Barrier, Batch, Inbox
from abscli.engine.channels.line import Line
from abscli.engine.channels.routing import Route
from abscli.engine.channels.wire import HEADER, Connection, Frame
from abscli.protocol.events import ProtocolError
from formats.job.model import Edge, Partition, key_group_range
from tests.tiers import examples


def batch(first: int, count: int) -> Batch:
    return Batch(first, pa.record_batch([pa.array(range(first, first + count))], names=["n"]))


@given(st.lists(st.one_of(st.integers(1, 50), st.none()), max_size=60), st.integers(0, 2000), st.integers(0, 2**32))
def test_what_goes_into_a_queue_comes_out_in_order_also_over_the_disk(
    items: list[int | None], spill_bytes: int, seed: int
) -> None:
    rng = random.Random(seed)
    inbox = Inbox("a->b", back=True, spill_bytes=spill_bytes)
    put: list[int] = []
    got: list[int] = []
    following = 1
    for epoch, count in enumerate(items):
        if count is None:
            inbox.put(Barrier(epoch))
            put.append(-epoch)
        else:
            inbox.put(batch(following, count))
            put += range(following, following + count)
            following += count
        while inbox and rng.random() < 0.4:
            take(inbox, got)
    while inbox:
        take(inbox, got)
    inbox.close()
    assert got == put
    assert inbox.bytes == inbox.queued == 0


@given(
    st.lists(st.one_of(st.integers(1, 50), st.none()), max_size=30),
    st.integers(0, 2000),
    st.integers(0, 400),
    st.integers(0, 400),
)
def test_a_sender_that_starts_again_leaves_only_what_it_does_not_send_again(
    items: list[int | None], spill_bytes: int, received: int, sent: int
) -> None:
    """R10: of what waits, records up to the one that its snapshot had sent stay; barriers go; the next one is next."""
    inbox = Inbox("a->b", back=True, spill_bytes=spill_bytes)
    following = 1
    for epoch, count in enumerate(items):
        inbox.put(Barrier(epoch) if count is None else batch(following, count))
        following += count or 0
    got: list[int] = []
    while inbox and len(got) < received:
        take(inbox, got)
    came = [number for number in got if number > 0]
    inbox.rewind(sent)
    again = max(sent + 1, 1)
    inbox.put(batch(again, 5))
    left: list[int] = []
    while inbox:
        take(inbox, left)
    inbox.close()
    first = max(came, default=0) + 1
    assert left == [*range(first, min(sent, following - 1) + 1), *range(again, again + 5)]
    assert inbox.bytes == inbox.queued == 0


def take(inbox: Inbox, got: list[int]) -> None:
    item = inbox.take()
    if isinstance(item, Barrier):
        got.append(-item.epoch)
    else:
        values = item.rows.column("n").to_pylist()
        assert values[0] == item.first
        got += values


@pytest.mark.parametrize("first", [0, 1, 2, 4, 9])
def test_a_gap_or_a_repetition_is_an_error(first: int) -> None:
    inbox = Inbox("a->b", back=False)
    inbox.put(batch(1, 2))
    if first == 3:
        inbox.put(batch(first, 1))
        return
    with pytest.raises(ProtocolError, match=f"expected record 3, got record {first}"):
        inbox.put(batch(first, 1))

@given(st.lists(st.integers(1, 50), min_size=1, max_size=20), st.integers(0, 2000), st.data())
def test_batches_are_cut_again_as_they_were(counts: list[int], spill_bytes: int, data: st.DataObject) -> None:
    """`take_rows` waits for as many as were taken at once, over the ends of what was put in, but not over a barrier."""
    inbox = Inbox("a->b", back=True, spill_bytes=spill_bytes)
    total, following = sum(counts), 1
    todo = data.draw(st.lists(st.integers(1, 70), max_size=40).map(lambda sizes: [s for s in sizes if s <= total]))
    got: list[int] = []
    for count in counts:
        inbox.put(batch(following, count))
        following += count
        while todo and (came := inbox.take_rows(todo[0])) is not None:
            assert came.rows.num_rows == todo.pop(0)
            assert came.first == len(got) + 1
            got += came.rows["n"].to_pylist()
    assert got == list(range(1, len(got) + 1))
    left = total - len(got)
    inbox.put(Barrier(7))
    inbox.put(Barrier(8))
    if left:
        with pytest.raises(ProtocolError, match="records in the queue, got barrier 7"):
            inbox.take_rows(left + 1)
        with pytest.raises(ProtocolError, match=rf"expected barrier 7 in the queue, got record {len(got) + 1}"):
            inbox.take_barrier(7)
        assert inbox.take_rows(left) is not None
    assert inbox.take_barrier(8) == Barrier(8)  # the one before it had been taken before the copy
    assert inbox.take_barrier(9) is None
    assert inbox.bytes == inbox.queued == 0
    inbox.close()



def test_a_blocked_queue_has_nothing_to_take() -> None:
    inbox = Inbox("a->b", back=False)
    inbox.put(batch(1, 1))
    inbox.blocked = True
    assert not inbox
    inbox.blocked = False
    assert inbox


def route(partition: Partition, p: int, turn: int = 0) -> Route:
    key = ("n",) if partition is Partition.HASH else ()
    return Route(Edge("a", "b", partition, key), 0, p, 16, turn=turn)


def spread(partition: Partition, p: int, values: list[int], cuts: list[int]) -> dict[str, list[int]]:
    """Which rows each channel gets when the rows come in batches that end at `cuts`."""
    r = route(partition, p)
    found: dict[str, list[int]] = {channel: [] for channel in r.channels}
    bounds = sorted({0, len(values), *(c for c in cuts if c < len(values))})
    for start, end in itertools.pairwise(bounds):
        rows = pa.record_batch([pa.array(values[start:end], pa.int64())], names=["n"])
        for channel, part in r.split(rows):
            found[channel] += part.column("n").to_pylist()
    return found


@given(
    st.sampled_from([Partition.HASH, Partition.REBALANCE, Partition.BROADCAST]),
    st.integers(1, 5),
    st.lists(st.integers(0, 30), max_size=40),
    st.lists(st.integers(1, 40), max_size=5),
)
def test_routes_do_not_depend_on_where_batches_end(
    partition: Partition, p: int, values: list[int], cuts: list[int]
) -> None:
    whole = spread(partition, p, values, [])
    assert spread(partition, p, values, cuts) == whole
    if partition is Partition.BROADCAST:
        assert all(rows == values for rows in whole.values())
        return
    assert sorted(row for rows in whole.values() for row in rows) == sorted(values)
    if partition is Partition.REBALANCE:
        assert list(whole.values()) == [values[j::p] for j in range(p)]
    else:
        owners: dict[int, str] = {}
        for channel, rows in whole.items():
            for row in rows:
                assert owners.setdefault(row, channel) == channel


def test_a_key_goes_to_the_task_that_owns_its_key_group() -> None:
    from formats.native.hashing import key_groups

    values = list(range(500))
    for p in (1, 3, 5, 16):
        for j, rows in enumerate(spread(Partition.HASH, p, values, []).values()):
            groups = set(key_groups([pa.array(rows, pa.int64())], 16).tolist())
            assert groups <= set(key_group_range(j, p, 16))


class Pair:
    """Two connections over a socket pair, in one selector."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        left, self.raw = socket.socketpair()
        self.frames: list[tuple[Frame, int, bytes]] = []
        self.closed = False
        self.left = Connection(
            Line(left), self.selector, lambda k, n, p: self.frames.append((k, n, bytes(p))), self._on_close
        )

    def _on_close(self) -> None:
        self.closed = True

    def turn(self) -> None:
        for key, mask in self.selector.select(0):
            key.data(mask)

    def close(self) -> None:
        self.left.close()
        self.raw.close()
        self.selector.close()


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2**63), st.binary(max_size=300)), max_size=8), st.data())
def test_frames_arrive_whole_however_they_are_cut(
    frames: list[tuple[int, int, bytes]], data: st.DataObject
) -> None:
    pair = Pair()
    stream = b"".join(HEADER.pack(kind, number, len(payload)) + payload for kind, number, payload in frames)
    try:
        while stream:
            size = data.draw(st.integers(1, len(stream)))
            pair.raw.sendall(stream[:size])
            stream = stream[size:]
            pair.turn()
        for _ in range(len(frames) + 2):
            pair.turn()
        assert pair.frames == [(Frame(k), n, p) for k, n, p in frames]
    finally:
        pair.close()


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\xff" * 64, HEADER.pack(2, 0, 2**32 - 1)])
def test_garbage_closes_the_connection_and_allocates_nothing(garbage: bytes) -> None:
    pair = Pair()
    try:
        pair.raw.sendall(garbage)
        pair.turn()
        assert pair.closed
        assert pair.frames == []
    finally:
        pair.close()


def test_what_comes_while_nobody_reads_waits() -> None:
    pair = Pair()
    try:
        pair.left.reading(False)
        pair.raw.sendall(HEADER.pack(Frame.BARRIER, 7, 0))
        pair.turn()
        assert pair.frames == []
        pair.left.reading(True)
        pair.turn()
        assert pair.frames == [(Frame.BARRIER, 7, b"")]
        pair.left.reading(False)
    finally:
        pair.close()
    assert pair.left.closed


def test_much_is_sent_though_the_other_side_reads_slowly() -> None:
    pair = Pair()
    payload = bytes(range(256)) * 8192
    try:
        pair.left.send(Frame.RECORDS, 7, payload)
        assert pair.left.pending > 0
        got = b""
        while len(got) < HEADER.size + len(payload):
            got += pair.raw.recv(65536)
            pair.turn()
        assert got[HEADER.size :] == payload
        assert pair.left.pending == 0
    finally:
        pair.close()


def test_a_closed_spill_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    inbox = Inbox("a->b", back=True, spill_bytes=0)
    inbox.put(batch(1, 100))
    inbox.close()
    assert list(tmp_path.iterdir()) == []
