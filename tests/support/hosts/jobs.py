"""A job over hosts: its input, its driver as a process, what that says, and whether the output is exact."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from formats.errors import FormatError
from formats.job.model import Topology
from formats.native.store import NativeStore
from formats.storage import LocalStorage
from tests.support.hosts.bucket import Bucket
from tests.support.hosts.driver import Line, Orders
from tests.support.hosts.network import Hosts
from tests.support.jobs.kills import check_counted, spread, write_rows
from tests.support.jobs.small import open_gate

PATIENCE = 180.0
"""Seconds for anything that a job has to do: a busy machine takes long."""

PAUSE = 0.2
"""Seconds that a batch of its input takes until the gate is open: all of it lasts minutes."""


def shuffle(workers: int) -> Topology:
    """Every worker sends to every other one."""
    return spread("shuffle", workers, workers)


def write_input(folder: Path) -> Counter[str]:
    """Its input, and how many rows each key has."""
    return write_rows(folder, files=600, pause=PAUSE)


class HostJob:
    """`shuffle` with a worker a place. places: of each worker, the hosts of its launches, the last of all later ones.

    address: under which the driver is announced; None for its own.
    bucket: the store; None for a folder that all hosts share.
    lines: what the driver has said so far, each with the time at which it came.
    struck: a process that a fault has hit.
    """

    def __init__(
        self, net: Hosts, folder: Path, places: Sequence[Sequence[str]], *, driver: str = "driver",
        address: str | None = None, bucket: Bucket | None = None, **options: object,
    ) -> None:  # fmt: skip
        self.net = net
        self.folder = folder
        self.lines: list[tuple[float, Line]] = []
        self.begun = time.monotonic()
        self.struck = 0
        self._bucket = bucket
        self.counts = write_input(folder) if not (folder / "in").exists() else Counter[str]()
        defaults: dict[str, object] = {"interval": 0.2, "worker_timeout": 6.0}
        store = bucket.store if bucket else str(folder / "store")
        orders = Orders(
            shuffle(len(places)), store, str(folder), address or net.addresses[driver],
            {host: net.command(host, []) for host in net.addresses}, [list(hosts) for hosts in places],
            {**defaults, **options},
        )  # fmt: skip
        (folder / "orders.json").write_bytes(msgspec.json.encode(orders))
        self._came: queue.SimpleQueue[None] = queue.SimpleQueue()
        words = [sys.executable, "-m", "tests.support.hosts.driver", str(folder / "orders.json")]
        self._errors = folder / "stderr"
        with self._errors.open("ab") as errors:
            environment = {**os.environ, **(bucket.environment if bucket else {})}
            self.process = net.run(driver, words, stdout=subprocess.PIPE, stderr=errors, env=environment)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), msgspec.json.decode(line, type=Line)))
            self._came.put(None)

    # -- what is waited for -------------------------------------------------------------------------------

    def until(self, fact: Callable[[], object], what: str) -> None:
        """Wait for a fact; with all that was said where it does not come."""
        end = time.monotonic() + PATIENCE
        while not fact():
            has_ended = self.process.poll() is not None or any(line.what == "end" for _, line in self.lines)
            assert not has_ended or fact(), f"{what}: the driver has ended\n{self.log()}"
            assert time.monotonic() < end, f"{what}: not within {PATIENCE:.0f} s\n{self.log()}"
            time.sleep(0.02)

    def store(self) -> NativeStore:
        return NativeStore(LocalStorage(self.folder / "store"))

    def epoch(self) -> int:
        """The newest complete one; 0 where there is none. Only hosts of the network reach a bucket."""
        if self._bucket is not None:
            epochs = [re.search(r"epoch=(\d+)", line.text) for _, line in self.said("EpochDone")]
            return max((int(epoch[1]) for epoch in epochs if epoch is not None), default=0)
        try:
            return self.store().latest() or 0
        except FormatError:
            return 0

    def runs_for(self, epochs: int) -> None:
        """Wait until so many more are complete."""
        target = self.epoch() + epochs
        self.until(lambda: self.epoch() >= target, f"epoch {target}")

    def said(self, what: str, word: str = "") -> list[tuple[float, Line]]:
        """Lines of a kind that contain a word, with their times."""
        return [(at, line) for at, line in self.lines if line.what == what and word in line.text]

    def hears(self, what: str, word: str = "") -> float:
        """Wait for such a line; when it came."""
        self.until(lambda: self.said(what, word), f"{what} {word}")
        return self.said(what, word)[0][0]

    def end(self) -> Line:
        """How it ended."""
        self.hears("end")
        self.process.wait(PATIENCE)
        return self.said("end")[0][1]

    def open_gate(self) -> None:
        """Nothing keeps it from its end any more."""
        open_gate(self.folder)

    def finish(self) -> None:
        """Let it go on to its end, which has to be exact."""
        self.open_gate()
        assert self.end().code == 0, self.log()
        self.check()

    def finish_again(self, places: Sequence[Sequence[str]]) -> None:
        """Resume the job that has ended from its newest epoch, and let it go on to its end, which has to be exact."""
        with HostJob(self.net, self.folder, places, bucket=self._bucket, from_epoch=self.epoch()) as resumed:
            resumed.counts = self.counts
            resumed.finish()

    def check(self) -> None:
        """Every row was counted once, and shown once."""
        check_counted(self.folder, self.counts)

    def log(self) -> str:
        """All that was said."""
        begun = self.lines[0][0] if self.lines else 0.0
        lines = [f"{at - begun:6.1f} {line.what} {line.text} {line.hint or ''}" for at, line in self.lines]
        return "\n".join([*lines, self._errors.read_text()])

    # -- processes ----------------------------------------------------------------------------------------

    def worker_on(self, host: str) -> int:
        """The process of the one worker there."""
        (pid,) = self.workers_on(host)
        return pid

    def workers_on(self, host: str) -> list[int]:
        """The processes of the workers there."""
        return [pid for pid in self.net.pids(host) if "hosts.workers" in _words(pid)]

    def are_gone(self, pids: Sequence[int]) -> bool:
        """Whether none of these lives."""
        return not any("hosts.workers" in _words(pid) for pid in pids)

    def __enter__(self) -> HostJob:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


def _words(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""
