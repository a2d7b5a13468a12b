"""`abs inspect`: what a store or an epoch holds."""

from __future__ import annotations

import contextlib
import gc
import os
import select
import sys
import time
from typing import Annotated

import typer

from abscli.cli import exits
from abscli.cli.options import OutputForm, PathMap, Quiet, Ref, Search, Uid, Verbose
from abscli.cli.output import Output
from abscli.cli.reading import FormatChoice

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
    from abscli.api import open_store
    from abscli.cli.output import emit_json, emit_marked, emit_ndjson, note, plain_ascii, width
    from abscli.text.inspect_page import EpochPage, epoch_json, items, store_json

    shown, before = "", _stdout()
    if not watch:
        gc.disable()  # facts are made once and shown: looking through them for cycles takes longer than making them
    while True:
        store = open_store(ref, format=format, search=search or (), path_map=path_map or (), uid=uid or ())
        number = store.view.only if store.named is None else store.named
        page, system = store.page(), store.system
        one = None
        if number is not None or operator or task:
            one = EpochPage.of(store.view, page, number, operator=operator, task=task)
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
