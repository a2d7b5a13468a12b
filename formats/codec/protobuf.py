"""The wire format of Protocol Buffers: a message as its fields, each a number and a value of one of four forms.

Source: the public page on the encoding. Groups (forms 3 and 4), which nothing writes any more, are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

from formats.codec.varint import read_varint
from formats.errors import Damaged


class Form(IntEnum):
    """How a value is written."""

    VARINT = 0
    FIXED64 = 1
    BYTES = 2
    FIXED32 = 5


_MOST = 1 << 29
"""Field numbers are below it."""


def fields(data: bytes, path: str | None = None) -> Iterator[tuple[int, Form, int | bytes]]:
    """Number, form and value of each field, in the order of the bytes. Damaged.

    A value is a number, not yet signed, or bytes: of fixed forms just as many, else as many as its length says.
    """
    pos = 0
    while pos < len(data):
        at = pos
        try:
            tag, pos = read_varint(data, pos)
            number = tag >> 3
            if not 0 < number < _MOST:
                raise ValueError(f"a field of number {number}")
            form = Form(tag & 7)
            if form is Form.VARINT:
                value, pos = read_varint(data, pos)
                yield number, form, value
                continue
            length = {Form.FIXED64: 8, Form.FIXED32: 4}.get(form)
            if length is None:
                length, pos = read_varint(data, pos)
        except (ValueError, IndexError) as error:
            raise Damaged(f"no message of Protobuf: {error} at offset {at}", path=path) from None
        if length > len(data) - pos:
            message = f"no message of Protobuf: {length} bytes at offset {pos}, {len(data) - pos} are left"
            raise Damaged(message, path=path)
        yield number, form, data[pos : pos + length]
        pos += length
