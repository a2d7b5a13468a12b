"""What stands in the way of a run is said at once, with its place, before anything is started."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from abscli.engine import runnable
from abscli.engine.errors import UsageError
from abscli.engine.runnable import all_faults, check_runnable
from abscli.graph.restless import restless_loops
from formats.job.expand import size_of
from formats.job.file import BadFile, parse_topology, parse_topology_bytes
from formats.job.model import Topology
from formats.native import lock
from formats.storage import LocalStorage
from tests.commands.test_jobs import abs_, fingerprint, make_job, result, run
from tests.support.jobs.small import word_count

MODULE = """
import sys
print("a module may print")
def same(batch): return batch
number = 3
"""
BAD = """version: 1
job: bad
operators:
  queue: {source: {type: pulsar, path: x}}
  nothing: {source: {type: text, path: none/*.txt}}
  rows: {source: {type: jsonl, path: rows.jsonl}}
  typed: {source: {type: jsonl, path: rows.jsonl, schema: {id: uuid}}}
  lost: {from: queue, map: functions:lost}
  number: {from: {nothing: {replayable: true}, around: {}}, map: functions:number}
  around: {from: [number], union: {}}
  leaves: {from: nothing, filter: leaving:f}
  sums: {from: rows, reduce: {key: [nokey], n: {count: "*"}, t: {sum: name}, m: {min: other}}}
  misspelt: {from: nothing, flat_map: wrods}
  later: {from: nothing, process: functions:same}
  opaque: {from: nothing}
  wrong: {from: nothing, flat_map: 3}
  out: {from: misspelt, sink: {type: jsonl, path: out}}
  again: {from: opaque, sink: {type: jsonl, path: out/}}
  other: {from: opaque, sink: {type: avro, path: other}}
"""
EXPECTED = [
    "4:26: operator queue: unknown source type 'pulsar'",
    "5:40: operator nothing: no file matches 'none/*.txt'",
    "7:51: operator typed: unknown type 'uuid' of column 'id'",
    "8:28: operator lost: cannot load 'functions:lost': AttributeError: module 'functions' has no attribute 'lost'",
    "9:19: edge nothing->number is marked replayable, and the engine keeps no such log",
    "9:48: the loop number, around never comes to rest: each of its operators passes on whatever it gets",
    "9:66: operator number: 'functions:number': expected a function, got int",
    "11:35: operator leaves: cannot load 'leaving:f': SystemExit: 0",
    "12:36: operator sums: no column 'nokey' in what rows sends",
    "12:71: operator sums, output t: cannot sum a column of type string",
    "12:87: operator sums: no column 'other' in what rows sends",
    "13:39: operator misspelt: no built-in function 'wrods'",
    "14:35: operator later is a process without a key, which `abs run` does not support",
    "15:3: operator opaque is of kind opaque, which `abs run` does not support",
    "16:36: operator wrong: flat_map must be a string, not the number 3",
    "18:51: sinks out and again both write to 'out'",
    "19:38: operator other: unknown sink type 'avro'",
]


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    (tmp_path / "functions.py").write_text(MODULE)
    (tmp_path / "leaving.py").write_text("import sys\nsys.exit(0)\n")
    (tmp_path / "rows.jsonl").write_text('{"id": 1, "name": "x"}\n')
    (tmp_path / "job.yaml").write_text(BAD)
    return tmp_path / "job.yaml"


def places(path: Path) -> list[str]:
    with pytest.raises(BadFile) as raised:
        parse_topology(path, lambda graph: all_faults(graph, str(path.parent), from_start=True))
    return [f"{e.line}:{e.column}: {e.message}" for e in raised.value.mistakes]


def test_everything_is_said_at_once_with_its_place(bad: Path) -> None:
    assert places(bad) == EXPECTED


def test_topology_passes_what_only_check_refuses(bad: Path) -> None:
    (bad.parent / "job.yaml").write_text(BAD.replace("flat_map: 3", "flat_map: words"))
    assert abs_("topology", bad).returncode == 0
    checked = abs_("topology", bad, "--check", "-o", "json")
    assert checked.returncode == 2
    assert checked.stdout == ""
    said = checked.stderr.split("a module may print\n")[-1]
    found = json.loads(said)["errors"]
    assert [f"{e['line']}:{e['column']}" for e in found] == [e.rpartition(": ")[0].split(": ")[0] for e in EXPECTED
                                                              if not e.startswith("16:")]  # fmt: skip


@pytest.mark.parametrize("engine", ["inline", "spark"])
def test_run_refuses_the_same_before_it_makes_a_store(bad: Path, engine: str) -> None:
    done = abs_("run", bad, "--store", bad.parent / "store", "--engine", engine)
    assert done.returncode == 2
    for finding in EXPECTED:
        assert f"{bad}:{finding}" in done.stderr
    assert not (bad.parent / "store").exists()
    assert not (bad.parent / "out").exists()


def test_a_job_that_can_be_run_passes_and_its_output_is_the_graph(tmp_path: Path) -> None:
    make_job(tmp_path)
    done = abs_("topology", tmp_path / "job.yaml", "--check", "-o", "json")
    assert done.returncode == 0
    assert result(done, "abs.topology")["job"] == "words"
    assert "can be run" in done.stderr


def test_flinks_plan_is_not_checked_as_if_it_were_ours(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"nodes": [{"id": "1", "parallelism": 1, "type": "Source"}]}))
    assert abs_("topology", plan).returncode == 0
    done = abs_("topology", plan, "--check")
    assert done.returncode == 2
    assert "Flink" in done.stderr


def loops(operators: str) -> list[list[str]]:
    head = "version: 1\njob: j\noperators:\n  s: {source: {type: text, path: x}}\n"
    return restless_loops(parse_topology_bytes((head + operators).encode(), "t.yaml"))


def test_event_time_is_a_column_of_times(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"key": "a", "at": "2026-01-01T00:00:00Z"}\n')
    job = """{version: 1, job: j, operators: {rows: {source: {type: jsonl, path: rows.jsonl,
    event_time: {column: %s}}}, out: {from: rows, sink: {type: jsonl, path: out}}}}"""

    def faults(column: str) -> list[tuple[tuple[str, ...], str]]:
        topology = parse_topology_bytes((job % column).encode(), "job.yaml")
        return [(fault.keys, fault.message) for fault in all_faults(topology, str(tmp_path), from_start=True)]

    keys = ("source", "event_time", "column")
    assert faults("at") == []
    reason = "expected a timestamp or a date, got string"
    assert faults("key") == [(keys, f"operator rows: column 'key' cannot be event time: {reason}")]
    assert faults("when") == [(keys, "operator rows: no column 'when' for event time in what it reads")]


def test_a_loop_that_can_drop_records_may_rest() -> None:
    assert loops("  a: {from: [s, b], distinct: [line]}\n  b: {from: a, map: identity}\n") == []
    assert loops("  a: {from: [s, b], union: {}}\n  b: {from: a, flat_map: m:f}\n") == []
    assert loops("  a: {from: [s, a], filter: m:f}\n") == []


def test_a_loop_past_the_one_that_drops_does_not() -> None:
    found = loops("  a: {from: [s, b, a], union: {}}\n  b: {from: a, distinct: [line]}\n")
    assert found == [["a"]]
    counted = '  a: {from: [s, b], reduce: {key: [line], n: {count: "*"}}}\n  b: {from: a, map: m:f}\n'
    assert loops(counted) == [["a", "b"]]


def test_a_least_value_that_is_put_out_where_it_changes_comes_to_rest_and_a_count_does_not() -> None:
    least = "  a: {from: [s, b], reduce: {key: [line], n: {min: v}, emit: change}}\n  b: {from: a, map: m:f}\n"
    assert loops(least) == []
    assert loops(least.replace("emit: change", "emit: epoch")) == [["a", "b"]]
    assert loops(least.replace("min: v", 'count: "*"')) == [["a", "b"]]


def known(operators: str, tmp_path: Path) -> list[str]:
    (tmp_path / "in.txt").write_text("a b\n")
    head = "version: 1\njob: j\noperators:\n  s: {source: {type: text, path: in.txt}}\n"

    def check(graph: Topology) -> object:
        return all_faults(graph, str(tmp_path), from_start=True)

    try:
        parse_topology_bytes((head + operators).encode(), "t.yaml", check)  # type: ignore[arg-type]
    except BadFile as error:
        return [mistake.message for mistake in error.mistakes]
    return []


def test_columns_are_followed_as_far_as_they_are_known(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def f(batch): return batch\n")
    counted = '  w: {from: s, flat_map: words}\n  c: {from: w, reduce: {key: [word], n: {count: "*"}}}\n'
    assert known(counted + "  d: {from: c, distinct: [word, n]}\n", tmp_path) == []
    assert known(counted + "  d: {from: c, distinct: [line]}\n", tmp_path) == [
        "operator d: no column 'line' in what c sends"
    ]
    assert known(counted + "  u: {from: own, distinct: [anything]}\n  own: {from: c, map: own:f}\n", tmp_path) == []
    assert known("  w: {from: s, flat_map: words}\n  v: {from: w, flat_map: words}\n", tmp_path) == [
        "operator v: no column 'line' in what w sends"
    ]
    best = "  c: {from: s, reduce: {key: [line], best: {top_n: line, n: 2, by: score}}}\n"
    assert known(best, tmp_path) == ["operator c: no column 'score' in what s sends"]
    mean = "  c: {from: s, reduce: {key: [line], m: {mean: line}}}\n"
    assert known(mean, tmp_path) == ["operator c, output m: cannot sum a column of type string"]
    listed = "  c: {from: s, reduce: {key: [line], some: {collect: line, limit: 2}}}\n"
    nested = "  d: {from: c, reduce: {key: [line], best: {top_n: some, n: 2}}}\n"
    assert known(listed + nested, tmp_path) == [
        "operator d, output best: cannot order by a column of type list<item: string>"
    ]
    broken = counted.replace('count: "*"', "count: word")  # its own finding is enough: `n` is not missing besides
    assert known(broken + "  d: {from: c, distinct: [n]}\n", tmp_path) == [
        "operator c: reduce: output n: count takes \"*\", not 'word'"
    ]
    assert known("  m: {from: {s: {partition: hash, key: [gone]}}, map: identity}\n", tmp_path) == [
        "operator m: no column 'gone' in what s sends"
    ]


@pytest.mark.parametrize(("limit", "number"), [("MAX_TASKS", 0), ("MAX_CHANNELS", 1)])
def test_a_job_may_be_as_large_as_a_store_can_hold_and_no_larger(
    limit: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = size_of(word_count())[number]
    monkeypatch.setattr(runnable, limit, size)
    check_runnable(word_count())
    monkeypatch.setattr(runnable, limit, size - 1)
    with pytest.raises(UsageError, match=f"the job has {size} .*, a store holds at most {size - 1}"):
        check_runnable(word_count())


def test_records_are_counted_from_one_wherever_they_are_named(tmp_path: Path) -> None:
    rows = [{"id": 1}, {"id": "not a number"}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "own.py").write_text(
        "import pyarrow as pa\n"
        "def f(batch):\n"
        "    for row in batch.to_pylist():\n"
        "        if row['id'] == 'not a number': raise ValueError('no')\n"
        "    return batch\n"
    )

    def failing(type: str, operator: str) -> str:
        (tmp_path / "job.yaml").write_text(
            "version: 1\njob: j\noperators:\n"
            f"  s: {{source: {{type: jsonl, path: rows.jsonl, schema: {{id: {type}}}}}}}\n"
            f"  m: {{from: s, {operator}}}\n  out: {{from: m, sink: {{type: jsonl, path: out}}}}\n"
        )
        done = abs_("run", tmp_path / "job.yaml", "--store", tmp_path / f"store-{type}", "--engine", "inline")
        assert done.returncode == 7
        return done.stderr

    assert "rows.jsonl, record 2:" in failing("int", "map: identity")
    (tmp_path / "rows.jsonl").write_text('{"id": "1"}\n{"id": "not a number"}\n')
    assert "task m/0, record 2 {" in failing("string", "map: own:f")


# -- run --dry-run ----------------------------------------------------------------------------------------


def dry(folder: Path, *more: object) -> subprocess.CompletedProcess[str]:
    return run(folder, "--dry-run", *more)


def test_a_dry_run_says_all_that_stands_in_the_way(bad: Path) -> None:
    done = abs_("run", bad, "--store", bad.parent / "store", "--dry-run", "--master", "spark://nowhere:7077")
    assert done.returncode == 2
    for finding in EXPECTED:
        assert f"{bad}:{finding}" in done.stderr


def test_a_dry_run_changes_nothing_and_names_the_run(tmp_path: Path) -> None:
    make_job(tmp_path)
    before = fingerprint(tmp_path)
    done = dry(tmp_path, "--interval", "50ms", "-o", "json")
    assert done.returncode == 0, done.stderr
    would = result(done, "abs.rehearsal")
    assert (would["new"], would["parent"], would["tasks"]) == (True, 0, 8)
    (command,) = re.findall("Next: abs (run .*)", done.stderr)
    assert "--dry-run" not in command
    assert "--interval 50ms" in command
    assert fingerprint(tmp_path) == before
    assert abs_(*shlex.split(command)).returncode == 0
    before = fingerprint(tmp_path)
    again = dry(tmp_path)
    assert again.returncode == 2
    assert "already" in again.stderr
    would = result(dry(tmp_path, "--resume", "-o", "json"), "abs.rehearsal")
    assert (would["new"], would["attempt"]) == (False, 2)
    assert would["parent"] > 0
    assert fingerprint(tmp_path) == before


@pytest.mark.integration
def test_a_dry_run_is_refused_for_what_a_run_is(tmp_path: Path) -> None:
    make_job(tmp_path)
    assert run(tmp_path).returncode == 0
    job = tmp_path / "job.yaml"
    text = job.read_text()
    cases = {
        "another job": (text.replace("job: words", "job: others"), ("--resume",)),
        "another graph": (text.replace("flat_map: words", "flat_map: words\n    parallelism: 1"), ("--resume",)),
        "no such epoch": (text, ("--from-epoch", 99)),
        "epochs already": (text, ()),
    }
    for content, options in cases.values():
        job.write_text(content)
        rehearsed, real = dry(tmp_path, *options), run(tmp_path, *options)
        assert rehearsed.returncode == real.returncode != 0
        assert rehearsed.stderr.splitlines()[0] == real.stderr.splitlines()[0]
    job.write_text(text)
    rehearsed, real = (
        abs_("run", job, "--store", tmp_path / "other", "--engine", "inline", *more) for more in (("--dry-run",), ())
    )
    assert rehearsed.returncode == real.returncode == 2  # the sink is another store's
    assert rehearsed.stderr == real.stderr
    with lock.exclusive(LocalStorage(tmp_path / "store")):
        assert dry(tmp_path, "--resume").returncode == 11


def test_two_sinks_in_one_table_and_an_id_that_is_too_long_are_refused() -> None:
    def faults(**sinks: str) -> list[str]:
        text = "version: 1\njob: j\noperators:\n  rows: {source: {type: text, path: in}}\n" + "".join(
            f"  {id}: {{from: rows, sink: {{type: postgres, {options}}}}}\n" for id, options in sinks.items()
        )
        return [fault.message for fault in runnable.graph_faults(parse_topology_bytes(text.encode(), "job.yaml"))]

    assert faults(a="table: t", b="table: t", c="table: t, schema: s") == ["sinks a and b both write to table t"]
    (fault,) = faults(**{"x" * 141: "table: t"})
    assert "an id of 141 characters" in fault


@pytest.mark.parametrize("options", ["mode: upsert", "key: [a]", "mode: two-phase, key: [a]"])
def test_a_key_and_the_mode_that_goes_by_it_come_together(options: str) -> None:
    text = (
        "version: 1\njob: j\noperators:\n  rows: {source: {type: text, path: in}}\n"
        f"  out: {{from: rows, sink: {{type: postgres, table: t, {options}}}}}\n"
    )
    (fault,) = runnable.graph_faults(parse_topology_bytes(text.encode(), "job.yaml"))
    assert "mode upsert replaces rows by the columns of `key`" in fault.message


def test_a_password_has_no_place_in_a_job() -> None:
    text = (
        b"version: 1\njob: j\noperators:\n  rows: {source: {type: text, path: in}}\n"
        b"  out: {from: rows, sink: {type: postgres, table: t, url: 'postgresql://u:secretword@h/d'}}\n"
    )
    with pytest.raises(BadFile) as refused:
        parse_topology_bytes(text, "job.yaml")
    assert "secretword" not in str(refused.value)
    assert "url" in str(refused.value)


TOPICS = """version: 1
job: topics
operators:
  now: {source: {type: kafka, brokers: "h:9092", topic: t, start: latest}}
  keyed: {source: {type: kafka, brokers: "h:9092", topic: t, schema: {id: int, key: string}, key: key, timestamp: id}}
  text: {source: {type: kafka, brokers: "h:9092", topic: t, key: value}}
  typed: {source: {type: kafka, brokers: "h:9092", topic: t, schema: {id: uuid}}}
  late: {source: {type: kafka, brokers: "h:9092", topic: t, timestamp: at, event_time: {column: id}}}
  out: {from: [now, keyed, text, typed, late], sink: {type: kafka, brokers: "h:9092", topic: t}}
"""


@pytest.mark.parametrize("options", ["", ", key: []", ", key: {id: 1}", ", key: [id], mode: none"])
def test_a_table_source_with_a_wrong_option_is_refused_without_asking_its_server(tmp_path: Path, options: str) -> None:
    job = f"version: 1\njob: j\noperators:\n  rows: {{source: {{type: postgres, table: t{options}}}}}\n"
    with pytest.raises(BadFile) as refused:
        parse_topology_bytes(
            f"{job}  out: {{from: rows, sink: {{type: jsonl, path: out}}}}\n".encode(), "job.yaml",
            lambda graph: all_faults(graph, str(tmp_path), from_start=True),
        )  # fmt: skip
    assert [mistake.message for mistake in refused.value.mistakes if "operator rows" not in mistake.message] == []


def test_what_cannot_be_of_a_topic_is_said_before_a_broker_is_asked(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(TOPICS)
    assert [place.partition(": ")[2] for place in places(tmp_path / "job.yaml")] == [
        "source now begins at the end of the topic, and ends there",
        "source keyed: two columns are called 'key'",
        "source keyed: two columns are called 'id'",
        "source text: two columns are called 'value'",
        "operator typed: unknown type 'uuid' of column 'id'",
        "operator late: no column 'id' for event time in what it reads",
    ]


CATALOGS = """version: 1
job: catalogs
operators:
  rows: {source: {type: generate, rows: 3, columns: {id: row}}}
  nowhere: {from: rows, sink: {type: iceberg, table: a.t}}
  in_a_bucket: {from: rows, sink: {type: iceberg, table: a.t, warehouse: "s3://lake"}}
  relative: {from: rows, sink: {type: iceberg, table: a.t, uri: "sqlite:///catalog.db"}}
  lake: {from: rows, sink: {type: iceberg, table: a.t, warehouse: lake}}
  again: {from: rows, sink: {type: iceberg, table: a.t, warehouse: lake}}
"""


def test_a_table_without_a_catalog_is_said(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(CATALOGS)
    assert [place.partition(": ")[2] for place in places(tmp_path / "job.yaml")] == [
        "sink nowhere has no catalog: nothing says where its table is",
        "sink in_a_bucket has warehouse s3://lake alone, which is not a folder: nothing says where its table is",
        "sink relative: 'sqlite:///catalog.db' would be another file for each folder that the job is started from",
        "sinks lake and again both write to table a.t",
    ]
    assert not Path("catalog.db").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["job.yaml"]


LAKES = """version: 1
job: lakes
operators:
  rows: {source: {type: generate, rows: 3, columns: {id: row}}}
  ice: {from: rows, sink: {type: iceberg, table: a.t, warehouse: lake}}
  delta: {from: rows, sink: {type: delta, path: out}}
"""


def test_the_package_that_a_sink_lacks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "job.yaml").write_text(LAKES)
    for package in ("pyiceberg", "deltalake"):
        monkeypatch.setitem(sys.modules, package, None)
    assert [place.partition(": ")[2] for place in places(tmp_path / "job.yaml")] == [
        "sink ice: an Iceberg sink needs the package pyiceberg, which is not installed",
        "sink delta: a Delta Lake sink needs the package deltalake, which is not installed",
    ]
