"""`abs run`: a job with snapshots."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from abscli.cli import exits
from abscli.cli.options import (
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
    Verbose,
    at_least,
    listening,
    positive_duration,
    size,
    words_again,
)
from abscli.cli.output import LogForm, Output, emit_rows, note, warn

if TYPE_CHECKING:
    from abscli.engine.sampling import Sample
    from abscli.stores.native.run import PreparedJob, Resumed
    from formats.job.model import Topology

EXAMPLES = (
    ("abs run job.yaml --store snapshots", "Runs the job on this machine's cores, with a snapshot every second."),
    ("abs run job.yaml --store snapshots --resume", "Goes on from the newest whole epoch."),
    ("abs run job.yaml --store snapshots --dry-run", "Says what is in the way, or what would be done."),
    ("abs run job.yaml --dry-run --sample 5", "Shows rows that each operator makes of the first records."),
    ("abs run job.yaml --store snapshots --resume --parallelism counts=7", "Goes on with 7 tasks of counts."),
    ("abs run job.yaml --store snapshots --engine inline --interval 10s", "In one process, without a JVM."),
)
EXIT_STATUS = exits.status(
    3, 4, 6, 7, 10, 11, 12, 130, 143,
    _0="The job has ended, and its last epoch is complete.",
    _2="A bad option, a topology file that does not hold, more workers than slots, a store of another job, a "
    "change of the job that it does not explain, or a store that has epochs and neither --resume nor --from-epoch. A "
    "--master on other hosts whose Spark does not encrypt, without --insecure.",
    _4="--resume: there are complete epochs, and none is whole; or the job has changed, and records would be lost that "
    "are on their way on an edge that is gone. --parallelism: what is on the channels of the epoch cannot be given to "
    "other tasks.",
    _6="Stopped part-way (lost driver, cluster or full disk, hosts that do not reach each other, or workers lost "
    "more often than --restarts allows); the message names the last complete epoch. Or fewer slots came than it needs.",
    _7="The job itself failed: a user function raised, input that is not what the job says; or what was read of a file "
    "is not there any more.",
    _10="No such epoch to start from.",
    _3="Parts of the output that belong to the epoch are gone, or a fact of the store is damaged.",
    _11="Another process runs on this store, or writes one of its sinks.",
    _130="Interrupted: a last epoch was committed, unless a second signal came.",
    _143="Terminated: likewise.",
)


def run(
    context: typer.Context,
    job: Annotated[
        str,
        typer.Argument(metavar="JOB", help="Job file: YAML, JSON, or Python, which is imported; functions are found "
                       "beside it."),
    ],
    store: Annotated[
        str | None,
        typer.Option("--store", metavar="PATH", show_default=False,
                     help="Directory of the checkpoint store, or a place in a bucket, s3://BUCKET/PATH; --dry-run does "
                     "without one."),
    ] = None,
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
                     help="Worker processes, at most; default: one a slot of the cluster. Never more than the largest "
                     "parallelism: one more would have no task."),
    ] = None,
    keep: Annotated[
        int,
        typer.Option("--keep", metavar="N", parser=at_least(1),
                     help="Complete epochs to keep while running, besides those that have a tag."),
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
    recovery: Annotated[
        RecoveryScope,
        typer.Option("--recovery",
                     help="What restarts when a worker is lost: its tasks alone, the recovery set, or all tasks."),
    ] = RecoveryScope.SET,
    keep_frames: Annotated[
        int | None,
        typer.Option("--keep-frames", metavar="SIZE", parser=size, show_default=False,
                     help="Memory of each worker for what it has sent, with --recovery local, and four times as much "
                          "on local disk; default: an eighth of this machine's memory for all workers."),
    ] = None,
    state_memory: StateMemory = None,
    restarts: Annotated[
        int,
        typer.Option("--restarts", metavar="N", parser=at_least(0),
                     help="How often tasks may restart within ten epochs; 0: the job stops when a worker is lost."),
    ] = 3,
    worker_timeout: Annotated[
        float,
        typer.Option("--worker-timeout", metavar="DURATION", parser=positive_duration,
                     help="Time without a sign of life after which a worker counts as lost; a third of it is said, "
                          "and after two thirds a worker that hears nothing of the driver leaves."),
    ] = "15s",  # type: ignore[assignment]
    advertise: Annotated[
        str | None,
        typer.Option("--advertise", metavar="HOST", show_default=False,
                     help="Name or address under which workers on other hosts reach the driver; default: Spark's "
                          "spark.driver.host."),
    ] = None,
    bind: Annotated[
        str | None,
        typer.Option("--bind", metavar="HOST", show_default=False,
                     help="Address on which the driver listens; default: spark.driver.bindAddress, or what "
                          "--advertise says."),
    ] = None,
    insecure: Insecure = False,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Start from the newest whole epoch; where there is none, from the beginning."),
    ] = False,
    from_epoch: Annotated[
        int | None, typer.Option("--from-epoch", metavar="EPOCH", parser=at_least(0), help="Start from this epoch.")
    ] = None,
    parallelism: Annotated[
        list[str] | None,
        typer.Option("--parallelism", metavar="OP=N",
                     help="Run this operator with N tasks, in place of the job file's number; repeatable."),
    ] = None,
    take_over: Annotated[
        bool,
        typer.Option("--take-over", help="Write sinks that another store has written since; what is not of this one's "
                     "line is set aside in superseded/."),
    ] = False,
    accept_missing_parts: AcceptMissingParts = False,
    trace: Annotated[
        str | None,
        typer.Option("--trace", metavar="FILE", show_default=False,
                     help="Append to this file what the protocol's machines see and do, for 'abs simulate --check'."),
    ] = None,
    metrics: Annotated[
        Address | None,
        typer.Option("--metrics", metavar="[HOST:]PORT", parser=listening, show_default=False,
                     help="Serve figures for Prometheus at this address while the job runs; without HOST on this "
                     "machine alone."),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check the job, the store and the sinks, say what would be done, and stop."),
    ] = False,
    sample: Annotated[
        int | None,
        typer.Option("--sample", metavar="N", parser=at_least(1), show_default=False,
                     help="With --dry-run: work on the first records, and show up to N rows that each operator emits."),
    ] = None,
    log_format: LogFormat = LogForm.TEXT,
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

    When a worker is lost (killed, gone with its executor, or without a sign of life for --worker-timeout), another one
    takes its place while the job runs: the tasks that 'abs plan-recovery --failed-worker' names go back to the newest
    complete epoch, the others keep their state and drop what they have seen already. With --recovery full all tasks go
    back, in their processes. A function that raises is tried once more from that epoch; if it raises at the same record
    again, the job ends. After --restarts within ten complete epochs the job stops, and the message names the epoch to
    go on from. The first restart is at once, later ones wait a little longer each time. Before the first complete epoch
    all tasks start again. stderr has a line for every restart, and 'abs inspect' shows them.

    With --recovery local the tasks of the lost worker restart alone, behind a shuffle and in a loop, too, and take the
    same steps again: workers keep what they have sent since the newest complete epoch, in memory up to
    --keep-frames and then in a file of their own in the folder for temporary files, up to four times as much; and the
    order in which tasks took their inputs goes with the records to other workers. Where that cannot be exact all tasks
    go back, and stderr says why: before the first complete epoch, past --keep-frames, when a task that goes on has
    received from a lost one whose operator is marked 'deterministic: false', or when a function does something else the
    second time. 'abs plan-recovery --failed-worker N --recovery local' names the tasks.

    A join ('join: {key, left, time, within, how}') keeps rows of both inputs until the watermark says that nothing can
    match them any more. A table beside the stream ('lookup: {path, key}', or with the table or query
    of a PostgreSQL database in place of the path) is read by each task when it starts; if it is
    another one than in the epoch that a job goes on from, the run is refused with exit 7, unless the operator is marked
    'deterministic: false'.

    --state-memory lets keyed state be larger than memory: reduce, distinct, join and process keep it by key group, and
    those that were used longest ago lie in files of the folder for temporary files (TMPDIR), which have no names and
    are gone with their worker, however it ends. Results, epochs and recovery are the same; where the disk is full the
    job ends with exit 6. Rows of a reduce with 'emit: epoch' or 'emit: change' wait until there are many for a key
    group that is on disk; any other reduce, distinct and process read every key group that a batch has keys of. Not
    counted are batches on their way, tables beside streams, the index by time of a join's rows (24 bytes a row), and of
    an epoch the rows that it emits and its state file while that is written.

    Workers and the driver hear of each other every second, from threads of their own. After a third of --worker-timeout
    a silence is said on stderr, with the worker and its host. After two thirds a worker that has heard nothing of the
    driver leaves: it writes nothing any more, also when it stood still and goes on. After the whole time the driver
    counts it as lost. A function that lets no other thread run for so long, as a single long call into a library that
    keeps Python's lock, costs its worker: --worker-timeout has to be longer than that takes. Workers whose tasks
    exchange records hear of each other, too: of two that reach the driver and not each other, the one of which more
    workers complain is lost, else the one with the higher number; where that has happened before the job began to run,
    or happens again between the same hosts, the job ends with exit 6 and names both. A worker in place of a lost one
    has to come within 25 s; else the job ends with exit 6, too.

    With a --master on other hosts the job waits until as many slots have come as --workers says, for 90 s at most, and
    only then writes anything. Every worker listens on the address from which it reaches the driver, so that nothing has
    to be configured where the driver has one address; where it has several, or is behind another one, --advertise says
    which workers use, and --bind on which it listens. The store has to lie where the driver and all workers see it
    under the same path, or in a bucket. Modules beside the job file are sent to workers.

    A store may lie in a bucket: s3:// (also s3a://, s3n://, s3p://: one place), gs://, abfs:// and az://. Who may use
    it is said by the variables of the cloud's own clients (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, AWS_REGION and so
    on), on every host; of S3 also by fs.s3a.* in Spark's configuration, which workers are given, then by AWS_PROFILE
    and the files of profiles, then by the machine's role. A server that lets a second writer create what is there
    already is refused at the start. No kernel lets go of a lock there: a job whose machine is gone is followed after
    15 s without a sign of life. One that was taken for dead and comes back completes and shows nothing.

    Sources read the files that are there when the job first starts, each to its end; then the job ends. Lines and files
    that come later are not read, and a run that goes on names them on stderr. With follow: true they are: a source
    looks for files and lines every second (every: 5s says otherwise), takes whole lines, and Parquet and Arrow as they
    come by a rename; the job ends by SIGTERM. An epoch notes a checksum of what was
    read of each file: where a file is another one when the job goes on, or has shrunk, the run is refused with exit
    code 7 before anything starts, and names it. Of text, JSON lines and CSV that is a checksum of every byte that was
    read; a file that has only grown is the same. Of Parquet and Arrow it is one of the file's size, its first and last
    64 KiB, and 64 places between. Where a file has the size and the time that it had, it is taken for the same.
    The path of a source may lead to a bucket or to HDFS (s3://bucket/in/*.csv), for those who may use a store there:
    its splits are called by their URIs, and a file of the version that it had (its ETag) is taken for the same.
    A source of Kafka reads each partition to the end that it has when the job first starts, or with follow: true what
    comes, and partitions that come; never what is in a transaction that was not committed. Where its broker has not any
    more what comes next, or another topic of the name, the run is refused with exit code 7, with both offsets, and ends
    so while it reads. A broker that is away is waited for, at the start for a minute.
    Rows of nexmark and generate sources are made: by their numbers, so that an epoch knows them by how many there were.

    A source of type postgres reads a table in order of a key that grows (key: [id]), and an epoch has the key that was
    read last. Past a row that a transaction may still commit nothing is read: who has the table locked for writing when
    its greatest key is looked at is waited for. Updates and deletes of rows that were read are not seen, nor rows whose
    key was made before their transaction locked the table. Another table under the name, other types of its columns, or
    keys that are given again are exit code 7. A server that is away is waited for. Both waits are said on stderr.

    What goes between the driver and workers on other hosts, and from worker to worker, is encrypted (TLS 1.3), and both
    ends of every connection show a certificate that is made for this attempt alone. Its key reaches the workers through
    Spark, so Spark has to authenticate and encrypt, too: spark.authenticate and spark.network.crypto.enabled (or
    spark.ssl.rpc.enabled) in its configuration, as the cluster has it; else the run is refused with exit code 2 before
    anything is written. --insecure does without both: records, tokens, and keys of buckets that Spark's configuration
    has, go over the network as they are, where others can read them, change them, and take part in the job. On this
    machine alone nothing is encrypted.

    --parallelism with --resume or --from-epoch rescales: a new epoch says for the new number of tasks what the old one
    said. Their state is in the files that are there, by key group; what was on its way on channels is routed anew.
    Operators that are joined by a forward edge get their new number together. A later --resume needs the same option,
    or the number in the job file.

    A sink belongs to one store at a time, and no two jobs write it at once. Before the job starts, the parts of the
    output that the kept epochs name are looked for; where one is gone the run is refused. Only the folder that the job
    file names now is set right: who goes back to an epoch from before a sink's path was changed finds newer parts in
    the old folder still, and has to move them away. A sink's path may be a place in a bucket of S3, or what speaks it
    (s3://), of Azure (abfs://) or of Google (gs://): parts are uploads there, which are completed when the manifest of
    their epoch is written.

    Rows for a table that is written by key (mode: upsert), of Delta Lake or of Iceberg, or for a topic of Kafka, lie in
    the store until the manifest of their epoch is written, and come there after it. What is there cannot be taken back:
    a run that goes back behind it is refused, or leaves it there with --take-over. A sink of type stdout writes its
    rows as JSON lines there, an epoch's after its manifest, and what 'abs run' says of its end goes to stderr then. A
    run that was killed between the rows and the mark that they are written writes them again: 'row_id: COLUMN' gives
    each row an id that is the same then.

    A table of Iceberg is 'sink: {type: iceberg, table: shop.counts, warehouse: lake}': a namespace and a name in the
    catalog that the folder lake beside the job's file is, both made where they are not there. 'catalog: NAME' in place
    of the folder is one that pyiceberg's settings know, PYICEBERG_CATALOG__NAME__URI in the environment and
    ~/.pyiceberg.yaml; 'uri: URI', and 'warehouse' with it, say where a catalog is, and the settings of the one called
    default the rest. No user and no password may stand in a job. What was committed is known to the table. One that was
    dropped, is another one now, or was set back behind it, is refused, or taken as it is with --take-over: what the
    store still has and the table has not is written then.

    The job may have changed since the epoch that it goes on from. Operators that are new begin without state; those
    that have another id, or are gone, and had state, positions or output are named in the job file, as 'moved: [{from:
    counts, to: tally}]' and 'removed: [audit]'. What these lines do not explain is refused, with the lines to add. Such
    a run begins a new generation: an epoch that refers to what the old tasks wrote, complete before any record moves.
    Modules that have changed are named on stderr.

    A job in Python (job.py) is imported to get its graph, and is the same job as the file of YAML that 'abs topology
    job.py -o yaml' prints. Importing a file runs it: run only files that you trust. Workers import its functions by
    name, as of any other job; nothing is pickled. No store and no plan ever leads to a file being imported: only a JOB
    that is named does.

    At its start, as at that of 'abs restore', 'abs drill' and 'abs demo', a line on stderr says what holds from end to
    end under the policy, and what weakens that: of state, how often a record counts, and of output, how often a row
    made of it is shown, where they differ. 'abs topology JOB --guarantee' says it of each sink, with what to change.

    --dry-run says all at once that a run would be refused for: functions that do not load, connectors and kinds of
    operators that cannot be run, input and columns that are not there, a store or sinks of another job. It needs no
    --store, and then looks at the job alone. With --sample N the job works on the first records of each source, in
    this process, with one task an operator: each operator's columns and types are shown, and up to N of its rows; of a
    sink those that it would write. At most 10,000 records of a source are read, from the beginning, also with
    --resume. Nothing is written anywhere, but functions are called as in a run. An operator that fails is shown with
    its error, and the command ends with exit code 7 as the run would.

    An operator with 'on_error: skip' leaves out records on which it fails and counts them; with 'on_error:
    {dead_letter: PATH}' it writes them to a folder, or a bucket, too: each once, with the epoch that it belongs to, as
    a sink does. A batch in which a record fails is halved until that record is alone, so that all others go on; that
    needs a function that fails at the same records each time and has no effects of its own. How many were left out is
    said when the job ends, by 'abs inspect' and --metrics. Of a reduce these are rows with which a sum would overflow,
    also in one of their windows, but for sessions; of windows, a join, and keys with a ttl those without a time.

    Where stderr is no terminal, a line an epoch says when it was complete, how long it took, and how many records were
    read and bytes written. What functions of the job print goes there too: stdout has the result alone. When several
    epochs in a row exceed --epoch-timeout, a warning names the tasks that are slow.

    --metrics serves, in the text form of Prometheus: epochs completed and given up, their durations by phase, bytes,
    records, the time since the newest complete epoch, bytes in loops and whether sources wait for those, restarts and
    how long they took. With
    --log-format json every line that abs says on stderr is an object with time, level and message (schema abs.log); of
    epochs and recoveries with an event and its figures, too, and the error that ends the command with its exit code.
    What functions print stays as it is.

    SIGTERM and SIGINT take a last epoch, commit it and leave; a second signal leaves at once (the same one within half
    a second counts once, as 'timeout' sends it twice).
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

    if sample is not None and not dry_run:
        raise typer.BadParameter("a sample is of a dry run: give --dry-run, too", param_hint="'--sample'")
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
        keep_frames=keep_frames,
        state_memory=state_memory,
        restarts=restarts,
        worker_timeout=worker_timeout,
        advertise=advertise,
        bind=bind,
        insecure=insecure,
        from_epoch=from_epoch,
        take_over=take_over,
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
        "schema": "abs.run", "version": "1.0", "job": name, "store": store, "epoch": outcome.epoch,
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
        note(f"next: abs run {again} --store {shlex.quote(store)} --resume")
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
    from formats.job.expand import size_of

    directory = job_directory(job)
    read = read_job(job, lambda graph: all_faults(graph, directory, from_start=True))
    topology = overridden(read.topology, parallelism)
    tasks, channels = size_of(topology)
    result: dict[str, Any] = {
        "schema": "abs.rehearsal", "version": "1.1", "job": topology.job, "store": None, "new": None, "attempt": None,
        "parent": 0, "policy": None, "tasks": tasks, "channels": channels, "rescaled": [],
    }  # fmt: skip
    text = f"{topology.job} can run: {tasks} tasks, {channels} channels; no --store is named, and no sink was looked at"
    _show_sample(result, text, _sampled(topology, job, most), form)
    note("nothing was changed (--dry-run)")
    note(f"next: abs run {words} --store PATH")


def _rehearse(prepared: PreparedJob, words: str, form: Output, sample: Sample | None) -> None:
    """What a run would do; raises what it would be refused for."""
    from abscli.cli.running import note_change
    from abscli.stores.native.rescale import in_words
    from formats.job.expand import size_of

    would = prepared.rehearse()
    topology, store = prepared.topology, prepared.store
    tasks, channels = size_of(topology)
    result = {
        "schema": "abs.rehearsal", "version": "1.1", "job": topology.job, "store": store, "new": would.new,
        "attempt": would.attempt, "parent": would.parent, "policy": would.policy, "tasks": tasks,
        "channels": channels,
        "rescaled": [change._asdict() for change in prepared.rescale],
    }  # fmt: skip
    begins = f"goes on from epoch {would.parent}" if would.parent else "starts from the beginning"
    if prepared.rescale:
        begins += f" and rescales {in_words(prepared.rescale)}"
    effect = f"{store} is made" if would.new else f"attempt {would.attempt} on {store}"
    text = (
        f"{topology.job} can run: {begins}, policy {would.policy}, {tasks} tasks, {channels} channels; {effect}"
    )
    _show_sample(result, text, sample, form)
    for news in would.news:
        note_change(news)
    note("nothing was changed (--dry-run)")
    note(f"next: abs run {words}")


def _say_where(resumed: Resumed) -> None:
    """Says so if it is not the newest complete epoch that the job goes on from."""
    if resumed.remark is not None:
        note(resumed.remark)
    for warning in resumed.warnings:
        warn(warning)
