"""What `abs inspect` shows of Flink's checkpoints, in Flink's words: `savepoint_metadata` names its columns so.

The facts are those of `formats.flink.facts`, plain on the page as in JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from abscli.text.columns import UNKNOWN, columns, marked, moment, not_shown, number, size, some, wrapped
from abscli.text.inspect import newest_lines
from abscli.text.inspect_epoch import ROWS
from abscli.text.inspect_page import EpochPage, StorePage
from formats.flink.facts import Described, DescribedOperator, DescribedState, Summary
from formats.flink.ids import OperatorHash
from formats.ids import TaskId, edge_name, may_be_operator
from formats.view import ChannelFacts

BARE = 20
"""Operators without state that are named."""

CELL = 60
"""Characters of a serializer that a table shows; json has it whole."""

COLUMNS = (
    "operator-name",
    "operator-uid",
    "operator-uid-hash",
    "operator-parallelism",
    "operator-max-parallelism",
    "operator-subtask-state-count",
    "operator-coordinator-state-size-in-bytes",
    "operator-total-size-in-bytes",
)
"""Those of `savepoint_metadata`, whose `checkpoint-id` stands once, above."""

PARTS = {
    "managed_keyed": "managed keyed",
    "raw_keyed": "raw keyed",
    "managed_operator": "managed operator",
    "raw_operator": "raw operator",
    "input_channels": "in-flight input",
    "output_channels": "in-flight output",
}


def store_text(page: StorePage, *, width: int = 80, ascii: bool = False) -> str:
    """The checkpoints of a job."""
    raw = page.raw or {}
    summaries = {one["epoch"]: msgspec.convert(one, Summary) for one in raw.get("checkpoints", ())}
    title = f"Flink checkpoints {page.path}"
    lines = wrapped(f"{title}, job {page.job}" if page.job else title, width)
    if not page.epochs:
        return "\n".join([*lines, "", "No checkpoints yet."]) + "\n"
    rows = [
        (
            str(epoch.epoch),
            marked(epoch.status, ascii),
            _kind(own),
            *((size(own.state_size), size(own.checkpointed_size)) if own is not None else (UNKNOWN, UNKNOWN)),
            moment(own.modified if own is not None else None),
        )
        for epoch in page.epochs
        for own in (summaries.get(epoch.epoch),)
    ]
    header = ("CHK", "STATUS", "KIND", "STATE SIZE", "CHECKPOINTED", "MODIFIED (UTC)")
    head, *body = columns(header, rows, "rllrrl", width, spare=SPARE)
    lines += ["", head]
    for epoch, line in zip(page.epochs, body, strict=True):
        lines.append(line)
        if epoch.reason:
            lines += wrapped(epoch.reason, width, " " * 16, "       because: ")
    lines += not_shown(header, rows, width, SPARE)
    for name, folder in raw.get("directories", {}).items():
        lines += ["", *wrapped(f"{number(folder['files'])} files, {size(folder['bytes'])}", width, "  ", f"{name}/: ")]
    return "\n".join([*newest_lines(page, width, "checkpoint"), "", *lines]) + "\n"


SPARE = ("CHECKPOINTED",)
"""Columns that a narrow terminal does without."""


def epoch_text(page: EpochPage, *, width: int = 80, ascii: bool = False) -> str:
    """One checkpoint or savepoint: what it is, operators, states, subtasks where few are asked for, splits."""
    if page.raw is None:
        return "\n".join(_status(page, None, width, ascii)) + "\n"
    described = msgspec.convert(page.raw, Described)
    shown = {op.id for op in page.detail.operators}
    operators = sorted((op for op in described.operators if name_of(op) in shown), key=_largest_first)
    bare = [] if page.narrow else [op for op in operators if _is_bare(op)]
    sections = [
        [*_status(page, described, width, ascii), *_sizes(described, width)],
        _operators([op for op in operators if op not in bare], width),
        _bare(bare, width),
        _states(operators, width),
        _finished(operators, width),
        _taken_over(operators, width),
        _subtasks(page, operators, width) if page.narrow else [],
        _channels(page, width),
        _splits(page, operators, width),
        _committables(page, operators, width),
        _masters(described, width),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def name_of(operator: DescribedOperator) -> str:
    """What an operator is called in tasks and channels: its uid, else its hash."""
    uid = operator.operator_uid or operator.proved_uid or ""
    return uid if may_be_operator(uid) else operator.operator_uid_hash


def _labels(operators: Sequence[DescribedOperator]) -> dict[OperatorHash, str]:
    """What tells an operator from the others and can be asked for: uid, else a name that only one has, as
    SQL's operators do, else the hash."""
    names = [operator.operator_name or "" for operator in operators]
    return {
        op.operator_uid_hash: (
            name if name_of(op) == op.operator_uid_hash and name and names.count(name) == 1 else name_of(op)
        )
        for op, name in zip(operators, names, strict=True)
    }


def _kind(summary: Summary | None) -> str:
    """`checkpoint (rocksdb)`, `savepoint, native (heap), stop: suspend`."""
    if summary is None:
        return UNKNOWN
    text = summary.kind + (f", {summary.layout}" if summary.layout else "")
    backends = [name for name in summary.backends if name != summary.layout]
    text += f" ({'+'.join(backends)})" if backends else ""
    text += ", unaligned" if summary.unaligned else ""
    text += ", regional" if summary.regional else ""
    text += f", stop: {summary.stop}" if summary.stop else ""
    return text if summary.kind_known else f"{text}?"


def _status(page: EpochPage, summary: Summary | None, width: int, ascii: bool) -> list[str]:
    facts = page.detail.facts
    lines = wrapped(f"Checkpoint {facts.epoch} of {page.store.path}, job {page.store.job or UNKNOWN}", width)
    words = []
    if summary is not None:
        words = [
            _kind(summary) + ("" if summary.kind_known else " (a guess: its properties are lost or not there)"),
            f"metadata version {summary.metadata_version}, written by {summary.written_by}",
            f"checkpoint-id {summary.checkpoint_id}",
            f"modified {moment(summary.modified)} UTC",
        ]
    lines += wrapped(", ".join(words), width, "  ", f"{marked(facts.status, ascii)}: ")
    if facts.reason:
        lines += wrapped(facts.reason, width, "  ", "  because: ")
    return lines


def _sizes(summary: Summary, width: int) -> list[str]:
    """Both sizes of Flink with what they mean, and what lies on disk."""
    files = f"{number(summary.files)} files, {size(summary.file_bytes)}, each counted once"
    lines = wrapped(f"{size(summary.state_size)}, all that its handles refer to", width, "    ", "  state size: ")
    wrote = f"{size(summary.checkpointed_size)}, what this checkpoint itself wrote, as far as its handles tell"
    lines += wrapped(wrote, width, "    ", "  checkpointed size: ")
    inline = f"; {size(summary.inline_bytes)} within _metadata" if summary.inline_bytes else ""
    shared = f"; {size(summary.shared_bytes)} in files that other checkpoints use too" if summary.shared_bytes else ""
    return lines + wrapped(f"{files}{inline}{shared}", width, "    ", "  on disk: ")


def _operators(operators: Sequence[DescribedOperator], width: int) -> list[str]:
    """As a table where there is room, else a few lines each; the columns' names are Flink's own."""
    if not operators:
        return []
    rows = [_row(operator) for operator in operators]
    short = [column.removeprefix("operator-") for column in COLUMNS]
    table = columns(short, rows, "lllrrrrr", width)
    if max(map(len, table)) <= width:
        return ["Operators: columns of savepoint_metadata, each without its `operator-`", *table]
    lines = ["Operators, by the columns of savepoint_metadata"]
    for row in rows:
        cells = [f"{column} {cell}" for column, cell in zip(COLUMNS[1:], row[1:], strict=True)]
        lines += wrapped(row[0], width, "    ", "  operator-name ")
        lines += wrapped(", ".join(cells), width, "    ", "    ")
    return lines


def _largest_first(operator: DescribedOperator) -> int:
    return -operator.state_size


def _is_bare(operator: DescribedOperator) -> bool:
    """Whether it runs and holds nothing, as most operators of a SQL job do."""
    return not (operator.state_size or operator.states or operator.fully_finished or operator.finished_subtasks)


def _bare(operators: Sequence[DescribedOperator], width: int) -> list[str]:
    """Operators without state, by name alone."""
    if not operators:
        return []
    names = sorted(op.operator_name or name_of(op) for op in operators)
    more = "; -o json has them all" if len(names) > BARE else ""
    return wrapped(some(names, BARE) + more, width, "  ", f"Without state, {number(len(names))}: ")


def _row(operator: DescribedOperator) -> tuple[str, ...]:
    """Its cells, by COLUMNS."""
    uid = operator.operator_uid or (f"{operator.proved_uid} (proved)" if operator.proved_uid else None)
    return (
        operator.operator_name or UNKNOWN,
        uid or UNKNOWN,
        operator.operator_uid_hash,
        str(operator.operator_parallelism),
        str(operator.operator_max_parallelism),
        str(operator.operator_subtask_state_count),
        str(operator.operator_coordinator_state_size_in_bytes),
        str(operator.operator_total_size_in_bytes),
    )


def _states(operators: Sequence[DescribedOperator], width: int) -> list[str]:
    called = _labels(operators)
    states = [(called[operator.operator_uid_hash], state) for operator in operators for state in operator.states]
    if not states:
        return []
    counted = any(state.bytes is not None or (state.rows is not None) for _, state in states)
    numbers = ("ROWS", "BYTES") if counted else ()
    keys = _keys(states)
    rows = [
        (
            owner,
            state.name or "-",
            f"{'keyed ' if state.keyed and state.kind != 'keyed' else ''}{state.kind}",
            *((number(state.rows), size(state.bytes)) if counted else ()),
            _cut(keys[i]),
            _cut(_value(state)),
        )
        for i, (owner, state) in enumerate(states)
    ]
    header, align = ("OPERATOR", "STATE", "KIND", *numbers, "KEY", "VALUE"), "lll" + "r" * len(numbers) + "ll"
    if all(not row[-2] for row in rows):
        header, align, rows = (*header[:-2], "VALUE"), align[:-1], [(*row[:-2], row[-1]) for row in rows]
    lines = columns(header, rows, align, width)
    if max(map(len, lines)) > width:
        shared = len(numbers) + 3
        head, *body = columns(header[:shared], [row[:shared] for row in rows], align[:shared], width)
        lines = [head]
        for i, (line, row) in enumerate(zip(body, rows, strict=True)):
            lines += wrapped(keys[i], width, "      ", "  key: ") if keys[i] else []
            lines += [line, *wrapped(row[-1], width, "    ")]
    for owner, state in states:
        if state.opaque:
            lines += wrapped(state.opaque, width, "    ", f"  {owner} {state.name or '-'}: ")
    return lines


def _keys(states: Sequence[tuple[str, DescribedState]]) -> list[str]:
    """Return the key type of each keyed state, empty if the state before it has the same operator and key."""
    shown: list[str] = []
    before = ("", "")
    for owner, state in states:
        key = serializer(state.serializers["key"]) if state.keyed and "key" in state.serializers else ""
        shown.append("" if (owner, key) == before else key)
        before = (owner, key)
    return shown


def _value(state: DescribedState) -> str:
    """Return what a state is made of besides the key of its operator, which timers repeat."""
    described = dict(state.serializers)
    if state.keyed:
        described.pop("key", None)
    if state.kind == "timers" and described.get("value", {}).get("nested"):
        described["value"] = {**described["value"], "nested": described["value"]["nested"][1:]}
    return serializers(described)


def serializers(described: Mapping[str, Any]) -> str:
    """`String -> Tuple2<String, Long>`; a namespace that says nothing is left out."""
    parts = [
        serializer(described[role])
        for role in ("key", "namespace", "value")
        if role in described and described[role].get("serializer") != "VoidNamespaceSerializer"
    ]
    return " -> ".join(parts) + (f" (not known: {described['unknown']})" if "unknown" in described else "")


def serializer(described: Mapping[str, Any]) -> str:
    """One serializer with what it is made of, in a line."""
    outer, _, inmost = str(described.get("serializer", UNKNOWN)).removesuffix("Serializer").rpartition("$")
    name = inmost or outer
    of = str(described.get("class", "")).rpartition(".")[2]
    if name == "Tuple" and of:
        name = of
    elif of:
        name = f"{name} {of}"
    inner = [serializer(part) for part in described.get("nested", ())]
    names = described.get("names", ())
    if inner and len(names) == len(inner):
        return f"{name}{{{', '.join(f'{field}: {kind}' for field, kind in zip(names, inner, strict=True))}}}"
    if inner:
        return f"{name}<{', '.join(inner)}>"
    return f"{name}{{{', '.join(map(str, names))}}}" if names else name


def _cut(text: str) -> str:
    return text if len(text) <= CELL else text[: CELL - 1] + "…"


def _finished(operators: Sequence[DescribedOperator], width: int) -> list[str]:
    finished = [
        f"{name_of(op)} whole" if op.fully_finished else f"{name_of(op)} {op.finished_subtasks} subtasks"
        for op in operators
        if op.fully_finished or op.finished_subtasks
    ]
    return wrapped(", ".join(finished), width, "  ", "Finished: ") if finished else []


def _taken_over(operators: Sequence[DescribedOperator], width: int) -> list[str]:
    """Of a regional checkpoint: the tasks whose state is of an older one."""
    by_checkpoint: dict[int, list[TaskId]] = {}
    for operator in operators:
        for subtask in operator.subtasks:
            if subtask.taken_over_from is not None:
                by_checkpoint.setdefault(subtask.taken_over_from, []).append(
                    TaskId(name_of(operator), subtask.subtask)
                )
    return [
        line
        for number, tasks in sorted(by_checkpoint.items())
        for line in wrapped(some([str(task) for task in tasks], BARE), width, "  ", f"Of checkpoint {number}: ")
    ]


def _subtasks(page: EpochPage, operators: Sequence[DescribedOperator], width: int) -> list[str]:
    asked = {task.task for op in page.detail.operators for task in op.tasks}
    rows = []
    for operator in operators:
        for subtask in operator.subtasks:
            if (task := TaskId(name_of(operator), subtask.subtask)) in asked:
                groups = subtask.key_groups
                parts = [f"{PARTS[key]}: {part.bytes} B, {part.type}" for key, part in subtask.parts.items()]
                rows.append(
                    (
                        str(task),
                        "finished" if subtask.finished else f"{groups[0]}-{groups[1]}" if groups else "-",
                        size(subtask.state_size),
                        size(subtask.checkpointed_size),
                        "; ".join(parts) or "no state",
                    )
                )
    header = ("SUBTASK", "KEY GROUPS", "STATE SIZE", "CHECKPOINTED", "OF IT")
    lines = columns(header, rows[:ROWS], "llrrl", width) if rows else []
    files = {file.path: file.bytes for op in page.detail.operators for task in op.tasks for file in task.files}
    if files:
        lines += ["", *columns(("FILE", "BYTES"), [(p, number(b)) for p, b in files.items()][:ROWS], "lr", width)]
    return lines + _left_out(max(len(rows), len(files)))


def _ends(channel: ChannelFacts, *, narrow: bool) -> str:
    if narrow:
        return str(channel.channel)
    return edge_name(*(operator or UNKNOWN for operator in channel.edge))


def _channels(page: EpochPage, width: int) -> list[str]:
    """In-flight data: records by edge, or by channel where few are asked for."""
    edges: dict[str, list[ChannelFacts]] = {}
    for channel in page.detail.channels:
        edges.setdefault(_ends(channel, narrow=page.narrow), []).append(channel)
    rows = []
    for edge, channels in edges.items():
        logged = [channel.logged for channel in channels]
        records = None if None in logged else sum(count or 0 for count in logged)
        rows.append((edge, number(len(channels)), number(records)))
    if not rows:
        return []
    lines = columns(("IN FLIGHT", "CHANNELS", "RECORDS"), rows[:ROWS], "lrr", width)
    if any(UNKNOWN in edge for edge in edges):
        reason = "the metadata does not say which operator feeds which, and the data fits no pair"
        lines += wrapped(reason, width, "  ", f"{UNKNOWN}: ")
    return lines + _left_out(len(rows))


def _splits(page: EpochPage, operators: Sequence[DescribedOperator], width: int) -> list[str]:
    asked = {task.task for op in page.detail.operators for task in op.tasks}
    rows = [
        (
            str(task), split.id or UNKNOWN, split.kind or "not known", split.position or number(split.next),
            number(split.end),
        )
        for operator in operators
        for subtask in operator.subtasks
        if (task := TaskId(name_of(operator), subtask.subtask)) in asked
        for split in subtask.splits or ()
    ]
    lines = columns(("SOURCE", "SPLIT", "KIND", "NEXT", "END"), rows[:ROWS], "lllrr", width) if rows else []
    coordinators = [
        f"{name_of(op)} {op.operator_coordinator_state_size_in_bytes} B{_to_hand_out(op)}"
        for op in operators
        if op.operator_coordinator_state_size_in_bytes
    ]
    coordinator_lines = wrapped(", ".join(coordinators), width, "  ", "Coordinator state: ") if coordinators else []
    return [*lines, *_left_out(len(rows)), *coordinator_lines]


def _to_hand_out(operator: DescribedOperator) -> str:
    """Of a source, the splits that no task has yet."""
    held = operator.enumerator
    if held is None:
        return ""
    names = some([split.id or UNKNOWN for split in held.splits], 3)
    return f" ({len(held.splits)} splits to hand out: {names})" if held.splits else " (no split to hand out)"


def _committables(page: EpochPage, operators: Sequence[DescribedOperator], width: int) -> list[str]:
    """What sinks have written and not committed; a job that starts from here commits it."""
    asked = {task.task for op in page.detail.operators for task in op.tasks}
    rows = [
        (
            str(task), number(one.checkpoint), one.kind or "not known", one.name or UNKNOWN,
            one.state + (f", {one.retries} tries" if one.retries else ""), size(one.size),
        )
        for operator in operators
        for subtask in operator.subtasks
        if (task := TaskId(name_of(operator), subtask.subtask)) in asked
        for one in subtask.committables or ()
    ]  # fmt: skip
    header = ("TO COMMIT BY", "CHK", "KIND", "WHAT", "STATE", "SIZE")
    lines = columns(header, rows[:ROWS], "lrlllr", width) if rows else []
    return lines + _left_out(len(rows))


def _masters(described: Described, width: int) -> list[str]:
    rows = [(master.name, str(master.version), number(master.bytes)) for master in described.master_states]
    return columns(("MASTER STATE", "VERSION", "BYTES"), rows, "lrr", width) if rows else []


def _left_out(count: int) -> list[str]:
    return [f"... and {count - ROWS} more; -o json has them all"] if count > ROWS else []
