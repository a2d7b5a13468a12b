"""A data connection of a worker: frames in, items into one queue."""

from __future__ import annotations

import selectors
from collections.abc import Callable

import pyarrow as pa

from abscli.engine.channels.inbox import Barrier, Batch, Inbox
from abscli.engine.channels.line import Line
from abscli.engine.channels.wire import Connection, Frame, watermark_of
from abscli.engine.local.hearing import Hearing


class Incoming:
    """full: whether its queue takes no more for now, and its sender has to wait; closed: hears of its end.

    hearing: of frames that may come again; None where none do.
    """

    def __init__(
        self, line: Line, selector: selectors.BaseSelector, inbox: Inbox, *, full: Callable[[Inbox], bool],
        closed: Callable[[Connection], None], hearing: Hearing | None,
    ) -> None:  # fmt: skip
        self._inbox = inbox
        self._full = full
        self._hearing = hearing
        self._schema: pa.Schema | None = None
        self.connection = Connection(line, selector, self._on_frame, lambda: closed(self.connection))

    def _on_frame(self, kind: Frame, number: int, payload: memoryview) -> None:
        rest = self._hearing.take(kind, number, payload) if self._hearing is not None else payload
        if rest is not None:
            self._put(kind, number, rest)
        if self._full(self._inbox):
            self.connection.reading(False)

    def _put(self, kind: Frame, number: int, payload: memoryview) -> None:
        if kind is Frame.BARRIER:
            self._inbox.put(Barrier(number, watermark_of(payload)))
        elif kind is Frame.SCHEMA:
            self._schema = pa.ipc.read_schema(pa.py_buffer(payload))
        elif kind is Frame.RECORDS:
            batch = Batch(number, pa.ipc.read_record_batch(pa.py_buffer(payload), self._schema))
            if self._hearing is None:
                self._inbox.put(batch)
            else:
                self._hearing.ends(number + batch.rows.num_rows)
                self._inbox.put_rest(batch)
