"""What a repair runs again and where it has to stop, on small graphs."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abscli.graph.backedges import back_edges
from abscli.planner.repair import cut_of, repair_set, settled_contents
from formats.ids import ChannelId, TaskId
from formats.job.model import Aggregate, Aggregation, Edge, Emit, Kind, Partition, Topology, Ttl
from formats.native.facts import LogFacts, PartFacts, header
from formats.view import Position
from tests.support.jobs.small import FORWARD, HASH, REBALANCE, operator, reach, word_count


def task(name: str) -> TaskId:
    return TaskId.parse(name)


def channel(name: str) -> ChannelId:
    return ChannelId.parse(name)


def part(name: str, **more: object) -> PartFacts:
    facts: dict[str, object] = {
        "epoch": 3, "attempt": 1, "task_name": name, "state": (), "rows": 0, "logs": (), "sent": {}, "received": {},
        "positions": None, "round_robin": {}, "connector": None, "sink": (), "finished": False, "alignment": 0.0,
        "sync": 0.0, "async_": 0.0, "attempt_id": "",
    }  # fmt: skip
    return PartFacts(**{**header(PartFacts), **facts, **more})  # type: ignore[arg-type]


def names(topology: Topology, *missing: str) -> set[str]:
    return set(map(str, repair_set(topology, [task(name) for name in missing]).tasks))


def test_nothing_runs_where_nothing_is_missing() -> None:
    assert names(word_count()) == set()


def test_all_senders_run_and_what_hangs_on_the_order_of_a_shuffle() -> None:
    assert names(word_count(), "counts/0") == {"lines/0", "lines/1", "words/0", "words/1", "counts/0", "out/0"}
    assert names(word_count(), "words/1") == {"lines/1", "words/1"}


def test_a_loop_runs_as_a_whole_with_all_that_is_behind_it() -> None:
    everything = {f"{id}/{i}" for id in ("pairs", "steps", "out") for i in range(2)} | {"edges/0"}
    assert names(reach(), "steps/1") == everything


def test_an_edge_that_a_running_job_could_replay_gives_a_store_nothing() -> None:
    plain = word_count()
    edges = tuple(msgspec.structs.replace(edge, replayable=True) for edge in plain.edges)
    kept = msgspec.structs.replace(plain, edges=edges)
    assert names(kept, "counts/0") == names(plain, "counts/0")


def test_an_unknown_task_is_refused() -> None:
    with pytest.raises(ValueError, match="counts/7"):
        repair_set(word_count(), [task("counts/7")])


def test_a_neighbour_that_stays_says_how_much_was_sent_to_it_with_what_it_had_logged() -> None:
    topology = word_count()
    again = repair_set(topology, [task("words/0")])
    logs = (LogFacts("words/0->counts/1", 2, None),)
    trusted = {
        task("lines/0"): part("lines/0", positions=(Position("in/0.txt", 70, 7),), finished=True),
        task("counts/0"): part("counts/0", received={"words": (11, 12)}),
        task("counts/1"): part("counts/1", received={"words": (21, 22)}, logs=logs),
    }
    cut = cut_of(topology, again, trusted)
    assert cut.sent[channel("words/0->counts/0")] == 11
    assert cut.sent[channel("words/0->counts/1")] == 23
    assert cut.offsets == {task("lines/0"): {"in/0.txt": 70}}
    assert set(cut.ended) == {task("lines/0")}
    assert cut.received == {}


def test_what_a_task_behind_a_shuffle_had_counted_does_not_bind_the_run() -> None:
    topology = word_count()
    again = repair_set(topology, [task("counts/0")])
    trusted = {
        task("words/0"): part("words/0", received={"lines": (5,)}),
        task("counts/0"): part("counts/0", received={"words": (11, 12)}),
        task("out/0"): part("out/0", received={"counts": (9,)}),
    }
    cut = cut_of(topology, again, trusted)
    assert cut.received == {task("words/0"): {channel("lines/0->words/0"): 5}}
    assert cut.sent == {channel("lines/0->words/0"): 5}


@given(st.lists(st.sampled_from([f"{id}/{i}" for id in ("lines", "words", "counts", "out") for i in range(2)])))
def test_a_set_is_closed_and_grows_with_what_is_missing(missing: list[str]) -> None:
    topology = word_count()
    again = names(topology, *missing)
    assert set(missing) <= again
    assert names(topology, *again) == again
    for name in missing:
        assert names(topology, name) <= again


# -- what does not depend on the order of inputs ------------------------------------------------------------------


def settled(topology: Topology) -> frozenset[str]:
    return settled_contents(topology, back_edges(topology))


def test_counts_behind_a_shuffle_are_settled_and_their_changes_an_epoch_as_well() -> None:
    assert settled(word_count()) == {"lines", "words", "counts", "out"}


def test_running_values_are_not_and_the_state_that_they_end_in_is() -> None:
    assert settled(word_count(emit="record")) == {"lines", "words", "counts"}


@pytest.mark.parametrize("function", Aggregation)
def test_values_that_depend_on_the_order_of_rows_are_settled_where_there_is_one_order(function: Aggregation) -> None:
    limit = 3 if function in (Aggregation.TOP_N, Aggregation.COLLECT) else None
    one = Aggregate("o", function, "*" if function is Aggregation.COUNT else "word", limit=limit)

    def job(parallelism: int) -> Topology:
        topology = word_count(parallelism)
        operators = [
            msgspec.structs.replace(op, aggregates=(one,), emit=Emit.CHANGE) if op.id == "counts" else op
            for op in topology.operators
        ]
        return msgspec.structs.replace(topology, operators=tuple(operators))

    everything = {"lines", "words", "counts", "out"}
    in_order = function in {Aggregation.FIRST, Aggregation.LAST, Aggregation.COLLECT}
    assert settled(job(2)) == ({"lines", "words"} if in_order else everything)
    assert settled(job(1)) == everything


@pytest.mark.parametrize(("time", "forgets"), [("at", True), ("word", False)])
def test_counts_of_keys_that_are_forgotten_are_settled_where_there_is_one_order(time: str, forgets: bool) -> None:
    """When a row finds its key forgotten hangs on which came before; where the time is of the key no row does."""

    def job(parallelism: int) -> Topology:
        operators = [
            msgspec.structs.replace(op, ttl=Ttl(time, 10)) if op.id == "counts" else op
            for op in word_count(parallelism).operators
        ]
        return msgspec.structs.replace(word_count(parallelism), operators=tuple(operators))

    everything = {"lines", "words", "counts", "out"}
    assert settled(job(2)) == ({"lines", "words"} if forgets else everything)
    assert settled(job(1)) == everything


def test_rows_that_a_reduce_leaves_out_are_settled_where_there_is_one_order() -> None:
    """With which row a sum overflows hangs on the order of rows."""

    def job(parallelism: int) -> Topology:
        topology = word_count(parallelism)
        operators = [
            msgspec.structs.replace(op, on_error="skip") if op.kind in (Kind.REDUCE, Kind.FLAT_MAP) else op
            for op in topology.operators
        ]
        return msgspec.structs.replace(topology, operators=tuple(operators))

    assert settled(job(2)) == {"lines", "words"}
    assert settled(job(1)) == {"lines", "words", "counts", "out"}


def test_a_loop_may_be_cut_after_any_of_its_rounds() -> None:
    assert settled(reach()) == {"edges"}


def test_a_mark_against_determinism_spreads() -> None:
    topology = word_count()
    marked = tuple(
        msgspec.structs.replace(op, deterministic=False) if op.id == "words" else op for op in topology.operators
    )
    assert settled(msgspec.structs.replace(topology, operators=marked)) == {"lines"}


def test_rows_that_are_dealt_out_in_an_order_that_may_differ_are_not_settled() -> None:
    topology = Topology(
        "dealt",
        (
            operator("lines", Kind.SOURCE, 2, connector={"type": "text", "path": "in/*.txt"}),
            operator("mixed", Kind.UNION, 2),
            operator("dealt", Kind.UNION, 2),
        ),
        (Edge("lines", "mixed", HASH, ("line",)), Edge("mixed", "dealt", REBALANCE)),
    )
    assert settled(topology) == {"lines", "mixed"}
    ordered = msgspec.structs.replace(topology, edges=(Edge("lines", "mixed", FORWARD), topology.edges[1]))
    assert settled(ordered) == {"lines", "mixed", "dealt"}
    assert Partition.REBALANCE is REBALANCE
