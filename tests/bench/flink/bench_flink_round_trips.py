"""From how many copies a real Flink 2.3 starts: `python -m tests.bench.flink.bench_flink_round_trips [--only NAME]`.

Of every snapshot of Flink 2.3 in tests/data/flink/matrix.tar.xz a canonical savepoint is made, and a copy without one
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

from tests.support.flink.java import compiled
from tests.support.flink.matrix import CASES, Case, opened, unpack
from tests.support.flink.starts import difference, other_backend, rewritten, starts


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
    cases = [case for case in CASES if case.version == "2.3" and asked.only in str(case)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        matrix, class_path = unpack(folder / "matrix"), compiled(folder / "classes", "MatrixJob.java")
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
