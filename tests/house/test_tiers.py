"""The tiers of tests: what a test uses decides its tier, and a test of the tier `fast` that starts a server fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.imports import ROOT
from tests.tiers import NO_JAVA, started_program, unlisted

CONFTEST = """
import pytest
from tests.support.starters import starts

pytest_plugins = ("tests.tiers",)


@pytest.fixture(scope="session")
@starts("a JVM")
def jvm():
    pass


@pytest.fixture
def session(jvm):
    return "session"
"""
TESTS = """
import subprocess
import sys

import pytest
from hypothesis import given, settings, strategies as st
from tests.tiers import examples

NUMBERS = []


def test_a_sum():
    assert 1 + 1 == 2


def test_a_session(session):
    subprocess.run(["java", "-version"], check=True)


@pytest.mark.soak
def test_a_campaign(session):
    pass


@pytest.mark.fast
def test_a_demonstration(session):
    pass


@settings(max_examples=examples(300))
@given(st.integers())
def test_a_property(number):
    NUMBERS.append(number)
    with open("examples", "w") as file:
        file.write(str(len(NUMBERS)))
"""


def run(folder: Path, tests: str, *words: str, **environment: str) -> tuple[int, str]:
    """Run pytest in a process of its own, on a folder with its own conftest; exit code and output."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_all.py").write_text(tests)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-rA", *words],
        cwd=folder, capture_output=True, text=True,
        env={**os.environ, "CI": "", "PYTHONPATH": str(ROOT), **environment},
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def passed(output: str) -> set[str]:
    return {line.rpartition("::")[2] for line in output.splitlines() if line.startswith("PASSED")}


@pytest.mark.parametrize(
    ("tier", "tests", "examples"),
    [
        ("fast", {"test_a_sum", "test_a_demonstration", "test_a_property"}, 100),
        ("soak", {"test_a_campaign", "test_a_property"}, 300),
    ],
)
def test_a_test_is_of_the_tier_of_the_fixtures_that_it_uses(
    tmp_path: Path, tier: str, tests: set[str], examples: int
) -> None:
    code, output = run(tmp_path, TESTS, f"--tier={tier}")
    assert (code, passed(output)) == (0, tests), output
    assert int((tmp_path / "examples").read_text()) == examples


SAMPLED = """
import pytest


@pytest.mark.sample(2)
@pytest.mark.parametrize("number", range(9))
def test_a_number(number):
    pass


@pytest.mark.sample(1)
@pytest.mark.parametrize("number", range(3))
def test_a_session(number, session):
    pass


@pytest.mark.fast
@pytest.mark.sample(1)
@pytest.mark.parametrize("number", range(2))
def test_a_demonstration(number, session):
    pass
"""


def test_samples_of_cases_stay_in_the_tier_of_their_test_and_in_the_next(tmp_path: Path) -> None:
    code, output = run(tmp_path, SAMPLED, "--tier=fast")
    few = passed(output)
    assert (code, len(few)) == (0, 2 + 1)
    assert passed(run(tmp_path, SAMPLED, "--tier=fast")[1]) == few
    code, output = run(tmp_path, SAMPLED, "--tier=integration")
    more = passed(output)
    assert (code, len(more)) == (0, 4 + 1 + 1)
    code, output = run(tmp_path, SAMPLED, "--tier=soak")
    rest = passed(output)
    assert (code, len(rest)) == (0, 3 + 2)
    assert few | more | rest >= {f"test_a_number[{number}]" for number in range(9)}


STARTS = (
    'subprocess.run(["java", "-jar", "job.jar"])',
    'subprocess.run(["/usr/lib/postgresql/17/bin/postgres"])',
    'subprocess.Popen(["bash", "-c", "exec", "/usr/bin/chromium"])',
    'os.posix_spawn(sys.executable, [sys.executable, "-m", "tests.support.objects.host", "HDFS"], {})',
)


def test_a_test_of_the_first_tier_that_starts_a_server_fails_and_names_the_fixture(tmp_path: Path) -> None:
    tests = "".join(f"\n\ndef test_{number}():\n    {start}\n" for number, start in enumerate(STARTS))
    code, output = run(tmp_path, f"import os\nimport subprocess\nimport sys\n{tests}")
    assert code == 1, output
    assert f"{len(STARTS)} failed" in output
    for fixture in ("`jvm`", "`postgres_server`", "`chromium`", "`servers`"):
        assert fixture in output


def test_a_child_of_a_test_of_the_first_tier_has_no_java(tmp_path: Path) -> None:
    start = 'import subprocess; print(subprocess.run(["java", "-version"], capture_output=True, text=True).stderr)'
    body = f"    done = subprocess.run([sys.executable, '-c', {start!r}], capture_output=True, text=True)\n"
    test = f"import subprocess\nimport sys\n\n\ndef test_it():\n{body}    assert '{NO_JAVA[4:]}' in done.stdout\n"
    assert run(tmp_path, test)[0] == 0


def test_a_program_that_a_test_has_written_starts_nothing(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    assert started_program([str(java), "-version"]) is None
    assert started_program(["nice", "-n", "5", "true"]) is None
    assert started_program(["bash", "-c", "exec", "/usr/bin/chromium"]) == "chromium"


def test_a_skip_that_is_not_listed_fails_in_continuous_integration_alone(tmp_path: Path) -> None:
    test = "import pytest\n\n\ndef test_it():\n    pytest.skip('the moon is full')\n"
    for code, environment in ((0, {}), (1, {"CI": "true"})):
        ended, output = run(tmp_path, test, **environment)
        assert ended == code, output
        assert "not listed in tests/allowed_skips: the moon is full" in output


def test_a_pattern_allows_only_reasons_that_it_matches_as_a_whole() -> None:
    assert unlisted(["a b", "a", "x"], "# a comment\n\na\n") == ["a b", "x"]
