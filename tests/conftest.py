"""What all tests share: a folder for temporary files, one Spark context, and the switch that renews golden files."""

from __future__ import annotations

import os
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.objects.fixtures import Servers, use
from tests.support.objects.servers import ObjectServer
from tests.support.run import Run, start
from tests.support.spark import archive

# A busy machine is slow at making examples, too: neither says anything about what is tested.
settings.register_profile("abs", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("abs")

LAST_TIME = Path(__file__).resolve().parent.parent / ".pytest_cache" / "seconds"
"""What the whole suite took when it passed last, for `tests.estimate`."""


MEMORY = 3 << 30
"""Bytes that a worker may need, with the processes that its tests start."""
LAST = 1 << 32


def order(name: str) -> int:
    """Where among files that take minutes the one of this name comes."""
    return zlib.crc32(name.encode())


def pytest_sessionstart(session: pytest.Session) -> None:
    config = session.config
    config.stash[_BEGAN] = time.monotonic()
    if _RUN in config.stash and _whole(config) and not archive.PLACE.exists():
        run = config.stash[_RUN].folder
        (run / "archive").mkdir()
        start(run, "archive", archive.__name__, log=run / "archive" / "log")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    config = session.config
    if _whole(config) and exitstatus == 0 and not hasattr(config, "workerinput"):
        LAST_TIME.parent.mkdir(exist_ok=True)
        LAST_TIME.write_text(f"{time.monotonic() - config.stash[_BEGAN]:.0f}")


def _whole(config: pytest.Config) -> bool:
    """Whether all tests are run."""
    return config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.keyword


_BEGAN = pytest.StashKey[float]()
_RUN = pytest.StashKey[Run]()


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.stash[_RUN] = Run()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Workers share the folder of the run."""
    node.workerinput["run"] = str(node.config.stash[_RUN].folder)


def pytest_unconfigure(config: pytest.Config) -> None:
    if _RUN in config.stash:
        config.stash[_RUN].end()


@pytest.fixture(scope="session")
def run_folder(pytestconfig: pytest.Config) -> Path:
    """Of all workers of this run."""
    if hasattr(pytestconfig, "workerinput"):
        return Path(pytestconfig.workerinput["run"])
    return pytestconfig.stash[_RUN].folder


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="renew golden files instead of comparing with them")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take minutes come first, or one worker would sit over the last of them while the others have ended.

    They are mixed, always alike: folders are of a kind, and what waits goes best beside what computes.
    """
    items.sort(key=lambda item: order(item.path.name) if item.get_closest_marker("minutes") else LAST)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two for each core, and one: tests wait for real processes more than they compute. Each may come to start a few
    JVMs, so that memory is a bound, too."""
    kilobytes = int(Path("/proc/meminfo").read_text().partition("MemAvailable:")[2].split()[0])
    return max(1, min(2 * (os.cpu_count() or 1) + 1, kilobytes * 1024 // MEMORY))


@pytest.fixture(scope="session", autouse=True)
def temporary() -> Iterator[None]:
    """Temporary files of the tests and of what they start: a process killed with SIGKILL does not remove its own."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="abs-tests-") as folder:
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", None)
        patch.setenv(archive.OPTIONS, archive.with_archive(os.environ))
        for name in ("SPARK_LOCAL_DIRS", "LOCAL_DIRS"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session")
def servers(run_folder: Path) -> Servers:
    """Object stores, each of which is started once for all workers."""
    return Servers(run_folder)


@pytest.fixture
def s3(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> ObjectServer:
    """An S3 by moto, which this process is a client of."""
    return use(servers.get("S3 by moto"), monkeypatch)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One Spark context for the whole run."""
    from abscli.engine.drivers.spark import start_context

    context = start_context("local[4]")
    yield context
    context.stop()
