"""What `abs` alone prints: the list of commands. Needs no Typer, which alone takes most of 100 ms to import."""

from __future__ import annotations

import contextlib
import os
import textwrap

from abscli.cli.stdout import stdout

COMMANDS: dict[str, str] = {
    "init": "Create a job with data and a test.",
    "demo": "Run, kill, restore and compare two real jobs.",
    "topology": "Show a job's graph: operators, back edges and loops.",
    "run": "Run a job and take snapshots of it.",
    "inspect": "Show the contents of a checkpoint store or an epoch.",
    "report": "Write an HTML report of a store, an epoch or a plan.",
    "state": "Query the state of an epoch: keys and values.",
    "validate": "Check that epochs are intact and consistent.",
    "diff": "Compare two epochs: state, positions, logs and job graph.",
    "plan-recovery": "Plan how to recover from a failure or damage.",
    "restore": "Execute a recovery plan.",
    "rewrite": "Write a modified copy of a Flink checkpoint.",
    "rebuild": "Rebuild lost or damaged store metadata.",
    "simulate": "Simulate the snapshot protocol of a job with failures.",
    "drill": "Prove that an epoch can be restored.",
    "copy": "Copy a store incrementally.",
    "tag": "Tag an epoch, so that it is retained.",
    "gc": "Remove old epochs and unreferenced files.",
    "doctor": "Check the environment and a store location.",
    "completion": "Print a shell completion script.",
    "help": "Show the help of a command.",
}
"""Every command, in the order of a first use, with the first sentence of its help."""

ABOUT = "Inspect, validate and recover checkpoints, and run jobs with snapshots."

OPTIONS: dict[str, str] = {
    "-q, --quiet": "Print only results and errors.",
    "-v, --verbose": "Print more; with -vv also Python tracebacks.",
    "--version": "Print the version and exit.",
    "-h, --help": "Show this message and exit.",
}

USAGE = "abs [OPTIONS] COMMAND [ARGS]..."


def width() -> int:
    """Columns to fill: COLUMNS, else those of the terminal, else 80 (a pipe)."""
    columns = 0
    with contextlib.suppress(KeyError, ValueError):
        columns = int(os.environ["COLUMNS"])
    if columns <= 0:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            columns = os.get_terminal_size(stdout().fileno()).columns
    return max(columns or 80, 40)


def overview(columns: int) -> str:
    """The help of `abs` itself, in the form that the commands' own help has."""
    columns = min(columns, 80) - 2
    blocks = [
        f"Usage: {USAGE}\n",
        textwrap.fill(ABOUT, columns, initial_indent="  ", subsequent_indent="  ") + "\n",
        _table("Options", OPTIONS, columns),
        _table("Commands", COMMANDS, columns),
        textwrap.fill(
            "'abs COMMAND --help' shows options, examples and exit codes.",
            columns, initial_indent="  ", subsequent_indent="  ",
        ),
    ]
    return "\n".join(blocks) + "\n"


def _table(title: str, rows: dict[str, str], columns: int) -> str:
    first = max(map(len, rows)) + 4
    lines = [f"{title}:\n"]
    for name, text in rows.items():
        lead = f"  {name}".ljust(first)
        lines.append(textwrap.fill(text, columns, initial_indent=lead, subsequent_indent=" " * first) + "\n")
    return "".join(lines)
