"""The version of every format that abs writes: stores, plans, traces, and the JSON that commands print."""

from __future__ import annotations

import re
from typing import Final

from formats.errors import UnsupportedVersion

FORMAT_VERSION: Final = "1.0"
"""Major and minor version. When each is raised: `formats/native-store.md`, "Versions"."""
MAJOR: Final = FORMAT_VERSION.partition(".")[0]
READABLE: Final = rf"^{MAJOR}\.(0|[1-9][0-9]{{0,4}})$"
"""Pattern of the versions that this program reads: additions of a newer minor version are ignored."""


def check_version(found: object, *, path: str, hint: str) -> None:
    """Refuse every other major version, and everything that is no version.

    path: the file that carries the version, for the message.
    hint: the next step for the user.

    Raises UnsupportedVersion.
    """
    if not isinstance(found, str) or re.fullmatch(READABLE[1:-1], found, re.ASCII) is None:
        raise UnsupportedVersion(
            f"has format version {shown(found)}, this program reads versions {MAJOR}.x", path=path, hint=hint
        )


def shown(version: object) -> str:
    """Quote a version for a message, shortened to 60 characters."""
    text = repr(version)
    return text if len(text) <= 60 else text[:57] + "..."
