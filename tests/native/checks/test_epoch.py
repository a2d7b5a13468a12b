"""The checks on an epoch, each against evidence in which exactly one thing is wrong."""

from __future__ import annotations

from itertools import pairwise

import pytest
from msgspec.structs import replace

from abscli.report.findings import Code
from abscli.stores.native.verdict import check_epoch, cut_in
from formats.ids import ChannelId
from formats.native import layout
from formats.native.evidence import EpochEvidence
from formats.native.facts import LogFacts, PartFacts, ScheduleFacts
from formats.storage import MemoryStorage
from formats.view import Repeat, Status
from tests.support.stores.evidence import codes, evidence, moved, with_part, with_probe
from tests.support.stores.small import FIRST, Build, make_store

SEEN, OUT = "seen/0", "out/0"


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
        ("r3 z4 c4", "its determinant log: 'z4' is not a step"),
        ("r3 b4", "its determinant log: the last determinant is not the state snapshot of epoch 4"),
        ("r3 c4 r1", "its determinant log: the last determinant is not the state snapshot of epoch 4"),
        ("r3 c2", "its determinant log: the last determinant is not the state snapshot of epoch 4"),
        ("", "its determinant log: the last determinant is not the state snapshot of epoch 4"),
        ("r900:3 c4", "its determinant log: a determinant refers to input 900, but the inputs are 0 to "),
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


def test_codes_are_unique_and_in_the_order_of_the_interface() -> None:
    assert len(set(Code)) == 25
    assert all(a != b for a, b in pairwise(Code))
