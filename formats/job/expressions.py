"""What the columns of a source that makes its rows are made of: expressions, as people write them; parsed, never run.

    row, an earlier column, a number, 'text' | + - * / // % and comparisons | random(n), uniform(), choice('a', 'b'),
    text(...), at('2026-01-01T00:00:00Z', seconds)

They are Python's in form, and `//` and `%` are its own.
"""

from __future__ import annotations

import ast
import threading
from collections.abc import Collection
from datetime import UTC, datetime

from formats.errors import FormatError

ROW = "row"
"""The name of a row's number, from 0 on."""

FUNCTIONS = {"random": (1, 1), "uniform": (0, 0), "choice": (1, 1000), "text": (1, 100), "at": (2, 2)}
"""With how many arguments, at least and at most."""

_LONGEST = 1_000
_PARSING = threading.Lock()
"""Python has one count of how deep it is in a tree for all threads, each of which may stop inside one (gh-106905)."""
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod)
_COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)


class BadExpression(FormatError):
    """An expression that cannot be understood."""


def parse_expression(text: str, names: Collection[str]) -> ast.expr:
    """The expression of a text. names: of the columns before it; BadExpression."""
    if len(text) > _LONGEST:
        raise BadExpression(f"{text[:40]!r}… is longer than {_LONGEST} characters")
    try:
        with _PARSING:
            expression = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BadExpression(f"{text!r} is not an expression: {error}".split("\n")[0]) from None
    _check(expression, text, names)
    return expression


def moment(text: str) -> int:
    """Microseconds since 1970 of a time in ISO 8601, in UTC where it does not say; ValueError."""
    time = datetime.fromisoformat(text)
    since = (time if time.tzinfo is not None else time.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _check(node: ast.expr, text: str, names: Collection[str]) -> None:
    match node:
        case ast.Constant(value=bool() | float() | str()):
            return
        case ast.Constant(value=int(value)) if abs(value) < 2**63:
            return
        case ast.Name(id=name):
            if name != ROW and name not in names:
                columns = ", ".join([ROW, *names])
                raise BadExpression(f"{text!r} names {name!r}, which is none of {columns}")
        case ast.BinOp(left=left, op=op, right=right) if isinstance(op, _OPERATORS):
            _check(left, text, names)
            _check(right, text, names)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            _check(operand, text, names)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if isinstance(op, _COMPARISONS):
            _check(left, text, names)
            _check(right, text, names)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in FUNCTIONS:
            _check_call(name, arguments, text, names)
        case _:
            raise BadExpression(f"{text!r}: {ast.unparse(node)[:80]!r} cannot stand in an expression")


def _check_call(name: str, arguments: list[ast.expr], text: str, names: Collection[str]) -> None:
    least, most = FUNCTIONS[name]
    if not least <= len(arguments) <= most:
        count = str(least) if least == most else f"{least} to {most}"
        raise BadExpression(f"{text!r}: {name} has {count} arguments, not {len(arguments)}")
    if name == "choice" and not all(isinstance(one, ast.Constant) for one in arguments):
        raise BadExpression(f"{text!r}: choice is among numbers or texts")
    if name == "at":
        try:
            moment(arguments[0].value)  # type: ignore[attr-defined]
        except (AttributeError, TypeError, ValueError):
            raise BadExpression(f"{text!r}: at begins with a time such as '2026-01-01T00:00:00Z'") from None
    for argument in arguments:
        _check(argument, text, names)
