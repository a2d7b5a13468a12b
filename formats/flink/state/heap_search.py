"""Where states of heap state go on behind a value of unknown length, in one key group.

A place is believed if from there every state that is still due comes once, the last one ends with the last byte (or is
hidden again), every key lies in this key group by its hash, and no other place is as good. Whatever looks like the
beginning of a state is read once, and what one such reading has passed is not read again by another: so the work grows
as the key group does. `patience` bounds it all the same, for data that looks like states everywhere.
"""

from __future__ import annotations

import re
import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

from formats.flink.state.keyed_tables import Table
from formats.flink.types.values import BROKEN, HiddenValue

_I16: Final = struct.Struct(">h").unpack_from
_I32: Final = struct.Struct(">i").unpack_from
_OPEN_ENDED: Final = 3
"""Keys of the right key group that are due where the last state is hidden again, and no last byte can prove it."""
_STRIDE: Final = 64
"""Every so many entries of a long reading are kept, for others to join it."""
_LOOK: Final = 8
"""What a look at a place costs of the patience; an entry that is read costs as much, and its bytes."""
_STEP: Final = 2
"""What a place costs that has been read before."""

Entry = Callable[[bytes, int], tuple[bool, int]]
"""(data, position) to whether the key is known to be of the key group, and the end. Raises BROKEN or HiddenValue."""


class _Chain:
    """Entries of one state that follow each other.

    marks: position of every `_STRIDE`-th.
    keys: how many before each mark are known to be of the key group.
    end: where the last one ends.
    count: of the entries.
    proven: how many of them are known to be of the key group.
    stop: what follows, if that is no entry of this chain.
    goes_on: the chain and its entry that follow.
    """

    __slots__ = ("count", "end", "goes_on", "keys", "marks", "proven", "stop")

    def __init__(self, pos: int) -> None:
        self.marks = array("q", [pos])
        self.keys = array("q", [0])
        self.end, self.count, self.proven = pos, 0, 0
        self.stop: str | None = None
        self.goes_on: tuple[_Chain, int] | None = None


class _Read(NamedTuple):
    """A state that was read.

    end: where it ends, or is hidden.
    keys: known to be of the key group.
    hidden: a value that only its class can read stands at the end.
    """

    end: int
    keys: int
    hidden: bool


class _Scan:
    """The places of one set of states, tried from the last one on.

    below: candidates from this one on have been tried.
    places: those that fit, descending, negated.
    best: for each of them, the best from it on; None where two are as good.
    proof: the keys of the best.
    """

    __slots__ = ("below", "best", "places", "proof")

    def __init__(self, candidates: int) -> None:
        self.below = candidates
        self.places: list[int] = []
        self.best: list[int | None] = []
        self.proof: list[int] = []


class Search:
    """The search in one key group.

    tables: with keys that raise where they are of another group.
    patience: work that may still be spent.
    """

    def __init__(self, data: bytes, tables: Sequence[Table], patience: int) -> None:
        self.patience = patience
        self._data = data
        self._tables = tables
        self._entry = [_entry(table) for table in tables]
        self._joins: list[dict[int, tuple[_Chain, int]]] = [{} for _ in tables]
        self._scans: dict[frozenset[int], _Scan] = {}
        self._places: array[int] | None = None  # with, for each: end, keys, and whether it is hidden there
        self._ends, self._keys, self._kinds = array("q"), array("q"), bytearray()

    def place(self, todo: Collection[int], start: int) -> int | None:
        """Where the states of `todo` begin, at `start` or behind it; None if that is not known. Later calls ask for
        some of the states that the first one asked for, behind where it did."""
        # collected once: later calls ask for fewer states further on, whose places are among these
        if self._places is None:
            self._places = array("q")
            self._collect(frozenset(todo), start)
        try:
            best = self._best(frozenset(todo), start)
        except RecursionError:  # hundreds of hidden states behind each other
            return None
        return None if best is None or self.patience <= 0 else best[0]

    # -- every place that looks like a state, read once ---------------------------------------------------------

    def _collect(self, todo: frozenset[int], start: int) -> None:
        assert self._places is not None
        for match in _pattern(self._tables, todo).finditer(self._data, start):
            at = match.start()
            self.patience -= _LOOK
            if self.patience <= 0:
                return
            state = self._state(at)
            if state is None:
                continue
            # a state that is hidden has no end to judge it by: `_follow` asks then what lies behind it
            if not state.hidden and not self._goes_on(state.end, todo):
                continue
            self._places.append(at)
            self._ends.append(state.end)
            self._keys.append(state.keys)
            self._kinds.append(state.hidden)

    def _goes_on(self, end: int, todo: frozenset[int]) -> bool:
        """Whether a state that is due, or nothing, follows one that ends here."""
        size = len(self._data)
        return end == size or (end + 6 <= size and _I16(self._data, end)[0] in todo)

    def _state(self, at: int) -> _Read | None:
        data = self._data
        if at + 6 > len(data):
            return None
        index, n = _I16(data, at)[0], _I32(data, at + 2)[0]
        table = self._tables[index]
        least = table.value.least if table.timers else table.key.least + table.namespace.least + table.value.least
        # so many entries cannot follow: most places that only look like a state end here, unread
        if n < 0 or n * max(least, 1) > len(data) - at - 6:
            return None
        return self._entries(index, at + 6, n)

    def _entries(self, index: int, pos: int, n: int) -> _Read | None:
        """n entries from `pos` on. Short readings leave no trace; a long one, or one that meets it, goes along what was
        read before."""
        data, read, joins = self._data, self._entry[index], self._joins[index]
        begin, proven, left = pos, 0, n
        try:
            # most places are no state and break after a few entries: to remember those costs more than to read again
            while left and n - left < _STRIDE and pos not in joins:
                key, after = read(data, pos)
                proven += key
                pos = after
                left -= 1
        except HiddenValue:
            # it goes on out of sight; whether it is believed is for what lies behind it to say
            return _Read(pos, proven, True)
        except BROKEN:
            return None
        finally:
            self.patience -= pos - begin + _LOOK * (n - left)
        if not left:
            return _Read(pos, proven, False) if pos <= len(data) else None
        if pos not in joins:
            joins[pos] = _Chain(pos), 0
        return self._along(index, *joins[pos], left, proven)

    def _along(self, index: int, chain: _Chain, at: int, left: int, proven: int) -> _Read | None:
        """`left` entries from the `at`-th of a chain on."""
        while True:
            self.patience -= 1
            # a chain may be shorter than what is asked for: then on with the one that it met, or stop where it did
            if at + left > chain.count:
                self._extend(index, chain, at + left)
            if at + left <= chain.count:
                break
            proven += chain.proven - _proven_at(chain, at)
            left -= chain.count - at
            if chain.goes_on is None:
                hidden = chain.stop == "hidden" and self.patience > 0
                return _Read(chain.end, proven, True) if hidden else None
            chain, at = chain.goes_on
        return self._within(index, chain, at, at + left, proven)

    def _within(self, index: int, chain: _Chain, at: int, to: int, proven: int) -> _Read | None:
        """Up to the `to`-th entry of a chain that is as long: from the last mark before it on they are read again."""
        read = self._entry[index]
        mark = min(to // _STRIDE, len(chain.marks) - 1)
        pos, keys = chain.marks[mark], chain.keys[mark]
        for _ in range(to - mark * _STRIDE):
            key, pos = read(self._data, pos)
            keys += key
        self.patience -= pos - chain.marks[mark]
        return _Read(pos, proven + keys - _proven_at(chain, at), False) if pos <= len(self._data) else None

    def _extend(self, index: int, chain: _Chain, count: int) -> None:
        """Read on, up to so many entries, to where another chain is met, or to what is no entry."""
        if chain.stop is not None:
            return
        data, read, joins = self._data, self._entry[index], self._joins[index]
        pos, begin, done = chain.end, chain.end, chain.count
        try:
            while chain.count < count:
                if self.patience <= 0:
                    chain.stop = "given up"
                    return
                key, pos = read(data, chain.end)
                # entries of no bytes would make a chain that never ends
                if pos <= chain.end:
                    raise ValueError("an entry without bytes")
                chain.end = pos
                chain.count += 1
                chain.proven += key
                # another reading came by here: from here on both have the same entries, and this one need not read them
                if pos in joins:
                    chain.goes_on, chain.stop = joins[pos], "goes on"
                    return
                if chain.count % _STRIDE == 0:
                    chain.marks.append(pos)
                    chain.keys.append(chain.proven)
                    joins[pos] = chain, chain.count
                    # paid at each mark, so that a chain over the whole key group stops in time
                    self.patience -= pos - begin + _LOOK * (chain.count - done)
                    begin, done = pos, chain.count
        except HiddenValue:
            chain.stop = "hidden"
        except BROKEN:
            chain.stop = "broken"
        self.patience -= chain.end - begin + _LOOK * (chain.count - done)

    # -- which of them is believed ------------------------------------------------------------------------------

    def _best(self, todo: frozenset[int], start: int) -> tuple[int, int] | None:
        """The place and its keys. A place within a hidden value may pass for an empty or a hidden state: the most keys
        in their group decide."""
        assert self._places is not None
        scan = self._scans.setdefault(todo, _Scan(len(self._places)))
        low = bisect_left(self._places, start)
        # from the last place on: the best from a place on follows from it and the best behind it
        while scan.below > low and self.patience > 0:
            scan.below -= 1
            self.patience -= _STEP
            keys = self._follow(scan.below, todo)
            if keys is None:
                continue
            at, proof = self._places[scan.below], scan.proof[-1] if scan.proof else -1
            scan.places.append(-at)
            scan.proof.append(max(keys, proof))
            # two that prove as much: neither is believed, unless one further ahead proves more
            scan.best.append(at if keys > proof else None if keys == proof else scan.best[-1])
        # negated, places ascend: this is the foremost at `start` or behind it
        behind = bisect_right(scan.places, -start) - 1
        if scan.below > low or behind < 0:
            return None
        best = scan.best[behind]
        return None if best is None else (best, scan.proof[behind])

    def _follow(self, place: int, todo: frozenset[int]) -> int | None:
        """Keys from a place on, where each state of `todo` comes once and nothing else does; otherwise None."""
        assert self._places is not None
        left, keys = set(todo), 0
        while True:
            index = _I16(self._data, self._places[place])[0]
            if index not in left:
                return None
            left.discard(index)
            keys += self._keys[place]
            end = self._ends[place]
            if self._kinds[place]:
                # no last byte can prove a place whose last state is hidden: its keys have to
                if not left:
                    return keys if keys >= _OPEN_ENDED else None
                rest = self._best(frozenset(left), end)
                return None if rest is None else keys + rest[1]
            if end == len(self._data):
                return None if left else keys
            place = bisect_left(self._places, end)
            if place == len(self._places) or self._places[place] != end:
                return None


def _proven_at(chain: _Chain, at: int) -> int:
    """Keys before an entry at which others join."""
    return chain.keys[at // _STRIDE]


def _entry(table: Table) -> Entry:
    """How one entry of a state is read where nothing is believed yet."""
    read_namespace, read_key, read_value = table.namespace.read, table.key.read, table.value.read
    if table.timers:

        def timer(data: bytes, pos: int) -> tuple[bool, int]:
            (_, key, _), end = read_value(data, pos)
            return key is not None, end

        return timer

    def void_entry(data: bytes, pos: int) -> tuple[bool, int]:
        if data[pos]:
            raise ValueError(f"a namespace of {data[pos]}")  # Flink writes 0; few other places have it there
        key, pos = read_key(data, pos + 1)
        return key is not None, read_value(data, pos)[1]

    def entry(data: bytes, pos: int) -> tuple[bool, int]:
        try:
            key, pos = read_key(data, read_namespace(data, pos)[1])
        except HiddenValue as hidden:
            raise ValueError(f"{hidden.name} before the value") from None  # nothing proves that it is an entry
        return key is not None, read_value(data, pos)[1]

    return void_entry if table.namespace.kind == "voidnamespace" else entry


def _pattern(tables: Sequence[Table], wanted: frozenset[int]) -> re.Pattern[bytes]:
    """Places that look like `i16 state | i32 n` with less than 2**24 entries, and the first one's namespace if that is
    the void one; or like one without entries and the beginning of the next, or the end."""
    follow = b"(?:" + b"|".join(re.escape(index.to_bytes(2, "big") + b"\0") for index in sorted(wanted)) + rb"|\Z)"
    places = []
    for index in sorted(wanted):
        table = tables[index]
        void = not table.timers and table.namespace.kind == "voidnamespace"
        first = rb"\0" if void else b"."
        mark = re.escape(index.to_bytes(2, "big") + b"\0")
        places.append(mark + rb"(?:\0\0\0" + follow + rb"|(?!\0\0\0)..." + first + b")")
    # a lookahead takes no bytes, so that places which overlap are all tried
    return re.compile(b"(?=" + b"|".join(places) + b")", re.DOTALL)
