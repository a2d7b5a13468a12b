"""Object stores as fixtures: each server is started once for a test run's worker, when a test first asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack

import pytest

from tests.support.objects.hdfs import minicluster
from tests.support.objects.rgw import rgw
from tests.support.objects.servers import ObjectServer, azurite, moto

SERVERS: dict[str, Callable[[], AbstractContextManager[ObjectServer]]] = {
    "S3 by moto": moto,
    "Azure by Azurite": azurite,
    "S3 by Ceph RGW": rgw,
    "HDFS": minicluster,
}


class Servers:
    """The servers of this process; one that cannot be had skips each test that asks for it."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._running: dict[str, ObjectServer] = {}
        self._reasons: dict[str, str] = {}

    def get(self, name: str) -> ObjectServer:
        if name in self._reasons:
            pytest.skip(self._reasons[name])
        if name not in self._running:
            try:
                self._running[name] = self._stack.enter_context(SERVERS[name]())
            except pytest.skip.Exception as reason:
                self._reasons[name] = str(reason)
                raise
        return self._running[name]


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(stack)


def use(server: ObjectServer, patch: pytest.MonkeyPatch, port: int | None = None) -> ObjectServer:
    """Let this process be a client of the server, through another port where one is given."""
    for name, value in (server.environment if port is None else server.through(port)).items():
        patch.setenv(name, value)
    return server


@pytest.fixture
def s3(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> ObjectServer:
    """An S3 by moto, which this process is a client of."""
    return use(servers.get("S3 by moto"), monkeypatch)
