"""`abs init`: a folder with a job that runs, and a test that passes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from abscli.cli import exits
from abscli.cli.options import OutputForm, Quiet, Verbose
from abscli.cli.output import Output, note

if TYPE_CHECKING:
    from abscli.examples.starting import Begun

EXAMPLES = (
    ("abs init sales", "A job in Python, its data, a test and a README in the folder sales."),
    ("abs init sales --job shop --yaml", "A job file of YAML, whose job is called shop."),
    ("abs init hot --example nexmark-q5", "NEXMark's hot items, as a job and in SQL, in the folder hot."),
)
EXIT_STATUS = exits.status(
    6, 130,
    _0="The folder has the files.",
    _2="A bad option, or something is there already; nothing was written.",
)


def init(
    directory: Annotated[
        str, typer.Argument(metavar="DIR", help="Folder for the files; made if it is not there.")
    ] = ".",
    job: Annotated[
        str | None,
        typer.Option("--job", metavar="NAME", show_default=False, help="Name of the job; default: that of the folder."),
    ] = None,
    yaml: Annotated[
        bool, typer.Option("--yaml", help="Write a job file of YAML, and its function beside it, in place of job.py.")
    ] = False,
    example: Annotated[
        str | None,
        typer.Option("--example", metavar="NAME", show_default=False, help="Write this example in place of it."),
    ] = None,
    output: OutputForm = Output.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Make a folder with a job, data and a test.

    The job reads a few orders and says what was sold of each product: a source, a function, a reduce and a sink, in
    some twenty lines to be replaced by one's own. test_job.py is for pytest, and kills the job on the way.
    README.md has the three commands that run the job and look at its snapshots.

    With --example NAME it is a whole job to look at and to run, a query of NEXMark over events that it makes, in
    Python, with the same query in SQL. NAME is nexmark-q0 (pass through), nexmark-q1 (currency), nexmark-q2
    (selection), nexmark-q3 (local items: a join), nexmark-q4 (prices by category), nexmark-q5 (hot items: sliding
    windows), nexmark-q7 (highest bid) or nexmark-q8 (new users: a join of windows).

    Nothing is written over: where one of the files is there already it is named, and none is written. Other files of
    the folder stay as they are.
    """
    from abscli.examples.starting import EXAMPLES, begin, begin_with

    if example is not None:
        if example not in EXAMPLES:
            raise typer.BadParameter(f"{example!r} is none of {', '.join(EXAMPLES)}", param_hint="'--example'")
        if job is not None or yaml:
            option = "--yaml" if yaml else "--job"
            raise typer.BadParameter(f"an example is as it is: leave out {option}", param_hint=f"'{option}'")
        _show(begin_with(directory, example), directory, output)
        return
    name = job if job is not None else os.path.basename(os.path.abspath(directory))
    if not name.strip() or not name.isprintable():
        where = "'--job'" if job is not None else "'DIR'"
        raise typer.BadParameter(f"{name!r} is no name for a job: give --job NAME", param_hint=where)
    _show(begin(directory, name, yaml=yaml), directory, output)


def _show(begun: Begun, directory: str, output: Output) -> None:
    from abscli.cli.running import emit_result
    from abscli.examples.starting import words_to_go_there

    result = {
        "schema": "abs.init", "version": "1.0", "job": begun.job, "folder": begun.folder, "files": list(begun.files),
        "commands": list(begun.commands),
    }  # fmt: skip
    emit_result(result, "\n".join(os.path.join(directory, file) for file in begun.files), output)
    first, *others = begun.commands
    note("\n      ".join([f"next: {words_to_go_there(directory)}{first}", *others]))
