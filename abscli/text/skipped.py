"""Records that operators have left out, in words."""

from __future__ import annotations

from collections.abc import Mapping

from abscli.text.columns import counted


def skipped_text(skipped: Mapping[str, int]) -> str:
    """`3 records skipped by parse, 1 by rows`. skipped: by operator, of those that have."""
    texts = [f"{counted(count, 'record')} skipped by {id}" for id, count in list(skipped.items())[:1]]
    return ", ".join([*texts, *(f"{count:,} by {id}" for id, count in list(skipped.items())[1:])])
