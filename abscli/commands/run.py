"""`abs run`: a job with snapshots."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from abscli.cli import exits
from abscli.cli.options import (
    Engine,
    EngineChoice,
    Master,
    OutputForm,
    PolicyChoice,
    Quiet,
    Verbose,
    at_least,
    positive_duration,
    words_again,
)
from abscli.cli.output import Output, note, warn

if TYPE_CHECKING:
    from abscli.stores.native.run import PreparedJob, Resumed

EXAMPLES = (
    ("abs run job.yaml --store snapshots", "Runs the job on this machine's cores, with a snapshot every second."),
    ("abs run job.yaml --store snapshots --resume", "Goes on from the newest whole epoch."),
    ("abs run job.yaml --store snapshots --dry-run", "Says what is in the way, or what would be done."),
    ("abs run job.yaml --store snapshots --engine inline --interval 10s", "In one process, without a JVM."),
)
EXIT_STATUS = exits.status(
    3, 4, 6, 7, 10, 11, 12, 130, 143,
    _0="The job has ended, and its last epoch is complete.",
    _2="A bad option, a topology file that does not hold, more workers than slots, a store of another job, or a store "
    "that has epochs and neither --resume nor --from-epoch.",
    _4="--resume: there are complete epochs, and none is whole.",
    _6="Stopped part-way (lost worker, cluster or full disk); the message names the last complete epoch.",
    _10="No such epoch to start from.",
    _3="Parts of the output that belong to the epoch are gone, or a fact of the store is damaged.",
    _11="Another process runs on this store, or writes one of its sinks.",
    _130="Interrupted: a last epoch was committed, unless a second signal came.",
    _143="Terminated: likewise.",
)


def run(
    context: typer.Context,
    job: Annotated[str, typer.Argument(metavar="JOB", help="Topology file; functions are found beside it.")],
    store: Annotated[str, typer.Option("--store", metavar="PATH", help="Directory of the checkpoint store.")],
    interval: Annotated[
        float,
        typer.Option("--interval", metavar="DURATION", parser=positive_duration,
                     help="Time from one snapshot to the next, such as 500ms, 10s or 5m."),
    ] = "1s",  # type: ignore[assignment]
    policy: PolicyChoice = None,
    engine: EngineChoice = Engine.SPARK,
    master: Master = "local[*]",
    workers: Annotated[
        int | None,
        typer.Option("--workers", metavar="N", parser=at_least(1),
                     help="Worker processes; default: one a slot of the cluster."),
    ] = None,
    keep: Annotated[
        int, typer.Option("--keep", metavar="N", parser=at_least(1), help="Complete epochs to keep while running.")
    ] = 10,
    epoch_timeout: Annotated[
        float,
        typer.Option("--epoch-timeout", metavar="DURATION", parser=positive_duration,
                     help="Time after which an epoch that cannot complete is aborted; the job goes on."),
    ] = "10m",  # type: ignore[assignment]
    max_concurrent: Annotated[
        int,
        typer.Option("--max-concurrent", metavar="N", parser=at_least(1), help="Epochs that may be in flight at once."),
    ] = 1,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Start from the newest whole epoch; where there is none, from the beginning."),
    ] = False,
    from_epoch: Annotated[
        int | None, typer.Option("--from-epoch", metavar="N", parser=at_least(0), help="Start from this epoch.")
    ] = None,
    take_over: Annotated[
        bool,
        typer.Option("--take-over", help="Write sinks that another store has written since; what is not of this one's "
                     "line is set aside in superseded/."),
    ] = False,
    accept_missing_parts: Annotated[
        bool,
        typer.Option("--accept-missing-parts", help="Go on although parts of the output that belong to it are gone."),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check the job, the store and the sinks, say what would be done, and stop."),
    ] = False,
    output: OutputForm = Output.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Run a job and take snapshots of it.

    Tasks run in worker processes that Spark places, or in this process. Every interval a barrier is sent down all
    channels, and each task writes its part of the epoch in the background. An epoch is complete when its manifest is
    written; sinks show only what belongs to complete epochs. A job with cycles ends by itself when it is idle.

    --policy aligned: an input waits from its barrier until all inputs have theirs. unaligned: nothing waits, and what
    is on its way on the channels becomes part of the epoch. at-least-once: nothing waits, and after a restore records
    may repeat. Every epoch can be restored under any policy.

    A sink belongs to one store at a time, and no two jobs write it at once. Before the job starts, the parts of the
    output that the kept epochs name are looked for; where one is gone the run is refused. Only the folder that the job
    file names now is set right: who goes back to an epoch from before a sink's path was changed finds newer parts in
    the old folder still, and has to move them away.

    --dry-run says all at once that a run would be refused for: functions that do not load, connectors and kinds of
    operators that cannot be run, input and columns that are not there, a store or sinks of another job.

    Where stderr is no terminal, a line an epoch says when it was complete, how long it took, and how many records were
    read and bytes written. What functions of the job print goes there too: stdout has the result alone. When several
    epochs in a row exceed --epoch-timeout, a warning names the tasks that are slow.

    SIGTERM and SIGINT take a last epoch, commit it and leave; a second signal leaves at once (the same one within half
    a second counts once, as 'timeout' sends it twice).
    """
    from abscli.cli.plans import option_errors
    from abscli.cli.running import (
        again_json,
        again_text,
        check_directory,
        emit_result,
        job_progress,
        note_taken_over,
        warn_of_repeats,
    )
    from abscli.engine.job import JobOptions
    from abscli.stores.native.run import job_directory, prepare_job

    check_directory(store, "--store")
    again = words_again(context, {"--store": 1, "--resume": 0, "--from-epoch": 1, "--dry-run": 0})
    options = JobOptions(
        directory=job_directory(job),
        job_hint=again,
        engine=engine,
        master=master,
        workers=workers,
        policy=policy,
        interval=interval,
        epoch_timeout=epoch_timeout,
        max_concurrent=max_concurrent,
        keep=keep,
        from_epoch=from_epoch,
        take_over=take_over,
        accept_missing=accept_missing_parts,
    )
    with option_errors():
        prepared = prepare_job(job, store, options, resume=resume, dry_run=dry_run)
    if prepared.resumed is not None:
        _say_where(prepared.resumed)
    if prepared.options.from_epoch:
        warn_of_repeats(store, prepared.options.from_epoch)
    if dry_run:
        _rehearse(prepared, words_again(context, {"--dry-run": 0}), output)
        return
    name = prepared.topology.job
    with job_progress(name) as show:
        outcome = prepared.run(show, show.news)
    how = "finished" if outcome.finished else "stopped"
    result = {
        "schema": "abs.run", "version": "1.0", "job": name, "store": store, "epoch": outcome.epoch,
        "parent": outcome.parent, "epochs": outcome.epochs, "records": outcome.records,
        "elapsed": round(outcome.elapsed, 3), "finished": outcome.finished, "policy": outcome.policy,
        "repeats": again_json(outcome.repeats),
    }  # fmt: skip
    text = (
        f"{name}: {how} at epoch {outcome.epoch}: {outcome.epochs} epoch{'s'[: outcome.epochs != 1]} and "
        f"{outcome.records:,} records in {outcome.elapsed:.1f} s"
        + again_text(outcome.policy, outcome.repeats)
    )
    emit_result(result, text, output)
    note_taken_over(outcome.taken_over)
    if not outcome.finished:
        note(f"next: abs run {again} --store {shlex.quote(store)} --resume")
    if outcome.signal is not None:
        raise typer.Exit(128 + outcome.signal)


def _rehearse(prepared: PreparedJob, words: str, form: Output) -> None:
    """What a run would do; raises what it would be refused for."""
    from abscli.cli.running import emit_result
    from formats.job.expand import size_of

    would = prepared.rehearse()
    topology, store = prepared.topology, prepared.store
    tasks, channels = size_of(topology)
    result = {
        "schema": "abs.rehearsal", "version": "1.0", "job": topology.job, "store": store, "new": would.new,
        "attempt": would.attempt, "parent": would.parent, "policy": would.policy, "tasks": tasks,
        "channels": channels,
    }  # fmt: skip
    begins = f"goes on from epoch {would.parent}" if would.parent else "starts from the beginning"
    effect = f"{store} is made" if would.new else f"attempt {would.attempt} on {store}"
    text = (
        f"{topology.job} can run: {begins}, policy {would.policy}, {tasks} tasks, {channels} channels; {effect}"
    )
    emit_result(result, text, form)
    note("nothing was changed (--dry-run)")
    note(f"next: abs run {words}")


def _say_where(resumed: Resumed) -> None:
    """Says so if it is not the newest complete epoch that the job goes on from."""
    if resumed.remark is not None:
        note(resumed.remark)
    for warning in resumed.warnings:
        warn(warning)
