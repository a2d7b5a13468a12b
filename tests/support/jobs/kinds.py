"""The job of lines on each kind of sink, for tests that play one sequence of events on all of them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.support.jobs.lines import Gate, Lines, make_table
from tests.support.objects.fixtures import Servers, use
from tests.support.objects.places import bucket_place
from tests.support.postgres import Postgres

KINDS = ("jsonl", "bucket", "postgres", "upsert", "delta", "iceberg", "kafka", "stdout")
TABLES = ("postgres", "upsert")
SERVED = ("bucket", "kafka", *TABLES)
"""Kinds that need a server."""


def cases(kinds: Iterable[str] = KINDS) -> list[Any]:
    """Return the parameters of a test for these kinds; those that need a server belong to the second tier."""
    return [pytest.param(kind, marks=pytest.mark.integration) if kind in SERVED else kind for kind in kinds]


class Kinds:
    """Makes jobs of lines, each with a target of its own. Servers are started when the first job needs them."""

    def __init__(self, gate: Gate, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        self._gate = gate
        self._request = request
        self._monkeypatch = monkeypatch

    def lines(self, kind: str, folder: Path, out: str = "out") -> Lines:
        """Return the job in a folder.

        out: the name of its target there, for kinds that need no server.
        """
        name = f"lines_{uuid.uuid4().hex[:8]}"
        if kind == "bucket":
            servers: Servers = self._request.getfixturevalue("servers")
            bucket = use(servers.get("S3 by moto"), self._monkeypatch)
            self._monkeypatch.setenv("CLAIM_SECONDS", "2")
            return Lines(folder, self._gate, str(bucket_place(bucket).root), "jsonl")
        if kind in TABLES:
            server: Postgres = self._request.getfixturevalue("postgres_server")
            self._monkeypatch.setenv("LINES_DATABASE", server.url)
            make_table(server.url, name, kind)
        if kind == "kafka":
            broker = self._request.getfixturevalue("broker")
            self._monkeypatch.setenv("LINES_BROKER", broker.address)
            broker.make(name)
        if kind in SERVED:
            return Lines(folder, self._gate, name, kind)
        return Lines(folder, self._gate, "-" if kind == "stdout" else out, kind)
