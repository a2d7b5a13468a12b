"""The help of every command keeps to its bounds, and its examples can be typed."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from abscli.cli import generate, main
from abscli.cli.app import GUIDE_PAGES, LONG_NAME, load
from abscli.cli.overview import COMMANDS
from abscli.text.pages import Page
from tests.support.guide.typed import calls, check_words

ROOT = Path(__file__).resolve().parents[2]
MOST_LINES = 10
"""Most lines of a description, with its first sentence and empty lines."""


@pytest.fixture(scope="module")
def pages() -> dict[str, Page]:
    return {page.name: page for page in generate.pages()}


@pytest.fixture
def columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def sections(text: str) -> dict[str, list[str]]:
    """Return the lines of a help text by heading, without empty lines at the ends. The description is under ``."""
    found: dict[str, list[str]] = {"": []}
    title = ""
    for line in text.splitlines()[1:]:
        heading = re.fullmatch(r"([A-Z][a-z ]+):", line)
        if heading:
            title = heading[1]
            found[title] = []
        else:
            found[title].append(line)
    return {title: "\n".join(lines).strip("\n").splitlines() for title, lines in found.items()}


def rows(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Return the entries of a table: the first line of each, and the lines that follow it."""
    entry: tuple[str, list[str]] | None = None
    for line in lines:
        if re.match(r"  \S", line):
            if entry is not None:
                yield entry
            entry = (line, [])
        elif entry is not None and line.startswith("   "):
            entry[1].append(line)
        elif not line:
            break
    if entry is not None:
        yield entry


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.usefixtures("columns")
def test_help_keeps_to_its_bounds(name: str, capsys: pytest.CaptureFixture[str], pages: dict[str, Page]) -> None:
    assert main.main([name, "--help"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    shown = sections(text)
    assert 0 < len(shown[""]) <= MOST_LINES, f"the description has {len(shown[''])} lines"
    for first, more in rows(shown.get("Arguments", [])):
        assert not more, first
    entries = list(rows(shown["Options"]))
    assert len(entries) == len(pages[name].options)
    for first, more in entries:
        is_long = len(first.strip()) > LONG_NAME and "  " not in first.strip()
        assert len(more) == is_long, f"{first}: {more}"
    assert len(list(rows(shown["Examples"]))) == 2
    statuses = list(rows(shown["Exit status"]))
    assert [int(first.split()[0]) for first, _ in statuses] == [code for code, _ in pages[name].exit_status]
    assert not any(more for _, more in statuses), statuses
    assert len(shown["See also"]) == 2
    assert list(shown)[-3:] == ["Examples", "Exit status", "See also"]


@pytest.mark.parametrize("name", COMMANDS)
def test_texts_are_fragments(name: str, pages: dict[str, Page]) -> None:
    page = pages[name]
    for text in [
        page.summary, *(option.help for option in page.options), *(argument.help for argument in page.arguments),
        *(text for _, text in page.exit_status), *(text for _, text in page.examples),
    ]:  # fmt: skip
        assert text.endswith("."), text
        assert text[0].isupper() or text.startswith("--"), text
    for option in page.options:
        assert len(option.help) <= 60, option


@pytest.mark.parametrize("name", COMMANDS)
def test_references_lead_somewhere(name: str, pages: dict[str, Page]) -> None:
    page = pages[name]
    assert page.see_also
    assert set(page.see_also) <= set(COMMANDS) - {name}
    assert page.guide.startswith(f"{GUIDE_PAGES}/")
    assert (ROOT / page.guide).is_file(), page.guide


def test_every_example_can_be_typed(pages: dict[str, Page]) -> None:
    for page in pages.values():
        assert len(page.examples) == 2, page.title
        for command, _ in page.examples:
            called = list(calls(command.removeprefix('eval "').removesuffix('"')))
            assert called, command
            for words in called:
                check_words(words, f"{page.title}: {command}")
                assert not page.name or words[0] == page.name, command


def test_every_example_of_an_option_value_is_accepted() -> None:
    """A value that its option refuses ends with exit code 2 before anything is opened."""
    for name in COMMANDS:
        for command, _ in load(name).examples:
            for words in calls(command.removeprefix('eval "').removesuffix('"')):
                context = load(name).make_context(name, words[1:])
                assert context.params, command


@pytest.mark.skipif(shutil.which("man") is None, reason="man is not installed")
@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_a_description_on_a_man_page_has_ten_lines(name: str, pages: dict[str, Page]) -> None:
    path = ROOT / "man" / f"{pages[name].title}.1"
    done = subprocess.run(
        ["man", "-l", str(path)], capture_output=True, text=True, check=True,
        env={"PATH": "/usr/bin:/bin", "MANWIDTH": "80", "LC_ALL": "C.UTF-8", "MAN_KEEP_FORMATTING": ""},
    )  # fmt: skip
    text = re.sub(r"\x1b\[[0-9;]*m|.\x08", "", done.stdout)
    described = re.search(r"(?ms)^DESCRIPTION\n(.*?)^[A-Z]", text)
    assert described
    assert len(described[1].strip("\n").splitlines()) <= MOST_LINES + (0 if name else 4)
