"""Faults between hosts: what is said after how long, what the job makes of it, and whether its output is exact.

    sudo python -m tests.bench.engine.bench_hosts [--worker-timeout 10] [--recovery subgraph] [FAULT ...]

Hosts are network namespaces of this machine, workers Python processes in them; of a fault only the network tells.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.support.hosts.jobs import HostJob
from tests.support.hosts.network import Hosts, unusable

HOSTS = ("driver", "h1", "h2", "h3")


class Fault(NamedTuple):
    """What is done to a job whose workers are on h1 and h2. before: to the network, before it starts; after: when it is
    made up for; spare: whether a replacement is started on h3, and not where the lost one was."""

    name: str
    strike: Callable[[Hosts, HostJob], object]
    before: Callable[[Hosts], object] | None = None
    after: Callable[[Hosts, HostJob], object] | None = None
    spare: bool = True


def nothing(net: Hosts, job: HostJob) -> None:
    """What was done was done before."""


def stop_worker(net: Hosts, job: HostJob) -> None:
    job.struck = job.worker_on("h2")
    os.kill(job.struck, signal.SIGSTOP)


def go_on(net: Hosts, job: HostJob) -> None:
    os.kill(job.struck, signal.SIGCONT)
    job.until(lambda: job.are_gone([job.struck]), "the old worker to leave")


def stop_and_cut_off(net: Hosts, job: HostJob) -> None:
    stop_worker(net, job)
    net.down("h2")


def come_back(net: Hosts, job: HostJob) -> None:
    net.up("h2")
    go_on(net, job)


FAULTS = (
    Fault("worker killed", lambda net, job: os.kill(job.worker_on("h2"), signal.SIGKILL)),
    Fault("host gone", lambda net, job: net.crash("h2")),
    Fault("host gone, no other", lambda net, job: net.crash("h2"), spare=False),
    Fault("h1 and h2 cut", lambda net, job: net.cut("h1", "h2")),
    Fault("h1 and h2 cut, no other", lambda net, job: net.cut("h1", "h2"), spare=False),
    Fault("h1 and h2 cut before the start", nothing, before=lambda net: net.cut("h1", "h2")),
    Fault("h2 to h1 cut one way", lambda net, job: net.cut("h2", "h1", both=False)),
    Fault("driver and h2 cut", lambda net, job: net.cut("driver", "h2")),
    Fault("driver cut from all", lambda net, job: net.down("driver")),
    Fault("200 ms and 5 % loss", nothing, before=lambda net: net.slow("h2", 0.2, 0.05)),
    Fault("SIGSTOP, SIGCONT after the loss", stop_worker, after=go_on),
    Fault("host back with its old worker", stop_and_cut_off, after=come_back),
)


def measure(fault: Fault, timeout: float, recovery: str) -> str:
    """A row of the table: times from the fault on, in seconds."""
    with tempfile.TemporaryDirectory(prefix="abs-hosts-") as folder, Hosts(*HOSTS) as net:
        if fault.before is not None:
            fault.before(net)
        places = [["h1"], ["h2", "h3"] if fault.spare else ["h2"]]
        options = {"interval": 1.0, "worker_timeout": timeout, "recovery": recovery}
        with HostJob(net, Path(folder), places, **options) as job:
            if fault.before is None:
                job.runs_for(2)
            else:
                job.until(lambda: job.epoch() >= 2 or job.said("end"), "its start")
            struck_at = time.monotonic() if fault.before is None else job.begun
            fault.strike(net, job)
            if fault.before is None:
                job.until(lambda: job.said("Recovered") or job.said("end"), fault.name)
            if fault.after is not None:
                fault.after(net, job)
            if not job.said("end"):
                job.runs_for(1)
                job.open_gate()
            end = job.end()

            def when(what: str) -> str:
                lines = job.said(what)
                return f"{lines[0][0] - struck_at:.1f}" if lines else "-"

            exact = "-"
            if end.code == 0:
                job.check()
                exact = "yes"
            ended = when("end") if end.code else "-"
            columns = [when("Silent"), when("Recovering"), when("Recovered"), ended, str(end.code), exact]
            row = f"{fault.name:<34}" + "".join(f"{column:>11}" for column in columns)
            return f"{row}  {end.text}" if end.code else row


def main() -> None:
    """Print the table."""
    if why := unusable():
        raise SystemExit(why)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help="a part of its name; default: all")
    parser.add_argument("--worker-timeout", type=float, default=10.0, metavar="SECONDS")
    parser.add_argument("--recovery", default="subgraph", choices=("subgraph", "local", "full"))
    arguments = parser.parse_args()
    heads = ("said", "lost", "recovered", "ended", "exit", "exact")
    print(f"{'fault':<34}" + "".join(f"{head:>11}" for head in heads))
    for fault in FAULTS:
        if not arguments.faults or any(word in fault.name for word in arguments.faults):
            print(measure(fault, arguments.worker_timeout, arguments.recovery), flush=True)


if __name__ == "__main__":
    main()
