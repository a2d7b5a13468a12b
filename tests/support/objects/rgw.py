"""A real object store that speaks S3: Ceph's gateway over one monitor and one store in memory, on loopback.

Debian's packages radosgw, ceph-mon, ceph-osd and ceph-common have to be installed; nothing is installed here.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.objects.servers import ObjectServer, await_port, free_port, s3_environment

PROGRAMS = ("radosgw", "radosgw-admin", "ceph-mon", "ceph-osd", "ceph", "ceph-authtool", "monmaptool")
KEY, SECRET = "test", "testsecret"
SECONDS = 180
# Real keys, since the gateway does not start without. Parts that were written over are let go of at once: kept for two
# hours, as is the default, a store in memory is full soon, and then all writes wait for ever.
CONFIGURATION = """[global]
fsid = {fsid}
mon host = v2:127.0.0.1:{monitor}
public network = 127.0.0.0/8
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
auth allow insecure global id reclaim = false
osd crush update on start = false
run dir = {folder}
admin socket = {folder}/$name.asok
log file = {folder}/$name.log
pid file = {folder}/$name.pid
keyring = {folder}/keyring
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd pool default pgp num = 4
mon allow pool size one = true
mon warn on pool no redundancy = false
mon data avail crit = 1
mon data avail warn = 1
osd crush chooseleaf type = 0
ms bind msgr2 = true
ms type = async+posix
[mon.a]
mon data = {folder}/mon
[osd.0]
osd data = {folder}/osd
osd objectstore = memstore
memstore device bytes = 2147483648
[client.rgw.a]
rgw frontends = beast endpoint=127.0.0.1:{port}
rgw data = {folder}/rgw
rgw thread pool size = 64
rgw gc obj min wait = 2
rgw gc processor period = 5
rgw gc processor max time = 5
rgw enable ops log = false
rgw enable usage log = false
"""


GUARD = """
import glob, os, shutil, signal, sys, time

sys.stdin.read()
for name in glob.glob(sys.argv[1] + "/*.pid"):
    try:
        process = int(open(name).read())
        os.kill(process, signal.SIGKILL)
        while os.path.exists(f"/proc/{process}"):
            time.sleep(0.05)
    except (ValueError, ProcessLookupError):
        pass
shutil.rmtree(sys.argv[1], ignore_errors=True)
"""
"""Ends the daemons, by the numbers that they have written down, when the process that wanted them ends, however that
ends: its end of the pipe is closed then. They have left its group, and would stay."""


@contextlib.contextmanager
def rgw() -> Iterator[ObjectServer]:
    """The gateway; skips, with the reason, where it cannot run. ABS_RGW=0 says that none is wanted."""
    if os.environ.get("ABS_RGW") == "0":
        pytest.skip("ABS_RGW=0: no Ceph is wanted")
    if missing := [program for program in PROGRAMS if shutil.which(program) is None]:
        pytest.skip(f"Ceph is not there ({missing[0]}): Debian's radosgw, ceph-mon, ceph-osd, ceph-common")
    if os.geteuid():
        pytest.skip("Ceph's daemons are started as root here")
    port = free_port()
    # A short path: a socket of theirs lies in it, whose name may have 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="abs-rgw-", dir="/tmp"))
    guard = subprocess.Popen(
        [sys.executable, "-S", "-c", GUARD, str(folder)], stdin=subprocess.PIPE, start_new_session=True
    )
    assert guard.stdin is not None
    try:
        _start(folder, port)
        yield ObjectServer("S3 by Ceph RGW", "s3", port, s3_environment(port, KEY, SECRET))
    finally:
        guard.stdin.close()
        guard.wait()


def _start(folder: Path, port: int) -> None:
    for name in ("mon", "osd", "rgw"):
        (folder / name).mkdir()
    fsid, osd, monitor = str(uuid.uuid4()), str(uuid.uuid4()), free_port()
    configuration = folder / "ceph.conf"
    configuration.write_text(CONFIGURATION.format(fsid=fsid, monitor=monitor, port=port, folder=folder))
    keyring, monmap = folder / "keyring", folder / "monmap"

    def run(*command: str | Path) -> str:
        done = subprocess.run(
            list(map(str, command)), capture_output=True, text=True, timeout=SECONDS,
            env={**os.environ, "CEPH_CONF": str(configuration)},
        )  # fmt: skip
        assert done.returncode == 0, f"{command}: {done.stdout[-1000:]} {done.stderr[-2000:]}"
        return done.stdout

    run("ceph-authtool", keyring, "--create-keyring", "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
    for name in ("client.admin", "client.rgw.a", "osd.0"):
        run("ceph-authtool", keyring, "--gen-key", "-n", name, "--cap", "mon", "allow *", "--cap", "osd", "allow *")
    run("monmaptool", "--create", "--fsid", fsid, "--addv", "a", f"[v2:127.0.0.1:{monitor}]", monmap)
    run("ceph-mon", "-c", configuration, "-i", "a", "--mkfs", "--monmap", monmap, "--keyring", keyring)
    run("ceph-mon", "-c", configuration, "-i", "a")
    run("ceph", "-c", configuration, "osd", "create", osd)
    run("ceph-osd", "-c", configuration, "-i", "0", "--mkfs", "--osd-uuid", osd)
    run("ceph-osd", "-c", configuration, "-i", "0")
    with contextlib.suppress(AssertionError):  # it may have a place already
        run("ceph", "-c", configuration, "osd", "crush", "add", "osd.0", "1.0", "host=localhost", "root=default")
    run("radosgw", "-c", configuration, "-n", "client.rgw.a")
    await_port(port, lambda: True)
    admin = ("radosgw-admin", "-c", configuration, "-n", "client.rgw.a")
    run(*admin, "user", "create", "--uid=t", "--display-name=t", f"--access-key={KEY}", f"--secret-key={SECRET}")
