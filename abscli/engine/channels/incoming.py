"""A data connection of a worker: frames in, items into one queue."""

from __future__ import annotations

import contextlib
import selectors
from collections.abc import Callable, Iterator

import pyarrow as pa

from abscli.engine.channels.inbox import Barrier, Batch, Inbox
from abscli.engine.channels.line import Line
from abscli.engine.channels.wire import Connection, Frame, watermark_of
from abscli.engine.local.hearing import Hearing
from abscli.protocol.events import ProtocolError

_KINDS = frozenset({Frame.SCHEMA, Frame.RECORDS, Frame.BARRIER})


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
        if kind not in _KINDS:
            raise ProtocolError(f"{self._inbox.channel}: unexpected frame {kind.name} on a data channel")
        rest = self._hearing.take(kind, number, payload) if self._hearing is not None else payload
        if rest is not None:
            self._put(kind, number, rest)
        if self._full(self._inbox):
            self.connection.reading(False)

    def _put(self, kind: Frame, number: int, payload: memoryview) -> None:
        if kind is Frame.BARRIER:
            self._inbox.put(Barrier(number, watermark_of(payload)))
        elif kind is Frame.SCHEMA:
            self._learn_schema(payload)
        else:
            batch = Batch(number, self._rows(payload))
            if self._hearing is None:
                self._inbox.put(batch)
            else:
                self._hearing.ends(number + batch.rows.num_rows)
                self._inbox.put_rest(batch)

    def _learn_schema(self, payload: memoryview) -> None:
        """Read the schema frame; a task emits rows of one schema only, so a second frame repeats the first."""
        with self._parsing("schema", payload):
            schema = pa.ipc.read_schema(pa.py_buffer(payload))
        if self._schema is not None and not schema.equals(self._schema):
            raise ProtocolError(f"{self._inbox.channel}: expected the schema {self._schema}, got {schema}")
        self._schema = schema

    def _rows(self, payload: memoryview) -> pa.RecordBatch:
        if self._schema is None:
            raise ProtocolError(f"{self._inbox.channel}: expected a schema frame before the first records")
        with self._parsing("records", payload):
            rows = pa.ipc.read_record_batch(pa.py_buffer(payload), self._schema)
            rows.validate()
        if not rows.num_rows:
            raise ProtocolError(f"{self._inbox.channel}: expected a frame with records, got an empty frame")
        return rows

    @contextlib.contextmanager
    def _parsing(self, what: str, payload: memoryview) -> Iterator[None]:
        """Turn an error that Arrow raises into ProtocolError: of many classes, EOFError for no bytes at all."""
        try:
            yield
        except Exception as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise ProtocolError(
                f"{self._inbox.channel}: cannot parse {len(payload)} bytes of {what}: {reason}"
            ) from error
