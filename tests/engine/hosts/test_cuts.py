"""The network between hosts is cut or slow: one of those that do not reach each other is replaced, or the job ends,
and what comes out is exact."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.hosts.jobs import HostJob
from tests.support.hosts.network import Hosts, needs_hosts

pytestmark = [pytest.mark.minutes, needs_hosts]


@pytest.mark.soak
def test_of_two_that_do_not_reach_each_other_one_is_replaced(net: Hosts, tmp_path: Path) -> None:
    with HostJob(net, tmp_path, [["h1"], ["h2", "h3"]]) as job:
        job.runs_for(2)
        net.cut("h1", "h2")
        job.hears("Silent", "worker 0 on h1")
        job.hears("Recovered", "have not received anything from each other")
        (recovery,) = job.store().recoveries()
        assert recovery.workers == (1,)
        assert recovery.cause.startswith("worker 1 on h2 (process ")
        job.runs_for(1)
        job.finish()


@pytest.mark.soak
def test_whom_most_others_do_not_reach_is_the_one_to_go(net: Hosts, tmp_path: Path) -> None:
    with HostJob(net, tmp_path, [["h1", "driver"], ["h2"], ["h3"]]) as job:
        job.runs_for(2)
        net.cut("h1", "h2")
        net.cut("h1", "h3")
        job.hears("Recovered", "have not received anything from each other")
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


@pytest.mark.soak
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


@pytest.mark.soak
def test_everyone_cut_from_the_driver_ends_the_job_and_the_workers_and_it_resumes(net: Hosts, tmp_path: Path) -> None:
    with HostJob(net, tmp_path, [["h1"], ["h2"]]) as job:
        job.runs_for(2)
        workers = [job.worker_on("h1"), job.worker_on("h2")]
        net.down("driver")
        job.until(lambda: job.are_gone(workers), "workers that leave without the driver")
        end = job.end()
        assert end.code == 6
        assert "worker 0 on h1" in end.text
        assert "worker 1 on h2" in end.text
        assert "check the network of driver (10.77.0.10)" in (end.hint or "")
        assert "slots" not in (end.hint or "")
        net.up("driver")
        job.finish_again([["h1"], ["h2"]])


@pytest.mark.soak
def test_a_slow_and_bad_line_is_no_loss(net: Hosts, tmp_path: Path) -> None:
    net.slow("h2", 0.2, 0.05)
    with HostJob(net, tmp_path, [["h1"], ["h2"]], worker_timeout=15.0) as job:
        job.runs_for(2)
        job.finish()
        assert not job.said("Recovering")
