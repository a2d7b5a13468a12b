"""Thousands of steps of what people do to stores and sinks, on the real command line: exactly-once, or refused.

    python -m tests.bench.bench_sequences [--minutes 10] [--seed 1] [--rules run,copy,...] [--keep DIR]
    python -m tests.bench.bench_sequences --faults [--minutes 3]

With --faults: how many commands it takes by chance, led to the rules concerned alone, to find each mend that is taken
out. Seeds draw the same steps; what threads do meanwhile is theirs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.exactly_once.children import Children
from tests.exactly_once.faults import FAULTS
from tests.exactly_once.machine import RULES, Sequences, led_to


def search(rules: frozenset[str], first_seed: int, minutes: float, sequences: int) -> tuple[int, BaseException | None]:
    """Seeds that were gone through, and what was found in the last."""
    end = time.monotonic() + 60 * minutes
    number = first_seed
    while time.monotonic() < end:
        machine = seed(number)(led_to(rules))
        some = settings(
            max_examples=sequences, stateful_step_count=12, deadline=None, database=None, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        try:
            run_state_machine_as_test(machine, settings=some)  # type: ignore[no-untyped-call]
        except Exception as error:
            return number - first_seed, error
        number += 1
    return number - first_seed, None


def message(error: BaseException) -> str:
    """The assertion that failed, which hypothesis may have wrapped since the next try went otherwise."""
    if isinstance(error, BaseExceptionGroup):
        return "\n".join(message(one) for one in error.exceptions)
    return str(error if isinstance(error, AssertionError) or error.__context__ is None else error.__context__)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="of each search")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rules", default=",".join(sorted(RULES)))
    parser.add_argument("--faults", action="store_true")
    parser.add_argument("--keep", type=Path, help="where folders of sequences that failed are kept")
    given = parser.parse_args()
    if given.keep is not None:
        given.keep.mkdir(parents=True, exist_ok=True)
        Sequences.failures = given.keep
    found = True
    with Children() as children:
        Sequences.children = children
        if not given.faults:
            began = time.monotonic()
            _, error = search(frozenset(given.rules.split(",")), given.seed, given.minutes, 8)
            seen = ", ".join(f"{name} {count:,}" for name, count in sorted(Sequences.seen.items()))
            print(f"{Sequences.commands:,} commands in {time.monotonic() - began:.0f} s: {seen}")
            if error is not None:
                print(message(error))
            return int(error is not None)
        for name, fault in FAULTS.items():
            Sequences.fault, Sequences.commands, Sequences.seen = name, 0, Counter()
            _, error = search(fault.rules, given.seed, given.minutes, 4)
            result = "not found" if error is None else message(error).partition("\n")[0]
            print(f"{name:15} {Sequences.commands:5,} commands: {result}", flush=True)
            found &= error is not None
    return int(not found)


if __name__ == "__main__":
    sys.exit(main())
