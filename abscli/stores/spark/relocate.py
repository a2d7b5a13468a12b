"""Absolute paths inside a Spark checkpoint, rewritten for another place: of schemas, of inputs, and in files of
connectors, such as Delta's log of schemas. Pure."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from formats.errors import FormatError
from formats.spark import layout
from formats.spark.logs import log as logs
from formats.spark.logs import sources
from formats.spark.logs.operators import schema_here
from formats.spark.plan import Moved
from formats.storage import common_name, top_folder

METADATA = re.compile(rf"{layout.STATE}/\d+/_metadata/(metadata|v2/\d+)")
"""Where an operator's metadata lies."""

LARGEST_FOREIGN = 1 << 24
"""Bytes of a connector's file up to which it is searched for places of the checkpoint."""
_OWN = frozenset({layout.METADATA, layout.OFFSETS, layout.COMMITS, layout.STATE})
_SOURCE_PATH = re.compile(r'"sourceMetadataPath":\s*"([^"\\]+)/sources/[^"/\\]+"')
"""How Delta's log of schemas (`schemaTrackingLocation`) names the source's folder in the checkpoint; the start of the
query compares it (Delta 4.0, `PersistedMetadata`)."""
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


@dataclass(frozen=True, slots=True)
class Relocation:
    """A copy that is made of a checkpoint.

    root: where the checkpoint is, as a path or URI.
    to: where the copy will be.
    moves: of inputs.
    copied: all files of the copy.
    """

    root: str
    to: str
    moves: Sequence[Moved]
    copied: Set[str]


def renewed(path: str, data: bytes, copy: Relocation) -> bytes:
    """A file of a copy, with the places in it that hold there; the bytes as they are if they name none."""
    if is_foreign(path):
        return move_foreign(data, copy.root, copy.to) or data
    if path.startswith(f"{layout.SOURCES}/"):
        for move in copy.moves:
            data = move_source_log(data, path, move.old, move.new)[0]
        return data
    return move_metadata(data, path, copy.to, copy.copied) or data


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


def is_foreign(path: str) -> bool:
    """Tell if a file of a checkpoint is a connector's own, and neither Spark's nor the log of a source."""
    top = top_folder(path)
    return top not in _OWN and not (top == layout.SOURCES and path.count("/") < 3)


def move_foreign(data: bytes, root: str, to: str) -> bytes | None:
    """A connector's file with the places of the checkpoint in it at the copy; None if it names none.

    Places are texts in JSON that begin with the path of the checkpoint: where it is, or where it was when Delta wrote
    its log of schemas.
    """
    if len(data) > LARGEST_FOREIGN:
        return None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    roots = {form for known in {root, *_SOURCE_PATH.findall(text)} for form in _forms(known)}
    pattern = "|".join(re.escape(form) for form in sorted(roots, key=len, reverse=True))
    moved, count = re.subn(f'"({pattern})(?=[/"])', lambda match: f'"{_like(match[1], to)}', text)
    return moved.encode() if count else None


def _forms(root: str) -> list[str]:
    """A path or URI in all ways in which it may be written."""
    name, slashes, rest = root.rstrip("/").partition("://")
    if slashes and name != "file":
        other = {"s3": ("s3", "s3a", "s3n"), "abfs": ("abfs", "abfss")}
        return [f"{client}://{rest}" for client in next((own for own in other.values() if name in own), (name,))]
    path = "/" + re.sub("^file:", "", root).strip("/")
    return [path, f"file:{path}", f"file://{path}"]


def _like(written: str, to: str) -> str:
    """The place of the copy, written as another place was."""
    if "://" in to or (":" in written and not written.startswith("file:")):
        return _by_client(uri(to), written)
    path = uri(to).removeprefix("file:")
    return written[: len(written) - len(written.removeprefix("file:").lstrip("/")) - 1] + path
