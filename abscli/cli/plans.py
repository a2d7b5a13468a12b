"""Plans for `abs plan-recovery` and `abs restore`: on stdout and in a file, and what of the options means something."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import typer

from abscli.cli.output import Output, emit_json, emit_ndjson, emit_text, note

if TYPE_CHECKING:
    from abscli.stores.recovery import Recovery


def refuse_others(given: Mapping[str, object], options: frozenset[str], words: str) -> None:
    """A usage error for an option that was given and means nothing here. options: those that do; words: where."""
    for name, value in given.items():
        if value and name not in options:
            own = [option for option in given if option in options]
            hint = f"; there {' and '.join(own)} do{'es'[: 2 * (len(own) == 1)]}" if own else ""
            raise typer.BadParameter(f"means nothing for {words}{hint}", param_hint=f"'{name}'")


@contextlib.contextmanager
def option_errors() -> Iterator[None]:
    """Makes a usage error of what was asked for and cannot be."""
    from abscli.stores.recovery import BadOption

    try:
        yield
    except BadOption as error:
        raise typer.BadParameter(error.message, param_hint=f"'{error.option}'") from None


def show_plan(encoded: bytes, form: Output, text: Callable[[], str], recovery: Recovery[Any, Any, Any]) -> None:
    """encoded: the bytes of its file; text: for people."""
    if form is Output.JSON:
        emit_json(encoded)
    elif form is Output.NDJSON:
        import json

        emit_ndjson(*_lines(json.loads(encoded), recovery.lists))
    else:
        emit_text(text())


def _lines(plan: dict[str, Any], lists: Mapping[str, str]) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    """The header, without the lists that are named and the files that the plan relies on, and an object for each item
    of these."""
    body, files = plan["body"], plan.pop("relies_on")
    rows = [(kind, body.pop(name)) for name, kind in lists.items()] + [("file", files)]
    return plan, ({"type": kind, **row} for kind, own in rows for row in own)


def write_plan(
    encoded: bytes, form: Output, out: str | None, text: Callable[[], str], recovery: Recovery[Any, Any, Any]
) -> None:
    """Writes it to `out`, if anywhere, and shows it."""
    if out is not None:
        from pathlib import Path

        from formats.disk import writing

        with writing(out, len(encoded)):
            Path(out).write_bytes(encoded)
    show_plan(encoded, form, text, recovery)
    if out is not None and form is Output.TABLE:
        note(f"plan written to {out}")
