"""What can happen to hosts and to the network between them: it is said, it is made up for or the job ends, and what
comes out is exact. Nobody hears of the end of a process here but over its connections."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.hosts.jobs import HostJob
from tests.support.hosts.network import Hosts, needs_hosts

pytestmark = [pytest.mark.minutes, needs_hosts]

HOSTS = ("driver", "h1", "h2", "h3")


@pytest.fixture
def net() -> Iterator[Hosts]:
    with Hosts(*HOSTS) as hosts:
        yield hosts


def test_a_worker_that_is_killed_is_replaced_on_another_host(net: Hosts, tmp_path: Path) -> None:
    with HostJob(net, tmp_path, [["h1"], ["h2", "h3"]]) as job:
        job.runs_for(2)
        os.kill(job.worker_on("h2"), signal.SIGKILL)
        job.hears("Recovered", "worker 1 on h2")
        assert job.worker_on("h3")
        job.finish()


@pytest.mark.parametrize("recovery", ["set", "local"])
def test_a_host_that_is_gone_without_a_goodbye_is_replaced(net: Hosts, tmp_path: Path, recovery: str) -> None:
    with HostJob(net, tmp_path, [["h1"], ["h2", "h3"]], recovery=recovery) as job:
        job.runs_for(2)
        net.crash("h2")
        job.hears("Silent", "worker 1 on h2")
        job.hears("Recovered", "gave no sign of life for")
        job.runs_for(1)
        job.finish()


def test_without_restarts_the_job_ends_and_names_worker_and_host(net: Hosts, tmp_path: Path) -> None:
    with HostJob(net, tmp_path, [["h1"], ["h2"]], restarts=0) as job:
        job.runs_for(2)
        net.crash("h2")
        end = job.end()
        assert end.code == 6
        assert end.text.startswith("worker 1 on h2 (process ")
        assert "gave no sign of life for" in end.text


def test_a_host_that_nothing_comes_in_place_of_ends_the_job(net: Hosts, tmp_path: Path) -> None:
    with HostJob(net, tmp_path, [["h1"], ["h2"]]) as job:
        job.runs_for(2)
        net.crash("h2")
        end = job.end()
        assert end.code == 6
        assert end.text.startswith("worker 1 on h2 (process ")
        assert "did not come again within 25 s" in end.text


def test_of_two_that_do_not_reach_each_other_one_is_replaced(net: Hosts, tmp_path: Path) -> None:
    with HostJob(net, tmp_path, [["h1"], ["h2", "h3"]]) as job:
        job.runs_for(2)
        net.cut("h1", "h2")
        job.hears("Silent", "worker 0 on h1")
        job.hears("Recovered", "heard nothing of each other")
        (recovery,) = job.store().recoveries()
        assert recovery.workers == (1,)
        assert recovery.cause.startswith("worker 1 on h2 (process ")
        job.runs_for(1)
        job.finish()


def test_whom_most_others_do_not_reach_is_the_one_to_go(net: Hosts, tmp_path: Path) -> None:
    with HostJob(net, tmp_path, [["h1", "driver"], ["h2"], ["h3"]]) as job:
        job.runs_for(2)
        net.cut("h1", "h2")
        net.cut("h1", "h3")
        job.hears("Recovered", "heard nothing of each other")
        (recovery,) = job.store().recoveries()
        assert recovery.workers == (0,)
        job.finish()


def test_two_that_cannot_reach_each_other_again_end_the_job(net: Hosts, tmp_path: Path) -> None:
    with HostJob(net, tmp_path, [["h1"], ["h2"]]) as job:
        job.runs_for(2)
        net.cut("h1", "h2")
        end = job.end()
        assert end.code == 6
        assert "worker 1 on h2" in end.text
        assert "worker 0 on h1" in end.text


def test_two_that_do_not_reach_each_other_before_the_start_end_the_job(net: Hosts, tmp_path: Path) -> None:
    net.cut("h1", "h2")
    with HostJob(net, tmp_path, [["h1"], ["h2"]]) as job:
        end = job.end()
        assert end.code == 6
        assert end.text.startswith("worker 1 on h2 (process ")
        assert "worker 0 on h1" in end.text


def test_a_short_cut_is_said_and_survived(net: Hosts, tmp_path: Path) -> None:
    with HostJob(net, tmp_path, [["h1"], ["h2"]], worker_timeout=60.0) as job:
        job.runs_for(2)
        net.cut("h1", "h2")
        job.hears("Silent", "worker 0 on h1")
        net.heal("h1", "h2")
        job.hears("HeardAgain", "worker 0 on h1")
        job.runs_for(1)
        assert not job.said("Recovering")
        job.finish()


def test_everyone_cut_from_the_driver_ends_the_job_and_the_workers(net: Hosts, tmp_path: Path) -> None:
    with HostJob(net, tmp_path, [["h1"], ["h2"]]) as job:
        job.runs_for(2)
        workers = [job.worker_on("h1"), job.worker_on("h2")]
        net.down("driver")
        job.until(lambda: job.are_gone(workers), "workers that leave without the driver")
        end = job.end()
        assert end.code == 6
        assert "worker 0 on h1" in end.text
        assert "worker 1 on h2" in end.text


def test_a_slow_and_bad_line_is_no_loss(net: Hosts, tmp_path: Path) -> None:
    net.slow("h2", 0.2, 0.05)
    with HostJob(net, tmp_path, [["h1"], ["h2"]], worker_timeout=15.0) as job:
        job.runs_for(2)
        job.finish()
        assert not job.said("Recovering")


def test_a_worker_that_stood_still_for_long_leaves_when_it_goes_on(net: Hosts, tmp_path: Path) -> None:
    with HostJob(net, tmp_path, [["h1"], ["h2", "h3"]]) as job:
        job.runs_for(2)
        zombie = job.worker_on("h2")
        os.kill(zombie, signal.SIGSTOP)
        job.hears("Silent", "worker 1 on h2")
        job.hears("Recovered", "gave no sign of life for")
        os.kill(zombie, signal.SIGCONT)
        job.until(lambda: job.are_gone([zombie]), "the one from before to leave")
        job.runs_for(1)
        job.finish()


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


@pytest.mark.parametrize("recovery", ["set", "local"])
def test_a_host_that_comes_back_with_its_old_worker_changes_nothing(
    net: Hosts, tmp_path: Path, recovery: str
) -> None:
    with HostJob(net, tmp_path, [["h1"], ["h2", "h3"]], recovery=recovery) as job:
        job.runs_for(2)
        zombie = job.worker_on("h2")
        os.kill(zombie, signal.SIGSTOP)  # or its lease would have it leave before it comes back
        net.down("h2")
        job.hears("Recovered", "gave no sign of life for")
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
