"""Real word counts, killed with SIGKILL or damaged, rewound with `abs` and restarted: are the counts exact?

    python -m tests.bench.spark.bench_spark_rewind [SEED]

Prints a line a try and the sum; about ten seconds a try.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import time
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from abscli.cli.main import main
from tests.support.spark import cases
from tests.support.spark.words import CONFS, add_files, counts, go_on, killed

FILES = 7
KILLS = [(name, when, 2 + i % 4) for i, name in enumerate(CONFS) for when in ("before", "partial", "after")]


def quiet(*arguments: object) -> int:
    with redirect_stdout(StringIO()):
        return main([*(str(one) for one in arguments), "-q"])


def attempt(session: Any, home: Path, name: str, copy: Path, at: str, *options: str) -> str:
    """Plan, restore, add input, restart; `exact`, or what was not."""
    begun = time.monotonic()
    if quiet("plan-recovery", f"{home / 'checkpoint'}{at}", "--out", copy.with_suffix(".json"), *options):
        return "no plan"
    planned = time.monotonic() - begun
    if quiet("restore", copy.with_suffix(".json"), "--to", copy):
        return "no copy"
    restored = time.monotonic() - begun - planned
    source = copy.with_suffix(".input")
    shutil.copytree(home / "input", source)
    add_files(source, range(FILES, FILES + 2))
    cases.set_conf(session, CONFS[name])
    try:
        seen = go_on(session, source, copy)
    except Exception as error:
        return f"refused by Spark: {str(error).splitlines()[0][:120]}"
    said = "exact" if seen == counts(source) else "OTHER COUNTS"
    return f"{said}  (plan {planned:.2f} s, copy {restored:.2f} s, query {time.monotonic() - begun:.1f} s)"


def damage(checkpoint: Path, rng: random.Random) -> str:
    """One of the damages that Spark does not notice, or refuses; what it was."""
    kind = rng.choice(["swap", "flip", "missing", "empty commit"])
    for crc in checkpoint.rglob(".*.crc"):
        crc.unlink()
    logs = sorted(path for path in checkpoint.glob("state/0/*/*.*") if path.suffix in (".delta", ".changelog", ".zip"))
    victim = rng.choice([path for path in logs if int(path.name.split(".")[0].split("_")[0]) >= 5])
    if kind == "swap":
        twins = [p for p in logs if p != victim and p.name.split("_")[0].split(".")[0] + p.suffix
                 == victim.name.split("_")[0].split(".")[0] + victim.suffix]  # fmt: skip
        if twins:
            mine, yours = victim.read_bytes(), twins[0].read_bytes()
            victim.write_bytes(yours)
            twins[0].write_bytes(mine)
    elif kind == "flip":
        data = bytearray(victim.read_bytes())
        data[len(data) // 2] ^= 4
        victim.write_bytes(bytes(data))
    elif kind == "missing":
        victim.unlink()
    else:
        victim = checkpoint / "commits/5"
        victim.write_bytes(b"")
    return f"{kind} {victim.relative_to(checkpoint)}"


def run() -> None:
    from pyspark.sql import SparkSession

    from abscli.engine.drivers.spark import start_context

    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    rng = random.Random(seed)
    tried = exact = 0
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        context = start_context("local[2]")
        session = SparkSession(context)

        def report(what: str, said: str) -> None:
            nonlocal tried, exact
            tried += 1
            exact += said.startswith("exact")
            print(f"{what:64} {said}", flush=True)

        for name, when, batch in KILLS:
            home = top / f"{name}-{when}"
            home.mkdir()
            add_files(home / "input", range(FILES))
            killed(home / "input", home / "checkpoint", CONFS[name], when, batch)
            for at, options in (("", ()), ("", ("--keep-in-flight",)), (f"@{rng.randrange(max(batch - 1, 1))}", ())):
                copy = home / f"copy{at}{len(options)}"
                moved = ("--path-map", f"{home / 'input'}={copy.with_suffix('.input')}")
                what = f"{name}, SIGKILL {when} the state of batch {batch}, to {at or 'newest'} {' '.join(options)}"
                report(what, attempt(session, home, name, copy, at, *moved, *options))
        for name in CONFS:
            home = top / name
            home.mkdir()
            add_files(home / "input", range(FILES))
            cases.set_conf(session, CONFS[name])
            go_on(session, home / "input", home / "checkpoint")
            for n in range(4):
                own = home / f"damaged{n}"
                shutil.copytree(home / "checkpoint", own / "checkpoint")
                shutil.copytree(home / "input", own / "input")
                what = damage(own / "checkpoint", rng)
                copy = own / "copy"
                moved = ("--path-map", f"{home / 'input'}={copy.with_suffix('.input')}")
                report(f"{name}, {what}", attempt(session, own, name, copy, "", *moved))
        context.stop()
    print(f"{exact} of {tried} restarts exact (seed {seed})")
    sys.exit(exact != tried)


if __name__ == "__main__":
    run()
