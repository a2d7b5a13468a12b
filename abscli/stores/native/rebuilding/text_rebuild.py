"""What `abs rebuild` shows: what moves aside, what is made anew and from what, what cannot be, and the next command."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from abscli.stores.native.rebuilding.rebuild import Rebuild
from abscli.text.columns import wrapped
from formats.version import FORMAT_VERSION


def to_json(rebuild: Rebuild, *, store: str, done: bool) -> dict[str, Any]:
    """`abs.rebuild`. done: whether it was carried out."""
    return {
        "schema": "abs.rebuild",
        "version": FORMAT_VERSION,
        "store": store,
        "job": rebuild.job,
        "done": done,
        "quarantined": [{"path": one.path, "to": one.to, "reason": one.why} for one in rebuild.set_aside],
        "created": [{"path": one.path, "source": one.source, "bytes": len(one.data)} for one in rebuild.new_files],
        "missing": [{"path": one.path, "reason": one.why, "remedy": one.do} for one in rebuild.lacking],
        "notes": list(rebuild.notes),
    }


def items(result: dict[str, Any]) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    """The ndjson form: what stands once, then a file a line."""
    lists = {"quarantined": "quarantined", "created": "created", "missing": "missing"}
    header = {key: value for key, value in result.items() if key not in lists}
    return header, ({"type": kind, **item} for key, kind in lists.items() for item in result[key])


def text(rebuild: Rebuild, *, store: str, job_file: str | None, done: bool, width: int = 80) -> str:
    """For people. job_file: as it was given with --job."""
    name = f"Store {store}, job {rebuild.job}" if rebuild.job else f"Store {store}"
    sections = [wrapped(name, width)]
    if rebuild.nothing:
        sections.append(["The store metadata is intact: there is nothing to rebuild.", _next(store)])
    if rebuild.set_aside:
        heading = "Moved aside, as it was" if done else "Would move aside, as it is"
        lines = [line for one in rebuild.set_aside for line in _file(one.path, f"{one.why} (now {one.to})" if done
                 else f"{one.why} (it becomes {one.to})", width)]  # fmt: skip
        sections.append([heading, *lines])
    if rebuild.new_files:
        heading = "Rebuilt" if done else "Would rebuild"
        lines = [line for one in rebuild.new_files for line in _file(one.path, f"from {one.source}", width)]
        sections.append([heading, *lines])
    if rebuild.lacking:
        lines = []
        for one in rebuild.lacking:
            lines += _file(one.path, one.why, width)
            lines += wrapped(one.do, width, "      ", "    do: ")
        sections.append(["Cannot be rebuilt", *lines])
    sections.append([line for note in rebuild.notes for line in wrapped(note, width, "  ", "note: ")])
    if not rebuild.nothing:
        sections.append(_end(rebuild, store, job_file, done))
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _file(path: str, message: str, width: int) -> list[str]:
    return wrapped(message, width, "    ", f"  {path}: ")


def _end(rebuild: Rebuild, store: str, job_file: str | None, done: bool) -> list[str]:
    if rebuild.lacking and not job_file:
        again = f"Next: abs rebuild {shlex.quote(store)} --job JOB"
        return [again] if done else ["Nothing was changed.", again]
    if done:
        return [_next(store)]
    if not (rebuild.set_aside or rebuild.new_files):
        return ["Nothing was changed."]
    option = f" --job {shlex.quote(job_file)}" if job_file else ""
    return ["Nothing was changed.", f"Next: abs rebuild {shlex.quote(store)}{option} --yes"]


def _next(store: str) -> str:
    return f"Next: abs validate {shlex.quote(store)}"
