"""`abs doctor`: whether jobs can run here, and what to do where something is not right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from abscli.cli import exits
from abscli.cli.options import ANY_FILE, CHOSEN_FILE, Master, OutputForm, Quiet, Verbose
from abscli.cli.output import Output, emit_json, emit_ndjson, emit_text, plain_ascii, progress, width

if TYPE_CHECKING:
    from abscli.report.health import Check

EXAMPLES = (
    ("abs doctor", "Checks Python, packages, Java, memory and abs.toml."),
    ("abs doctor s3://bucket/snapshots", "Also checks whether a store can be kept there."),
)
EXIT_STATUS = exits.status(
    _0="No problem; there may be warnings.",
    _3="A problem, with its remedy.",
)
SEE_ALSO = ("run",)
GUIDE = "installation.md"


def doctor(
    path: Annotated[
        str | None,
        typer.Argument(metavar="PATH", show_default=False,
                       help="Location of a store, which need not exist yet."),
    ] = None,
    spark: Annotated[
        bool, typer.Option("--spark", help="Also start Spark and run a Python task."), CHOSEN_FILE
    ] = False,
    master: Master = "local[*]",
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Write no probe."), ANY_FILE
    ] = False,
    output: OutputForm = Output.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Check the environment and a store location.

    It checks Python, packages, Java, PySpark, slots, memory, temporary space and abs.toml, and prints a remedy for
    each problem. With PATH it also checks that a store can be kept there: access, permissions, space, exclusive
    creation of names, and the clock. For the last two it writes a probe of one byte and removes it, unless
    --read-only is given or the location has files of another system. Spark is started only with --spark.
    """
    from abscli.report.health import is_healthy, to_json
    from abscli.text.health import text
    from formats.redaction import refuse_credentials

    if path is not None:
        refuse_credentials(path, "PATH")
    refuse_credentials(master, "--master")
    checks: list[Check] = []
    with progress() as show:
        for check in _checks(path, master if spark else None, read_only=read_only):
            show(f"{check.name}: {check.verdict}")
            checks.append(check)
    if output is Output.TABLE:
        emit_text(text(checks, width=width(), ascii=plain_ascii()))
    elif output is Output.JSON:
        emit_json(to_json(checks, path))
    else:
        whole = to_json(checks, path)
        emit_ndjson(whole, ({"type": "check", **check} for check in whole.pop("checks")))
    if not is_healthy(checks):
        raise typer.Exit(exits.FINDING)


def _checks(path: str | None, master: str | None, *, read_only: bool) -> Iterator[Check]:
    from abscli.cli.defaults_check import check_defaults
    from abscli.engine.drivers.machine import machine_checks, spark_check
    from abscli.stores.place import place_checks

    yield from machine_checks()
    yield check_defaults()
    if path is not None:
        yield from place_checks(path, read_only=read_only)
    if master is not None:
        from abscli.engine.drivers.spark import try_spark

        yield spark_check(lambda: try_spark(master))
