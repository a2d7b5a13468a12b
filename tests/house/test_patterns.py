"""Every regular expression of the program takes time in proportion to its text, whoever wrote the text.

The patterns are found in the source, so that none can be forgotten: each call of `re`, and each `pattern=` that
msgspec applies. Each is tried on long texts made from its own structure, and must not slow down with the square of
their length.
"""

from __future__ import annotations

import ast
import importlib
import itertools
import re
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from re import _constants as sre
from re import _parser as sre_parser
from statistics import median
from types import FrameType, ModuleType
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("abscli", "formats")
FUNCTIONS = {"compile", "match", "search", "fullmatch", "sub", "subn", "split", "findall", "finditer"}
ALL = frozenset({"match", "fullmatch", "finditer"})
EVERYWHERE = frozenset({"search", "findall", "sub", "subn", "split", "finditer"})
"""Functions that try each place of a text."""

SMALL, LARGE = 1_000, 8_000
"""Lengths of texts. A quadratic pattern takes 0.1 s and more for the large one."""
REPEATS = 2_000
"""How often a longer unit is repeated at least: a quadratic pattern tries the rest of the text at each of them."""
QUICK = 0.01
"""Seconds of CPU for the large text within which a pattern is linear, whatever the machine."""
RATIO = 9.0
"""Growth of the time for a text of four times the length, 4 for a linear pattern and 16 for a quadratic one."""
LIMIT = 2.0
"""Seconds of CPU after which an attempt is stopped."""

_REST = r'(?:[^"]|"")*+'
_FIELD = rf'(?:"{_REST}"|(?!")[^,"]*+)'
_FIELDS = rf"(?:{_FIELD},)*+"

LOCAL: dict[tuple[str, str], str] = {
    ("formats/native/names.py", "own"): re.escape("operator") + r"-[0-9a-f]{32}\.parquet",
    ("formats/flink/state/heap_search.py", "re.compile"): r"(?=\x00\x00ab|\x01\x02.{4}cd)",
    ("formats/select.py", "re.split"): r",(?=(?:a|b|user id)=)",
    ("formats/select.py", "re.match"): r"(?:a|b|user id)=",
    ("abscli/stores/spark/relocate.py", "re.subn"): r'"(file:///q/ck|file:/q/ck|/q/ck)(?=[/"])',
    ("abscli/stores/copying/folder.py", "own"): re.escape(".copy.unfinished-") + "[0-9a-f]{16}",
    ("abscli/examples/starting.py", "re.sub"): r"orders|counts|lines",
    ("abscli/engine/sources/files/csv_records.py", "_closed"): rf"{_FIELDS}{_FIELD}\r?",
    ("abscli/engine/sources/files/csv_records.py", "_open"): rf'{_FIELDS}"{_REST}',
    ("abscli/engine/sources/files/csv_records.py", "_closed_within"): rf'{_REST}"(?:\r?|,{_FIELDS}{_FIELD}\r?)',
    ("abscli/engine/sources/files/csv_records.py", "_open_within"): rf'{_REST}(?:",{_FIELDS}"{_REST})?',
}
"""Patterns that are put together from arguments, each as it is made from likely ones: (file, name or function)."""


class Pattern(NamedTuple):
    """A regular expression. methods: that are called on it."""

    place: str
    text: str | bytes
    flags: int
    methods: frozenset[str]


def found() -> list[Pattern]:
    """Return every pattern, once for each place of it."""
    files = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    trees = {path: ast.parse(path.read_bytes()) for path in files}
    uses: dict[str, set[str]] = defaultdict(set)
    for tree in trees.values():
        for name, methods in _uses(tree).items():
            uses[name] |= methods
    patterns = []
    for path, tree in trees.items():
        patterns += _of_file(path, tree, uses)
    return patterns


def _uses(tree: ast.Module) -> dict[str, set[str]]:
    """Return the methods of patterns that a module calls, by the name of what they are called on."""
    uses: dict[str, set[str]] = defaultdict(set)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in FUNCTIONS:
            owner = node.value.id if isinstance(node.value, ast.Name) else getattr(node.value, "attr", None)
            if owner not in (None, "re"):
                uses[str(owner)].add(node.attr)
    return uses


def _of_file(path: Path, tree: ast.Module, uses: dict[str, set[str]]) -> Iterator[Pattern]:
    file = str(path.relative_to(ROOT))
    handed_on = _of_parameters(tree)
    names = {id(node.value): _name(node) for node in ast.walk(tree) if isinstance(node, ast.Assign | ast.AnnAssign)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "re":
            raise AssertionError(f"{file}:{node.lineno}: write re.NAME, which this test looks for")
        if isinstance(node, ast.Import) and any(each.name == "re" and each.asname for each in node.names):
            raise AssertionError(f"{file}:{node.lineno}: import re under its own name, which this test looks for")
        if not isinstance(node, ast.Call):
            continue
        for keyword in node.keywords:
            if keyword.arg == "pattern" and (text := _value(keyword.value, file)) is not None:
                yield Pattern(f"{file}:{node.lineno}", text, 0, frozenset({"finditer"}))
        function = node.func
        if not isinstance(function, ast.Attribute) or function.attr not in FUNCTIONS:
            continue
        if not isinstance(function.value, ast.Name) or function.value.id != "re":
            continue
        name = names.get(id(node), "") if function.attr == "compile" else ""
        methods = (uses.get(name) or handed_on) if function.attr == "compile" else {function.attr}
        text = _value(node.args[0], file)
        if text is None:
            text = LOCAL.get((file, name)) or LOCAL.get((file, f"re.{function.attr}"))
            assert text is not None, f"{file}:{node.lineno}: a pattern made from arguments: add a sample of it to LOCAL"
        flags = _value(node.args[1], file) if function.attr == "compile" and len(node.args) > 1 else 0
        yield Pattern(f"{file}:{node.lineno} {name}", text, int(flags or 0), _kinds(methods))


def _of_parameters(tree: ast.Module) -> set[str]:
    """Return the methods that are called on parameters of a module's functions which are patterns."""
    uses = _uses(tree)
    arguments = [node for node in ast.walk(tree) if isinstance(node, ast.arg) and node.annotation is not None]
    patterns = [each.arg for each in arguments if "Pattern" in ast.unparse(each.annotation or each)]
    return {method for name in patterns for method in uses[name]}


def _kinds(methods: set[str]) -> frozenset[str]:
    """Reduce methods to those that differ in how they look for matches; all if none is known."""
    kinds = frozenset("finditer" if method in EVERYWHERE else method for method in methods - {"compile"})
    return kinds or ALL


def _name(node: ast.Assign | ast.AnnAssign) -> str:
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    return target.id if isinstance(target, ast.Name) else getattr(target, "attr", "")


def _value(node: ast.expr, file: str) -> Any:
    """Evaluate an expression among the names of its module; None if it needs others."""
    module = _module(file)
    try:
        return eval(compile(ast.Expression(node), file, "eval"), dict(vars(module)))
    except NameError:
        return None


def _module(file: str) -> ModuleType:
    return importlib.import_module(file.removesuffix(".py").removesuffix("/__init__").replace("/", "."))


# -- texts made from a pattern's structure ---------------------------------------------------------------------

ALPHABET = " \n\t\rax0A9_-.:,;/\\|=\"'()[]{}<>+*#%&@\0\x7f\xe9"
SUFFIXES = ("", "\0", "\n", "!", "b")


def _attacks(pattern: str) -> list[tuple[str, str, str]]:
    """Return prefixes, repeated units and suffixes of texts."""
    tree = sre_parser.parse(pattern)
    own = sorted(set(_literals(tree)) | set(ALPHABET))
    attacks = [("", c, suffix) for c in own for suffix in ("", "\0", "\n")]
    sample = _sample(tree)
    for number in range(_most_branches(tree)):
        whole = _sample(tree, number)[:60]
        parts = {whole[start:] for start in range(len(whole))}
        parts |= {whole[start:end] for start in (0, 1) for end in range(start + 1, len(whole))}
        attacks += [("", part, "\0") for part in sorted(parts)]
    for prefix, unit in itertools.islice(_pumps(tree, ""), 400):
        attacks += [(prefix, unit, suffix) for suffix in SUFFIXES]
        attacks += [("", prefix + unit, "\0")] if prefix else []
        attacks += [(prefix, unit + "\n", "\0"), (prefix, unit, "\0" + sample)]
    return list(dict.fromkeys(attacks))


def _pumps(tree: Any, before: str) -> Iterator[tuple[str, str]]:
    """Yield for each unbounded repetition a text that leads to it, and texts that it repeats."""
    prefix = before
    for operation, argument in tree:
        if operation in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            low, high, inner = argument
            if high == sre.MAXREPEAT or high > 50:
                yield from ((prefix, unit) for unit in _units(inner))
            yield from _pumps(inner, prefix)
            prefix += _sample(inner) * low
        elif operation is sre.SUBPATTERN:
            yield from _pumps(argument[-1], prefix)
            prefix += _sample(argument[-1])
        elif operation is sre.BRANCH:
            for branch in argument[1]:
                yield from _pumps(branch, prefix)
            prefix += _sample(argument[1][0])
        else:
            prefix += _sample([(operation, argument)])


def _units(inner: Any) -> list[str]:
    """Return texts that a repeated part matches: one for each kind of characters of a class."""
    if len(inner) == 1:
        operation, argument = inner[0]
        if operation in (sre.IN, sre.ANY, sre.NOT_LITERAL):
            return [c for c in ALPHABET if _accepts(operation, argument, c)] or [_sample(inner)]
        if operation is sre.SUBPATTERN:
            return _units(argument[-1])
        if operation is sre.BRANCH:
            return [unit for branch in argument[1] for unit in _units(branch) if unit]
    return [text] if (text := _sample(inner)) else []


def _accepts(operation: Any, argument: Any, character: str) -> bool:
    if operation is sre.ANY:
        return True
    if operation is sre.NOT_LITERAL:
        return ord(character) != argument
    negated, accepted = False, False
    for kind, value in argument:
        if kind is sre.NEGATE:
            negated = True
        elif kind is sre.LITERAL:
            accepted |= ord(character) == value
        elif kind is sre.RANGE:
            accepted |= value[0] <= ord(character) <= value[1]
        elif kind is sre.CATEGORY:
            accepted |= _CATEGORIES[value](character)
    return accepted is not negated


_CATEGORIES: dict[Any, Callable[[str], bool]] = {
    sre.CATEGORY_DIGIT: str.isdigit,
    sre.CATEGORY_NOT_DIGIT: lambda c: not c.isdigit(),
    sre.CATEGORY_SPACE: str.isspace,
    sre.CATEGORY_NOT_SPACE: lambda c: not c.isspace(),
    sre.CATEGORY_WORD: lambda c: c.isalnum() or c == "_",
    sre.CATEGORY_NOT_WORD: lambda c: not (c.isalnum() or c == "_"),
}


def _most_branches(tree: Any) -> int:
    """Return the number of alternatives of the choice that has most of them; 1 without a choice."""
    most = 1
    for operation, argument in tree:
        if operation in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            most = max(most, _most_branches(argument[2]))
        elif operation is sre.SUBPATTERN:
            most = max(most, _most_branches(argument[-1]))
        elif operation is sre.BRANCH:
            most = max(most, len(argument[1]), *map(_most_branches, argument[1]))
    return min(most, 8)


def _sample(tree: Any, number: int = 0) -> str:
    """Return a text that a part of a pattern matches. number: of the alternative that is taken in a choice."""
    text = ""
    for operation, argument in tree:
        if operation is sre.LITERAL:
            text += chr(argument)
        elif operation in (sre.IN, sre.NOT_LITERAL, sre.ANY):
            text += next((c for c in "ax0A9 \n" + ALPHABET if _accepts(operation, argument, c)), _first(argument))
        elif operation in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            text += _sample(argument[2], number) * max(argument[0], min(1, argument[1]))
        elif operation is sre.SUBPATTERN:
            text += _sample(argument[-1], number)
        elif operation is sre.ATOMIC_GROUP:
            text += _sample(argument, number)
        elif operation is sre.BRANCH:
            text += _sample(argument[1][number % len(argument[1])], number)
    return text


def _first(argument: Any) -> str:
    kind, value = argument[0] if isinstance(argument, list) else (None, None)
    return chr(value) if kind is sre.LITERAL else chr(value[0]) if kind is sre.RANGE else "\x80"


def _literals(tree: Any) -> Iterator[str]:
    for operation, argument in tree:
        if operation is sre.LITERAL:
            yield chr(argument)
        elif operation in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            yield from _literals(argument[2])
        elif operation is sre.SUBPATTERN:
            yield from _literals(argument[-1])
        elif operation is sre.BRANCH:
            for branch in argument[1]:
                yield from _literals(branch)


# -- measured ----------------------------------------------------------------------------------------------------


class TooSlow(Exception):
    """An attempt has taken LIMIT seconds of CPU."""


def slow_texts(pattern: Pattern) -> Iterator[str]:
    """Yield a description of each kind of text for which time grows faster than its length."""
    text = pattern.text.decode("latin-1") if isinstance(pattern.text, bytes) else pattern.text
    compiled = re.compile(pattern.text, pattern.flags)
    for attack in _attacks(text):
        for method in sorted(pattern.methods):

            def seconds(length: int, attack: Any = attack, method: str = method) -> float:
                prefix, unit, suffix = attack
                made: Any = prefix + unit * max(1, (length - len(prefix)) // len(unit)) + suffix
                if isinstance(pattern.text, bytes):
                    made = made.encode("latin-1", "replace")
                return _seconds(compiled, method, made)

            try:
                if seconds(max(LARGE, REPEATS * len(attack[1]))) < QUICK:
                    continue
                if _growth(seconds) < RATIO:
                    continue
            except TooSlow:
                pass
            prefix, unit, suffix = (part[:20] for part in attack)
            yield f"{pattern.place}: {pattern.text!r}.{method} on {prefix!r} + {unit!r} * N + {suffix!r}"
            return


def _growth(seconds: Callable[[int], float]) -> float:
    """Return by how much more time four times the length takes, at a length that takes long enough to measure."""
    length = SMALL
    while (least := median(seconds(length) for _ in range(3))) < QUICK / 4 and length < 1 << 20:
        length *= 2
    return median(seconds(4 * length) for _ in range(3)) / least


def _seconds(compiled: re.Pattern[Any], method: str, text: Any) -> float:
    begun = time.process_time()
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT)
    try:
        found = getattr(compiled, method)(text)
        if method == "finditer":
            for _ in found:
                pass
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return time.process_time() - begun


@pytest.fixture(autouse=True)
def stopped_when_slow() -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGVTALRM, stop)
    yield
    signal.signal(signal.SIGVTALRM, before)


def test_every_pattern_takes_time_in_proportion_to_its_text() -> None:
    patterns = found()
    assert len(patterns) > 100
    unique = {(each.text, each.flags, each.methods): each for each in patterns}
    assert [slow for pattern in unique.values() for slow in slow_texts(pattern)] == []


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("text", "flags", "method"),
    [
        (r"^\s*(comparator|merge_operator)\s*=\s*(.*?)\s*$", re.MULTILINE, "finditer"),
        (r"[-+]?(0[0-9_]+|.*:.*)", 0, "fullmatch"),
        (r"(.+?)/parts/([^/]+/[^/]+)/(ack\.json|log/.+\.arrow|[0-9a-f]{16}\.rows)", re.DOTALL, "fullmatch"),
        (r"protobuf\(\s*(?P<file>.+?)\s*,\s*(?P<name>[\w.]+)\s*\)", 0, "fullmatch"),
        (r"(a+)+$", 0, "match"),
        (rb"[0-9]+x", 0, "finditer"),
    ],
)
def test_a_pattern_of_quadratic_or_longer_time_is_found(text: str | bytes, flags: int, method: str) -> None:
    pattern = Pattern("here", text, flags, frozenset({method}))
    assert any(list(slow_texts(pattern)) for _ in range(3))  # beside busy processes a short time may seem long


def test_linear_patterns_pass() -> None:
    for text in (r"[0-9a-f]{32}", r"a*b", r"(\w+)=(\w+)"):
        assert not list(slow_texts(Pattern("here", text, 0, frozenset({"fullmatch"}))))
