"""What tasks did between an epoch and its parent adds up; cuts that were made wrong by hand are found."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from abscli.report.findings import Code
from abscli.stores.native.checks.growth import check_growth, totals_of
from formats.native.facts import PartFacts
from formats.native.store import NativeStore
from tests.support.jobs.lines import Gate, Lines, write_lines

Change = Callable[[PartFacts], PartFacts]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> NativeStore:
    """Of a job that copied lines into a folder, some in each epoch."""
    folder = tmp_path_factory.mktemp("growth")
    write_lines(folder, 5)
    with pytest.MonkeyPatch.context() as patch:
        gate = Gate()
        gate.install(patch.setattr)
        lines = Lines(folder, gate)
        lines.run()
        return lines.store()


def grown(store: NativeStore) -> tuple[int, int]:
    """An epoch and its parent, between which every sink task received rows, and sources read records."""
    for epoch in store.epoch_numbers()[::-1]:
        if not store.has_manifest(epoch) or (parent := store.manifest(epoch).parent) == 0:
            continue
        if any(part.sink for part in store.parts(epoch) if part.operator == "out"):
            return epoch, parent
    raise AssertionError("no epoch has rows of a sink")


def found(store: NativeStore, operator: str, change: Change, *, exact: bool = True) -> list[str]:
    """Messages about an epoch in which a task of an operator is changed, that of a sink one which names rows."""
    epoch, parent = grown(store)
    parts = list(store.parts(epoch))
    at = next(n for n, part in enumerate(parts) if part.operator == operator and (part.sink or operator != "out"))
    parts[at] = change(parts[at])
    before = {part.task: totals_of(part) for part in store.parts(parent)}
    findings = list(check_growth(store.topology(epoch), parent, before, parts, exact=exact))
    assert {finding.code for finding in findings} <= {Code.CONSERVATION}
    return [finding.message for finding in findings]


def test_an_untouched_history_adds_up(store: NativeStore) -> None:
    for epoch in store.epoch_numbers():
        if store.has_manifest(epoch) and (parent := store.manifest(epoch).parent):
            before = {part.task: totals_of(part) for part in store.parts(parent)}
            assert list(check_growth(store.topology(epoch), parent, before, store.parts(epoch), exact=True)) == []


def without_rows(part: PartFacts) -> PartFacts:
    return replace(part, sink=())


def of_the_parent(part: PartFacts) -> PartFacts:
    """The counters of before: nothing was received."""
    return replace(part, received={id: tuple(0 for _ in counts) for id, counts in part.received.items()})


def a_file_on(part: PartFacts) -> PartFacts:
    assert part.positions
    first, *others = part.positions
    return replace(part, positions=(replace(first, records=(first.records or 0) + 7), *others))


@pytest.mark.parametrize(
    ("operator", "change", "words"),
    [
        ("out", without_rows, "records were received, and parts with 0 rows are named since its parent, epoch"),
        ("out", of_the_parent, "on channel 0 went down from"),
        ("lines", a_file_on, "records were read, and"),
    ],
)
def test_a_wrong_cut_is_found(store: NativeStore, operator: str, change: Change, words: str) -> None:
    messages = found(store, operator, change)
    assert messages
    assert all(words in message for message in messages)


def with_less_sent(part: PartFacts) -> PartFacts:
    return replace(part, sent={id: tuple(0 for _ in counts) for id, counts in part.sent.items()})


@pytest.mark.parametrize(
    ("operator", "change"), [("out", without_rows), ("lines", a_file_on), ("out", of_the_parent)]
)
def test_under_at_least_once_only_less_sent_is_found(store: NativeStore, operator: str, change: Change) -> None:
    """A restore takes back what was received beyond what was sent."""
    assert found(store, operator, change, exact=False) == []
    assert found(store, "lines", with_less_sent, exact=False)


def test_positions_without_record_counts_are_not_compared(store: NativeStore) -> None:
    def uncounted(part: PartFacts) -> PartFacts:
        assert part.positions
        return replace(part, positions=tuple(replace(one, records=None) for one in part.positions))

    assert found(store, "lines", uncounted) == []


@pytest.mark.parametrize("counts", [(), (1,), (10**6,) * 9])
def test_counters_of_more_or_fewer_channels_are_compared_as_far_as_they_go(
    store: NativeStore, counts: tuple[int, ...]
) -> None:
    assert found(store, "lines", lambda part: replace(part, sent=dict.fromkeys(part.sent, counts)))
