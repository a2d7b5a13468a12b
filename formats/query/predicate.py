"""Conditions on rows, as people write them: parsed, bound to a schema, held against statistics; never run.

    condition   := and-list ("or" and-list)*
    and-list    := term (("and" | ",") term)*
    term        := "not" term | "(" condition ")" | column test
    test        := ("=" | "==" | "!=" | "<>" | "<" | "<=" | ">" | ">=") literal
                 | ["not"] "in" "(" literal ("," literal)* ")" | "is" ["not"] "null"

A column is a word or stands in double quotes; `a.b` is field b of a struct. A literal is a word, a number or text in
single quotes; the column's type decides which. A comparison with null is neither true nor false, as in SQL.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from formats.errors import FormatError

if TYPE_CHECKING:
    import pyarrow as pa

COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")
_SAME = {"==": "=", "<>": "!="}
_TOKEN = re.compile(r"""\s*(?:(<=|>=|==|!=|<>|[=<>(),])|"([^"]*)"|'((?:[^']|'')*)'|([^\s=<>!(),'"]+)|(.))""", re.DOTALL)
_MOST_KEYS = 10_000
_DEEPEST = 100


class BadPredicate(FormatError):
    """A condition that cannot be understood, or does not fit the columns."""


class Compare(NamedTuple):
    """column OP literal; the literal as it was written."""

    column: str
    op: str
    literal: str


class IsNull(NamedTuple):
    """The column has no value."""

    column: str


class And(NamedTuple):
    """All of them."""

    terms: tuple[Predicate, ...]


class Or(NamedTuple):
    """At least one of them."""

    terms: tuple[Predicate, ...]


class Not(NamedTuple):
    """The term is false."""

    term: Predicate


Table = TypeVar("Table", "pa.Table", "pa.RecordBatch")
Predicate = Compare | IsNull | And | Or | Not
Bounds = Mapping[str, tuple[Any, Any]]
"""Lowest and highest value by column."""


# -- parsing --------------------------------------------------------------------------------------------------


class _Token(NamedTuple):
    kind: str  # "op", "name", "text", "word" or "end"
    text: str
    at: int


def parse_predicate(text: str) -> Predicate:
    """A condition from its text; BadPredicate says what was expected, and where."""
    return _Parser(text).whole()


def _tokens(text: str) -> Iterator[_Token]:
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        assert match is not None
        op, name, quoted, word, other = match.groups()
        start = match.end() - len(match[0].lstrip())
        if other:
            raise BadPredicate(f"{text!r}: unexpected {other!r} at column {start + 1}")
        if op:
            yield _Token("op", _SAME.get(op, op), start)
        elif word is not None:
            yield _Token("word", word, start)
        elif name is not None:
            yield _Token("name", name, start)
        else:
            yield _Token("text", quoted.replace("''", "'"), start)
        at = match.end()
    yield _Token("end", "", end)


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(_tokens(text))
        self.i = 0
        self.depth = 0

    @property
    def next(self) -> _Token:
        return self.tokens[self.i]

    def whole(self) -> Predicate:
        result = self.either()
        if self.next.kind != "end":
            raise self.expected("'and', 'or' or the end")
        return result

    def either(self) -> Predicate:
        terms = [self.all()]
        while self.word("or"):
            terms.append(self.all())
        return terms[0] if len(terms) == 1 else Or(tuple(terms))

    def all(self) -> Predicate:
        terms = [self.term()]
        while self.word("and") or self.op(","):
            terms.append(self.term())
        return terms[0] if len(terms) == 1 else And(tuple(terms))

    def term(self) -> Predicate:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise BadPredicate(f"{self.text[:40]!r}...: nested more than {_DEEPEST} deep")
        try:
            if self.word("not"):
                return Not(self.term())
            if self.op("("):
                inner = self.either()
                self.close()
                return inner
            return self.test()
        finally:
            self.depth -= 1

    def test(self) -> Predicate:
        column = self.take(("word", "name"), "a column")
        if self.next.kind == "op" and self.next.text in COMPARISONS:
            op = self.take(("op",), "").text
            return Compare(column.text, op, self.literal())
        if self.word("is"):
            negated = self.word("not")
            if not self.word("null"):
                raise self.expected("'null'")
            return Not(IsNull(column.text)) if negated else IsNull(column.text)
        negated = self.word("not")
        if not self.word("in"):
            raise self.expected("a comparison such as =, != or >=, 'in' or 'is null'")
        if not self.op("("):
            raise self.expected("'('")
        choices = [self.literal()]
        while self.op(","):
            choices.append(self.literal())
        self.close()
        among = Or(tuple(Compare(column.text, "=", one) for one in choices))
        return Not(among) if negated else among

    def literal(self) -> str:
        return self.take(("word", "text", "name"), "a value").text

    def close(self) -> None:
        if not self.op(")"):
            raise self.expected("')'")

    def take(self, kinds: tuple[str, ...], wanted: str) -> _Token:
        token = self.next
        if token.kind not in kinds:
            raise self.expected(wanted)
        self.i += 1
        return token

    def word(self, word: str) -> bool:
        return self._accept("word", lambda text: text.lower() == word)

    def op(self, op: str) -> bool:
        return self._accept("op", lambda text: text == op)

    def _accept(self, kind: str, fits: Callable[[str], bool]) -> bool:
        accepted = self.next.kind == kind and fits(self.next.text)
        self.i += accepted
        return accepted

    def expected(self, wanted: str) -> BadPredicate:
        actual = "the end" if self.next.kind == "end" else repr(self.next.text)
        return BadPredicate(
            f"{self.text!r}: expected {wanted} at column {self.next.at + 1}, found {actual}",
            hint="for example \"n >= 10 and word = spark\"; text with spaces stands in single quotes",
        )


# -- binding --------------------------------------------------------------------------------------------------


def columns_of(predicate: Predicate) -> set[str]:
    """The columns that a condition names."""
    if isinstance(predicate, Compare | IsNull):
        return {predicate.column}
    terms = (predicate.term,) if isinstance(predicate, Not) else predicate.terms
    return {name for term in terms for name in columns_of(term)}


def filtered(table: Table, predicate: Predicate) -> Table:
    """The rows for which it is true; BadPredicate for an unknown column or a value that is not of its type."""
    from formats.query.arrow import rows_where

    return rows_where(table, _mask(predicate, table))


_FUNCTIONS = {"=": "equal", "!=": "not_equal", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}


def _mask(predicate: Predicate, table: Any) -> Any:
    """True, false or null of each row."""
    from formats.query.arrow import call, field_of

    if isinstance(predicate, IsNull):
        return call("is_null", [field_of(table, field_path(predicate.column, table.schema)[0])])
    if isinstance(predicate, Not):
        return call("invert", [_mask(predicate.term, table)])
    if isinstance(predicate, Compare):
        path, kind = field_path(predicate.column, table.schema)
        value = literal(predicate.literal, kind, predicate.column)
        if _is_nan(value):
            return _mask_of_nan(predicate.op, field_of(table, path))
        return call(_FUNCTIONS[predicate.op], [field_of(table, path), value])
    join = "and_kleene" if isinstance(predicate, And) else "or_kleene"
    first, *rest = predicate.terms
    mask = _mask(first, table)
    for term in rest:
        mask = call(join, [mask, _mask(term, table)])
    return mask


def _is_nan(value: pa.Scalar) -> bool:
    """Whether it is the float that is no number."""
    plain = value.as_py()
    return isinstance(plain, float) and plain != plain


def _mask_of_nan(op: str, column: Any) -> Any:
    """NaN is equal to itself, as it is one key; it is neither below nor above anything."""
    from formats.query.arrow import call

    nan = call("is_nan", [column])
    if op in ("=", "<=", ">="):
        return nan
    return call("invert", [nan]) if op == "!=" else call("and", [nan, call("invert", [nan])])


def check_columns(columns: Sequence[str], schema: pa.Schema) -> Sequence[str]:
    """The columns, all of which the schema has; BadPredicate if not."""
    for name in columns:
        if name not in schema.names:
            raise BadPredicate(f"no column {name!r}", hint=f"there are {', '.join(schema.names)}")
    return columns


def field_path(column: str, schema: pa.Schema) -> tuple[tuple[str, ...], pa.DataType]:
    """A column, or a field within a struct (`a.b`), with its type; BadPredicate if there is none."""
    import pyarrow as pa

    if column in schema.names:
        return (column,), schema.field(column).type
    first, *rest = column.split(".")
    if rest and first in schema.names:
        kind = schema.field(first).type
        for name in rest:
            names = [field.name for field in kind] if pa.types.is_struct(kind) else []
            if name not in names:
                break
            kind = kind.field(names.index(name)).type
        else:
            return (first, *rest), kind
    raise BadPredicate(f"no column {column!r}", hint=f"there are {', '.join(schema.names)}")


def literal(text: str, kind: pa.DataType, column: str) -> pa.Scalar:
    """A value of that type from its text; BadPredicate if it is none."""
    import pyarrow as pa

    types = pa.types
    try:
        if types.is_dictionary(kind):
            return literal(text, kind.value_type, column)
        if types.is_integer(kind):
            return pa.scalar(int(text), kind)
        if types.is_floating(kind):
            return pa.scalar(float(text), kind)
        if types.is_boolean(kind):
            return pa.scalar({"true": True, "false": False}[text.lower()], kind)
        if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
            return pa.scalar(bytes.fromhex(text[2:]) if text[:2] == "0x" else text.encode(), kind)
        if types.is_decimal(kind):
            from decimal import Decimal

            return pa.scalar(Decimal(text), kind)
        return pa.scalar(text, kind) if types.is_string(kind) else pa.scalar(text, pa.string()).cast(kind)
    except (ValueError, KeyError, ArithmeticError, pa.ArrowException):
        hint = f'--where "{column} is null"' if text.lower() == "null" else None
        raise BadPredicate(f"{text!r} is not a value of type {kind}, which column {column!r} has", hint=hint) from None


# -- what can be left unread ----------------------------------------------------------------------------------


def may_hold(predicate: Predicate, bounds: Bounds, schema: pa.Schema) -> bool:
    """Whether rows between these bounds can satisfy the condition; columns without bounds may hold anything."""
    if isinstance(predicate, And):
        return all(may_hold(term, bounds, schema) for term in predicate.terms)
    if isinstance(predicate, Or):
        return any(may_hold(term, bounds, schema) for term in predicate.terms)
    if not isinstance(predicate, Compare) or predicate.column not in bounds or predicate.op == "!=":
        return True
    low, high = bounds[predicate.column]
    scalar = literal(predicate.literal, schema.field(predicate.column).type, predicate.column)
    if _is_nan(scalar):
        return True  # bounds are those of numbers
    value = scalar.as_py()
    try:
        below = low < value or (low == value and predicate.op in ("=", "<=", ">="))
        above = high > value or (high == value and predicate.op in ("=", "<=", ">="))
    except TypeError:
        return True
    return {"=": below and above, "<": below, "<=": below, ">": above, ">=": above}[predicate.op]


def keys_named(predicate: Predicate, key: Sequence[str]) -> list[dict[str, str]] | None:
    """The keys that a condition pins down, by column; None if it allows others, or names too many."""
    keys = _named(predicate, frozenset(key))
    if keys is None or any(set(one) != set(key) for one in keys):
        return None
    return keys


def _named(predicate: Predicate, key: frozenset[str]) -> list[dict[str, str]] | None:
    """Alternatives, each with what it says of key columns. None: it says nothing."""
    if isinstance(predicate, Compare) and predicate.op == "=" and predicate.column in key:
        return [{predicate.column: predicate.literal}]
    if isinstance(predicate, Or):
        each = [_named(term, key) for term in predicate.terms]
        flat = [one for alternatives in each if alternatives is not None for one in alternatives]
        return None if None in each or len(flat) > _MOST_KEYS else flat
    if isinstance(predicate, And):
        result: list[dict[str, str]] | None = None
        for alternatives in (_named(term, key) for term in predicate.terms):
            if alternatives is None:
                continue
            result = alternatives if result is None else [{**a, **b} for a in result for b in alternatives]
            if len(result) > _MOST_KEYS:
                return None
        return result
    return None
