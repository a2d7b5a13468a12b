"""Words that other systems have for keys of job files."""

from __future__ import annotations

from collections.abc import Iterable

_KEYS: dict[str, tuple[str, ...]] = {
    "group_by": ("key",), "groupBy": ("key",), "key_by": ("key",), "keyBy": ("key",), "partition_by": ("key",),
    "keys": ("key",), "slide": ("every",), "hop": ("every",), "advance": ("every",), "size": ("tumbling",),
    "window_size": ("tumbling",), "gap": ("session",), "allowed_lateness": ("lateness",),
    "max_out_of_orderness": ("delay",), "out_of_orderness": ("delay",), "watermark": ("event_time", "delay"),
    "flatMap": ("flat_map",), "expand": ("flat_map",), "aggregate": ("reduce",), "agg": ("reduce",),
    "input": ("from",), "inputs": ("from",), "upstream": ("from",), "url": ("url_env",), "dsn": ("url_env",),
    "bootstrap_servers": ("brokers",), "topics": ("topic",), "format": ("type",), "connector": ("type",),
}  # fmt: skip


def meant(word: str, candidates: Iterable[str]) -> str | None:
    """Return the key among `candidates` that another system calls `word`."""
    return next((name for name in _KEYS.get(word, ()) if name in candidates), None)
