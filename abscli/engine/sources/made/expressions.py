"""Columns that are made of rows' numbers, by the expressions of a job file: many rows at a time."""

from __future__ import annotations

import ast
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from abscli.engine.errors import JobFailed, UsageError
from abscli.engine.sources.made.generated import Dice, MakeRows, Numbers
from formats.job.expressions import ROW, BadExpression, moment, parse_expression

_CHECKED = {ast.Add: pc.add_checked, ast.Sub: pc.subtract_checked, ast.Mult: pc.multiply_checked}
_FLOORED = {ast.FloorDiv: np.floor_divide, ast.Mod: np.mod, ast.Div: np.true_divide}
_COMPARED = {ast.Eq: pc.equal, ast.NotEq: pc.not_equal, ast.Lt: pc.less, ast.LtE: pc.less_equal, ast.Gt: pc.greater,
             ast.GtE: pc.greater_equal}  # fmt: skip
_FAULTS = (pa.ArrowException, ValueError, TypeError)


def rows_schema(columns: Mapping[str, object], where: str) -> pa.Schema:
    """The columns that come of these expressions; UsageError for one that cannot be, such as a sum of texts."""
    values: dict[str, pa.Array] = {ROW: pa.array([], pa.int64())}
    for name, text in columns.items():
        try:
            values[name] = _column(name, parse_expression(str(text), values), values, np.array([], np.int64), 0)
        except (BadExpression, *_FAULTS) as error:
            raise UsageError(
                f"{where}: invalid expression {str(text)!r} for column {name!r}: {_first_line(error)}"
            ) from None
    return pa.schema([(name, values[name].type) for name in columns])


def rows_maker(columns: Mapping[str, object], seed: int, where: str) -> MakeRows:
    """Rows by their numbers. where: whose, in messages; JobFailed where a row has no value, as of a division by
    zero."""
    names = [ROW, *columns]
    expressions = {name: parse_expression(str(text), names[: i + 1]) for i, (name, text) in enumerate(columns.items())}
    schema = rows_schema(columns, where)

    def make(numbers: Numbers) -> pa.RecordBatch:
        values: dict[str, pa.Array] = {ROW: pa.array(numbers)}
        for name, expression in expressions.items():
            try:
                values[name] = _column(name, expression, values, numbers, seed)
            except _FAULTS as error:
                rows = f"rows {numbers[0]} to {numbers[-1]}"
                raise JobFailed(
                    f"{where}: column {name!r} has no value in one of {rows}: {_first_line(error)}",
                    hint="change the expression of this column so that rows that were already generated keep their "
                    "values",
                ) from None
        return pa.record_batch([values[name] for name in columns], schema=schema)

    return make


def _column(
    name: str, expression: ast.expr, columns: Mapping[str, pa.Array], numbers: Numbers, seed: int
) -> pa.Array:
    value = _Evaluation(columns, Dice(seed * 2**32 + zlib.crc32(name.encode()), numbers)).of(expression)
    return pa.repeat(value, len(numbers)) if isinstance(value, pa.Scalar) else value


class _Evaluation:
    """Of one column. dice: its own, so that other columns do not change it."""

    def __init__(self, columns: Mapping[str, pa.Array], dice: Dice) -> None:
        self._columns = columns
        self._dice = dice

    def of(self, node: ast.expr) -> Any:
        """An array, or a scalar where all rows have the same."""
        match node:
            case ast.Constant(value=value):
                return pa.scalar(value)
            case ast.Name(id=name):
                return self._columns[name]
            case ast.UnaryOp(operand=operand):
                return pc.negate_checked(self.of(operand))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return _COMPARED[type(op)](self.of(left), self.of(right))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _CHECKED:
                return _CHECKED[type(op)](_number(self.of(left)), _number(self.of(right)))
            case ast.BinOp(left=left, op=op, right=right):
                return _divided(type(op), self.of(left), self.of(right))
            case ast.Call(func=ast.Name(id=function), args=arguments):
                return self._call(function, arguments)
        raise AssertionError(ast.dump(node))

    def _call(self, function: str, arguments: list[ast.expr]) -> Any:
        if function == "uniform":
            return pa.array(self._dice.fraction())
        if function == "random":
            bound = _plain(self.of(arguments[0]))
            if np.asarray(bound).dtype.kind != "i" or np.any(bound < 1):
                raise ValueError("random(n) needs an integer of at least 1")
            return pa.array(self._dice.below(bound))
        if function == "choice":
            choices = pa.array([argument.value for argument in arguments if isinstance(argument, ast.Constant)])
            return choices.take(pa.array(self._dice.below(len(choices))))
        if function == "text":
            texts = [self.of(argument).cast(pa.string()) for argument in arguments]
            return pc.binary_join_element_wise(*texts, "")
        start, seconds = moment(ast.literal_eval(arguments[0])), _number(self.of(arguments[1]))
        if pa.types.is_integer(seconds.type):
            micros = pc.multiply_checked(seconds, 1_000_000)
        else:
            micros = pc.round(pc.multiply(seconds, 1_000_000.0)).cast(pa.int64())
        return pc.add_checked(micros, start).cast(pa.timestamp("us"))


def _number(value: Any) -> Any:
    if not (pa.types.is_integer(value.type) or pa.types.is_floating(value.type)):
        raise TypeError(f"expected a number, got {value.type}")
    return value


def _plain(value: Any) -> Any:
    """A number, or numbers, of numpy."""
    value = _number(value)
    return np.asarray(value.as_py()) if isinstance(value, pa.Scalar) else value.to_numpy()


def _divided(op: type[ast.operator], left: Any, right: Any) -> Any:
    dividend, divisor = _plain(left), _plain(right)
    if np.any(divisor == 0):
        raise ValueError("division by zero")
    result = np.asarray(_FLOORED[op](dividend, divisor))
    return pa.scalar(result.item()) if result.ndim == 0 else pa.array(result)


def _first_line(error: Exception) -> str:
    message = error.message if isinstance(error, BadExpression) else str(error)
    return (message.splitlines() or [type(error).__name__])[0]
