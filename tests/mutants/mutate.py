"""Mutants of a module: its source with one small change each that a test should notice."""

from __future__ import annotations

import ast
import copy
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
    ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
CALLED = {"min": "max", "max": "min", "any": "all", "all": "any"}

Change = Callable[[], None]
Found = tuple[int, Callable[[], str], Change]
"""Line, words, and the change itself."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change. function: first line of the innermost function that it is in, 0 if in none; line: where it is in the
    module as it stands; what: before and after, in a few words."""

    function: int
    line: int
    what: str
    source: str


def count(source: str) -> int:
    """How many mutants a module's source has."""
    return sum(1 for _ in _changes(ast.parse(source)))


def mutant(source: str, number: int) -> Mutant:
    """One of them, from 0, outer ones first."""
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]  # outer ones first
    line, words, change = next(itertools.islice(_changes(tree), number, None))
    around = [f for f in functions if f.lineno <= line <= (f.end_lineno or line)]
    first = min([around[-1].lineno, *(d.lineno for d in around[-1].decorator_list)]) if around else 0
    what = words()
    change()
    return Mutant(first, line, what, ast.unparse(ast.fix_missing_locations(tree)))


def _changes(tree: ast.AST) -> Iterator[Found]:
    """What can be changed in a tree, in its place."""
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop(0)
        if _is_text(node) or _is_for_types(node):
            continue
        yield from _of_statements(node)
        yield from _of_expression(node)
        todo += [child for child in ast.iter_child_nodes(node) if not _is_annotation(node, child)]


def _is_text(node: ast.AST) -> bool:
    """Docstrings and messages: their words are no behaviour."""
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _is_annotation(node: ast.AST, child: ast.AST) -> bool:
    return any(child is getattr(node, name, None) for name in ("annotation", "returns")) or (
        child in getattr(node, "decorator_list", ())
    )


def _of_statements(node: ast.AST) -> Iterator[Found]:
    """A statement of a body that is left out."""
    for name in ("body", "orelse", "finalbody"):
        body = getattr(node, name, None)
        if not isinstance(body, list):
            continue
        for statement in body:
            called = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call | ast.Yield)
            stored = isinstance(statement, ast.Assign) and not isinstance(statement.targets[0], ast.Name | ast.Tuple)
            if getattr(node, "name", None) == "__init__" and not called:
                continue  # without it nothing runs at all
            if called or stored or isinstance(statement, ast.AugAssign | ast.Raise | ast.Delete | ast.Continue):

                def leave_out(body: list[ast.stmt] = body, statement: ast.stmt = statement) -> None:
                    body[body.index(statement)] = ast.copy_location(ast.Pass(), statement)

                def words(statement: ast.stmt = statement) -> str:
                    return f"left out: {_words(statement)}"

                yield statement.lineno, words, leave_out


def _of_expression(node: ast.AST) -> Iterator[Found]:
    line = getattr(node, "lineno", 0)

    def put(name: str, value: object) -> Found:
        after = copy.copy(node)
        setattr(after, name, value)
        return line, lambda: f"{_words(node)} -> {_words(after)}", lambda: setattr(node, name, value)

    match node:
        case ast.Compare(ops=[op, *rest]) if type(op) in COMPARED:
            yield put("ops", [COMPARED[type(op)](), *rest])
        case ast.BinOp(op=op) if type(op) in COMPUTED:
            yield put("op", COMPUTED[type(op)]())
        case ast.AugAssign(op=op) if type(op) in COMPUTED:
            yield put("op", COMPUTED[type(op)]())
        case ast.BoolOp(op=op, values=values):
            yield put("op", ast.And() if isinstance(op, ast.Or) else ast.Or())
            for i in range(len(values)):
                yield put("values", [*values[:i], *values[i + 1 :]] if len(values) > 2 else [values[1 - i]] * 2)
        case ast.UnaryOp(op=ast.Not()):
            yield line, lambda: f"{_words(node)} -> without not", _bare(node)
        case ast.If(test=test) | ast.IfExp(test=test):
            for constant in (True, False):
                if not isinstance(test, ast.Constant):
                    yield put("test", ast.copy_location(ast.Constant(constant), test))
        case ast.While(test=test) if not isinstance(test, ast.Constant):
            yield put("test", ast.copy_location(ast.Constant(False), test))
        case ast.comprehension(ifs=[_, *_]):
            line = node.ifs[0].lineno
            yield put("ifs", [])
        case ast.Constant(value=bool() as flag):
            yield put("value", not flag)
        case ast.Constant(value=int() as number):
            yield put("value", number + 1)
        case ast.Call(func=ast.Name(id=name)) if name in CALLED:
            yield put("func", ast.Name(CALLED[name], ast.Load()))
        case ast.Return(value=value) if value is not None and not isinstance(value, ast.Constant):
            yield put("value", ast.copy_location(ast.Constant(None), value))


def _bare(node: ast.UnaryOp) -> Change:
    def change() -> None:  # not not x: the truth of x
        node.operand = ast.copy_location(ast.UnaryOp(ast.Not(), node.operand), node)

    return change


def _words(node: ast.AST) -> str:
    head = copy.copy(node)
    if isinstance(head, ast.If | ast.While):
        head.body, head.orelse = [ast.Pass()], []
    try:
        text = ast.unparse(ast.fix_missing_locations(head)) if not isinstance(node, ast.comprehension) else "for"
    except (AttributeError, ValueError):
        text = type(node).__name__
    return " ".join(text.split())[:110]
