"""Keys and values of RocksDB, as its SST files and canonical savepoints have them.

A key is: key group (1 byte up to 128 of them, else 2) | key | namespace | user key of map state. Where key and
namespace are both of no fixed length, the length of each follows it, in as many bytes as it needs, the lowest first.
Values: list state has its elements with a `,` between, map state a byte that says null and the value, timers nothing.
"""

from __future__ import annotations

from formats.flink.state.keyed_tables import KeyedState, RowBlock, Table
from formats.flink.types.values import BROKEN, HiddenValue, Opaque

_DELIMITER = 0x2C


class PairReader:
    """Reads the pairs of one state into blocks."""

    def __init__(self, table: Table, state: KeyedState) -> None:
        self.table = table
        self.prefix = state.prefix
        self.void = table.namespace.kind == "voidnamespace"
        self.framed = table.key.length < 0 and table.namespace.length < 0 and not table.timers

    def group(self, key: bytes) -> int:
        """The key group that a key says it is in."""
        return int.from_bytes(key[: self.prefix], "big")

    def add(self, block: RowBlock, key: bytes, value: bytes) -> str | None:
        """Append a pair to a block; what is wrong with it, in words, if it cannot be."""
        table = self.table
        block.bytes += len(key) + len(value)
        group = self.group(key)
        if group != block.group or len(key) < self.prefix:
            return f"state {table.name!r}: a key of key group {group} in group {block.group}"
        try:
            if table.timers:
                (at, timer_key, namespace), pos = table.value.read(key, self.prefix)
                if pos != len(key) or value:
                    return f"state {table.name!r}: {len(key) - pos + len(value)} bytes after a timer"
                block.keys.append(timer_key)
                block.namespaces.append(namespace)
                block.values.append(at)
                if block.sizes is not None:
                    block.sizes.append((len(key), 0))
                return None
            user_key = None
            row_key, pos = table.key.read(key, self.prefix)
            # both of variable length: only the lengths behind them keep (`a`, `bc`) and (`ab`, `c`) apart
            if self.framed:
                pos = _length(key, self.prefix, pos)
            begin = pos
            if self.void:
                namespace = None
                pos += 1
            else:
                namespace, pos = table.namespace.read(key, pos)
            if self.framed:
                pos = _length(key, begin, pos)
            if table.user_key is not None:
                try:
                    user_key, pos = table.user_key.read(key, pos)
                # the user key stands last, so that one which cannot be read hides nothing but itself
                except HiddenValue as hidden:
                    user_key, pos = Opaque(hidden.name, len(key) - pos, key[pos:]), len(key)
            if pos != len(key):
                return f"state {table.name!r}: a key of {len(key)} bytes that ends after {pos}"
        except HiddenValue as hidden:
            row_key, namespace, user_key = Opaque(hidden.name, len(key), key), None, None
        except BROKEN as error:
            return f"state {table.name!r}: a key that cannot be read: {error}"
        try:
            item = self.value(value)
        except HiddenValue as hidden:
            item = Opaque(hidden.name, len(value), value)
        except BROKEN as error:
            return f"state {table.name!r}: a value that cannot be read: {error}"
        block.keys.append(row_key)
        block.namespaces.append(namespace)
        if block.user_keys is not None:
            block.user_keys.append(user_key)
        block.values.append(item)
        if block.sizes is not None:
            block.sizes.append((len(key), len(value)))
        return None

    def value(self, data: bytes) -> object:
        """A value as rows have it; ValueError unless it ends with its bytes."""
        table = self.table
        read = table.item.read
        if table.is_list:
            out, pos, end = [], 0, len(data)
            while pos < end:
                item, pos = read(data, pos)
                out.append(item)
                if pos < end:
                    if data[pos] != _DELIMITER or pos + 1 == end:
                        raise ValueError(f"0x{data[pos]:02x} after element {len(out)} of a list, expected ','")
                    pos += 1
            if pos > end:
                raise ValueError("an element ends too early")
            return out
        if table.is_map:
            if not data or data[0] > 1:
                raise ValueError("no mark of null")
            if data[0]:
                return None
            item, pos = read(data, 1)
        else:
            item, pos = read(data, 0)
        if pos != len(data):
            raise ValueError(f"{len(data)} bytes, {pos} of them used")
        return item


def _length(key: bytes, begin: int, end: int) -> int:
    """Pass over the length of what lies between begin and end; ValueError if it says another."""
    n = end - begin
    width = max(1, (n.bit_length() + 7) // 8)
    stored = int.from_bytes(key[end : end + width], "little")
    if stored != n:
        raise ValueError(f"{n} bytes, the length after them says {stored}")
    return end + width
