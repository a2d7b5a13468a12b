"""Which batches Spark may be purging right now, so that missing files of theirs are no damage. Pure.

Spark keeps the logs of `minBatchesToRetain` batches and as many versions of state. The setting is not in the
checkpoint; the oldest entry of the offset log shows it. Before a batch begins, Spark removes the old entries of the
offset log, then those of the commit log (`MicroBatchExecution.purge`). State is removed in the background, each
partition on its own: first the SST files of old snapshots, then the snapshots, then changelogs, in no order
(`RocksDBFileManager.deleteOldVersions`). A query that is alive, or was killed then, shows any state between.
"""

from __future__ import annotations

from typing import Final

_LAG: Final = 1
"""Batches by which the removal of log entries, which runs in a thread of its own, may be late."""


def may_lose_state(batch: int, oldest: int, newest: int) -> bool:
    """Tell if Spark may be removing the state of a batch while its logs are kept.

    oldest: the oldest batch with offsets.
    newest: the newest batch with a commit.

    Between the commit of a batch and the begin of the next one, state is kept of one batch less than logs.
    """
    return batch < newest and batch <= oldest + (_LAG if oldest else 0)


def has_lost_offsets(batch: int, oldest: int, newest: int) -> bool:
    """Decide if Spark may have removed the offsets of a batch that has a commit, and not yet its commit.

    oldest, newest: the oldest and the newest batch with offsets. Spark always keeps the offsets of two batches, so a
    single entry shows that files were lost. If there are more, a lost file looks like a purge: `minBatchesToRetain`
    is not stored in a checkpoint.
    """
    return batch < oldest < newest
