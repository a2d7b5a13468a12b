"""Where the bytes of a checkpoint of Flink are (`formats.statistics`), in bounded time.

Up to EXACT bytes of keyed state are read whole. Beyond, each layout is sampled by the index that it has:

* RocksDB: every table's properties (exact numbers of entries and of bytes, by state), the indexes of as many tables as
  INDEXES bytes allow (bytes by key group: an index has a key for each block), and some blocks of data: SPREAD evenly
  over all, and of each state the largest, which hold the largest values, since a block is closed when it is full. What
  a table has is versions of keys: one that was rewritten and not yet compacted counts twice.
* by key group (heap, canonical savepoint): offsets tell the bytes of each key group; of some, evenly spread, the rows
  are read.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from formats.codec.sst import DELETION, SINGLE_DELETION, Span, TableFacts, Window
from formats.errors import FormatError
from formats.flink.files.streams import Streams
from formats.flink.ids import Names, SubtaskId
from formats.flink.metadata.handles import (
    ChangelogHandle,
    IncrementalHandle,
    KeyedHandle,
    KeyGroupsHandle,
    Metadata,
    Mode,
    OperatorState,
    StreamHandle,
    key_groups,
    state_size,
)
from formats.flink.state import keyed_canonical, raw_timers
from formats.flink.state.key_groups import spans
from formats.flink.state.keyed import described, keyed_state, read_blocks
from formats.flink.state.keyed_tables import RowBlock, Types
from formats.flink.state.operator import read_operator_state
from formats.flink.state.pairs import PairReader
from formats.flink.state.rows import OPERATOR_WORDS, shown_name
from formats.flink.types.values import BROKEN, HiddenValue
from formats.statistics import LIVE, SAMPLED, Large, Sample, StateStatistics, Tally, of_state, shown

EXACT: Final = 64 << 20
"""Bytes of keyed state up to which all of it is read, and bytes of key groups that a sample reads."""
INDEXES: Final = 16 << 20
"""Bytes of indexes of tables that a sample reads."""
SPREAD: Final = 1200
"""Blocks of data that a sample reads, evenly spread: as many of each state."""
PEAKS: Final = 16
"""Of each state, the largest blocks that are read besides."""
DATA: Final = 64 << 20
"""Bytes of such blocks, packed, that a sample reads of a state; the spread ones and the largest ones apart."""
LARGEST_GROUP: Final = 32 << 20
"""A larger key group is not read for a sample, for all of it would be in memory."""
WALKED: Final = 512 << 20
"""The same of canonical savepoints that are not compressed, whose rows can be read one after the other."""
OPERATORS_OWN: Final = 16 << 20
"""Bytes of one task's operator state that are read."""


@dataclass(slots=True)
class _State:
    """One state of an operator, while it is looked at. hidden: bytes behind values of a class of its own, hidden_by,
    that have no length; read: units of the sample; of: that there are."""

    kind: str
    tally: Tally = field(default_factory=Tally)
    trouble: dict[str, None] = field(default_factory=dict)
    hidden: int = 0
    hidden_by: str | None = None
    sampled: bool = False
    read: int = 0
    of: int = 0
    bytes: int = 0
    units: str = "blocks"


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked. taken: when the snapshot was, in milliseconds, None if that is not known; ttl: how long state with
    a time to live lives, in milliseconds; types: codecs that the user named."""

    taken: int | None = None
    ttl: int | None = None
    types: Types | None = None


def statistics(
    metadata: Metadata, names: Names, streams: Streams, question: Question, *, exact: int = EXACT
) -> list[StateStatistics]:
    """Every state of the operators that `names` has. exact: see EXACT."""
    operators = [operator for operator in metadata.operators if operator.id in names]
    total = sum(state_size(subtask.managed_keyed) for operator in operators for subtask in operator.subtasks)
    budget = exact / total if total > exact else 1.0
    return [row for operator in operators for row in _operator(operator, names[operator.id], streams, question, budget)]


def _operator(
    operator: OperatorState, name: str, streams: Streams, question: Question, budget: float
) -> Iterator[StateStatistics]:
    """budget: the share of keyed state that may be read, 1.0 for all."""
    keyed: dict[str, _State] = {}
    tables: list[_Table] = []
    grouped: list[tuple[int, KeyGroupsHandle]] = []
    for subtask in operator.subtasks:
        if subtask.raw_keyed is not None:
            _timers(keyed, subtask.index, subtask.raw_keyed, streams)
        handle = subtask.managed_keyed
        if handle is None:
            continue
        try:
            if budget >= 1.0:
                _whole(keyed, operator, subtask.index, handle, streams, question)
            elif isinstance(handle, IncrementalHandle):
                tables += _tables(keyed, operator, subtask.index, handle, streams, question)
            elif isinstance(handle, KeyGroupsHandle):
                grouped.append((subtask.index, handle))
            else:
                size = state_size(handle)
                _state(keyed, None, "keyed").trouble[f"changes of {size} bytes are not read for statistics"] = None
        except FormatError as error:
            _state(keyed, None, "keyed").trouble[f"{SubtaskId(operator.id, subtask.index)}: {error}"] = None
    if grouped:
        _some_groups(keyed, operator, grouped, streams, question, budget)
    if tables:
        _sample(keyed, tables, budget, SPREAD)
    subtasks = [subtask.index for subtask in operator.subtasks]
    for state in keyed.values():
        if state.hidden_by is not None:
            state.trouble[f"{state.hidden} bytes from a value of {state.hidden_by} on cannot be told apart"] = None
    for state_name, state in keyed.items():
        sample = Sample(state.units, state.read, state.of, state.bytes) if state.sampled else None
        yield of_state(
            name, state_name or None, state.kind, state.tally, SAMPLED if state.sampled else LIVE, subtasks=subtasks,
            groups=operator.max_parallelism, at=question.taken, ttl=question.ttl, sample=sample,
            unknown="; ".join(state.trouble) or None, whole=not state.trouble or state.sampled,
        )  # fmt: skip
    yield from _operators_own(operator, name, streams, question, keyed)


def _state(states: dict[str, _State], name: str | None, kind: str) -> _State:
    return states.setdefault(name or "", _State(kind))


# -- all rows ---------------------------------------------------------------------------------------------


def _whole(
    states: dict[str, _State], operator: OperatorState, subtask: int, handle: KeyedHandle, streams: Streams,
    question: Question,
) -> None:  # fmt: skip
    for block in read_blocks(handle, streams, operator.max_parallelism, types=question.types, measure=True):
        state = _state(states, block.table.name, block.table.info.word)
        size = block.bytes if block.sizes is None else sum(key + value for key, value in block.sizes)
        state.tally.count(subtask, block.group, len(block.keys), size)
        _remember(state, block)
        for behind in _behind(block):
            other = _state(states, behind, "keyed")
            other.trouble["some of it lies behind values of a class of its own, which have no length"] = None
    for state in states.values():
        state.tally.end()
        state.tally.measured &= not isinstance(handle, ChangelogHandle)


def _timers(states: dict[str, _State], subtask: int, handle: KeyedHandle, streams: Streams) -> None:
    """Timers in raw keyed state, which lay in the memory of a task: they are read whole."""
    try:
        for block in raw_timers.read(handle, streams):
            state = _state(states, block.table.name, block.table.info.word)
            state.tally.count(subtask, block.group, len(block.keys), block.bytes)
            state.tally.measured = False
            _remember(state, block)
    except FormatError as error:
        _state(states, None, "raw keyed").trouble[str(error)] = None


def _remember(state: _State, block: RowBlock) -> None:
    """The large ones of a block's rows, and times."""
    if block.problem is not None:
        state.trouble[str(block.problem)] = None
    if block.hidden is not None:
        state.hidden, state.hidden_by = state.hidden + block.hidden.bytes, block.hidden.name
    for key, (key_bytes, value_bytes) in zip(block.keys, block.sizes or (), strict=False):
        state.tally.row(key, block.group, key_bytes, value_bytes)
    for time in _due(block):
        state.tally.timer(time)
    for time in _accessed(block):
        state.tally.accessed(time)


def _behind(block: RowBlock) -> tuple[str, ...]:
    """States of which something is lost behind a block."""
    return block.hidden.states if block.hidden is not None else ()


def _due(block: RowBlock) -> list[int]:
    return [time for time in block.values if isinstance(time, int)] if block.table.timers else []


def _accessed(block: RowBlock) -> Iterator[int]:
    """Last accesses: of list state, of each element."""
    table = block.table
    if table.timers or table.item.kind != "ttl":
        return
    for value in block.values:
        for item in value if table.is_list and isinstance(value, list) else (value,):
            if isinstance(item, tuple) and item and isinstance(item[0], int):
                yield item[0]


# -- tables of RocksDB ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Table:
    """One table of a subtask. size: packed."""

    subtask: int
    facts: TableFacts
    reader: PairReader
    size: int
    groups: range

    @property
    def rows(self) -> int:
        """Versions of keys that are no deletions."""
        return self.facts.entries - self.facts.deletions

    @property
    def bytes(self) -> int:
        """Uncompressed."""
        return self.facts.key_bytes + self.facts.value_bytes


def _tables(
    states: dict[str, _State], operator: OperatorState, subtask: int, handle: IncrementalHandle, streams: Streams,
    question: Question,
) -> Iterator[_Table]:  # fmt: skip
    """The tables of a handle, by their footers and properties."""
    meta, path = described(handle.meta, streams)
    state = keyed_state(meta, path, operator.max_parallelism, question.types, measure=True)
    by_name = {table.name: table for table in state.tables}
    for table in state.tables:
        _state(states, table.name, table.info.word).sampled = True
    for file in (*handle.shared, *handle.private):
        if not file.name.endswith(".sst") or file.stream is None:
            continue
        window = Window(_reading(streams, file.stream), file.stream.size, streams.name(file.stream))
        try:
            facts = TableFacts(window, streams.name(file.stream))
        except FormatError as error:
            _state(states, None, "keyed").trouble[f"a table is left out: {error}"] = None
            continue
        family = by_name.get(facts.family)
        if family is not None:
            yield _Table(subtask, facts, PairReader(family, state), file.stream.size, key_groups(handle))


def _reading(streams: Streams, stream: StreamHandle) -> Any:
    return lambda offset, length: streams.read(stream, offset, length)


def _sample(states: dict[str, _State], tables: Sequence[_Table], budget: float, spread: int) -> None:
    """Rows and bytes from all properties, their spread over key groups from indexes, the rest from blocks."""
    stride = max(1, -(-sum(table.facts.index_bytes for table in tables) // INDEXES))
    by_family: dict[tuple[str, int], list[_Table]] = {}
    for table in tables:
        by_family.setdefault((table.facts.family, table.subtask), []).append(table)
    totals: dict[str, int] = {}
    for table in tables:
        totals[table.facts.family] = totals.get(table.facts.family, 0) + table.size
    peaks: dict[str, list[tuple[int, int, _Table, Span]]] = {}
    number = itertools.count()
    for (family, subtask), mine in by_family.items():
        state = states[family]
        rows, size = sum(table.rows for table in mine), sum(table.bytes for table in mine)
        by_group: dict[int, float] = {}
        chosen, total = mine[::stride], max(1, totals[family]) * len(totals)
        for table in chosen:
            blocks = max(1, round(spread * table.size * stride / total))
            try:
                index = table.facts.spans()
                _groups_of(index, table, by_group)
                state.of += len(index) * len(mine) // len(chosen)
                for span in heapq.nlargest(PEAKS, index, key=lambda span: span.size):
                    peak = (span.size, next(number), table, span)
                    heap = peaks.setdefault(family, [])
                    heapq.heappush(heap, peak)
                    if len(heap) > PEAKS:
                        heapq.heappop(heap)
                step = max(1, len(index) // blocks)
                spread_out = index[step // 2 :: step]
                _runs(state, table, index, spread_out)
                bytes_left = max(1, DATA * table.size * stride // total)
                fair = [span for span, so_far in _running(spread_out) if so_far <= bytes_left]
                _read_blocks(state, table, fair, times=True)
            except FormatError as error:
                state.trouble[f"some of it is left out: {error}"] = None
        weight = sum(by_group.values())
        for group, share in by_group.items():
            state.tally.count(subtask, group, rows * share / weight, size * share / weight)
        if not weight:
            state.tally.count(subtask, -1, rows, size)
    for family, heap in peaks.items():
        largest = sorted(heap, reverse=True)
        for (_, _, table, span), (_, so_far) in zip(largest, _running([span for *_, span in largest]), strict=True):
            if so_far > DATA:
                states[family].trouble[f"a block of {span.size} bytes, with a large value, is not read"] = None
                continue
            try:
                _read_blocks(states[family], table, [span], times=False)
            except FormatError as error:
                states[family].trouble[f"some of it is left out: {error}"] = None


def _running(blocks: Sequence[Span]) -> Iterator[tuple[Span, int]]:
    """Blocks, each with the bytes of all up to it."""
    return zip(blocks, itertools.accumulate(span.size for span in blocks), strict=True)


def _groups_of(index: Sequence[Span], table: _Table, by_group: dict[int, float]) -> None:
    """Adds the rows of a table to its key groups: by the bytes of its blocks, each of which goes from the group of the
    block before to its own."""
    packed = max(1, sum(span.size for span in index))
    low, high, width = table.groups.start, table.groups.stop - 1, table.reader.prefix
    sizes: dict[int, float] = {}
    before: int | None = None
    for last_key, _, size in index:
        last = min(max(int.from_bytes(last_key[:width], "big"), low), high)
        if before is None or before >= last:
            sizes[last] = sizes.get(last, 0.0) + size
        else:
            for group in range(before, last + 1):
                sizes[group] = sizes.get(group, 0.0) + size / (last - before + 1)
        before = last
    for group, share in sizes.items():
        by_group[group] = by_group.get(group, 0.0) + table.rows * share / packed


def _read_blocks(state: _State, table: _Table, chosen: Sequence[Span], *, times: bool) -> None:
    """Remembers what is large in some blocks, and where they are a fair sample, times."""
    own = table.reader.table
    for span in chosen:
        state.read += 1
        state.bytes += span.size
        block: RowBlock | None = None
        for entry in table.facts.read(span):
            if entry.kind in (DELETION, SINGLE_DELETION):
                continue
            group = table.reader.group(entry.key)
            if block is None or block.group != group:
                if block is not None:
                    _take(state, block, times)
                block = own.block(group)
            problem = table.reader.add(block, entry.key, entry.value)
            if problem is not None:
                state.trouble[problem] = None
        if block is not None:
            _take(state, block, times)
        state.tally.end()


def _take(state: _State, block: RowBlock, times: bool) -> None:
    for key, (key_bytes, value_bytes) in zip(block.keys, block.sizes or (), strict=False):
        state.tally.row(key, block.group, key_bytes, value_bytes)
    if times:
        for time in _due(block):
            state.tally.timer(time)
        for time in _accessed(block):
            state.tally.accessed(time)


def _runs(state: _State, table: _Table, index: Sequence[Span], chosen: Sequence[Span]) -> None:
    """Keys that fill several blocks, as one with many entries of a map does: index keys of those begin alike."""
    packed = max(1, sum(span.size for span in index))
    for prefix, group in {_row_key(table, span.last) for span in chosen} - {(b"", -1)}:
        size = sum(span.size for span in _beginning(index, prefix))
        if size and table.reader.table.is_map and sum(1 for _ in _beginning(index, prefix)) > 1:
            key = _key_of(table, prefix)
            share = size / packed
            state.tally.key(Large(round(table.bytes * share), shown(key), group, round(table.rows * share)))


def _beginning(index: Sequence[Span], prefix: bytes) -> Iterator[Span]:
    """The blocks whose keys begin with these bytes: they lie beside each other."""
    low, high = 0, len(index)
    while low < high:
        middle = (low + high) // 2
        if index[middle].last < prefix:
            low = middle + 1
        else:
            high = middle
    return itertools.takewhile(lambda span: span.last.startswith(prefix), itertools.islice(index, low, None))


def _row_key(table: _Table, key: bytes) -> tuple[bytes, int]:
    """The bytes of an index key up to the end of the row's key, and its group; none if it was cut before."""
    try:
        _, end = table.reader.table.key.read(key, table.reader.prefix)
    except (HiddenValue, *BROKEN):
        return b"", -1
    return (key[:end], table.reader.group(key)) if end <= len(key) else (b"", -1)


def _key_of(table: _Table, prefix: bytes) -> object:
    return table.reader.table.key.read(prefix, table.reader.prefix)[0]


# -- key groups -------------------------------------------------------------------------------------------


def _some_groups(
    states: dict[str, _State], operator: OperatorState, handles: Sequence[tuple[int, KeyGroupsHandle]],
    streams: Streams, question: Question, budget: float,
) -> None:  # fmt: skip
    """Rows of some key groups, evenly spread; the others have as many for their bytes, which the offsets tell."""
    every = [(subtask, handle, *span) for subtask, handle in handles for span in spans(handle)]
    stride = max(1, round(1 / budget))
    rows: dict[str, float] = {}
    sizes: dict[str, float] = {}
    read = drawn = 0
    for subtask, handle, group, begin, end in every[min(stride, len(every)) // 2 :: stride]:
        try:
            blocks = _group_blocks(operator, handle, group, begin, end, streams, question)
            if blocks is None:
                message = f"key group {group} of {subtask}, of {end - begin} bytes, is too large for a sample"
                _state(states, None, "keyed").trouble[message] = None
                continue
            for block in blocks:
                name = block.table.name
                state = _state(states, name, block.table.info.word)
                state.sampled, state.units = True, "key groups"
                rows[name] = rows.get(name, 0.0) + len(block.keys)
                sizes[name] = sizes.get(name, 0.0) + sum(map(sum, block.sizes or ()))
                _remember(state, block)
        except FormatError as error:
            _state(states, None, "keyed").trouble[f"{SubtaskId(operator.id, subtask)}: {error}"] = None
            continue
        read, drawn = read + end - begin, drawn + 1
    for name in rows:
        state = states[name]
        state.tally.end()
        state.read, state.of, state.bytes = drawn, len(every), read
        for subtask, _, group, begin, end in every:
            share = (end - begin) / max(1, read)
            state.tally.count(subtask, group, rows[name] * share, sizes[name] * share)


def _group_blocks(
    operator: OperatorState, handle: KeyGroupsHandle, group: int, begin: int, end: int, streams: Streams,
    question: Question,
) -> Iterator[RowBlock] | None:  # fmt: skip
    """The rows of one key group, a piece at a time where its layout allows; None if it is too large."""
    first = min((offset for offset in handle.offsets if offset), default=None)
    meta, path = described(handle.stream, streams, first)
    if not meta.compressed and keyed_canonical.is_canonical(handle, streams, meta):
        state = keyed_state(meta, path, operator.max_parallelism, question.types, measure=True)
        return keyed_canonical.pieces(handle, streams, state, group, begin, end) if end - begin <= WALKED else None
    if end - begin > LARGEST_GROUP:
        return None
    return read_blocks(
        handle, streams, operator.max_parallelism, groups=range(group, group + 1), types=question.types, measure=True
    )


# -- operator state ---------------------------------------------------------------------------------------


def _operators_own(
    operator: OperatorState, name: str, streams: Streams, question: Question, keyed: Container[str | None]
) -> Iterator[StateStatistics]:
    """Elements and bytes by subtask, from the offsets; entries of broadcast state are counted where it is small. keyed:
    the names of its keyed states."""
    states: dict[str, _State] = {}
    for subtask in operator.subtasks:
        handle = subtask.managed_operator
        if handle is None or handle.stream is None:
            continue
        bounds = sorted({offset for part in handle.states for offset in part.offsets} | {handle.stream.size})
        ends = dict(itertools.pairwise(bounds))
        maps = {}
        if any(part.mode is Mode.BROADCAST for part in handle.states) and handle.stream.size <= OPERATORS_OWN:
            try:
                maps = {rows.name: len(rows.values) for rows in read_operator_state(handle, streams)}
            except FormatError as error:
                for part in handle.states:
                    _state(states, part.name, OPERATOR_WORDS[part.mode]).trouble[str(error)] = None
        for part in handle.states:
            state = _state(states, part.name, OPERATOR_WORDS[part.mode])
            size = sum(ends.get(offset, offset) - offset for offset in part.offsets)
            rows = maps.get(part.name, len(part.offsets)) if part.mode is Mode.BROADCAST else len(part.offsets)
            state.tally.count(subtask.index, -1, rows, size)
            state.tally.measured = False
    for state_name, state in states.items():
        yield of_state(
            name, shown_name(state_name, keyed), state.kind, state.tally, LIVE,
            subtasks=[s.index for s in operator.subtasks], groups=0, at=question.taken, ttl=question.ttl,
            unknown="; ".join(state.trouble) or None,
        )  # fmt: skip



