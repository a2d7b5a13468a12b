"""What stands before state, taken apart and put together again: byte for byte what Flink wrote, but for states that go.

A serializer's snapshot is never rewritten, only kept or left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from formats.errors import FormatError
from formats.flink.bytes import Reader, Writer
from formats.flink.state.meta import (
    NEVER_COMPRESSED,
    KeyedMeta,
    OperatorMeta,
    StateInfo,
    read_keyed_meta,
    read_operator_meta,
)

_FLAG: Final = 4
"""Where the byte stands that says whether state is compressed, behind the version."""


class CannotRewrite(FormatError):
    """A change that cannot be made to bytes as these, and why. line: the one of a file that asks for it."""

    line: int | None = None


@contextmanager
def asked_in(line: int) -> Iterator[None]:
    """Whatever is refused within the block was asked for in this line."""
    try:
        yield
    except CannotRewrite as error:
        error.line = line
        raise


@dataclass(frozen=True, slots=True)
class Prefix:
    """The prefix of a stream of state, as what follows it will be: not compressed.

    head: the bytes up to the number of states.
    infos: each state with the bytes of its description; of keyed state, or of the lists of operator state.
    broadcast: the same of broadcast state, which follows its own number; None of keyed state.
    """

    head: bytes
    infos: tuple[tuple[StateInfo, bytes], ...]
    broadcast: tuple[tuple[StateInfo, bytes], ...] | None = None

    def without(self, names: Collection[str]) -> Prefix:
        """The same without some states."""
        kept = tuple(item for item in self.infos if item[0].name not in names)
        broadcast = self.broadcast
        if broadcast is not None:
            broadcast = tuple(item for item in broadcast if item[0].name not in names)
        return Prefix(self.head, kept, broadcast)

    def encode(self) -> bytes:
        """Its bytes."""
        writer = Writer()
        writer.raw(self.head)
        for infos in (self.infos, self.broadcast):
            if infos is not None:
                writer.u16(len(infos))
                for _, data in infos:
                    writer.raw(data)
        return bytes(writer.data)


def keyed_prefix(reader: Reader) -> tuple[KeyedMeta, Prefix]:
    """What is known of keyed state, and its prefix. reader: of the prefix alone.

    Raises CannotRewrite where a serializer is not known, so that it cannot be found where its description ends.
    """
    meta = read_keyed_meta(reader)
    if meta.unknown_key is not None and not meta.states:
        raise _lost(meta.unknown_key, reader)
    # where an unknown class stands last, nothing but its body follows
    end = reader.end if meta.size is None else meta.size
    infos = _infos(reader, meta.states, meta.begins, end)
    return meta, Prefix(_plain(reader.data[: meta.begins[0] - 2 if meta.begins else end - 2]), infos)


def operator_prefix(reader: Reader) -> tuple[OperatorMeta, Prefix]:
    """What is known of operator state, and its prefix; the rest is as of `keyed_prefix`."""
    meta = read_operator_meta(reader)
    if meta.size is None:
        raise _lost(next((info.unknown for info in (*meta.states, *meta.broadcast) if info.unknown), "?"), reader)
    n = len(meta.states)
    # between the two lists stands the number of the second
    middle = (meta.begins[n] if meta.broadcast else meta.size) - 2
    infos = _infos(reader, meta.states, meta.begins[:n], middle)
    broadcast = _infos(reader, meta.broadcast, meta.begins[n:], meta.size)
    head = reader.data[:_FLAG] if meta.version == NEVER_COMPRESSED else _plain(reader.data[: _FLAG + 1])
    return meta, Prefix(head, infos, broadcast)


def _infos(
    reader: Reader, states: tuple[StateInfo, ...], begins: tuple[int, ...], end: int
) -> tuple[tuple[StateInfo, bytes], ...]:
    # An unknown serializer ends the reading: there are fewer descriptions then than the number before them says.
    count = int.from_bytes(reader.data[begins[0] - 2 : begins[0]], "big") if begins else 0
    if count != len(states):
        raise _lost(next((info.unknown for info in states if info.unknown), "?"), reader)
    bounds = [*begins, end]
    return tuple((info, reader.data[bounds[i] : bounds[i + 1]]) for i, info in enumerate(states))


def _lost(name: str, reader: Reader) -> CannotRewrite:
    return CannotRewrite(f"serializer {name} is not known, and hides where what follows it begins", path=reader.path)


def _plain(head: bytes) -> bytes:
    """The head of a stream that is not compressed."""
    return head[:_FLAG] + b"\0" + head[_FLAG + 1 :]
