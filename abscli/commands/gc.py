"""`abs gc`: which epochs and files may go."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated

import typer

from abscli.cli import exits
from abscli.cli.options import OutputForm, Quiet, Verbose, at_least, duration
from abscli.cli.output import Output, emit_json, emit_marked, emit_ndjson, plain_ascii, progress, width

if TYPE_CHECKING:
    from abscli.api import Directory, Store

EXAMPLES = (
    ("abs gc snapshots", "What would go if the newest 10 complete epochs stay; nothing is changed."),
    ("abs gc snapshots --keep-last 3 --yes", "Removes all but the newest 3 complete epochs, and what nothing needs."),
    ("abs gc snapshots --keep-last 3 --keep-hourly 24 --keep-daily 7",
     "Those that would go if the last of each hour and day stay, too."),
    ("abs gc checkpoints --search old-checkpoints",
     "Of Flink's directory of all jobs: files that no checkpoint in either needs."),
    ("abs gc checkpoints --stopped 0d9f... --min-age 10m --yes", "Also of a job that was just cancelled."),
    ("abs gc snapshots --older-than 30d -o json | jq .bytes", "The bytes that epochs of more than 30 days take."),
)
EXIT_STATUS = exits.status(
    3, 6, 10, 11, 12,
    _0="It was shown, or with --yes removed.",
    _3="The store's own facts are damaged: nothing is removed.",
    _11="A job runs on the store: it removes epochs itself (abs run --keep). Of Flink's: it may be alive.",
)


def gc(
    path: Annotated[
        str,
        typer.Argument(metavar="PATH", help="Directory of a store that abs wrote, of a job of Flink's, or of all."),
    ],
    keep: Annotated[
        int | None,
        typer.Option("--keep", "--keep-last", metavar="N", parser=at_least(1),
                     help="Complete epochs that stay, the newest ones: 10, or 1 beside another rule. Not of Flink's."),
    ] = None,
    keep_hourly: Annotated[
        int,
        typer.Option("--keep-hourly", metavar="N", parser=at_least(0), show_default=False,
                     help="The newest epoch stays of each of the last N hours that have one, in UTC."),
    ] = 0,
    keep_daily: Annotated[
        int,
        typer.Option("--keep-daily", metavar="N", parser=at_least(0), show_default=False,
                     help="The newest epoch stays of each of the last N days that have one, in UTC."),
    ] = 0,
    keep_within: Annotated[
        float | None,
        typer.Option("--keep-within", metavar="DURATION", parser=duration,
                     help="All epochs stay that were triggered within this of the newest, such as 2h."),
    ] = None,
    keep_tag: Annotated[
        list[str] | None,
        typer.Option("--keep-tag", metavar="TAG",
                     help="Of tagged epochs only those with this tag stay for it, or with one that fits release-*; "
                          "repeatable. Default: every tag keeps its epoch."),
    ] = None,
    older_than: Annotated[
        float | None,
        typer.Option("--older-than", metavar="DURATION", parser=duration,
                     help="Only epochs that were triggered longer ago than this, such as 7d. Not of Flink's."),
    ] = None,
    min_age: Annotated[
        float | None,
        typer.Option("--min-age", metavar="DURATION", parser=duration,
                     help="Files that nothing refers to go only when they are as old as this: 1h, of Flink's 1d."),
    ] = None,
    stopped: Annotated[
        list[str] | None,
        typer.Option("--stopped", metavar="JOB",
                     help="A job of Flink's that does not run, by its id: you have looked; repeatable."),
    ] = None,
    search: Annotated[
        list[str] | None,
        typer.Option("--search", metavar="DIR",
                     help="Further checkpoints of Flink's that may refer to files here; repeatable."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Remove it; without, nothing is changed.")] = False,
    output: OutputForm = Output.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Remove old epochs, and files that nothing needs.

    Shows what would go, why, and how many bytes that is; --yes does it. Complete epochs count whose files are all
    there, and the newest of them stay; with them stays everything that they refer to, in older epochs too. Of epochs
    that never became complete those go that are older than a complete one. Nothing goes that an epoch which cannot be
    read may need, and nothing while a job runs. With them go uploads to sinks in buckets that
    attempts of the store had begun, and that no epoch names; and transactions that they had prepared in databases.

    With several --keep rules an epoch stays if any of them keeps it, as with restic's forget. Hours, days and
    --keep-within count from the time at which epochs were triggered, not from now, so that those of a job that stands
    still do not wear out. The newest complete epoch stays in any case, and so does each that has a tag (see 'abs tag'):
    with --keep-tag only tags that it names count, and others go with their epochs. A NAME that no tag fits is refused.

    Of Flink's checkpoints all stay: Flink removes them itself. What goes are orphans: files in shared/, taskowned/ and
    chk-N to whose name no checkpoint of any job in the directory refers, nor one below --search. A job that has claimed
    another's checkpoint needs the other's files: name every directory whose jobs may have done so. One _metadata that
    cannot be read keeps everything. Files that a running job has written, and not named yet, look like orphans, and
    nothing in a directory says that its job has ended. So a job counts as alive until nothing in its directory has
    changed for --min-age, and for three times the longest time between two of its checkpoints; so does one whose files
    such a job refers to. --stopped says that one does not run. Where all that would go is of jobs that may be alive,
    --yes removes nothing and ends with 11.
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
                rules, older_than=older_than, min_age=min_age, stopped=stopped or (), search=search or (), show=show
            )
        else:
            garbage = store.garbage(
                rules, older_than=older_than, min_age=min_age, stopped=stopped or (), search=search or ()
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
