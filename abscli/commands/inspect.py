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
    ("abs inspect snapshots", "The epochs of a store: status, missing tasks, sizes, durations."),
    ("abs inspect snapshots@latest", "The operators, channels, logs and positions of the newest complete epoch."),
    ("abs inspect snapshots@7 --task counts/1", "One task's part of epoch 7."),
    ("abs inspect checkpoints/0d9f.../chk-7 --uid totals", "A checkpoint of Flink: operators, states, splits."),
    ("abs inspect checkpoints/0d9f.../chk-7 --stats --ttl 1d", "Which states, key groups, keys are large."),
    ("abs inspect snapshots --trend", "How the state of each operator grew from epoch to epoch."),
    ("abs inspect checkpoints", "Flink's directory of all jobs: where each can be started again, age, size, orphans."),
    ("abs inspect checkpoint --broker kafka-1:9092", "How far the job is behind in Kafka; what is gone unread."),
    ("flink run -s $(abs inspect checkpoints/0d9f... --latest-restorable -q) job.jar",
     "Starts from the newest checkpoint that is whole, or not at all."),
    ("abs inspect snapshots -o json | jq .latest_complete", "The newest complete epoch, for a script."),
)
EXIT_STATUS = exits.status(
    3, 4, 10, 12,
    _0="It was shown, whatever its state: 'abs validate' is the one that judges.",
    _4="--latest-restorable: there is no epoch that can be started where it lies, and why.",
    _3="A file that is needed to show it is damaged.",
)


@reads("uid", "search", "path_map")
def inspect(
    ref: Ref,
    operator: Annotated[
        str | None, typer.Option("--operator", metavar="OPERATOR", help="Only this operator of the epoch.")
    ] = None,
    task: Annotated[
        str | None, typer.Option("--task", metavar="TASK", help="Only this task, such as counts/1.")
    ] = None,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Show it again whenever it changes, until interrupted; if it is not there, wait."),
    ] = False,
    stats: Annotated[
        bool,
        typer.Option("--stats", help="Where the bytes of the epoch's state are: keys, key groups, skew, timers."),
    ] = False,
    ttl: Annotated[
        float | None,
        typer.Option("--ttl", metavar="DURATION", parser=positive_duration,
                     help="With --stats: how long state lives that has a time to live: what is expired."),
    ] = None,
    trend: Annotated[
        bool, typer.Option("--trend", help="How the state of each operator grew over all complete epochs.")
    ] = False,
    latest_restorable: Annotated[
        bool,
        typer.Option("--latest-restorable",
                     help="Print only the path of the newest epoch from which the job can be started where it lies."),
    ] = False,
    broker: Broker = None,
    broker_config: BrokerConfig = None,
    reading: Reading = AS_TYPED,
    output: OutputForm = Output.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Show what a checkpoint store or one of its epochs holds.

    Of a store: its epochs, with the tasks that are missing from those that are not complete. Of an epoch: operators
    and tasks with their files, channels with their counters, logs, source positions and durations. Only facts are
    read, not the state itself; what a format does not tell is shown as unknown.

    Of a directory of stores, such as Flink's directory of checkpoints: each job with the newest epoch from which it can
    be started where it lies, its age, its size, and the orphans: files that no epoch of any job there refers to.

    Of a checkpoint of Flink the splits of sources are shown with where reading goes on, those that an enumerator has
    still to hand out, and what sinks have written and not committed, which a job that starts from it commits.

    --stats reads state, in bounded time: of Flink's up to 64 MiB of keyed state whole; beyond, a sample of it and what
    the tables of RocksDB say of themselves, which is marked; of Spark's up to 64 MiB of state files, beyond whole
    partitions as a sample. Sizes are uncompressed. Skew is rows of the largest key
    group, or task, to the median. Of other formats more than 64 MiB goes by files alone. --trend goes by facts alone.

    --broker asks a broker of Kafka for the oldest record and the end of every partition that an epoch of a job, a Spark
    query or a Flink job goes on with (it needs the package confluent-kafka, and never reads a record): the lag, what
    retention has taken before it was read, partitions that are gone, were made anew, or are new. Numbers are offsets,
    of which a topic that is compacted or written in transactions has more than records.

    --latest-restorable goes by the presence and size of all files ('abs validate' reads them), and leaves out what lies
    elsewhere than the system itself would look, as after a move. In a directory of several jobs the newest is taken
    only where all have the same operators and ran one after the other, as a job does that is submitted again; otherwise
    exit 2, naming them.
    """
    from abscli.api import open_directory
    from abscli.cli.output import emit_json, emit_marked, emit_ndjson, emptied, note, plain_ascii, width
    from abscli.text.inspect_page import EpochPage, epoch_json, items, store_json
    from formats.errors import NotFound

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
                    note(f"{missing}: waiting for it")
                waiting = True
                if _reader_left(before):
                    return
                time.sleep(REFRESH)
                continue
            with contextlib.suppress(NotFound):
                _refuse_of_many(operator, task, watch, stats, trend, broker, *reading)
                _show_jobs(open_directory(ref), output, latest_restorable)
                return
            raise
        if latest_restorable:
            if operator or task or watch:
                raise typer.BadParameter("it goes with no other choice of what is shown",
                                         param_hint="'--latest-restorable'")  # fmt: skip
            _print_start(store.latest_restorable(), output)
            return
        if broker is not None:
            if operator or task or watch or stats or trend:
                raise typer.BadParameter("it goes with no other choice of what is shown", param_hint="'--broker'")
            _show_lag(store, broker, broker_config, output)
            return
        if broker_config is not None:
            raise typer.BadParameter("goes with --broker: name one", param_hint="'--broker-config'")
        if stats or trend:
            if watch or task or (stats and trend):
                raise typer.BadParameter("it goes with no other choice of what is shown",
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
            note(f"next: {command}")


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


def _show_jobs(directory: Directory, output: Output, latest_restorable: bool) -> None:
    """A directory of jobs, or where to start again in it."""
    from abscli.cli.output import emit_json, emit_marked, emit_ndjson, width

    if latest_restorable:
        _print_start(directory.latest_restorable(), output)
    elif output is Output.TABLE:
        emit_marked(directory.text(width=width()))
    else:
        emit_json(directory.to_json()) if output is Output.JSON else emit_ndjson(*directory.items())


def _print_start(start: Start, output: Output) -> None:
    """The path alone, and beside it what lies there."""
    from abscli.cli.output import emit_json, emit_ndjson, emit_text, note

    if output is Output.TABLE:
        emit_text(start.path)
        note(start.remark())
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
