"""`abs doctor`: whether jobs can run here, and what to do where something is not right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from abscli.cli import exits
from abscli.cli.options import Master, OutputForm, Quiet, Verbose
from abscli.cli.output import Output, emit_json, emit_ndjson, emit_text, plain_ascii, progress, width

if TYPE_CHECKING:
    from abscli.report.health import Check

EXAMPLES = (
    ("abs doctor", "Python, packages, Java, Spark, slots, memory, and abs.toml."),
    ("abs doctor s3://bucket/snapshots", "Also whether a store can be kept there."),
    ("abs doctor snapshots --spark", "Also starts Spark and runs a task on it."),
    ("abs doctor -o json | jq '.checks[] | select(.verdict == \"problem\")'", "What is wrong, for a script."),
)
EXIT_STATUS = exits.status(
    _0="No problem was found; there may be warnings.",
    _1="A problem was found: the line says what to do. (Or an unexpected failure: a bug.)",
)
PROBLEM = 1


def doctor(
    path: Annotated[
        str | None,
        typer.Argument(metavar="PATH", show_default=False,
                       help="Where a store lies or is to lie: a directory, or a URI such as s3://..."),
    ] = None,
    spark: Annotated[
        bool, typer.Option("--spark", help="Also start Spark on --master, and run a task of Python there.")
    ] = False,
    master: Master = "local[*]",
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Put no probe where the store lies, not even for a moment.")
    ] = False,
    output: OutputForm = Output.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Look whether jobs can run here, and a store be kept.

    Looked at are Python, the packages that abs needs, the Java that would be used, whether PySpark and the jars of
    SPARK_HOME are of one version and workers of one Python, the slots of local[*], memory, room for temporary files,
    and whether abs.toml holds: its tables, options and values. Each line says what is there, and what to do if that is
    not right. Spark is not started unless --spark asks for it.

    With PATH the place of a store is looked at, too: that it can be reached, what lies there, permissions, room, that a
    name is created only once (two attempts could both complete an epoch otherwise), and how its clock goes. For the
    last two a probe of a byte is put there, under a name that no store reads, and removed; --read-only leaves that out,
    and where files lie that are not of abs, such as a checkpoint of Flink's, nothing is written in any case.

    A warning is what may well be meant so. What could not be looked at is said, and is no problem.
    """
    from abscli.report.health import is_well, to_json
    from abscli.text.health import text

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
    if not is_well(checks):
        raise typer.Exit(PROBLEM)


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
