"""The linter and the type checker have nothing to report; run as tests, they share the machine with the others."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.imports import ROOT

pytestmark = pytest.mark.minutes


@pytest.mark.fast(reason="the first thing that a change is checked with")
@pytest.mark.parametrize("arguments", [["ruff", "check", "."], ["mypy"]], ids=lambda arguments: arguments[0])
def test_the_whole_repository_passes(arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
