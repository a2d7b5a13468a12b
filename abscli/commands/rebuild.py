"""`abs rebuild`: bookkeeping that is lost or damaged, made anew from what is whole."""

from __future__ import annotations

from typing import Annotated

import typer

from abscli.cli import exits
from abscli.cli.options import OutputForm, Quiet, Verbose
from abscli.cli.output import Output, emit_json, emit_ndjson, emit_text, progress, width

EXAMPLES = (
    ("abs rebuild snapshots", "What is lost or damaged, and what could be made anew; nothing is changed."),
    ("abs rebuild snapshots --job job.yaml --yes", "Does it, with the job's graph and directory from its file."),
    ("abs rebuild snapshots -o json | jq '.lacking'", "What is beyond help, for a script."),
)
EXIT_STATUS = exits.status(
    4, 6, 10, 11, 12,
    _0="It was shown, or with --yes done; or there is nothing to do.",
    _4="Something that is needed cannot be made anew; the rest was shown, or done.",
    _11="A job runs on the store.",
)


def rebuild(
    path: Annotated[str, typer.Argument(metavar="PATH", help="Directory of a store that abs wrote.")],
    job: Annotated[
        str | None,
        typer.Option("--job", metavar="JOB",
                     help="Job file, for its graph, its name and its directory where they are lost; one of Python is "
                     "imported."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it; without, nothing is changed.")] = False,
    output: OutputForm = Output.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Make a store's lost or damaged books anew.

    The store's own file, the records of attempts and the job graphs are made from epochs that are whole and from the
    job's file. Each step is said; --yes does it. What is damaged moves to aside/ in the store, as it is, and nothing is
    removed. State, logs and manifests are never made up: epochs of which they are lost or damaged stay so.
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
