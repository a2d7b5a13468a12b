"""Buckets for copies of checkpoints: of moto, which is a mock, of Azurite, an emulator, and of Ceph's real RGW."""

from __future__ import annotations

import pytest

from tests.support.objects.fixtures import Servers, use
from tests.support.objects.places import bucket_place


@pytest.fixture(params=["S3 by moto", "Azure by Azurite", "S3 by Ceph RGW"])
def bucket(request: pytest.FixtureRequest, servers: Servers, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URI of a place of its own in a bucket of each server."""
    return str(bucket_place(use(servers.get(request.param), monkeypatch)).root)


@pytest.fixture
def moto_bucket(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> str:
    """The same of moto alone."""
    return str(bucket_place(use(servers.get("S3 by moto"), monkeypatch)).root)
