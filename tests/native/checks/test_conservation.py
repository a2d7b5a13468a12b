"""What is sent and received on every channel of an epoch, and what may repeat."""

from __future__ import annotations

import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from abscli.planner.repeats import may_repeat
from abscli.report.findings import Code
from abscli.stores.native.checks.conservation import check_conservation
from abscli.stores.native.verdict import check_epoch
from formats.ids import ChannelId
from formats.native.counters import Channels, by_operator
from formats.native.evidence import EpochEvidence
from formats.native.facts import LogFacts, PartFacts
from formats.native.store import NativeStore
from formats.storage import MemoryStorage
from formats.view import ChannelFacts, Repeat, Status
from tests.support.stores.evidence import evidence, moved, with_part
from tests.support.stores.small import Build, make_store
from tests.tiers import examples

SEEN, OUT = "seen/0", "out/0"


# -- conservation --------------------------------------------------------------------------------------------


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


@functools.cache
def shared(parallelism: int, policy: str) -> Build:
    """A store that all examples read, and none changes."""
    return make_store(MemoryStorage(), parallelism=parallelism, policy=policy, more=False)


@settings(max_examples=examples(50))
@given(st.data())
def test_any_single_counter_that_is_off_is_found_on_its_channel(data: st.DataObject) -> None:
    build = shared(3, "aligned")
    parts = NativeStore(build.storage).parts(1)
    sides = [(p.task_name, sent, n) for p in parts for sent in (True, False) for n in (p.sent if sent else p.received)]
    task, sent, neighbour = data.draw(st.sampled_from(sides))
    by = data.draw(st.integers(-5, 5).filter(bool))
    found = list(check_conservation(build.topology, moved(parts, task, neighbour, by, sent=sent), "aligned"))
    assert len(found) == 1
    ends = str(found[0].channel).split("->")
    assert ends[0 if sent else 1] == task
    assert ends[1 if sent else 0] == f"{neighbour}/0"


@settings(max_examples=examples(50))
@given(st.data(), st.sampled_from(["unaligned", "at-least-once"]))
def test_a_counter_that_is_off_is_found_or_said_to_repeat(data: st.DataObject, policy: str) -> None:
    build = shared(2, policy)
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


# -- repeats -------------------------------------------------------------------------------------------------


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
