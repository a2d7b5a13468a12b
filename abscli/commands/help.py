"""`abs help`: what `abs COMMAND --help` prints."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from abscli.cli import exits
from abscli.cli.options import Quiet, Verbose
from abscli.cli.output import emit_text

EXAMPLES = (
    ("abs help", "Lists the commands."),
    ("abs help run", "Shows options, examples and exit codes of 'abs run'."),
)
EXIT_STATUS = exits.status(
    _0="The help was printed.",
    _2="Unknown command.",
)
SEE_ALSO = ("completion",)
GUIDE = "reference/commands.md"


def help(
    context: typer.Context,
    command: Annotated[
        str | None, typer.Argument(metavar="COMMAND", help="Command to describe (default: list all commands).")
    ] = None,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Show the help of a command.

    'abs help COMMAND' prints the same as 'abs COMMAND --help', and 'abs help' the list of commands.
    """
    parent: Any = context.parent
    if command is None:
        emit_text(parent.get_help())
        return
    name, page, _ = parent.command.resolve_command(parent, [command])  # an unknown one is refused as 'abs NAME' is
    with typer.Context(page, info_name=name, parent=parent, **page.context_settings) as of_command:
        emit_text(of_command.get_help())
