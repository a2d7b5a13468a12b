"""Hosts and workers that are gone: it is said, they are replaced or the job ends, and what comes out is exact. Nobody
hears of the end of a process here but over its connections."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.support.hosts.jobs import HostJob
from tests.support.hosts.network import Hosts, needs_hosts

pytestmark = [pytest.mark.minutes, needs_hosts]


def test_a_worker_that_is_killed_is_replaced_on_another_host(net: Hosts, tmp_path: Path) -> None:
    with HostJob(net, tmp_path, [["h1"], ["h2", "h3"]]) as job:
        job.runs_for(2)
        os.kill(job.worker_on("h2"), signal.SIGKILL)
        job.hears("Recovered", "worker 1 on h2")
        assert job.worker_on("h3")
        job.finish()


@pytest.mark.sample(1)
@pytest.mark.parametrize("recovery", ["subgraph", "local"])
def test_a_host_that_is_gone_without_a_goodbye_is_replaced(net: Hosts, tmp_path: Path, recovery: str) -> None:
    with HostJob(net, tmp_path, [["h1"], ["h2", "h3"]], recovery=recovery) as job:
        job.runs_for(2)
        net.crash("h2")
        job.hears("Silent", "worker 1 on h2")
        is_paused = "paused=True" in job.said("Silent", "worker 1 on h2")[0][1].text
        assert is_paused == (recovery == "subgraph")
        job.hears("Recovered", "sent no heartbeat for")
        job.runs_for(1)
        job.finish()


def test_without_restarts_the_job_ends_and_names_worker_and_host(net: Hosts, tmp_path: Path) -> None:
    with HostJob(net, tmp_path, [["h1"], ["h2"]], restarts=0) as job:
        job.runs_for(2)
        net.crash("h2")
        end = job.end()
        assert end.code == 6
        assert end.text.startswith("worker 1 on h2 (process ")
        assert "sent no heartbeat for" in end.text


@pytest.mark.soak
def test_a_host_that_nothing_comes_in_place_of_ends_the_job(net: Hosts, tmp_path: Path) -> None:
    with HostJob(net, tmp_path, [["h1"], ["h2"]]) as job:
        job.runs_for(2)
        net.crash("h2")
        end = job.end()
        assert end.code == 6
        assert end.text.startswith("worker 1 on h2 (process ")
        assert "no replacement connected to the driver on driver (10.77.0.10:" in end.text
        assert "ping -c 3 10.77.0.12" in (end.hint or "")
        assert "slots" not in (end.hint or "")
        (told, *_) = [line.text for _, line in job.said("WorkersAwaited")]
        assert "the replacement of worker 1 on h2" in told
