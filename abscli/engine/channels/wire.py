"""Frames on lines, without blocking: between workers, and between a worker and the coordinator.

A frame is kind (1 byte), number (8 bytes, little-endian), length (4 bytes), payload. Control frames carry one JSON
message. A data channel sends its Arrow schema before the first batch and whenever that changes.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from enum import IntEnum

import msgspec

from abscli.engine.channels.line import Line
from abscli.protocol.events import ProtocolError

HEADER = struct.Struct("<BQI")
WATERMARK = struct.Struct("<q")
MAX_FRAME = 1 << 31
BEAT_BYTES = 1 << 14
"""The largest frame of a heartbeat connection."""

READ_AHEAD = 16


class Frame(IntEnum):
    """Kinds of frames. number: of the first record (RECORDS), of the epoch (BARRIER), otherwise 0. TRACE: lines for
    the coordinator's trace file. A barrier that has a watermark begins with that: 8 bytes, little-endian.

    Where lost tasks take their steps again, frames of records and of barriers end with what their sender's worker
    knows of schedules, and how long that is: 4 bytes, little-endian.
    """

    CONTROL = 0
    SCHEMA = 1
    RECORDS = 2
    BARRIER = 3
    TRACE = 4


class Connection:
    """One line in a selector, whose socket blocks no more. on_frame(kind, number, payload) takes what comes, on_close
    its end.

    greeting: goes before all frames; none where the other end greeted.
    largest: payload in bytes; a connection that announces a larger frame ends.

    `pending` is how many bytes are still to be sent; `reading(False)` leaves what comes to TCP's flow control.
    """

    def __init__(
        self,
        line: Line,
        selector: selectors.BaseSelector,
        on_frame: Callable[[Frame, int, memoryview], None],
        on_close: Callable[[], None],
        *,
        greeting: bytes = b"",
        largest: int = MAX_FRAME,
    ) -> None:
        sock = line.sock
        sock.setblocking(False)
        if sock.family != socket.AF_UNIX:
            with contextlib.suppress(OSError):  # the connection has ended already: the first read notices that
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._largest = largest
        self.pending = len(greeting)
        self.closed = False
        self._line = line
        self._sock = sock
        self._selector = selector
        self._on_frame = on_frame
        self._on_close = on_close
        self._out: deque[memoryview] = deque([memoryview(greeting)] if greeting else [])
        self._header = bytearray(HEADER.size)
        self._buffer = memoryview(self._header)
        self._got = 0
        self._frame: tuple[Frame, int] | None = None
        self._interest = selectors.EVENT_READ
        if greeting or line.unread or not line.is_open:
            self._interest |= selectors.EVENT_WRITE  # it has something to do before anything comes
        selector.register(sock, self._interest, self._ready)

    @property
    def greeted(self) -> bool:
        """Whether the other end has what it needs to know this one, or there is no other end any more."""
        return self.closed or self._line.is_open

    def send(self, kind: Frame, number: int, *payload: bytes | memoryview) -> None:
        """Queue a frame, and send what the socket takes now."""
        self.queue(kind, number, *payload)
        if not self.closed:
            self._write()

    def queue(self, kind: Frame, number: int, *payload: bytes | memoryview) -> None:
        """A frame that goes together with the one behind it."""
        if self.closed:
            return
        views = [memoryview(part).cast("B") for part in payload if len(part)]
        length = sum(map(len, views))
        self._out.append(memoryview(HEADER.pack(kind, number, length)))
        self._out += views
        self.pending += HEADER.size + length

    def send_message(self, message: msgspec.Struct) -> None:
        """Queue a control frame."""
        self.send(Frame.CONTROL, 0, msgspec.json.encode(message))

    def reading(self, on: bool) -> None:
        """Whether to take what comes."""
        self._want(selectors.EVENT_READ, on)
        if on and self._line.unread:
            self._wake()

    def _wake(self) -> None:
        """Come back in the next round, whatever comes: a socket can nearly always be written to."""
        self._want(selectors.EVENT_WRITE, True)

    def _want(self, event: int, on: bool) -> None:
        interest = self._interest | event if on else self._interest & ~event
        if interest == self._interest or self.closed:
            return
        if not self._interest:
            self._selector.register(self._sock, interest, self._ready)
        elif not interest:
            self._selector.unregister(self._sock)
        else:
            self._selector.modify(self._sock, interest, self._ready)
        self._interest = interest

    def _ready(self, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._write()
        if not self.closed and (mask & selectors.EVENT_READ or self._line.unread) and self._is_reading:
            self._read()
            if not self.closed and not self._interest & selectors.EVENT_WRITE and (self._out or self._line.unsent):
                self._write()  # a handshake has come on, for which this has waited
        if not self.closed and self._line.unread and self._is_reading:
            self._wake()

    @property
    def _is_reading(self) -> bool:
        return bool(self._interest & selectors.EVENT_READ)

    def _write(self) -> None:
        try:
            self._line.flush()
            while self._out:
                self._send_some()
        except BlockingIOError:
            pass
        except OSError:
            self._ended()
            return
        # What waits for a handshake waits for the other end, not for the socket.
        self._want(selectors.EVENT_WRITE, self._line.unsent or (bool(self._out) and self._line.is_open))

    def _send_some(self) -> None:
        sent = self._line.send([*self._out][:64] if len(self._out) > 1 else [self._out[0]])
        self.pending -= sent
        while sent:
            head = self._out[0]
            if sent < len(head):
                self._out[0] = head[sent:]
                break
            sent -= len(head)
            self._out.popleft()

    def _read(self) -> None:
        """Read whole frames while they come, a few at most, so that other sockets get their turn."""
        for _ in range(READ_AHEAD):
            try:
                got = self._line.receive(self._buffer[self._got :])
            except BlockingIOError:
                return
            except OSError:
                got = 0
            if got == 0:
                self._ended()
                return
            self._got += got
            if self._got < len(self._buffer):
                continue
            self._advance()
            # Whoever took the frame may have closed this, or want no more for now.
            if self.closed or not self._is_reading:
                return

    def _advance(self) -> None:
        if self._frame is None:
            kind, number, length = HEADER.unpack(self._header)
            if kind > Frame.TRACE or length > self._largest:
                self._ended()
                return
            self._frame = Frame(kind), number
            if length:
                # Memory of its own for each frame: the rows that are decoded from it go on pointing into it.
                self._buffer, self._got = memoryview(bytearray(length)), 0
                return
            payload = memoryview(b"")
        else:
            payload = self._buffer
        frame, self._frame = self._frame, None
        self._buffer, self._got = memoryview(self._header), 0
        self._on_frame(*frame, payload)

    def _ended(self) -> None:
        if not self.closed:
            self.close()
            self._on_close()

    def close(self) -> None:
        """Close the socket; what is pending is dropped."""
        if self.closed:
            return
        self.closed = True
        if self._interest:
            self._selector.unregister(self._sock)
        self._interest = 0
        self._sock.close()

    def hang_up(self) -> None:
        """End the connection for both sides at once; safe from another thread than the one that uses it."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def finish(self, seconds: float) -> None:
        """Send what is pending, blocking for at most so long, and close."""
        with contextlib.suppress(OSError):
            if self.closed:
                return
            until = time.monotonic() + seconds
            while self._out or self._line.unsent:
                self._sock.settimeout(max(0.001, until - time.monotonic()))
                if self._out:
                    self._send_some()
                else:
                    self._line.flush()
            self._sock.shutdown(socket.SHUT_WR)
        self.close()


class Wakeup:
    """Lets another thread, or a signal handler, end a selector's wait."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._near, self._far = socket.socketpair()
        self._near.setblocking(False)
        self._far.setblocking(False)
        selector.register(self._near, selectors.EVENT_READ, self._drain)

    def __call__(self) -> None:
        """Wake the loop; never blocks."""
        with contextlib.suppress(OSError):
            self._far.send(b"\0")

    def _drain(self, mask: int) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._near.recv(4096):
                pass

    def close(self) -> None:
        """Close both ends, after the selector is closed."""
        self._near.close()
        self._far.close()


def watermark_bytes(watermark: int | None) -> bytes:
    """What a barrier's frame begins with."""
    return b"" if watermark is None else WATERMARK.pack(watermark)


def watermark_of(payload: memoryview) -> int | None:
    """What `watermark_bytes` made this of; ProtocolError for anything else."""
    if len(payload) not in (0, WATERMARK.size):
        raise ProtocolError(f"expected a watermark of 0 or {WATERMARK.size} bytes, got {len(payload)} bytes")
    return int(WATERMARK.unpack(payload)[0]) if len(payload) else None
