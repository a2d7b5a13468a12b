"""Sources that get names in a copy: its offset log becomes version 2, with which Spark lets sources come and go.

Spark goes by their order in version 1, and refuses a query whose sources have names to start from it. Version 2 has a
line `name:offset` for each, a member `sourceMetadataInfo`, and a setting that says so; what a source keeps for itself
lies in `sources/NAME` in place of `sources/0`. Spark: `OffsetSeqLog`, `OffsetMap`, `CheckpointVersionManager`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace

from abscli.stores.reasons import NoPlan
from abscli.stores.spark.rewind import Rewind, Write, main_file
from formats.spark import layout
from formats.spark.checkpoint import Checkpoint
from formats.spark.evidence.gathering import BatchEvidence
from formats.spark.logs.offsets import NAMED_SOURCES

NAME = re.compile(r"[A-Za-z0-9_]+")
"""What Spark takes for a name (`DataStreamReader.name`)."""


def check_names(at: BatchEvidence, names: Mapping[str, str]) -> NoPlan | None:
    """Why the sources of a batch cannot be called so; None if they can. names: by what they are called now."""
    assert at.offsets is not None
    there = at.offsets.sources
    path = layout.offsets(at.batch)
    unknown = sorted(names.keys() - there.keys())
    if unknown:
        message = f"batch {at.batch} has no source {unknown[0]}: it has {', '.join(there)}"
        hint = "use the source names in the offset log, or 0, 1, ... for sources without a name"
        return NoPlan(message, path=path, hint=hint)
    lacking = sorted(there.keys() - names.keys())
    if lacking and at.offsets.version < 2:
        message = f"source {lacking[0]} gets no name: Spark wants all of them to have one, or none"
        return NoPlan(message, path=path, hint=f"add --name-source {lacking[0]}=NAME")
    called = [names.get(source, source) for source in there]
    twice = sorted({name for name in called if called.count(name) > 1})
    if twice:
        return NoPlan(f"two sources would have the name {twice[0]}", path=path, hint="give each source a unique name")
    return None


def named(checkpoint: Checkpoint, back: Rewind, names: Mapping[str, str]) -> Rewind:
    """The same copy with sources by name. names: by what they are called now."""
    why = f"{_words(names)}: the offset log is of version 2"
    written = {file.path: file for file in back.write}
    out: dict[str, Write] = {}
    kept, moved = [], dict(back.moved)
    for path, file in written.items():
        place = _place(path, names)
        data = file.data
        if _is_offsets(path):
            own = checkpoint.read(path) if data is None else data
            out[path] = Write(path, f"{file.why}; {why}", with_names(own, names))
        else:
            out[place] = replace(file, path=place)
    for path in back.keep:
        if _is_offsets(path):
            out[path] = Write(path, why, with_names(checkpoint.read(path), names))
        elif not _is_offsets(main_file(path)):  # whose checksum is that of the old bytes
            place = _place(path, names)
            kept.append(place)
            if place != path:
                moved[place] = path
    return replace(back, keep=tuple(kept), write=tuple(out[path] for path in sorted(out)), moved=moved)


def with_names(data: bytes, names: Mapping[str, str]) -> bytes:
    """The bytes of offsets with other names of sources, as version 2."""
    version, head, *lines = data.decode().split("\n")
    metadata = json.loads(head or "{}")
    metadata["conf"] = {**metadata.get("conf", {}), NAMED_SOURCES: "true"}
    metadata.setdefault("sourceMetadataInfo", {})
    out = []
    for number, line in enumerate(lines):
        source, offset = (str(number), line) if version == "v1" else line.split(":", 1)
        out.append(f"{names.get(source, source)}:{offset}")
    return "\n".join(["v2", json.dumps(metadata, separators=(",", ":"), ensure_ascii=False), *out]).encode()


def _is_offsets(path: str) -> bool:
    folder, _, name = path.rpartition("/")
    return folder == layout.OFFSETS and name.isdigit()


def _place(path: str, names: Mapping[str, str]) -> str:
    """Where a file lies when sources have these names."""
    top, _, rest = path.partition("/")
    source, slash, name = rest.partition("/")
    return f"{top}/{names.get(source, source)}/{name}" if top == layout.SOURCES and slash else path


def _words(names: Mapping[str, str]) -> str:
    return ", ".join(f"source {source} is called {name}" for source, name in names.items())
