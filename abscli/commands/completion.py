"""`abs completion`: the script that completes commands and options in a shell."""

from __future__ import annotations

import contextlib
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from abscli.cli import exits
from abscli.cli.options import Quiet, Verbose
from abscli.cli.output import emit_text

EXAMPLES = (
    ('eval "$(abs completion bash)"', "For this bash; add it to ~/.bashrc to keep it."),
    ("abs completion fish > ~/.config/fish/completions/abs.fish", "For fish, once."),
)
EXIT_STATUS = exits.status(
    _0="The script was printed.",
    _2="Unknown shell.",
)
SEE_ALSO = ("help",)
GUIDE = "reference/configuration.md"


class Shell(StrEnum):
    """Shells that have a script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


_FILES = {
    Shell.BASH: ("abs.bash", "share/bash-completion/completions/abs"),
    Shell.ZSH: ("_abs", "share/zsh/site-functions/_abs"),
    Shell.FISH: ("abs.fish", "share/fish/vendor_completions.d/abs.fish"),
}


def completion(
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="The shell: bash, zsh or fish.")],
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Print a shell completion script.

    The script completes commands, options, fixed values, files and directories. From the store on the command line
    it completes epochs, tags, tasks and operators: it calls abs, which reads the store and never changes it. A store
    that does not answer within two seconds (ABS_COMPLETION_TIMEOUT) gives no completions.
    """
    emit_text(_written(shell) or _made(shell))


def _written(shell: Shell) -> str | None:
    """The script as it was installed, or stands in the source tree; None if it is at neither place."""
    in_tree, installed = _FILES[shell]
    root = Path(__file__).resolve().parents[2]  # of the tree, or PREFIX/lib/python3.x/site-packages
    for place in (root / "completions" / in_tree, root / "../../.." / installed):
        with contextlib.suppress(OSError):
            return place.read_text(encoding="utf-8")
    return None


def _made(shell: Shell) -> str:
    """The same script, made anew: all commands have to be imported for that."""
    from abscli.cli.completion import SCRIPTS
    from abscli.cli.generate import pages

    return SCRIPTS[shell.value](pages())
