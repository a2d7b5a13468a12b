"""`abs init`: a folder with a job that runs, and a test that passes."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from abscli.cli import exits
from abscli.cli.options import ANY_FILE, OutputForm, Quiet, Verbose
from abscli.cli.output import Output, note
from abscli.examples import starting
from formats.version import FORMAT_VERSION

if TYPE_CHECKING:
    from abscli.examples.starting import Begun

    Example = str
else:
    Example = StrEnum("Example", {name.replace("-", "_").upper(): name for name in starting.EXAMPLES})
    """The examples by name."""

EXAMPLES = (
    ("abs init sales", "Creates a job in Python, its data, a test and a README in sales."),
    ("abs init hot --example nexmark-q5", "Creates a NEXMark query as a job and in SQL in hot."),
)
EXIT_STATUS = exits.status(
    6, 130,
    _0="The files were created.",
    _2="Usage: invalid option, or a file exists; nothing was written.",
)
SEE_ALSO = ("run", "topology", "demo")
GUIDE = "tutorial.md"


def init(
    directory: Annotated[
        str, typer.Argument(metavar="DIR", help="Directory for the files; created if missing.")
    ] = ".",
    job: Annotated[
        str | None,
        typer.Option("--job", metavar="NAME", show_default=False,
                     help="Name of the job. Default: the name of the directory."),
        ANY_FILE,
    ] = None,
    yaml: Annotated[
        bool, typer.Option("--yaml", help="Write a YAML job file instead of job.py."),
        ANY_FILE,
    ] = False,
    example: Annotated[
        Example | None,
        typer.Option("--example", metavar="EXAMPLE", show_default=False,
                     help="Write a job for this NEXMark query instead."),
        ANY_FILE,
    ] = None,
    output: OutputForm = Output.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Create a job with data and a test.

    The files go to DIR: a Python job of some twenty lines (with --yaml a YAML file), input, a pytest that kills the
    job, and a README with the commands to type. Existing files are never overwritten: if one of the names exists,
    nothing is written.

    With --example the job is a query of the NEXMark benchmark, with the same query in SQL: nexmark-q0, nexmark-q1,
    nexmark-q2, nexmark-q3, nexmark-q4, nexmark-q5, nexmark-q7 or nexmark-q8.
    """
    from abscli.examples.starting import begin, begin_with

    if example is not None:
        if job is not None or yaml:
            option = "--yaml" if yaml else "--job"
            raise typer.BadParameter(f"an example cannot be changed: remove {option}", param_hint=f"'{option}'")
        _show(begin_with(directory, example), directory, output)
        return
    name = job if job is not None else os.path.basename(os.path.abspath(directory))
    if not name.strip() or not name.isprintable():
        where = "'--job'" if job is not None else "'DIR'"
        raise typer.BadParameter(f"{name!r} cannot be the name of a job: use --job NAME", param_hint=where)
    _show(begin(directory, name, yaml=yaml), directory, output)


def _show(begun: Begun, directory: str, output: Output) -> None:
    from abscli.cli.running import emit_result
    from abscli.examples.starting import words_to_go_there

    result = {
        "schema": "abs.init", "version": FORMAT_VERSION, "job": begun.job, "folder": begun.folder,
        "files": list(begun.files),
        "commands": list(begun.commands),
    }  # fmt: skip
    emit_result(result, "\n".join(os.path.join(directory, file) for file in begun.files), output)
    first, *others = begun.commands
    note("\n      ".join([f"Next: {words_to_go_there(directory)}{first}", *others]))
