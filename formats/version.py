"""The version of every format that abs writes: stores, plans, traces, and the JSON that commands print."""

from __future__ import annotations

from typing import Final

from formats.errors import UnsupportedVersion

FORMAT_VERSION: Final = "0-dev"
"""The only version, until the formats are frozen for the first release. It says nothing about compatibility: two
builds of abs may write different formats under it, so no reader carries code for an older one."""


def check_version(found: object, *, path: str, hint: str) -> None:
    """Refuse every version except `FORMAT_VERSION`.

    path: the file that carries the version, for the message.
    hint: the next step for the user.

    Raises UnsupportedVersion.
    """
    if found != FORMAT_VERSION:
        raise UnsupportedVersion(
            f"has format version {shown(found)}, this program reads and writes only {FORMAT_VERSION!r}",
            path=path,
            hint=hint,
        )


def shown(version: object) -> str:
    """Quote a version for a message, shortened to 60 characters."""
    text = repr(version)
    return text if len(text) <= 60 else text[:57] + "..."
