"""How much of what has come through TLS is taken at once: as from a socket, as much as there is room for."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from abscli.engine.channels.line import Line, Lines, new_key_pair

RECORD = 1 << 14
"""Bytes of the largest record of TLS."""


@pytest.fixture
def ends() -> Iterator[tuple[Line, Line]]:
    """An open connection: who sends, who receives."""
    lines = Lines(new_key_pair())
    one, other = socket.socketpair()
    for sock in (one, other):
        sock.setblocking(False)
    sender, receiver = lines.dialled(one), lines.accepted(other)
    while not (sender.is_open and receiver.is_open):
        for line in (sender, receiver):
            with pytest.raises(BlockingIOError):
                line.receive(memoryview(bytearray(1)))
    yield sender, receiver
    one.close()
    other.close()


def test_what_is_there_is_taken_at_once_over_the_bounds_of_records(ends: tuple[Line, Line]) -> None:
    sender, receiver = ends
    data = bytes(range(256)) * (4 * RECORD // 256)
    assert sender.send([memoryview(data)]) == len(data)
    buffer = memoryview(bytearray(2 * len(data)))
    assert receiver.receive(buffer) == len(data)
    assert bytes(buffer[: len(data)]) == data
    with pytest.raises(BlockingIOError):
        receiver.receive(buffer)


def test_the_room_that_is_given_is_filled_and_the_rest_stays(ends: tuple[Line, Line]) -> None:
    sender, receiver = ends
    data = b"a" * (2 * RECORD) + b"b" * 100
    sender.send([memoryview(data)])
    buffer = memoryview(bytearray(2 * RECORD))
    assert receiver.receive(buffer) == len(buffer)
    assert receiver.unread
    assert receiver.receive(buffer) == 100
    assert bytes(buffer[:100]) == b"b" * 100


def test_what_came_before_the_end_is_given_before_the_end_is_said(ends: tuple[Line, Line]) -> None:
    sender, receiver = ends
    sender.send([memoryview(b"last words")])
    sender.sock.close()
    buffer = memoryview(bytearray(100))
    assert receiver.receive(buffer) == len(b"last words")
    assert receiver.receive(buffer) == 0
