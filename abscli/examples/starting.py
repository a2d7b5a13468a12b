"""A folder to begin with: a job, data, a test that kills the job, and what to type."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from abscli.examples.nexmark import QUERIES
from formats.errors import FormatError
from formats.redaction import refuse_credentials
from formats.storage import no_directory

IN_PYTHON = {"job.py": "job.py.txt", "test_job.py": "test_job.py.txt"}
IN_YAML = {"job.yaml": "job.yaml.txt", "functions.py": "functions.py.txt", "test_job.py": "test_yaml.py.txt"}
IN_BOTH = {"data/orders.jsonl": "orders.jsonl", "README.md": "README.md.txt"}
"""Files of the folder, and the templates that they are made of."""

NEXMARK = "nexmark-"
EXAMPLES = {f"{NEXMARK}{query}": question for query, question in QUERIES.items()}
"""Jobs that are whole, with what each does."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A folder that was filled.

    files: that were written, relative to it; commands: what to type in it, as its README has them.
    """

    job: str
    folder: str
    files: tuple[str, ...]
    commands: tuple[str, ...]


def begin(folder: str, job: str, *, yaml: bool = False) -> Begun:
    """Writes the files of a new job into a folder, which is made if it is not there. job: its name.

    Raises FormatError that names what is there already, or in the way; OSError. Nothing is left written then.
    """
    file = "job.yaml" if yaml else "job.py"
    templates = {**(IN_YAML if yaml else IN_PYTHON), **IN_BOTH}
    words = {
        "JOB_NAME": json.dumps(job, ensure_ascii=False),  # a literal of both, Python and YAML
        "JOB_TITLE": job,
        "JOB_FILE": file,
    }
    texts = {name: _filled(_text("starter", template), words) for name, template in templates.items()}
    _write(folder, texts)
    commands = (
        f"abs run {file} --store snapshots --engine inline", "abs inspect snapshots", "abs state snapshots sales"
    )  # fmt: skip
    return Begun(job, folder, tuple(texts), commands)


def begin_with(folder: str, example: str) -> Begun:
    """Writes the files of an example into a folder. example: of EXAMPLES.

    Raises as `begin`.
    """
    query = example.removeprefix(NEXMARK)
    number = query.removeprefix("q")
    words = {"QUERY_TITLE": f"NEXMark {number}, {QUERIES[query]}", "QUERY_NUMBER": number}
    texts = {
        "job.py": _text("nexmark", f"{query}.py"),
        "query.sql": _text("nexmark", f"{query}.sql"),
        "README.md": _filled(_text("nexmark", "README.md.txt"), words),
    }
    _write(folder, texts)
    commands = (
        "abs run job.py --store snapshots --engine inline", "abs inspect snapshots", "abs topology job.py -o yaml"
    )  # fmt: skip
    return Begun(example, folder, tuple(texts), commands)


def _write(folder: str, texts: Mapping[str, str]) -> None:
    """Files with these texts; nothing is left written where one cannot be."""
    _refuse_what_is_there(folder, list(texts))
    with contextlib.ExitStack() as undo:
        for name, text in texts.items():
            path = Path(folder, name)
            for missing in reversed([place for place in (path.parent, *path.parent.parents) if not place.exists()]):
                missing.mkdir()
                undo.callback(missing.rmdir)
            with path.open("x", encoding="utf-8") as out:  # a file that has come since is not written over, either
                undo.callback(path.unlink)
                out.write(text)
        undo.pop_all()


def words_to_go_there(folder: str) -> str:
    """What precedes a command that is to run in the folder; nothing where that is this one."""
    here = os.path.realpath(folder) == os.path.realpath(os.curdir)
    return "" if here else f"cd {shlex.quote(folder)} && "


def _refuse_what_is_there(folder: str, names: list[str]) -> None:
    refuse_credentials(folder, "DIR")
    for place in {os.path.dirname(os.path.join(folder, name)) or os.curdir: None for name in names}:
        if obstacle := no_directory(place):
            raise FormatError(f"cannot be used as a directory: {obstacle}", path=place, hint="choose another directory")
    there = [name for name in names if os.path.lexists(os.path.join(folder, name))]
    if there:
        raise FormatError(
            f"already contains {', '.join(there)}: existing files are not overwritten, and nothing was written",
            path=folder, hint="choose another directory, or move the existing files",
        )  # fmt: skip


def _text(room: str, name: str) -> str:
    return (resources.files("abscli.examples") / room / name).read_text(encoding="utf-8")


def _filled(text: str, words: dict[str, str]) -> str:
    return re.sub("|".join(words), lambda match: words[match[0]], text)  # at once: a name may be one of the words
