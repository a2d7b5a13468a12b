"""The commands that the README and the guide show: each can be typed, and the README's job does what is shown of it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from abscli.cli.app import load
from abscli.cli.overview import COMMANDS
from tests.support.guide.blocks import ANY, PAGES, Command, agree, blocks, run
from tests.support.imports import ROOT

README = ROOT / "README.md"
PAGES_SHOWN = [README, *sorted(PAGES.rglob("*.md"))]
PROMPT = "    $ "
ENDS = re.compile(r"[|;&>]+|\d?>&?\d?")


def shown(page: Path) -> Iterator[Command]:
    """The commands in a page's indented blocks, with what stands below them, and those of its consoles."""
    command: Command | None = None
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith(PROMPT):
            if command is not None:
                yield command
            command = Command(number, line.removeprefix(PROMPT))
        elif command is not None and line.startswith("    "):
            command.printed.append(line[4:])
        elif command is not None and line:
            yield command
            command = None
    if command is not None:
        yield command
    yield from (block for block in blocks(page) if isinstance(block, Command))


def calls(text: str) -> Iterator[list[str]]:
    """The calls of `abs` in what is typed to a shell, as words."""
    lexer = shlex.shlex(text.replace("\\\n", " ").replace("$(", " ; "), posix=True, punctuation_chars="|;&<>()")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if not word.strip("|;&<>()"):
            if words[:1] == ["abs"]:
                yield words[1:]
            words = []
        elif words or "=" not in word:  # what sets a variable stands before the command
            words.append(word)


@pytest.mark.parametrize("page", PAGES_SHOWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_a_page_can_be_typed(page: Path) -> None:
    several = [(command, words) for command in shown(page) for words in calls(command.text)]
    for command, words in several:
        where = f"{page.name}:{command.line}: {command.text}"
        if not words or words[0].startswith("-"):
            continue
        assert words[0] in COMMANDS, where
        params: list[Any] = load(words[0]).params
        options = {name: param for param in params for name in (*param.opts, *param.secondary_opts)}
        rest, arguments = words[1:], 0
        while rest:
            word = rest.pop(0)
            if not word.startswith("-") or word == "-":
                arguments += word not in ("...", "…")
                continue
            name, equals, _ = word.partition("=")
            assert name in options or name in ("--help", "-h") or set(name[1:]) <= set("qv"), f"{where}: no {name}"
            if name in options and not options[name].is_flag and not options[name].count and not equals:
                assert rest, f"{where}: {name} without a value"
                rest.pop(0)
        takes = [param for param in params if param.param_type_name == "argument"]
        assert all(param.nargs == -1 for param in takes) or arguments <= len(takes), where


def test_what_cannot_be_typed_is_noticed() -> None:
    assert list(calls("X=1 abs run a.yaml --store 's t' | cat; abs gc s && ls")) == [
        ["run", "a.yaml", "--store", "s t"], ["gc", "s"],
    ]  # fmt: skip


def write_word_count(folder: Path, *, files: int = 3, lines: int = 200) -> None:
    """Puts the README's word count, its functions, and texts to count into a folder."""
    text = README.read_text(encoding="utf-8").partition("\n## Jobs\n")[2]
    (yaml,) = re.findall(r"```yaml\n(version: 1\njob: wordcount\n.*?)```", text, re.DOTALL)
    functions = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    (folder / "job.yaml").write_text(yaml)
    (folder / "mywords.py").write_text(functions)
    (folder / "corpus").mkdir()
    for i in range(files):
        (folder / "corpus" / f"{i}.txt").write_text(f"to be or not to be spark w{i}\n" * lines)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the README's word count."""
    folder = tmp_path_factory.mktemp("readme")
    write_word_count(folder)
    return folder


RUN = (
    "abs run job.yaml --store snapshots --state-memory 500M",
    "abs run job.yaml --store snapshots --engine inline --trace trace.jsonl",
    "abs simulate --check trace.jsonl",
    "abs simulate job.yaml --recovery local --workers 3 --crash partial",
)
"""Of the README's commands those on a job.yaml that need no cluster and no kill. Lost workers, repairs and rescales are
run by the guide's pages and by tests/exactly_once; hosts by tests/engine/hosts; an exhaustive search, which takes
minutes for this job, by tests/sim."""


@pytest.mark.parametrize("text", RUN)
def test_the_readme_s_job_does_what_is_shown(job: Path, text: str) -> None:
    command = next(command for command in shown(README) if command.text == text)
    once = Command(command.line, text, command.printed)
    if " run " in text:
        once.text = f"rm -rf out snapshots; {text}"
    if " run " in text and "--engine" not in text:
        once.text += " --engine inline"
    if " simulate " in text and "--check" not in text:
        once.text += " --runs 20"
    printed = run(once, job)
    assert not any(line.startswith("[exit") for line in printed), printed
    if command.printed:
        assert agree([ANY, *command.printed, ANY], printed), printed


def test_every_command_that_is_run_is_shown() -> None:
    assert set(RUN) <= {command.text for command in shown(README)}
