"""Texts contain values, not the expressions that stand for them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXPRESSION = re.compile(r"(?<!\$)\{[a-z_]+(\.[a-z_]+)+(:[^{}]*)?\}")
"""An attribute in braces, as in an f-string; not a variable of a shell or of log4j."""


def forgotten(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each string that looks like an f-string without its `f`."""
    tree = ast.parse(source)
    within = {id(value) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for value in node.values}
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in within
        if is_text and EXPRESSION.search(node.value):
            yield node.lineno, node.value


def test_no_message_shows_an_expression_instead_of_its_value() -> None:
    files = [*(ROOT / "abscli").rglob("*.py"), *(ROOT / "formats").rglob("*.py")]
    found = [f"{file.relative_to(ROOT)}:{line}" for file in files for line, _ in forgotten(file.read_text())]
    assert found == []


def test_a_forgotten_prefix_is_found() -> None:
    source = 'a = f"{self.x}"\nb = "worker {self._number} is lost"\nc = "${sys.x}"\n'
    assert [line for line, _ in forgotten(source)] == [2]
