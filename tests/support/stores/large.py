"""Large stores of a word count that never ran, written with the functions that the engine writes with.

`lines` (1 task) -> `counts` (p tasks, state) -> `printed` (1 task). Keys are strings `word-000001234`, values int64.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from formats.ids import task_name
from formats.job.model import Aggregate, Edge, Kind, Operator, Partition, Topology, key_group_range
from formats.native import layout
from formats.native.facts import AttemptFacts, PartFacts, StateFileFacts, TriggerFacts, header
from formats.native.hashing import key_groups
from formats.native.state.row_groups import put_state
from formats.native.state.tables import KEY_GROUP
from formats.native.writer import complete, create, put_attempt, put_topology, put_trigger
from formats.storage import LocalStorage
from formats.timestamps import now
from formats.view import Position
from tests.support.stores.small import FIRST

KEY_GROUPS = 1024


def job(tasks: int, max_parallelism: int = KEY_GROUPS) -> Topology:
    """The graph. tasks: of `counts`."""
    return Topology(
        job="synthetic",
        operators=(
            Operator("lines", Kind.SOURCE, 1, max_parallelism, connector={"type": "text", "path": "in/*"}),
            Operator(
                "counts", Kind.REDUCE, tasks, max_parallelism, key=("word",),
                aggregates=(Aggregate("n", "count", "*"),), emit="epoch",
            ),
            Operator("printed", Kind.SINK, 1, max_parallelism, connector={"type": "jsonl", "path": "out"}),
        ),
        edges=(Edge("lines", "counts", Partition.HASH, ("word",)), Edge("counts", "printed", Partition.REBALANCE)),
    )  # fmt: skip


def words(numbers: np.ndarray) -> pa.Array:
    """Keys by number."""
    digits = np.char.add("word-", np.char.zfill(numbers.astype("U9"), 9))
    return pa.array(digits.tolist(), pa.string())


class Synthetic:
    """A store being written, epoch by epoch."""

    def __init__(self, path: str, tasks: int, max_parallelism: int = KEY_GROUPS, job_name: str = "synthetic") -> None:
        os.makedirs(path, exist_ok=True)
        self.storage = LocalStorage(path)
        self.topology = job(tasks, max_parallelism)
        self.tasks = tasks
        self.max_parallelism = max_parallelism
        create(self.storage, job_name)
        self.sha256 = put_topology(self.storage, self.topology)
        put_attempt(self.storage, AttemptFacts(
            attempt=1, kind="run", generation=1, parent=0, first_epoch=1, policy="aligned",
            topology_sha256=self.sha256, directory="jobs", started=now(), id=FIRST, **header(AttemptFacts),
        ))  # fmt: skip

    def slices(self, table: pa.Table) -> list[pa.Table]:
        """Rows by task, with their key groups. table: `word`, `n`."""
        groups = key_groups([table.column("word").combine_chunks()], self.max_parallelism)
        table = table.add_column(0, KEY_GROUP, pa.array(groups))
        owners = np.searchsorted(
            [key_group_range(i, self.tasks, self.max_parallelism).stop for i in range(self.tasks)], groups, "right"
        )
        order = np.argsort(owners, kind="stable")
        ends = np.searchsorted(owners[order], np.arange(self.tasks + 1))
        return [table.take(pa.array(order[ends[i] : ends[i + 1]])) for i in range(self.tasks)]

    def write(self, epoch: int, task: int, table: pa.Table) -> StateFileFacts:
        """One state file."""
        path = layout.state(epoch, task_name("counts", task), FIRST)
        return put_state(self.storage, path, table, ["word"])

    def epoch(
        self, epoch: int, parent: int, state: Iterable[tuple[StateFileFacts, ...]], rows: Iterable[int] | None = None
    ) -> None:
        """A complete epoch. state: by task; rows: live keys by task, those of all files if left out."""
        trigger = TriggerFacts(
            epoch=epoch, parent=parent, attempt=1, generation=1, policy="aligned", topology_sha256=self.sha256,
            triggered=now(), attempt_id=FIRST, **header(TriggerFacts),
        )  # fmt: skip
        put_trigger(self.storage, trigger)
        files = list(state)
        held = list(rows) if rows else [sum(f.rows or 0 for f in mine) for mine in files]
        read = 1000 * epoch
        parts = [
            self.part(epoch, "lines/0", sent={"counts": (read,) * self.tasks},
                       positions=(Position("in/a", 100 * read, read * self.tasks),)),
            *(self.part(epoch, task_name("counts", i), state=mine, rows=live, received={"lines": (read,)},
                         sent={"printed": (0,)}) for i, (mine, live) in enumerate(zip(files, held, strict=True))),
            self.part(epoch, "printed/0", received={"counts": (0,) * self.tasks}),
        ]  # fmt: skip
        complete(self.storage, trigger, self.topology.job, tuple(parts), idle=False)

    def part(self, epoch: int, task: str, **facts: object) -> PartFacts:
        """What a task has of an epoch, by default nothing."""
        known: dict[str, object] = {
            "epoch": epoch, "attempt": 1, "task_name": task, "state": (), "rows": 0, "logs": (), "sent": {},
            "received": {}, "positions": None, "round_robin": {}, "connector": None, "sink": (), "finished": False,
            "alignment": 0.001, "sync": 0.0005, "async_": 0.002, "attempt_id": FIRST, **header(PartFacts),
        }  # fmt: skip
        return PartFacts(**{**known, **facts})  # type: ignore[arg-type]
