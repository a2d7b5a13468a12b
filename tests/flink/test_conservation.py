"""What unaligned checkpoints of Flink prove of their cut: emitted = counted + in flight, where that can be known."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abscli.cli.main import main
from abscli.report.findings import Code
from abscli.stores.flink.conservation import conserved
from formats.errors import Damaged
from formats.flink.channels import buffers
from formats.flink.ids import Edge
from formats.flink.in_flight import SourceProgress, Tally, tallies
from formats.flink.metadata.file import encode, parse
from formats.flink.metadata.handles import ChannelPart, Metadata
from formats.flink.store import FlinkStore
from formats.values import plain
from tests.support.flink.truth import DATA
from tests.support.schemas import checked

UNALIGNED = next((DATA / "unaligned").iterdir())
NAMES = {"s": "numbers", "c": "counter", "d": "slow"}


def cut(epoch: int, position: int, counted: int, in_flight: int, starts: tuple[int, ...] = ()) -> Tally:
    """A source that has read so far, and a counter behind it; a state `last` beside the count says nothing."""
    sums = {"c": {"seen\0n": counted, "last": 7 * epoch}}
    return Tally(epoch, True, {"s": SourceProgress({"1": position}, starts)}, {Edge("s", "c"): in_flight}, sums, False)


def test_positions_and_counts_of_a_real_checkpoint_add_up_to_the_record() -> None:
    store = FlinkStore(str(UNALIGNED))
    (tally,) = tallies(store, [2]).values()
    found = conserved(tally, (), store.names(store.metadata(2)))
    assert found.holds == (
        "numbers emitted 7322, counter counted 3406 (count-and-sum.f0), 3916 in flight",
        "counter (count-and-sum.f0) emitted 3406, slow counted 357 (count-and-sum.f0), 3049 in flight",
    )
    assert (found.findings, found.why) == ((), None)


def test_validate_says_which_laws_hold_and_does_not_call_them_unchecked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(UNALIGNED), "-o", "json"]) == 0
    (epoch,) = checked(capsys.readouterr().out)["epochs"]
    assert "conservation" not in epoch["unchecked"]
    assert main(["validate", str(UNALIGNED)]) == 0
    assert "3916 in flight" in " ".join(capsys.readouterr().out.split())


def _without_outputs(metadata: Metadata, operator: str) -> Metadata:
    """As if the records in an operator's output buffers had not been kept."""
    operators = []
    for one in metadata.operators:
        bare = [msgspec.structs.replace(subtask, output_channels=()) for subtask in one.subtasks]
        operators.append(msgspec.structs.replace(one, subtasks=tuple(bare)) if one.uid == operator else one)
    return msgspec.structs.replace(metadata, operators=tuple(operators))


def test_records_that_are_missing_are_never_said_to_be_conserved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(UNALIGNED, tmp_path / UNALIGNED.name)
    file = tmp_path / UNALIGNED.name / "chk-2" / "_metadata"
    file.write_bytes(encode(_without_outputs(parse(file.read_bytes(), ""), "numbers")))
    main(["validate", str(file.parent.parent), "-o", "json"])
    (epoch,) = checked(capsys.readouterr().out)["epochs"]
    assert "conservation" in epoch["unchecked"]


def test_a_law_that_two_checkpoints_keep_is_told_where_a_third_breaks_it() -> None:
    others = [cut(1, 5_100, 40, 60), cut(3, 9_000, 2_000, 2_000)]
    found = conserved(cut(2, 7_000, 1_000, 995), others, NAMES)
    (finding,) = found.findings
    assert finding.code is Code.CONSERVATION
    assert plain(finding)["channel"] == str(finding.channel) == "numbers->counter"
    assert finding.message == (
        "5 are missing, by a law that checkpoints 1 and 3 keep:"
        " numbers emitted 2000, counter counted 1000 (seen.n), 995 in flight"
    )
    assert "7 too many" in conserved(cut(2, 7_000, 1_000, 1_007), others, NAMES).findings[0].message


def test_one_other_checkpoint_that_agrees_with_other_numbers_is_enough_to_hold() -> None:
    found = conserved(cut(2, 7_000, 1_000, 1_000), [cut(1, 5_100, 40, 60)], NAMES)
    assert found.holds == ("numbers emitted 2000, counter counted 1000 (seen.n), 1000 in flight",)


def test_checkpoints_of_a_job_that_stood_still_prove_nothing_to_each_other() -> None:
    found = conserved(cut(2, 7_000, 1_000, 1_000), [cut(1, 7_000, 1_000, 1_000), cut(3, 7_001, 1_001, 1_000)], NAMES)
    assert (found.holds, found.findings) == ((), ())
    assert found.why == "numbers->counter: no number in state goes with the records that were sent and are in flight"


def test_one_checkpoint_holds_where_it_is_known_what_the_splits_began_at() -> None:
    assert conserved(cut(2, 7_000, 1_000, 1_000, (5_000, 4_999)), [], NAMES).holds
    assert not conserved(cut(2, 7_000, 1_000, 1_001, (5_000, 5_001)), [], NAMES).holds


def test_state_that_is_too_much_to_be_summed_is_named() -> None:
    tally = msgspec.structs.replace(cut(2, 7_000, 1_000, 1_000), sums={}, skipped=("c",))
    why = conserved(tally, [], NAMES).why or ""
    assert why.endswith("the state of counter is more than 16 MiB and was not summed")


def test_a_first_checkpoint_with_a_handful_of_records_is_left_open() -> None:
    assert conserved(cut(1, 5_010, 4, 6, (5_000,)), [], NAMES).why is not None


def test_two_sources_and_an_operator_without_state_are_one_equation() -> None:
    sources = {"s": SourceProgress({"1": 900}, (100,)), "t": SourceProgress({"1": 5_500}, (5_000, 5_001))}
    flying = {Edge("s", "m"): 30, Edge("t", "m"): 10, Edge("m", "c"): 60}
    tally = Tally(2, True, sources, flying, {"m": {}, "c": {"seen\0": 1_200}}, False)
    found = conserved(tally, [], {"s": "one", "t": "two", "m": "mapped", "c": "counter"})
    assert found.holds == ("one and two emitted 1300, counter counted 1200 (seen), 100 in flight",)
    assert found.why is None
    less = msgspec.structs.replace(tally, in_flight={**flying, ("t", "m"): 3})
    assert conserved(less, [], {}).holds == ()


def test_a_loop_of_operators_without_numbers_is_left_open() -> None:
    tally = Tally(2, True, {}, {("m", "n"): 1, ("n", "m"): 1, ("m", "c"): 20}, {"c": {"seen\0": 20}}, False)
    assert conserved(tally, [], {}).holds == ()


def test_many_ways_through_operators_without_numbers_are_not_walked_one_by_one() -> None:
    edges = {(f"{i}{a}", f"{i + 1}{b}"): 1 for i in range(5000) for a in "xy" for b in "xy"}
    tally = Tally(2, True, {}, edges, {"5000x": {"seen\0": 50}}, False)
    assert conserved(tally, [], {}).holds == ()


def test_without_records_in_flight_there_is_nothing_to_check() -> None:
    found = conserved(Tally(1, True, {}, {}, {}, False), [], NAMES)
    assert found == ((), (), "no records are in flight")


counts = st.integers(0, 1 << 40)


@given(st.lists(st.tuples(counts, counts), min_size=1, max_size=4), st.integers(0, 1 << 40))
def test_cuts_that_conserve_are_never_told_to_break_a_law(cuts: list[tuple[int, int]], start: int) -> None:
    made = [cut(i, start + counted + flying, counted, flying) for i, (counted, flying) in enumerate(cuts)]
    for one in made:
        assert conserved(one, [other for other in made if other is not one], NAMES).findings == ()


def test_the_verdict_stays_what_the_bytes_say(tmp_path: Path) -> None:
    from abscli.stores.flink.verdict import check_epoch
    from formats.flink.checks import stream_checks
    from formats.flink.evidence import gather

    store = FlinkStore(str(UNALIGNED))
    found = tallies(store, [2])
    (mine,) = found.values()
    (edge,) = [edge for edge in mine.in_flight if edge[0] in mine.sources]
    shifted = {
        n: msgspec.structs.replace(mine, epoch=n, in_flight={**mine.in_flight, edge: mine.in_flight[edge] + extra})
        for n, extra in ((2, -3), (3, 0), (4, 0))
    }
    report, _, _ = check_epoch(gather(store, 2, checks=stream_checks()), shifted)
    assert [finding.code for finding in report.findings] == [Code.CONSERVATION]
    assert report.whole, "a law that was learned is no proof"


def test_a_stream_of_one_channel_may_count_its_version_too() -> None:
    """As handles within `_metadata` have it."""
    stream = bytes(4) + (9).to_bytes(4, "big") + (5).to_bytes(4, "big") + b"\1abcd"
    assert buffers(stream, ChannelPart(0, 0, len(stream), (4,)), "x") == stream[8:]
    assert buffers(stream, ChannelPart(0, 0, len(stream) - 4, (4,)), "x") == stream[8:]
    for size in (len(stream) - 5, len(stream) + 1):
        with pytest.raises(Damaged):
            buffers(stream, ChannelPart(0, 0, size, (4,)), "x")


@pytest.mark.parametrize(("gate", "channel"), [(-1, 0), (0, -(2**31))])
def test_a_channel_with_a_number_below_zero_is_damage_and_no_task(gate: int, channel: int) -> None:
    with pytest.raises(Damaged, match=f"channel {channel} of gate or partition {gate}"):
        buffers(bytes(4), ChannelPart(gate, channel, 0, ()), "x")
