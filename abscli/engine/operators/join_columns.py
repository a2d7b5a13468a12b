"""The columns of a join: of its inputs, its state and its output, all known before a row comes.

State names the columns of a side by it, `left.amount`; in the output a column of the right side whose name the left
has, too, ends in `_right`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa

from abscli.engine.errors import JobFailed, UsageError
from abscli.engine.operators.rows import columns
from abscli.engine.sources.event_times import as_event_times
from formats.job.model import JOIN_NUMBER, JOIN_SIDE, Join, Operator, Side

SUFFIX = "_right"
MATCHED = "join_matched"
"""Of state of which rows without a match are put out: whether a row has had one."""


class Column(NamedTuple):
    """Of one side, key columns apart. name: in its rows; state: in the state; output: where it comes out."""

    name: str
    state: str
    output: str
    type: pa.DataType


class JoinColumns:
    """Of the join of two inputs with these columns. key: with its types; UsageError where they do not go together."""

    def __init__(self, operator: Operator, inputs: Mapping[Side, pa.Schema]) -> None:
        assert operator.join
        self._operator = operator.id
        for side in Side:
            time = operator.join.time[side is Side.RIGHT]
            for name in (*operator.key, time):
                if name not in inputs[side].names:
                    raise self._refused(f"no column {name!r} on its {side} side", _listed(inputs[side]))
            try:
                as_event_times(pa.array([], inputs[side].field(time).type))
            except TypeError as error:
                hint = "declare its type in the source's schema, or cast it in a map"
                raise self._refused(f"column {time!r} of its {side} side cannot be event time: {error}", hint) from None
        self.key = pa.schema([(name, self._key_type(name, inputs)) for name in operator.key])
        taken = set(inputs[Side.LEFT].names)
        self.sides = {
            side: tuple(
                Column(
                    field.name,
                    f"{side}.{field.name}",
                    field.name + (SUFFIX if side is Side.RIGHT and field.name in taken else ""),
                    field.type,
                )
                for field in inputs[side]
                if field.name not in operator.key
            )
            for side in Side
        }
        self.output = pa.schema(
            [*self.key, *(pa.field(c.output, c.type) for side in Side for c in self.sides[side])]
        )
        for name in self.output.names:
            if self.output.names.count(name) > 1:
                raise self._refused(f"two columns of its output are called {name!r}", "rename one in a map before it")
        for name in (JOIN_SIDE, JOIN_NUMBER):
            if name in operator.key:
                raise self._refused(f"{name!r} is a column of its state", "rename it in a map before the join")

    @property
    def state(self) -> dict[str, pa.DataType]:
        """The values of its state, but whether rows were matched."""
        return {column.state: column.type for side in Side for column in self.sides[side]}

    def rows(self, batch: pa.RecordBatch, side: Side) -> pa.RecordBatch:
        """Rows of an input, with the columns that it should have in their order; JobFailed where it has others."""
        wanted = [*((name, self.key.field(name).type) for name in self.key.names),
                  *((column.name, column.type) for column in self.sides[side])]  # fmt: skip
        arrays = []
        for (name, kind), array in zip(
            wanted, columns(batch, tuple(name for name, _ in wanted), self._operator), strict=True
        ):
            # A key is where the hash of its own type has sent it; whole numbers of any width have the same.
            if array.type != kind and (name not in self.key.names or _are_integers(array.type, kind)):
                with contextlib.suppress(pa.ArrowException):  # said below
                    array = array.cast(kind)
            if array.type != kind:
                raise JobFailed(
                    f"operator {self._operator}: column {name!r} of its {side} side is {array.type}, "
                    f"but {kind} is expected",
                    hint="cast the column in a map before the join, or declare its type in the columns of the join",
                )
            arrays.append(array)
        return pa.record_batch(arrays, names=[name for name, _ in wanted])

    def _key_type(self, name: str, inputs: Mapping[Side, pa.Schema]) -> pa.DataType:
        left, right = (inputs[side].field(name).type for side in Side)
        if left != right and not _are_integers(left, right):
            raise self._refused(
                f"key column {name!r} is {left} on the left side and {right} on the right",
                "cast one of them in a map before the join",
            )
        return left if left == right else pa.int64()

    def _refused(self, message: str, hint: str) -> UsageError:
        return UsageError(f"operator {self._operator}: {message}", hint=hint)


def _are_integers(*kinds: pa.DataType) -> bool:
    return all(pa.types.is_integer(kind) for kind in kinds)


def _listed(schema: pa.Schema) -> str:
    return f"it has {', '.join(schema.names)}"


def keeps(join: Join, side: Side) -> bool:
    """Whether rows of a side are put out that nothing matches."""
    return join.how == "outer" or (join.how == "left" and side is Side.LEFT)
