"""Places of sources of Kafka against what a broker has: what each gap is, and what it is called."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abscli.text.lag import SHOWN, LagPage, items, text, to_json
from formats.kafka import Bounds, Gap, Place, SplitLag, lags, told
from tests.support.schemas import checked


def place(offset: int | None, partition: int = 0, topic: str = "orders", until: int | None = None) -> Place:
    return Place("source-0", topic, partition, offset, until)


def page_of(seen: list[SplitLag]) -> LagPage:
    return LagPage("ck", "spark", None, 3, "broker:9092", seen, "a restart fails")


def only(offset: int, bounds: Bounds | None) -> SplitLag:
    (lag,) = lags([place(offset)], {} if bounds is None else {"orders": {0: bounds}})
    return lag


@pytest.mark.parametrize(
    ("offset", "bounds", "lag", "dropped", "gap", "words"),
    [
        (70, Bounds(0, 100), 30, 0, None, ""),
        (70, Bounds(70, 100), 30, 0, None, ""),
        (100, Bounds(100, 100), 0, 0, None, ""),
        (70, Bounds(71, 100), 30, 1, Gap.DROPPED, "resumes at 70, but the oldest offset is 71: 1 record removed"),
        (70, Bounds(100, 100), 30, 30, Gap.DROPPED, "30 records removed unread"),
        (101, Bounds(0, 100), None, 0, Gap.AHEAD, "resumes at 101, but the partition ends at 100"),
        (70, None, None, 0, Gap.GONE, "the broker has no such partition"),
    ],
)
def test_a_partition_is_behind_or_cannot_go_on(
    offset: int, bounds: Bounds | None, lag: int | None, dropped: int, gap: Gap | None, words: str
) -> None:
    seen = only(offset, bounds)
    assert (seen.lag, seen.dropped, seen.gap) == (lag, dropped, gap)
    assert words in told(seen)


@pytest.mark.parametrize(
    ("offset", "until", "bounds", "lag", "dropped", "gap"),
    [
        (70, 80, Bounds(0, 100), 10, 0, None),
        (70, 80, Bounds(75, 100), 10, 5, Gap.DROPPED),
        (70, 80, Bounds(90, 100), 10, 10, Gap.DROPPED),
        (80, 80, Bounds(90, 100), 0, 0, None),
        (70, 200, Bounds(0, 100), 30, 0, None),
        (None, None, Bounds(5, 100), None, 0, None),
        (None, None, None, None, 0, Gap.GONE),
    ],
)
def test_a_bounded_read_needs_no_more_than_its_end_and_one_that_has_not_begun_misses_nothing(
    offset: int | None, until: int | None, bounds: Bounds | None, lag: int | None, dropped: int, gap: Gap | None
) -> None:
    (seen,) = lags([place(offset, until=until)], {} if bounds is None else {"orders": {0: bounds}})
    assert (seen.lag, seen.dropped, seen.gap) == (lag, dropped, gap)
    assert bool(told(seen)) == (gap is not None)


def test_partitions_that_a_source_has_not_seen_are_read_from_their_beginning() -> None:
    seen = lags([place(5)], {"orders": {0: Bounds(0, 9), 1: Bounds(3, 10)}, "other": {0: Bounds(0, 1)}})
    assert [(one.split, one.offset, one.lag, one.gap) for one in seen] == [
        ("orders-0", 5, 4, None), ("orders-1", None, 7, None),
    ]  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99)), max_size=9))
def test_what_is_gone_is_part_of_what_is_to_be_read(numbers: list[tuple[int, int, int]]) -> None:
    places = [place(at, partition) for partition, (at, _, _) in enumerate(numbers)]
    topics = {"orders": {n: Bounds(min(a, b), max(a, b)) for n, (_, a, b) in enumerate(numbers)}}
    page = page_of(lags(places, topics))
    assert page.dropped <= page.lag
    for split in page.splits:
        assert (split.gap is Gap.DROPPED) == (split.dropped > 0)
        assert split.lag is None or (split.offset is not None and split.lag + split.offset == split.end)
    result = checked(to_json(page))
    header, lines = items(result)
    assert {"splits": [{k: v for k, v in line.items() if k != "type"} for line in lines], **header} == result


def test_a_page_names_gaps_first_and_says_what_they_mean() -> None:
    places = [place(10, n) for n in range(SHOWN + 2)]
    topics = {"orders": {n: Bounds(0, 20 + n) for n in range(SHOWN + 1)}}
    shown = text(page_of(lags(places, topics)), width=80)
    lines = shown.splitlines()
    assert lines[0] == "Epoch 3 of ck, against the broker broker:9092"
    assert lines[3].split() == ["source-0", f"orders-{SHOWN + 1}", "10", "?", "?", "?", "?"]
    assert lines[4].split() == ["source-0", f"orders-{SHOWN}", "10", "0", str(20 + SHOWN), str(10 + SHOWN), "-"]
    assert "... and 2 more; -o json has them all" in shown
    assert "means: a restart fails" in shown
    assert max(map(len, lines)) <= 80
