"""JSON as msgspec structs, for several threads.

msgspec 0.22 prepares a struct when it is first decoded. If a second thread decodes the same struct meanwhile, it finds
it half prepared and the process ends with SIGSEGV. So structs are prepared by one thread at a time.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar, cast

import msgspec

T = TypeVar("T")

_preparing = threading.Lock()
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def decode(data: bytes | str, kind: type[T]) -> T:
    """Return the value of this type that is in JSON. Raises MsgspecError, UnicodeDecodeError, RecursionError."""
    decoder = _decoders.get(kind)
    if decoder is None:
        with _preparing:
            decoder = _decoders.setdefault(kind, msgspec.json.Decoder(kind))
    return cast("T", decoder.decode(data))
