"""A plan on stdout and in its file, whichever format it is for: `abs plan-recovery`, `abs restore --dry-run`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from abscli.cli.output import Output, emit_json, emit_ndjson, emit_text, note

Lines = tuple[Mapping[str, Any], Iterable[Mapping[str, Any]]]


def _whole(plan: dict[str, Any]) -> Lines:
    return plan, ()


def show_plan(
    encoded: bytes, form: Output, text: Callable[[], str], lines: Callable[[dict[str, Any]], Lines] = _whole
) -> None:
    """encoded: the bytes of its file; text: for people; lines: its object as the header and the items of ndjson."""
    if form is Output.JSON:
        emit_json(encoded)
    elif form is Output.NDJSON:
        import json

        emit_ndjson(*lines(json.loads(encoded)))
    else:
        emit_text(text())


def write_plan(
    encoded: bytes,
    form: Output,
    out: str | None,
    text: Callable[[], str],
    lines: Callable[[dict[str, Any]], Lines] = _whole,
) -> None:
    """Writes it to `out`, if anywhere, and shows it."""
    if out is not None:
        from pathlib import Path

        from formats.disk import writing

        with writing(out, len(encoded)):
            Path(out).write_bytes(encoded)
    show_plan(encoded, form, text, lines)
    if out is not None and form is Output.TABLE:
        note(f"plan written to {out}")
