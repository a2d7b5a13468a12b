"""NEXMark's events: row n is the same whoever makes it; proportions, hot keys and times are the published ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abscli.engine.job import JobOptions, run_job
from abscli.engine.sources.made import generated, nexmark
from abscli.engine.sources.making import make_source
from abscli.jobs.attempts import Attempts, Order
from formats.errors import Damaged
from formats.job.model import Edge, Kind, Operator, Partition, Topology
from formats.view import Position
from tests.support.jobs.small import operator

TABLES = tuple(nexmark.SCHEMAS)


def source(table: str, tasks: int = 1, **options: object) -> Operator:
    connector = {"type": "nexmark", "events": table, "total": 500, "seed": 7, **options}
    return operator("events", Kind.SOURCE, tasks, connector=connector)


def table_of(table: str, count: int, seed: int = 7) -> pa.RecordBatch:
    return nexmark.maker(table, seed=seed, rate=nexmark.RATE)(np.arange(count, dtype=np.int64))


@pytest.mark.parametrize("table", TABLES)
@given(
    tasks=st.integers(1, 4), later=st.integers(1, 4), batch=st.integers(1, 40),
    lines=st.lists(st.integers(1, 30), min_size=1, max_size=5),
)  # fmt: skip
def test_each_row_comes_once_and_is_the_same_whatever_batches_kills_and_tasks(
    table: str, tasks: int, later: int, batch: int, lines: list[int]
) -> None:
    """Each task makes some rows and is dropped, as by a kill; others, of another number, go on from the positions."""
    rows: list[dict[str, Any]] = []
    positions: list[Position] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generated, "ROWS", batch)
        for task in range(tasks):
            first = make_source(source(table, tasks), task, "", None, None)
            for count in lines[task:]:
                first.stop_at(lines=count)
                some = first.read()
                rows += some.to_pylist() if some is not None else []
            positions += first.cut()
        positions.sort(key=lambda at: at.split)
        for task in range(later):
            again = make_source(source(table, later), task, "", positions[task::later], None)
            while (some := again.read()) is not None:
                rows += some.to_pylist()
            assert again.finished
    wanted = table_of(table, nexmark.rows_among(500, table) or 0).to_pylist()
    assert sorted(map(repr, rows)) == sorted(map(repr, wanted))


def test_of_fifty_events_one_is_a_person_three_are_auctions_and_the_others_bids() -> None:
    for total in (0, 1, 2, 4, 5, 49, 50, 51, 1234):
        counts = [nexmark.rows_among(total, table) or 0 for table in TABLES]
        assert sum(counts) == total
    assert [nexmark.rows_among(5000, table) for table in TABLES] == [100, 300, 4600]
    assert nexmark.rows_among(None, "bid") is None


def test_ids_go_up_by_one_and_what_is_named_has_come_or_comes_soon() -> None:
    persons, auctions, bids = (table_of(table, count) for table, count in zip(TABLES, (400, 1200, 18400), strict=True))
    assert persons.column("id").to_pylist() == list(range(1000, 1400))
    assert auctions.column("id").to_pylist() == list(range(1000, 2200))
    event = np.arange(18400) // 46  # so many groups of 50 events are behind a bid
    auction = bids.column("auction").to_numpy()
    assert (auction >= 1000).all()
    assert (auction <= 1000 + event * 3 + 2 + nexmark.ID_LEAD).all()
    bidder = bids.column("bidder").to_numpy()
    assert (bidder >= 1000).all()
    assert (bidder <= 1000 + event + nexmark.ID_LEAD).all()
    assert set(auctions.column("category").to_pylist()) == set(range(10, 15))


def test_half_of_the_bids_are_for_a_hot_auction_and_three_of_four_by_a_hot_bidder() -> None:
    bids = table_of("bid", 46_000)
    auction, bidder = bids.column("auction").to_numpy() - 1000, bids.column("bidder").to_numpy() - 1000
    event = np.arange(46_000) // 46
    assert np.mean(auction == (event * 3 + 2) // 100 * 100) == pytest.approx(0.5, abs=0.02)
    assert np.mean(bidder == event // 100 * 100 + 1) == pytest.approx(0.75, abs=0.02)
    sellers = table_of("auction", 3000).column("seller").to_numpy() - 1000
    assert np.mean(sellers == np.arange(3000) // 3 // 100 * 100) == pytest.approx(0.75, abs=0.03)
    prices = np.log10(bids.column("price").to_numpy() / 100)
    assert np.quantile(prices, [0, 0.5, 1]) == pytest.approx([0, 3, 6], abs=0.05)


def test_times_are_those_of_events_and_sizes_those_of_the_published_generator() -> None:
    bids, auctions = table_of("bid", 9200), table_of("auction", 600)
    times = bids.column("date_time").cast(pa.int64()).to_numpy()
    assert (np.diff(times) >= 0).all()
    assert times[0] == nexmark.BASE_TIME
    assert times[-1] == nexmark.BASE_TIME + 9999 * 100 // 1000 * 1000
    assert all(row["expires"] > row["date_time"] for row in auctions.to_pylist())
    assert (auctions.column("expires").cast(pa.int64()).to_numpy() % 1000 == 0).all(), "whole milliseconds"
    # On average an auction is open while as many others begin as are in flight: 1,666 events.
    lengths = pc.subtract(auctions.column("expires"), auctions.column("date_time")).cast(pa.int64()).to_numpy()
    assert np.mean(lengths) == pytest.approx(166_600, rel=0.1)
    assert np.mean([32 + len(text) for text in bids.column("extra").to_pylist()]) == pytest.approx(100, abs=2)
    sizes = [48 + sum(len(row[name]) for name in ("item_name", "description", "extra")) for row in auctions.to_pylist()]
    assert np.mean(sizes) == pytest.approx(500, abs=10)


@pytest.mark.parametrize("table", TABLES)
def test_groups_out_of_order_have_the_same_rows(table: str) -> None:
    """As the published generator has it: event n of a group is number n * 953 of it, round."""
    total, group = 2630, 1000
    make = nexmark.maker(table, seed=7, rate=nexmark.RATE, out_of_order=group, total=total)
    count = nexmark.rows_among(total, table) or 0
    rows, in_order = make(np.arange(count, dtype=np.int64)), table_of(table, count)
    published = [n // group * group + n * 953 % group if n < total // group * group else n for n in range(total)]
    column = rows.column("date_time")
    expected = [nexmark.BASE_TIME + n * 100 // 1000 * 1000 for n in published if _table(n) == table]
    assert column.cast(pa.int64()).to_pylist() == expected
    assert column != in_order.column("date_time")
    assert sorted(map(repr, rows.to_pylist())) == sorted(map(repr, in_order.to_pylist()))


def _table(event: int) -> str:
    rest = event % 50
    return "person" if rest < 1 else "auction" if rest < 4 else "bid"


def test_another_seed_makes_other_rows_of_the_same_ids() -> None:
    one, other = (table_of("auction", 100, seed) for seed in (1, 2))
    assert one.column("id") == other.column("id")
    assert one.column("seller") != other.column("seller")


def test_a_source_with_a_rate_makes_no_more_than_that(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(generated.time, "monotonic", lambda: now)
    monkeypatch.setattr(generated.time, "sleep", lambda seconds: None)
    bids = make_source(source("bid", 2, rate=1000, total=None), 0, "", None, None)
    counts = []
    for _ in range(4):
        rows = bids.read()
        assert rows is not None
        counts.append(rows.num_rows)
        now += 1
    assert counts == [0, 460, 460, 460]  # of 1,000 events a second 920 are bids, and there are two tasks
    assert not bids.finished


@pytest.mark.parametrize("split", ["2/2", "0", "a/b", "-1/2", "../x", "0/0", "1/9999999"])
def test_a_split_that_no_source_has_is_damage(split: str) -> None:
    with pytest.raises(Damaged, match=r"events/0: the epoch has a position in split"):
        make_source(source("bid"), 0, "", [Position(split, 1, 1)], None)


def copied(tasks: int = 2) -> Topology:
    sink = operator("out", Kind.SINK, tasks, connector={"type": "jsonl", "path": "out"})
    return Topology("copied", (source("bid", tasks), sink), (Edge("events", "out", Partition.FORWARD),))


def test_every_bid_is_shown_once_through_a_real_kill_after_every_epoch(tmp_path: Path) -> None:
    epoch = kills = 0
    with Attempts() as attempts:
        while True:
            order = Order(copied(), str(tmp_path), str(tmp_path / "store"), str(tmp_path / "shown"), epoch, 50,
                          1 if kills < 4 else None)  # fmt: skip
            answer = attempts.run(order, 120)
            assert answer.failure is None, answer.failure
            if not answer.killed:
                break
            epoch, kills = answer.epoch, kills + 1
    run_job(copied(), str(tmp_path / "other"), JobOptions(
        str(tmp_path), "job.yaml", engine="inline", workers=2, sinks_in=str(tmp_path / "at once")))  # fmt: skip

    def shown(folder: str) -> list[str]:
        parts = (tmp_path / folder / "out").glob("part-*")
        return sorted(line for path in parts for line in path.read_text().splitlines())

    assert kills == 4
    assert len(shown("shown")) == 460
    assert shown("shown") == shown("at once")
