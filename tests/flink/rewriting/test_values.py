"""Values that a file of changes sets: what is written is what is read."""

from __future__ import annotations

import contextlib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from formats.flink.rewriting.encoding import CannotEncode, encoded
from formats.flink.rewriting.keys import plain
from formats.flink.types.codecs import codec
from formats.flink.types.serializers import Snapshot

SHAPES = st.recursive(
    st.sampled_from(["string", "long", "int", "short", "byte", "boolean", "double", "bytes"]).map(
        lambda kind: Snapshot(kind, kind, 3)
    ),
    lambda inner: st.one_of(
        inner.map(lambda part: Snapshot("list", "list", 1, nested=(part,))),
        st.lists(inner, min_size=1, max_size=4).map(lambda parts: Snapshot("tuple", "tuple", 2, nested=tuple(parts))),
        st.lists(inner, min_size=1, max_size=4).map(
            lambda parts: Snapshot("row", "row", 3, nested=tuple(parts), number=1)
        ),
        st.lists(inner, min_size=1, max_size=4).map(
            lambda parts: Snapshot(
                "pojo", "pojo", 2, "Order", tuple(parts), tuple(f"field{i}" for i in range(len(parts)))
            )
        ),
    ),
    max_leaves=6,
)  # fmt: skip
TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def values_of(snapshot: Snapshot) -> st.SearchStrategy[Any]:
    """Values as `abs state -o json` prints them."""
    match snapshot.kind:
        case "string":
            return TEXT
        case "boolean":
            return st.booleans()
        case "double":
            return st.floats(allow_nan=False)
        case "bytes":
            return st.binary().map(lambda data: "0x" + data.hex())
        case "list":
            return st.lists(values_of(snapshot.nested[0]), max_size=3)
        case "pojo":
            fields = zip(snapshot.names, snapshot.nested, strict=True)
            return st.fixed_dictionaries({name: st.none() | values_of(part) for name, part in fields})
        case "tuple":
            return st.fixed_dictionaries({f"f{i}": values_of(part) for i, part in enumerate(snapshot.nested)})
        case "row":
            parts = {f"f{i}": st.none() | values_of(part) for i, part in enumerate(snapshot.nested)}
            return st.fixed_dictionaries({"row_kind": st.just("+I"), **parts})
        case kind:
            bits = {"long": 63, "int": 31, "short": 15, "byte": 7}[kind]
            return st.integers(-(1 << bits), (1 << bits) - 1)


@given(st.data())
def test_a_value_that_is_written_is_the_value_that_is_read(data: st.DataObject) -> None:
    snapshot = data.draw(SHAPES)
    value = data.draw(values_of(snapshot))
    one = codec(snapshot)
    written = encoded(one, value)
    back, end = one.read(written, 0)
    assert end == len(written)
    assert plain(one, back) == value


@given(SHAPES, st.none() | st.booleans() | st.integers() | TEXT | st.lists(st.integers()) | st.just({"f9": 1}))
def test_a_value_of_another_type_is_refused_and_nothing_else_happens(snapshot: Snapshot, value: Any) -> None:
    with contextlib.suppress(CannotEncode):
        encoded(codec(snapshot), value)
