"""Queries of NEXMark as jobs in Python, each beside the same in DuckDB's SQL.

They follow https://github.com/nexmark/nexmark, which has them in Flink's SQL.
"""

from __future__ import annotations

from typing import Final

QUERIES: Final = {
    "q0": "pass through: every bid",
    "q1": "currency: prices in euros, as decimals",
    "q2": "selection: bids for some auctions",
    "q3": "local items: who sells what in three states, a join of persons and auctions",
    "q4": "prices by category: the mean of those for which auctions have closed",
    "q5": "hot items: the auctions with most bids, in sliding windows",
    "q7": "highest bid of every ten seconds",
    "q8": "new users: who has come and begun an auction in one window",
}
"""By their published numbers: what each asks."""
