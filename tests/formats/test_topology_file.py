"""Topology files: what they mean, and everything that can be wrong with one, with its place."""

from __future__ import annotations

import json
import pickle
import time
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from formats.errors import FormatError, UnsupportedVersion
from formats.job.event_time import duration
from formats.job.file import MAX_BYTES, BadFile, parse_topology, parse_topology_bytes
from formats.job.kinds import KINDS
from formats.job.model import Aggregate, Edge, How, Join, Kind, Lookup, LookupHow, Partition, Topology, canonical
from formats.job.written import job_yaml
from formats.user_file.mistakes import Mistakes
from formats.user_file.nodes import read_nodes
from tests.tiers import examples

DATA = Path(__file__).parents[1] / "data" / "topologies"
GOOD = sorted((DATA / "good").iterdir())
BAD = sorted(path for path in (DATA / "bad").iterdir() if path.suffix != ".errors")
SCHEMA = json.loads((Path(__file__).parents[2] / "formats" / "schemas" / "topology-file.json").read_bytes())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
BEYOND_THE_SCHEMA = {"graph.yaml", "no-source.yaml", "duplicates.yaml"}


def parsed(operators: str, head: str = "") -> Topology:
    return parse_topology_bytes(f"version: 1\njob: test\n{head}operators:\n{operators}".encode(), "t.yaml")


def errors(text: str | bytes) -> list[str]:
    """Mistakes as `line:column: message`."""
    data = text if isinstance(text, bytes) else text.encode()
    with pytest.raises(BadFile) as raised:
        parse_topology_bytes(data, "t.yaml")
    return [str(error).removeprefix("t.yaml:") for error in raised.value.mistakes]


def errors_in(operators: str, head: str = "") -> list[str]:
    return errors(f"version: 1\njob: test\n{head}operators:\n  s: {{source: {{type: text, path: x}}}}\n{operators}")


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.name)
def test_a_good_file_is_read_and_fits_its_schema(path: Path) -> None:
    topology = parse_topology(path)
    assert [op.id for op in topology.operators] == list(load(path)["operators"])
    VALIDATOR.validate(load(path))


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.name)
def test_all_findings_of_a_bad_file_come_at_once_in_file_order(path: Path, request: pytest.FixtureRequest) -> None:
    with pytest.raises(BadFile) as raised:
        parse_topology_bytes(path.read_bytes(), path.name)
    found = raised.value.mistakes
    assert [(e.line, e.column) for e in found] == sorted((e.line, e.column) for e in found)
    text = "".join(f"{e}\n" + (f"    hint: {e.hint}\n" if e.hint else "") for e in found)
    golden = path.with_suffix(".errors")
    if request.config.getoption("--rewrite"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize(("written", "hint"), [
    ("count", 'write n: {count: "*"}'), ("sum", "write n: {sum: COLUMN}"), ("number", 'write n: {count: "*"}'),
    ("sum(v)", "write n: {sum: v}"), ("MAX(price)", "write n: {max: price}"), ("count(v)", 'write n: {count: "*"}'),
])  # fmt: skip
def test_an_output_that_is_no_mapping_is_answered_by_how_it_is_written(written: str, hint: str) -> None:
    operators = f"  s: {{source: {{type: text, path: x}}}}\n  r: {{from: s, reduce: {{key: [line], n: {written}}}}}\n"
    with pytest.raises(BadFile) as raised:
        parse_topology_bytes(f"version: 1\njob: t\noperators:\n{operators}".encode(), "t.yaml")
    assert [error.hint for error in raised.value.mistakes] == [hint]


@pytest.mark.parametrize(("entry", "hint"), [
    ("reduce: {group_by: [line], n: {count: '*'}}", "did you mean key?"),
    ("reduce: {key: [line], n: {count: '*'}}, window: {time: at, sliding: 10s, slide: 5s}", "did you mean every?"),
    ("sink: {type: postgres, table: t, url: 'x'}", "did you mean url_env? It is the name of an environment variable"),
    ("flatMap: 'm:f'", "did you mean flat_map?"),
])  # fmt: skip
def test_words_of_other_systems_lead_to_the_key(entry: str, hint: str) -> None:
    operators = f"  s: {{source: {{type: text, path: x}}}}\n  r: {{from: s, {entry}}}\n"
    with pytest.raises(BadFile) as raised:
        parse_topology_bytes(f"version: 1\njob: t\noperators:\n{operators}".encode(), "t.yaml")
    assert hint in " ".join(error.hint or "" for error in raised.value.mistakes)


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.name)
def test_the_schema_refuses_bad_files_too_unless_they_are_bad_as_graphs(path: Path) -> None:
    try:
        value = load(path)
    except (yaml.YAMLError, UnicodeDecodeError, TypeError):
        return
    assert VALIDATOR.is_valid(value) == (path.name in BEYOND_THE_SCHEMA)


KIND_EXAMPLES: dict[Kind, list[Any]] = {
    Kind.SOURCE: [{"type": "text", "path": "p", "deterministic": False}, {"type": "queue", "more": [1, {"b": None}]},
                  {"type": "jsonl", "path": "p", "schema": {"a": "int"}},
                  {"type": "csv", "path": "p", "delimiter": ";", "header": False, "nulls": ["NA"], "columns": ["a"]},
                  {"type": "parquet", "path": "p", "columns": ["a"]}, {"type": "arrow", "path": "p"},
                  {"type": "nexmark", "events": "bid", "total": 5, "rate": 7, "seed": 3, "out_of_order": 50},
                  {"type": "postgres", "table": "s.t", "key": ["id"], "schema": {"id": "int"}, "columns": ["id"],
                   "url_env": "U", "service": "d", "follow": True, "every": "5s", "event_time": {"column": "at"}},
                  {"type": "kafka", "brokers": "h:9092", "topic": "t", "schema": {"a": "int"}, "key": "k",
                   "timestamp": "at", "start": "latest", "follow": True, "config": "c", "event_time": {"column": "at"}},
                  {"type": "jsonl", "path": "p",
                   "event_time": {"column": "at", "delay": "1.5s", "idle": 30, "ordered": True}}],
    Kind.SINK: [{"type": "jsonl", "path": "p", "deterministic": True}, {"type": "text", "anything": 1},
                {"type": "csv", "path": "p"}, {"type": "parquet", "path": "p"},
                {"type": "postgres", "table": "t", "schema": "s", "service": "d", "mode": "two-phase"},
                {"type": "postgres", "table": "t", "mode": "upsert", "key": ["a", "b"]},
                {"type": "stdout"}, {"type": "stdout", "row_id": "id"}, {"type": "delta", "path": "p"},
                {"type": "iceberg", "table": "a.b.t", "catalog": "c", "uri": "http://h/x", "warehouse": "s3://b/w"},
                {"type": "kafka", "brokers": "h:9092", "topic": "t", "key": "a", "config": "c"}],
    Kind.MAP: ["f", "m.n:f"],
    Kind.FILTER: ["f"],
    Kind.FLAT_MAP: ["f"],
    Kind.REDUCE: [{"key": ["a"], "emit": "batch", "n": {"count": "*"}, "m": {"sum": "b"}}],
    Kind.DISTINCT: [["a", "b"]],
    Kind.PROCESS: ["f", {"function": "f"}, {"key": ["a"], "function": "m:f"},
                   {"key": ["a"], "function": "m:f", "state": {"b": "int64", "c": "string"}, "time": "at"}],
    Kind.JOIN: [{"key": ["a", "b"], "function": "f"},
                {"key": ["a"], "left": "s", "time": "t", "within": {"before": "0s", "after": 5}, "how": "outer",
                 "lateness": "1m", "columns": {"s": {"a": "int"}}},
                {"key": ["a"], "left": "s", "time": {"s": "t", "r": "u"}, "within": {"after": "1.5s"}}],
    Kind.LOOKUP: [{"path": "p.csv", "key": ["a"]},
                  {"path": "p.parquet", "key": ["a", "b"], "how": "left", "columns": ["c"]}],
    Kind.UNION: [{}, None, True],
}  # fmt: skip
VALUES = st.sampled_from(
    [None, True, False, 0, -1, 3, 2.5, "", "a", "a b", "a:b:c", "text", "jsonl", "epoch", [], ["a"], ["a", "a"], [1],
     {}, {"a": 1}, {"count": "*"}, {"count": "a"}, {"sum": "a"}, {"sum": "a", "max": "b"}, {"function": "f"}]
)  # fmt: skip
NAMES = st.sampled_from(["key", "emit", "function", "type", "path", "schema", "deterministic", "n", "other",
                         "columns", "delimiter", "header", "nulls", "events", "total", "state", "time", "topic",
                         "start", "__due"])  # fmt: skip


def damaged(value: Any) -> st.SearchStrategy[Any]:
    """What stands at one place of a value, is another, has another name, or is not there; or there is more."""
    choices: list[st.SearchStrategy[Any]] = [VALUES]
    if isinstance(value, dict):
        choices += [st.builds(lambda name, new: {**value, name: new}, NAMES, VALUES)]
        for key, inner in value.items():
            rest = {name: other for name, other in value.items() if name != key}
            choices += [st.just(rest), st.builds(lambda new, key=key: {**value, key: new}, damaged(inner))]
            choices += [st.builds(lambda name, rest=rest, inner=inner: {**rest, name: inner}, NAMES)]
    if isinstance(value, list):
        choices += [st.just([*value, *value]), st.builds(lambda new: [*value, new], VALUES)]
    return st.one_of(choices)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(200))
@given(st.data())
def test_what_a_kind_reads_without_findings_is_what_its_schema_accepts(kind: Kind, data: st.DataObject) -> None:
    example = data.draw(st.sampled_from(KIND_EXAMPLES[kind]))
    value = data.draw(st.just(example) | damaged(example))
    findings = Mistakes("t.json")
    node = read_nodes(json.dumps(value).encode(), findings)
    assert node is not None
    KINDS[kind].read(node, kind, findings)
    try:
        findings.raise_any()
        holds = True
    except BadFile:
        holds = False
    schema = {**KINDS[kind].reference(), "$defs": SCHEMA["$defs"]}
    assert jsonschema.Draft202012Validator(schema).is_valid(value) == holds


@pytest.mark.parametrize(
    ("written", "microseconds"),
    [("10s", 10_000_000), ("1h30m", 5_400_000_000), ("0.5ms", 500), (3, 3_000_000), ("1d", 86_400_000_000),
     ("0s", None), (0, None), (-1, None), ("", None), ("5", None), ("5 s", None), ("s", None), ("0.0001s", None),
     ("10s\n", None), ("9999999s", None), (True, None), (None, None), ([], None)],
)  # fmt: skip
def test_a_duration_is_what_its_schema_says(written: Any, microseconds: int | None) -> None:
    findings = Mistakes("t.json")
    node = read_nodes(json.dumps(written).encode(), findings)
    assert node is not None
    assert duration.read(node, "delay", findings) == microseconds
    schema = {**duration.reference(), "$defs": SCHEMA["$defs"]}
    assert jsonschema.Draft202012Validator(schema).is_valid(written) == (microseconds is not None)


def load(path: Path) -> Any:
    if path.suffix == ".json":
        return json.loads(path.read_bytes())
    return yaml.safe_load(path.read_bytes())


def test_the_word_count_of_the_documentation_means_what_it_says() -> None:
    topology = parse_topology(DATA / "good" / "wordcount.yaml")
    lines, words, counts, printed = topology.operators
    assert (topology.job, topology.version) == ("wordcount", 1)
    assert [op.kind for op in topology.operators] == [Kind.SOURCE, Kind.FLAT_MAP, Kind.REDUCE, Kind.SINK]
    assert [op.parallelism for op in topology.operators] == [2, 2, 4, 2]
    assert {op.max_parallelism for op in topology.operators} == {128}
    assert lines.connector == {"type": "text", "path": "corpus/*.txt"}
    assert words.function == "wordcount:split"
    assert (counts.key, counts.aggregates, counts.emit) == (("word",), (Aggregate("n", "count", "*"),), "epoch")
    assert printed.connector == {"type": "jsonl", "path": "out"}
    assert topology.edges == (
        Edge("lines", "words", Partition.FORWARD),
        Edge("words", "counts", Partition.HASH, ("word",)),
        Edge("counts", "printed", Partition.REBALANCE),
    )


def test_a_cycle_is_written_by_naming_an_operator_further_down() -> None:
    edges = parsed("  s: {}\n  a: {from: [s, b]}\n  b: {from: a}\n").edges
    assert [(e.source, e.target) for e in edges] == [("s", "a"), ("b", "a"), ("a", "b")]


def test_edges_come_by_target_in_declared_order_then_in_the_order_of_from() -> None:
    edges = parsed("  z: {}\n  y: {}\n  b: {from: [y, z]}\n  a: {from: {b: {}, z: {}}}\n").edges
    assert [(e.source, e.target) for e in edges] == [("y", "b"), ("z", "b"), ("b", "a"), ("z", "a")]


def test_left_out_an_edge_is_forward_between_equals_and_rebalance_between_others() -> None:
    edges = parsed("  s: {}\n  a: {from: s}\n  b: {from: a, parallelism: 3}\n").edges
    assert [e.partition for e in edges] == [Partition.FORWARD, Partition.REBALANCE]


@pytest.mark.parametrize(
    "spec",
    [
        'reduce: {key: [k, l], n: {count: "*"}}',
        "distinct: [k, l]",
        "join: {key: [k, l], function: f}",
        "process: {key: [k, l], function: f}",
    ],
)
def test_left_out_an_edge_into_a_keyed_operator_is_hash_on_its_key(spec: str) -> None:
    (edge,) = parsed(f"  s: {{}}\n  a: {{from: s, {spec}}}\n").edges
    assert (edge.partition, edge.key) == (Partition.HASH, ("k", "l"))


def test_an_unkeyed_process_takes_any_partition() -> None:
    (edge,) = parsed("  s: {}\n  a: {from: {s: {partition: broadcast}}, process: {function: f}}\n").edges
    assert edge.partition is Partition.BROADCAST


def test_the_key_alone_is_enough_for_the_hash_of_a_keyed_operator() -> None:
    (edge,) = parsed("  s: {}\n  a: {from: {s: {key: [k]}}, distinct: [k]}\n").edges
    assert (edge.partition, edge.key) == (Partition.HASH, ("k",))


def test_an_operator_of_no_kind_is_opaque_and_without_inputs_a_source() -> None:
    topology = parsed("  s: {}\n  t: {from: s}\n")
    assert [(op.kind, op.stateful) for op in topology.operators] == [(Kind.OPAQUE, None)] * 2


@pytest.mark.parametrize("text", ["{}", "", "true"])
def test_a_union_has_nothing_to_say(text: str) -> None:
    assert parsed(f"  s: {{}}\n  u: {{from: s, union: {text}}}\n").operators[1].kind is Kind.UNION


def test_marks_are_read() -> None:
    source, op = parsed(
        "  s: {deterministic: no}\n  a: {from: {s: {replayable: true}}, ordered_output: true}\n"
    ).operators
    assert (source.deterministic, source.ordered_output) == (False, False)
    assert (op.deterministic, op.ordered_output) == (True, True)


@pytest.mark.parametrize("events", [49, 75, 953 * 50, 1_000_050])
def test_events_come_out_of_order_by_groups_of_whole_fifties(events: int) -> None:
    source = f"source: {{type: nexmark, events: bid, out_of_order: {events}}}"
    with pytest.raises(BadFile, match=f"out_of_order must be a multiple of 50, not {events}"):
        parse_topology_bytes(f"version: 1\njob: j\noperators: {{a: {{{source}}}}}".encode(), "job.yaml")


def test_options_of_unknown_connectors_are_kept_as_json_has_them() -> None:
    (op,) = parsed("  s: {source: {type: q, a: [1, 2.5, yes, ~], b: {c: 2001-01-01}, d: '3', e: 0x10}}\n").operators
    expected = {"type": "q", "a": [1, 2.5, True, None], "b": {"c": "2001-01-01"}, "d": "3", "e": 16}
    assert op.connector == expected


def test_a_merge_key_takes_over_what_is_not_said_again() -> None:
    topology = parsed("  s: {}\n  a: &a {from: s, map: f, parallelism: 2}\n  b: {<<: *a, parallelism: 3}\n")
    b = topology.operators[2]
    assert (b.kind, b.function, b.parallelism) == (Kind.MAP, "f", 3)


def test_a_topology_survives_its_canonical_form() -> None:
    for path in GOOD:
        topology = parse_topology(path)
        assert msgspec.json.decode(canonical(topology), type=Topology) == topology


def test_json_may_have_tabs_escaped_slashes_and_surrogate_pairs() -> None:
    assert parse_topology(DATA / "good" / "tabs.json").operators[0].connector == {"type": "text", "path": "é/😀.txt"}


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm() -> None:
    text = (DATA / "good" / "wordcount.yaml").read_text().replace("\n", "\r\n")
    assert parse_topology_bytes(b"\xef\xbb\xbf" + text.encode(), "t") == parse_topology(
        DATA / "good" / "wordcount.yaml"
    )


def test_columns_count_characters() -> None:
    assert errors("version: 1\njob: é\noperators: {ü: 1}\n") == [
        "3:13: 'ü' is not an operator id",
        "3:16: operator 'ü' must be a mapping, not the number 1",
    ]


def test_one_cause_is_one_finding() -> None:
    assert errors_in("  a: {from: x, map: f}\n  b: {from: a, map: f}\n") == [
        "5:13: operator a: input 'x' is not an operator of this file"
    ]
    assert errors_in("  a: {from: s, map: f}\n", "parallelism: none\n") == [
        "3:14: parallelism must be a whole number, not the text 'none'"
    ]
    assert errors_in("  a: {from: s, distinct: [no]}\n  b: {from: {a: {partition: forward}}, parallelism: x}\n") == [
        "5:27: operator a: distinct: a column must be a string, not the boolean false (YAML reads 'no' so)",
        "6:53: operator b: parallelism must be a whole number, not the text 'x'",
    ]


def test_a_finding_behind_an_alias_counts_once() -> None:
    assert errors("version: 1\njob: j\noperators: {s: {source: {type: q, x: [&n 010, *n]}}}") == [
        "3:39: operator s: source: x: YAML reads '010' as 8"
    ]


def test_a_newer_version_is_told_apart_from_an_error() -> None:
    with pytest.raises(UnsupportedVersion, match="topology version 2; this program reads version 1"):
        parse_topology_bytes(b"job: x\nfuture: y\nversion: 2\n", "t.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("version: 0\n", "1:10: version must be 1, not 0"),
        ("version: 1.0\n", "1:10: version must be a whole number, not the number 1.0"),
        ("version: '1'\n", "1:10: version must be a whole number, not the text '1'"),
        ("version: yes\n", "1:10: version must be a whole number, not the boolean true (YAML reads 'yes' so)"),
    ],
)
def test_a_version_is_a_plain_number(text: str, message: str) -> None:
    assert message in errors(text)


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_deep_nesting_is_refused_and_no_recursion(opening: str) -> None:
    (message,) = errors(opening * 100_000)
    assert message.endswith("nested more than 100 levels deep")


def test_depth_counts_what_aliases_stand_for() -> None:
    lines = ["x0: &x0 [1]", *(f"x{i}: &x{i} [[*x{i - 1}]]" for i in range(1, 80))]
    assert errors("\n".join(lines))[0].endswith("nested more than 100 levels deep")


def test_an_alias_bomb_is_refused() -> None:
    lines = ["x0: &x0 [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 9)}]" for i in range(1, 30)]
    assert errors("\n".join(lines))[0].endswith("aliases stand for more than 1000000 nodes")


def test_an_alias_inside_what_it_names_is_refused() -> None:
    assert errors("a: &a {b: *a}") == ["1:11: alias *a stands inside what it names"]
    assert errors("a: *a") == ["1:4: alias *a has no anchor above"]


def test_a_huge_file_is_refused() -> None:
    assert errors(b" " * (MAX_BYTES + 1)) == [f"1:1: more than {MAX_BYTES} bytes, too many for a topology"]


def test_long_values_are_shortened_and_control_characters_escaped_in_messages() -> None:
    long, bell = errors_in(f"  a: {{from: s, map: '{'x y' * 1000}'}}\n  b: {{from: s, map: \"\\a\"}}\n")
    assert len(long) < 200
    assert "\a" not in bell


def test_advice_has_a_bound() -> None:
    operators = "".join(f"  operator{i}: {{from: operatr{i}}}\n" for i in range(3_000))
    started = time.process_time()
    assert len(errors_in(operators)) == 3_000
    assert time.process_time() - started < 10


def test_a_missing_file_a_directory_and_an_impossible_name_are_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="cannot be read: no such file"):
        parse_topology(tmp_path / "none.yaml")
    with pytest.raises(FormatError, match="cannot be read"):
        parse_topology(tmp_path)
    with pytest.raises(FormatError, match="cannot be read"):
        parse_topology("a\0b")


def test_findings_say_file_line_and_column_and_survive_pickling() -> None:
    with pytest.raises(BadFile) as raised:
        parse_topology_bytes(b"[]", "jobs/t.yaml")
    again = pickle.loads(pickle.dumps(raised.value))
    assert str(again) == str(raised.value) == "jobs/t.yaml:1:1: a topology must be a mapping, not a list"
    assert again.mistakes == raised.value.mistakes


@pytest.mark.integration
def test_a_chain_of_100_000_operators_is_read_in_seconds() -> None:
    lines = ["  o0: {source: {type: text, path: x}}"]
    lines += [f"  o{i}:\n    from: o{i - 1}\n    map: m:f" for i in range(1, 100_000)]
    started = time.process_time()
    topology = parsed("\n".join(lines))
    assert time.process_time() - started < 40
    assert len(topology.operators) == 100_000
    assert len(topology.edges) == 99_999


def try_parse(data: bytes) -> Topology | None:
    try:
        return parse_topology_bytes(data, "t.yaml")
    except FormatError:
        return None


@given(st.binary(max_size=60) | st.text("{}[]&*a:?-|>!%@`'\"\\#,\n\t <0", max_size=60).map(str.encode))
@example(b"? ? a\n: - b")
@example(b"%YAML 1.2\n---\n")
@example(b"<<: *a")
@example(b"a: &a\n<<: [*a, *a, {}]")
@example(b"!!set {a, b}")
def test_no_bytes_give_anything_but_a_topology_or_findings(data: bytes) -> None:
    try_parse(data)


@settings(max_examples=examples(300))
@given(st.data())
def test_what_is_accepted_of_a_damaged_file_fits_the_schema(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from([path.read_text(encoding="utf-8") for path in GOOD if path.suffix == ".yaml"]))
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        stop = data.draw(st.integers(start, min(len(text), start + 12)))
        text = text[:start] + data.draw(st.text("{}[]:,&*-\n ~01ano", max_size=4)) + text[stop:]
    topology = try_parse(text.encode())
    if topology is not None:
        VALIDATOR.validate(yaml.safe_load(text))
        assert {edge.source for edge in topology.edges} <= {op.id for op in topology.operators}


# -- joins ------------------------------------------------------------------------------------------------------

JOINED = """
  r: {{source: {{type: text, path: y}}}}
  j:
    from: {inputs}
    join: {{{join}}}
"""
WHOLE = "key: [k], left: s, time: at, within: {after: 10m}"


def join_errors(join: str, inputs: str = "[s, r]") -> list[str]:
    return errors_in(JOINED.format(join=join, inputs=inputs).lstrip("\n"))


def test_a_join_is_read_with_its_defaults_and_written_again() -> None:
    head = "  s: {source: {type: text, path: x}}\n"
    plain = parsed(head + JOINED.format(inputs="[s, r]", join=WHOLE).lstrip("\n"))
    assert plain.operator("j").join == Join("s", ("at", "at"), 0, 600_000_000)
    assert [(edge.partition, edge.key) for edge in plain.edges] == [(Partition.HASH, ("k",))] * 2
    more = "key: [k], left: r, time: {s: at, r: paid}, within: {before: 1s, after: 0s}, how: outer, lateness: 500ms"
    columns = "columns: {s: {k: string, at: timestamp}}"
    whole = parsed(head + JOINED.format(inputs="[s, r]", join=f"{more}, {columns}").lstrip("\n"))
    assert whole.operator("j").join == Join(
        "r", ("paid", "at"), 1_000_000, 0, How.OUTER, 500_000, {"s": {"k": "string", "at": "timestamp"}}
    )
    for topology in (plain, whole):
        assert parse_topology_bytes(job_yaml(topology).encode(), "again.yaml") == topology


def test_a_join_that_does_not_fit_its_inputs_is_told_where() -> None:
    assert join_errors(WHOLE, "s") == ["7:5: operator j: a join has two inputs, not 1"]
    assert join_errors(WHOLE.replace("left: s", "left: x")) == [
        "8:28: operator j: left is 'x', and the inputs are s and r"
    ]
    assert join_errors(WHOLE.replace("time: at", "time: {s: at, x: at}")) == [
        "8:31: operator j: time has 'x', and the inputs are s and r"
    ]
    assert join_errors(f"{WHOLE}, columns: {{x: {{k: string}}}}") == [
        "8:63: operator j: columns has 'x', and the inputs are s and r"
    ]
    assert join_errors(WHOLE.replace("[k]", "[join_side]")) == [
        "8:17: operator j: join_side is a column of its state"
    ]


def test_late_rows_of_a_join_are_two_outputs() -> None:
    head = "  s: {source: {type: text, path: x}}\n"
    text = head + JOINED.format(inputs="[s, r]", join=WHOLE).lstrip("\n")
    late = "  l: {from: {j: {output: late_right}}, sink: {type: jsonl, path: l}}\n"
    assert parsed(text + late).edges[-1].output == "late_right"
    with pytest.raises(BadFile, match="input j has no output late"):
        parsed(text + late.replace("late_right", "late"))
    with pytest.raises(BadFile, match="has no windows, for which rows could be late"):
        parsed(text + "  l: {from: {s: {output: late_left}}, sink: {type: jsonl, path: l}}\n")


def test_a_table_beside_the_stream_is_read_and_written_again() -> None:
    head = "  s: {source: {type: text, path: x}}\n"
    topology = parsed(head + "  t: {from: s, lookup: {path: u.csv, key: [k], how: left, columns: [n]}}\n")
    assert topology.operator("t").lookup == Lookup("u.csv", ("k",), LookupHow.LEFT, ("n",))
    assert parse_topology_bytes(job_yaml(topology).encode(), "again.yaml") == topology
    assert errors_in("  t: {from: s, lookup: {path: u.txt, key: [k]}}\n") == [
        "5:31: operator t: lookup: path must end in .parquet or .csv, not 'u.txt'"
    ]


def test_a_table_beside_the_stream_that_a_database_has() -> None:
    head = "  s: {source: {type: text, path: x}}\n"
    topology = parsed(head + "  t: {from: s, lookup: {query: 'select 1 k', url_env: U, service: d, key: [k]}}\n")
    expected = Lookup("", ("k",), query="select 1 k", url_env="U", service="d")
    assert topology.operator("t").lookup == expected
    assert parse_topology_bytes(job_yaml(topology).encode(), "again.yaml") == topology
    assert errors_in("  t: {from: s, lookup: {table: u, path: u.csv, key: [k]}}\n") == [
        "5:24: operator t: lookup has path and table"
    ]
    assert errors_in("  t: {from: s, lookup: {key: [k]}}\n") == [
        "5:24: operator t: lookup does not say where its table is"
    ]
    assert errors_in("  t: {from: s, lookup: {path: u.csv, url_env: U, key: [k]}}\n") == [
        "5:38: operator t: lookup: url_env is of a database, and its table is a file"
    ]
