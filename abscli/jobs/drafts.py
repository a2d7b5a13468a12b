"""What a job in Python has said so far: operators in the order of their lines, and loops that wait to be closed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from abscli.jobs.lines import Line, refused
from formats.job.model import Kind, Partition


@dataclass(frozen=True, slots=True)
class Input:
    """One that an operator reads.

    source: the id of an operator; the number of a loop stands for those that close it.
    partition, key, replayable, output: as of an edge; None: left to the reader of job files.
    """

    source: str | int
    partition: Partition | None = None
    key: tuple[str, ...] | None = None
    replayable: bool = False
    output: str | None = None

    @property
    def plain(self) -> bool:
        """Whether nothing was said of the edge."""
        return self.partition is None and not self.replayable and self.output is None


@dataclass(frozen=True, slots=True)
class DraftOperator:
    """One operator. work: what a job file has under its kind; marks: its other members."""

    id: str
    line: Line
    kind: Kind
    work: Any
    inputs: tuple[Input, ...]
    marks: Mapping[str, object]


@dataclass(slots=True)
class DraftLoop:
    """A loop that was begun. closing: what comes back, once that is said."""

    line: Line
    closing: tuple[Input, ...] = ()
    closed_at: Line | None = None


@dataclass(slots=True)
class Drafts:
    """The whole job so far.

    name: its own; file: that it stands in, as messages name it; line: on which it begins.
    directory: where workers look for its functions, and what its paths are relative to.
    marks: what stands at the top of a job file.
    """

    name: str
    line: Line
    directory: str
    marks: Mapping[str, object]
    operators: dict[str, DraftOperator] = field(default_factory=dict)
    loops: list[DraftLoop] = field(default_factory=list)
    moved: list[tuple[Line, str, str]] = field(default_factory=list)
    removed: list[tuple[Line, str]] = field(default_factory=list)

    def add(self, operator: DraftOperator) -> None:
        """BadFile where the id is taken."""
        before = self.operators.get(operator.id)
        if before is not None:
            place = f"line {before.line.line}"
            place += "" if before.line.file == operator.line.file else f" of {before.line.file}"
            both = f"this {operator.kind}, and the {before.kind} of {place}"
            message = f"two operators have the id {operator.id!r}: {both}"
            raise refused(operator.line, message, "give one of them another with id=...")
        self.operators[operator.id] = operator

    def begin_loop(self, line: Line) -> int:
        """The number of a new loop."""
        self.loops.append(DraftLoop(line))
        return len(self.loops) - 1

    def close_loop(self, number: int, closing: tuple[Input, ...], line: Line) -> None:
        """BadFile for a loop that is closed already."""
        loop = self.loops[number]
        if loop.closed_at is not None:
            raise refused(
                line, f"this loop was closed on line {loop.closed_at.line} already",
                "close it once, by several streams with closed_by(one.merge(another))",
            )  # fmt: skip
        loop.closing, loop.closed_at = closing, line

    def inputs_of(self, operator: DraftOperator) -> Iterator[Input]:
        """What it reads, by ids: what closes a loop in the loop's place. What was said where the loop is closed counts
        before what was said of the loop."""
        for given in operator.inputs:
            if isinstance(given.source, str):
                yield given
                continue
            for closing in self._closing(given.source):
                yield closing if not closing.plain else replace(given, source=closing.source)

    def _closing(self, number: int, above: frozenset[int] = frozenset()) -> Iterator[Input]:
        for closing in self.loops[number].closing:
            if isinstance(closing.source, str):
                yield closing
            elif closing.source != number and closing.source not in above:
                yield from self._closing(closing.source, above | {number})

    def faults(self) -> Iterator[tuple[Line, str, str]]:
        """Loops that are none: line, message and hint of each."""
        readers: dict[int, list[str]] = {number: [] for number in range(len(self.loops))}
        outputs: dict[str, list[str]] = {id: [] for id in self.operators}
        for operator in self.operators.values():
            for number in {given.source for given in operator.inputs if isinstance(given.source, int)}:
                readers[number].append(operator.id)
            for given in self.inputs_of(operator):
                if isinstance(given.source, str):
                    outputs[given.source].append(operator.id)
        for number, loop in enumerate(self.loops):
            if loop.closed_at is None:
                yield loop.line, "this loop is never closed", "say what comes back with loop.closed_by(stream)"
                continue
            reached, waiting = set(readers[number]), list(readers[number])
            while waiting:
                fresh = set(outputs[waiting.pop()]) - reached
                reached |= fresh
                waiting += fresh
            for closing in loop.closing:
                if isinstance(closing.source, str) and closing.source not in reached:
                    begin = f"the loop of line {loop.line.line}"
                    message = f"{closing.source} does not come from {begin}: there is no cycle"
                    hint = "close it by what is made of the loop's own stream; merge or union joins other streams"
                    yield loop.closed_at, message, hint
