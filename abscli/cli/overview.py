"""What `abs` alone prints: the list of commands. Needs no Typer, which alone takes most of 100 ms to import."""

from __future__ import annotations

import contextlib
import os
import textwrap

from abscli.cli.stdout import stdout

COMMANDS: dict[str, str] = {
    "init": "Make a folder with a job, data and a test.",
    "demo": "Run, kill, inspect, plan, restore and compare two real jobs.",
    "topology": "Show a job's graph: operators, back edges and loops.",
    "run": "Run a job and take snapshots of it.",
    "inspect": "Show what a checkpoint store or one of its epochs holds.",
    "report": "Make one page of a store, an epoch, a check or a plan.",
    "state": "Show the state that an epoch holds: keys and their values.",
    "validate": "Check that epochs are whole and consistent.",
    "diff": "Compare two epochs: state, positions, logs and job graph.",
    "plan-recovery": "Plan what must restart, and from where.",
    "restore": "Carry a recovery plan out.",
    "rewrite": "Make a changed copy of a checkpoint.",
    "rebuild": "Make a store's lost or damaged books anew.",
    "simulate": "Run a job's protocol under a seeded scheduler with failures.",
    "drill": "Prove that an epoch can be restored.",
    "copy": "Copy a store, with only what is missing.",
    "tag": "Give an epoch a name, so that it stays.",
    "gc": "Remove old epochs, and files that nothing needs.",
    "doctor": "Look whether jobs can run here, and a store be kept.",
    "completion": "Print the completion script of a shell.",
    "help": "Show the help of a command.",
}
"""Every command, in the order of a first use, with the first sentence of its help."""

ABOUT = "Take, inspect, check and recover snapshots of dataflow jobs."

OPTIONS: dict[str, str] = {
    "-q, --quiet": "Print results and errors only.",
    "-v, --verbose": "Say more; -vv shows the traceback of an error.",
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
            "'abs COMMAND --help' says more, and lists the exit statuses of each command.",
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
