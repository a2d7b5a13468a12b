"""A job that is built in Python is the job of its YAML."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abscli import FormatError, Grouped, Job, Loop, Output, Stream, col, count
from abscli.engine.errors import UsageError
from abscli.graph.backedges import back_edges
from formats.job.changes import Changes, Move
from formats.job.event_time import EventTime, event_time_of
from formats.job.file import Job as JobRead
from formats.job.file import parse_job, parse_job_bytes
from formats.job.model import (
    Aggregate,
    Aggregation,
    Edge,
    Emit,
    How,
    Join,
    Kind,
    Lookup,
    LookupHow,
    Operator,
    Partition,
    Topology,
)
from formats.job.written import job_yaml
from tests.jobs.functions import further, step
from tests.support.imports import ROOT

EXAMPLES = ROOT / "abscli" / "examples"
GOOD = ROOT / "tests" / "data" / "topologies" / "good"


NESTED = """version: 1
job: nested loops
parallelism: 3
operators:
  seeds: {source: {type: text, path: seeds.txt}}
  outer: {from: [seeds, judged], union: {}}
  inner: {from: {outer: {}, inner: {partition: broadcast}}, map: refine:step}
  judged: {from: {inner: {}, again: {partition: rebalance}}, filter: refine:good, deterministic: false}
  again: {from: {judged: {replayable: true}}, map: refine:again, parallelism: 2}
  results: {from: again, sink: {type: jsonl, path: out}, parallelism: 1}
"""


# -- the same job ----------------------------------------------------------------------------------------------


def test_the_word_count_that_is_shipped() -> None:
    job = Job("wordcount", parallelism=2)
    lines = job.text("corpus/*.py", id="lines")
    counts = lines.flat_map("words").group_by("word").agg(n=count(), id="counts")
    counts.to_jsonl("out", id="printed")
    assert job.read() == parse_job(EXAMPLES / "wordcount.yaml")


def test_the_loop_that_is_shipped() -> None:
    job = Job("imports", parallelism=2)
    schema = {"module": "string", "reached": "string"}
    imports = job.jsonl("imports.jsonl", schema=schema, id="imports", parallelism=1)
    loop = imports.iterate()
    pairs = loop.distinct("module", "reached", id="pairs")
    loop.closed_by(pairs.flat_map("steps:further"))
    pairs.to_jsonl("out", id="printed")
    assert job.read() == parse_job(EXAMPLES / "imports.yaml")


def test_how_long_keys_are_kept_is_said_of_all_that_keeps_them() -> None:
    job = Job("kept")
    rows = job.jsonl("in", schema={"k": "string", "at": "timestamp"}, event_time="at", id="rows")
    kept = rows.group_by("k").ttl("at", "1h")
    for read in (kept.agg(n=count()), kept.distinct(), kept.process("keys:track", state={"n": "int64"}, id="track")):
        read.to_jsonl("out", id=f"of_{len(job.topology.operators)}")
    assert {op.id: bool(op.ttl) for op in job.topology.operators if op.key} == dict.fromkeys(
        ("agg", "distinct", "track"), True
    )


def test_loops_in_loops_that_share_operators() -> None:
    job = Job("nested loops", parallelism=3)
    seeds = job.text("seeds.txt", id="seeds")
    outer_loop = seeds.iterate()
    outer = outer_loop.union(id="outer")
    inner_loop = outer.iterate()
    inner = inner_loop.map("refine:step", id="inner")
    inner_loop.closed_by(inner.broadcast())
    judged_loop = inner.iterate()
    judged = judged_loop.filter("refine:good", id="judged", deterministic=False)
    again = judged.replayable().map("refine:again", id="again", parallelism=2)
    judged_loop.closed_by(again.rebalance())
    outer_loop.closed_by(judged)
    again.to_jsonl("out", id="results", parallelism=1)
    assert job.read() == parse_job_bytes(NESTED.encode(), "nested.yaml")


def test_sources_of_files_say_what_their_yaml_says() -> None:
    job = Job("files")
    job.csv("a.csv").to_jsonl("out/a", id="to_a")
    options: dict[str, Any] = {"schema": {"n": "int64"}, "delimiter": ";", "header": False, "nulls": ["", "NA"]}
    job.csv("b.csv", **options, id="b").to_jsonl("out/b", id="to_b")
    job.nexmark("bid", total=100, seed=7).to_jsonl("out/e", id="to_e")
    job.parquet("c.parquet", columns=["n"]).to_jsonl("out/c", id="to_c")
    job.arrow("d.arrow").to_jsonl("out/d", id="to_d")
    job.text("s3://bucket/*.txt", follow=True, every="500ms").to_jsonl("out/f", id="to_f")
    rows = job.postgres("s.t", key="id", url_env="DB", columns=["id"], follow=True, every=2, id="rows")
    rows.to_jsonl("out/g", id="to_g")
    told = {"schema": {"n": "int"}, "key": "k", "timestamp": "at", "start": "latest", "config": "c"}
    job.kafka("h:9092", "t", follow=True, event_time="at", idle="9s", **told).to_jsonl("out/k", id="to_k")  # type: ignore[arg-type]
    job.kafka("h:9092", "u", id="u").to_jsonl("out/u", id="to_u")
    with pytest.raises(UsageError, match="every requires follow"):
        job.text("*.txt", every=5)
    assert [op.connector for op in job.topology.operators if op.kind is Kind.SOURCE] == [
        {"type": "csv", "path": "a.csv"},
        {"type": "csv", "path": "b.csv", "schema": {"n": "int64"}, "delimiter": ";", "header": False,
         "nulls": ["", "NA"]},
        {"type": "nexmark", "events": "bid", "total": 100, "seed": 7},
        {"type": "parquet", "path": "c.parquet", "columns": ["n"]},
        {"type": "arrow", "path": "d.arrow"},
        {"type": "text", "path": "s3://bucket/*.txt", "follow": True, "every": "500.000ms"},
        {"type": "postgres", "table": "s.t", "key": ["id"], "url_env": "DB", "columns": ["id"], "follow": True,
         "every": "2s"},
        {"type": "kafka", "brokers": "h:9092", "topic": "t", **told, "follow": True,
         "event_time": {"column": "at", "idle": "9s"}},
        {"type": "kafka", "brokers": "h:9092", "topic": "u"},
    ]  # fmt: skip
    assert parse_job_bytes(job.yaml().encode(), "job.yaml") == job.read()


def test_what_stands_at_the_top_and_what_became_of_operators() -> None:
    job = Job("a job", parallelism=3, max_parallelism=16)
    job.text("in.txt").to_jsonl("out", id="new", max_parallelism=4, ordered_output=True)
    job.moved("old", "new")
    job.removed("gone")
    topology, changes = job.read()
    assert [(op.parallelism, op.max_parallelism, op.ordered_output) for op in topology.operators] == [
        (3, 16, False), (3, 4, True),
    ]  # fmt: skip
    assert changes == job.changes == Changes((Move("old", "new"),), ("gone",))
    assert parse_job_bytes(job.yaml().encode(), "job.yaml") == job.read()


@pytest.mark.parametrize("path", sorted([*GOOD.iterdir(), *EXAMPLES.glob("*.yaml")]), ids=lambda path: path.name)
def test_a_topology_is_written_as_a_file_that_is_read_as_the_same(path: Path) -> None:
    read = parse_job(path)
    assert parse_job_bytes(job_yaml(*read).encode(), "again.yaml") == read


def test_a_parallelism_that_most_have_and_the_key_groups_of_others_do_not_allow_is_not_the_default() -> None:
    sources = [Operator(f"s{n}", Kind.SOURCE, 9, 100 + n, connector={"type": "text", "path": "x"}) for n in range(3)]
    small = [Operator(f"m{n}", Kind.SOURCE, 1 + n, 4, connector={"type": "text", "path": "x"}) for n in range(3)]
    topology = Topology("j", (*sources, *small), ())
    assert parse_job_bytes(job_yaml(topology).encode(), "j.yaml").topology == topology


def test_an_id_of_another_system_that_no_job_file_can_have_is_said() -> None:
    topology = Topology("j", (Operator("Source: in", Kind.OPAQUE, 1, 128),), ())
    with pytest.raises(FormatError, match="operator 'Source: in' of another system has an id that no job file"):
        job_yaml(topology)


Spread = tuple[Partition | None, tuple[str, ...]]
IDS = st.from_regex(r"[A-Za-z][A-Za-z0-9_.-]{0,6}", fullmatch=True) | st.sampled_from(["no", "on", "null", "y", "e1"])
COLUMNS = st.lists(st.sampled_from(["a", "b c", "no", "é", "1"]), min_size=1, max_size=2, unique=True).map(tuple)
SINK_TYPES = ["jsonl", "csv", "parquet", "delta", "iceberg", "postgres", "stdout", "kafka"]
KINDS = [Kind.MAP, Kind.FILTER, Kind.FLAT_MAP, Kind.UNION, Kind.DISTINCT, Kind.REDUCE]
AGGREGATES = {
    Aggregation.COUNT: lambda column: count(),
    Aggregation.SUM: lambda column: col(column).sum(),
    Aggregation.MIN: lambda column: col(column).min(),
    Aggregation.MAX: lambda column: col(column).max(),
    Aggregation.MEAN: lambda column: col(column).mean(),
    Aggregation.FIRST: lambda column: col(column).first(),
    Aggregation.LAST: lambda column: col(column).last(),
    Aggregation.TOP_N: lambda column: col(column).top_n(3, by="w"),
    Aggregation.COLLECT: lambda column: col(column).collect(100),
}
OPTIONS: dict[Aggregation, tuple[str | None, int]] = {Aggregation.TOP_N: ("w", 3), Aggregation.COLLECT: (None, 100)}


@st.composite
def jobs(draw: Callable[..., Any]) -> tuple[Job, Topology]:
    """A job, and the graph that it is: both are made from the same draws, the graph without the builder."""
    ids = draw(st.lists(IDS, min_size=3, max_size=8, unique=True))
    parallelism = draw(st.integers(1, 3))
    job = Job(draw(st.sampled_from(["j", "no", "a: b", "é"])), parallelism=parallelism, max_parallelism=8)
    operators: list[Operator] = []
    incoming: dict[str, list[tuple[str, Spread, bool]]] = {}
    streams: dict[str, Stream] = {}
    loops: list[tuple[Loop, str]] = []
    readers: dict[str, list[str]] = {id: [] for id in ids}

    def spread(stream: Stream, source: str, key: tuple[str, ...], width: int) -> tuple[Stream, Spread]:
        partitions = [None, Partition.HASH] if key else [None, Partition.REBALANCE, Partition.BROADCAST, Partition.HASH]
        alike = next(op.parallelism for op in operators if op.id == source) == width
        partition = draw(st.sampled_from([*partitions, *([Partition.FORWARD] if alike and not key else [])]))
        default = Partition.HASH if key else Partition.FORWARD if alike else Partition.REBALANCE
        match partition:
            case None:
                return stream, (default, key)
            case Partition.HASH:
                columns = key or draw(COLUMNS)
                return stream.hash(*columns), (partition, columns)
            case Partition.FORWARD:
                return stream.forward(), (partition, ())
            case Partition.REBALANCE:
                return stream.rebalance(), (partition, ())
            case Partition.BROADCAST:
                return stream.broadcast(), (partition, ())
        raise AssertionError(partition)

    for number, id in enumerate(ids):
        width = draw(st.sampled_from([parallelism, 1, 2]))
        own = {} if width == parallelism else {"parallelism": width}
        marks: dict[str, Any] = {"id": id, **own}
        deterministic = draw(st.booleans())
        marks |= {} if deterministic else {"deterministic": False}
        kind = Kind.SOURCE if number == 0 else draw(st.sampled_from([Kind.SOURCE, *KINDS, *KINDS, Kind.SINK]))
        key = draw(COLUMNS) if kind in (Kind.DISTINCT, Kind.REDUCE) else ()
        more: dict[str, Any] = {"deterministic": deterministic}
        if kind is Kind.SOURCE:
            schema = draw(st.none() | st.just({"a": "int64", "no": "string"}))
            if schema is None and draw(st.booleans()):
                streams[id] = job.text("in/*", **marks)
                more["connector"] = {"type": "text", "path": "in/*"}
            else:
                streams[id] = job.jsonl("in/*", schema=schema, **marks)
                more["connector"] = {"type": "jsonl", "path": "in/*", **({"schema": schema} if schema else {})}
            operators.append(Operator(id, kind, width, 8, **more))
            continue
        senders = draw(st.lists(st.sampled_from(sorted(streams)), min_size=1, max_size=3, unique=True))
        inputs, edges = [], []
        for sender in senders:
            stream, way = spread(streams[sender], sender, key, width)
            inputs.append(stream)
            edges.append((sender, way, False))
        read = inputs[0].merge(*inputs[1:])
        if kind is not Kind.SINK and draw(st.booleans()):
            read = read.iterate()
            assert isinstance(read, Loop)
            loops.append((read, id))
        match kind:
            case Kind.MAP:
                streams[id] = read.map(step, **marks)
            case Kind.FILTER:
                streams[id] = read.filter(step, **marks)
            case Kind.FLAT_MAP:
                streams[id] = read.flat_map("words", **marks)
            case Kind.UNION:
                streams[id] = read.union(**marks)
            case Kind.DISTINCT:
                streams[id] = read.distinct(*key, **marks)
            case Kind.SINK:
                type = draw(st.sampled_from(SINK_TYPES))
                if type == "postgres":
                    by_key = draw(st.booleans())
                    options: dict[str, Any] = {"mode": "upsert", "key": ["a", "b"]} if by_key else {}
                    read.to_postgres(id, url_env="DATABASE", **options, **marks)
                    more["connector"] = {"type": type, "table": id, "url_env": "DATABASE", **options}
                elif type == "iceberg":
                    where: dict[str, Any] = draw(st.sampled_from([{"warehouse": "lake"}, {"catalog": "c", "uri": "u"}]))
                    table = f"shop.{id.replace('.', '_')}"
                    read.to_iceberg(table, **where, **marks)
                    more["connector"] = {"type": type, "table": table, **where}
                elif type == "kafka":
                    column = draw(st.sampled_from([None, "a"]))
                    read.to_kafka("h:9092", id, key=column, **marks)
                    more["connector"] = {"type": type, "brokers": "h:9092", "topic": id}
                    more["connector"] |= {} if column is None else {"key": column}
                elif type == "stdout":
                    row_id = draw(st.sampled_from([None, "id"]))
                    read.to_stdout(row_id=row_id, **marks)
                    more["connector"] = {"type": type} | ({} if row_id is None else {"row_id": row_id})
                else:
                    to_files = {"jsonl": read.to_jsonl, "csv": read.to_csv, "parquet": read.to_parquet,
                                "delta": read.to_delta}  # fmt: skip
                    to_files[type](f"out/{id}", **marks)
                    more["connector"] = {"type": type, "path": f"out/{id}"}
            case Kind.REDUCE:
                emit = draw(st.sampled_from(list(Emit)))
                functions = draw(st.lists(st.sampled_from(list(Aggregation)), min_size=1, max_size=3))
                named = {f"o{n}": (function, "*" if function is Aggregation.COUNT else "v")
                         for n, function in enumerate(functions)}  # fmt: skip
                outputs: dict[str, Output] = {name: AGGREGATES[f](column) for name, (f, column) in named.items()}
                streams[id] = read.group_by(*key).agg(outputs, emit=emit.value, **marks)
                more |= {"emit": emit, "aggregates": tuple(Aggregate(n, *pair, *OPTIONS.get(pair[0], ()))
                                                           for n, pair in named.items())}  # fmt: skip
        functions_of = {Kind.MAP: "functions:step", Kind.FILTER: "functions:step", Kind.FLAT_MAP: "words"}
        more |= {"function": functions_of[kind]} if kind in functions_of else {}
        operators.append(Operator(id, kind, width, 8, key=key, **more))
        incoming[id] = edges
        for sender, _, _ in edges:
            readers[sender].append(id)
    for loop, head in loops:
        reached, waiting = {head}, [head]
        while waiting:
            fresh = set(readers[waiting.pop()]) - reached
            reached |= fresh
            waiting += fresh
        taken = {sender for sender, _, _ in incoming[head]}
        tail = draw(st.sampled_from(sorted((reached & streams.keys()) - taken) or [head]))
        operator = next(op for op in operators if op.id == head)
        stream, way = spread(streams[tail], tail, operator.key, operator.parallelism)
        replayable = draw(st.booleans())
        loop.closed_by(stream.replayable() if replayable else stream)
        incoming[head].append((tail, way, replayable))
        readers[tail].append(head)
    edges_in_order = tuple(
        Edge(sender, op.id, way[0] or Partition.FORWARD, way[1], replayable)
        for op in operators for sender, way, replayable in incoming.get(op.id, [])
    )  # fmt: skip
    return job, Topology(job.name, tuple(operators), edges_in_order)


@given(jobs())
def test_any_job_is_its_graph_and_its_yaml_is_the_same_again(both: tuple[Job, Topology]) -> None:
    job, topology = both
    assert job.topology == topology
    assert parse_job_bytes(job.yaml().encode(), "job.yaml") == JobRead(topology, job.changes)


def test_functions_are_named_from_where_the_job_stands() -> None:
    job = Job("j")
    job.text("in").map(step).flat_map(further).to_jsonl("out")
    assert [op.function for op in job.topology.operators] == [None, "functions:step", "functions:further", None]
    assert [op.id for op in job.topology.operators] == ["text", "step", "further", "to_jsonl"]
    assert job.directory == str(Path(__file__).parent)


def test_event_time_is_said_of_a_source() -> None:
    job = Job("j")
    at = timedelta(milliseconds=1500)
    job.jsonl("in", schema={"at": "timestamp"}, event_time="at", delay=at, idle="1m", ordered=True).to_jsonl("out")
    connector = job.topology.operators[0].connector or {}
    assert connector["event_time"] == {"column": "at", "delay": "1500.000ms", "idle": "60s", "ordered": True}
    assert parse_job_bytes(job.yaml().encode(), "job.yaml").topology == job.topology
    assert event_time_of(job.topology.operators[0]) == EventTime("at", 1_500_000, 60_000_000, ordered=True)
    with pytest.raises(UsageError, match="require event time"):
        Job("j").jsonl("in", delay="5s")
    with pytest.raises(UsageError, match="delay must be greater than zero, but is '0s'"):
        Job("j").jsonl("in", event_time="at", delay="0s")


@pytest.mark.parametrize("type", ["csv", "parquet", "arrow", "nexmark", "generate"])
def test_event_time_is_said_of_sources_of_every_type_with_columns(type: str) -> None:
    job = Job("j")
    make: Callable[..., Stream] = getattr(job, type)
    what: Any = {"nexmark": "bid", "generate": {"at": "at('2026-01-01T00:00:00Z', row)"}}.get(type, "in/*")
    make(what, event_time="at", delay="1s", idle="2s", ordered=True).to_jsonl("out")
    assert event_time_of(job.topology.operators[0]) == EventTime("at", 1_000_000, 2_000_000, ordered=True)
    with pytest.raises(UsageError, match="delay, idle and ordered require event time"):
        make(what, delay="1s")


def test_a_stream_is_left_as_it_was() -> None:
    job = Job("j")
    lines = job.text("in")
    spread = lines.rebalance()
    lines.to_jsonl("a", id="a")
    spread.to_jsonl("b", id="b")
    assert [edge.partition for edge in job.topology.edges] == [Partition.FORWARD, Partition.REBALANCE]
    with pytest.raises(AttributeError):
        lines._inputs = ()  # type: ignore[misc]
    assert repr(lines) == "Stream(text of job 'j')"
    assert repr(lines.group_by("line")) == "Grouped(Stream(text of job 'j') by line)"
    assert isinstance(lines.group_by("line"), Grouped)


def test_several_streams_close_a_loop_in_the_order_in_which_they_are_said() -> None:
    job = Job("j")
    loop = job.text("in").iterate()
    seen = loop.distinct("line")
    one, other = seen.map(step, id="one"), seen.map(step, id="other")
    loop.closed_by(other.merge(one.broadcast()).hash("line"))
    sources = [edge.source for edge in job.topology.edges if edge.target == "distinct"]
    assert sources == ["text", "other", "one"]
    assert sorted(back_edges(job.topology)) == [("one", "distinct"), ("other", "distinct")]


def test_a_join_and_a_table_are_what_a_job_file_says() -> None:
    job = Job("j")
    orders = job.jsonl("o", schema={"k": "string", "at": "timestamp"}, event_time="at", id="orders")
    payments = job.jsonl("p", event_time="paid", id="payments")
    columns = {"k": "string", "paid": "timestamp"}
    joined = orders.join(
        payments, on="k", time=("at", "paid"), within=timedelta(seconds=90), before="0s", how="outer", lateness="1m",
        columns=(None, columns), id="joined",
    )  # fmt: skip
    joined.late("right").to_jsonl("late", id="late")
    joined.lookup("users.csv", on="k", how="left", columns=["name"]).to_jsonl("out")
    joined.lookup(table="s.users", url_env="DB", on="k", id="users").to_jsonl("out/users", id="to_users")
    operators = {op.id: op for op in job.topology.operators}
    expected = Join("orders", ("at", "paid"), 0, 90_000_000, How.OUTER, 60_000_000, {"payments": columns})
    assert operators["joined"].join == expected
    assert operators["joined"].key == ("k",)
    assert operators["lookup"].lookup == Lookup("users.csv", ("k",), LookupHow.LEFT, ("name",))
    assert operators["users"].lookup == Lookup("", ("k",), table="s.users", url_env="DB")
    late = next(edge for edge in job.topology.edges if edge.target == "late")
    assert (late.source, late.output) == ("joined", "late_right")
    assert parse_job_bytes(job.yaml().encode(), "job.yaml").topology == job.topology


# -- in an editor and a notebook -------------------------------------------------------------------------------


def test_a_notebook_shows_the_graph() -> None:
    job = Job("j")
    lines = job.text("in")
    lines.map(step).to_jsonl("out")
    bundle = job._repr_mimebundle_()
    assert bundle["image/svg+xml"].startswith("<svg ")
    assert 'data-operator="step"' in bundle["image/svg+xml"]
    assert bundle["text/plain"] == repr(job) == "Job('j', 3 operators)"
    lines.iterate()
    assert "this loop is never closed" in job._repr_mimebundle_()["text/plain"]


def test_every_public_method_is_typed_and_documented() -> None:
    for kind in (Job, Stream, Loop, Grouped):
        for name, member in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_"):
                assert member.__doc__, name
                assert "return" in member.__annotations__, name
