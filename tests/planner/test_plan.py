"""Plans made from a topology and the facts of an epoch; every one is valid by the published schema."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import jsonschema
import msgspec
import pytest
from msgspec.structs import replace

from abscli.planner.named import tasks_named
from abscli.planner.plan import plan_full, plan_partial
from formats.errors import NoRecovery, UnknownTask
from formats.ids import ChannelId, TaskId
from formats.job.model import Edge, Kind, Operator, Partition, Topology, canonical
from formats.native.plan import Cost, NativePlan, RepeatRow, ReplayLog, Rewind
from formats.plan import Plan, Skipped, decode, encode
from formats.view import (
    ChannelFacts,
    ChannelTable,
    EpochDetail,
    EpochFacts,
    FileFacts,
    OperatorFacts,
    Position,
    Status,
    TaskFacts,
)

SCHEMA = json.loads((Path(__file__).parents[2] / "formats" / "schemas" / "abs.plan.json").read_bytes())
CREATED = "2026-01-02T03:04:05Z"

WORDS = Topology(
    "wordcount",
    (
        Operator("lines", Kind.SOURCE, 2, 128, connector={"type": "text", "path": "*.txt"}),
        Operator("counts", Kind.REDUCE, 2, 128, key=("line",)),
        Operator("out", Kind.SINK, 1, 128),
    ),
    (Edge("lines", "counts", Partition.HASH, ("line",)), Edge("counts", "out", Partition.REBALANCE)),
)


def valid(body: NativePlan) -> NativePlan:
    plan = Plan(system="abs", created=CREATED, store="/s" if body.epoch is not None else None, body=body, relies_on=())
    data = encode(plan)
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(data))
    assert decode(data, "plan.json", lambda system: NativePlan) == plan
    return body


def task(name: str, *positions: Position, size: int | None = 10, logged: int | None = 0) -> TaskFacts:
    files = (FileFacts(f"state/{name}.parquet", size, 1, "0" * 64),)
    return TaskFacts(TaskId.parse(name), files, logged, positions, None, None, None)


def epoch(
    number: int = 7,
    *tasks: TaskFacts,
    status: Status = Status.COMPLETE,
    channels: tuple[ChannelFacts, ...] = (),
    size: int | None = 20,
) -> EpochDetail:
    operators = tuple(
        OperatorFacts(op.id, None, op.parallelism, size, None, tuple(t for t in tasks if t.task.operator == op.id))
        for op in WORDS.operators
    )
    facts = EpochFacts(number, status, number - 1, 1, 5, 5, (), 60, None, None)
    return EpochDetail(facts, operators, ChannelTable(channels))


def at(split: str, offset: int, records: int | None) -> Position:
    return Position(split, offset, records)


SEVEN = epoch(
    7,
    task("lines/0", at("b.txt", 200, 20), at("a.txt", 100, 10)),
    task("lines/1", at("c.txt", 300, 30)),
    task("counts/0"),
    task("counts/1", size=13),
    task("out/0"),
    channels=(
        ChannelFacts(ChannelId.parse("lines/0->counts/0"), 9, 9, 0),
        ChannelFacts(ChannelId.parse("lines/0->counts/1"), 9, 6, 3),
        ChannelFacts(ChannelId.parse("counts/0->out/0"), 9, 7, 2),
    ),
)
EIGHT = epoch(
    8,
    task("lines/0", at("a.txt", 150, 15), at("b.txt", 200, 20)),
    task("lines/1", at("d.txt", 40, 4), at("c.txt", 390, 39)),
    status=Status.INCOMPLETE,
)


def full(detail: EpochDetail = SEVEN, later: EpochDetail | None = None) -> NativePlan:
    return valid(
        plan_full(
            WORDS, detail, topology_sha256="a" * 64,
            skipped=[(8, "incomplete")], later=later,
        )
    )


def partial(failed: list[str], detail: EpochDetail | None = None, later: EpochDetail | None = None) -> NativePlan:
    return valid(plan_partial(WORDS, tasks_named(WORDS, failed), detail=detail, later=later))


def test_a_full_plan_restarts_every_task_from_the_epoch() -> None:
    plan = full()
    assert [(row.operator, row.subtasks) for row in plan.restart] == [("lines", "0-1"), ("counts", "0-1"), ("out", "0")]
    assert {row.reason for row in plan.restart} == {"the job is down: all tasks roll back to epoch 7"}
    assert (plan.kind, plan.epoch, plan.base_epoch, plan.untouched) == ("recover", 7, 7, 0)
    assert plan.skipped == (Skipped(8, "incomplete"),)
    assert plan.dedup == ()


def test_logs_that_hold_records_are_replayed() -> None:
    assert full().replay_logs == (ReplayLog("lines/0->counts/1", 3), ReplayLog("counts/0->out/0", 2))


def test_what_an_at_least_once_epoch_holds_and_comes_again_is_named_where_it_restarts() -> None:
    channels = (
        ChannelFacts(ChannelId.parse("lines/0->counts/0"), 9, 12, 0),
        ChannelFacts(ChannelId.parse("lines/0->counts/1"), 9, 9, 0),
        ChannelFacts(ChannelId.parse("counts/0->out/0"), 9, 10, 0),
    )
    weak = msgspec.structs.replace(SEVEN, channels=ChannelTable(channels), policy="at-least-once")
    early = (RepeatRow("lines/0->counts/0", 3), RepeatRow("counts/0->out/0", 1))
    assert full(weak).repeats == early
    assert partial(["lines/0"], weak).repeats == ()  # the receivers go on and drop by number
    assert partial(["out/0"], weak).repeats == early
    assert full(msgspec.structs.replace(weak, policy="aligned")).repeats == ()
    assert full().repeats is None  # its policy is not known
    assert partial(["out/0"]).repeats is None


def test_sources_go_back_to_the_epoch_from_where_they_are_known_to_have_come() -> None:
    assert full().rewind == (
        Rewind("lines/0", "a.txt", None, 100),
        Rewind("lines/0", "b.txt", None, 200),
        Rewind("lines/1", "c.txt", None, 300),
    )
    assert full(later=EIGHT).rewind == (
        Rewind("lines/0", "a.txt", 150, 100),
        Rewind("lines/0", "b.txt", 200, 200),
        Rewind("lines/1", "c.txt", 390, 300),
        Rewind("lines/1", "d.txt", 40, None),
    )


def test_the_cost_of_a_full_plan_is_all_state_all_logs_and_what_sources_had_read_since() -> None:
    assert full().cost == Cost(60, 5, None)
    assert full(later=EIGHT).cost == Cost(60, 5, 5 + 9 + 4)


def test_progress_is_unknown_when_a_source_did_not_ack_the_later_epoch() -> None:
    later = epoch(8, task("lines/0", at("a.txt", 150, 15), at("b.txt", 200, 20)), status=Status.INCOMPLETE)
    plan = full(later=later)
    assert plan.cost.source_records is None
    assert plan.rewind[-1] == Rewind("lines/1", "c.txt", None, 300)


def test_a_position_below_the_epoch_is_not_how_far_the_job_had_come() -> None:
    later = epoch(
        8, task("lines/0", at("a.txt", 50, 5), at("b.txt", 200, 20)), task("lines/1", at("c.txt", 300, 30)),
        status=Status.ABORTED,
    )
    assert full(later=later).rewind[0] == Rewind("lines/0", "a.txt", None, 100)
    assert full(later=later).cost.source_records is None


def test_progress_is_unknown_where_a_later_position_counts_no_records() -> None:
    later = epoch(
        8, task("lines/0", at("a.txt", 150, None), at("b.txt", 200, 20)), task("lines/1", at("c.txt", 300, 30))
    )
    assert full(later=later).cost.source_records is None


def test_unknown_facts_stay_unknown() -> None:
    names = ("lines/0", "lines/1", "counts/0", "counts/1", "out/0")
    detail = epoch(7, *(task(name, logged=None) for name in names), size=None)
    assert full(detail).cost == Cost(None, None, None)
    unlisted = epoch(7, channels=(ChannelFacts(ChannelId.parse("lines/0->counts/0"), None, None, None),))
    assert full(unlisted).cost.log_records is None
    assert full(unlisted).replay_logs == ()


def test_epoch_0_is_the_beginning_of_every_source() -> None:
    empty = EpochDetail(EpochFacts(0, Status.COMPLETE, None, None, 5, 5, (), 0, None, None), (), ChannelTable())
    plan = full(empty, later=EIGHT)
    assert plan.cost == Cost(0, 0, 15 + 20 + 4 + 39)
    assert Rewind("lines/0", "a.txt", 150, None) in plan.rewind


@pytest.mark.parametrize("status", [s for s in Status if s is not Status.COMPLETE])
def test_no_plan_goes_back_to_an_epoch_that_is_not_complete(status: Status) -> None:
    with pytest.raises(NoRecovery, match=f"epoch 7 is {status}"):
        full(epoch(7, status=status))
    with pytest.raises(NoRecovery, match=f"epoch 7 is {status}"):
        partial(["out/0"], epoch(7, status=status))
    given_up = replace(SEVEN, facts=replace(SEVEN.facts, status=status, reason="timed out"))
    with pytest.raises(NoRecovery, match=f"epoch 7 is {status}: timed out; tasks can only"):
        full(given_up)


def test_a_plan_from_the_graph_alone_knows_no_store_and_no_costs() -> None:
    plan = partial(["counts/1"])
    assert (plan.kind, plan.epoch, plan.base_epoch) == ("partial", None, None)
    assert plan.cost == Cost(None, None, None)
    assert plan.topology_sha256 == hashlib.sha256(canonical(WORDS)).hexdigest()
    assert {row.operator for row in plan.restart} == {"lines", "counts", "out"}
    assert plan.untouched == 0


def test_a_partial_plan_counts_what_restarts_and_nothing_else() -> None:
    replayable = Topology(
        WORDS.job, WORDS.operators,
        (Edge("lines", "counts", Partition.HASH, ("line",), replayable=True), WORDS.edges[1]),
    )
    plan = valid(
        plan_partial(replayable, [TaskId("out", 0), TaskId("counts", 1)], detail=SEVEN, later=EIGHT)
    )
    assert [(row.operator, row.subtasks) for row in plan.restart] == [("counts", "0"), ("counts", "1"), ("out", "0")]
    assert plan.untouched == 2
    assert plan.rewind == ()
    assert plan.cost == Cost(40, 5, 0)
    assert plan.failed == ("counts/1", "out/0")


def test_the_state_of_some_of_an_operators_tasks_is_that_of_their_files() -> None:
    chain = Topology("wordcount", WORDS.operators[:1], ())
    plan = valid(plan_partial(chain, [TaskId("lines", 1), TaskId("lines", 1)], detail=SEVEN, later=EIGHT))
    assert plan.failed == ("lines/1",)
    assert plan.cost == Cost(10, 0, 13)
    assert {row.task for row in plan.rewind} == {"lines/1"}


@pytest.mark.parametrize(
    ("failed", "said"),
    [
        (["count/0"], "there is no task 'count/0': no operator is called 'count'; did you mean counts"),
        (["counts/2"], "there is no task 'counts/2'; counts has counts/0 to counts/1"),
        (["out/1"], "there is no task 'out/1'; out has out/0"),
        (["counts"], "'counts' is an operator, not a task; its tasks are counts/0 to counts/1"),
        (["counts/01"], "there is no task 'counts/01'; counts has"),
        (["counts/-1"], "there is no task 'counts/-1'; counts has"),
        (["zzz/0"], "no operator is called 'zzz'; the operators are lines, counts, out"),
        ([""], "there is no task ''"),
        ([], "no failed task is named"),
        (["out/3", "counts/0", "x"], "'out/3'; out has out/0; there is no task 'x'"),
    ],
)
def test_unknown_tasks_are_named_with_the_nearest_there_are(failed: list[str], said: str) -> None:
    with pytest.raises(UnknownTask) as error:
        partial(failed)
    assert said in str(error.value)
