"""Native stores that are accepted as complete and whose facts name targets of an attacker's choice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from abscli.engine.sinks.delivered.targets import title_of
from formats.ids import task_name
from formats.job.model import (
    DeadLetter,
    Edge,
    Keeping,
    Kind,
    Lookup,
    Operator,
    Partition,
    Topology,
)
from formats.job.promises import is_staged
from formats.native import layout
from formats.native.facts import AttemptFacts, PartFacts, SinkFile, UploadFacts, digest, header
from formats.native.sink_bucket import is_bucket
from formats.native.transactions import Transaction
from formats.native.writer import create, put_attempt
from formats.storage import LocalStorage
from formats.view import Position
from tests.guard.victim import Victim, evil_library
from tests.support.stores.small import TRIGGERED, Build

ROWS = b'{"id": 1}\n'
EPOCHS = (1, 2)


class Trap(NamedTuple):
    """What a hostile graph says of one operator.

    options: of the connector, or of the operator where it is none. directory: what the part of a sink says that it was
    written to, where that is not what the connector says.
    """

    kind: Kind
    options: dict[str, Any]
    directory: str | None = None


def sinks(victim: Victim, store: str) -> dict[str, Trap]:
    """Return sinks of every type, by the name that the table has. store: the store's name, beside which files lie."""
    at, elsewhere, home = victim.listeners.at, victim.elsewhere, victim.home
    sink = Kind.SINK
    s3 = "s3://victims-bucket"
    return {
        "jsonl-folder": Trap(sink, {"type": "jsonl", "path": str(elsewhere / "jsonl")}),
        "csv-folder": Trap(sink, {"type": "csv", "path": str(elsewhere / "csv")}),
        "parquet-folder": Trap(sink, {"type": "parquet", "path": str(elsewhere / "parquet")}),
        "jsonl-home": Trap(sink, {"type": "jsonl", "path": "out"}, str(home / ".ssh")),
        "jsonl-etc": Trap(sink, {"type": "jsonl", "path": "/etc"}),
        "jsonl-s3": Trap(sink, {"type": "jsonl", "path": f"{s3}/jsonl"}),
        "csv-gs": Trap(sink, {"type": "csv", "path": "gs://victims-bucket/csv"}),
        "parquet-abfs": Trap(sink, {"type": "parquet", "path": "abfs://box@victim.dfs.core.windows.net/parquet"}),
        "jsonl-hdfs": Trap(sink, {"type": "jsonl", "path": f"hdfs://{at('hdfs')}/out"}),
        "jsonl-webhdfs": Trap(sink, {"type": "jsonl", "path": f"webhdfs://{at('hdfs')}/out"}),
        "postgres-url": Trap(sink, {"type": "postgres", "table": "t", "url_env": "DATABASE_URL"}),
        "postgres-other-variable": Trap(sink, {"type": "postgres", "table": "t", "url_env": "AWS_SECRET_ACCESS_KEY"}),
        "postgres-service": Trap(sink, {"type": "postgres", "table": "t", "service": "prod"}),
        "postgres-libpq": Trap(sink, {"type": "postgres", "table": "t"}),
        "postgres-upsert": Trap(
            sink, {"type": "postgres", "table": "t", "url_env": "DATABASE_URL", "mode": "upsert", "key": ["id"]}
        ),
        "delta-folder": Trap(sink, {"type": "delta", "path": str(elsewhere / "delta")}),
        "delta-s3": Trap(sink, {"type": "delta", "path": f"{s3}/delta"}),
        "delta-gs": Trap(sink, {"type": "delta", "path": "gs://victims-bucket/delta"}),
        "delta-abfs": Trap(sink, {"type": "delta", "path": "abfss://box@victim.dfs.core.windows.net/delta"}),
        "iceberg-catalog-and-uri": Trap(
            sink, {"type": "iceberg", "table": "a.b", "catalog": "prod", "uri": f"http://{at('iceberg')}"}
        ),
        "iceberg-catalog": Trap(sink, {"type": "iceberg", "table": "a.b", "catalog": "prod"}),
        "iceberg-uri": Trap(sink, {"type": "iceberg", "table": "a.b", "uri": f"http://{at('iceberg')}"}),
        "iceberg-default": Trap(sink, {"type": "iceberg", "table": "a.b"}),
        "iceberg-warehouse": Trap(sink, {"type": "iceberg", "table": "a.b", "warehouse": str(elsewhere / "warehouse")}),
        "iceberg-warehouse-in-store": Trap(sink, {"type": "iceberg", "table": "a.b", "warehouse": "warehouse"}),
        "iceberg-sqlite": Trap(sink, {"type": "iceberg", "table": "a.b", "uri": f"sqlite:///{elsewhere}/catalog.db"}),
        "kafka-plugin": Trap(
            sink, {"type": "kafka", "brokers": at("kafka"), "topic": "t", "config": "evil.properties"}
        ),
        "kafka-settings-of-victim": Trap(
            sink, {"type": "kafka", "brokers": at("kafka"), "topic": "t", "config": str(home / "kafka.properties")}
        ),
        "stdout": Trap(sink, {"type": "stdout"}),
        "unknown-type": Trap(sink, {"type": "evil_module", "module": "evil_module", "path": str(elsewhere / "x")}),
    }


def sources(victim: Victim, store: str) -> dict[str, Trap]:
    """Return sources of every type."""
    at, elsewhere = victim.listeners.at, victim.elsewhere
    source = Kind.SOURCE
    return {
        "text-source": Trap(source, {"type": "text", "path": str(elsewhere / "passwd")}),
        "text-source-followed": Trap(source, {"type": "text", "path": f"{elsewhere}/in/*", "follow": True}),
        "jsonl-source-s3": Trap(source, {"type": "jsonl", "path": "s3://victims-bucket/in/*", "follow": True}),
        "csv-source": Trap(source, {"type": "csv", "path": str(elsewhere / "table.csv")}),
        "parquet-source": Trap(source, {"type": "parquet", "path": "gs://victims-bucket/in/*"}),
        "arrow-source": Trap(source, {"type": "arrow", "path": "abfs://box@victim.dfs.core.windows.net/in"}),
        "text-source-hdfs": Trap(source, {"type": "text", "path": f"hdfs://{at('hdfs')}/in/*"}),
        "kafka-source": Trap(
            source, {"type": "kafka", "brokers": at("kafka"), "topic": "t", "config": "evil.properties", "follow": True}
        ),
        "postgres-source": Trap(source, {"type": "postgres", "table": "t", "key": ["id"], "url_env": "DATABASE_URL"}),
    }


def functions(victim: Victim, store: str) -> dict[str, Trap]:
    """Return operators that name code, tables and folders of their own."""
    elsewhere = victim.elsewhere
    hostile = "evil_module:run"
    return {
        "map-function": Trap(Kind.MAP, {"function": hostile}),
        "filter-function": Trap(Kind.FILTER, {"function": "os:system"}),
        "flat-map-function": Trap(Kind.FLAT_MAP, {"function": f"/proc/self/cwd/{store}/evil_module:run"}),
        "process-function": Trap(
            Kind.PROCESS, {"function": hostile, "key": ("id",), "keeping": Keeping((("n", "int64"),))}
        ),
        "join-function": Trap(Kind.JOIN, {"function": hostile, "key": ("id",)}),
        "lookup-file": Trap(Kind.LOOKUP, {"lookup": Lookup(path=str(elsewhere / "table.csv"), key=("id",))}),
        "lookup-postgres": Trap(
            Kind.LOOKUP,
            {"lookup": Lookup(path="", key=("id",), query="select 1 as id", url_env="DATABASE_URL")},
        ),
        "dead-letters": Trap(Kind.MAP, {"function": "identity", "on_error": DeadLetter("s3://victims-bucket/dead")}),
    }


Traps = Callable[[Victim, str], dict[str, Trap]]
FAMILIES: dict[str, Traps] = {"sinks": sinks, "sources": sources, "functions": functions}


@dataclass(frozen=True)
class HostileBuild(Build):
    """A store being made of a job with traps: each has a task, and a source feeds those that are no sources."""

    traps: dict[str, Trap] = field(default_factory=dict)
    directory: str = "."

    def begin(self, *, first_epoch: int = 1, parent: int = 0) -> AttemptFacts:
        """As of `Build`, with a directory of the attacker's choice."""
        create(self.storage, self.topology.job)
        facts = AttemptFacts(
            attempt=self.attempt, kind="run", generation=1, parent=parent, first_epoch=first_epoch, policy=self.policy,
            topology_sha256=self.sha256, directory=self.directory, started=TRIGGERED.format(0), id=self.id,
            **header(AttemptFacts),
        )  # fmt: skip
        put_attempt(self.storage, facts)
        return facts

    def part(self, epoch: int, task: str, base: tuple[Any, ...] = ()) -> PartFacts:
        """A task's part: every channel has carried ten records for each epoch, and none is on its way."""
        operator, _, _ = task.rpartition("/")
        sends = [edge.target for edge in self.topology.edges if edge.source == operator]
        comes_from = [edge.source for edge in self.topology.edges if edge.target == operator]
        op = self.topology.operator(operator)
        positions = (Position(f"{operator}-0", 100 * epoch, 10 * epoch),) if op.kind is Kind.SOURCE else None
        return PartFacts(
            epoch=epoch, attempt=self.attempt, task_name=task, state=(), rows=0, logs=(),
            sent=dict.fromkeys(sends, (10 * epoch,)), received=dict.fromkeys(comes_from, (10 * epoch,)),
            positions=positions, round_robin=dict.fromkeys(sends, 0), connector=None, sink=self._written(epoch, op),
            finished=False, alignment=0.001, sync=0.0005, async_=0.002, attempt_id=self.id, **header(PartFacts),
        )  # fmt: skip

    def _written(self, epoch: int, op: Operator) -> tuple[SinkFile, ...]:
        """What the facts of a sink's task name: a file, an upload, a transaction, or rows that wait in the store."""
        trap = self.traps.get(op.id)
        if op.kind is not Kind.SINK or op.connector is None:
            return ()
        type = op.connector["type"]
        ending = {"csv": "csv", "parquet": "parquet", "postgres": "csv"}.get(type, "jsonl")
        name = f"part-00000-{epoch:010d}.{ending}"
        common = {"name": name, "bytes": len(ROWS), "rows": 1, "sha256": digest(ROWS)}
        if is_staged(op):
            staged = layout.rows(epoch, task_name(op.id, 0), self.id, "0" * 16)
            self.storage.put(staged, ROWS)
            return (SinkFile(directory=title_of(op), staged=staged, **common),)  # type: ignore[arg-type]
        if type == "postgres":
            gid = Transaction(self.id, epoch, 0, op.id).gid("0" * 8)
            return (SinkFile(directory=title_of(op), prepared=gid, **common),)  # type: ignore[arg-type]
        directory = (trap.directory if trap is not None else None) or op.connector["path"]
        upload = None
        if is_bucket(directory):
            stem, _, end = name.rpartition(".")
            upload = UploadFacts(f"{stem}-{self.id}.{end}", "upload-1", ("etag",))
        return (SinkFile(directory=directory, upload=upload, **common),)  # type: ignore[arg-type]


def job_of(traps: dict[str, Trap]) -> Topology:
    """The graph of a job with these traps."""
    operators = [Operator("feed", Kind.SOURCE, 1, 8, connector={"type": "text", "path": "in/*"})]
    edges = []
    for name, (kind, options, _) in traps.items():
        if kind in (Kind.SOURCE, Kind.SINK):
            operators.append(Operator(name, kind, 1, 8, connector=options))
        else:
            operators.append(Operator(name, kind, 1, 8, **options))
        if kind is Kind.SOURCE:
            continue
        key = options.get("key", ()) if kind in (Kind.PROCESS, Kind.JOIN) else ()
        edges.append(Edge("feed", name, Partition.HASH if key else Partition.REBALANCE, tuple(key)))
    # What ends in no sink is no job: each other operator has one that prints.
    ends = [Operator(f"{op.id}-end", Kind.SINK, 1, 8, connector={"type": "stdout"}) for op in operators
            if op.kind is not Kind.SINK]  # fmt: skip
    edges += [Edge(end.id.removesuffix("-end"), end.id, Partition.REBALANCE) for end in ends]
    return Topology(job="hostile", operators=(*operators, *ends), edges=tuple(edges))


def hostile_store(victim: Victim, name: str, traps: dict[str, Trap], *, directory: str | None = None) -> Path:
    """Make a store with these traps in the victim's current folder, with an evil library and module in it.

    directory: of the job file, as the attempt says; the store itself, wherever it is unpacked, where it says nothing.
    """
    store = victim.work / name
    store.mkdir()
    build = HostileBuild(
        LocalStorage(str(store)), job_of(traps), traps=traps, directory=directory or f"/proc/self/cwd/{name}"
    )
    build.begin()
    for epoch in EPOCHS:
        build.complete(epoch, epoch - 1)
    library = store / "evil.so"
    if evil_library(library):
        (store / "evil.properties").write_text(f"plugin.library.paths=/proc/self/cwd/{name}/evil.so\n")
    else:
        (store / "evil.properties").write_text("plugin.library.paths=/proc/self/cwd/none.so\n")
    evil_module(store / "evil_module.py")
    evil_module(victim.work / "evil_module.py")
    return store


def evil_module(path: Path) -> None:
    """Write a module that leaves a file behind when it is imported."""
    marker = path.parent / "evil_module.ran"
    path.write_text(f"open({str(marker)!r}, 'w').close()\ndef run(*a, **k):\n    raise SystemExit\n")


def each(victim: Victim) -> Iterator[tuple[str, dict[str, Trap]]]:
    """Yield every trap alone, by the name of its store."""
    for traps in FAMILIES.values():
        for name in traps(victim, ""):
            yield name, {name: traps(victim, name)[name]}
