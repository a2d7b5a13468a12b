"""Which operator a uid is of: Flink makes an operator's id of it, the 128-bit murmur for x64 of its UTF-8."""

from __future__ import annotations

from collections.abc import Iterable

import mmh3


def operator_id(uid: str) -> str:
    """The id of an operator that was given this uid: 32 hex digits."""
    # Bytes of a command line or file that are no UTF-8 are nobody's uid, and no error.
    return mmh3.mmh3_x64_128_digest(uid.encode("utf-8", "surrogateescape")).hex()


def proved(uids: Iterable[str], ids: Iterable[str]) -> dict[str, str]:
    """Which of the guessed uids are those of operators that are there: id -> uid."""
    there = set(ids)
    return {id: uid for uid in uids if (id := operator_id(uid)) in there}
