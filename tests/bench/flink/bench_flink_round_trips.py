"""How many snapshots are converted, and from how many copies a real Flink 2.3 starts:
`python -m tests.bench.flink.bench_flink_round_trips [--only NAME]`.

Every snapshot of Flink 1.20, 2.0 and 2.3 in tests/data/flink/matrix.tar.xz is made a canonical savepoint, with the same
rows as this program reads them. Of every snapshot of 2.3 a canonical savepoint is made, and a copy without one
of its states; a job starts from each with the backend that the snapshot is not of, goes on and takes a savepoint, whose
rows are held against the snapshot's.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path

from formats.flink.store import FlinkStore
from tests.support.flink.cases import content
from tests.support.flink.java import compiled
from tests.support.flink.matrix import CASES, Case, opened, unpack
from tests.support.flink.starts import difference, other_backend, rewritten, starts


def converted(matrix: Path, case: Case, folder: Path) -> str:
    """`equal`, or the first state whose rows the canonical copy has otherwise."""
    folder.mkdir()
    rewritten(matrix / case.folder, matrix / case.version / case.name, folder / "copy", "canonical")
    before, then = content(opened(matrix, case)[0]), content(FlinkStore(str(folder / "copy")))
    return next((f"{state}: other rows" for state in before if before[state] != then.get(state)), "equal")


def outcome(matrix: Path, class_path: str, case: Case, how: str, folder: Path) -> str:
    """`equal`, or what went wrong."""
    folder.mkdir()
    claim = rewritten(matrix / case.folder, matrix / case.version / case.name, folder / "copy", how)
    savepoint, log = starts(class_path, folder / "job", folder / "copy", other_backend(case), claim)
    if savepoint is None:
        return "does not start: " + next((line for line in log.splitlines() if "Caused by" in line), "?")[:200]
    return difference(opened(matrix, case)[0], savepoint, how) or "equal"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", metavar="NAME", help="cases whose names have this in them")
    asked = parser.parse_args()
    every = [case for case in CASES if asked.only in str(case)]
    cases = [case for case in every if case.version == "2.3"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        matrix, class_path = unpack(), compiled(folder / "classes", "MatrixJob.java")
        same = 0
        for case in every:
            verdict = converted(matrix, case, folder / "converted")
            same += verdict == "equal"
            if verdict != "equal":
                print(f"converted  {case!s:44} {verdict}", flush=True)
            shutil.rmtree(folder / "converted")
        print(f"converted: {same} of {len(every)} to canonical, with the same rows", flush=True)
        for how in ("canonical", "changed"):
            equal, began = 0, time.perf_counter()
            for number, case in enumerate(cases):
                work = folder / f"{how}-{number}"
                verdict = outcome(matrix, class_path, case, how, work)
                equal += verdict == "equal"
                print(f"{how:10} {case!s:44} {verdict}", flush=True)
                shutil.rmtree(work)
            seconds = time.perf_counter() - began
            print(f"{how}: {equal} of {len(cases)} started, with the same rows, in {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    os.nice(19)
    main()
