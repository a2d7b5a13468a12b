"""Absolute paths inside a Spark checkpoint, rewritten for another place: of schemas and of inputs. Pure."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Sequence, Set
from typing import Any
from urllib.parse import quote

from formats.errors import FormatError
from formats.spark import layout
from formats.spark.logs import log as logs
from formats.spark.logs import sources
from formats.spark.logs.operators import schema_here
from formats.spark.plan import Moved
from formats.storage import common_name

METADATA = re.compile(rf"{layout.STATE}/\d+/_metadata/(metadata|v2/\d+)")
"""Where an operator's metadata lies."""

_ESCAPED = re.compile(r'[\x00-\x20"#%<>?\[\\\]^`{|}\x7f]')


def uri(path: str) -> str:
    """A path as Spark writes the places of its own files: local ones as `file:/...`."""
    return path.rstrip("/") if "://" in path else "file:" + posixpath.normpath("/" + path.lstrip("/"))


def input_uri(path: str) -> str:
    """A folder as the file source writes it: local ones as `file:///...`, escaped as in Java's URIs."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", path):
        path = re.sub(r"^file:/+", "file:///", path)
        return path.rstrip("/")
    plain = posixpath.normpath("/" + path.lstrip("/"))
    return "file://" + _ESCAPED.sub(lambda match: quote(match[0]), plain)


def renewed(path: str, data: bytes, *, to: str, moves: Sequence[Moved], copied: Set[str]) -> bytes:
    """A file of a copy at `to`, with the places in it that hold there; the bytes as they are if they name none.

    copied: all files of the copy.
    """
    if path.startswith(f"{layout.SOURCES}/"):
        for move in moves:
            data = move_source_log(data, path, move.old, move.new)[0]
        return data
    return move_metadata(data, path, to, copied) or data


def move_metadata(data: bytes, path: str, to: str, copied: Set[str]) -> bytes | None:
    """An operator's metadata with the paths of its schemas at the copy; None if it names none.

    A schema that the copy lacks is dropped: Spark writes it again if none is listed, and otherwise does not start.
    """
    try:
        _, rest = logs.lines(data, path, 2)
        metadata = logs.parse("\n".join(rest), path)
    except FormatError:
        return None
    changed = False
    for paths in _schema_paths(metadata):
        own = [(absolute, schema_here(absolute) if isinstance(absolute, str) else None) for absolute in paths]
        changed |= any(here is not None for _, here in own)
        paths[:] = [
            absolute if here is None else f"{_by_client(uri(to), absolute)}/{here}"
            for absolute, here in own
            if here is None or here in copied
        ]
    head = data.split(b"\n", 1)[0]
    return head + b"\n" + json.dumps(metadata, separators=(",", ":"), ensure_ascii=False).encode() if changed else None


def _schema_paths(metadata: dict[str, Any]) -> Iterator[list[Any]]:
    """List the schema paths of each state store. Entries that do not have the shape that Spark writes are skipped."""
    stores = metadata.get("stateStoreInfo")
    for store in stores if isinstance(stores, list) else ():
        paths = store.get("stateSchemaFilePaths") if isinstance(store, dict) else None
        if isinstance(paths, list):
            yield paths


def _by_client(place: str, written: str) -> str:
    """A place in a bucket as the client calls it that wrote a path there: `s3://` is our word, and Spark's client may
    know it as `s3a://` alone."""
    _, slashes, rest = place.partition("://")
    name = written.partition("://")[0]
    known = slashes and "://" in written and common_name(f"{name}://{rest}") == place
    return f"{name}://{rest}" if known else place


def move_source_log(data: bytes, path: str, old: str, new: str) -> tuple[bytes, int]:
    """A file source's log with input paths below `old` now below `new`, and how many were changed."""
    version, rest = logs.lines(data, path, sources.NEWEST)
    out, changed = [f"v{version}"], 0
    before, after = old.rstrip("/") + "/", new.rstrip("/") + "/"
    for line in rest:
        entry = logs.parse(line, path)
        if str(entry.get("path", "")).startswith(before):
            entry["path"] = after + entry["path"][len(before) :]
            changed += 1
            line = json.dumps(entry, separators=(",", ":"), ensure_ascii=False)
        out.append(line)
    return "\n".join(out).encode(), changed
