"""Real word counts and stream-stream joins whose checkpoints are killed, torn and mixed up: `abs` mends a copy, a real
Spark goes on from it. Is everything exact, and how many batches were given up?

    python -m tests.bench.spark.bench_spark_repairs [SEED [QUERY,...]]

Prints a line a try and the sum; about eight seconds a try, 108 tries. It
fails if a restart is not exact, or if there is no plan where there has to be one.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from abscli.cli.main import main
from tests.support.spark import cases
from tests.support.spark.joins import go_on_joining, join_of
from tests.support.spark.words import CONFS, add_files, counts, go_on, killed

FILES = 7
Damage = Callable[[Path, random.Random], None]


def exchange(paths: list[Path]) -> None:
    """Each comes to the place of the next one, the last to that of the first."""
    parked = [path.rename(path.with_name(f"{path.name}.parked")) for path in paths]
    for path, place in zip(parked, [*paths[1:], paths[0]], strict=True):
        path.rename(place)


def folders(*partitions: str) -> Damage:
    return lambda checkpoint, rng: exchange([checkpoint / "state/0" / partition for partition in partitions])


def one_version(checkpoint: Path, rng: random.Random) -> None:
    """The files of one version, in all stores of two partitions."""
    version = rng.randrange(3, FILES + 1)
    for one in sorted(checkpoint.glob(f"state/0/0/**/{version}[._]*")):
        if one.suffix not in (".delta", ".changelog", ".zip", ".snapshot"):
            continue
        folder = checkpoint / "state/0/1" / one.parent.relative_to(checkpoint / "state/0/0")
        for other in folder.glob(f"{version}[._]*{one.suffix}"):
            kept = one.read_bytes()
            if one.name == other.name:
                one.write_bytes(other.read_bytes())
                other.write_bytes(kept)
            else:  # of checkpoint format 2: names go with the files
                one.rename(folder / one.name)
                other.rename(one.parent / other.name)


def lost(*patterns: str) -> Damage:
    def damage(checkpoint: Path, rng: random.Random) -> None:
        for pattern in patterns:
            for path in checkpoint.glob(pattern):
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    return damage


def emptied(name: str) -> Damage:
    def damage(checkpoint: Path, rng: random.Random) -> None:
        (checkpoint / name).write_bytes(b"")

    return damage


def some_commits(checkpoint: Path, rng: random.Random) -> None:
    for number in rng.sample(range(FILES), 4):
        path = checkpoint / f"commits/{number}"
        path.write_bytes(b"") if rng.random() < 0.5 else path.unlink()


def flipped(kinds: tuple[str, ...]) -> Damage:
    """A bit of the newest file of some kind."""

    def damage(checkpoint: Path, rng: random.Random) -> None:
        there = [path for path in checkpoint.glob("state/0/**/*.*") if path.suffix in kinds]
        if there:
            path = max(there, key=lambda path: (int(path.name.partition(".")[0].partition("_")[0]), str(path)))
            data = bytearray(path.read_bytes())
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            path.write_bytes(bytes(data))

    return damage


def both(*damages: Damage) -> Damage:
    def damage(checkpoint: Path, rng: random.Random) -> None:
        for one in damages:
            one(checkpoint, rng)

    return damage


DAMAGES: dict[str, Damage] = {
    "two partitions' folders swapped": folders("0", "1"),
    "three partitions' folders rotated": folders("0", "1", "2"),
    "files of one version swapped": one_version,
    "all commits lost": lost("commits"),
    "some commits lost or empty": some_commits,
    "a bit of the newest snapshot": flipped((".snapshot", ".zip")),
    "a bit of the newest log": flipped((".delta", ".changelog")),
    "all snapshots lost": lost("state/0/**/*.snapshot"),
    "the newest offsets empty": emptied(f"offsets/{FILES - 1}"),
    "folders swapped, all commits lost": both(folders("1", "2"), lost("commits")),
    "folders swapped, operator's metadata lost": both(folders("0", "2"), lost("state/0/_metadata/metadata")),
    "one version swapped, some commits lost": both(one_version, some_commits),
}
ALL_BATCHES = {"two partitions' folders swapped", "three partitions' folders rotated", "files of one version swapped"}
"""Damages of which nothing may be given up."""


def quiet(*arguments: object) -> tuple[int, dict[str, Any]]:
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main([*(str(one) for one in arguments), "-o", "json"])
    return code, json.loads(out.getvalue() or err.getvalue())


class Words:
    """The word count: the last count of each word."""

    confs = ("hdfs", "rocks", "changelog", "ids")

    def make(self, session: Any, home: Path) -> None:
        add_files(home / "input", range(FILES))
        go_on(session, home / "input", home / "checkpoint")

    def exact(self, session: Any, home: Path, checkpoint: Path, batch: int) -> bool:
        return go_on(session, home / "input", checkpoint) == counts(home / "input")


class Joins:
    """A join of two streams: all rows that came out up to the batch and after it."""

    confs = ("hdfs", "changelog", "ids")

    def __init__(self) -> None:
        self.before: dict[Path, dict[int, Counter[Any]]] = {}

    def make(self, session: Any, home: Path) -> None:
        for side in ("input", "other"):
            add_files(home / side, range(FILES))
        self.before[home] = go_on_joining(session, home, home / "checkpoint")

    def exact(self, session: Any, home: Path, checkpoint: Path, batch: int) -> bool:
        rows: Counter[Any] = sum((c for n, c in self.before[home].items() if n <= batch), Counter())
        for one in go_on_joining(session, home, checkpoint).values():
            rows += one
        return rows == join_of(home)


def attempt(query: Any, session: Any, home: Path, own: Path, conf: str, *options: str) -> tuple[str, int]:
    """`exact`, or what was not, and the batch that it went back to."""
    code, plan = quiet("plan-recovery", own / "checkpoint", "--out", own / "plan.json", *options)
    if code:
        return f"NO PLAN: {plan['message'][:150]}", -1
    batch = int(plan["body"]["batch"])
    code, done = quiet("restore", own / "plan.json", "--to", own / "copy")
    if code:
        return f"NO COPY: {done['message'][:150]}", batch
    for side in ("input", "other"):
        if (home / side).exists():
            add_files(home / side, range(FILES, FILES + 1))
    cases.set_conf(session, CONFS[conf])
    try:
        return ("exact" if query.exact(session, home, own / "copy", batch) else "OTHER RESULTS"), batch
    except Exception as error:
        return f"REFUSED by Spark: {str(error).splitlines()[0][:120]}", batch
    finally:
        for path in home.glob(f"*/part {FILES:03d}.txt"):
            path.unlink()


def run() -> None:
    from pyspark.sql import SparkSession

    from abscli.engine.drivers.spark import start_context

    rng = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    wanted = sys.argv[2].split(",") if len(sys.argv) > 2 else ["words", "joins", "killed"]
    tried = exact = given_up = 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # Spark's maintenance may still write
        top = Path(folder)
        context = start_context("local[2]")
        context.setLogLevel("OFF")
        session = SparkSession(context)

        def report(words: str, outcome: str, batch: int, newest: int) -> None:
            nonlocal tried, exact, given_up
            tried += 1
            exact += outcome == "exact"
            given_up += newest - batch
            print(f"{words:70} {outcome}, back to {batch} of {newest}", flush=True)

        for name, query in (("words", Words()), ("joins", Joins())):
            for conf in query.confs if name in wanted else ():
                home = top / f"{name}-{conf}"
                home.mkdir()
                cases.set_conf(session, CONFS[conf])
                query.make(session, home)
                for number, (words, damage) in enumerate(DAMAGES.items()):
                    own = home / f"own{number}"
                    shutil.copytree(home / "checkpoint", own / "checkpoint", ignore=shutil.ignore_patterns("*.crc"))
                    damage(own / "checkpoint", rng)
                    outcome, batch = attempt(query, session, home, own, conf)
                    if outcome == "exact" and words in ALL_BATCHES and batch < FILES - 1:
                        outcome = "exact, but GAVE UP BATCHES"
                    report(f"{name}, {conf}, {words}", outcome, batch, FILES - 1)
                    shutil.rmtree(own, ignore_errors=True)
        for conf in Words.confs if "killed" in wanted else ():
            for when, at in (("before", 3), ("partial", 4), ("after", 5)):
                home = top / f"killed-{conf}-{when}"
                home.mkdir()
                add_files(home / "input", range(FILES))
                killed(home / "input", home / "checkpoint", CONFS[conf], when, at)
                for options in ((), ("--keep-in-flight",)):
                    own = home / f"own{len(options)}"
                    shutil.copytree(home / "checkpoint", own / "checkpoint", ignore=shutil.ignore_patterns("*.crc"))
                    folders("0", "1")(own / "checkpoint", rng)
                    outcome, batch = attempt(Words(), session, home, own, conf, *options)
                    words = f"killed, {conf}, {when} the state of batch {at}, folders swapped {' '.join(options)}"
                    report(words, outcome, batch, at - 1)
        context.stop()
    print(f"{exact} of {tried} restarts exact, {given_up} batches given up that had been done")
    sys.exit(exact != tried)


if __name__ == "__main__":
    run()
