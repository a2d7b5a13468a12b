"""Events of NEXMark's auctions, as the published generator makes them (Apache Beam's, and the one for Flink after it):
of 50 events one is a person, three are auctions and 46 are bids; half of the bids are for a hot auction, three of four
by a hot bidder, three of four auctions are of a hot seller; an event's number is its time, and where that is asked for
groups of them come out of order. Ids, proportions, ratios,
prices and sizes are those of its defaults; the random numbers are others, so that rows are made many at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa

from abscli.engine.sources.made.generated import Dice, MakeRows, Numbers

PERSONS, AUCTIONS, BIDS = 1, 3, 46
EVENTS = PERSONS + AUCTIONS + BIDS
FIRST_ID: Final = 1000
FIRST_CATEGORY: Final = 10
CATEGORIES: Final = 5
ACTIVE_PEOPLE: Final = 1000
AUCTIONS_IN_FLIGHT: Final = 100
ID_LEAD: Final = 10
"""Ids that are yet to come and may be named already."""
HOT_BATCH: Final = 100
"""Of so many people, or auctions, one is hot."""
HOT_AUCTION, HOT_BIDDER, HOT_SELLER = 2, 4, 4
"""One of so many is not of a hot one."""
PERSON_BYTES, AUCTION_BYTES, BID_BYTES = 200, 500, 100
BASE_TIME: Final = 1_436_918_400_000_000
"""Of event 0, microseconds: 2015-07-15T00:00:00Z."""
RATE: Final = 10_000
"""Events a second of event time, where nothing else is said."""

STRIDE: Final = 953
"""From one event to the next, round a group that is out of order: a prime, so that each comes once."""

_STATES = ["AZ", "CA", "ID", "OR", "WA", "WY"]
_CITIES = ["Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent",
           "Cheyenne"]  # fmt: skip
_FIRST = ["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"]
_LAST = ["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"]

_TIME = pa.timestamp("us")
SCHEMAS = {
    "person": pa.schema([("id", pa.int64()), ("name", pa.string()), ("email", pa.string()),
                         ("credit_card", pa.string()), ("city", pa.string()), ("state", pa.string()),
                         ("date_time", _TIME), ("extra", pa.string())]),
    "auction": pa.schema([("id", pa.int64()), ("item_name", pa.string()), ("description", pa.string()),
                          ("initial_bid", pa.int64()), ("reserve", pa.int64()), ("date_time", _TIME),
                          ("expires", _TIME), ("seller", pa.int64()), ("category", pa.int64()),
                          ("extra", pa.string())]),
    "bid": pa.schema([("auction", pa.int64()), ("bidder", pa.int64()), ("price", pa.int64()), ("date_time", _TIME),
                      ("extra", pa.string())]),
}  # fmt: skip
"""The columns of each table."""

_PLACES = {"person": (0, PERSONS), "auction": (PERSONS, AUCTIONS), "bid": (PERSONS + AUCTIONS, BIDS)}
"""Among 50 events: where those of a table begin, and how many they are."""


def rows_among(events: int | None, table: str) -> int | None:
    """How many rows a table has among the first so many events; None of endlessly many."""
    if events is None:
        return None
    begin, count = _PLACES[table]
    return events // EVENTS * count + min(count, max(0, events % EVENTS - begin))


def share(table: str) -> float:
    """Of all events, those of a table."""
    return _PLACES[table][1] / EVENTS


def maker(
    table: str, *, seed: int, rate: float, out_of_order: int | None = None, total: int | None = None
) -> MakeRows:
    """Rows of a table by their numbers. rate: events a second of event time.

    out_of_order: of so many events, a multiple of 50, the order is another; None: they come as they happen. The last
    ones of `total` events, if they are fewer, come as they happen.
    """
    rows_of: Callable[[Numbers, Dice, float], list[pa.Array]]
    rows_of = {"person": _persons, "auction": _auctions, "bid": _bids}[table]
    begin, count = _PLACES[table]
    shuffled = None if out_of_order is None else _shuffled(table, out_of_order)

    def make(numbers: Numbers) -> pa.RecordBatch:
        events = numbers // count * EVENTS + begin + numbers % count
        if shuffled is not None and out_of_order is not None:
            first = numbers // len(shuffled) * out_of_order
            others = first + shuffled[numbers % len(shuffled)]
            events = others if total is None else np.where(first + out_of_order <= total, others, events)
        return pa.record_batch(rows_of(events, Dice(seed, events), rate), schema=SCHEMAS[table])

    return make


def _shuffled(table: str, events: int) -> Numbers:
    """Where among so many events those of a table stand that come first, second and so on."""
    begin, count = _PLACES[table]
    order = np.arange(events, dtype=np.int64) * STRIDE % events
    kind = order % EVENTS
    return order[(kind >= begin) & (kind < begin + count)]


def _persons(events: Numbers, dice: Dice, rate: float) -> list[pa.Array]:
    name = _joined(_one_of(_FIRST, dice), _one_of(_LAST, dice), " ")
    email = _joined(dice.letters(_lengths(events, 7)), dice.letters(_lengths(events, 5)), "@", ".com")
    digits = [dice.below(10_000) for _ in range(4)]
    card = pa.array([" ".join(f"{four:04}" for four in row) for row in zip(*digits, strict=True)], pa.string())
    city, state = _one_of(_CITIES, dice), _one_of(_STATES, dice)
    size = sum((_sizes(text) for text in (name, email, card, city, state)), _lengths(events, 8))
    extra = _extra(dice, PERSON_BYTES - size)
    return [pa.array(_last_person(events) + FIRST_ID), name, email, card, city, state, _time(events, rate), extra]


def _auctions(events: Numbers, dice: Dice, rate: float) -> list[pa.Array]:
    hot = dice.below(HOT_SELLER) > 0
    seller = np.where(hot, _last_person(events) // HOT_BATCH * HOT_BATCH, _any_person(events, dice)) + FIRST_ID
    category = FIRST_CATEGORY + dice.below(CATEGORIES)
    initial = _price(dice)
    reserve = initial + _price(dice)
    # On average an auction is open until as many others have begun as are in flight.
    horizon = int(AUCTIONS_IN_FLIGHT * EVENTS // AUCTIONS * 1000 / rate)
    expires = _micros(events, rate) + (1 + dice.below(max(1, 2 * horizon))) * 1000
    name = dice.letters(3 + dice.below(17))
    description = dice.letters(3 + dice.below(97))
    extra = _extra(dice, AUCTION_BYTES - (48 + _sizes(name) + _sizes(description)))
    return [
        pa.array(_last_auction(events) + FIRST_ID), name, description, pa.array(initial), pa.array(reserve),
        _time(events, rate), pa.array(expires).cast(_TIME), pa.array(seller), pa.array(category), extra,
    ]  # fmt: skip


def _bids(events: Numbers, dice: Dice, rate: float) -> list[pa.Array]:
    last = _last_auction(events)
    first = np.maximum(last - AUCTIONS_IN_FLIGHT, 0)
    hot = dice.below(HOT_AUCTION) > 0
    auction = np.where(hot, last // HOT_BATCH * HOT_BATCH, first + dice.below(last - first + 1 + ID_LEAD)) + FIRST_ID
    # Hot bidders are the second of their batch, hot sellers the first.
    hot = dice.below(HOT_BIDDER) > 0
    bidder = np.where(hot, _last_person(events) // HOT_BATCH * HOT_BATCH + 1, _any_person(events, dice)) + FIRST_ID
    extra = _extra(dice, np.full(len(events), BID_BYTES - 32, np.int64))
    return [pa.array(auction), pa.array(bidder), pa.array(_price(dice)), _time(events, rate), extra]


def _last_person(events: Numbers) -> Numbers:
    """From 0 on: the person that an event is, or the newest before it."""
    return events // EVENTS * PERSONS + np.minimum(events % EVENTS, PERSONS - 1)


def _last_auction(events: Numbers) -> Numbers:
    """From 0 on: the auction that an event is, or the newest before it; -1 before the first."""
    return events // EVENTS * AUCTIONS + np.clip(events % EVENTS - PERSONS, -1, AUCTIONS - 1)


def _any_person(events: Numbers, dice: Dice) -> Numbers:
    people = _last_person(events) + 1
    active = np.minimum(people, ACTIVE_PEOPLE)
    return people - active + dice.below(active + ID_LEAD)


def _price(dice: Dice) -> Numbers:
    """In cents: from 1 to a million dollars, each magnitude as often."""
    return np.rint(10.0 ** (dice.fraction() * 6.0) * 100.0).astype(np.int64)


def _micros(events: Numbers, rate: float) -> Numbers:
    """In whole milliseconds, as the published generator has them."""
    return BASE_TIME + (events * (1_000_000 / rate)).astype(np.int64) // 1000 * 1000


def _time(events: Numbers, rate: float) -> pa.Array:
    return pa.array(_micros(events, rate)).cast(_TIME)


def _extra(dice: Dice, room: Numbers) -> pa.Array:
    """What an event lacks of its size, give or take a fifth."""
    room = np.maximum(room, 0)
    spread = np.rint(room * 0.2).astype(np.int64)
    return dice.letters(room - spread + dice.below(np.maximum(2 * spread, 1)))


def _lengths(events: Numbers, most: int) -> Numbers:
    return np.full(len(events), most, np.int64)


def _sizes(texts: pa.Array) -> Numbers:
    import pyarrow.compute as pc

    sizes: Numbers = pc.binary_length(texts).to_numpy(zero_copy_only=False).astype(np.int64)
    return sizes


def _one_of(words: list[str], dice: Dice) -> pa.Array:
    return pa.array(words, pa.string()).take(pa.array(dice.below(len(words))))


def _joined(left: pa.Array, right: pa.Array, between: str, suffix: str = "") -> pa.Array:
    import pyarrow.compute as pc

    joined = pc.binary_join_element_wise(left, right, between)
    return pc.binary_join_element_wise(joined, suffix, "") if suffix else joined
