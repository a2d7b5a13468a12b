"""`abs gc`: which epochs and files may go."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated

import typer

from abscli.cli import exits
from abscli.cli.options import (
    ANY_FILE,
    CHOSEN_FILE,
    NO_FILE,
    OutputForm,
    Quiet,
    SinkJob,
    Verbose,
    at_least,
    duration,
)
from abscli.cli.output import Output, emit_json, emit_marked, emit_ndjson, plain_ascii, progress, width

if TYPE_CHECKING:
    from abscli.api import Directory, Store

EXAMPLES = (
    ("abs gc snapshots --keep-last 3 --keep-daily 7", "Lists what would be removed; add --yes to remove it."),
    ("abs gc checkpoints --search old-checkpoints", "Lists files that no Flink checkpoint in either refers to."),
)
EXIT_STATUS = exits.status(
    3, 6, 10, 11, 12,
    _0="It was listed or removed.",
    _3="Store metadata is damaged; nothing was removed.",
    _11="A job runs on the store, or a Flink job may be running.",
)
SEE_ALSO = ("tag", "copy", "inspect")
GUIDE = "operations/monitoring.md"


def gc(
    path: Annotated[
        str,
        typer.Argument(metavar="PATH", help="Directory of a store, of a Flink job, or of all Flink jobs."),
    ],
    keep: Annotated[
        int | None,
        typer.Option("--keep", "--keep-last", metavar="N", parser=at_least(1),
                     help="Retain N epochs (default: 10; with other rules: 1)."),
        ANY_FILE,
    ] = None,
    keep_hourly: Annotated[
        int,
        typer.Option("--keep-hourly", metavar="N", parser=at_least(0), show_default=False,
                     help="Retain one epoch per hour, for N hours."),
        ANY_FILE,
    ] = 0,
    keep_daily: Annotated[
        int,
        typer.Option("--keep-daily", metavar="N", parser=at_least(0), show_default=False,
                     help="Retain one epoch per day, for N days."),
        ANY_FILE,
    ] = 0,
    keep_within: Annotated[
        float | None,
        typer.Option("--keep-within", metavar="DURATION", parser=duration,
                     help="Retain epochs within this time of the newest one."),
        ANY_FILE,
    ] = None,
    keep_tag: Annotated[
        list[str] | None,
        typer.Option("--keep-tag", metavar="TAG",
                     help="Retain no tagged epochs but these; repeatable."),
        ANY_FILE,
    ] = None,
    older_than: Annotated[
        float | None,
        typer.Option("--older-than", metavar="DURATION", parser=duration,
                     help="Remove only epochs older than this age."),
        ANY_FILE,
    ] = None,
    min_age: Annotated[
        float | None,
        typer.Option("--min-age", metavar="DURATION", parser=duration,
                     help="Minimum age of orphaned files (default: 1h; Flink: 1d)."),
        CHOSEN_FILE,
    ] = None,
    stopped: Annotated[
        list[str] | None,
        typer.Option("--stopped", metavar="JOB",
                     help="Id of a Flink job that is not running; repeatable."),
        CHOSEN_FILE,
    ] = None,
    search: Annotated[
        list[str] | None,
        typer.Option("--search", metavar="DIR",
                     help="Additional Flink checkpoints to keep; repeatable."),
        CHOSEN_FILE,
    ] = None,
    job: SinkJob = None,
    yes: Annotated[
        bool,
        typer.Option("--yes", "-y", help="Remove the epochs and files (default: only list them)."),
        NO_FILE,
    ] = False,
    output: OutputForm = Output.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Remove old epochs and unreferenced files.

    Without --yes it lists what would be removed, and changes nothing. The newest complete epochs (--keep-last), tagged
    epochs and all files that they refer to are retained. With several --keep options an epoch is retained if one of
    them keeps it. A store whose job runs is refused.

    Of Flink's checkpoints only orphaned files are removed: files that no checkpoint in PATH, or below --search,
    refers to. Name every directory whose jobs may share files.
    """
    from abscli.cli.plans import option_errors
    from abscli.planner.retention import Retention

    rules: Retention | None = None
    if keep_hourly or keep_daily or keep_within is not None or keep_tag:
        rules = Retention(keep or 1, keep_hourly, keep_daily, keep_within, tuple(keep_tag or ()))
    elif keep is not None:
        rules = Retention(keep)
    store = _at(path)
    with option_errors(), progress() as show:
        if yes:
            garbage = store.gc(
                rules, older_than=older_than, min_age=min_age, stopped=stopped or (), search=search or (), job=job,
                show=show,
            )
        else:
            garbage = store.garbage(
                rules, older_than=older_than, min_age=min_age, stopped=stopped or (), search=search or (), job=job
            )
    if output is Output.TABLE:
        emit_marked(garbage.text(width=width(), ascii=plain_ascii()))
    else:
        emit_json(garbage.to_json()) if output is Output.JSON else emit_ndjson(*garbage.items())


def _at(path: str) -> Store | Directory:
    """The store there, or the directory of several; NotFound as of a store if there is neither."""
    from abscli.api import open_directory, open_store
    from formats.errors import NotFound

    try:
        return open_store(path)
    except NotFound:
        with contextlib.suppress(NotFound):
            return open_directory(path)
        raise
