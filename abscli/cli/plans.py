"""Plans for `abs plan-recovery` and `abs restore`: on stdout and in a file, and what of the options means something."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import typer

from abscli.cli.output import Output, emit_json, emit_ndjson, emit_text

if TYPE_CHECKING:
    from abscli.stores.recovery import Recovery


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
