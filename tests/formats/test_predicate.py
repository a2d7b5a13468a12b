"""Conditions on rows: what they mean, what is wrong with them, and what they allow to leave unread."""

from __future__ import annotations

import operator
import shlex
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import UnknownTask
from formats.query.predicate import (
    And,
    BadPredicate,
    Compare,
    IsNull,
    Not,
    Or,
    Predicate,
    filtered,
    keys_named,
    may_hold,
    parse_predicate,
)
from formats.select import key_predicate

TABLE = pa.table({
    "n": pa.array([1, 2, None, 10], pa.int64()),
    "word": ["a", "b b", None, "it's"],
    "f": pa.array([0.5, 1e9, None, -1.0]),
    "s": pa.array([{"x": 1, "y": {"z": "q"}}, {"x": 2, "y": None}, None, {"x": 3, "y": {"z": "r"}}]),
    "day": pa.array([1, 2, None, 3], pa.timestamp("ms")),
    "ok": [True, False, None, True],
    "raw": [b"a", b"\x00\xff", None, b""],
    "weird, name": [1, 2, 3, 4],
})


def rows(text: str) -> list[int]:
    numbered = TABLE.append_column("i", pa.array(range(4)))
    return list(filtered(numbered, parse_predicate(text))["i"].to_pylist())


@pytest.mark.parametrize(("text", "found"), [
    ("n=1", [0]), ("n >= 2", [1, 3]), ("n != 1", [1, 3]), ("n<>1", [1, 3]), ("not n == 1", [1, 3]), ("n<10,n>1", [1]),
    ("n = 1 or word = 'b b'", [0, 1]), ("word in (a, 'it''s')", [0, 3]), ("word not in (a)", [1, 3]),
    ("word is null", [2]), ("word is not null and f < 0", [3]), ("(n = 1 or n = 2) and ok = true", [0]),
    ("s.x >= 2", [1, 3]), ("s.y.z = r", [3]), ("day >= 1970-01-01T00:00:00.002", [1, 3]), ("raw = 0x00ff", [1]),
    ('"weird, name" = 3', [2]), ("NOT (n = 1 OR n = 2)", [3]), ("f = 1e9", [1]), ("n = -5", []),
])  # fmt: skip
def test_a_condition_selects_rows(text: str, found: list[int]) -> None:
    assert rows(text) == found


@pytest.mark.parametrize(("text", "says"), [
    ("", "expected a column at column 1, found the end"), ("n", "expected a comparison"), ("n >", "expected a value"),
    ("n = 1 2", "'and', 'or' or the end at column 7, found '2'"), ("(n = 1", r"expected '\)'"),
    ("n in 1", r"expected '\('"),
    ("n is 1", "expected 'null'"), ("n = 'a", 'unexpected "\'" at column 5'), ("nope = 1", "no column 'nope'"),
    ("n = x", "'x' is not a value of type int64"), ("s.x.q = 1", "no column"),
    ("ok = 1", "'1' is not a value of type bool"),
    ("day = soon", "not a value of type timestamp"),
    ("not " * 200 + "n = 1", "nested more than 100 deep"), ("(" * 200 + "n", "nested more than 100 deep"),
])  # fmt: skip
def test_what_is_wrong_with_a_condition_is_said(text: str, says: str) -> None:
    with pytest.raises(BadPredicate, match=says):
        rows(text)


def test_a_condition_is_never_run() -> None:
    with pytest.raises(BadPredicate):
        parse_predicate("__import__('os').system('true')")


OPS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
compares = st.builds(Compare, st.sampled_from("ab"), st.sampled_from(sorted(OPS)), st.integers(-3, 3).map(str))
predicates: st.SearchStrategy[Predicate] = st.recursive(
    compares | st.builds(IsNull, st.sampled_from("ab")),
    lambda inner: st.builds(Not, inner)
    | st.builds(And, st.lists(inner, min_size=1, max_size=3).map(tuple))
    | st.builds(Or, st.lists(inner, min_size=1, max_size=3).map(tuple)),
    max_leaves=6,
)


def holds(predicate: Predicate, row: dict[str, int | None]) -> bool | None:
    """SQL's three values."""
    if isinstance(predicate, IsNull):
        return row[predicate.column] is None
    if isinstance(predicate, Compare):
        value = row[predicate.column]
        return None if value is None else OPS[predicate.op](value, int(predicate.literal))
    if isinstance(predicate, Not):
        inner = holds(predicate.term, row)
        return None if inner is None else not inner
    each = [holds(term, row) for term in predicate.terms]
    decisive = isinstance(predicate, Or)
    return decisive if decisive in each else None if None in each else not decisive


values = st.none() | st.integers(-3, 3)
tables = st.lists(st.fixed_dictionaries({"a": values, "b": values}), min_size=1, max_size=6)
SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.int64())])


@given(predicates, tables)
def test_a_condition_means_what_sql_says_and_bounds_never_lose_a_row(predicate: Predicate, data: list[Any]) -> None:
    table = pa.Table.from_pylist(data, SCHEMA)
    wanted = [row for row in data if holds(predicate, row)]
    assert filtered(table, predicate).to_pylist() == wanted
    bounds = {}
    for name in "ab":
        known = [row[name] for row in data if row[name] is not None]
        if known:
            bounds[name] = (min(known), max(known))
    if wanted:
        assert may_hold(predicate, bounds, SCHEMA)
    named = keys_named(predicate, ["a", "b"])
    if named is not None:
        keys = [(int(one["a"]), int(one["b"])) for one in named]
        assert all((row["a"], row["b"]) in keys for row in wanted)


def test_bounds_rule_out_what_cannot_be_there() -> None:
    bounds = {"a": (5, 9)}
    assert not may_hold(parse_predicate("a = 4"), bounds, SCHEMA)
    assert not may_hold(parse_predicate("a >= 10 and b = 1"), bounds, SCHEMA)
    assert may_hold(parse_predicate("a > 8 or b = 1"), bounds, SCHEMA)
    assert not may_hold(parse_predicate("a in (1, 2, 12)"), bounds, SCHEMA)


@pytest.mark.parametrize(("texts", "key", "means"), [
    (["x"], ["word"], "word = x"), (["word=x"], ["word"], "word = x"), (["1=b"], ["word"], "word = '1=b'"),
    (["x, y"], ["word"], "word = 'x, y'"), (["a=1,b=x,y"], ["a", "b"], "a = 1 and b = 'x,y'"),
    (["a=1", "b=2"], ["a", "b"], "a = 1 and b = 2"), (["x", "y"], ["word"], "word = x or word = y"),
    (["a=1,b=2", "a=3,b=4"], ["a", "b"], "(a=1 and b=2) or (a=3 and b=4)"),
])  # fmt: skip
def test_a_key_is_given_by_value_or_by_column(texts: list[str], key: list[str], means: str) -> None:
    def normal(predicate: Predicate | None) -> Any:
        return keys_named(predicate, key) if predicate else None

    assert normal(key_predicate(texts, key)) == normal(parse_predicate(means))


def test_a_key_that_does_not_fit_is_refused() -> None:
    with pytest.raises(UnknownTask, match="columns a, b"):
        key_predicate(["x"], ["a", "b"])
    with pytest.raises(UnknownTask, match="no key"):
        key_predicate(["x"], [])
    with pytest.raises(UnknownTask, match="--key 'nme=x': the key has no column 'nme', it is name") as caught:
        key_predicate(["nme=x"], ["name"])
    assert "--key name=nme=x" in (caught.value.hint or "")
    assert key_predicate([], ["a"]) is None


def test_a_value_alone_of_several_columns_is_refused_with_what_can_be_typed() -> None:
    with pytest.raises(UnknownTask) as caught:
        key_predicate(["o 1"], ("order", "side"))
    assert caught.value.hint is not None
    typed = shlex.split(caught.value.hint.partition(",")[0].removeprefix("--key "))
    assert key_predicate(typed, ("order", "side")) == And((Compare("order", "=", "o 1"),))
