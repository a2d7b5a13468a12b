"""What the real Spark makes of damaged logs, what `abs validate` says of them, and whether a copy that `abs` makes goes
on to exact counts.

    python -m tests.bench.spark.bench_spark_damages [CONF,...] [WORD ...]

CONF: the settings of the query; WORD: of the damages' names. Prints a line a damage and the sum; about four seconds a
damage. It fails if a restart goes on with other counts and `abs` has not said so, or if a copy does not go on to exact
counts.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from abscli.cli.main import main
from tests.support.spark import cases
from tests.support.spark.damages import DAMAGES
from tests.support.spark.words import CONFS, add_files, counts, go_on

FILES = 7


def told(*arguments: object) -> tuple[int, dict[str, Any]]:
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main([*(str(one) for one in arguments), "-o", "json"])
    return code, json.loads(out.getvalue() or err.getvalue())


def restarted(session: Any, name: str, source: Path, checkpoint: Path) -> str:
    """The query, restarted twice with a new file each time: `exact`, `OTHER COUNTS`, or why Spark refuses."""
    for number in (FILES, FILES + 1):
        add_files(source, range(number, number + 1))
        cases.set_conf(session, CONFS[name])
        try:
            seen = go_on(session, source, checkpoint)
        except Exception as error:
            conditions = re.findall(r"\[([A-Z_0-9.]{12,})\]", str(error))
            return f"refused: {conditions[-1] if conditions else str(error).splitlines()[0][:60]}"
        if seen != counts(source):
            return "OTHER COUNTS"
    return "exact"


def damaged_copy(home: Path, top: Path, damage: Any) -> tuple[Path, Path]:
    """A checkpoint with the damage, and the folder of its input; its logs name it by absolute paths."""
    own = Path(tempfile.mkdtemp(dir=top))
    shutil.copytree(home / "checkpoint", own / "checkpoint", ignore=shutil.ignore_patterns("*.crc"))
    for path in home.glob("input/*.txt"):
        if int(path.stem.split()[1]) >= FILES:
            path.unlink()
    damage(own / "checkpoint")
    return own, home / "input"


def run() -> None:
    from pyspark.sql import SparkSession

    from abscli.engine.drivers.spark import start_context

    names = sys.argv[1].split(",") if len(sys.argv) > 1 else ["hdfs", "changelog", "ids"]
    wanted = sys.argv[2:]
    tried = silent = 0
    copies: dict[str, int] = {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # Spark's maintenance may still write
        top = Path(folder)
        context = start_context("local[2]")
        context.setLogLevel("OFF")
        session = SparkSession(context)
        for name in names:
            home = top / name
            home.mkdir()
            add_files(home / "input", range(FILES))
            cases.set_conf(session, CONFS[name])
            go_on(session, home / "input", home / "checkpoint")
            for what, damage in DAMAGES.items():
                if wanted and not any(word in what for word in wanted):
                    continue
                own, source = damaged_copy(home, top, damage)
                found, _ = told("validate", own / "checkpoint")
                planned, plan = told("plan-recovery", own / "checkpoint", "--out", own / "plan.json")
                copied = f"no plan ({planned})"
                if planned == 0 and told("restore", own / "plan.json", "--to", own / "copy")[0] == 0:
                    copied = f"batch {plan['batch']} {restarted(session, name, source, own / 'copy')}"
                elif planned == 0:
                    copied = "NO COPY"
                for path in source.glob("*.txt"):
                    if int(path.stem.split()[1]) >= FILES:
                        path.unlink()
                in_place = restarted(session, name, source, own / "checkpoint")
                tried += 1
                silent += in_place != "exact" and found == 0
                kind = copied.split(" ", 2)[2] if copied.startswith("batch") else copied
                copies[kind] = copies.get(kind, 0) + 1
                print(f"{name:9} {what:55} in place: {in_place:70.70} validate {found}  copy: {copied}", flush=True)
        context.stop()
    print(f"{silent} of {tried} damages that Spark does not go on from exactly were not found; copies: {copies}")
    sys.exit(bool(silent) or any(kind.isupper() for kind in copies))


if __name__ == "__main__":
    run()
