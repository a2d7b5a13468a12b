"""The state of single operators rewritten, as the lines of a file of changes make it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import msgspec

from formats.flink import facts
from formats.flink.channels import has_channels
from formats.flink.connectors import old_kafka
from formats.flink.connectors.split_kinds import Split
from formats.flink.connectors.splits import STATE, moved_to, read_element, split_moved_to
from formats.flink.files.streams import Streams
from formats.flink.ids import OperatorHash
from formats.flink.metadata.handles import KeyGroupsHandle, Metadata, OperatorState, RelativeHandle, Subtask
from formats.flink.rewriting.canonical import TAG, write_canonical
from formats.flink.rewriting.changes import Change, RemoveKey, RemoveSplit, SetKey, SetPosition
from formats.flink.rewriting.enumerators import with_waiting
from formats.flink.rewriting.keys import KeyFinder, Met, with_new
from formats.flink.rewriting.operator_state import write_operator_state
from formats.flink.rewriting.pair import KeyedPairs, Pair
from formats.flink.rewriting.pairs import keyed_pairs
from formats.flink.rewriting.prefix import CannotRewrite, Prefix, asked_in
from formats.flink.rewriting.rehash import Dealt, Regroup
from formats.flink.rewriting.resolve import Work
from formats.flink.rewriting.sink import Sink
from formats.flink.state.keyed_tables import Table, Types
from formats.flink.state.meta import StateInfo, StateKind
from formats.flink.state.rows import OPERATOR_WORDS
from formats.job.model import key_group_range

replace = msgspec.structs.replace


class Rewriter:
    """Writes the new streams of a copy.

    canonical: also of operators of which no keyed state is changed, unless all of it has that layout already.
    types: of states that Flink keeps as bytes, or whose class only the job has.
    own: their handles.
    met: what lines have met; without those that have met nothing.
    written: what was written of each keyed state, by operator's hash and state.
    reasons: why a key that is not there cannot be made.
    """

    def __init__(
        self, metadata: Metadata, streams: Streams, sink: Sink, *, canonical: bool = False, types: Types | None = None
    ) -> None:
        self.own: set[RelativeHandle] = set()
        self.met: dict[Change, Met] = {}
        self.written: dict[tuple[OperatorHash, str], Met] = {}
        self._canonical = canonical
        self._types = types
        self.reasons: dict[Change, str] = {}
        self._streams = streams
        self._sink = sink
        self._unaligned = has_channels(metadata)
        # names that no file of the snapshot has, which may be such a copy itself
        there = {os.path.basename(handle.path) for _, _, handle in facts.file_handles(metadata)}
        number = 1
        while any(name.startswith(f"rewritten-{number}-") for name in there):
            number += 1
        self._stem = f"rewritten-{number}-"

    def changed(self, work: Work) -> OperatorState:
        """An operator as the lines make it, but for where it moves. CannotRewrite, Damaged, NotFound."""
        operator = work.operator
        if work.states or work.keys or work.max_parallelism is not None or self._to_convert(operator):
            operator = self._keyed(work)
        if work.states or work.splits:
            operator = replace(operator, subtasks=tuple(self._operator_state(s, work) for s in operator.subtasks))
        if work.splits:
            waiting = with_waiting(operator, lambda split, body: self._waiting(split, body, work))
            operator = operator if waiting is None else replace(operator, coordinator=waiting)
        for line in (*work.keys, *work.splits.values()):
            if isinstance(line, SetKey | SetPosition) and line not in self.met:
                subject = f"state {line.state!r}" if isinstance(line, SetKey) else f"split {line.split!r}"
                reason = self.reasons.get(line, f"it has no {subject}, or not in the task that it would belong to")
                with asked_in(line.line):
                    raise CannotRewrite(reason, hint="abs inspect lists what it has")
        return operator

    # -- keyed state --------------------------------------------------------------------------------------

    def _to_convert(self, operator: OperatorState) -> bool:
        handles = [subtask.managed_keyed for subtask in operator.subtasks if subtask.managed_keyed is not None]
        return self._canonical and not all(isinstance(one, KeyGroupsHandle) and one.tag == TAG for one in handles)

    def _keyed(self, work: Work) -> OperatorState:
        operator = work.operator
        if any(isinstance(line, RemoveKey) and line.state is None for line in work.keys):
            self._check_timers(operator)
        most = operator.max_parallelism if work.max_parallelism is None else work.max_parallelism.number
        grouped = most != operator.max_parallelism
        keyed = {}
        for subtask in operator.subtasks:
            if subtask.managed_keyed is not None:
                pairs = keyed_pairs(subtask.managed_keyed, self._streams, operator.max_parallelism, self._types)
                keyed[subtask.index] = _Edit(pairs, work, self)
        if grouped:
            self._check_regrouping(operator)
        # all subtasks or none: what one task starts from must be of one layout
        if not grouped and not self._to_convert(operator) and not any(edit.needed() for edit in keyed.values()):
            return operator
        for edit in keyed.values():
            _check_kinds(edit)
        if grouped:
            handles = self._regrouped(operator, keyed, most)
        else:
            handles = {index: self._write(operator, index, edit.pairs.groups, edit.prefix, edit.changed())
                       for index, edit in keyed.items()}  # fmt: skip
        subtasks = {subtask.index: subtask for subtask in operator.subtasks}
        for index, handle in handles.items():
            subtasks[index] = replace(subtasks.get(index, Subtask(index)), managed_keyed=handle)
        return replace(operator, subtasks=tuple(subtasks.values()), max_parallelism=most)

    def _check_timers(self, operator: OperatorState) -> None:
        if any(subtask.raw_keyed is not None for subtask in operator.subtasks):
            raise CannotRewrite(
                "a key of all states: it has raw keyed state, which may be timers of that key (RocksDB with timers on "
                "the heap), and would fire without the key's state",
                hint="name the states to leave the timers, or take a savepoint, which has them beside the states",
            )

    def _check_regrouping(self, operator: OperatorState) -> None:
        if any(subtask.raw_keyed is not None for subtask in operator.subtasks):
            raise CannotRewrite("max_parallelism: it has raw keyed state, of a format of its operator's own")
        if self._unaligned:
            raise CannotRewrite(
                "max_parallelism: the checkpoint is unaligned, and records in flight are on the channels of their key "
                "groups", hint="take an aligned checkpoint, or a savepoint",
            )  # fmt: skip

    def _regrouped(
        self, operator: OperatorState, keyed: dict[int, _Edit], most: int
    ) -> dict[int, KeyGroupsHandle | None]:
        if not keyed:
            return {}
        if any(subtask.finished for subtask in operator.subtasks):
            raise CannotRewrite("max_parallelism: some of its tasks had finished, and cannot be given key groups")
        # a task that has had no record may have no state, and is given some like the others
        owners = {
            index: key_group_range(index, operator.parallelism, most) for index in range(operator.parallelism)
        }
        prefix, number = _together(list(keyed.values()))
        with Dealt(owners) as dealt:
            for edit in keyed.values():
                regroup = Regroup(edit.pairs.state, most)
                tables = [(table, number[table.name]) for table in edit.tables]
                dealt.take(
                    regroup(pair, tables[pair.state][0])._replace(state=tables[pair.state][1])
                    for pair in edit.changed()
                )
            return {
                index: self._write(operator, index, groups, prefix, dealt.pairs(index))
                for index, groups in owners.items()
            }

    def _write(
        self, operator: OperatorState, index: int, groups: range, prefix: Prefix, pairs: Iterator[Pair]
    ) -> KeyGroupsHandle | None:
        if not prefix.infos:
            for _ in pairs:  # counts what goes
                pass
            return None
        name = f"{self._stem}{operator.id}-{index}-keyed"
        handle = write_canonical(self._sink, name, prefix.encode(), groups, pairs)
        assert isinstance(handle.stream, RelativeHandle)
        self.own.add(handle.stream)
        return handle

    def meet(self, line: Change, kind: str | None = None) -> Met:
        """What a line has met so far. kind: of a state that it is about."""
        met = self.met.setdefault(line, Met())
        if kind is not None:
            met.kinds[kind] = None
        return met

    def wrote(self, operator: OperatorHash, table: Table) -> Met:
        """What was written of a state so far. operator: its hash."""
        return self.written.setdefault((operator, table.name), Met(kinds={table.info.word: None}))

    # -- operator state -----------------------------------------------------------------------------------

    def _operator_state(self, subtask: Subtask, work: Work) -> Subtask:
        handle = subtask.managed_operator
        if handle is None:
            return subtask
        gone = [part for part in handle.states if part.name in work.states]
        source = bool(work.splits) and any(part.name in (STATE, old_kafka.STATE) for part in handle.states)
        if not gone and not source:
            return subtask
        for part in gone:
            met = self.meet(work.states[part.name], OPERATOR_WORDS[part.mode])
            met.rows += len(part.offsets)

        def element(name: str, data: bytes) -> bytes | None:
            return self._split(name, data, work) if name in (STATE, old_kafka.STATE) and source else data

        name = f"{self._stem}{work.operator.id}-{subtask.index}-operator"
        new = write_operator_state(handle, self._streams, self._sink, name, without=work.states, edit=element)
        before, after = handle.stream, new.stream if new is not None else None
        if gone:
            # the states of a stream have no sizes of their own: what it is smaller by is theirs together
            met.bytes += (before.size if before is not None else 0) - (after.size if after is not None else 0)
        if isinstance(after, RelativeHandle):
            self.own.add(after)
        return replace(subtask, managed_operator=new)

    def _split(self, name: str, data: bytes, work: Work) -> bytes | None:
        """An element of a state of splits as a line makes it; None if it goes."""
        old = name == old_kafka.STATE
        split = old_kafka.read_position(data) if old else read_element(data)
        line = work.splits.get(split.id or "")
        if line is None:
            return data
        at = _position(split)
        if isinstance(line, RemoveSplit):
            self._met_split(line, at, len(data))
            return None
        new = old_kafka.position_moved_to(data, line.position) if old else moved_to(data, line.position)
        return self._set_split(line, split, at, new)

    def _waiting(self, split: Split, body: bytes, work: Work) -> bytes | None:
        """The same of a split that no task has yet."""
        line = work.splits.get(split.id or "")
        if line is None:
            return body
        at = f"with no task yet, {_position(split)}"
        if isinstance(line, RemoveSplit):
            self._met_split(line, at, len(body))
            return None
        return self._set_split(line, split, at, split_moved_to(split, body, line.position) if body else None)

    def _met_split(self, line: RemoveSplit | SetPosition, before: str, size: int = 0) -> None:
        met = self.meet(line)
        met.rows += 1
        met.bytes += size
        met.before = before

    def _set_split(self, line: SetPosition, split: Split, before: str, new: bytes | None) -> bytes:
        """The split where reading goes on at the position of a line; CannotRewrite if it cannot."""
        with asked_in(line.line):
            if new is None:
                message = f"split {line.split!r} is of a kind whose position is not known, or takes no such one"
                raise CannotRewrite(message)
            if split.end is not None and line.position > split.end + (split.kind == "number-sequence"):
                message = f"split {line.split!r} ends at {split.end}, position {line.position} is behind that"
                raise CannotRewrite(message)
        self._met_split(line, before)
        self.met[line].after = f"at {line.position}"
        return new


def _position(split: Split) -> str:
    """Where it is read on, in words."""
    at = split.next if split.position is None else split.position
    return "at an unknown position" if at is None else f"at {at}"


@dataclass(slots=True)
class _KeyLine:
    line: RemoveKey | SetKey
    finder: KeyFinder


def _check_kinds(edit: _Edit) -> None:
    """What Flink does not start from: tried with 2.2.0, heap and RocksDB."""
    for table in edit.tables:
        if table.info.kind is StateKind.KEY_VALUE_V2:
            raise CannotRewrite(
                f"state {table.name!r} is of the asynchronous API on ForSt: no other state backend reads how that is "
                "described", path=edit.pairs.state.path, hint="leave keyed state of this operator as it is",
            )  # fmt: skip


def _together(edits: list[_Edit]) -> tuple[Prefix, dict[str, int]]:
    """What stands before the states of all tasks of an operator, and the number of each: a task may lack a state that
    it had no use for yet. CannotRewrite where two describe one differently."""
    described: dict[str, tuple[StateInfo, bytes]] = {}
    head = edits[0].prefix.head
    for edit in edits:
        for info, data in edit.prefix.infos:
            if edit.prefix.head != head or described.setdefault(info.name, (info, data))[1] != data:
                raise CannotRewrite("max_parallelism: its tasks describe their states differently")
    return Prefix(head, tuple(described.values())), {name: i for i, name in enumerate(described)}


def _check_apart(lines: list[_KeyLine]) -> None:
    """CannotRewrite where two lines name one key of a state, or one entry of its map, in other words."""
    for i, own in enumerate(lines):
        for other in lines[:i]:
            if own.line.state == other.line.state and own.finder.is_same(other.finder):
                first, second = sorted((own.line.line, other.line.line))
                raise CannotRewrite(f"lines {first} and {second} are of the same key of state {own.line.state!r}")


class _Edit:
    """The keyed state of one subtask as the lines make it.

    kept: its states that stay, by their old numbers.
    tables: of those, by their new ones.
    prefix: what stands before them.
    """

    def __init__(self, pairs: KeyedPairs, work: Work, rewriter: Rewriter) -> None:
        self.pairs = pairs
        self._most = work.operator.max_parallelism
        self._operator = work.operator.id
        self._rewriter = rewriter
        self._gone = {}
        self._lines: dict[int, list[_KeyLine]] = {}
        for table in pairs.state.tables:
            if table.name in work.states:
                self._gone[table.index] = rewriter.meet(work.states[table.name], table.info.word)
                continue
            own = [line for line in work.keys if line.state in (None, table.name)]
            if own:
                # what goes does so before what is set comes, wherever in the file it stands
                own.sort(key=lambda line: isinstance(line, SetKey))
                self._lines[table.index] = [self._finder(line, table) for line in own]
                _check_apart(self._lines[table.index])
        self.kept = [table.index for table in pairs.state.tables if table.index not in self._gone]
        self.tables = [pairs.state.tables[index] for index in self.kept]
        self.prefix = pairs.prefix.without(work.states)

    def _finder(self, line: RemoveKey | SetKey, table: Table) -> _KeyLine:
        with asked_in(line.line):
            return _KeyLine(line, KeyFinder(table, self.pairs.state, line.key, line.map_key))

    def needed(self) -> bool:
        """Whether a line has something to do here. Of keys that go only the state says whether they are there."""
        if self._gone or any(isinstance(own.line, SetKey) for lines in self._lines.values() for own in lines):
            return True
        return bool(self._lines) and any(
            own.finder.finds(pair) for pair in self.pairs.pairs() for own in self._lines.get(pair.state, ())
        )

    def changed(self) -> Iterator[Pair]:
        """What stays, with new numbers of states."""
        number = {old: new for new, old in enumerate(self.kept)}
        written = [self._rewriter.wrote(self._operator, table) for table in self.tables]
        for pair in with_new(self._remaining(), self._new()):
            new = pair._replace(state=number[pair.state])
            written[new.state].rows += 1
            written[new.state].bytes += len(pair.key) + len(pair.value)
            yield new

    def _remaining(self) -> Iterator[Pair]:
        for pair in self.pairs.pairs():
            gone = self._gone.get(pair.state)
            if gone is not None:
                gone.rows += 1
                gone.bytes += len(pair.key) + len(pair.value)
                continue
            lines = self._lines.get(pair.state)
            kept = pair if lines is None else self._edited(pair, lines)
            if kept is not None:
                yield kept

    def _edited(self, pair: Pair, lines: list[_KeyLine]) -> Pair | None:
        for own in lines:
            if not own.finder.finds(pair):
                continue
            met = self._rewriter.meet(own.line, own.finder.table.info.word)
            met.rows += 1
            met.bytes += len(pair.key) + len(pair.value)
            if isinstance(own.line, RemoveKey):
                return None
            met.before = own.finder.shown(pair.value)
            with asked_in(own.line.line):
                pair = pair._replace(value=own.finder.value(own.line.value, pair.value))
            met.after = own.finder.shown(pair.value)
        return pair

    def _new(self) -> list[tuple[Pair, Callable[[], bool]]]:
        """Pairs for keys that may not be there, each with whether it is to be put where it belongs."""
        new: list[tuple[Pair, Callable[[], bool]]] = []
        for lines in self._lines.values():
            for own in lines:
                if not isinstance(own.line, SetKey):
                    continue
                try:
                    pair = own.finder.new(own.line.value, self._most)
                except CannotRewrite as error:
                    self._rewriter.reasons[own.line] = error.message
                    continue
                if pair.group in self.pairs.groups:
                    new.append((pair, partial(self._add, own, pair)))
        return new

    def _add(self, own: _KeyLine, pair: Pair) -> bool:
        if own.line in self._rewriter.met:
            return False
        met = self._rewriter.meet(own.line)
        met.after = own.finder.shown(pair.value)
        return True
