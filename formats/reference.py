"""What a user types for a store or one of its epochs, `PATH`, `PATH@7`, `PATH@latest`, `PATH@TAG`, and the options
beside it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

from formats.errors import FormatError
from formats.path_maps import split_map
from formats.redaction import refuse_credentials, refuse_credentials_in

_TAG = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")


def is_tag_name(name: str) -> bool:
    """Whether an epoch may be tagged so: neither a number nor `latest`, so that `PATH@NAME` means one thing."""
    return _TAG.fullmatch(name) is not None and name != "latest"


class BadReference(FormatError):
    """A reference that is not PATH, PATH@7, PATH@latest or PATH@TAG."""


class Reference(NamedTuple):
    """`PATH@7`, `PATH@latest`, `PATH@TAG` or `PATH`.

    epoch: a number, `latest`, the name of a tag, or None for the path alone.
    """

    path: str
    epoch: int | str | None


def parse_reference(text: str) -> Reference:
    """Split a reference.

    Raises BadReference if what follows the last `@` is no number and no name, CredentialsRefused.
    """
    path, at, epoch = text.rpartition("@")
    is_path = not at or "/" in epoch
    refuse_credentials(text if is_path else path, "the reference to a store")
    if is_path:
        return Reference(text, None)
    if path and epoch == "latest":
        return Reference(path, "latest")
    if path and re.fullmatch(r"[0-9]{1,18}", epoch):
        return Reference(path, int(epoch))
    if path and is_tag_name(epoch):
        return Reference(path, epoch)
    refuse_credentials(text, "the reference to a store")
    raise BadReference(
        f"{text!r}: what follows @ must be an epoch number, 'latest' or a tag, not {epoch!r}",
        hint="for example store@7",
    )


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a user adds to a path, as written. Not every system has a use for all of them."""

    search: tuple[str, ...] = ()
    """Directories where files may lie, too."""
    path_map: tuple[str, ...] = ()
    """OLD=NEW where files were moved."""
    uid: tuple[str, ...] = ()
    """Names that operators may have."""
    type: tuple[str, ...] = ()
    """NAME=TYPE of state whose type is not stored."""
    topology: tuple[str, ...] = ()
    """A file with Flink's plan of the job."""

    def __post_init__(self) -> None:
        refuse_credentials_in(self.search, "--search")
        refuse_credentials_in(self.topology, "--topology")
        refuse_credentials_in(tuple(side for mapped in self.path_map for side in split_map(mapped)), "--path-map")

    def given(self) -> dict[str, tuple[str, ...]]:
        """Those that were given, by name."""
        return {option.name: value for option in fields(self) if (value := getattr(self, option.name))}

    def words(self, names: Sequence[str]) -> str:
        """Return those options as a command line has them, each after a space. names: of the options, in order."""
        given = self.given()
        return "".join(
            f" --{name.replace('_', '-')} {shlex.quote(value)}" for name in names for value in given.get(name, ())
        )


NOTHING = ReadOptions()
