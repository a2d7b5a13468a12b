"""Names and queries as they stand in URLs that are signed."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote


def path_of(key: str) -> str:
    """An object's name as it stands in a URL."""
    return quote(key, safe="/-_.~")


def query_of(query: Mapping[str, str]) -> str:
    """A query, in the order in which it is signed."""
    pairs = ((quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in query.items())
    return "&".join(f"{name}={value}" for name, value in sorted(pairs))
