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
from abscli.cli.options import (
    ANY_FILE,
    Broker,
    BrokerConfig,
    OutputForm,
    Quiet,
    Ref,
    Verbose,
    positive_duration,
)
from abscli.cli.output import Output
from abscli.cli.reading import AS_TYPED, Reading, reads

if TYPE_CHECKING:
    from abscli.api import Directory, Store
    from abscli.api.directory import Start

REFRESH = 1.0
"""Seconds between two looks of --watch."""

EXAMPLES = (
    ("abs inspect checkpoints/0d9f...", "Lists the checkpoints of a Flink job, with the reason for each damage."),
    ("abs inspect snapshots@latest --stats", "Shows which states, keys and key groups of an epoch are large."),
)
EXIT_STATUS = exits.status(
    3, 4, 10, 12,
    _0="It was shown, damaged or not: 'abs validate' judges.",
    _3="A file that is needed to show it is damaged.",
    _4="--latest-restorable: no epoch can be started in place.",
)
SEE_ALSO = ("validate", "state", "report")
GUIDE = "operations/query.md"


@reads("uid", "search", "path_map")
def inspect(
    ref: Ref,
    operator: Annotated[
        str | None, typer.Option("--operator", metavar="OPERATOR", help="Show only this operator."), ANY_FILE
    ] = None,
    task: Annotated[
        str | None, typer.Option("--task", metavar="TASK", help="Show only this task, such as counts/1."), ANY_FILE
    ] = None,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Wait for the store if needed; update on each change."),
        ANY_FILE,
    ] = False,
    stats: Annotated[
        bool,
        typer.Option("--stats", help="Show state sizes, skew and timers."),
        ANY_FILE,
    ] = False,
    ttl: Annotated[
        float | None,
        typer.Option("--ttl", metavar="DURATION", parser=positive_duration,
                     help="With --stats: count entries older than this age."),
        ANY_FILE,
    ] = None,
    trend: Annotated[
        bool, typer.Option("--trend", help="Show the growth of state over all epochs."), ANY_FILE
    ] = False,
    latest_restorable: Annotated[
        bool,
        typer.Option("--latest-restorable",
                     help="Print the path of the newest restorable epoch."),
        ANY_FILE,
    ] = False,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="With --latest-restorable: read and verify every file."),
        ANY_FILE,
    ] = False,
    broker: Broker = None,
    broker_config: BrokerConfig = None,
    reading: Reading = AS_TYPED,
    output: OutputForm = Output.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Show the contents of a checkpoint store or an epoch.

    For a store it lists the epochs with status, size and duration; for an epoch (PATH@7) the operators, tasks, files,
    channels, source positions and logs; for a directory of stores the jobs. Nothing is changed. Only metadata is
    read, unless --stats is given; use 'abs validate' to verify the files.

    --latest-restorable prints the path of the newest epoch that can be started in place. It compares the sizes of
    files, and with --verify their contents.
    """
    from abscli.api import open_directory
    from abscli.cli.output import emit_json, emit_marked, emit_ndjson, emptied, note, plain_ascii, width
    from abscli.text.inspect_page import EpochPage, epoch_json, items, store_json
    from formats.errors import NotFound

    if verify and not latest_restorable:
        raise typer.BadParameter("goes with --latest-restorable", param_hint="'--verify'")
    shown, before, waiting = "", _stdout(), False
    if not watch:
        gc.disable()  # facts are made once and shown: looking through them for cycles takes longer than making them
    while True:
        try:
            store = reading.open(ref)
            if watch and store.named == "latest":
                store.resolve()
        except NotFound as missing:
            if watch and not _has_stores(ref):
                if not waiting:
                    note(f"{missing}; waiting until the store exists")
                waiting = True
                if _reader_left(before):
                    return
                time.sleep(REFRESH)
                continue
            with contextlib.suppress(NotFound):
                _refuse_of_many(operator, task, watch, stats, trend, broker, *reading)
                _show_jobs(open_directory(ref), output, latest_restorable, verify)
                return
            raise
        if latest_restorable:
            if operator or task or watch:
                raise typer.BadParameter("it cannot be combined with another option that selects the output",
                                         param_hint="'--latest-restorable'")  # fmt: skip
            _print_start(store.latest_restorable(verify=verify), output, verify)
            return
        if broker is not None:
            if operator or task or watch or stats or trend:
                raise typer.BadParameter("it cannot be combined with another option that selects the output",
                                         param_hint="'--broker'")  # fmt: skip
            _show_lag(store, broker, broker_config, output)
            return
        if broker_config is not None:
            raise typer.BadParameter("goes with --broker: name one", param_hint="'--broker-config'")
        if stats or trend:
            if watch or task or (stats and trend):
                raise typer.BadParameter("it cannot be combined with another option that selects the output",
                                         param_hint="'--stats'" if stats else "'--trend'")  # fmt: skip
            _show_numbers(store, operator, ttl, trend, output)
            return
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
                if watch:
                    emptied()
                emit_marked(text)
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
            note(f"Next: {command}")


def _show_numbers(store: Store, operator: str | None, ttl: float | None, trend: bool, output: Output) -> None:
    """Statistics of an epoch, or growth over all of them."""
    from abscli.cli.output import emit_json, emit_ndjson, emit_text, width
    from abscli.text import statistics as render

    if trend:
        growth = render.TrendPage.of(store.view)
        if output is Output.TABLE:
            emit_text(render.trend_text(growth, width=width()))
            return
        result = render.trend_json(growth)
    else:
        epoch = store.resolve()
        states = store.statistics(epoch, operator=operator, ttl=ttl)
        taken = store.view.written(epoch)
        page = render.StatisticsPage(store.path, store.system.name, store.job, epoch, taken, ttl, states)
        if output is Output.TABLE:
            emit_text(render.text(page, width=width()))
            return
        result = render.to_json(page)
    emit_json(result) if output is Output.JSON else emit_ndjson(*render.items(result))


def _show_lag(store: Store, broker: str, config: str | None, output: Output) -> None:
    """Sources of Kafka against a broker."""
    from abscli.cli.output import emit_json, emit_ndjson, emit_text, width
    from abscli.cli.plans import option_errors
    from abscli.text import lag as render

    with option_errors():
        page = store.lag(broker, config=config)
    if output is Output.TABLE:
        emit_text(render.text(page, width=width()))
        return
    result = render.to_json(page)
    emit_json(result) if output is Output.JSON else emit_ndjson(*render.items(result))


def _show_jobs(directory: Directory, output: Output, latest_restorable: bool, verify: bool) -> None:
    """A directory of jobs, or where to start again in it."""
    from abscli.cli.output import emit_json, emit_marked, emit_ndjson, width

    if latest_restorable:
        _print_start(directory.latest_restorable(verify=verify), output, verify)
    elif output is Output.TABLE:
        emit_marked(directory.text(width=width()))
    else:
        emit_json(directory.to_json()) if output is Output.JSON else emit_ndjson(*directory.items())


def _print_start(start: Start, output: Output, verified: bool) -> None:
    """Print the path alone on stdout; on stderr what it is, and a warning unless every file was read."""
    from abscli.cli.output import emit_json, emit_ndjson, emit_text, note, warn

    if output is Output.TABLE:
        emit_text(start.path)
        note(start.remark())
        if not verified:
            warn("only the presence and sizes of files were checked", hint="add --verify to read every file")
    else:
        emit_json(start.to_json()) if output is Output.JSON else emit_ndjson(start.to_json())


def _has_stores(path: str) -> bool:
    """Whether stores lie right below a path, so that it will not become one itself."""
    from abscli.api import open_directory
    from formats.errors import NotFound

    with contextlib.suppress(NotFound):
        return bool(open_directory(path).stores)
    return False


def _refuse_of_many(*choices: object) -> None:
    """NotFound for what is only asked of one store, so that the path is said to be none."""
    from formats.errors import NotFound

    if any(choices):
        raise NotFound("one store is asked for")


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
