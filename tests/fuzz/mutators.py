"""Damage bytes and folders, by a seeded generator of random numbers."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from formats.native.facts import SEAL, SEAL_LENGTH, digest

Mutator = Callable[[bytes, random.Random, bytes], bytes]
"""From bytes, the generator and the bytes of another file to damaged bytes."""

EXTREMES = (
    0, 1, -1, 127, 128, 255, 256, 0x7FFF, -0x8000, 0xFFFF, 0x7FFFFFFF, -0x80000000, 0xFFFFFFFF, 2**62, 2**63 - 1,
    -(2**63),
)  # fmt: skip
VARINTS = (
    b"\xff" * 9 + b"\x01", b"\xff" * 10, b"\x80" * 9 + b"\x00", b"\x80\x00", b"\xfe\xff\xff\xff\x0f", b"\x01", b"\x7f",
)  # fmt: skip
"""Among them -2^63 and 2^63 - 1 in Avro's zigzag coding, an overlong zero and one that does not end."""
WORDS = (
    "", " ", "0", "-1", "1e999", "NaN", "true", "null", "../../../etc/passwd", "/etc/passwd", "file:///etc/passwd",
    "a/0", "a/0->b/1", "\x00", "\x1b[31m", "\ud800", "\u202e", "x" * 5000, "9" * 400, "a\nb", "%s%n",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31 - 1, 2**31, 2**53, 2**63 - 1, 2**63, -(2**63), 10**400, 1.5, 1e308, [], {}, [[]],
    [None], {"": 0}, *WORDS,
)  # fmt: skip
SPARSE = (3 << 30, 40 << 30)
"""Bytes of a file that has no data, in place of another: reading it whole would take more than its minute."""
LARGEST = 4 << 20
"""Bytes of a file up to which it is mutated: the largest file of the test data is smaller."""


def flip_bits(data: bytes, rng: random.Random, _: bytes) -> bytes:
    """Flip one to eight bits."""
    out = bytearray(data or b"\0")
    for _i in range(rng.choice((1, 1, 1, 2, 8))):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def set_bytes(data: bytes, rng: random.Random, _: bytes) -> bytes:
    """Overwrite a short range by random bytes."""
    size = rng.choice((1, 2, 4, 16))
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.randbytes(size) + data[at + size :]


def truncate(data: bytes, rng: random.Random, _: bytes) -> bytes:
    """Cut the end off: all, a few bytes, or anything between."""
    return data[: rng.choice((0, max(0, len(data) - rng.randint(1, 8)), rng.randrange(len(data) + 1)))]


def extend(data: bytes, rng: random.Random, other: bytes) -> bytes:
    """Add zeros, random bytes, the file itself or another file at the end."""
    return data + rng.choice((bytes(rng.choice((1, 4, 100, 70_000))), rng.randbytes(rng.randint(1, 64)), data, other))


def splice(data: bytes, rng: random.Random, other: bytes) -> bytes:
    """Put a piece of another file into this one, in place of a piece or between two."""
    start = rng.randrange(len(other) + 1)
    piece = other[start : start + rng.choice((1, 8, 64, 1024, 1 << 16))]
    at = rng.randrange(len(data) + 1)
    return data[:at] + piece + data[at + (len(piece) if rng.random() < 0.5 else 0) :]


def remove_range(data: bytes, rng: random.Random, _: bytes) -> bytes:
    """Take a range out of the middle."""
    at = rng.randrange(len(data) + 1)
    return data[:at] + data[at + rng.choice((1, 2, 4, 8, 100, 4096)) :]


def repeat_range(data: bytes, rng: random.Random, _: bytes) -> bytes:
    """Repeat a range where it is."""
    at = rng.randrange(len(data) + 1)
    piece = data[at : at + rng.choice((1, 4, 16, 256))]
    return data[:at] + piece * rng.choice((2, 3, 200)) + data[at + len(piece) :]


def zero_range(data: bytes, rng: random.Random, _: bytes) -> bytes:
    """Overwrite a range by zeros, or by ones."""
    at = rng.randrange(len(data) + 1)
    size = min(len(data) - at, rng.choice((1, 4, 16, 512, 4096)))
    return data[:at] + rng.choice((b"\0", b"\xff")) * size + data[at + size :]


def extreme_integer(data: bytes, rng: random.Random, _: bytes) -> bytes:
    """Overwrite one, two, four or eight bytes by an integer at the end of a range."""
    size = rng.choice((1, 2, 4, 4, 8))
    at = rng.randrange(max(1, len(data) - size + 1))
    value = rng.choice(EXTREMES) & (1 << 8 * size) - 1
    return data[:at] + value.to_bytes(size, rng.choice(("big", "little"))) + data[at + size :]


def length_field(data: bytes, rng: random.Random, _: bytes) -> bytes:
    """Change an integer that may be the length of what follows it."""
    width, order = rng.choice(((2, "big"), (4, "big"), (4, "little"), (8, "big")))
    for _i in range(200):
        at = rng.randrange(max(1, len(data) - width))
        value = int.from_bytes(data[at : at + width], order)  # type: ignore[arg-type]
        if 0 < value <= len(data) - at:
            rest = len(data) - at - width
            changed = rng.choice((0, 1, value - 1, value + 1, 2 * value, len(data), rest + 1, -1, 2**31 - 1, 2**31))
            new = (changed & (1 << 8 * width) - 1).to_bytes(width, order)  # type: ignore[arg-type]
            return data[:at] + new + data[at + width :]
    return extreme_integer(data, rng, data)


def varint(data: bytes, rng: random.Random, _: bytes) -> bytes:
    """Put a varint at an edge of its range in place of some bytes, or between them."""
    new, at = rng.choice(VARINTS), rng.randrange(len(data) + 1)
    return data[:at] + new + data[at + rng.choice((0, 1, len(new))) :]


def characters(data: bytes, rng: random.Random, _: bytes) -> bytes:
    """Put characters in that text and encodings have rules for."""
    at = rng.randrange(len(data) + 1)
    new = rng.choice((
        b"\n", b"\r\n", b"\t", b'"', b"'", b"[" * 3000, b"{" * 200, b"\xc0\x80", b"\xed\xa0\x80", b"\xff", b"&a *a",
        b"!!", b"- ", b" " * 3000, b"\n" * 3000, b"\\" * 301, b": ", b"#", b"$", b"9" * 30, b"\xef\xbb\xbf",
        b"\xe2\x80\xae",
    ))  # fmt: skip
    return data[:at] + new + data[at + rng.choice((0, 0, 1)) :]


def lines(data: bytes, rng: random.Random, _: bytes) -> bytes:
    """Remove, repeat or exchange lines."""
    rows = data.split(b"\n")
    one, two = rng.randrange(len(rows)), rng.randrange(len(rows))
    match rng.randrange(3):
        case 0:
            del rows[one]
        case 1:
            rows.insert(two, rows[one])
        case _:
            rows[one], rows[two] = rows[two], rows[one]
    return b"\n".join(rows)


def json_edit(data: bytes, rng: random.Random, other: bytes) -> bytes:
    """Change one member of a JSON text, or of one of its lines; other bytes are changed as by `flip_bits`.

    A native fact file ends in a digest of itself, which is computed again.
    """
    if data[-SEAL_LENGTH:].startswith(SEAL):
        changed = _edited(data, rng)
        return data if changed is None else resealed(changed)
    changed = _edited(data, rng)
    if changed is not None:
        return changed
    rows = data.split(b"\n")
    order = list(range(len(rows)))
    rng.shuffle(order)
    for number in order[:20]:
        if rows[number][:1] in (b"{", b"[") and (changed := _edited(rows[number], rng)) is not None:
            rows[number] = changed
            return b"\n".join(rows)
    return flip_bits(data, rng, other)


def resealed(data: bytes) -> bytes:
    """Give the JSON text of a fact file the digest that it now has."""
    end = data.rfind(b',"sha256":"')
    body = data[:end] if end > 0 else data.rstrip()[:-1]
    return body + SEAL + digest(body).encode() + b'"}\n'


def _edited(data: bytes, rng: random.Random) -> bytes | None:
    """Return a JSON text with one to three members changed; None for what is no JSON."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    for _i in range(rng.choice((1, 1, 2, 3))):
        places = list(_places(document))
        if not places:
            break
        holder, key = rng.choice(places)
        _edit(holder, key, rng)
    text = json.dumps(document, separators=(",", ":")).encode()
    if rng.random() < 0.03:
        depth = rng.choice((500, 100_000))
        text = text.replace(b":", b":" + b"[" * depth + b"]" * depth + b",", 1)
    return text


def _places(document: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every list or mapping of a document, with each of its keys."""
    todo = [document]
    while todo:
        holder = todo.pop()
        keys: Sequence[Any] = ()
        if isinstance(holder, dict | list):
            keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        for key in keys:
            yield holder, key
            todo.append(holder[key])


def _edit(holder: Any, key: Any, rng: random.Random) -> None:
    old = holder[key]
    match rng.randrange(6):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, list):
            holder.insert(key, copy.deepcopy(old))
        case 1:
            holder[rng.choice(WORDS)] = old
        case 2 if isinstance(old, int | float) and not isinstance(old, bool):
            holder[key] = rng.choice((old + 1, old - 1, -old, old * 2, 10**9, 10**18))
        case 3 if isinstance(old, str):
            at = rng.randrange(len(old) + 1)
            holder[key] = old[:at] + rng.choice(WORDS) + old[at + 1 :]
        case 4 if isinstance(old, list):
            holder[key] = old * rng.choice((2, 3)) if rng.random() < 0.5 else old[::-1]
        case 5:
            values = [one[name] for one, name in _places(holder)]
            holder[key] = copy.deepcopy(rng.choice(values))
        case _:
            holder[key] = rng.choice(VALUES)


BINARY: tuple[Mutator, ...] = (
    flip_bits, flip_bits, set_bytes, truncate, extend, splice, remove_range, repeat_range, zero_range, extreme_integer,
    extreme_integer, length_field, length_field, varint,
)  # fmt: skip
TEXT: tuple[Mutator, ...] = (json_edit, json_edit, json_edit, json_edit, lines, characters, characters)


def mutate(data: bytes, rng: random.Random, other: bytes) -> bytes:
    """Damage bytes by one mutator, or by a few in a row."""
    is_text = b"\0" not in data[:4096]
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        data = rng.choice(TEXT if is_text and rng.random() < 0.7 else BINARY)(data, rng, other)
    return data


def mutate_store(store: Path, rng: random.Random, others: Callable[[], Path]) -> str:
    """Damage a store; return a description. others: picks a file of any sample, for splices."""
    done = [_mutate_one(store, rng, others) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    return "; ".join(done)


def _is_mutable(path: Path) -> bool:
    return path.is_file() and not path.is_symlink() and path.stat().st_size <= LARGEST


def _mutate_one(store: Path, rng: random.Random, others: Callable[[], Path]) -> str:
    files = sorted(path for path in store.rglob("*") if _is_mutable(path))
    if not files:
        return "nothing to mutate"
    metadata = [path for path in files if path.name == "_metadata" or path.suffix in (".json", "")]
    file = rng.choice(metadata if metadata and rng.random() < 0.4 else files)
    name = str(file.relative_to(store))
    if rng.random() < 0.12:
        return _change_tree(store, file, files, rng)
    data = file.read_bytes()
    other = (rng.choice(files) if rng.random() < 0.5 else others()).read_bytes()
    new = mutate(data, rng, other)
    file.write_bytes(new)
    sidecar = file.with_name(f".{file.name}.crc")
    if sidecar.exists() and rng.random() < 0.7:  # Hadoop's checksum would reject what was changed
        sidecar.unlink()
    if (store / "abs-store.json").exists() and rng.random() < 0.6:
        adopt(store, file, digest(data))
        name += " (adopted)"
    return f"mutated {name}"


def _change_tree(store: Path, file: Path, files: list[Path], rng: random.Random) -> str:
    """Remove, copy, exchange or replace a file."""
    name, other = file.relative_to(store), rng.choice(files)
    match rng.randrange(7):
        case 0:
            file.unlink()
            return f"removed {name}"
        case 1:
            names = (f"{file.name}2", f".{file.name}", "000000.json", "9" * 10, "99.delta", "_metadata", "OPTIONS-9")
            new = file.with_name(rng.choice(names))
            if new != other:
                shutil.copyfile(other, new)
            return f"copied {other.relative_to(store)} to {new.relative_to(store)}"
        case 2:
            one, two = file.read_bytes(), other.read_bytes()
            file.write_bytes(two)
            other.write_bytes(one)
            return f"exchanged {name} and {other.relative_to(store)}"
        case 3:
            file.unlink()
            file.mkdir()
            return f"replaced {name} by a folder"
        case 4:
            file.unlink()
            file.symlink_to(file.name)
            return f"replaced {name} by a symbolic link to itself"
        case 5:
            size = rng.choice(SPARSE)
            os.truncate(file, size)
            return f"extended {name} to {size} bytes"
        case _:
            shutil.rmtree(file.parent)
            return f"removed the folder of {name}"


def adopt(store: Path, file: Path, old: str) -> None:
    """Let the facts of a native store name a changed file by its new size and digest, and seal them again.

    old: the digest before. What names the changed facts is changed likewise, up to the manifest.
    """
    todo, rounds = [(old, file)], 0
    while todo and rounds < 20:
        rounds += 1
        was, path = todo.pop()
        data = path.read_bytes()
        now = hashlib.sha256(data).hexdigest()
        if path.parent.name == "topologies" and path.stem == was:
            path = path.rename(path.with_name(f"{now}.json"))
        for facts in sorted(store.rglob("*.json")):
            if not facts.is_file() or facts == path or facts.stat().st_size > LARGEST:
                continue
            text = facts.read_bytes()
            if was.encode() not in text[:-SEAL_LENGTH]:
                continue
            with contextlib.suppress(ValueError, RecursionError):
                document = json.loads(text)
                _name_anew(document, was, now, len(data))
                facts.write_bytes(resealed(json.dumps(document, separators=(",", ":")).encode()))
                todo.append((digest(text), facts))


def _name_anew(document: Any, was: str, now: str, size: int) -> None:
    for holder, key in list(_places(document)):
        if holder[key] == was:
            holder[key] = now
            if isinstance(holder, dict) and key == "sha256" and "bytes" in holder:
                holder["bytes"] = size
