"""LZF as compress-lzf frames it: chunks of `ZV`, a type, sizes big-endian in 2 bytes, and up to 65,535 bytes.

Type 0 is stored as it is (one size), type 1 is packed (packed size, raw size). Packed: a byte below 32 says how many
bytes less one are to be taken as they are; any other has in its upper 3 bits a length less 2 (7: the next byte is to be
added) and in its lower 5, with the byte that follows, how far back less one it is to be copied from. No checksum.
"""

from __future__ import annotations

from formats.errors import Damaged

MAGIC = b"ZV"


def unpack_lzf(data: bytes, path: str, most: int) -> bytes:
    """The content of a stream of chunks; Damaged where one is cut short or points outside, or beyond `most` bytes."""
    out: list[bytes] = []
    at = total = 0
    while at < len(data):
        packed = int.from_bytes(data[at + 3 : at + 5], "big")
        head = 7 if data[at + 2 : at + 3] == b"\x01" else 5
        body = data[at + head : at + head + packed]
        if data[at : at + 2] != MAGIC or data[at + 2 : at + 3] not in (b"\0", b"\x01") or len(body) < packed:
            raise Damaged(f"its LZF chunk at byte {at} is cut short or none", path=path)
        if head == 7:
            raw = int.from_bytes(data[at + 5 : at + 7], "big")
            unpacked = _chunk(body, raw)
            if unpacked is None:
                raise Damaged(f"its LZF chunk at byte {at} does not unpack", path=path)
            body = unpacked
        if (total := total + len(body)) > most:
            raise Damaged(f"unpacks to more than {most} bytes", path=path)
        out.append(body)
        at += head + packed
    return b"".join(out)


def _chunk(body: bytes, raw: int) -> bytes | None:
    """The bytes of a packed chunk; None unless they are `raw` bytes."""
    out = bytearray()
    at, end = 0, len(body)
    while at < end:
        control = body[at]
        at += 1
        if control < 32:
            out += body[at : at + control + 1]
            at += control + 1
            continue
        length = control >> 5
        if length == 7:
            if at >= end:
                return None
            length += body[at]
            at += 1
        if at >= end:
            return None
        back = ((control & 31) << 8 | body[at]) + 1
        at += 1
        length += 2
        start = len(out) - back
        if start < 0 or len(out) + length > raw:
            return None
        piece = out[start : start + length]
        out += (piece * -(-length // len(piece)))[:length]
    return bytes(out) if at == end and len(out) == raw else None
