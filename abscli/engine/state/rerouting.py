"""The logs of an epoch, routed to the channels of a job with other numbers of tasks: what the rules of
`abscli.planner.rescale` come to on files."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from abscli.planner.rescale import How, Pair, Rule, reroute, rule_of
from formats.errors import Damaged, NoRecovery
from formats.job.model import Edge, Topology
from formats.native.facts import LogFacts, PartFacts, digest
from formats.native.hashing import key_groups
from formats.native.state.tables import decode_log
from formats.storage import Storage
from formats.storage.ranges import read


class Log:
    """Logged records of one channel: a log of the epoch, read when it is asked for, or a piece of one.

    facts: of a whole log.
    """

    def __init__(self, storage: Storage, facts: LogFacts | None, batches: Sequence[pa.RecordBatch] = ()) -> None:
        self.facts = facts
        self._storage = storage
        self._batches = batches

    @cached_property
    def batches(self) -> Sequence[pa.RecordBatch]:
        """In channel order; Damaged if the file is not what was written."""
        if self.facts is None or self.facts.file is None:
            return self._batches
        file = self.facts.file
        data = read(self._storage, file.path)
        if digest(data) != file.sha256:
            raise Damaged(
                f"expected SHA-256 {(file.sha256 or '')[:12]}…, got {digest(data)[:12]}…",
                path=f"{self._storage.root}/{file.path}",
                hint=f"`abs validate {shlex.quote(self._storage.root)}` lists the damaged files",
            )
        return [batch for batch in decode_log(data, file.path) if batch.num_rows]

    def piece(self, batches: Sequence[pa.RecordBatch]) -> Log:
        """Some of its records."""
        return Log(self._storage, None, batches)


class MissingColumn(Exception):
    """The records of a log lack a column of the key by which they are to be routed."""


class OnBatches:
    """`abscli.planner.rescale.Spread` of logs that are Arrow batches."""

    def by_key(self, log: Log, rule: Rule, width: int) -> Iterable[tuple[int, Log]]:
        for batch in log.batches:
            missing = [name for name in rule.key if name not in batch.schema.names]
            if missing:
                raise MissingColumn(missing[0])
            groups = key_groups([batch.column(name) for name in rule.key], rule.max_parallelism)
            yield from _taken(log, batch, groups.astype(np.int64) * width // rule.max_parallelism)

    def in_turn(self, log: Log, first: int, width: int) -> Iterable[tuple[int, Log]]:
        for batch in log.batches:
            yield from _taken(log, batch, (first + np.arange(batch.num_rows)) % width)
            first += batch.num_rows

    def count(self, log: Log) -> int:
        return log.facts.records if log.facts else sum(batch.num_rows for batch in log.batches)

    def alike(self, logs: Sequence[Log]) -> bool:
        if len({self.count(log) for log in logs}) > 1:
            return False
        if len({log.facts.file.sha256 for log in logs if log.facts and log.facts.file}) == 1:
            return True
        tables = [pa.Table.from_batches(log.batches) for log in logs]
        return all(table.equals(tables[0]) for table in tables[1:])


def _taken(log: Log, batch: pa.RecordBatch, owners: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Iterable[
    tuple[int, Log]
]:
    for owner in np.unique(owners).tolist():
        yield owner, log.piece([batch.take(pa.array(np.flatnonzero(owners == owner)))])


class Rerouting:
    """The logs of an epoch for the job `new`. parts: of the epoch; old: its job graph, `new` but for parallelism."""

    def __init__(self, storage: Storage, old: Topology, new: Topology, parts: Sequence[PartFacts]) -> None:
        self._storage = storage
        self._old = {op.id: op for op in old.operators}
        self._new = {op.id: op for op in new.operators}
        self._edges = new.edges
        self._by_edge: dict[tuple[str, str], dict[Pair, LogFacts]] = {}
        for facts in (log for part in parts for log in part.logs if log.records):
            channel = facts.channel
            pair = channel.sender.subtask, channel.receiver.subtask
            self._by_edge.setdefault(channel.edge, {})[pair] = facts

    def check(self) -> None:
        """NoRecovery if a log cannot be taken over, with the reason; reads the logs that have to be routed anew."""
        for edge in self._edges:
            self.routed(edge)

    def routed(self, edge: Edge) -> dict[Pair, list[Log]]:
        """The logs of an edge by new channel, in order; NoRecovery, and Damaged for a file that is not what was
        written."""
        facts = self._by_edge.get((edge.source, edge.target), {})
        logs = {pair: Log(self._storage, log) for pair, log in facts.items()}
        if not logs:
            return {}
        rule = rule_of(edge, self._old, self._new)
        if rule is None:
            raise self._refused(edge, "its receivers have no state key that would say where they belong, nor have its "
                                "senders")  # fmt: skip
        width = self._new[edge.source].parallelism, self._new[edge.target].parallelism
        try:
            routed = reroute(rule, logs, self._old[edge.target].parallelism, width, OnBatches())
        except MissingColumn as error:
            raise self._refused(edge, f"they have no column {error}, by which they would be routed") from None
        if routed is None:
            assert rule.how is How.COPY
            raise self._refused(edge, "not all receivers of the broadcast have the same before them")
        return routed

    def _refused(self, edge: Edge, reason: str) -> NoRecovery:
        before, after = self._old[edge.target].parallelism, self._new[edge.target].parallelism
        records = sum(log.records for log in self._by_edge[edge.source, edge.target].values())
        return NoRecovery(
            f"the {records} in-flight records of the epoch on the {edge.partition} edge {edge.name} "
            f"cannot be redistributed from {before} to {after} tasks of {edge.target}: {reason}",
            path=self._storage.root,
            hint="resume with the parallelism of the epoch and --policy aligned, and wait for the next complete "
            "epoch; then rescale from that epoch, which has no in-flight records on regular channels",
        )
