"""Hints for a damaged store: from the file that an error names to the commands that lead out.

A hint is something to copy: whole commands in backticks, with the store and the job that were given. Where an error is
raised nobody knows how the command was called; here it is known.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shlex
from collections.abc import Sequence
from typing import NamedTuple


class InStore(NamedTuple):
    """A place in a store that abs wrote.

    root: of the store, as the error has it;
    path: relative to it.
    """

    root: str
    path: str


def store_hint(error: BaseException, path: str | None, words: Sequence[str]) -> str | None:
    """The hint for something that is damaged or lost in a native store; None where the error's own hint is better.

    path: what the error is about;
    words: of the command line.
    """
    from abscli.cli.defaults import UntrustedKeys, hint_to_trust
    from formats.errors import Damaged, FormatError, NotFound, OtherJob
    from formats.output_file import WouldOverwrite

    if isinstance(error, UntrustedKeys) and path:
        return hint_to_trust(path, shlex.join(["abs", *words]))
    if isinstance(error, WouldOverwrite):
        return f"name another file, or replace this one: `{_with_force(words)}`"
    place = None
    if path and isinstance(error, Damaged | NotFound | OtherJob):
        with contextlib.suppress(OSError, FormatError):  # a hint must not be in the way of the error
            place = _locate(path)
    if place is None or (isinstance(error, NotFound) and place.path and path and os.path.isdir(path)):
        return None  # a folder within a store is no store: its own hint names the one around it
    store = shlex.quote(place.root)
    if not place.path:
        lost = not os.path.isfile(os.path.join(place.root, _store_file()))
        return _rebuild(store, words) if lost else _elsewhere(error, store)
    if isinstance(error, OtherJob):
        return None
    if place.path.split("/")[0] != "epochs":
        return _rebuild(store, words)
    return (
        f"`abs validate {store}` lists the damaged files; `abs plan-recovery {store} --out plan.json` plans a "
        "rollback to the newest intact epoch"
    )


def _with_force(words: Sequence[str]) -> str:
    """Return the command line with --force, ahead of a `--` after which words are no options."""
    at = list(words).index("--") if "--" in words else len(words)
    return shlex.join(["abs", *words[:at], "--force", *words[at:]])


def _elsewhere(error: BaseException, store: str) -> str | None:
    """Of an error about a whole store whose own file is there."""
    from formats.errors import NotFound

    return f"`abs inspect {store}` shows its epochs" if isinstance(error, NotFound) else None


def _rebuild(store: str, words: Sequence[str]) -> str:
    job = _job(words)
    rebuild = f"abs rebuild {store}{f' --job {job}' if job else ''}"
    return f"`{rebuild}` lists the metadata that can be rebuilt from intact files"


def _job(words: Sequence[str]) -> str | None:
    """The job file among the words of a command line, as a shell takes it."""
    named = [after for word, after in itertools.pairwise(words) if word == "--job"]
    named += [word.partition("=")[2] for word in words if word.startswith("--job=")]
    if not named and words[:1] == ["run"]:
        values = {after for word, after in itertools.pairwise(words) if word == "--store"}
        named = [word for word in words[1:] if not word.startswith("-") and word not in values and os.path.isfile(word)]
    return shlex.quote(named[0]) if named else None


def _store_file() -> str:
    from formats.native.layout import STORE

    return STORE


def _locate(path: str) -> InStore | None:
    """The store that a path of the local file system lies in, or is."""
    from formats.native.store import is_native
    from formats.storage import LocalStorage

    if "://" in path:
        return None
    root = path.rstrip("/")
    for _ in range(7):  # as deep as files of a store lie
        if os.path.isdir(root) and is_native(LocalStorage(root)):
            return InStore(root, os.path.relpath(path, root) if path.rstrip("/") != root else "")
        root = os.path.dirname(root)
        if not root or root == "/":
            break
    return None
