"""A driver's host and three others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.hosts.network import Hosts

HOSTS = ("driver", "h1", "h2", "h3")


@pytest.fixture
def net() -> Iterator[Hosts]:
    with Hosts(*HOSTS) as hosts:
        yield hosts
