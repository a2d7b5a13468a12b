"""Rows of one state, as a stream of Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
import msgspec.structs

from abscli.api.shared import Texts, texts

if TYPE_CHECKING:
    import pyarrow as pa

    from formats.select import Selection
    from formats.view import CheckpointStore, StateFacts


class Rows(msgspec.Struct, frozen=True):
    """Rows of one state, read a batch at a time as they are taken; libraries that read Arrow streams take them as they
    are.

    view: the store.
    epoch: of it.
    state: whose rows they are.
    selection: which rows and columns.
    """

    view: CheckpointStore
    epoch: int
    state: StateFacts
    selection: Selection

    @property
    def schema(self) -> pa.Schema:
        """Their columns; BadPredicate for one that is not there."""
        from formats.select import schema_of

        return schema_of(self.view, self.epoch, self.state, self.selection)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        from formats.select import rows

        return rows(self.view, self.epoch, self.state, self.selection)

    def reader(self) -> pa.RecordBatchReader:
        """As a stream of Arrow, never whole in memory."""
        import pyarrow as pa

        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def table(self) -> pa.Table:
        """All of them."""
        import pyarrow as pa

        batches = list(self)
        return pa.Table.from_batches(batches) if batches else self.schema.empty_table()

    def sorted(self, by: Texts, limit: int | None = None) -> pa.Table:
        """The rows by a column, the largest first with a `-` before it, and by more. limit: the first so many, in
        little memory. BadPredicate for a column that has no order."""
        from formats.query.sorting import in_order, order_of
        from formats.select import schema_of

        orders = [order_of(text) for text in texts(by)]
        chosen = self.selection.columns
        if chosen is None:
            return in_order(self, self.schema, orders, limit)
        wider = tuple(dict.fromkeys([*chosen, *(order.column for order in orders)]))
        selection = self.selection._replace(columns=wider)
        schema = schema_of(self.view, self.epoch, self.state, selection)
        rows = msgspec.structs.replace(self, selection=selection)
        return in_order(rows, schema, orders, limit).select(list(chosen))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.reader().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        name = f" {self.state.name}" if self.state.name else ""
        columns = f", columns {', '.join(self.selection.columns)}" if self.selection.columns is not None else ""
        where = ", where" if self.selection.where is not None else ""
        return f"Rows('{self.state.operator}{name}', epoch {self.epoch} of {self.view.path!r}{columns}{where})"
