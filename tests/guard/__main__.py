"""Runs every reading command on every hostile store and prints what each command touched:

    python -m tests.guard [--commands 'report,validate STORE'] [--traps kafka-plugin,postgres-url] [--root TREE]

--root runs the `abs` of another tree, such as an older release, with the packages of this environment. Ends with 1 if
a command did anything that it may not do.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.guard.commands import READING, run
from tests.guard.recorders import recorder
from tests.guard.stores import each, hostile_store
from tests.guard.victim import Ran, Victim, victim

SHOWN = 4
"""Lines of the report on one command that are printed."""


def main() -> int:
    """Run the matrix and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.guard")
    named = "names of commands, or whole command lines as the table has them, with commas between"
    parser.add_argument("--commands", default="", help=named)
    parser.add_argument("--traps", default="", help="names of traps, with commas between")
    parser.add_argument("--root", type=Path, help="the tree whose abs is run")
    options = parser.parse_args()
    watching = recorder()
    if isinstance(watching, str):
        sys.stderr.write(f"nothing can be observed here: {watching}\n")
        return 2
    commands = set(filter(None, options.commands.split(",")))
    traps = set(filter(None, options.traps.split(",")))
    runs = harmful = 0
    with (
        tempfile.TemporaryDirectory(prefix="guard-") as folder,
        victim(Path(folder), watching, root=options.root) as somebody,
    ):
        for name, command, ran in matrix(somebody, commands, traps):
            runs += 1
            what = ran.report().splitlines()
            harmful += bool(what)
            counted = f"exit {ran.code:2}  {len(ran.violations):3} events"
            sys.stdout.write(f"{name:27} {command:42} {counted}  {'; '.join(what[:SHOWN]) or 'nothing'}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{runs} runs, {harmful} of which touched what they may not\n")
    return int(harmful > 0)


def matrix(somebody: Victim, commands: set[str], traps: set[str]) -> Iterator[tuple[str, str, Ran]]:
    """Yield what each command did on the store of each trap."""
    for name, trap in each(somebody):
        if traps and name not in traps:
            continue
        store = hostile_store(somebody, "downloaded", trap)
        for reading in READING:
            if not commands or commands & {reading.name, reading.words[0]}:
                ran = run(somebody, store, reading)
                yield name, reading.name, ran
                for marker in somebody.base.rglob("*.ran"):
                    marker.unlink()
        shutil.rmtree(store)


if __name__ == "__main__":
    sys.exit(main())
