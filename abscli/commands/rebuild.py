"""`abs rebuild`: bookkeeping that is lost or damaged, made anew from what is whole."""

from __future__ import annotations

from typing import Annotated

import typer

from abscli.cli import exits
from abscli.cli.options import CHOSEN_FILE, NO_FILE, OutputForm, Quiet, Verbose
from abscli.cli.output import Output, emit_json, emit_ndjson, emit_text, progress, width

EXAMPLES = (
    ("abs rebuild snapshots --job job.yaml", "Lists what is lost and what can be rebuilt."),
    ("abs rebuild snapshots --job job.yaml --yes", "Rebuilds it."),
)
EXIT_STATUS = exits.status(
    4, 6, 10, 11, 12,
    _0="It was listed or rebuilt, or there is nothing to do.",
    _4="Some metadata cannot be rebuilt; the rest was.",
    _11="A job runs on the store.",
)
SEE_ALSO = ("validate", "plan-recovery")
GUIDE = "runbooks/lost-metadata.md"


def rebuild(
    path: Annotated[str, typer.Argument(metavar="PATH", help="Directory of an abs store.")],
    job: Annotated[
        str | None,
        typer.Option("--job", metavar="JOB",
                     help="Job file, for the job graph."),
        CHOSEN_FILE,
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Write the metadata (default: only list it)."), NO_FILE
    ] = False,
    output: OutputForm = Output.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Rebuild lost or damaged store metadata.

    The metadata (abs-store.json, attempts and job graphs) is rebuilt from the intact epochs and the job file. Without
    --yes the command lists what is lost and what it would write, and changes nothing. With --yes it writes it, and
    moves damaged files to quarantine/ in the store; nothing is deleted. State, logs and manifests are never
    reconstructed: epochs that have lost them stay damaged.
    """
    from abscli.api import rebuild as make_anew
    from abscli.cli.plans import option_errors

    with option_errors(), progress() as show:
        rebuilt = make_anew(path, job, dry_run=not yes, show=show)
    if output is Output.TABLE:
        emit_text(rebuilt.text(width=width()))
    else:
        emit_json(rebuilt.to_json()) if output is Output.JSON else emit_ndjson(*rebuilt.items())
    if not rebuilt.whole:
        raise typer.Exit(exits.NO_RECOVERY)
