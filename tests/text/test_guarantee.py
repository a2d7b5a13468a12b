"""What holds from end to end, as people and programs see it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from abscli.graph.job_graph import JobGraph
from abscli.planner.guarantee import Guarantee, Link, SinkGuarantee, Times, Weakness, guarantee_of
from abscli.protocol.policy import Policy
from abscli.text.guarantee import CHANGE, MEANS, guarantee_items, guarantee_json, guarantee_line, guarantee_text
from formats.job.file import parse_topology
from formats.job.promises import Promise
from tests.support.schemas import checked

DATA = Path(__file__).parents[1] / "data" / "topologies"
JOBS = {"weak": "guarantees/weak.yaml", "topics": "guarantees/topics.yaml",
        "wordcount": "good/wordcount.yaml", "imports": "good/imports.yaml"}  # fmt: skip


def loaded(name: str, policy: Policy) -> Guarantee:
    return guarantee_of(JobGraph.of(parse_topology(DATA / JOBS[name])), policy)


@pytest.mark.parametrize("policy", [Policy.ALIGNED, Policy.AT_LEAST_ONCE])
@pytest.mark.parametrize("name", JOBS)
def test_it_is_its_golden_text_in_80_columns(name: str, policy: Policy, request: pytest.FixtureRequest) -> None:
    guarantee = loaded(name, policy)
    text = guarantee_text(guarantee, width=80) + "\n" + guarantee_line(guarantee) + "\n"
    golden = DATA / "guarantees" / f"{name}.{policy}.txt"
    if request.config.getoption("--rewrite"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")
    assert all(len(line) <= 80 for line in guarantee_text(guarantee, width=80).splitlines())


@pytest.mark.parametrize("policy", Policy)
@pytest.mark.parametrize("name", JOBS)
def test_json_fits_its_schema_and_ndjson_is_the_same(name: str, policy: Policy) -> None:
    value = checked(json.dumps(guarantee_json(loaded(name, policy))))
    header, sinks = guarantee_items(loaded(name, policy))
    lines = [json.loads(json.dumps(sink)) for sink in sinks]
    header = checked(json.dumps(header))
    assert {line.pop("type") for line in lines} == {"sink"}
    assert header | {"sinks": lines} == value


def test_every_weakness_has_its_meaning_and_its_change() -> None:
    assert set(MEANS) == set(CHANGE) == set(Weakness)


def test_state_and_output_are_said_apart_where_they_differ() -> None:
    links = (Link(Weakness.SINK_REPEATS, ("out",)),)
    once, twice = Times.EXACTLY_ONCE, Times.AT_LEAST_ONCE
    sink = SinkGuarantee("out", ("in",), Promise.AT_LEAST_ONCE, once, twice, links)
    guarantee = Guarantee("job", Policy.ALIGNED, once, twice, (sink,), links)
    holds = "guarantee: state exactly-once, output at-least-once, policy aligned (out: no transaction;"
    assert guarantee_line(guarantee).startswith(holds)
    checked(json.dumps(guarantee_json(guarantee)))
    assert "exactly-once  at-least-once" in guarantee_text(guarantee, width=120)


def test_a_job_without_a_sink_says_so() -> None:
    guarantee = replace(loaded("wordcount", Policy.ALIGNED), sinks=(), output=None)
    assert "There is no sink" in guarantee_text(guarantee)
    assert guarantee_line(guarantee) == "guarantee: state exactly-once, no sink, policy aligned"
    assert checked(json.dumps(guarantee_json(guarantee)))["output"] is None
