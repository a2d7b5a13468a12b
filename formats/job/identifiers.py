"""What an operator may be called."""

from __future__ import annotations

import re

from formats.user_file.nodes import shown
from formats.user_file.values import Schema

ID = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
ID_SCHEMA: Schema = {"type": "string", "pattern": f"^{ID.pattern}$"}


def clipped(id: str) -> str:
    """An id as messages name it: what is long or no id is quoted and shortened."""
    return id if len(id) <= 60 and ID.fullmatch(id) else shown(id)
