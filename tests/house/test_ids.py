"""Names of tasks and channels are cut apart in one module."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.support.imports import MODULES, ROOT

IDS = "formats/ids.py"
CUTS_PATHS = {
    "abscli/cli/hints.py",
    "abscli/stores/flink/diff.py",
    "abscli/stores/native/store_verdict.py",
    "abscli/stores/spark/rewind.py",
    "formats/flink/files/folders.py",
    "formats/flink/files/layout.py",
    "formats/flink/files/resolve.py",
    "formats/flink/rewrite.py",
    "formats/flink/store.py",
    "formats/native/layout.py",
    "formats/native/remove.py",
    "formats/schema.py",
    "formats/spark/checkpoint.py",
    "formats/spark/logs/operators.py",
    "formats/storage.py",
}
"""What they cut at `/` are paths of files, or in a schema."""

NAMES = [str(path.relative_to(ROOT)) for path in MODULES]


def cuts(name: str) -> Iterator[tuple[str, int]]:
    """At what a module cuts texts, and in which line."""
    for node in ast.walk(ast.parse((ROOT / name).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            at = node.args[0]
            if (
                node.func.attr in ("partition", "rpartition", "split", "rsplit", "index", "rindex", "find", "rfind")
                and isinstance(at, ast.Constant)
                and isinstance(at.value, str)
            ):
                yield at.value, node.lineno


@pytest.mark.parametrize("name", [name for name in NAMES if name != IDS])
def test_no_other_module_cuts_the_name_of_a_task_or_channel(name: str) -> None:
    for at, line in cuts(name):
        assert at != "->", f"{name}:{line} cuts a channel's name: `formats.ids` does that"
        if name not in CUTS_PATHS:
            assert at != "/", f"{name}:{line} cuts a task's name, or has to be named in CUTS_PATHS: see `formats.ids`"


def test_the_modules_that_cut_paths_do() -> None:
    assert {name for name in NAMES if name != IDS and any(at == "/" for at, _ in cuts(name))} == CUTS_PATHS
