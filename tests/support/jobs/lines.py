"""A job that copies lines to a sink, each line once in its input: what is lost or shown twice is seen at a glance.

Sources read a little and then wait for the next epoch, so that a job has as many epochs as its input is long, on any
machine. Run as a program it is the same job in a process of its own, which stops or kills itself at a given moment.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv, parquet

from abscli.engine.coordinator import Progress, Service
from abscli.engine.job import JobOptions, Outcome, run_job
from abscli.engine.sinks.staged.printed import Printed, print_with
from abscli.engine.sources.files import jsonl, line_files, text
from abscli.engine.telemetry.news import News
from abscli.report.findings import StoreReport
from abscli.stores.base import Checked
from abscli.stores.native.check import check
from abscli.stores.native.plan import plan_recovery
from abscli.stores.native.restore import restore
from abscli.stores.native.targets import Targets
from abscli.stores.recovery import JobFile
from formats.job.changes import NO_CHANGES, Changes
from formats.job.model import Edge, Kind, Operator, Partition, Topology
from formats.native.sink import SinkFolder
from formats.native.store import NativeStore
from formats.storage import open_writable
from tests.support.postgres import execute, rows
from tests.support.waiting import wait_for

ROOT = Path(__file__).resolve().parents[3]
TASKS = 2
LINES_AN_EPOCH = 10


def topology(
    out: str = "out", type: str = "jsonl", also: str | None = None, id: str = "out", tasks: int = TASKS
) -> Topology:
    """out: where the sink writes, a table where `type` is postgres or upsert; type: of its files. also: where a second
    sink of this type writes the same. id: of the sink."""
    if also is not None:
        first, second = topology(out, type, id=id), topology(also, type, id="also")
        sinks = [op for op in second.operators if op.kind is Kind.SINK]
        return Topology(first.job, (*first.operators, *sinks), (*first.edges, *second.edges))
    sink: dict[str, Any] = {"type": type, "path": out}
    if type == "stdout":
        sink = {"type": type, "row_id": "id"}
    if type == "upsert":
        sink = {"type": "postgres", "table": out, "url_env": "LINES_DATABASE", "mode": "upsert", "key": ["line"]}
    if type == "postgres":
        sink = {"type": type, "table": out, "url_env": "LINES_DATABASE"}
    if type == "iceberg":
        sink = {"type": type, "table": f"shop.{out}", "warehouse": "lake"}
    if type == "kafka":
        sink = {"type": type, "brokers": os.environ["LINES_BROKER"], "topic": out, "key": "line"}
    return Topology(
        "copied",
        (
            Operator("lines", Kind.SOURCE, tasks, 8, connector={"type": "text", "path": "in/*.txt"}),
            Operator(id, Kind.SINK, tasks, 8, connector=sink),
        ),
        (Edge("lines", id, Partition.FORWARD),),
    )


def make_table(url: str, name: str, type: str) -> None:
    """A table for the sink, anew. Of type upsert each line has one row whatever happens: so another table counts how
    often each is written. What an earlier test has left prepared keeps its tables locked."""
    for (gid,) in rows(url, "select gid from pg_prepared_xacts where database = current_database()"):
        execute(url, f"rollback prepared '{gid}'")
    execute(url, f"drop table if exists {name}, abs_epochs, abs_writers")
    if type == "postgres":
        execute(url, f"create table {name} (line text)")
        return
    execute(
        url, f"create table {name} (line text primary key)", f"drop table if exists {name}_written",
        f"create table {name}_written (line text)",
        f"create or replace function {name}_note() returns trigger as "
        f"$$ begin insert into {name}_written values (new.line); return new; end $$ language plpgsql",
        f"create trigger note before insert on {name} for each row execute function {name}_note()",
    )  # fmt: skip


def write_lines(folder: Path, epochs: int) -> None:
    """Input for about so many epochs: a file a source task."""
    (folder / "in").mkdir(parents=True)
    for i in range(TASKS):
        lines = [f"line {i} {k}" for k in range(epochs * LINES_AN_EPOCH)]
        (folder / "in" / f"{i}.txt").write_text("\n".join(lines) + "\n")


def copy_while_it_changes(source: Path, target: Path) -> None:
    """Copy a folder that a job writes, as `cp -r` does: what goes away meanwhile, as a temporary file does when it gets
    its name, is left out."""
    try:
        shutil.copytree(source, target)
    except shutil.Error as error:
        for path, _, reason in error.args[0]:
            assert not os.path.exists(path), reason


@dataclass
class Gate:
    """How far sources may read: so many lines for every epoch that the run has completed, and one more."""

    epochs: int = 0
    read: dict[int, int] = field(default_factory=dict)

    def install(self, patch: Callable[[object, str, object], None]) -> None:
        """Let every source of the process read through this gate. patch: as `setattr`."""
        patch(line_files, "CHUNK", 12 * LINES_AN_EPOCH)
        patch(text.TextSource, "read", self._held(text.TextSource.read))
        patch(jsonl.JsonLinesSource, "read", self._held(jsonl.JsonLinesSource.read))

    def _held(self, plain: Callable[[Any], pa.RecordBatch | None]) -> Callable[[Any], pa.RecordBatch | None]:
        def read(source: text.TextSource | jsonl.JsonLinesSource) -> pa.RecordBatch | None:
            done = self.read.get(id(source), 0)
            if done >= (self.epochs + 1) * LINES_AN_EPOCH and not source.finished:
                time.sleep(0.002)  # an empty poll, which would otherwise keep a core busy until the epoch is complete
                schema = text.LINES if isinstance(source, text.TextSource) else source._schema
                return pa.RecordBatch.from_pylist([], schema)
            rows = plain(source)
            self.read[id(source)] = done + (rows.num_rows if rows is not None else 0)
            return rows

        return read


@dataclass
class Lines:
    """The job in one folder, on any of several stores. gate: see there; out: where its sink writes; type: of its
    files; also, id: as of `topology`."""

    folder: Path
    gate: Gate
    out: str = "out"
    type: str = "jsonl"
    also: str | None = None
    id: str = "out"
    tasks: int = TASKS

    @property
    def graph(self) -> Topology:
        """The job graph."""
        return topology(self.out, self.type, self.also, self.id, self.tasks)

    def run(
        self, store: str = "a", *, epochs: int | None = None, at: Callable[[int], None] = lambda n: None, **more: object
    ) -> Outcome:
        """Run to the end, or ask for a stop as SIGTERM does once so many epochs are complete. at: called with the
        number of complete epochs of this run, as they come."""
        self.gate.epochs, self.gate.read = 0, {}
        print_with(self.note_printed)
        services: list[Service] = []

        def progress(p: Progress) -> None:
            if p.epochs > self.gate.epochs:
                self.gate.epochs = p.epochs
                at(p.epochs)
            if epochs is not None and p.epochs >= epochs and services:
                services.pop().request_stop()

        defaults: dict[str, object] = {"engine": "inline", "interval": 0.005, "workers": TASKS, "keep": None}
        options = JobOptions(str(self.folder), "job.yaml", **{**defaults, **more})  # type: ignore[arg-type]
        outcome = run_job(self.graph, self.where(store), options, progress, services.append)
        # Such a run ends in order, before its input ends: the rest would be taken for lost rows.
        assert outcome.signal is None, f"the test process got signal {outcome.signal}, which stopped the job"
        return outcome

    def note_printed(self, data: bytes) -> None:
        """Take what a sink of type stdout writes."""
        with (self.folder / "printed").open("ab") as file:
            file.write(data)

    def where(self, store: str) -> str:
        """The place of a store: beside the job, or where its URI says."""
        return store if "://" in store else str(self.folder / store)

    def resume(self, store: str = "a", **more: object) -> Outcome:
        """From the newest complete epoch of the newest attempt's line."""
        from abscli.stores.native.plan import newest_whole

        detail, _ = newest_whole(self.store(store))
        return self.run(store, from_epoch=detail.facts.epoch, **more)  # type: ignore[arg-type]

    def go_on(self) -> Outcome:
        """After a kill: from the newest complete epoch, or from the beginning where there is none."""
        return self.resume() if self.complete() else self.run(from_epoch=0)

    @property
    def twice_named(self) -> bool:
        """Some manifest names rows of several epochs, as one does when a task stages the next epoch before it has heard
        that the one before is complete."""
        return any(len(part.sink) > 1 for epoch in self.complete() for part in self.store().parts(epoch))

    def store(self, name: str = "a") -> NativeStore:
        return NativeStore(open_writable(self.where(name)))

    def complete(self, name: str = "a") -> list[int]:
        """The complete epochs of a store."""
        store = self.store(name)
        return [epoch for epoch in store.epoch_numbers() if store.has_manifest(epoch)]

    @property
    def sink(self) -> SinkFolder:
        return SinkFolder(str(self.folder / "out"))

    def job(self, changes: Changes = NO_CHANGES) -> JobFile:
        """The job file, as a user names it to a command that reads the store."""
        return JobFile(str(self.folder / "job.yaml"), str(self.folder), self.graph, changes)

    def checked(self, store: str = "a", *, quick: bool = False, named: bool = True) -> Checked:
        """What `abs validate` finds. named: with `--job`."""
        return check(
            self.store(store).storage, None, quick=quick, progress=lambda read, total: None,
            job=self.job() if named else None,
        )  # fmt: skip

    def validated(self, store: str = "a", *, quick: bool = False) -> StoreReport:
        """What `abs validate --job` finds."""
        return self.checked(store, quick=quick).report

    def targets(self, store: str = "a") -> Targets:
        """The targets that the job file names."""
        return Targets.of(self.store(store), self.job())

    def shown(self) -> Counter[str]:
        """How often each line is visible."""
        if self.type == "postgres":
            return Counter(row for (row,) in rows(os.environ["LINES_DATABASE"], f"select line from {self.out}"))
        if self.type == "upsert":
            return Counter(row for (row,) in rows(os.environ["LINES_DATABASE"], f"select line from {self.out}_written"))
        if self.type == "kafka":
            from tests.support.kafka import consumed

            records = consumed(os.environ["LINES_BROKER"], self.out)
            return Counter(json.loads(value or "")["line"] for _, _, value in records)
        if self.type == "delta":
            from deltalake import DeltaTable

            path = str(self.folder / self.out)
            table = DeltaTable(path).to_pyarrow_table() if DeltaTable.is_deltatable(path) else None
            return Counter(table["line"].to_pylist() if table is not None else ())
        if self.type == "iceberg":
            table = iceberg_table(self.folder, self.out)
            return Counter(table.scan().to_arrow()["line"].to_pylist() if table is not None else ())
        if self.type == "stdout":
            return Counter(row["line"] for row in self.printed())
        place = open_writable(self.out if "://" in self.out else str(self.folder / self.out))
        names = [entry.name for entry in place.list("") if entry.size is not None and entry.name.startswith("part-")]
        return Counter(line for name in names for line in _lines_in(name, place.read(name)))

    def printed(self) -> list[dict[str, str]]:
        """What a sink of type stdout has written, of all runs."""
        path = self.folder / "printed"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def wrong(self) -> dict[str, int]:
        """How much more or less often than once each line is visible, where it is not once."""
        shown = self.shown()
        due = Counter(line for file in (self.folder / "in").iterdir() for line in file.read_text().splitlines())
        wrong = {line: shown[line] - due[line] for line in shown.keys() | due.keys() if shown[line] != due[line]}
        if wrong:
            sys.stdout.write("\n".join(self.epochs()))  # shown beside the failure of the test
        return wrong

    def epochs(self) -> Iterator[str]:
        """Yield a line for each task with source positions or named rows, of all complete epochs of each store."""
        for place in sorted(self.folder.glob("*/abs-store.json")):
            name = place.parent.name
            for epoch in self.complete(name):
                for part in self.store(name).parts(epoch):
                    at = [f"{position.split}: {position.offset}" for position in part.positions or ()]
                    rows = [f"{file.name}: {file.rows} rows" for file in part.sink]
                    if at or rows:
                        yield f"{name}@{epoch} {part.task}: {', '.join(at + rows)}"


def iceberg_table(folder: Path, name: str = "out") -> Any:
    """The table that the job writes, as another client of the catalog in its folder loads it; None where it is not
    there."""
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NoSuchTableError

    lake = folder / "lake"
    if not lake.exists():
        return None
    catalog = load_catalog("default", type="sql", uri=f"sqlite:///{lake}/catalog.db", warehouse=str(lake))
    try:
        return catalog.load_table(f"shop.{name}")
    except NoSuchTableError:
        return None


def _lines_in(name: str, data: bytes) -> list[str]:
    """The lines of one part, read alone."""
    if name.endswith(".jsonl"):
        return [json.loads(row)["line"] for row in data.splitlines()]
    table = csv.read_csv(BytesIO(data)) if name.endswith(".csv") else parquet.read_table(BytesIO(data))
    lines: list[str] = table["line"].to_pylist()
    return lines


def restore_to(
    lines: Lines, epoch: int, to: str, *, store: str = "a", on_news: Callable[[News], None] = lambda news: None
) -> None:
    """As `abs plan-recovery STORE@EPOCH` and `abs restore PLAN --to` do it."""
    plan = plan_recovery(lines.store(store), epoch=epoch)
    options = JobOptions(
        str(lines.folder), "job.yaml", engine="inline", workers=2, keep=None, until="drained", interval=0.01
    )
    restore(plan, lines.graph, options, to=lines.where(to), on_news=on_news)


def in_a_process(
    lines: Lines, where: str, n: int, number: int, *, from_epoch: str = "", store: str = "a", keep: int | None = None,
    accept_missing: bool = False,
) -> subprocess.Popen[str]:
    """The job on a store in a process that sends itself a signal; see `main`."""
    job = "tests.support.jobs.lines"
    command = [sys.executable, "-m", job, str(lines.folder), store, from_epoch, where, str(n), str(number)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "LINES_OUT": lines.out, "LINES_TYPE": lines.type,
                   "LINES_TASKS": str(lines.tasks), "LINES_KEEP": str(keep or ""),
                   "LINES_ACCEPT": "1" if accept_missing else ""}  # fmt: skip
    environment |= {"LINES_ALSO": lines.also} if lines.also is not None else {}
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


def killed(lines: Lines, where: str, n: int, *, from_epoch: str = "", store: str = "a") -> None:
    """The job was killed with SIGKILL at the n-th call of `where`."""
    process = in_a_process(lines, where, n, signal.SIGKILL, from_epoch=from_epoch, store=store)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL, errors


def wait_until_stopped(process: subprocess.Popen[str]) -> None:
    """By the signal that it sends itself."""

    def is_stopped() -> bool:
        return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    wait_for(is_stopped, process, lambda: "" if process.poll() is None else process.communicate()[1], seconds=300)


def signal_at(where: str, n: int, number: int) -> None:
    """Have this process send itself a signal at the n-th call of `where`.

    where: `manifest` (all have acked, nothing of the outcome is written) or `reveal` (the manifest is written); calls
    for epochs that have no rows for the sink do not count. Of a sink in a folder, when that has been done: `parted` (a
    part is staged), `published` (a part has its name). Of a sink in a bucket also, when that has been done: `begin`
    (an upload), `put` (a piece of it), `copied` (it is shown, and waits as well: on Google's), `complete` (it is shown,
    and waits no more); `completing` is just before the last. Of a sink in a table, when that has been done: `filled` (a
    transaction), `prepare`, `commit`. Of one whose rows are staged in the store: `staged`; `merging`, when rows are
    written and not committed; `shown`; `printed`, when stdout has them; `marked`; `writing`, before a
    commit of Delta or Iceberg, and `committed`; `pointing`, when files of a commit of Iceberg are there and its catalog
    does not lead to them yet; `producing`, in the middle of a transaction of Kafka, `committing`, at its end,
    and `finished`. Else never.
    """
    from abscli.engine import journal
    from abscli.engine.sinks import outputs
    from formats.storage import ObjectStorage
    from formats.storage.uploading import UPLOADS

    left, counting = n, threading.Lock()

    def count() -> None:
        nonlocal left
        with counting:
            left -= 1
            if not left:
                os.kill(os.getpid(), number)

    def before(plain: Callable[..., object], parts: int) -> Callable[..., object]:
        """parts: which of the arguments."""

        def call(*arguments: Any, **options: object) -> object:
            if any(part.sink for part in arguments[parts]):
                count()
            return plain(*arguments, **options)

        return call

    def at(owner: type, name: str, *, is_done: bool) -> None:
        plain = getattr(owner, name)

        def call(*arguments: Any, **options: object) -> object:
            if not is_done:
                count()
            answer = plain(*arguments, **options)
            if is_done:
                count()
            return answer

        setattr(owner, name, call)

    if where in ("begin", "put", "complete", "completing"):
        for owner in UPLOADS.values():
            at(owner, "complete" if where == "completing" else where, is_done=where != "completing")
    elif where in ("parted", "published"):
        from abscli.engine.sinks import folder_sinks, moves

        if where == "parted":
            at(folder_sinks.FolderSink, "_put", is_done=True)
        else:
            at(moves.Moves, "publish", is_done=True)
    elif where in ("filled", "prepare", "commit"):
        from abscli.engine.sinks.postgres import append, epochs, sink

        if where == "filled":
            at(epochs.Epochs, "note", is_done=True)
        elif where == "prepare":
            at(sink.PostgresSink, "_prepare", is_done=True)
        else:
            plain = append.end

            def end(connection: Any, verb: str, gid: str) -> None:
                plain(connection, verb, gid)
                if verb == "commit":
                    count()

            append.end = end
    elif where == "staged":
        from abscli.engine.sinks.staged.sink import StagedSink

        at(StagedSink, "_put", is_done=True)
    elif where in ("merging", "shown"):
        from abscli.engine.sinks.postgres.upsert import UpsertedTable

        at(UpsertedTable, "_merge" if where == "merging" else "publish", is_done=True)
    elif where in ("writing", "committed"):
        from abscli.engine.sinks.iceberg.table import IcebergTable
        from abscli.engine.sinks.staged.delta import DeltaSink

        for owner in (DeltaSink, IcebergTable):
            at(owner, "_write", is_done=where == "committed")
    elif where == "pointing":
        from pyiceberg.catalog import MetastoreCatalog

        write_metadata = MetastoreCatalog._write_metadata

        def written(*arguments: Any, **options: Any) -> None:
            write_metadata(*arguments, **options)
            count()

        MetastoreCatalog._write_metadata = staticmethod(written)  # type: ignore[method-assign]
    elif where in ("producing", "committing", "finished"):
        from abscli.engine.sinks.kafka.transactions import Transactions

        at(Transactions, "_produce" if where == "producing" else "_commit", is_done=where != "committing")
    elif where == "printed":
        at(Printed, "publish", is_done=True)
    elif where == "marked":
        from abscli.engine.sinks.delivered import publisher

        note = publisher.note_written

        def note_written(*arguments: Any) -> None:
            note(*arguments)
            count()

        publisher.note_written = note_written
    elif where == "copied":
        plain = ObjectStorage.copy

        def copy(self: ObjectStorage, path: str, to: str, *, replace: bool = True) -> None:
            plain(self, path, to, replace=replace)
            if not replace:
                count()

        ObjectStorage.copy = copy  # type: ignore[method-assign]
    elif where == "manifest":
        journal.complete = before(journal.complete, 3)  # type: ignore[assignment]
    elif where == "reveal":
        outputs.Outputs.publish = before(outputs.Outputs.publish, 1)  # type: ignore[assignment,method-assign]


def main() -> None:
    """FOLDER STORE FROM_EPOCH WHERE N SIGNAL: the job, which sends itself the signal at the N-th call of WHERE, as
    `signal_at` has them."""
    from formats.native import claims

    folder, store, from_epoch, where, n, number = sys.argv[1:]
    signal_at(where, int(n), int(number))
    gate = Gate()
    gate.install(setattr)
    claims.SECONDS = float(os.environ.get("CLAIM_SECONDS", claims.SECONDS))
    lines = Lines(Path(folder), gate, os.environ["LINES_OUT"], os.environ["LINES_TYPE"], os.environ.get("LINES_ALSO"),
                  tasks=int(os.environ["LINES_TASKS"]))  # fmt: skip
    keep = os.environ["LINES_KEEP"]
    lines.run(
        store, from_epoch=int(from_epoch) if from_epoch else None, keep=int(keep) if keep else None,
        accept_missing=bool(os.environ["LINES_ACCEPT"]),
    )  # fmt: skip


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from abscli.engine.errors import EngineError
    from formats.errors import FormatError

    try:
        main()
    except (EngineError, FormatError) as error:
        sys.exit(f"{type(error).__name__}: {error.message}")
