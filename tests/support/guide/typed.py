"""Commands as they are typed to a shell, and a check that the command line accepts them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from abscli.cli.app import load
from abscli.cli.overview import COMMANDS


def calls(text: str) -> Iterator[list[str]]:
    """Return the calls of `abs` in a shell command, as words."""
    lexer = shlex.shlex(text.replace("\\\n", " ").replace("$(", " ; "), posix=True, punctuation_chars="|;&<>()")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if not word.strip("|;&<>()"):
            if words[:1] == ["abs"]:
                yield words[1:]
            words = []
        elif words or "=" not in word:  # variables are set before the command
            words.append(word)


def check_words(words: list[str], where: str, *, is_complete: bool = True) -> None:
    """Check that a command and its options exist. is_complete: also values of options, and the number of arguments."""
    if not words or words[0].startswith("-") or words[0] == "COMMAND":
        return
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
            assert rest or not is_complete, f"{where}: {name} without a value"
            del rest[:1]
    takes = [param for param in params if param.param_type_name == "argument"]
    assert not is_complete or all(param.nargs == -1 for param in takes) or arguments <= len(takes), where
