"""The option of commands that read a store which says of which format it is.

Apart from the options that all commands share, for here the table of systems is imported.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from abscli.stores.registry import SYSTEMS

if TYPE_CHECKING:
    StoreFormat = str
else:
    StoreFormat = StrEnum("StoreFormat", {system.name.upper(): system.name for system in SYSTEMS})
    """Whose checkpoints a store holds."""

FormatChoice = Annotated[
    StoreFormat | None,
    typer.Option("--format", help="Format of the store, in place of what is recognised from its files."),
]
