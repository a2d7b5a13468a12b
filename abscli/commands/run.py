"""`abs run`: a job with snapshots."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from abscli.cli import exits
from abscli.cli.options import (
    ANY_FILE,
    CHOSEN_FILE,
    AcceptMissingParts,
    Address,
    Engine,
    EngineChoice,
    Insecure,
    LogFormat,
    Master,
    OutputForm,
    PolicyChoice,
    Quiet,
    RecoveryScope,
    StateMemory,
    TakeOwnership,
    Verbose,
    at_least,
    listening,
    positive_duration,
    size,
    words_again,
)
from abscli.cli.output import LogForm, Output, emit_rows, note, warn
from formats.version import FORMAT_VERSION

if TYPE_CHECKING:
    from abscli.engine.sampling import Sample
    from abscli.stores.native.run import PreparedJob, Resumed
    from formats.job.model import Topology

EXAMPLES = (
    ("abs run job.yaml --store snapshots --engine inline",
     "Runs the job in one process, with a snapshot every second."),
    ("abs run job.yaml --store snapshots --resume", "Resumes the job from the newest intact epoch."),
)
EXIT_STATUS = exits.status(
    3, 4, 6, 7, 10, 11, 12, 130, 143,
    _0="The job has ended, and its last epoch is complete.",
    _2="Usage: invalid option or job, or the store has epochs: use --resume.",
    _3="Parts of the output are missing, or store metadata is damaged.",
    _4="No complete epoch is intact, or records in flight cannot be assigned.",
    _6="Stopped before the end; the error names the last complete epoch.",
    _10="No such epoch to start from.",
    _130="Interrupted (SIGINT), after a last epoch.",
    _143="Terminated (SIGTERM), after a last epoch.",
)
SEE_ALSO = ("restore", "inspect", "validate", "topology")
GUIDE = "jobs/running.md"


def run(
    context: typer.Context,
    job: Annotated[
        str,
        typer.Argument(metavar="JOB", help="Job file: YAML, JSON, or Python (its code is run)."),
    ],
    store: Annotated[
        str | None,
        typer.Option("--store", metavar="PATH", show_default=False,
                     help="Store: a directory, or s3://BUCKET/PATH."),
        CHOSEN_FILE,
    ] = None,
    interval: Annotated[
        float,
        typer.Option("--interval", metavar="DURATION", parser=positive_duration,
                     help="Time between snapshots, such as 10s."),
        ANY_FILE,
    ] = "1s",  # type: ignore[assignment]
    policy: PolicyChoice = None,
    engine: EngineChoice = Engine.SPARK,
    master: Master = "local[*]",
    workers: Annotated[
        int | None,
        typer.Option("--workers", metavar="N", parser=at_least(1),
                     help="Maximum number of worker processes."),
        ANY_FILE,
    ] = None,
    keep: Annotated[
        int,
        typer.Option("--keep", metavar="N", parser=at_least(1),
                     help="Complete epochs to retain."),
        ANY_FILE,
    ] = 10,
    epoch_timeout: Annotated[
        float,
        typer.Option("--epoch-timeout", metavar="DURATION", parser=positive_duration,
                     help="Abort epochs after this time."),
        ANY_FILE,
    ] = "10m",  # type: ignore[assignment]
    max_concurrent: Annotated[
        int,
        typer.Option("--max-concurrent", metavar="N", parser=at_least(1), help="Maximum number of epochs in progress."),
        ANY_FILE,
    ] = 1,
    recovery: Annotated[
        RecoveryScope,
        typer.Option("--recovery",
                     help="What to restart on failure."),
        ANY_FILE,
    ] = RecoveryScope.SUBGRAPH,
    backup_buffer: Annotated[
        int | None,
        typer.Option("--backup-buffer", metavar="SIZE", parser=size, show_default=False,
                     help="Buffer size per worker, for --recovery local."),
        ANY_FILE,
    ] = None,
    state_memory: StateMemory = None,
    restarts: Annotated[
        int,
        typer.Option("--restarts", metavar="N", parser=at_least(0),
                     help="Restarts allowed within ten epochs."),
        ANY_FILE,
    ] = 3,
    worker_timeout: Annotated[
        float,
        typer.Option("--worker-timeout", metavar="DURATION", parser=positive_duration,
                     help="Heartbeat timeout of workers."),
        ANY_FILE,
    ] = "10s",  # type: ignore[assignment]
    advertise: Annotated[
        str | None,
        typer.Option("--advertise", metavar="HOST", show_default=False,
                     help="Host or address at which workers reach the driver."),
        CHOSEN_FILE,
    ] = None,
    bind: Annotated[
        str | None,
        typer.Option("--bind", metavar="HOST", show_default=False,
                     help="Address on which the driver listens."),
        CHOSEN_FILE,
    ] = None,
    insecure: Insecure = False,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Resume from the newest intact epoch, if any."),
        ANY_FILE,
    ] = False,
    from_epoch: Annotated[
        int | None, typer.Option("--from-epoch", metavar="EPOCH", parser=at_least(0), help="Start from this epoch."),
        ANY_FILE,
    ] = None,
    parallelism: Annotated[
        list[str] | None,
        typer.Option("--parallelism", metavar="OP=N",
                     help="Run operator OP with N tasks; repeatable."),
        ANY_FILE,
    ] = None,
    take_ownership: TakeOwnership = False,
    accept_missing_parts: AcceptMissingParts = False,
    trace: Annotated[
        str | None,
        typer.Option("--trace", metavar="FILE", show_default=False,
                     help="Append a trace of protocol events to this file."),
        CHOSEN_FILE,
    ] = None,
    metrics: Annotated[
        Address | None,
        typer.Option("--metrics", metavar="[HOST:]PORT", parser=listening, show_default=False,
                     help="Serve Prometheus metrics at this address."),
        CHOSEN_FILE,
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check the job, store and sinks; run nothing."),
        ANY_FILE,
    ] = False,
    sample: Annotated[
        int | None,
        typer.Option("--sample", metavar="N", parser=at_least(1), show_default=False,
                     help="With --dry-run: show N rows from each operator."),
        ANY_FILE,
    ] = None,
    log_format: LogFormat = LogForm.TEXT,
    output: OutputForm = Output.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Run a job and take snapshots of it.

    The job runs on Spark, or with --engine inline in this process. An epoch (a checkpoint) is taken every
    --interval and written to --store; sinks publish only rows of complete epochs. If a worker fails, or sends no
    heartbeat for --worker-timeout, its tasks recover while the job runs. To continue a job that was stopped or
    killed, repeat the command with --resume.

    SIGTERM and SIGINT complete a last epoch; a second signal stops at once. A Python job file is imported: use only
    files that you trust.
    """
    from abscli.cli.plans import option_errors
    from abscli.cli.running import (
        again_json,
        again_text,
        check_directory,
        emit_result,
        job_watched,
        note_taken_over,
        warn_of_clear,
        warn_of_repeats,
    )
    from abscli.engine.errors import UsageError
    from abscli.engine.job import JobOptions
    from abscli.engine.losses.decisions import Scope
    from abscli.engine.sinks.staged.printed import print_with
    from abscli.jobs.files import job_directory
    from abscli.stores.native.rescale import parallelism_of
    from abscli.stores.native.run import prepare_job

    said = context.get_parameter_source("master")
    if engine is Engine.INLINE and said is not None and said.name == "COMMANDLINE":
        raise typer.BadParameter("the inline engine has no Spark master: remove one of them", param_hint="'--master'")
    if sample is not None and not dry_run:
        raise typer.BadParameter("it requires --dry-run", param_hint="'--sample'")
    if store is None:
        if not dry_run or resume or from_epoch is not None:
            raise UsageError("missing option '--store'", hint="'abs run --help' lists the options")
        with option_errors():
            numbers = parallelism_of(parallelism or ())
            _rehearse_alone(job, numbers, words_again(context, {"--dry-run": 0, "--sample": 1}), output, sample)
        return
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
        recovery=Scope(recovery),
        backup_buffer=backup_buffer,
        state_memory=state_memory,
        restarts=restarts,
        worker_timeout=worker_timeout,
        advertise=advertise,
        bind=bind,
        insecure=insecure,
        from_epoch=from_epoch,
        take_ownership=take_ownership,
        accept_missing=accept_missing_parts,
        trace=trace,
    )
    with option_errors():
        numbers = parallelism_of(parallelism or ())
        prepared = prepare_job(job, store, options, resume=resume, dry_run=dry_run, parallelism=numbers)
    if prepared.resumed is not None:
        _say_where(prepared.resumed)
    if prepared.options.from_epoch:
        warn_of_repeats(store, prepared.options.from_epoch)
    if dry_run:
        again = words_again(context, {"--dry-run": 0, "--sample": 1})
        _rehearse(prepared, again, output, _sampled(prepared.topology, job, sample))
        return
    warn_of_clear(insecure)
    name = prepared.topology.job
    prints = any((op.connector or {}).get("type") == "stdout" for op in prepared.topology.operators)
    print_with(emit_rows)
    with job_watched(name, metrics) as show:
        outcome = prepared.run(show, show.news)
    from abscli.text.columns import counted
    from abscli.text.skipped import skipped_text

    how = "finished" if outcome.finished else "stopped"
    result = {
        "schema": "abs.run", "version": FORMAT_VERSION, "job": name, "store": store, "epoch": outcome.epoch,
        "parent": outcome.parent, "epochs": outcome.epochs, "records": outcome.records,
        "elapsed": round(outcome.elapsed, 3), "finished": outcome.finished, "policy": outcome.policy,
        "repeats": again_json(outcome.repeats), "skipped": outcome.skipped,
    }  # fmt: skip
    text = (
        f"{name}: {how} at epoch {outcome.epoch}: {outcome.epochs} epoch{'s'[: outcome.epochs != 1]} and "
        f"{counted(outcome.records, 'record')} in {outcome.elapsed:.1f} s"
        + (f"; {skipped_text(outcome.skipped)}" if outcome.skipped else "")
        + again_text(outcome.policy, outcome.repeats)
    )
    if prints and output is Output.TABLE:
        note(text)  # stdout has the rows
    else:
        emit_result(result, text, Output.NDJSON if prints else output)
    note_taken_over(outcome.taken_over)
    if not outcome.finished:
        note(f"Next: abs run {again} --store {shlex.quote(store)} --resume")
    if outcome.signal is not None:
        raise typer.Exit(128 + outcome.signal)


def _sampled(topology: Topology, job: str, most: int | None) -> Sample | None:
    """What each operator makes of the first records; None where nobody asks for that."""
    from abscli.engine.sampling import sample_of
    from abscli.jobs.files import job_directory

    return None if most is None else sample_of(topology, job_directory(job), most)


def _show_sample(result: dict[str, Any], text: str, sample: Sample | None, form: Output) -> None:
    """What a dry run says, and what came of the sample; raises what an operator met there, as a run would."""
    from abscli.cli.output import width
    from abscli.cli.running import emit_result
    from abscli.text.sample import sample_json, sample_text

    if sample is not None:
        result = {**result, "sample": sample_json(sample)}
        text = f"{sample_text(sample, width=width())}\n{text}"
    if sample is not None and sample.error is not None:
        text = sample_text(sample, width=width())
    emit_result(result, text, form)
    if sample is not None and sample.error is not None:
        raise sample.error


def _rehearse_alone(job: str, parallelism: dict[str, int], words: str, form: Output, most: int | None) -> None:
    """What can be said of a job without a store."""
    from abscli.engine.runnable import all_faults
    from abscli.jobs.files import job_directory, read_job
    from abscli.stores.native.rescale import overridden
    from abscli.text.columns import counted
    from formats.job.expand import size_of

    directory = job_directory(job)
    read = read_job(job, lambda graph: all_faults(graph, directory, from_start=True))
    topology = overridden(read.topology, parallelism)
    tasks, channels = size_of(topology)
    result: dict[str, Any] = {
        "schema": "abs.rehearsal", "version": FORMAT_VERSION, "job": topology.job, "store": None, "new": None,
        "attempt": None, "parent": 0, "policy": None, "tasks": tasks, "channels": channels, "rescaled": [],
    }  # fmt: skip
    size = f"{counted(tasks, 'task')}, {counted(channels, 'channel')}"
    text = f"{topology.job} can run: {size}; no --store is named, and no sink was looked at"
    _show_sample(result, text, _sampled(topology, job, most), form)
    _warn_of_no_sink(topology)
    note("nothing was changed (--dry-run)")
    note(f"Next: abs run {words} --store PATH")


def _warn_of_no_sink(topology: Topology) -> None:
    from formats.job.model import as_sink

    if not any(as_sink(operator) for operator in topology.operators):
        warn(f"{topology.job} has no sink: its rows are written nowhere")


def _rehearse(prepared: PreparedJob, words: str, form: Output, sample: Sample | None) -> None:
    """What a run would do; raises what it would be refused for."""
    from abscli.cli.running import note_change
    from abscli.stores.native.rescale import in_words
    from abscli.text.columns import counted
    from formats.durations import duration_short
    from formats.job.expand import size_of

    would = prepared.rehearse()
    topology, store = prepared.topology, prepared.store
    tasks, channels = size_of(topology)
    result = {
        "schema": "abs.rehearsal", "version": FORMAT_VERSION, "job": topology.job, "store": store, "new": would.new,
        "attempt": would.attempt, "parent": would.parent, "policy": would.policy, "tasks": tasks,
        "channels": channels,
        "rescaled": [change._asdict() for change in prepared.rescale],
    }  # fmt: skip
    begins = f"resumes from epoch {would.parent}" if would.parent else "starts from the beginning"
    if prepared.rescale:
        begins += f" and rescales {in_words(prepared.rescale)}"
    effect = f"{store} is made" if would.new else f"attempt {would.attempt} on {store}"
    interval = prepared.options.interval
    pace = f"an epoch every {duration_short(interval)}, " if interval is not None else ""
    size = f"{counted(tasks, 'task')}, {counted(channels, 'channel')}"
    text = f"{topology.job} can run: {begins}, policy {would.policy}, {pace}{size}; {effect}"
    _show_sample(result, text, sample, form)
    for news in would.news:
        note_change(news)
    _warn_of_no_sink(topology)
    note("nothing was changed (--dry-run)")
    note(f"Next: abs run {words}")


def _say_where(resumed: Resumed) -> None:
    """Says so if it is not the newest complete epoch that the job goes on from."""
    if resumed.remark is not None:
        note(resumed.remark)
    for warning in resumed.warnings:
        warn(warning)
