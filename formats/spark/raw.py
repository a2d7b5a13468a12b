"""What Spark's own files say of a batch, for people who know the format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from formats.errors import FormatError
from formats.spark import layout
from formats.spark.checkpoint import UNREADABLE, Checkpoint
from formats.spark.evidence.listing import Presence
from formats.spark.logs import places
from formats.spark.logs.operators import OperatorInfo

T = TypeVar("T")


def readable(checkpoint: Checkpoint, presence: Presence) -> tuple[int, int] | None:
    """The first and the last batch whose state is there, by presence; None if there is none."""
    whole = []
    for epoch in checkpoint.batches(layout.COMMITS):
        try:
            offsets = checkpoint.offsets(epoch)
        except UNREADABLE:
            continue
        if not presence.of(epoch, offsets)[1]:
            whole.append(epoch)
    return (whole[0], whole[-1]) if whole else None


def raw_facts(ck: Checkpoint, presence: Presence, epoch: int) -> dict[str, Any]:
    """What Spark's own files say of a batch.

    Keys: `query_id`; `provider`, `codec`; `checkpoint_format` (1 or 2, None before the first commit); `watermark`
    (milliseconds: `batch`, as of its start, and `next`); `timestamp` (milliseconds); `conf` (settings frozen in the
    offsets); `sources` [{`source`, `kind`, `offset`, `start`: the offset before}]; `operators` [{`id`, `name`,
    `stores` [{`name`, `partitions`, `prefix`, `schemas` [{`family`, `key`, `value`}]}], `properties`}];
    `sinks`: by name, of a query whose sink has one [`sinkName`, `providerName`, `isActive`, ...];
    `in_flight`: the batch that was begun and not committed; `readable`: [first, last]; `state_ids`: of format 2.
    """
    offsets, commit, before = _try(ck.offsets, epoch), _try(ck.commit, epoch), _try(ck.offsets, epoch - 1)
    newest = ck.newest_offsets()
    there = readable(ck, presence)
    committed, begun = ck.batches(layout.COMMITS), ck.batches(layout.OFFSETS)
    in_flight = begun[-1] if begun and (not committed or begun[-1] > committed[-1]) else None
    settings = offsets or newest
    return {
        "query_id": ck.query_id,
        "provider": settings.provider if settings else None,
        "codec": settings.codec if settings else None,
        "checkpoint_format": ck.state_format(),
        "watermark": {
            "batch": offsets.watermark if offsets else None,
            "next": commit.watermark if commit else None,
        },
        "timestamp": offsets.timestamp if offsets else None,
        "conf": offsets.conf if offsets else None,
        "sources": [
            {
                "source": name,
                "kind": places.kind_of(offset),
                "offset": offset,
                "start": before.sources.get(name) if before else None,
            }
            for name, offset in (offsets.sources if offsets else {}).items()
        ],
        "operators": [_operator(ck, operator) for operator in ck.operators().values()],
        "sinks": commit.sinks if commit else None,
        "in_flight": in_flight,
        "readable": list(there) if there else None,
        "state_ids": (
            {str(op): [list(p) for p in partitions] for op, partitions in commit.ids.items()}
            if commit and commit.ids
            else None
        ),
    }


def _operator(checkpoint: Checkpoint, operator: OperatorInfo) -> dict[str, Any]:
    stores = []
    for store in operator.stores:
        try:
            parsed = checkpoint.schemas(operator.id, store)
            schemas = [{"family": s.name, "key": s.key_json, "value": s.value_json} for s in parsed]
        except UNREADABLE:
            schemas = None
        stores.append(
            {"name": store.name, "partitions": store.partitions, "prefix": store.prefix, "schemas": schemas}
        )
    return {"id": operator.id, "name": operator.name, "stores": stores, "properties": operator.properties}


def _try(read: Callable[[int], T], batch: int) -> T | None:
    try:
        return read(batch)
    except FormatError:
        return None
