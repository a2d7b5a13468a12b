"""Names in the facts of a store, checked in one place when a fact file is read, so that nothing behind has to doubt
them: a path stays in the store, a name is one name, a job graph is of a size that fits into memory.

Every fact file passes `check_facts`, every job graph `check_graph`; the bounds of numbers stand in their types.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from formats.errors import Damaged, UnsafePath
from formats.job.expand import size_of
from formats.job.model import MAX_CHANNELS, MAX_TASKS, Topology
from formats.native import layout
from formats.native.facts import (
    ID_LENGTH,
    ManifestFacts,
    PackFacts,
    PartFacts,
    RecoveryFacts,
    SinkFile,
    StateFileFacts,
    TagFacts,
    TasksFacts,
    files_of,
)
from formats.native.sink import epoch_of_part, part_name
from formats.native.transactions import transaction_of
from formats.reference import is_tag_name
from formats.storage import check_path
from formats.storage.ranges import range_of
from formats.view import FileFacts

_ID = r"[A-Za-z][A-Za-z0-9_.-]*"
_TASK = rf"{_ID}/(?:0|[1-9][0-9]{{0,9}})"
_OPERATOR = re.compile(_ID)
_TASK_NAME = re.compile(_TASK)
_TASK_NAMES = re.compile(rf"(?:{_TASK}\n)*")
_SUBTASKS = re.compile(r"[0-9]{1,10}(?:-[0-9]{1,10})?(?:,[0-9]{1,10}(?:-[0-9]{1,10})?)*")
_CHANNEL = re.compile(rf"{_TASK}->{_TASK}")
_ATTEMPT = re.compile(rf"[0-9a-f]{{{ID_LENGTH}}}")
"""Its id, part of paths."""
_DIGEST = re.compile(r"[0-9a-f]{64}")
_SINK_PART = re.compile(r"part-[0-9]{5,10}-[0-9]{10}\.(?:jsonl|csv|parquet)")
_HEX = frozenset("0123456789abcdef")
_DOUBTFUL = ("\\", "\0", "//", "/.", "\n.", "\n/", "/\n", "\n\n")
"""What no plain path has, when paths stand one a line."""


def check_facts(facts: msgspec.Struct, where: str) -> None:
    """Raise UnsafePath for a path or name that could lead elsewhere, or that no store of abs has. where: the fact file,
    for messages."""
    if (sha256 := getattr(facts, "topology_sha256", None)) is not None:
        _name(sha256, _DIGEST, "digest of a job graph", where)
    for field in ("id", "attempt_id"):
        id = getattr(facts, field, None)
        # A tag that `abs rebuild` recreated from its file name does not know the attempt.
        if id is not None and not (isinstance(facts, TagFacts) and id == ""):
            _name(id, _ATTEMPT, "attempt id", where)
    match facts:
        case ManifestFacts():
            _file(facts.tasks_file, where)
            for operator in (*facts.moved, *facts.moved.values(), *facts.removed):
                _name(operator, _OPERATOR, "operator id", where)
        case TagFacts():
            if not is_tag_name(facts.name):
                raise _no_name(facts.name, "tag name", where)
        case RecoveryFacts():
            for operator, subtasks in facts.restart.items():
                _name(operator, _OPERATOR, "operator id", where)
                _name(subtasks, _SUBTASKS, "set of subtasks", where)
        case PartFacts():
            _check_part(facts, where)
        case PackFacts():
            for part in facts.parts:
                _check_part(part, where)
                if part.epoch != facts.epoch:
                    raise Damaged(f"has a part of epoch {part.epoch}, and is of {facts.epoch}", path=where)
        case TasksFacts():
            plain = _all_plain(facts.parts)
            for part in facts.parts:
                if not plain or part.sink or part.positions:
                    _check_part(part, where)
                else:
                    for file in part.state:
                        _row_groups(file, where)
                    for each in files_of(part):
                        _range(each, where)


def _all_plain(parts: Sequence[PartFacts]) -> bool:
    """Whether no task, channel, operator or file in these parts needs a closer look: a column at a time, since there
    may be a hundred thousand."""
    operators: set[str] = set()
    for part in parts:
        operators.update(part.sent, part.received, part.round_robin)
    files: list[FileFacts] = [file for part in parts for file in part.state]
    files += [log.file for part in parts if part.logs for log in part.logs if log.file is not None]
    lines = "".join(["\n" + file.path for file in files]) + "\n"
    digests = [file.sha256 or "" for file in files]
    return (
        _TASK_NAMES.fullmatch("".join([part.task_name + "\n" for part in parts])) is not None
        and all(_OPERATOR.fullmatch(id) for id in operators)
        and (not files or not any(sign in lines for sign in _DOUBTFUL))
        and set(map(len, digests)) <= {64}
        and _HEX.issuperset("".join(digests))
        and all(_ATTEMPT.fullmatch(id) for id in {part.attempt_id for part in parts})
        and min([file.bytes or 0 for file in files], default=0) >= 0
        and min([file.rows or 0 for file in files], default=0) >= 0
        and all(_CHANNEL.fullmatch(log.channel_name) for part in parts if part.logs for log in part.logs)
    )


def _check_part(part: PartFacts, where: str) -> None:
    _name(part.task_name, _TASK_NAME, "task", where)
    _name(part.attempt_id, _ATTEMPT, "attempt id", where)
    for file in part.state:
        _file(file, where)
        _row_groups(file, where)
    for log in part.logs:
        _name(log.channel_name, _CHANNEL, "channel", where)
        if log.file is not None:
            _file(log.file, where)
    for operator in (*part.sent, *part.received, *part.round_robin):
        _name(operator, _OPERATOR, "operator id", where)
    for position in part.positions or ():
        # A source of many files has as many of them in every epoch: the words are made for those that are wrong.
        if (position.offset or 0) < 0 or (position.records or 0) < 0:
            _not_negative(position.offset, f"offset of {position.split!r}", where)
            _not_negative(position.records, f"number of records of {position.split!r}", where)
    for shown in part.sink:
        _sink_file(shown, part, where)


def _file(file: FileFacts, where: str) -> None:
    check_path(file.path)
    _range(file, where)
    _name(file.sha256 or "", _DIGEST, f"digest of {file.path}", where)
    _not_negative(file.bytes, f"size of {file.path}", where)
    _not_negative(file.rows, f"number of rows of {file.path}", where)


def _range(file: FileFacts, where: str) -> None:
    """A range is as long as the file that it is."""
    named = range_of(file.path)
    if named is not None and named.length != file.bytes:
        raise Damaged(f"{file.path}: it has {file.bytes} bytes, in a range of {named.length}", path=where)


def _row_groups(file: StateFileFacts, where: str) -> None:
    """Row groups lie in their file, in front of its footer, one after the other, with key groups that ascend."""
    size = file.bytes or 0
    end = last = 0
    for group in file.row_groups:
        start = f"row group at byte {group.offset}"
        if group.offset < end:
            raise Damaged(f"{file.path}: {start} begins before byte {end}, where the one before it ends", path=where)
        if group.first < last or group.last < group.first:
            span = f"key groups {group.first} to {group.last}"
            raise Damaged(f"{file.path}: {start} has {span}, after one up to {last}", path=where)
        if len(group.sha256) != 64 or not _HEX.issuperset(group.sha256):
            _name(group.sha256, _DIGEST, f"digest of the {start} of {file.path}", where)
        end, last = group.offset + group.bytes, group.last
    if file.key_groups is not None and file.key_groups[0] > file.key_groups[1]:
        raise Damaged(f"{file.path}: {file.key_groups[0]} to {file.key_groups[1]} are not key groups", path=where)
    if not end <= file.footer.offset < size:
        message = f"{file.path} has {size} bytes, row groups up to byte {end} and a footer from {file.footer.offset} on"
        raise Damaged(message, path=where)
    _name(file.footer.sha256, _DIGEST, f"digest of the footer of {file.path}", where)


def _sink_file(file: SinkFile, whose: PartFacts, where: str) -> None:
    """A part is moved by its name, inside of the folder that the job file names."""
    _name(file.name, _SINK_PART, "part of a sink", where)
    _name(file.sha256, _DIGEST, f"digest of {file.name}", where)
    if file.prepared is not None:
        # A transaction of anybody else must not be committed in their place.
        named = transaction_of(file.prepared)
        maker = None if named is None else (named.attempt_id, named.operator, part_name(named.task, named.epoch, "csv"))
        if maker != (whose.attempt_id, whose.operator, file.name):
            raise _no_name(file.prepared, f"transaction of {file.name}", where)
    if file.staged is not None:
        check_path(file.staged)
        place = layout.part_of(file.staged)
        home = layout.home(epoch_of_part(file.name), whose.attempt_id)
        if place is None or not place.file.endswith(layout.ROWS) or (place.home, place.task) != (home, whose.task):
            raise _no_name(file.staged, f"file of {file.name}", where)
    if file.upload is not None:
        stem, _, ending = file.name.rpartition(".")
        own = re.compile(rf"{re.escape(stem)}-[0-9a-f]{{32}}\.{ending}")
        _name(file.upload.object, own, f"object of {file.name}", where)


def _not_negative(number: int | None, noun: str, where: str) -> None:
    if number is not None and number < 0:
        raise Damaged(f"{number} is not a valid {noun}", path=where)


def _name(value: str, pattern: re.Pattern[str], noun: str, where: str) -> None:
    if not pattern.fullmatch(value):
        raise _no_name(value, noun, where)


def _no_name(value: str, noun: str, where: str) -> UnsafePath:
    shown = repr(value if len(value) <= 60 else value[:57] + "...")
    return UnsafePath(
        f"{shown} is not a valid {noun}", path=where, hint="this file was not written by abs; do not trust this store"
    )


def check_graph(topology: Topology, where: str) -> None:
    """Raise UnsafePath for an id that is no name, Damaged for a graph that does not hold or is too large for a store:
    what is made of a graph is as large as its tasks and channels are many."""
    for op in topology.operators:
        _name(op.id, _OPERATOR, "operator id", where)
    for problem in _graph_problems(topology):
        raise Damaged(problem, path=where)
    for number, most, noun in zip(size_of(topology), (MAX_TASKS, MAX_CHANNELS), ("tasks", "channels"), strict=True):
        if number > most:
            raise Damaged(f"has {number} {noun}, the job graph of a store has at most {most}", path=where)


def _graph_problems(topology: Topology) -> Iterator[str]:
    ids = {op.id for op in topology.operators}
    if len(ids) < len(topology.operators):
        yield "names an operator twice"
    for op in topology.operators:
        if not 1 <= op.parallelism <= op.max_parallelism <= 2**31 - 1:
            yield f"operator {op.id[:60]} has parallelism {op.parallelism}, of {op.max_parallelism} at most"
    for edge in topology.edges:
        if edge.source not in ids or edge.target not in ids:
            yield f"has an edge {edge.name[:120]!r} between operators that it does not have"
