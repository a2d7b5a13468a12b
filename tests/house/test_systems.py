"""Commands that read do not know which system they read, and systems answer in files of the same name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from abscli.stores.registry import SYSTEMS
from formats.schema import BODIES
from tests.house.test_layers import ROOT, imports

OF_ITS_OWN_STORE = {"demo", "rebuild", "run"}
"""Commands of the engine's own store."""

COMMANDS = sorted(
    path.stem for path in (ROOT / "abscli" / "commands").glob("*.py")
    if path.stem not in {"__init__", "doctor", *OF_ITS_OWN_STORE}  # doctor tries the engine called Spark
)  # fmt: skip

FOLDERS = {"abs": "native", "flink": "flink", "spark": "spark"}
"""Where a system of the table lies, in `abscli/stores` and in `formats`."""


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every name in the code itself, with its line: of variables, attributes, functions, parameters. Spark as an engine
    is no system."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "Engine":
            continue
        for field in ("id", "attr", "name", "arg"):
            if isinstance(name := getattr(node, field, None), str):
                yield getattr(node, "lineno", 0), name


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_reads_names_no_system(command: str) -> None:
    """Help and messages are prose, and may; a name in the code, a text that is a name, or an import may not."""
    path = ROOT / "abscli" / "commands" / f"{command}.py"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    own = "|".join([*FOLDERS.values()])
    for dotted in imports(path):
        assert not re.match(rf"(formats|abscli\.stores)\.({own})\b", dotted), f"{command} imports {dotted}"
    for line, name in names(tree):
        assert not re.search(own, name, re.IGNORECASE), f"{path}:{line} names {name}"
    known = {system.name for system in SYSTEMS}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            assert node.value not in known, f"{path}:{node.lineno} names {node.value!r}"


def test_what_is_shared_between_systems_imports_none_of_them() -> None:
    """The table alone does. How keys are hashed is of no system."""
    for folder in ("diff", "report", "text"):
        for path in (ROOT / "abscli" / folder).glob("*.py"):
            for dotted in imports(path):
                assert not re.match(r"formats\.(flink|spark|native(?!\.hashing))\b", dotted), f"{path} imports {dotted}"


def test_every_system_has_its_folder_and_its_tests() -> None:
    assert {system.name for system in SYSTEMS} == set(FOLDERS)
    for folder in FOLDERS.values():
        for place in ("abscli/stores", "formats", "tests"):
            assert (ROOT / place / folder / "__init__.py").exists()


@pytest.mark.parametrize(
    "question",
    ["check", "diff", "plan", "recovery", "restore", "system", "text/inspect", "text/plan", "verdict"],
)
def test_each_system_answers_a_question_in_a_file_of_the_same_name(question: str) -> None:
    for folder in FOLDERS.values():
        path = ROOT / "abscli" / "stores" / folder / f"{question}.py"
        assert path.exists(), f"{path} is not there"


def test_the_schema_of_plans_has_the_body_of_each_system_of_the_table() -> None:
    """`formats` cannot look into the table."""
    assert {system.name: system.recovery().body for system in SYSTEMS} == BODIES
