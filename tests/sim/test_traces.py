"""Traces are held against the machines: what really happened agrees, and whatever is changed in it does not."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from abscli.protocol.events import Acked, TasksLost
from abscli.protocol.policy import Policy
from abscli.protocol.trace import Plain, parsed, plain
from abscli.sim.campaign import Failures, mixture
from abscli.sim.model import Model
from abscli.sim.situations import Situation
from abscli.sim.traces import Campaign, check_trace
from abscli.text import traces
from formats.errors import FormatError, UnsupportedVersion
from formats.ids import ChannelId, TaskId
from tests.support.schemas import checked as fits_schema
from tests.support.sim.jobs import CHAIN, PEERS, SHAPES, TWO_TASK_LOOP
from tests.support.sim.traces import encoded, head, renumbered, simulated

SCHEMA = jsonschema.Draft202012Validator(
    json.loads((Path(__file__).parents[2] / "formats" / "schemas" / "abs.trace.json").read_bytes())
)


@pytest.mark.sample(12)
@pytest.mark.parametrize("policy", list(Policy))
@pytest.mark.parametrize("shape", SHAPES)
def test_a_trace_of_a_simulated_run_agrees(shape: str, policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model.of(SHAPES[shape])
    for seed in range(10):
        lines = simulated(model, policy, mixture(seed, Failures.PARTIAL), seed, monkeypatch)
        checked = check_trace(encoded(lines))
        assert checked.first is None, (seed, checked.first, lines[checked.first.number - 1])
        assert checked.steps == sum("event" in line for line in lines)
        assert checked.machines == sum("created" in line for line in lines)
    for line in lines:
        SCHEMA.validate(line)


@pytest.fixture(scope="module", params=[(PEERS, Policy.ALIGNED), (TWO_TASK_LOOP, Policy.UNALIGNED)], ids=["1", "2"])
def lines(request: pytest.FixtureRequest) -> Iterator[list[Plain]]:
    """A run with losses and several epochs."""
    with pytest.MonkeyPatch.context() as patch:
        model, policy = Model.of(request.param[0]), request.param[1]
        yield simulated(model, policy, mixture(5, Failures.PARTIAL), 5, patch)


def first(lines: list[Plain]) -> int | None:
    """The number of the first line that disagrees."""
    disagreement = check_trace(encoded(lines)).first
    return None if disagreement is None else disagreement.number


def next_of(lines: list[Plain], i: int) -> int | None:
    """The next line of the same machine."""
    return next((j for j in range(i + 1, len(lines)) if lines[j]["instance"] == lines[i]["instance"]), None)


@pytest.mark.integration
def test_a_line_that_is_left_out_is_missed(lines: list[Plain]) -> None:
    for i in range(1, len(lines)):
        if (after := next_of(lines, i)) is not None:
            assert first(lines[:i] + lines[i + 1 :]) is not None, lines[i]
            assert "final_counts" in lines[i] or after > i


def test_two_lines_that_are_exchanged_are_noticed(lines: list[Plain]) -> None:
    for i in range(1, len(lines)):
        if (j := next_of(lines, i)) is not None:
            changed = list(lines)
            changed[i], changed[j] = changed[j], changed[i]
            assert first(changed) is not None, (lines[i], lines[j])


def others(value: Any) -> list[Any]:
    """Something else of the same kind."""
    match value:
        case bool():
            return [not value]
        case int():
            return [value + 1]
        case str():
            return ["other"]
        case list():
            return [[*value, value[0]]] if value else []
        case dict():
            return [{**value, key: other} for key in value for other in others(value[key])]
    return []


@pytest.mark.integration
def test_an_action_that_is_changed_is_noticed_at_its_line(lines: list[Plain]) -> None:
    for i, line in enumerate(lines):
        for k, (name, given) in enumerate(line.get("actions", ())):
            answers = [line["actions"][:k] + line["actions"][k + 1 :]]
            answers += [[*line["actions"][:k], [name, other], *line["actions"][k + 1 :]] for other in others(given)]
            for actions in answers:
                assert first([*lines[:i], {**line, "actions": actions}, *lines[i + 1 :]]) == i + 1


def test_what_was_sent_lost_or_begun_is_missed_also_where_lines_are_numbered_anew(lines: list[Plain]) -> None:
    """Other lines may be missing without a contradiction: what would have been ignored, what came last."""
    for i, line in enumerate(lines):
        if line.get("event", ("",))[0] in ("Sent", "TriggerDue", "TasksLost", "ChannelCaughtUp"):
            assert first(renumbered(lines[:i] + lines[i + 1 :])) is not None, line


def test_a_barrier_with_another_watermark_than_it_was_sent_with_is_noticed(lines: list[Plain]) -> None:
    barriers = 0
    for i, line in enumerate(lines):
        name, given = line.get("event", ("", {}))
        if name == "BarrierArrived" and "watermark" in given:
            changed = {**line, "event": [name, {**given, "watermark": given["watermark"] - 1}]}
            assert first([*lines[:i], changed, *lines[i + 1 :]]) is not None, line
            barriers += 1
    assert barriers


def test_a_barrier_that_overtakes_a_record_is_noticed(lines: list[Plain]) -> None:
    """On one channel, where the receiver's steps alone would do."""
    exchanged = 0
    for i, line in enumerate(lines):
        j = next_of(lines, i) if "event" in line else None
        if j is None or "event" not in lines[j]:
            continue
        (one, a), (other, b) = line["event"], lines[j]["event"]
        if (one, other) == ("RecordsArrived", "BarrierArrived") and a["channel"] == b["channel"]:
            changed = list(lines)
            changed[i], changed[j] = lines[j], lines[i]
            assert first(renumbered(changed)) is not None
            exchanged += 1
    assert exchanged


def test_counters_of_an_ack_are_those_of_the_copy(lines: list[Plain]) -> None:
    counted = 0
    for i, line in enumerate(lines):
        if line.get("event", ("",))[0] == "Acked" and line["actions"]:
            changed = copy.deepcopy(line)
            counts = changed["event"][1]["sent"] or changed["event"][1]["received"]
            counts[next(iter(counts))] += 1
            assert first([*lines[:i], changed, *lines[i + 1 :]]) == i + 1
            counted += 1
    assert counted


def test_a_machine_that_was_killed_leaves_no_last_lines(lines: list[Plain]) -> None:
    """Whatever a lost worker had not sent yet; how it was made, and what it had acked, is there."""
    tasks = {line["instance"] for line in lines if line.get("at") not in (None, "coordinator")}
    rng = random.Random(1)
    for life in tasks:
        own = [i for i, line in enumerate(lines) if line.get("instance") == life]
        acked = max((i for i in own if any(a[0] == "Ack" for a in lines[i].get("actions", ()))), default=own[0])
        cut = rng.choice([i for i in own if i > acked])
        left = check_trace(encoded([line for i, line in enumerate(lines) if i < cut or line.get("instance") != life]))
        assert left.first is None, (left.first, lines[cut])


def test_a_last_line_that_is_cut_is_the_end(lines: list[Plain]) -> None:
    data = encoded(lines)
    checked = check_trace([*data[:-1], data[-1][:-5]])
    assert checked.cut
    assert checked.first is None


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "it has no attempt"),
        ([b"{}\n"], "it begins with no attempt"),
        ([b'{"schema":"abs.trace"}\n'], "is not a trace"),
        ([b"\xff\n"], "is not a trace"),
        ([b'{"schema":"abs.trace","version":"\xff\xee"}\n'], "is not a trace"),
    ],
)
def test_another_file_is_no_trace(data: list[bytes], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        check_trace(data)


def test_a_trace_of_another_format_version_is_refused() -> None:
    with pytest.raises(UnsupportedVersion):
        check_trace(encoded([head(Model.of(CHAIN), Policy.ALIGNED, version="2.1")]))


@pytest.mark.parametrize(
    "line",
    [b"garbage\n", b'{"at":"s/0","instance":"1","sequence":0}\n',
     b'{"at":"s","instance":"1","sequence":0,"created":{}}\n',
     b'{"at":"s/0","instance":"1","sequence":0,"created":{"inputs":3}}\n',
     b'{"at":"coordinator","instance":"c","sequence":0,"created":{"tasks":[]}}\n',
     b"[" * 100_000 + b"\n"],
)  # fmt: skip
def test_a_line_of_garbage_is_the_first_that_disagrees(line: bytes) -> None:
    checked = check_trace([*encoded([head(Model.of(CHAIN), Policy.ALIGNED)]), line])
    assert checked.first is not None
    assert checked.first.number == 2


def test_events_and_actions_come_back_as_they_were() -> None:
    channel = ChannelId(TaskId("a", 0), TaskId("b", 1))
    for value in (
        Acked(TaskId("b", 1), 3, 1, logged=2, sent={channel: 4}),
        TasksLost(frozenset({TaskId("a", 0), TaskId("b", 1)}), frozenset({channel})),
    ):
        assert parsed(json.loads(json.dumps(plain(value)))) == value


def test_a_campaign_counts_what_happened_and_names_what_never_did(lines: list[Plain]) -> None:
    checked = check_trace(encoded(lines))
    campaign = Campaign({"a": checked, "b": checked})
    assert campaign.steps == 2 * checked.steps
    assert campaign.situations[Situation.IDLE] == 2 * checked.situations[Situation.IDLE] == 2
    assert Situation.GENERATION in campaign.absent
    page = traces.text(campaign, 100)
    assert "No line disagrees." in page
    assert f"Never happened: {campaign.absent[0]}" in page
    fits_schema(json.dumps(traces.to_json(campaign)))


@pytest.mark.parametrize(
    "event",
    [
        ["BarrierArrived", {"channel": "a/0->b/0", "epoch": "a/0->b/0"}],
        ["BarrierArrived", {"channel": "a/0->b/0", "epoch": True}],
        ["BarrierArrived", {"channel": 3, "epoch": 3}],
        ["BarrierArrived", {"channel": "a/0->b/0", "epoch": 1, "watermark": []}],
        ["Nothing", {}],
        [[], {}],
        3,
    ],
)
def test_a_value_of_another_type_is_no_event(event: object) -> None:
    with pytest.raises(ValueError, match="is not an event or action"):
        parsed(event)
