"""Three tiers of tests, by what a test starts: `fast` (`make test`), `integration` and `soak`.

A fixture that starts a JVM, a server, other hosts or a browser carries `@starts`. A test that uses it, through whatever
other fixtures, belongs to the tier `integration`, or to `soak` if it is marked so. A test of the tier `fast` that
starts such a program all the same fails: no test can land in the wrong tier because somebody forgot a mark.
"""

from __future__ import annotations

import enum
import gc
import os
import re
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings

from tests.support.starters import STARTERS


class Tier(enum.IntEnum):
    """A tier of tests; each is run by a target of the Makefile."""

    FAST = 0
    INTEGRATION = 1
    SOAK = 2


ALL: Final = "all"
PROGRAMS: Final = {
    **dict.fromkeys(("java", "javac", "mvn", "spark-class", "spark-submit"), "a JVM (fixture `jvm` or `spark`)"),
    **dict.fromkeys(("initdb", "pg_isready", "postgres"), "PostgreSQL (fixture `postgres_server`)"),
    **dict.fromkeys(("azurite", "ceph-mon", "ceph-osd", "node", "npm", "radosgw"), "a server (fixture `servers`)"),
    **dict.fromkeys(("ip", "unshare"), "other hosts (fixture `hosts`)"),
    **dict.fromkeys(("chromium", "chromium-browser", "google-chrome"), "a browser (fixture `chromium`)"),
}
"""Programs that a test of the tier `fast` must not start, and the fixture that it needs."""
SERVER_MODULE: Final = "tests.support.objects.host"
FRONT: Final = Path(__file__).resolve().parents[1] / "abscli" / "engine" / "drivers" / "java_home"
HARMLESS: Final = ("/tmp/", os.path.join(tempfile.gettempdir(), ""), f"{FRONT}/")
"""Folders of programs that only have a name of PROGRAMS: those of tests, and a script in front of Java."""
WRAPPERS: Final = frozenset({"bash", "env", "nice", "sh"})

NO_JAVA: Final = "-XX:+A_test_of_the_tier_fast_must_not_start_Java__see_tests_tiers_py"
"""An option that no JVM knows: a JVM that a child of a test starts ends at once and prints it."""
JAVA_OPTIONS: Final = "JDK_JAVA_OPTIONS"

ALLOWED_SKIPS: Final = Path(__file__).with_name("allowed_skips")

_TIER: Final = pytest.StashKey[str]()
_OWN: Final = pytest.StashKey[Tier]()
_SKIPS: Final = pytest.StashKey[set[str]]()
_test_is_fast = False

# A busy machine is slow at making examples, too: neither says anything about what is tested.
_PROFILE: Final = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("full", _PROFILE)
settings.register_profile("fast", _PROFILE, max_examples=34)


def tier_of(item: pytest.Item) -> Tier:
    """Return the tier of a test, from its marks and from the fixtures that it uses."""
    if _OWN in item.stash:
        return item.stash[_OWN]
    if item.get_closest_marker("soak"):
        return Tier.SOAK
    if item.get_closest_marker("fast"):
        return Tier.FAST
    if item.get_closest_marker("integration") or item.get_closest_marker("minutes") or uses_starter(item):
        return Tier.INTEGRATION
    return Tier.FAST


def uses_starter(item: pytest.Item) -> bool:
    """Tell whether a test uses a fixture that starts a program, directly or through other fixtures."""
    return not STARTERS.keys().isdisjoint(getattr(item, "fixturenames", ()))


def examples(full: int) -> int:
    """Return how many examples a property is tried with: a third of `full` in the tier `fast`."""
    return max(1, full // 3) if settings.get_current_profile_name() == "fast" else full


def above_samples(items: Iterable[pytest.Item]) -> dict[pytest.Item, Tier]:
    """Return the cases of tests that belong to a higher tier than their test, with that tier.

    As many cases as `sample` says stay in the tier of the test, twice as many belong to the next tier, and the rest to
    the tier soak. Which are left out depends on their names alone, so that it is the same in each run. Cases that are
    in a higher tier already, since they use a server, stay there.
    """
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sample"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    above: dict[pytest.Item, Tier] = {}
    for of_a_test in cases.values():
        mark = of_a_test[0].get_closest_marker("sample")
        assert mark is not None
        lowest, number = min(tier_of(item) for item in of_a_test), mark.args[0]
        of_a_test = [item for item in of_a_test if tier_of(item) is lowest]
        of_a_test.sort(key=lambda item: zlib.crc32(item.name.encode()))
        above |= dict.fromkeys(of_a_test[number : 3 * number], Tier(min(lowest + 1, Tier.SOAK)))
        above |= dict.fromkeys(of_a_test[3 * number :], Tier.SOAK)
    return above


def is_selected(item: pytest.Item, own: Tier, tier: str) -> bool:
    """Tell whether a run of a tier includes a test, whose own tier is `own`.

    The tier `soak` repeats the properties of the tier `fast`, with all of their examples.
    """
    if tier == ALL:
        return True
    is_property = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
    return own.name.lower() == tier or (tier == "soak" and own is Tier.FAST and is_property)


def started_program(words: Sequence[object]) -> str | None:
    """Return the program among PROGRAMS that a command starts; None if it starts none.

    A program in a folder for temporary files is one that a test has written, and starts nothing.
    """
    texts = [os.fsdecode(word) if isinstance(word, bytes | os.PathLike) else str(word) for word in words]
    if SERVER_MODULE in texts:
        return "node"
    is_wrapped = bool(texts) and os.path.basename(texts[0]) in WRAPPERS
    for text in texts if is_wrapped else texts[:1]:
        place = shutil.which(text) or text
        if os.path.basename(text) in PROGRAMS and not place.startswith(HARMLESS):
            return os.path.basename(text)
    return None


def _guard(event: str, arguments: tuple[Any, ...]) -> None:
    if not _test_is_fast or event not in ("subprocess.Popen", "os.posix_spawn"):
        return
    words = arguments[1]
    texts = [words] if isinstance(words, str | bytes | os.PathLike) else list(words)
    # A Java that only tells its version ends at once: `abs doctor` asks it.
    program = None if "-version" in texts else started_program(texts)
    if program is not None:
        pytest.fail(f"a test of the tier fast starts `{program}`: let it use {PROGRAMS[program]}, see tests/tiers.py")


# -- hooks of pytest ------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    names = [*(tier.name.lower() for tier in Tier), ALL]
    parser.addoption("--tier", choices=names, help="the tier to run: fast, or all where files or folders are named")


def pytest_configure(config: pytest.Config) -> None:
    named = config.args_source is not pytest.Config.ArgsSource.TESTPATHS
    tier = config.getoption("--tier") or (ALL if named else "fast")
    if hasattr(config, "workerinput"):
        tier = config.workerinput["tier"]
    config.stash[_TIER] = tier
    config.stash[_SKIPS] = set()
    settings.load_profile("fast" if tier == "fast" else "full")
    for line in (
        "cell(sequence, outcome, *sinks): shows a cell of the table in guarantees.md",
        "fast: stays in the first tier although its file takes minutes or it starts a JVM: `reason` says why",
        "integration: belongs to the second tier for the time that it takes",
        "sample(number): as many cases of a test stay in its tier, twice as many go to the next, the rest to soak",
        "soak: belongs to the third tier",
    ):
        config.addinivalue_line("markers", line)
    sys.addaudithook(_guard)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["tier"] = node.config.stash[_TIER]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Any:
    """Collect without the garbage collector, which would look at thousands of tests again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item, tier in above_samples(items).items():
        item.stash[_OWN] = tier
    left_out = []
    for item in items:
        tier = tier_of(item)
        if tier is not Tier.FAST and item.get_closest_marker(tier.name.lower()) is None:
            item.add_marker(tier.name.lower())
        if not is_selected(item, tier, config.stash[_TIER]):
            left_out.append(item)
    if left_out:
        excluded = set(left_out)
        items[:] = [item for item in items if item not in excluded]
        config.hook.pytest_deselected(items=left_out)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Any:
    global _test_is_fast
    _test_is_fast = tier_of(item) is Tier.FAST and not uses_starter(item)
    with pytest.MonkeyPatch.context() as patch:
        if _test_is_fast:
            patch.setenv(JAVA_OPTIONS, NO_JAVA)
        try:
            return (yield)
        finally:
            _test_is_fast = False


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    report = yield
    if _test_is_fast and report.failed and "Java" in str(report.longrepr):
        report.sections.append(("tier", f"a test of the tier fast has no Java: it needs {PROGRAMS['java']}"))
    return report


# -- skips ----------------------------------------------------------------------------------------------------


def unlisted(reasons: Iterable[str], patterns: str) -> list[str]:
    """Return the reasons for skips that no pattern allows.

    patterns: a regular expression a line; `#` begins a comment.
    """
    lines = (line.strip() for line in patterns.splitlines())
    allowed = [re.compile(line) for line in lines if line and not line.startswith("#")]
    return sorted(reason for reason in reasons if not any(pattern.fullmatch(reason) for pattern in allowed))


def _note(config: pytest.Config, report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail") and isinstance(report.longrepr, tuple):
        config.stash[_SKIPS].add(str(report.longrepr[2]).removeprefix("Skipped: "))


class Skips:
    """Gathers the reasons of all skips of a run, those of its workers included."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        _note(self._config, report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        _note(self._config, report)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._config.stash[_SKIPS].update(getattr(node, "workeroutput", {}).get("skips", ()))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        found = unlisted(self._config.stash[_SKIPS], ALLOWED_SKIPS.read_text(encoding="utf-8"))
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput["skips"] = sorted(self._config.stash[_SKIPS])
        elif found and os.environ.get("CI") == "true" and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for reason in unlisted(self._config.stash[_SKIPS], ALLOWED_SKIPS.read_text(encoding="utf-8")):
            terminalreporter.write_line(f"skipped, and not listed in tests/allowed_skips: {reason}", yellow=True)


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.pluginmanager.register(Skips(session.config), "tiers-skips")
