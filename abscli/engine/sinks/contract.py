"""The contract of every sink: each row of a complete epoch is in the target once, or the job refuses to run.

Terms:

- The *target* is what a sink writes: a folder, a bucket, a table, a topic, stdout. Only the job file that the user
  names says which target a sink has. Its identity is what the server, catalog or file system says of it, plus its
  name.
- A *part* holds the rows of one task for one epoch. It is identified by sink, attempt, epoch and task. Epoch numbers
  alone identify nothing: copies of a store use the same numbers.
- A *commit marker* is written with the rows, in one step with them where the target has transactions, else after
  them. It names the epoch and the attempt. The marker, not the rows, tells whether an epoch was delivered: owners
  delete, archive and compact rows.

Rules:

1. A worker stages rows (`Sink.cut`) and publishes nothing. Rows that the target refuses fail here, before a manifest
   names them (`staged.trial`; append to PostgreSQL inserts them).
2. The manifest names the parts. It also records, per target, the newest epoch whose rows the target must have, and
   how many rows that makes in total (`formats.native.committed`). Pruning, rescaling, copying and rebuilding keep
   this record.
3. After the manifest, and before the next one, the driver publishes the parts it names (`outputs.Outputs.reveal`).
   This can be repeated without harm.
4. A target accepts rows from the attempt that owns it. An attempt that has lost its target or its store publishes
   nothing and ends with `Overtaken`.
5. Before a job resumes, and for `validate --job`, the target is compared with the manifests: by the rules T1 to T7 of
   `abscli.planner.target`; files by `abscli.planner.settlement`. The result is a verdict,
   `abscli.report.findings.SinkVerdict`: exact, pending, incomplete, foreign, unknown or unchecked. Pending rows are
   delivered. Incomplete and foreign targets are refused until the user decides.
6. While a job runs, the driver checks before each delivery that the newest marker is still there. A target that
   became an older copy of itself ends the job.

What an owner does on purpose keeps a target exact: retention, deletes, dropped partitions, VACUUM, compaction,
expired snapshots, archived part files. Only stdout has no marker: there, rows can be written again after a crash.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pyarrow as pa

from formats.native.facts import SinkFile


class Sink(Protocol):
    """One sink task. It stages what belongs to an epoch; what is staged shows once the manifest is durable, and not by
    the worker (`outputs`)."""

    @property
    def parts(self) -> tuple[SinkFile, ...]:
        """What no complete epoch covers yet, as far as it is cut."""

    def write(self, batch: pa.RecordBatch) -> None:
        """More rows, of the part that is open."""

    def cut(self, epoch: int) -> Callable[[], tuple[SinkFile, ...]]:
        """End the part of `epoch`: what makes all parts durable that its completion makes visible, and says which
        these are.

        To be called in the order of the epochs: what makes a later one durable waits for the earlier, and fails if one
        of them has failed.
        """

    def commit(self, epoch: int) -> None:
        """Epoch is complete, and its manifest names what was pending."""

    def close(self) -> None:
        """Let go of all that no epoch has staged yet: its rows belong to none."""
