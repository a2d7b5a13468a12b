"""The checks on an epoch, each against evidence in which exactly one thing is wrong."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from abscli.planner.repeats import may_repeat
from abscli.report.demands import unmet
from abscli.report.findings import Code, EpochReport, Finding, StoreReport
from abscli.stores.native.checks.conservation import check_conservation
from abscli.stores.native.checks.positions import check_positions, cut_of
from abscli.stores.native.store_verdict import check_store
from abscli.stores.native.verdict import check_epoch, cut_in
from formats.ids import ChannelId, TaskId
from formats.native import layout
from formats.native.counters import Channels, by_operator
from formats.native.evidence import EpochEvidence, StoreEvidence, epoch_evidence, store_evidence
from formats.native.facts import LogFacts, PartFacts, ScheduleFacts
from formats.native.probe import CHUNK, FileProbe, Prober
from formats.native.state.tables import KEY_GROUP, encode_state
from formats.native.store import NativeStore
from formats.storage import MemoryStorage
from formats.view import ChannelFacts, FileFacts, Position, Repeat, Status
from tests.support.stores.small import FIRST, Build, make_store

SEEN, OUT = "seen/0", "out/0"


@pytest.fixture(scope="module")
def build() -> Build:
    return make_store(MemoryStorage())


def evidence(build: Build, epoch: int, *, quick: bool = False) -> EpochEvidence:
    found = epoch_evidence(NativeStore(build.storage), epoch, Prober(build.storage, quick=quick))
    assert found is not None
    return found


@pytest.fixture
def whole(build: Build) -> EpochEvidence:
    return evidence(build, 4)


def with_part(given: EpochEvidence, task: str, change: Callable[[PartFacts], PartFacts]) -> EpochEvidence:
    assert given.parts is not None
    return replace(given, parts=tuple(change(part) if part.task_name == task else part for part in given.parts))


def with_probe(given: EpochEvidence, path: str, **change: object) -> EpochEvidence:
    return replace(given, probes={**given.probes, path: replace(given.probes[path], **change)})


def codes(given: EpochEvidence) -> list[tuple[str, str | None]]:
    return [(finding.code.value, finding.task and str(finding.task)) for finding in check_epoch(given).findings]


# -- one epoch ------------------------------------------------------------------------------------------------


def test_an_untouched_epoch_is_complete_without_findings(build: Build, whole: EpochEvidence) -> None:
    report = check_epoch(whole, cut_in(evidence(build, 2)))
    assert (report.verdict, report.findings, report.unchecked) == (Status.COMPLETE, (), (Code.UNREFERENCED_FILE,))


def test_an_incomplete_epoch_has_a_finding_for_each_task_that_did_not_ack(build: Build) -> None:
    report = check_epoch(evidence(build, 5))
    assert report.verdict is Status.INCOMPLETE
    assert codes(evidence(build, 5)) == [("missing-ack", "seen/1"), ("missing-ack", "out/0")]
    assert report.findings[0].path == layout.ack(5, "seen/1", FIRST)


def test_an_ack_that_cannot_be_read_is_not_missing_as_well() -> None:
    storage = MemoryStorage()
    build = make_store(storage)
    storage.files[layout.ack(5, "seen/0", FIRST)] = b"garbage"
    assert sorted(codes(evidence(build, 5))) == [
        ("missing-ack", "out/0"), ("missing-ack", "seen/1"), ("unreadable", "seen/0"),
    ]


def test_what_may_repeat_is_said_where_it_is_known(build: Build, whole: EpochEvidence) -> None:
    assert check_epoch(whole).repeats == ()
    assert whole.head is not None
    weak = replace(whole, parts=moved(whole.parts or (), SEEN, "lines", 3))
    weak = replace(weak, manifest=replace(whole.manifest, policy="at-least-once"))
    assert check_epoch(weak).repeats == (Repeat(ChannelId.parse("lines/0->seen/0"), 3),)
    for unknown in ("topology", "parts", "manifest"):
        lacking = replace(weak, **{unknown: None, **({"trigger": None} if unknown == "manifest" else {})})
        assert check_epoch(lacking).repeats is None


def test_an_aborted_epoch_stays_aborted_and_says_why(build: Build) -> None:
    report = check_epoch(evidence(build, 3))
    assert (report.verdict, report.reason) == (Status.ABORTED, "timed out, waiting for out/0")


def test_an_epoch_in_progress_lacks_nothing_yet(build: Build) -> None:
    report = check_epoch(replace(evidence(build, 5), status=Status.IN_PROGRESS))
    assert report.verdict is Status.IN_PROGRESS
    assert report.findings == ()
    assert Code.MISSING_ACK in report.unchecked


def test_parts_are_exactly_those_of_the_job_graph(whole: EpochEvidence) -> None:
    assert whole.parts is not None
    manifest = whole.manifest
    assert manifest is not None
    lacking = replace(whole, parts=whole.parts[:-1], manifest=replace(manifest, tasks=4))
    assert codes(lacking) == [("missing-ack", OUT)]
    twice = replace(whole, parts=(*whole.parts, whole.parts[-1]), manifest=replace(manifest, tasks=6))
    assert ("unreadable", OUT) in codes(twice)
    stranger = with_part(whole, OUT, lambda part: replace(part, task_name="out/1", received={}))
    assert codes(stranger) == [("missing-ack", OUT), ("unreadable", "out/1")]
    assert codes(replace(whole, manifest=replace(manifest, tasks=4))) == [("unreadable", None)]


def test_two_logs_of_one_channel_are_a_finding(whole: EpochEvidence) -> None:
    twice = with_part(whole, SEEN, lambda part: replace(part, logs=(*part.logs, part.logs[0])))
    assert ("unreadable", SEEN) in codes(twice)


def test_a_part_of_another_epoch_is_a_finding(whole: EpochEvidence) -> None:
    assert codes(with_part(whole, OUT, lambda part: replace(part, epoch=2))) == [("unreadable", OUT)]


@pytest.mark.parametrize(("change", "code"), [
    ({"size": None}, "missing-file"),
    ({"size": 1}, "size-mismatch"),
    ({"sha256": "0" * 64}, "digest-mismatch"),
    ({"rows": 9}, "row-mismatch"),
    ({"error": "is garbage"}, "unreadable"),
    ({"key_groups": (0, 4)}, "misplaced-key"),
    ({"key_groups": (-1, 3)}, "misplaced-key"),
])
def test_a_file_that_is_not_what_was_written_damages_the_epoch(
    whole: EpochEvidence, change: dict[str, object], code: str
) -> None:
    given = with_probe(whole, layout.state(2, SEEN, FIRST), **change)
    assert codes(given) == [(code, SEEN)]
    assert check_epoch(given).verdict is Status.DAMAGED


def test_a_log_file_is_put_down_to_its_channel(whole: EpochEvidence) -> None:
    given = with_probe(whole, layout.log(4, SEEN, "seen/1", FIRST), size=None)
    (finding,) = check_epoch(given).findings
    assert (finding.code, str(finding.task), str(finding.channel)) == (Code.MISSING_FILE, SEEN, "seen/1->seen/0")


def test_a_job_graph_that_is_gone_is_told_as_such(whole: EpochEvidence) -> None:
    graph = whole.files[0].path
    given = replace(with_probe(whole, graph, size=None, sha256=None), topology=None)
    report = check_epoch(given)
    assert [finding.code for finding in report.findings] == [Code.TOPOLOGY_MISSING]
    assert {Code.CONSERVATION, Code.MISSING_LOG, Code.MISSING_ACK} <= set(report.unchecked)


def test_more_live_keys_than_rows_is_a_finding(whole: EpochEvidence) -> None:
    assert codes(with_part(whole, SEEN, lambda part: replace(part, rows=7))) == [("row-mismatch", SEEN)]
    assert codes(with_part(whole, OUT, lambda part: replace(part, rows=1))) == [("row-mismatch", OUT)]


@pytest.mark.parametrize("rows", [0, None])
def test_a_state_file_of_no_or_of_unknown_rows_accounts_for_no_live_key(build: Build, rows: int | None) -> None:
    first = with_probe(evidence(build, 1), layout.state(1, SEEN, FIRST), rows=rows)

    def findings(live: int) -> list[tuple[str, str | None]]:
        return codes(with_part(first, SEEN, lambda part: replace(
            part, state=(replace(part.state[0], rows=rows),), rows=live
        )))  # fmt: skip

    assert (findings(0), findings(1)) == ([], [("row-mismatch", SEEN)])


def test_a_log_that_is_claimed_must_be_named(whole: EpochEvidence) -> None:
    def unnamed(part: PartFacts) -> PartFacts:
        return replace(part, logs=(replace(part.logs[0], file=None), *part.logs[1:]))

    assert codes(with_part(whole, SEEN, unnamed)) == [("missing-log", SEEN)]


def test_a_log_of_a_channel_that_the_task_does_not_have_is_a_finding(whole: EpochEvidence) -> None:
    def stray(part: PartFacts) -> PartFacts:
        return replace(part, logs=(*part.logs, LogFacts("out/0->seen/0", 0, None)))

    assert codes(with_part(whole, SEEN, stray)) == [("missing-log", SEEN)]


def test_a_log_whose_file_has_other_rows_than_records_is_a_finding(whole: EpochEvidence) -> None:
    def fewer(part: PartFacts) -> PartFacts:
        return replace(part, logs=(replace(part.logs[0], records=1), *part.logs[1:]))

    assert codes(with_part(whole, SEEN, fewer)) == [("row-mismatch", SEEN), ("conservation", SEEN)]


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ("r3 z4 c4", "its schedule: 'z4' is no step"),
        ("r3 b4", "its schedule: it does not end with the copy of epoch 4"),
        ("r3 c4 r1", "its schedule: it does not end with the copy of epoch 4"),
        ("r3 c2", "its schedule: it does not end with the copy of epoch 4"),
        ("", "its schedule: it does not end with the copy of epoch 4"),
        ("r900:3 c4", "its schedule: a step of input 900, of at most"),
    ],
)
def test_a_schedule_is_of_its_task_and_up_to_its_copy(whole: EpochEvidence, steps: str, message: str) -> None:
    def scheduled(text: str) -> EpochEvidence:
        return with_part(whole, SEEN, lambda part: replace(part, schedule=ScheduleFacts(1, 0, text)))

    assert codes(scheduled("r3 b4 c4")) == codes(whole)
    assert codes(scheduled(steps)) == [("unreadable", SEEN)]
    assert check_epoch(scheduled(steps)).findings[0].message.startswith(message)


def test_quick_lists_what_it_did_not_check(build: Build) -> None:
    report = check_epoch(evidence(build, 4, quick=True), cut_in(evidence(build, 2)))
    assert report.verdict is Status.COMPLETE
    assert set(report.unchecked) == {
        Code.DIGEST_MISMATCH, Code.ROW_MISMATCH, Code.MISPLACED_KEY, Code.UNREFERENCED_FILE,
    }


def test_an_unknown_policy_leaves_conservation_unchecked(whole: EpochEvidence) -> None:
    assert whole.manifest is not None
    report = check_epoch(replace(whole, manifest=replace(whole.manifest, policy="mystery")))
    assert (report.findings, Code.CONSERVATION in report.unchecked) == ((), True)


# -- conservation ---------------------------------------------------------------------------------------------


def moved(
    parts: tuple[PartFacts, ...], task: str, neighbour: str, by: int, *, sent: bool = False
) -> tuple[PartFacts, ...]:
    """The parts with the first counter of one row shifted."""

    def shift(part: PartFacts) -> PartFacts:
        row = (part.sent if sent else part.received)[neighbour]
        counts = {neighbour: (row[0] + by, *row[1:])}
        if sent:
            return replace(part, sent={**part.sent, **counts})
        return replace(part, received={**part.received, **counts})

    return tuple(shift(part) if part.task_name == task else part for part in parts)


def broken(build: Build, parts: tuple[PartFacts, ...], policy: str) -> list[str | None]:
    return [finding.channel and str(finding.channel) for finding in check_conservation(build.topology, parts, policy)]


@pytest.mark.parametrize("policy", ["aligned", "unaligned", "at-least-once"])
def test_a_consistent_cut_conserves_under_every_policy(build: Build, whole: EpochEvidence, policy: str) -> None:
    assert broken(build, whole.parts or (), policy) == []


@pytest.mark.parametrize("by", [-1, 1])
@pytest.mark.parametrize("sent", [False, True])
@pytest.mark.parametrize("policy", ["aligned", "unaligned", "at-least-once"])
def test_a_back_edge_is_exact_under_every_policy(
    build: Build, whole: EpochEvidence, policy: str, sent: bool, by: int
) -> None:
    parts = moved(whole.parts or (), SEEN, "seen", by, sent=sent)
    assert broken(build, parts, policy) == ["seen/0->seen/0"]


@pytest.mark.parametrize(("policy", "received_more", "received_less"), [
    ("aligned", 1, 1), ("unaligned", 1, 1), ("at-least-once", 0, 1),
])
def test_a_regular_channel_may_repeat_only_under_at_least_once_and_never_lose(
    build: Build, whole: EpochEvidence, policy: str, received_more: int, received_less: int
) -> None:
    for by, count in ((1, received_more), (-1, received_less)):
        assert len(broken(build, moved(whole.parts or (), SEEN, "lines", by), policy)) == count


@pytest.mark.parametrize(("policy", "law"), [("aligned", "0, what is logged"), ("at-least-once", "at most 0")])
def test_what_is_lost_is_said_with_the_law_that_it_breaks(
    build: Build, whole: EpochEvidence, policy: str, law: str
) -> None:
    parts = moved(whole.parts or (), SEEN, "lines", -1)
    (found,) = check_conservation(build.topology, parts, policy)
    assert found.message == f"sent 40 - received 39 = 1, not {law}"


@pytest.mark.parametrize(("policy", "findings"), [("aligned", 1), ("unaligned", 0), ("at-least-once", 1)])
def test_a_regular_channel_is_logged_only_under_unaligned(
    build: Build, whole: EpochEvidence, policy: str, findings: int
) -> None:
    def log(part: PartFacts) -> PartFacts:
        return replace(part, logs=(*part.logs, LogFacts("lines/0->seen/0", 2, None)))

    parts = moved((with_part(whole, SEEN, log)).parts or (), SEEN, "lines", -2)
    assert len(broken(build, parts, policy)) == findings


def test_a_channel_of_which_one_end_is_missing_is_not_judged(build: Build) -> None:
    parts = evidence(build, 5).parts or ()
    assert broken(build, parts, "aligned") == []
    assert broken(build, moved(parts, SEEN, "lines", 1), "aligned") == ["lines/0->seen/0"]


def test_a_wrong_number_of_counters_is_a_finding_for_the_task(build: Build, whole: EpochEvidence) -> None:
    parts = with_part(whole, SEEN, lambda part: replace(part, received={"lines": (40,), "seen": (14, 14, 14)})).parts
    found = list(check_conservation(build.topology, parts or (), "aligned"))
    assert [(str(f.task), f.channel) for f in found] == [(SEEN, None), (SEEN, None)]


@settings(max_examples=50)
@given(st.data())
def test_any_single_counter_that_is_off_is_found_on_its_channel(data: st.DataObject) -> None:
    build = make_store(MemoryStorage(), parallelism=3, more=False)
    parts = NativeStore(build.storage).parts(1)
    sides = [(p.task_name, sent, n) for p in parts for sent in (True, False) for n in (p.sent if sent else p.received)]
    task, sent, neighbour = data.draw(st.sampled_from(sides))
    by = data.draw(st.integers(-5, 5).filter(bool))
    found = list(check_conservation(build.topology, moved(parts, task, neighbour, by, sent=sent), "aligned"))
    assert len(found) == 1
    ends = str(found[0].channel).split("->")
    assert ends[0 if sent else 1] == task
    assert ends[1 if sent else 0] == f"{neighbour}/0"


@settings(max_examples=50)
@given(st.data(), st.sampled_from(["unaligned", "at-least-once"]))
def test_a_counter_that_is_off_is_found_or_said_to_repeat(data: st.DataObject, policy: str) -> None:
    build = make_store(MemoryStorage(), parallelism=2, policy=policy, more=False)
    parts = NativeStore(build.storage).parts(1)
    sides = [(p.task_name, sent, n) for p in parts for sent in (True, False) for n in (p.sent if sent else p.received)]
    task, sent, neighbour = data.draw(st.sampled_from(sides))
    by = data.draw(st.integers(-5, 5).filter(bool))
    after = moved(parts, task, neighbour, by, sent=sent)
    found = broken(build, after, policy)
    said = said_to_repeat(build, after, policy)
    surplus = -by if sent else by
    back = "seen/" in task and neighbour == "seen"
    if policy == "at-least-once" and surplus > 0 and not back:
        assert (found, [repeat.records for repeat in said]) == ([], [surplus])
    else:
        assert (len(found), said) == (1, ())


# -- repeats --------------------------------------------------------------------------------------------------


def said_to_repeat(build: Build, parts: tuple[PartFacts, ...], policy: str) -> tuple[Repeat, ...]:
    """The regular channels that are said to repeat records; a back edge that does so is a finding."""
    repeats = may_repeat(policy, Channels(build.topology, by_operator(build.topology, parts)))
    assert repeats is not None
    return tuple(r for r in repeats if r.channel.edge != ("seen", "seen"))


def test_what_repeats_is_no_finding_and_named_by_channel() -> None:
    build = make_store(MemoryStorage(), policy="at-least-once")
    given = evidence(build, 4)
    assert check_epoch(given).repeats == ()
    early = replace(given, parts=moved(moved(given.parts or (), SEEN, "lines", 3), OUT, "seen", 2))
    report = check_epoch(early)
    assert (report.verdict, report.findings, report.policy) == (Status.COMPLETE, (), "at-least-once")
    assert [(str(repeat.channel), repeat.records) for repeat in report.repeats or ()] == [
        ("lines/0->seen/0", 3), ("seen/0->out/0", 2),
    ]  # fmt: skip


def test_a_log_on_a_regular_channel_damages_an_at_least_once_epoch_though_its_counters_agree() -> None:
    build = make_store(MemoryStorage(), policy="at-least-once")

    def log(part: PartFacts) -> PartFacts:
        return replace(part, logs=(*part.logs, LogFacts("lines/0->seen/0", 2, part.logs[0].file)))

    given = with_part(evidence(build, 4), SEEN, log)
    given = replace(given, parts=moved(given.parts or (), SEEN, "lines", -2))
    found = [(finding.code, str(finding.channel)) for finding in check_epoch(given).findings]
    assert (Code.CONSERVATION, "lines/0->seen/0") in found


def test_exactly_once_epochs_repeat_nothing_and_what_is_not_known_is_not_none(build: Build) -> None:
    whole = evidence(build, 4)
    assert check_epoch(whole).repeats == ()
    for policy in ("aligned", "unaligned"):
        assert may_repeat(policy, ()) == ()
    one, other = ChannelId.parse("a/0->b/0"), ChannelId.parse("a/1->b/0")
    channels = (ChannelFacts(one, 1, 3, 0), ChannelFacts(other, 1, None, None))
    assert may_repeat("at-least-once", channels[:1]) == (Repeat(one, 2),)
    assert may_repeat("at-least-once", channels) is None
    assert may_repeat("at-least-once", ()) is None
    assert may_repeat("mystery", channels) is None
    assert may_repeat(None, channels) is None
    weak = make_store(MemoryStorage(), policy="at-least-once")
    assert check_epoch(evidence(weak, 5)).repeats is None  # two of its tasks have not acked
    assert check_epoch(replace(evidence(weak, 4), topology=None)).repeats is None


# -- positions ------------------------------------------------------------------------------------------------


def source(*positions: Position) -> tuple[PartFacts, ...]:
    part = make_store(MemoryStorage(), parallelism=1, more=False).parts(1)[0]
    return (replace(part, positions=positions),)


@pytest.mark.parametrize(("before", "after", "regressed"), [
    (Position("a", 5, 1), Position("a", 5, 1), False),
    (Position("a", 5, 1), Position("a", 6, 2), False),
    (Position("a", 5, 1), Position("a", 4, 2), True),
    (Position("a", 5, 2), Position("a", 6, 1), True),
    (Position("a", 5, 1), Position("b", 9, 9), True),
    (Position("a", None, None), Position("a", 1, 1), False),
    (Position("a", 5, 1), Position("a", None, None), False),
])
def test_a_split_neither_goes_back_nor_vanishes(before: Position, after: Position, regressed: bool) -> None:
    found = list(check_positions(cut_of(1, 1, source(before)), source(after)))
    assert [f.code for f in found] == ([Code.POSITION_REGRESSED] if regressed else [])


def test_a_new_split_is_no_step_back() -> None:
    assert list(check_positions(cut_of(1, 1, source()), source(Position("new", 0, 0)))) == []


def test_positions_are_compared_with_those_of_the_parent_alone(build: Build, whole: EpochEvidence) -> None:
    parent = cut_in(evidence(build, 2))
    assert parent is not None
    for other in (None, parent._replace(epoch=1)):
        assert Code.POSITION_REGRESSED in check_epoch(whole, other).unchecked
    assert Code.POSITION_REGRESSED not in check_epoch(whole, parent).unchecked
    assert Code.POSITION_REGRESSED not in check_epoch(evidence(build, 1)).unchecked


def test_over_a_rescale_a_split_may_be_another_tasks_and_still_neither_goes_back_nor_vanishes(
    build: Build, whole: EpochEvidence
) -> None:
    parent = cut_in(evidence(build, 2))
    assert parent is not None
    one, other = parent.positions.values()
    moved = parent._replace(generation=2, positions={TaskId("lines", 7): one, TaskId("lines", 9): other})
    assert check_epoch(whole, moved).findings == ()
    (split,) = other
    further = {**other, split: replace(other[split], offset=10**6)}
    for wrong in (further, {**one, "in/gone.txt": other[split]}):
        positions = {TaskId("lines", 9): other, TaskId("lines", 7): wrong}
        report = check_epoch(whole, moved._replace(positions=positions))
        assert [f.code for f in report.findings] == [Code.POSITION_REGRESSED]


def test_a_parent_that_is_not_before_its_child_is_a_finding(whole: EpochEvidence) -> None:
    assert whole.manifest is not None
    assert codes(replace(whole, manifest=replace(whole.manifest, parent=4))) == [("position-regressed", None)]


# -- a store --------------------------------------------------------------------------------------------------


def judged(build: Build, *epochs: EpochEvidence, files: tuple[str, ...] | None = None) -> StoreReport:
    return check_store(store_evidence(NativeStore(build.storage)), epochs, files)


def test_the_newest_whole_epoch_is_the_one_to_restore(build: Build) -> None:
    report = judged(build, *(evidence(build, n) for n in range(1, 6)))
    assert (report.restorable, report.latest_restorable, report.damaged) == ((1, 2, 4), 4, False)


def test_a_damaged_epoch_is_passed_over_and_its_children_are_not(build: Build) -> None:
    second = with_probe(evidence(build, 2), layout.log(2, SEEN, SEEN, FIRST), size=None)
    report = judged(build, evidence(build, 1), second, evidence(build, 4))
    assert (report.restorable, report.damaged) == ((1, 4), True)


def test_what_descends_from_an_epoch_that_went_back_is_not_restored(build: Build) -> None:
    def back(part: PartFacts) -> PartFacts:
        return replace(part, positions=(Position("in/0.txt", 1, 1),))

    second = with_part(evidence(build, 2), "lines/0", back)
    report = judged(build, evidence(build, 1), second, evidence(build, 4))
    assert report.restorable == (1,)


def test_nothing_is_restorable_when_the_store_does_not_say_what_it_is(build: Build) -> None:
    report = check_store(StoreEvidence(False, (), (), ()), [evidence(build, 1)])
    assert (report.restorable, report.latest_restorable) == ((), None)


def test_files_that_nothing_refers_to_are_told_and_do_no_damage(build: Build) -> None:
    epochs = [evidence(build, n) for n in range(1, 6)]
    stray = (layout.state(4, "gone/0", FIRST), layout.state(9, SEEN, FIRST), "thesis.tex",
             layout.ack(5, "seen/1", FIRST), layout.part_dir(5, "seen/1", FIRST) + "/notes.txt", layout.LOCK)
    report = judged(build, *epochs, files=(*store_evidence(NativeStore(build.storage)).files, *stray))
    assert [f.path for f in report.findings] == [stray[1], stray[2]]
    assert [(f.code.value, f.path) for f in report.epochs[3].findings] == [("unreferenced-file", stray[0])]
    assert [f.path for f in report.epochs[4].findings if f.code is Code.UNREFERENCED_FILE] == [stray[4]]
    assert report.epochs[3].verdict is Status.COMPLETE
    assert (report.latest_restorable, report.damaged) == (4, False)


def test_nobody_calls_a_file_needless_while_a_manifest_cannot_be_read(build: Build) -> None:
    lost = replace(evidence(build, 4), manifest=None, parts=None, files=(), topology=None)
    report = judged(build, evidence(build, 2), lost, files=("thesis.tex",))
    assert (report.findings, report.unchecked) == ((), (Code.UNREFERENCED_FILE,))


def test_an_epoch_needs_the_record_of_its_attempt(build: Build) -> None:
    report = check_store(StoreEvidence(True, (), (), ()), [evidence(build, 1), evidence(build, 2)])
    assert [(f.code.value, f.path) for f in report.findings] == [("missing-file", layout.attempt(1))]
    assert report.damaged


# -- demands --------------------------------------------------------------------------------------------------

NOW = datetime(2026, 1, 2, 3, 5, tzinfo=UTC)


def report(verdict: Status, *findings: Finding, restorable: bool) -> StoreReport:
    epoch = EpochReport(7, verdict, findings, (), triggered="2026-01-02T03:04:00.000Z")
    return StoreReport((epoch,), (), (), (7,) if restorable else ())


@pytest.mark.parametrize(("verdict", "restorable", "of_store", "of_epoch"), [
    (Status.COMPLETE, True, 0, 0), (Status.INCOMPLETE, False, 1, 1), (Status.DAMAGED, False, 2, 1),
    (Status.ABORTED, False, 1, 1), (Status.IN_PROGRESS, False, 1, 1),
])
def test_an_epoch_must_be_whole_and_a_store_must_have_one(
    verdict: Status, restorable: bool, of_store: int, of_epoch: int
) -> None:
    given = report(verdict, restorable=restorable)
    assert (len(unmet(given)), len(unmet(given, epoch=7))) == (of_store, of_epoch)


def test_strict_minds_every_finding() -> None:
    stray = report(Status.COMPLETE, Finding(Code.UNREFERENCED_FILE, None, None, "x", ""), restorable=True)
    assert (unmet(stray), unmet(stray, strict=True)) == ([], ["--strict: 1 finding"])


def test_age_and_number_of_epochs_are_those_that_can_be_restored() -> None:
    fresh, none = report(Status.COMPLETE, restorable=True), report(Status.COMPLETE, restorable=False)
    assert unmet(fresh, max_age=60, min_epochs=1, now=NOW) == []
    assert len(unmet(fresh, max_age=59, min_epochs=2, now=NOW)) == 2
    assert len(unmet(none, epoch=7, max_age=1e9, now=NOW)) == 1


# -- files as they are ----------------------------------------------------------------------------------------


def facts_of(path: str, data: bytes, rows: int | None = None) -> FileFacts:
    from formats.native.facts import digest

    return FileFacts(path, len(data), rows, digest(data))


def test_a_file_is_read_once_however_many_epochs_refer_to_it() -> None:
    storage, read = MemoryStorage(), []
    storage.put("a", b"1234")
    prober = Prober(storage, progress=read.append)
    for _ in range(3):
        assert prober.probe([facts_of("a", b"1234")])["a"].size == 4
    assert sum(read) == 4


def test_a_large_file_is_read_in_chunks_and_decoded_from_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    from formats.native import probe

    monkeypatch.setattr(probe, "CHUNK", 512)
    table = pa.table({KEY_GROUP: pa.array(range(400), pa.int32()), "k": [str(i) * 9 for i in range(400)]})
    data = encode_state(table, ["k"])
    assert 512 < len(data) < CHUNK
    storage, read = MemoryStorage(), []
    storage.put("a.parquet", data)
    found = Prober(storage, progress=read.append).probe([facts_of("a.parquet", data)])["a.parquet"]
    assert (found.rows, found.key_groups, found.error) == (400, (0, 399), None)
    assert max(read) == 512


@settings(max_examples=60)
@given(st.binary(max_size=300), st.sampled_from(["a.parquet", "a.arrow"]))
def test_garbage_whose_digest_holds_is_unreadable(data: bytes, path: str) -> None:
    storage = MemoryStorage()
    storage.put(path, data)
    assert Prober(storage).probe([facts_of(path, data)])[path].error


@settings(max_examples=40)
@given(st.data())
def test_a_damaged_table_whose_digest_was_mended_is_read_or_unreadable(data: st.DataObject) -> None:
    build = make_store(MemoryStorage(), parallelism=1, more=False)
    assert isinstance(build.storage, MemoryStorage)
    path = data.draw(st.sampled_from([layout.state(1, SEEN, FIRST), layout.log(1, SEEN, SEEN, FIRST)]))
    bytes_ = bytearray(build.storage.files[path])
    for _ in range(data.draw(st.integers(1, 4))):
        bytes_[data.draw(st.integers(0, len(bytes_) - 1))] = data.draw(st.integers(0, 255))
    build.storage.files[path] = bytes(bytes_)
    found = Prober(build.storage).probe([facts_of(path, bytes(bytes_))])[path]
    assert (found.rows is None) == (found.error is not None)


def test_a_state_file_without_key_groups_is_unreadable() -> None:
    storage = MemoryStorage()
    data = encode_state(pa.table({KEY_GROUP: pa.array([None, 1], pa.int32())}), [])
    storage.put("a.parquet", data)
    assert "no __key_group" in (Prober(storage).probe([facts_of("a.parquet", data)])["a.parquet"].error or "")


def test_probes_of_different_digests_of_one_path_are_kept_apart() -> None:
    storage = MemoryStorage()
    storage.put("a", b"12")
    prober = Prober(storage)
    one, two = facts_of("a", b"12"), facts_of("a", b"34")
    assert [prober.probe([f])["a"] for f in (one, two)] == [FileProbe("a", 2, one.sha256)] * 2


def test_codes_are_unique_and_in_the_order_of_the_interface() -> None:
    assert len(set(Code)) == 21
    assert all(a != b for a, b in pairwise(Code))
