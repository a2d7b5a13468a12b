"""Object stores as fixtures: each server is started once for a whole run, when a test of any worker first asks for it.

`tests/conftest.py` has the fixtures. One that a module imports is another fixture, and would look at the server again.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.objects.hdfs import Hdfs
from tests.support.objects.kinds import SERVERS
from tests.support.objects.servers import ObjectServer
from tests.support.processes import lives
from tests.support.run import locked, start

__all__ = ("SERVERS", "Servers", "use")

PATIENCE = 900.0
"""Seconds until a server that neither answers nor ends is given up: the first time it is installed, too."""


class Servers:
    """The servers of this run; one that cannot be had skips each test that asks for it.

    run: the folder that the run's workers share.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        self._facts: dict[str, dict[str, Any]] = {}

    def get(self, name: str) -> ObjectServer:
        if name not in self._facts:
            folder = self._run / name.replace(" ", "-")
            with locked(self._run, folder.name):  # other workers wait for the first
                if not folder.exists():
                    _start(name, folder, self._run)
                self._facts[name] = json.loads((folder / "facts.json").read_text())
        facts = self._facts[name]
        if "skipped" in facts:
            pytest.skip(facts["skipped"])
        assert "server" in facts, f"{name} does not start: {facts['failed']}"
        server = facts["server"]
        if facts["class"] == Hdfs.__name__:
            return Hdfs(**{**server, "folder": Path(server["folder"])})
        return ObjectServer(**server)


def _start(name: str, folder: Path, run: Path) -> None:
    """Start the server in a process of its own, which lasts as long as the run; returns when it can be used."""
    folder.mkdir()
    process = start(run, folder.name, "tests.support.objects.host", name, str(folder), log=folder / "log")
    deadline = time.monotonic() + PATIENCE
    while not (folder / "facts.json").exists():
        if not lives(process) or time.monotonic() > deadline:
            reason = (folder / "log").read_text(errors="replace").strip()[-2000:]
            (folder / "facts.json").write_text(json.dumps({"failed": reason}))
            return
        time.sleep(0.05)


def use(server: ObjectServer, patch: pytest.MonkeyPatch, port: int | None = None) -> ObjectServer:
    """Let this process be a client of the server, through another port where one is given."""
    for name, value in (server.environment if port is None else server.through(port)).items():
        patch.setenv(name, value)
    return server
