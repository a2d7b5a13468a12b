"""Workers on several hosts find each other, and who cannot be found is named."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from abscli.engine.channels.messages import Hello
from abscli.engine.losses.crew import misplaced
from tests.support.hosts.jobs import HostJob
from tests.support.hosts.network import Hosts, needs_hosts


@needs_hosts
def test_a_job_over_three_hosts_is_exact(tmp_path: Path) -> None:
    with Hosts("driver", "h1", "h2", "h3") as net, HostJob(net, tmp_path, [["h1"], ["h2"], ["h3"]]) as job:
        job.runs_for(2)
        assert [len(job.workers_on(host)) for host in ("h1", "h2", "h3")] == [1, 1, 1]
        job.finish()


@needs_hosts
@pytest.mark.parametrize("loopback", ["127.0.1.1", "127.0.0.1"])
def test_a_host_whose_own_name_leads_to_itself_is_reached_by_the_others(tmp_path: Path, loopback: str) -> None:
    hosts = ("driver", "h1", "h2")
    with (
        Hosts(*hosts, resolve=dict.fromkeys(hosts, loopback)) as net,
        HostJob(net, tmp_path, [["h1"], ["h2"]]) as job,
    ):
        job.runs_for(2)
        job.finish()


@needs_hosts
def test_a_lost_worker_is_named_with_its_host_also_in_the_store(tmp_path: Path) -> None:
    with Hosts("driver", "h1", "h2", "h3") as net, HostJob(net, tmp_path, [["h1"], ["h2", "h3"]]) as job:
        job.runs_for(2)
        lost = job.worker_on("h2")
        net.crash("h2")
        job.hears("Recovered")
        assert job.worker_on("h3")
        job.finish()
        (recovery,) = job.store().recoveries()
        assert recovery.cause.startswith(f"worker 1 on h2 (process {lost}) ")


@needs_hosts
def test_a_driver_that_announces_a_loopback_address_is_told_so_by_the_worker(tmp_path: Path) -> None:
    with (
        Hosts("driver", "h1") as net,
        HostJob(net, tmp_path, [["h1"]], address="127.0.0.1") as job,
    ):
        end = job.end()
    assert end.code == 6
    assert "worker 0 on h1 cannot reach the driver on driver at 127.0.0.1:" in end.text
    assert "--advertise" in end.text


@pytest.mark.parametrize(
    ("says", "seen_at", "right"),
    [
        ("127.0.1.1", "10.77.0.11", False),
        ("::1", "fd00::11", False),
        ("127.0.0.1", "127.0.0.1", True),
        ("10.77.0.11", "10.77.0.11", True),
        ("10.77.0.11", "192.168.1.1", True),  # behind a router
    ],
)
def test_a_loopback_address_of_another_host_is_refused_with_both_names(says: str, seen_at: str, right: bool) -> None:
    error = misplaced(Hello(1, says, 4711, 1, 0, "h1", "0"), seen_at)
    assert (error is None) == right
    if error is not None:
        assert error.exit_code == 6
        assert error.message.startswith(f"worker 1 on h1 reports the address {says}")
        assert f"the driver on {socket.gethostname()} sees it at {seen_at}" in error.message
