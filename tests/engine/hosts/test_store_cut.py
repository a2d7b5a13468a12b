"""A host that reaches the driver and its peers, and not the store: its worker is replaced, and the output is exact."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.hosts.bucket import bucket_on
from tests.support.hosts.jobs import HostJob
from tests.support.hosts.network import Hosts, needs_hosts

pytestmark = [pytest.mark.minutes, pytest.mark.soak, needs_hosts]

HOSTS = ("driver", "h1", "h2", "h3", "store")


def test_a_worker_that_cannot_reach_the_store_is_replaced_on_another_host(tmp_path: Path) -> None:
    with (
        Hosts(*HOSTS) as net,
        bucket_on(net, "store", tmp_path) as bucket,
        HostJob(net, tmp_path, [["h1"], ["h2", "h3"]], bucket=bucket) as job,
    ):
        job.runs_for(2)
        net.cut("h2", "store")
        job.hears("OperatorWaits", "worker 1 on h2")
        assert not job.said("Recovering")
        job.hears("Recovered", "worker 1 on h2: s3://bucket")
        job.runs_for(1)
        job.finish()


def test_without_another_host_the_job_ends_and_names_the_host_and_the_store(tmp_path: Path) -> None:
    with (
        Hosts(*HOSTS) as net,
        bucket_on(net, "store", tmp_path) as bucket,
        HostJob(net, tmp_path, [["h1"], ["h2"]], bucket=bucket, restarts=1) as job,
    ):
        job.runs_for(2)
        net.cut("h2", "store")
        end = job.end()
        assert end.code == 6
        assert end.text.startswith("worker 1 on h2: s3://bucket")
        net.heal("h2", "store")
        job.finish_again([["h1"], ["h2"]])
