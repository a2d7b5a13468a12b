"""Frames that are kept for who restarts alone, and frames that come again."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abscli.engine.channels.inbox import Inbox
from abscli.engine.channels.wire import Frame
from abscli.engine.local import room
from abscli.engine.local.arrivals import Arrivals, OtherFrame
from abscli.engine.local.hearing import Hearing
from abscli.engine.local.ledger import Ledger
from formats.ids import ChannelId, TaskId
from tests.support.jobs.kills import fan


@given(st.lists(st.tuples(st.integers(1, 40), st.booleans()), max_size=60))
def test_frames_come_back_from_their_room_as_they_were(frames: list[tuple[int, bool]]) -> None:
    """Those that are let go leave room in memory, and whole files of them on disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "FILE_BYTES", 64)
        space = room.Room(100)
        kept: list[tuple[bytes, room.Placed]] = []
        for number, (size, settle) in enumerate(frames):
            frame = bytes([number]) * size
            placed = space.put(memoryview(frame))
            if placed is not None:
                kept.append((frame, placed))
            if settle:
                kept = kept[len(kept) // 2 :]
                space.settle(placed for _, placed in kept)
            assert space.on_disk <= 100 * room.DISK_TIMES
            assert all(bytes(placed.frame) == frame for frame, placed in kept)
            assert sum(len(frame) for frame, placed in kept if placed.file is None) <= 100
        space.settle([])
        assert not space.on_disk
        assert space.put(memoryview(bytes(100))) == room.Placed(memoryview(bytes(100)))


def test_where_no_file_can_be_made_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    space = room.Room(100)
    assert space.put(memoryview(bytes(60)))
    assert space.put(memoryview(bytes(60))) is None
    assert not space.on_disk


# -- frames that come again -----------------------------------------------------------------------------------

CHANNEL = ChannelId(TaskId("a", 0), TaskId("b", 1))


def arrivals() -> Arrivals:
    """On which frames of ten records came, and barrier 4 before the second."""
    came = Arrivals(CHANNEL, 3, 1)
    came.records(1, 1, memoryview(b"one"))
    assert came.barrier(4, 11)
    came.records(11, 11, memoryview(b"two"))
    return came


def test_a_frame_that_comes_again_has_to_be_the_same() -> None:
    came = arrivals()
    came.records(1, 21, memoryview(b"one"))
    assert not came.barrier(4, 11)
    with pytest.raises(OtherFrame, match=r"the same output on a/0->b/1 again.* record 11 had the digest"):
        came.records(11, 21, memoryview(b"too"))


@pytest.mark.parametrize(
    ("again", "message"),
    [
        (lambda came: came.records(6, 21, memoryview(b"one")), "the frame with record 6 began elsewhere"),
        (lambda came: came.barrier(4, 21), "barrier 4 stood before record 11, and stands before 21 now"),
    ],
)
def test_frames_begin_and_barriers_stand_where_they_did(again: Callable[[Arrivals], object], message: str) -> None:
    with pytest.raises(OtherFrame, match=message):
        again(arrivals())


def test_what_a_complete_epoch_holds_does_not_come_again() -> None:
    came = arrivals()
    came.complete(4)
    came.records(1, 21, memoryview(b"anything"))  # of a receiver that is older than the word of the epoch
    assert not came.barrier(4, None)
    with pytest.raises(OtherFrame):
        came.records(11, 21, memoryview(b"too"))


def test_no_frame_is_accepted_after_a_frame_that_differs() -> None:
    """Otherwise a barrier would follow other records than those that were counted."""
    no_schedules, differing = bytes(4), list[str]()
    ledger, inbox = Ledger(fan(), 2, 1, 1 << 20), Inbox(CHANNEL, back=False)
    ledger.receives_from(inbox, 3)
    hearing = Hearing(ledger, inbox, differing.append)

    def accepted(kind: Frame, number: int, frame: bytes) -> memoryview | None:
        return hearing.take(kind, number, memoryview(frame + no_schedules))

    assert accepted(Frame.RECORDS, 1, b"one") == b"one"
    inbox.next_record = 11
    hearing.ends(11)
    assert accepted(Frame.RECORDS, 1, b"other") is None
    assert accepted(Frame.BARRIER, 4, b"") is None
    assert accepted(Frame.RECORDS, 11, b"two") is None
    (message,) = differing
    assert "the frame with record 1 had the digest" in message
