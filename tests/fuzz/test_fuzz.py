"""Damaged inputs: no command that only reads ends by a bug or a signal, hangs, or changes anything."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.fuzz.corpus import ROOT
from tests.fuzz.fuzzer import problems_of
from tests.fuzz.mutators import resealed
from tests.fuzz.runner import MEMORY, Ran

SEED = 20261127
FEW, MANY = 20, 1000


def fuzz(*options: object) -> subprocess.CompletedProcess[str]:
    """Run the fuzzer in a process of its own: what the process of the tests has in memory would count for children."""
    return subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "--seed", str(SEED), *map(str, options)], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=3600, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("inputs", [FEW, pytest.param(MANY, marks=pytest.mark.soak)])
def test_damaged_inputs_are_refused_or_read(inputs: int) -> None:
    done = fuzz("--inputs", inputs)
    assert done.returncode == 0, done.stdout[-20_000:]
    assert f"seed {SEED}: {inputs} inputs" in done.stdout


@pytest.mark.soak
def test_a_case_is_the_same_input_each_time() -> None:
    one, other = (fuzz("--case", 7).stdout for _ in range(2))
    assert "input: " in one
    assert one == other


@pytest.mark.parametrize(
    "ran",
    [
        Ran(1, "", "abs: error: unexpected ValueError", 0.1, 1, ()),
        Ran(-11, "", "", 0.1, 1, ()),
        Ran(0, "", "Traceback (most recent call last):", 0.1, 1, ()),
        Ran(0, "", "", 61.0, 1, ()),
        Ran(0, "", "", 0.1, MEMORY + 1, ()),
        Ran(0, "a\x1b[31m", "", 0.1, 1, ()),
        Ran(0, "", "", 0.1, 1, ("open /etc/passwd",)),
    ],
)
def test_what_a_command_must_not_do_is_found(ran: Ran) -> None:
    assert list(problems_of(ran))


def test_what_a_command_may_do_is_none() -> None:
    assert not list(problems_of(Ran(3, "damaged\n", "", 5.0, 100 << 20, ())))


def test_facts_that_were_edited_get_a_digest_that_holds() -> None:
    from formats.native.facts import SEAL_LENGTH, digest

    data = resealed(b'{"a":1,"sha256":"0"}\n')
    assert digest(data[:-SEAL_LENGTH]).encode() in data[-SEAL_LENGTH:]
