"""Options of commands that read a store: which format it is of, and what is known beside its path.

Apart from the options that all commands share, for here the table of systems is imported.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from abscli.stores.registry import SYSTEMS
from formats.reference import ReadOptions

if TYPE_CHECKING:
    StoreFormat = str
else:
    StoreFormat = StrEnum("StoreFormat", {system.name.upper(): system.name for system in SYSTEMS})
    """Whose checkpoints a store holds."""

FormatChoice = Annotated[
    StoreFormat | None,
    typer.Option("--format", help="Format of the store, in place of what is recognised from its files."),
]


def read_options(
    *,
    search: list[str] | None = None,
    path_map: list[str] | None = None,
    uid: list[str] | None = None,
    type: list[str] | None = None,
) -> ReadOptions:
    """These options together."""
    return ReadOptions(*(tuple(value or ()) for value in (search, path_map, uid, type)))
