"""How a store is read, as options of the commands that read one: declared here, and nowhere else.

Apart from the options that all commands share, for here the table of systems is imported.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_type_hints

import typer

from abscli.cli.options import ANY_FILE, PathMap, Search, Types, Uid
from abscli.stores.registry import SYSTEMS

if TYPE_CHECKING:
    from abscli.api import Store

    StoreFormat = str
else:
    StoreFormat = StrEnum("StoreFormat", {system.name.upper(): system.name for system in SYSTEMS})
    """Whose checkpoints a store holds."""

FormatChoice = Annotated[
    StoreFormat | None,
    typer.Option("--format", metavar="SYSTEM", help="Store format (default: detected)."), ANY_FILE
]


class Reading(NamedTuple):
    """What was typed of how a store is to be read; the names are those of `open_store`."""

    type: Types = None
    uid: Uid = None
    search: Search = None
    path_map: PathMap = None
    format: FormatChoice = None

    def given(self) -> dict[str, Any]:
        """What was typed, by name."""
        return {name: value for name, value in self._asdict().items() if value}

    def open(self, ref: str, **others: Any) -> Store:
        """The store, read so. others: of `open_store`, what a command has options of its own for."""
        from abscli.api import open_store

        return open_store(ref, **self.given(), **others)


AS_TYPED = Reading()
"""Nothing was said: a store is read as it lies there."""


def reads(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command these options, and `--format`, in place of its parameter `reading`, which gets what was typed."""
    wanted = (*names, "format")

    def with_options(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def called(**typed: Any) -> None:
            command(reading=Reading(**{name: typed.pop(name) for name in wanted}), **typed)

        own, hints = inspect.signature(command, eval_str=True), get_type_hints(Reading, include_extras=True)
        options = [
            inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=hints[name])
            for name in wanted
        ]
        parameters = [
            each
            for parameter in own.parameters.values()
            for each in (options if parameter.name == "reading" else [parameter])
        ]
        setattr(called, "__signature__", own.replace(parameters=parameters))  # noqa: B010 - mypy knows no such attribute
        return called

    return with_options
