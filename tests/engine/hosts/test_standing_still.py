"""Processes that stand still while the others go on without them, and what they do when they come back."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.support.hosts.jobs import HostJob
from tests.support.hosts.network import Hosts, needs_hosts

pytestmark = [pytest.mark.minutes, needs_hosts]


@pytest.mark.soak
def test_a_worker_that_stood_still_for_long_leaves_when_it_goes_on(net: Hosts, tmp_path: Path) -> None:
    with HostJob(net, tmp_path, [["h1"], ["h2", "h3"]]) as job:
        job.runs_for(2)
        zombie = job.worker_on("h2")
        os.kill(zombie, signal.SIGSTOP)
        job.hears("Silent", "worker 1 on h2")
        job.hears("Recovered", "sent no heartbeat for")
        os.kill(zombie, signal.SIGCONT)
        job.until(lambda: job.are_gone([zombie]), "the one from before to leave")
        job.runs_for(1)
        job.finish()


@pytest.mark.soak
def test_a_worker_that_stood_still_for_less_than_that_goes_on(net: Hosts, tmp_path: Path) -> None:
    with HostJob(net, tmp_path, [["h1"], ["h2"]], worker_timeout=60.0) as job:
        job.runs_for(2)
        os.kill(job.worker_on("h2"), signal.SIGSTOP)
        job.hears("Silent", "worker 1 on h2")
        os.kill(job.worker_on("h2"), signal.SIGCONT)
        job.hears("HeardAgain", "worker 1 on h2")
        job.runs_for(1)
        assert not job.said("Recovering")
        job.finish()


@pytest.mark.soak
@pytest.mark.parametrize("recovery", ["subgraph", "local"])
def test_a_host_that_comes_back_with_its_old_worker_changes_nothing(
    net: Hosts, tmp_path: Path, recovery: str
) -> None:
    with HostJob(net, tmp_path, [["h1"], ["h2", "h3"]], recovery=recovery) as job:
        job.runs_for(2)
        zombie = job.worker_on("h2")
        os.kill(zombie, signal.SIGSTOP)  # or its lease would have it leave before it comes back
        net.down("h2")
        job.hears("Recovered", "sent no heartbeat for")
        net.up("h2")
        os.kill(zombie, signal.SIGCONT)
        job.until(lambda: job.are_gone([zombie]), "the one from before to leave")
        job.runs_for(1)
        assert len(job.said("Recovering")) == 1
        job.finish()


def test_a_driver_that_lost_its_lock_while_it_stood_still_shows_nothing(net: Hosts, tmp_path: Path) -> None:
    with HostJob(net, tmp_path, [["h1"], ["h2"]]) as job:
        job.runs_for(2)
        workers = [job.worker_on("h1"), job.worker_on("h2")]
        job.process.send_signal(signal.SIGSTOP)
        job.until(lambda: job.are_gone(workers), "workers that leave without the driver")
        (tmp_path / "store" / "lock").unlink()  # as a lease of NFS that has run out
        for lock in tmp_path.glob("out/**/lock"):
            lock.unlink()
        with HostJob(net, tmp_path, [["h2"], ["h3"]], driver="h1", from_epoch=job.epoch()) as heir:
            heir.counts = job.counts
            heir.runs_for(2)
            job.process.send_signal(signal.SIGCONT)
            end = job.end()
            assert end.code == 6, job.log()
            heir.runs_for(2)
            heir.finish()
