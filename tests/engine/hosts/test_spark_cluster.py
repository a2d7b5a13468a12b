"""`abs run` on a real standalone cluster of Spark over several hosts: slots, a host that is gone, and encryption."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from formats.errors import FormatError
from formats.native.store import NativeStore
from formats.storage import LocalStorage
from tests.support.hosts.jobs import write_input
from tests.support.hosts.network import Hosts, needs_hosts
from tests.support.hosts.spark import Cluster
from tests.support.jobs.kills import check_counted
from tests.support.jobs.small import open_gate
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.minutes, needs_hosts]

PATIENCE = 300.0
JOB = """version: 1
job: shuffle
parallelism: 2
operators:
  rows: {source: {type: jsonl, path: in/*.jsonl}}
  same: {from: rows, map: "slow:pass_on"}
  counts:
    from: {same: {partition: hash, key: [key]}}
    reduce: {key: [key], n: {count: "*"}, emit: record}
  out: {from: counts, sink: {type: jsonl, path: out}}
"""


class Run:
    """`abs run` on the driver's host. slots_seconds: for which it waits for slots."""

    def __init__(self, net: Hosts, cluster: Cluster, folder: Path, *words: str, slots_seconds: float = 90.0) -> None:
        self.folder = folder
        self.counts = write_input(folder) if not (folder / "in").exists() else Counter[str]()
        (folder / "job.yaml").write_text(JOB)
        self._errors = folder / "errors"
        patience = f"from abscli.engine.drivers import spark; spark.SLOTS_SECONDS = {slots_seconds}"
        main = f"{patience}; from abscli.cli.main import main; raise SystemExit(main())"
        command = [sys.executable, "-c", main, "run", "job.yaml", "--store", "store", "--master", cluster.master]
        root = str(Path(__file__).parents[3])
        with self._errors.open("ab") as errors:
            self.process = net.run(
                "driver", [*command, "--interval", "500ms", *words], cwd=folder, stdout=errors, stderr=errors,
                env={**cluster.environment, "PYTHONPATH": root},
            )  # fmt: skip

    @property
    def printed(self) -> str:
        return self._errors.read_text()

    def until(self, fact: Callable[[], object]) -> None:
        wait_for(fact, self.process, lambda: self.printed, seconds=PATIENCE)

    def epoch(self) -> int:
        try:
            return NativeStore(LocalStorage(self.folder / "store")).latest() or 0
        except FormatError:
            return 0

    def finish(self) -> None:
        open_gate(self.folder)
        assert self.process.wait(PATIENCE) == 0, self.printed
        check_counted(self.folder, self.counts)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@pytest.mark.soak
def test_slots_are_counted_when_executors_have_come(tmp_path: Path) -> None:
    with Hosts("driver", "h1", "h2") as net, Cluster(net, tmp_path) as cluster:
        cluster.start("h1")
        with Run(net, cluster, tmp_path, "--workers", "2") as run:
            run.until(lambda: "waiting for slots: 1 so far" in run.printed)
            assert not (tmp_path / "store" / "abs-store.json").exists()
            cluster.start("h2")
            run.until(lambda: run.epoch() >= 1)
            run.finish()


@pytest.mark.soak
def test_slots_that_do_not_come_are_no_mistake_in_the_words(tmp_path: Path) -> None:
    with Hosts("driver", "h1") as net, Cluster(net, tmp_path) as cluster:
        cluster.start("h1")
        with Run(net, cluster, tmp_path, "--workers", "2", slots_seconds=6.0) as run:
            assert run.process.wait(PATIENCE) == 6
            assert "2 workers need 2 slots, but " in run.printed
            assert " became available within 6 s on spark://" in run.printed
            assert not (tmp_path / "store" / "abs-store.json").exists()


@pytest.mark.soak
def test_a_signal_ends_the_wait_for_slots(tmp_path: Path) -> None:
    with Hosts("driver") as net, Cluster(net, tmp_path) as cluster, Run(net, cluster, tmp_path) as run:
        run.until(lambda: "waiting for slots: 0 so far" in run.printed)
        run.process.terminate()
        assert run.process.wait(PATIENCE) == 143, run.printed
        assert "nothing was written" in run.printed


def has_worker(net: Hosts, host: str) -> bool:
    """Whether Spark has started Python there."""
    words = [Path(f"/proc/{pid}/cmdline") for pid in net.pids(host)]
    return any(b"pyspark.daemon" in path.read_bytes() for path in words if path.exists())


def test_a_host_that_is_gone_is_replaced_by_another_one(tmp_path: Path) -> None:
    with Hosts("driver", "h1", "h2", "h3") as net, Cluster(net, tmp_path) as cluster:
        for host in ("h1", "h2", "h3"):
            cluster.start(host)
        with Run(net, cluster, tmp_path, "--workers", "2", "--worker-timeout", "8s") as run:
            run.until(lambda: run.epoch() >= 2)
            lost = next(host for host in ("h1", "h2", "h3") if has_worker(net, host))
            net.crash(lost)
            run.until(lambda: "recovered in " in run.printed)
            assert f" on {lost} (process " in run.printed
            assert "sent no heartbeat for" in run.printed
            run.finish()


@pytest.mark.soak
def test_a_worker_that_is_cut_off_from_the_driver_is_replaced_and_leaves(tmp_path: Path) -> None:
    """Spark takes the executor for alive: only the heartbeats of its worker are missing."""
    with Hosts("driver", "h1", "h2", "h3") as net, Cluster(net, tmp_path) as cluster:
        for host in ("h1", "h2", "h3"):
            cluster.start(host)
        with Run(net, cluster, tmp_path, "--workers", "2") as run:
            run.until(lambda: run.epoch() >= 2)
            lost = next(host for host in ("h1", "h2", "h3") if has_worker(net, host))
            net.cut("driver", lost)
            run.until(lambda: "sources are paused" in run.printed)
            run.until(lambda: "recovered in " in run.printed)
            assert f" on {lost} (process " in run.printed
            assert "sent no heartbeat for 10 s" in run.printed
            net.heal("driver", lost)
            run.finish()


@pytest.mark.soak
def test_a_network_without_a_way_to_the_driver_is_no_lack_of_slots(tmp_path: Path) -> None:
    with Hosts("driver", "h1", "h2") as net, Cluster(net, tmp_path) as cluster:
        for host in ("h1", "h2"):
            cluster.start(host)
        with Run(net, cluster, tmp_path, "--workers", "2") as run:
            run.until(lambda: run.epoch() >= 2)
            net.cut("driver", "h1")
            net.cut("driver", "h2")
            assert run.process.wait(PATIENCE) == 6, run.printed
            assert "no replacement connected to the driver on driver (10.77.0.10:" in run.printed
            assert "check the network of driver (10.77.0.10)" in run.printed
            assert "a replacement needs a free slot on another host" in run.printed
            assert "use fewer --workers" not in run.printed
        net.heal("driver", "h1")
        net.heal("driver", "h2")
        with Run(net, cluster, tmp_path, "--workers", "2", "--resume") as resumed:
            resumed.counts = run.counts
            resumed.finish()


@pytest.mark.soak
def test_spark_that_does_not_encrypt_is_refused_or_said(tmp_path: Path) -> None:
    with Hosts("driver", "h1") as net, Cluster(net, tmp_path, secure=False) as cluster:
        cluster.start("h1")
        with Run(net, cluster, tmp_path / "refused", "--workers", "1") as run:
            assert run.process.wait(PATIENCE) == 2
            assert "Spark does not authenticate its connections on spark://" in run.printed
            assert "set spark.authenticate true and spark.network.crypto.enabled true in " in run.printed
            assert not (run.folder / "store" / "abs-store.json").exists()
        with Run(net, cluster, tmp_path / "insecure", "--workers", "1", "--insecure") as run:
            run.until(lambda: run.epoch() >= 1)
            assert "warning: --insecure: connections between hosts are not encrypted" in run.printed
            run.finish()
