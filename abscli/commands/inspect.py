"""`abs inspect`: what a store or an epoch holds."""

from __future__ import annotations

import contextlib
import gc
import os
import select
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from abscli.cli import exits
from abscli.cli.options import OutputForm, PathMap, Quiet, Ref, Search, Uid, Verbose
from abscli.cli.output import Output
from abscli.cli.reading import FormatChoice, read_options

if TYPE_CHECKING:
    from abscli.text.inspect_page import EpochPage, StorePage
    from formats.view import ChannelFacts, CheckpointStore, EpochDetail

REFRESH = 1.0
"""Seconds between two looks of --watch."""

CLEAR = "\x1b[2J\x1b[H"
"""Empties a terminal."""

EXAMPLES = (
    ("abs inspect snapshots", "The epochs of a store: status, missing tasks, sizes, durations."),
    ("abs inspect snapshots@latest", "The operators, channels, logs and positions of the newest complete epoch."),
    ("abs inspect snapshots@7 --task counts/1", "One task's part of epoch 7."),
    ("abs inspect checkpoints/0d9f.../chk-7 --uid totals", "A checkpoint of Flink: operators, states, splits."),
    ("abs inspect snapshots -o json | jq .latest_complete", "The newest complete epoch, for a script."),
)
EXIT_STATUS = exits.status(
    3, 10, 12,
    _0="It was shown, whatever its state: 'abs validate' is the one that judges.",
    _3="A file that is needed to show it is damaged.",
)


def inspect(
    ref: Ref,
    operator: Annotated[
        str | None, typer.Option("--operator", metavar="ID", help="Only this operator of the epoch.")
    ] = None,
    task: Annotated[
        str | None, typer.Option("--task", metavar="TASK", help="Only this task, such as counts/1.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it again whenever it changes, until interrupted.")
    ] = False,
    uid: Uid = None,
    search: Search = None,
    path_map: PathMap = None,
    format: FormatChoice = None,
    output: OutputForm = Output.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Show what a checkpoint store or one of its epochs holds.

    Of a store: its epochs, with the tasks that are missing from those that are not complete. Of an epoch: operators
    and tasks with their files, channels with their counters, logs, source positions and durations. Only facts are
    read, not the state itself; what a format does not tell is shown as unknown.
    """
    from abscli.cli.output import emit_json, emit_marked, emit_ndjson, note, plain_ascii, width
    from abscli.stores.registry import open_store, system_of
    from abscli.text.inspect_page import StorePage, epoch_json, items, store_json
    from formats.reference import parse_reference

    path, number = parse_reference(ref)
    options = read_options(search=search, path_map=path_map, uid=uid)
    shown, before = "", _stdout()
    if not watch:
        gc.disable()  # facts are made once and shown: looking through them for cycles takes longer than making them
    while True:
        store = open_store(path, format, options)
        system = system_of(store)
        number = store.only if number is None else number
        page = StorePage.of(store)
        one = _epoch_page(store, page, number, operator, task) if number is not None or operator or task else None
        if output is Output.TABLE:
            columns, ascii = width(), plain_ascii()
            text = (
                system.epoch_text(one, width=columns, ascii=ascii)
                if one
                else system.store_text(page, width=columns, ascii=ascii)
            )
            if shown != (shown := text):
                emit_marked((CLEAR if watch and sys.stdout.isatty() else "") + text)
        else:
            result = epoch_json(one) if one else store_json(page)
            if not watch or shown != (shown := repr(result)):
                emit_json(result) if output is Output.JSON else emit_ndjson(*items(result))
        if not watch:
            _leave_to_the_end(store, page, one)
            break
        if _reader_left(before):
            return
        time.sleep(REFRESH)
    if output is Output.TABLE and sys.stdout.isatty():
        for command in system.next_commands(page, one.detail.facts.epoch if one else None):
            note(f"next: {command}")


def _epoch_page(
    store: CheckpointStore, page: StorePage, number: int | str | None, operator: str | None, task: str | None
) -> EpochPage:
    """The page of an epoch, narrowed; the newest complete one if none is named. UnknownTask for what it has not."""
    from abscli.graph.backedges import back_edges
    from abscli.text.inspect_page import EpochPage
    from formats.errors import NotFound

    epoch = store.resolve(number)
    operator = store.operator_id(epoch, operator) if operator is not None else None
    detail = narrowed(store.detail(epoch), operator, task)
    graph = store.topology(epoch)
    raw = None
    with contextlib.suppress(NotFound):  # as of an epoch that was never completed
        raw = store.raw(epoch, detail.operators[0].id if operator or task else None)
    return EpochPage(page, detail, back_edges(graph) if graph else None, bool(operator or task), raw)


def narrowed(detail: EpochDetail, operator: str | None, task: str | None) -> EpochDetail:
    """What concerns one operator, or one task: itself and its channels."""
    from msgspec.structs import replace

    from formats.errors import UnknownTask
    from formats.ids import ends_of, operator_of, subtask_names
    from formats.view import ChannelTable

    operators = {op.id: op for op in detail.operators}
    wanted = operator_of(task) if task else operator
    if wanted is None:
        return detail
    if wanted not in operators or (operator and operator != wanted):
        raise UnknownTask(
            f"epoch {detail.facts.epoch} has no {f'task {task!r}' if task else f'operator {operator!r}'}"
            + (f" of operator {operator!r}" if task and operator else ""),
            hint=f"it has the operators {', '.join(list(operators)[:20])}",
        )
    op = operators[wanted]
    if task:
        if task not in subtask_names(wanted, op.parallelism):
            hint = f"{wanted} has the tasks {wanted}/0 to {wanted}/{op.parallelism - 1}"
            raise UnknownTask(f"no task {task!r}", hint=hint)
        op = replace(op, tasks=tuple(part for part in op.tasks if part.task == task))

    def concerns(channel: ChannelFacts) -> bool:
        name = channel.channel
        if task:
            return task in name and task in ends_of(name)  # a million of them: most are told by the first
        return wanted in channel.edge

    return replace(detail, operators=(op,), channels=ChannelTable(filter(concerns, detail.channels)))


def _leave_to_the_end(*shown: object) -> None:
    """The process is over when it has been shown: its memory goes back whole, not task by task."""
    kept: list[object] = [*shown]
    kept.append(kept)
    gc.freeze()


def _stdout() -> os.stat_result | None:
    """What stdout is now; it is sent to nowhere when a write finds that its reader has left."""
    with contextlib.suppress(OSError, ValueError):
        return os.fstat(sys.stdout.fileno())
    return None


def _reader_left(before: os.stat_result | None) -> bool:
    """Whether nobody reads stdout any more, so that watching is over. before: what it was at the start."""
    now = _stdout()
    if before is None or now is None:
        return False
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return not os.path.samestat(before, now) or any(event & select.POLLERR for _, event in poll.poll(0))
