"""What all tests share: a folder for temporary files, one Spark context, and the switch that renews golden files."""

from __future__ import annotations

import gc
import os
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import archives
from tests.support.bare_root import BareRoot
from tests.support.bare_root import unusable as no_bare_root
from tests.support.browser import browser
from tests.support.hosts.network import Hosts, unusable
from tests.support.kafka import Broker
from tests.support.kafka import running as running_broker
from tests.support.objects.fixtures import Servers, use
from tests.support.objects.servers import ObjectServer
from tests.support.postgres import Postgres, postgres
from tests.support.run import Run, start
from tests.support.spark import archive
from tests.support.starters import starts

pytest_plugins = ("tests.tiers",)

os.environ["XDG_CONFIG_HOME"] = os.devnull  # no command of a test reads the configuration of whoever runs it
os.umask(os.umask(0o022) | 0o022)  # a configuration file that its group can write is ignored

def last_time(tier: str) -> Path:
    """Return the file with the seconds that a tier took when it passed last, for `tests.estimate`."""
    return Path(__file__).resolve().parent.parent / ".pytest_cache" / f"seconds-{tier}"


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
        last = last_time(config.getoption("--tier") or "fast")
        last.parent.mkdir(exist_ok=True)
        last.write_text(f"{time.monotonic() - config.stash[_BEGAN]:.0f}")


def _whole(config: pytest.Config) -> bool:
    """Whether all tests are run."""
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    return whole and not config.option.keyword and not config.option.collectonly


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
        patch.setattr(archives, "BASE", Path(folder))
        patch.setattr(os, "fsync", lambda fd: None)  # tests kill processes, and cut no power
        patch.setenv(archive.OPTIONS, archive.with_archive(os.environ))
        for name in ("SPARK_LOCAL_DIRS", "LOCAL_DIRS"):
            patch.delenv(name, raising=False)
        yield


LEFT_OPEN = 200
"""Descriptors that the tests of a file may leave open: of a Spark session, and of clients of servers."""


@pytest.fixture(scope="module", autouse=True)
def descriptors() -> Iterator[None]:
    """Fail a file whose tests leave many descriptors open: select(), which Spark's client uses, fails above 1,023."""
    before = len(os.listdir("/dev/fd"))
    yield
    if len(os.listdir("/dev/fd")) > before + LEFT_OPEN:
        gc.collect()
        left = len(os.listdir("/dev/fd")) - before
        assert left <= LEFT_OPEN, f"the tests of this file have left {left} descriptors open"


@pytest.fixture(scope="session")
@starts("a JVM")
def jvm() -> None:
    """For tests that start Java themselves, or run a command that does."""


@pytest.fixture(scope="session")
@starts("PostgreSQL")
def postgres_server() -> Iterator[Postgres]:
    """Start one server for all tests of a worker; each test makes tables of its own."""
    with postgres() as server:
        yield server


@pytest.fixture(scope="session")
@starts("a server of PostgreSQL that the test itself starts")
def own_postgres() -> None:
    """For tests that start and kill a server of their own."""


@pytest.fixture(scope="session")
@starts("Kafka")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Start one broker for all tests of a worker; each test makes topics of its own."""
    with running_broker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture(scope="session")
@starts("other hosts")
def hosts() -> None:
    """Skip the test where no network namespaces can be made."""
    if (reason := unusable()) is not None:
        pytest.skip(reason)


@pytest.fixture
@starts("a driver's host and three others")
def net(hosts: None) -> Iterator[Hosts]:
    """Make a network of a driver's host and three others."""
    with Hosts("driver", "h1", "h2", "h3") as network:
        yield network


@pytest.fixture(scope="session")
@starts("programs in a root folder of their own")
def empty_root(tmp_path_factory: pytest.TempPathFactory) -> BareRoot:
    """Make a root folder with a bare Python; skip the test where no program can run in it."""
    if (reason := no_bare_root()) is not None:
        pytest.skip(reason)
    return BareRoot(tmp_path_factory.mktemp("root"))


@pytest.fixture(scope="session")
@starts("a browser")
def chromium() -> None:
    """Skip the test where there is no browser."""
    if browser() is None:
        pytest.skip("there is no browser: apt-get install chromium")


@pytest.fixture(scope="session")
@starts("object stores")
def servers(run_folder: Path) -> Servers:
    """Object stores, each of which is started once for all workers."""
    return Servers(run_folder)


@pytest.fixture
@starts("moto")
def s3(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> ObjectServer:
    """An S3 by moto, which this process is a client of."""
    return use(servers.get("S3 by moto"), monkeypatch)


@pytest.fixture(scope="session")
@starts("Spark")
def spark() -> Iterator[Any]:
    """One Spark context for the whole run."""
    from abscli.engine.drivers.spark import start_context

    context = start_context("local[4]")
    yield context
    context.stop()
