"""What snapshots of RocksDB say of themselves: the tables that they consist of, and how many keys they have."""

from __future__ import annotations

from formats.spark import layout
from formats.spark.checkpoint import UNREADABLE, Checkpoint
from formats.spark.replay import Chain
from formats.spark.state.rocks import parse_zip
from formats.view import FileFacts


def sst_files(checkpoint: Checkpoint, folder: str, chain: Chain) -> list[FileFacts]:
    """The SST files that a snapshot of RocksDB consists of; none where it does not say."""
    if chain.base is None or chain.base.kind != "zip":
        return []
    path = f"{folder}/{chain.base.name}"
    try:
        named = parse_zip(checkpoint.read(path), path).ssts
    except UNREADABLE:
        return []
    return [FileFacts(f"{folder}/{layout.SSTS}/{sst.name}", sst.size, None, None) for sst in named]


def counted_keys(checkpoint: Checkpoint, folder: str, chain: Chain) -> int | None:
    """How many keys a partition has, where it is a snapshot alone that says so."""
    if chain.base is None or chain.base.kind != "zip" or chain.logs:
        return None
    path = f"{folder}/{chain.base.name}"
    try:
        return parse_zip(checkpoint.read(path), path).keys
    except UNREADABLE:
        return None
