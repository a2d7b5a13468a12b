"""Shapes of the texts of a job file that may hold a location: all of them refuse credentials.

A job is kept in every store and shown in messages. A field of a connector therefore never uses `values.string`: it uses
a shape of this module. A test tries every field with credentials.
"""

from __future__ import annotations

from typing import Any

from formats.job.identifiers import clipped
from formats.redaction import Credentials, Location, find_credentials, has_user_information, home_of, refusal
from formats.user_file import values as read
from formats.user_file.mistakes import Mistakes
from formats.user_file.nodes import Mapping, Node, Scalar, Sequence
from formats.user_file.values import Shape

_USER = r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#@]*:[^/?#@]*@"
"""A part of the rule that a pattern can express: the reader refuses more."""
_CATALOG = "say it in the environment, PYICEBERG_CATALOG__NAME__URI, or in ~/.pyiceberg.yaml"


def location(kind: Location, *, hint: str | None = None) -> Shape[str]:
    """Make the shape of a location without credentials. hint: where they belong; None: it depends on the scheme."""

    def read_location(node: Node, label: str, mistakes: Mistakes) -> str | None:
        text = read.string.read(node, label, mistakes)
        part = find_credentials(text, kind) if text is not None else None
        if text is None or part is None:
            return text
        mistakes.add(node, refusal(label, part), hint or home_of(text, kind))
        return None

    pattern = r"^[^@?#]*$" if kind is Location.BROKERS else f"^(?!{_USER})"
    return Shape(read_location, {"type": "string", "minLength": 1, "pattern": pattern})


PLACE = location(Location.PLACE)
GLOB = location(Location.GLOB)
BROKERS = location(Location.BROKERS)
CATALOG = location(Location.PLACE, hint=_CATALOG)
NAME = location(Location.NAME)
"""A plain name. It is no location, but a user may mistake it for one: `url_env: postgresql://user:password@host`."""


def _read_text(node: Node, label: str, mistakes: Mistakes) -> str | None:
    text = read.string.read(node, label, mistakes)
    if text is not None and has_user_information(text):
        mistakes.add(node, refusal(label, Credentials.USER), "remove them here; name a service of the database instead")
        return None
    return text


TEXT: Shape[str] = Shape(_read_text, {"type": "string", "minLength": 1})
"""Free text, such as a query: a URI in it has no user information."""


def check_options(node: Node, label: str, mistakes: Mistakes) -> bool:
    """Refuse credentials in every text of an entry of a connector that is not known here; return whether there are any.
    """
    found = False
    left: list[tuple[Any, str]] = [(node, label)]
    while left:
        here, title = left.pop()
        if isinstance(here, Mapping):
            left += [(value, f"{title}: {clipped(name)}") for name, (_, value) in here.pairs.items()]
        elif isinstance(here, Sequence):
            left += [(item, title) for item in here.items]
        elif isinstance(here, Scalar) and isinstance(here.value, str) and (part := find_credentials(here.value)):
            found = True
            mistakes.add(here, refusal(title, part), home_of(here.value))
    return found
