"""The job graph as people and programs see it: list with rails, JSON, dot and mermaid."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abscli.draw.topology_drawings import topology_dot, topology_mermaid
from abscli.draw.topology_svg import topology_svg
from abscli.graph.job_graph import JobGraph
from abscli.text.topology import topology_json, topology_text, topology_wide
from abscli.text.topology_rails import Rail, draw, lay
from formats.job.file import parse_topology, parse_topology_bytes
from formats.job.model import Edge, Kind, Operator, Partition, Topology

DATA = Path(__file__).parents[1] / "data" / "topologies"
SCHEMA = json.loads((Path(__file__).parents[2] / "formats" / "schemas" / "abs.topology.json").read_bytes())
RENDERERS = {
    "80.txt": lambda graph: topology_text(graph, width=80),
    "200.txt": lambda graph: topology_text(graph, width=200),
    "ascii.txt": lambda graph: topology_text(graph, width=60, ascii_only=True),
    "json": lambda graph: json.dumps(topology_json(graph), indent=2) + "\n",
    "dot": topology_dot,
    "mmd": topology_mermaid,
    "svg": topology_svg,
}


def loaded(name: str) -> JobGraph:
    return JobGraph.of(parse_topology(DATA / "good" / name))


def graph_of(operators: str, job: str = "test") -> JobGraph:
    return JobGraph.of(parse_topology_bytes(f"version: 1\njob: {job}\noperators:\n{operators}".encode(), "t"))


@pytest.mark.parametrize("name", ["wordcount", "imports", "every-kind", "nested-loops"])
@pytest.mark.parametrize("form", RENDERERS)
def test_each_form_is_its_golden_text(name: str, form: str, request: pytest.FixtureRequest) -> None:
    text = RENDERERS[form](loaded(f"{name}.yaml"))
    golden = DATA / "rendered" / f"{name}.{form}"
    if request.config.getoption("--rewrite"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", sorted((DATA / "good").iterdir()), ids=lambda path: path.name)
def test_the_json_fits_its_schema_and_agrees_with_itself(path: Path) -> None:
    value = topology_json(JobGraph.of(parse_topology(path)))
    jsonschema.validate(value, SCHEMA, jsonschema.Draft202012Validator)
    assert json.loads(json.dumps(value)) == value
    assert value["back_edges"] == [{"from": e["from"], "to": e["to"]} for e in value["edges"] if e["back_edge"]]
    assert value["tasks"] == sum(op["parallelism"] for op in value["operators"])


def test_a_loop_has_a_rail_from_its_sender_up_to_its_receiver() -> None:
    text = topology_text(graph_of("  s: {}\n  a: {from: [s, c]}\n  b: {from: a}\n  c: {from: b}\n  d: {from: c}\n"))
    assert text.splitlines()[2:8] == [
        "#      operator  kind    tasks  inputs",
        "1      s         opaque      1  -",
        "2  ┌─▶ a         opaque      1  s forward, c forward (back)",
        "3  │   b         opaque      1  a forward",
        "4  └── c         opaque      1  b forward",
        "5      d         opaque      1  c forward",
    ]


LONG = "Source_kafka_orders_by_region_and_country_eu-central-1"


def test_long_names_are_broken_at_their_own_marks() -> None:
    text = topology_text(graph_of(f"  {LONG}: {{}}\n  sum:\n    from: {LONG}\n    parallelism: 2\n"), width=60)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 60
    assert [line[3:19].strip() for line in lines[3:7]] == ["Source_kafka_", "orders_by_", "region_and_", "country_eu-"]


def test_the_wide_form_has_an_operator_a_line_and_more_of_each() -> None:
    graph = graph_of(f"  {LONG}: {{}}\n  next:\n    from: {LONG}\n    distinct: [a]\n    max_parallelism: 64\n")
    assert topology_wide(graph).splitlines()[2:5] == [
        f"#  {'operator':<54}  kind      tasks  max tasks  state  inputs",
        f"1  {LONG}  opaque        1        128  ?      -",
        f"2  {'next':<54}  distinct      1         64  yes    {LONG} hash(a)",
    ]


def test_a_graph_without_loops_has_no_rails() -> None:
    assert "#  operator" in topology_text(loaded("wordcount.yaml"))


def test_back_edges_are_named_in_words_not_by_lines_alone() -> None:
    assert "b forward (back)" in topology_text(graph_of("  s: {}\n  b: {from: [s, b]}\n"), ascii_only=True)


def test_the_plain_form_is_ascii() -> None:
    assert topology_text(loaded("nested-loops.yaml"), ascii_only=True).isascii()


@pytest.mark.parametrize("width", [40, 80, 120, 200])
@pytest.mark.parametrize("path", sorted((DATA / "good").iterdir()), ids=lambda path: path.name)
def test_no_line_is_wider_than_the_terminal_unless_a_single_name_is(path: Path, width: int) -> None:
    graph = JobGraph.of(parse_topology(path))
    for line in topology_text(graph, width=width).splitlines():
        assert len(line) <= max(width, 62) or line.split()[-1].rstrip(",") in graph.operators


def test_what_is_not_the_main_output_of_an_operator_is_named_on_its_edge() -> None:
    graph = graph_of(
        "  a: {source: {type: jsonl, path: x, schema: {k: string, at: timestamp}, event_time: {column: at}}}\n"
        "  b: {from: a, window: {time: at, tumbling: 1h}, reduce: {key: [k], n: {count: '*'}}}\n"
        "  c: {from: {b: {output: late}}, sink: {type: jsonl, path: y}}\n"
        "  d: {from: b, sink: {type: jsonl, path: z}}\n"
    )
    assert "b late forward" in topology_text(graph)
    assert '"b" -> "c" [label="late forward"]' in topology_dot(graph)
    assert '-->|"late forward"|' in topology_mermaid(graph)
    drawn = topology_svg(graph)
    labels = re.findall(r'class="small faint middle"[^>]*>([^<]*)<', drawn)
    assert [label for label in labels if " " not in label] == ["late", "hash(k)"]


def test_names_are_never_cut_short() -> None:
    id = "an-operator-with-a-long-name." * 5
    text = topology_text(graph_of(f"  s: {{}}\n  {id}: {{from: s}}\n"))
    assert id in "".join(line[3 : 3 + 25].strip() for line in text.splitlines() if line.startswith(("2  ", "   ")))


def test_rails_that_do_not_fit_are_counted_and_still_named() -> None:
    inner = "".join(f"  o{i}: {{from: [o{i - 1}, o{59 - i}]}}\n" for i in range(1, 30))
    outer = "".join(f"  o{i}: {{from: o{i - 1}}}\n" for i in range(30, 60))
    text = topology_text(graph_of(f"  o0: {{}}\n{inner}{outer}"))
    assert text.count("(back)") == 29
    assert "19 back edges without a rail" in " ".join(text.split())


def test_names_cannot_steer_a_terminal_or_leave_their_quotes() -> None:
    key = ('a"]; x', "b\x1b[31m", "`c`", "<script>", "\\")
    operators = (Operator("end", Kind.OPAQUE, 1, 1), Operator("subgraph", Kind.OPAQUE, 1, 1))
    topology = Topology('j"\x1b', operators, (Edge("end", "subgraph", Partition.HASH, key),))
    graph = JobGraph.of(topology)
    for render in (topology_text, topology_dot, topology_mermaid):
        assert "\x1b" not in render(graph)
    for line in topology_dot(graph).splitlines():
        assert len(re.findall(r'(?:[^\\]|^)(?:\\\\)*"', line)) % 2 == 0
    assert all(line.count('"') in (0, 2) for line in topology_mermaid(graph).splitlines())
    assert not {"<script>", "`"} & set(re.findall(r"<script>|`", topology_mermaid(graph)))


def test_in_drawings_back_edges_alone_are_dashed() -> None:
    graph = loaded("imports.yaml")
    assert topology_dot(graph).count("style=dashed") == len(graph.back)
    assert topology_mermaid(graph).count("-.->") == len(graph.back)


spans = st.lists(st.tuples(st.integers(0, 15), st.integers(0, 15)).map(lambda s: (min(s), max(s))), unique=True)


@given(spans, st.integers(1, 30))
def test_rails_of_one_lane_never_touch(wanted: list[tuple[int, int]], lanes: int) -> None:
    rails = lay(wanted, lanes)
    assert {(rail.top, rail.bottom) for rail in rails} <= set(wanted)
    if lanes >= len(wanted):
        assert len(rails) == len(wanted)
    for one in rails:
        assert 0 <= one.lane < lanes
        for other in rails:
            apart = other.bottom < one.top or one.bottom < other.top
            assert one is other or one.lane != other.lane or apart


@given(spans, st.booleans())
def test_a_rail_is_drawn_from_corner_to_corner(wanted: list[tuple[int, int]], ascii_only: bool) -> None:
    rails = lay(wanted, 10)
    drawn = draw(rails, 16, ascii_only)
    assert len({len(text) for pair in drawn for text in pair}) == 1
    width = max((rail.lane for rail in rails), default=0) + 1
    top, bottom, between = ("+", "+", "|") if ascii_only else ("┌┬", "└┴", "│┼")
    for rail in rails:
        column = width - 1 - rail.lane
        cells = [drawn[row][0][column] for row in range(rail.top, rail.bottom + 1)]
        if rail.top == rail.bottom:
            assert cells == ["@" if ascii_only else "↻"]
        else:
            assert cells[0] in top
            assert cells[-1] in bottom
            assert all(cell in between for cell in cells[1:-1])
        assert all(drawn[row][1][column] == between[0] for row in range(rail.top, rail.bottom))


def test_an_outer_rail_crosses_an_inner_one_that_goes_on() -> None:
    drawn = [text for text, _ in draw([Rail(0, 3, 0), Rail(1, 2, 1)], 4)]
    assert drawn == [" ┌─▶ ", "┌┼─▶ ", "└┼── ", " └── "]


@pytest.mark.integration
def test_100_000_operators_are_listed_in_seconds() -> None:
    size = 100_000
    operators = tuple(Operator(f"o{i}", Kind.OPAQUE, 1, 1) for i in range(size))
    edges = [Edge(f"o{i - 1}", f"o{i}", Partition.FORWARD) for i in range(1, size)]
    edges += [Edge(f"o{i + 1}", f"o{i}", Partition.FORWARD) for i in range(1, size - 1, 2)]
    edges.sort(key=lambda edge: int(edge.target[1:]))
    graph = JobGraph.of(Topology("chain", operators, tuple(edges)))
    started = time.process_time()
    text = topology_text(graph)
    assert time.process_time() - started < 20
    assert text.endswith("100000 operators, 100000 tasks, 149998 channels, 49999 back edges, 49999 loops\n")


TIMED = b"""version: 1
job: timed
operators:
  rows:
    source: {type: jsonl, path: r, schema: {k: string, at: timestamp}, event_time: {column: at, delay: 1m, idle: 90s}}
    on_error: skip
  others: {source: {type: jsonl, path: o, schema: {k: string, at: timestamp}, event_time: {column: at}}}
  slid:
    from: rows
    reduce: {key: [k], n: {count: "*"}}
    window: {time: at, sliding: 10m, every: 5m, lateness: 90s}
    on_error: {dead_letter: dead/slid}
  sessions: {from: rows, reduce: {key: [k], n: {count: "*"}}, window: {time: at, session: 1h30m}}
  kept: {from: rows, distinct: [k], ttl: {time: at, after: 365d}}
  pairs: {from: [rows, others], join: {key: [k], left: rows, time: at, within: {before: 500ms, after: 10m}, how: left}}
  named: {from: pairs, lookup: {table: s.users, key: [k], how: left}}
  alarms: {from: rows, process: {key: [k], function: "m:f", time: at, state: {n: int64}}}
  out: {from: named, sink: {type: jsonl, path: out}}
"""
MARKS = {
    "rows": "event time at, up to 1m late, idle after 1m30s; failing records skipped",
    "others": "event time at",
    "slid": "windows of 10m every 5m by at, late rows for 1m30s; failing records to dead/slid",
    "sessions": "sessions by at, ended by a gap of 1h30m",
    "kept": "keys kept for 365d by at",
    "pairs": "left join on at: 500ms before rows to 10m after",
    "named": "left lookup in s.users",
    "alarms": "timers by at",
}


@pytest.mark.parametrize("width", [80, 200])
def test_what_operators_do_by_event_time_and_with_failures_is_listed(width: int) -> None:
    graph = JobGraph.of(parse_topology_bytes(TIMED, "timed.yaml"))
    text = topology_text(graph, width=width)
    assert all(len(line) <= width for line in text.splitlines())
    flowing = " ".join(text.split())
    for id, marks in MARKS.items():
        assert f"{id}: {marks}" in flowing
    assert "out: " not in text
    wide = topology_wide(graph).splitlines()
    column = wide[2].index("time and failures")
    assert wide[2].index("inputs") > column
    for id, marks in MARKS.items():
        (line,) = (line for line in wide if line[3:].startswith(f"{id} "))
        assert line[column:].startswith(marks)
    assert len(topology_wide(graph).split("loops")) == 2


def test_pictures_and_programs_have_it_too() -> None:
    graph = JobGraph.of(parse_topology_bytes(TIMED, "timed.yaml"))
    for picture in (topology_svg(graph), topology_dot(graph), topology_mermaid(graph)):
        assert "keys kept for 365d by at" in picture
    operators = {op["id"]: op for op in topology_json(graph)["operators"]}
    assert operators["slid"]["window"] == {
        "kind": "sliding", "time": "at", "size": 600.0, "every": 300.0, "lateness": 90.0,
    }  # fmt: skip
    assert operators["slid"]["on_error"] == {"skip": True, "dead_letter": "dead/slid"}
    assert operators["kept"]["ttl"] == {"time": "at", "after": 31536000.0}
    assert (operators["pairs"]["join"]["before"], operators["pairs"]["join"]["after"]) == (0.5, 600.0)
    assert operators["named"]["lookup"] == {"table": "s.users", "how": "left"}
    assert operators["alarms"]["timers"] == "at"
    assert operators["rows"]["event_time"] == {"column": "at", "delay": 60.0, "idle": 90.0}
    assert {name: operators["out"][name] for name in ("window", "ttl", "join", "lookup", "timers", "on_error")} == (
        dict.fromkeys(("window", "ttl", "join", "lookup", "timers", "on_error"))
    )
