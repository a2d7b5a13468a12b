"""`abs help`: what `abs COMMAND --help` prints."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from abscli.cli import exits
from abscli.cli.options import Quiet, Verbose
from abscli.cli.output import emit_text

EXAMPLES = (
    ("abs help", "The commands."),
    ("abs help run", "What 'abs run' does, its options, examples and exit statuses."),
)
EXIT_STATUS = exits.status(_0="The help was printed.", _2="An unknown command.")


def help(
    context: typer.Context,
    command: Annotated[
        str | None, typer.Argument(metavar="COMMAND", help="A command; without one, all of them are listed.")
    ] = None,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Show the help of a command.

    'abs help COMMAND' prints what 'abs COMMAND --help' does, and 'abs help' what 'abs --help' does.
    """
    parent: Any = context.parent
    if command is None:
        emit_text(parent.get_help())
        return
    name, page, _ = parent.command.resolve_command(parent, [command])  # an unknown one is refused as 'abs NAME' is
    with typer.Context(page, info_name=name, parent=parent, **page.context_settings) as of_command:
        emit_text(of_command.get_help())
