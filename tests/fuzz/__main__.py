"""Run the commands that only read on damaged input, and report each command that fails in a way that it must not.

    python -m tests.fuzz --seed 7 --inputs 3000
    python -m tests.fuzz --seed 7 --case 450 --keep
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from tests.fuzz.fuzzer import Fuzzer


def main() -> int:
    """Return 1 if a command failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--inputs", type=int, default=3000, help="number of damaged inputs")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--case", type=int, help="this case alone; its commands and their output are shown")
    parser.add_argument("--keep", action="store_true", help="with --case: keep the damaged input")
    arguments = parser.parse_args()
    # As `abs` has it: its threads would count towards the memory of every child.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    folder = tempfile.mkdtemp(prefix="abs-fuzz-")
    keep = arguments.keep and arguments.case is not None
    try:
        fuzzer = Fuzzer(Path(folder))
        if arguments.case is not None:
            return _show(fuzzer, arguments.seed, arguments.case)
        return _run(fuzzer, arguments.seed, range(arguments.first, arguments.first + arguments.inputs))
    finally:
        if keep:
            print(f"kept: {folder}/case (the current folder of its commands)")
        else:
            import shutil

            shutil.rmtree(folder)


def _run(fuzzer: Fuzzer, seed: int, numbers: range) -> int:
    failed = 0
    for done, number in enumerate(numbers, 1):
        for failure in fuzzer.run(fuzzer.case(seed, number)):
            failed += 1
            print(failure, flush=True)
        if done % 100 == 0:
            print(f"{done} inputs, {fuzzer.tally.commands} commands, {failed} failures", file=sys.stderr, flush=True)
    tally = fuzzer.tally
    print(f"seed {seed}: {len(numbers)} inputs ({', '.join(f'{n} {kind}' for kind, n in tally.kinds.most_common())})")
    print(f"{tally.commands} commands, {tally.seconds:.0f} s of CPU; exit codes:",
          ", ".join(f"{code}: {times}" for code, times in sorted(tally.codes.items())))  # fmt: skip
    print(f"slowest: {tally.slowest[0]:.1f} s of CPU: {tally.slowest[1]}")
    print(f"largest: {tally.largest[0] >> 20} MiB: {tally.largest[1]}")
    print(f"failures: {failed}")
    return int(failed > 0)


def _show(fuzzer: Fuzzer, seed: int, number: int) -> int:
    case = fuzzer.case(seed, number)
    print(f"{case.sample.kind} {case.sample.name}: {case.what}\ninput: {fuzzer.digest()}")
    failures = fuzzer.run(case)
    for command in case.commands:
        print(f"  abs {' '.join(command)}")
    for failure in failures:
        print(failure)
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
