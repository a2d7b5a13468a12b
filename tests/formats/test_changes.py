"""`moved` and `removed` of a job file: what they say, and what is wrong with them, with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from formats.job.changes import Changes, Move
from formats.job.file import BadFile, parse_job, parse_job_bytes

OPERATORS = "operators:\n  a: {source: {type: text, path: x}}\n  b: {from: a, distinct: [line]}\n"
SCHEMA = json.loads((Path(__file__).parents[2] / "formats" / "schemas" / "topology-file.json").read_bytes())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "t.yaml"


def changes(file: Path, lines: str) -> Changes:
    file.write_text(f"version: 1\njob: j\n{lines}{OPERATORS}")
    return parse_job(file).changes


def errors(file: Path, lines: str) -> list[str]:
    with pytest.raises(BadFile) as raised:
        changes(file, lines)
    return [f"{error.line}:{error.column}: {error.message}" for error in raised.value.mistakes]


def test_a_file_without_lines_says_nothing(file: Path) -> None:
    assert changes(file, "") == Changes()
    assert changes(file, "moved: []\nremoved: []\n") == Changes()
    assert Changes().heir("a") == "a"


def test_a_chain_of_moves_leads_to_its_end(file: Path) -> None:
    said = changes(file, "moved: [{from: x, to: y}, {from: y, to: b}, {from: u, to: v}]\nremoved: [v, w]\n")
    assert said.moved == (Move("x", "y"), Move("y", "b"), Move("u", "v"))
    assert [said.heir(id) for id in "xybuvw"] == ["b", "b", "b", None, None, None]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("moved: [{from: a, to: b}]\n", "3:9: moved: a is an operator of this file, so it has not moved"),
        ("moved: [{from: x, to: a}, {from: x, to: b}]\n", "3:27: moved: x moves twice, to a and to b"),
        ("moved: [{from: x, to: y}]\n", "3:9: moved: x moves to y, which is not an operator of this file"),
        ("removed: [a]\n", "3:11: removed: a is an operator of this file"),
        ("removed: [x, x]\n", "3:14: removed: x stands twice"),
        ("moved: [{from: x, to: a}]\nremoved: [x]\n", "4:11: removed: x is also moved, to a"),
        ("moved: {x: a}\n", "3:8: moved must be a list, not a mapping"),
        ("moved: [x]\n", "3:9: moved must be a mapping, not the text 'x'"),
        ("moved: [{from: x}]\n", "3:9: an entry of moved has no to"),
        ("moved: [{from: x, to: a, too: b}]\n", "3:26: an entry of moved: unknown key 'too'"),
        ("removed: ['x y']\n", "3:11: removed: 'x y' is not an operator id"),
        ("removed: [1]\n", "3:11: removed must be a string, not the number 1"),
    ],
)
def test_what_contradicts_the_file_or_another_line_is_said_with_its_place(
    file: Path, lines: str, message: str
) -> None:
    assert errors(file, lines) == [message]


def test_two_operators_do_not_exchange_their_ids_in_one_step(file: Path) -> None:
    """Whether that has been done could not be told from an epoch, and it would be done again with every run."""
    assert errors(file, "moved: [{from: a, to: b}, {from: b, to: a}]\n") == [
        "3:9: moved: a is an operator of this file, so it has not moved",
        "3:27: moved: b is an operator of this file, so it has not moved",
    ]


def test_moves_in_a_circle_lead_nowhere(file: Path) -> None:
    assert errors(file, "moved: [{from: x, to: y}, {from: y, to: x}]\n") == [
        "3:9: moved: x moves in a circle",
        "3:27: moved: y moves in a circle",
    ]


IDS = st.sampled_from(["a", "b", "x", "y", "z", "a b", "", 1, None])
ENTRIES = st.fixed_dictionaries({"from": IDS, "to": IDS}) | st.fixed_dictionaries({"from": IDS}) | IDS
VALUES = st.lists(ENTRIES, max_size=4) | IDS


@given(moved=VALUES, removed=st.lists(IDS, max_size=3) | IDS)
def test_any_lines_are_read_or_refused_and_what_is_read_fits_the_schema(moved: Any, removed: Any) -> None:
    text = f"version: 1\njob: j\n{yaml.safe_dump({'moved': moved, 'removed': removed})}{OPERATORS}"
    try:
        said = parse_job_bytes(text.encode(), "t.yaml", None).changes
    except BadFile:
        return
    jsonschema.Draft202012Validator(SCHEMA).validate(yaml.safe_load(text))
    for move in said.moved:
        assert said.heir(move.before) in ("a", "b", None)
