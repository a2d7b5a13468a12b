"""Words that other systems have for options of the command line."""

from __future__ import annotations

from collections.abc import Iterable

_OPTIONS = {
    "--savepoint": ("--resume", "--store"), "--checkpoint": ("--resume", "--store"), "--fromSavepoint": ("--resume",),
    "--checkpoint-dir": ("--store",), "--checkpoint-interval": ("--interval",), "--restore": ("--resume",),
    "--json": ("--output",), "--format": ("--output",), "--topology": ("--job",),
}  # fmt: skip


def meant_options(word: str, candidates: Iterable[str]) -> tuple[str, ...]:
    """Return the options among `candidates` that do what `word` does elsewhere."""
    return tuple(name for name in _OPTIONS.get(word, ()) if name in candidates)
