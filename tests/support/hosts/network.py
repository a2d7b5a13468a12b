"""Hosts on one machine: network namespaces on a switch of their own, with links that can be cut and slowed.

    with Hosts("driver", "h1", "h2") as net:
        server = net.run("driver", ["python3", "-m", "http.server"])  # a Popen; its pid is the program's own
        net.cut("h1", "h2")           # silently, both ways; both still reach `driver`; heal("h1", "h2")
        net.down("h1"); net.up("h1")  # the cable: neither FIN nor RST
        net.crash("h1")               # the power: first the cable, then SIGKILL to all that runs there
        net.slow("h1", 0.2, 0.05)     # seconds and share of lost frames, each way; slow("h1") ends it

The switch is a namespace too: this machine's own network is not touched. Hosts share files, clock and process table;
each has a host name and an /etc/hosts of its own. Linux, root, iproute2; `unusable` says why not.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.hosts.relay import Relay

NOBODY = "02:00:00:00:00:01"
"""No host's: frames to it vanish."""

SWITCH = ""
"""The name of the namespace in which the hosts' cables end."""

ENTER = ("unshare", "--uts", "--mount", "sh", "-c",
         'mount --bind "$0" /etc/hosts && hostname "$1" && shift && exec "$@"')  # fmt: skip


def unusable() -> str | None:
    """Why hosts cannot be made here; None if they can."""
    if sys.platform != "linux" or os.geteuid():
        return "needs Linux, and root (CAP_SYS_ADMIN, CAP_NET_ADMIN) to make network namespaces"
    if missing := [name for name in ("ip", "unshare", "mount", "hostname") if not shutil.which(name)]:
        return f"not installed: {', '.join(missing)} (Debian: iproute2 util-linux mount hostname)"
    probe = subprocess.run(["unshare", "--net", "--uts", "--mount", "true"], capture_output=True, text=True)
    return f"this kernel or container refuses namespaces: {probe.stderr.strip()}" if probe.returncode else None


needs_hosts = pytest.mark.usefixtures("hosts")


def ip(*words: str, check: bool = True) -> str:
    """What `ip` prints; OSError with what it complains of."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if check and done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


class Hosts:
    """resolve: what a host's own name gives there instead of its address (as Debian's 127.0.1.1), by host."""

    def __init__(self, *names: str, net: str = "10.77.0", resolve: Mapping[str, str] | None = None) -> None:
        self.addresses = {name: f"{net}.{number}" for number, name in enumerate(names, 10)}
        self._own_names = dict(resolve or {})
        self._tag = f"hosts{os.getpid()}"
        self._relays: dict[str, Relay] = {}
        self._folder = ""

    def __enter__(self) -> Hosts:
        _remove_leftovers()
        self._folder = tempfile.mkdtemp(prefix=self._tag)
        with contextlib.ExitStack() as undo:
            undo.push(self.__exit__)
            ip("netns", "add", self._inside(SWITCH))
            self._at(SWITCH, "link", "add", "sw", "up", "type", "bridge")
            for name in self.addresses:
                self._add(name)
            undo.pop_all()
        return self

    def _add(self, name: str) -> None:
        address, inside = self.addresses[name], self._inside(name)
        ip("netns", "add", inside)
        self._at(SWITCH, "link", "add", "name", name, "type", "veth", "peer", "eth0", "netns", inside)
        self._at(SWITCH, "link", "set", "dev", name, "master", "sw", "up")
        self._at(name, "addr", "add", f"{address}/24", "dev", "eth0")
        self._at(name, "link", "set", "eth0", "up")
        self._at(name, "link", "set", "lo", "up")
        known = {"localhost": "127.0.0.1", **self.addresses, name: self._own_names.get(name, address)}
        lines = [f"{where} {who}\n" for who, where in known.items()]
        Path(self._folder, name).write_text("".join(lines))

    def __exit__(self, *error: object) -> None:
        for relay in self._relays.values():
            relay.end()
        for name in [*self.addresses, SWITCH]:
            _kill(self._inside(name))
        shutil.rmtree(self._folder, ignore_errors=True)

    # -- what runs there ----------------------------------------------------------------------------------

    def command(self, name: str, words: Sequence[str]) -> list[str]:
        """The words that run a program on a host, from any of them."""
        return ["ip", "netns", "exec", self._inside(name), *ENTER, f"{self._folder}/{name}", name, *words]

    def run(self, name: str, words: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a program on a host, in a session of its own; options as of Popen."""
        return subprocess.Popen(self.command(name, words), start_new_session=True, **options)

    def pids(self, name: str) -> list[int]:
        """All processes of a host."""
        return [int(pid) for pid in ip("netns", "pids", self._inside(name)).split()]

    # -- faults -------------------------------------------------------------------------------------------

    def cut(self, one: str, other: str, *, both: bool = True) -> None:
        """Packets between two hosts vanish; both=False: only those from `one` to `other`."""
        self._at(one, "neigh", "replace", self.addresses[other], "lladdr", NOBODY, "nud", "permanent", "dev", "eth0")
        if both:
            self.cut(other, one, both=False)

    def heal(self, one: str, other: str) -> None:
        """The opposite of `cut`."""
        for here, there in ((one, other), (other, one)):
            self._at(here, "neigh", "del", self.addresses[there], "dev", "eth0", check=False)

    def down(self, name: str) -> None:
        """Pull a host's cable."""
        self._at(SWITCH, "link", "set", "dev", name, "down")

    def up(self, name: str) -> None:
        """Put it in again."""
        self._at(SWITCH, "link", "set", "dev", name, "up")

    def crash(self, name: str) -> None:
        """A host is gone without a goodbye, and all that ran there."""
        self.down(name)
        _kill(self._inside(name), remove=False)

    def slow(self, name: str, seconds: float = 0.0, loss: float = 0.0, seed: int = 0) -> None:
        """Frames to and from a host come late, or not at all. Not netem, which many kernels lack."""
        if (relay := self._relays.pop(name, None)) is not None:
            self._at(SWITCH, "link", "set", "dev", name, "master", "sw")
            relay.end()
            self._at(SWITCH, "link", "del", f"b-{name}")
        if seconds or loss:
            self._at(SWITCH, "link", "add", f"b-{name}", "up", "type", "bridge")
            self._relays[name] = Relay(
                self._inside(SWITCH), (f"i-{name}", f"o-{name}"), seconds=seconds, loss=loss, seed=seed
            )
            for end, bridge in ((f"i-{name}", f"b-{name}"), (f"o-{name}", "sw")):
                self._at(SWITCH, "link", "set", "dev", end, "master", bridge, "up")
            self._at(SWITCH, "link", "set", "dev", name, "master", f"b-{name}")

    def _inside(self, name: str) -> str:
        return f"{self._tag}-{name}"

    def _at(self, name: str, *words: str, check: bool = True) -> None:
        ip("-n", self._inside(name), *words, check=check)


def _kill(namespace: str, *, remove: bool = True) -> None:
    """All that runs there, and nothing else."""
    while pids := ip("netns", "pids", namespace, check=False).split():
        subprocess.run(["kill", "-KILL", *pids], stderr=subprocess.DEVNULL)
        time.sleep(0.02)
    if remove:
        ip("netns", "del", namespace, check=False)


def _remove_leftovers() -> None:
    """Of a test that was killed."""
    for name in ip("netns", "list").split():
        if (old := re.match(r"hosts(\d+)-", name)) and not os.path.exists(f"/proc/{old[1]}"):
            _kill(name)
