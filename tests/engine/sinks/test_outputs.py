"""What the driver asks of a store before an attempt begins to write into sinks."""

from __future__ import annotations

from pathlib import Path

import pytest

from abscli.engine.sinks.outputs import Outputs
from formats.job.model import Edge, Kind, Operator, Partition, Topology
from formats.native.facts import PartFacts, SinkFile, TriggerFacts, digest, header
from formats.native.sink import part_name
from formats.native.store import NativeStore
from formats.native.writer import complete, put_trigger
from formats.timestamps import now
from tests.support.stores.large import Synthetic
from tests.support.stores.small import FIRST


def a_store_with_sinks(path: Path, sinks: int, epochs: int) -> tuple[Outputs, NativeStore]:
    """A job of so many sinks, each of which has shown a part in every epoch."""
    writing = Synthetic(str(path / "store"), 1)
    names = [f"out{i}" for i in range(sinks)]
    for name in names:
        (path / name).mkdir()
    line = b'{"n": 1}\n'
    for epoch in range(1, epochs + 1):
        trigger = TriggerFacts(
            epoch=epoch, parent=epoch - 1, attempt=1, generation=1, policy="aligned",
            topology_sha256=writing.sha256, triggered=now(), attempt_id=FIRST, **header(TriggerFacts),
        )  # fmt: skip
        put_trigger(writing.storage, trigger)
        part = part_name(0, epoch)
        for name in names:
            (path / name / part).write_bytes(line)
        parts = [
            writing.part(epoch, f"{name}/0", sink=(SinkFile(name, part, len(line), 1, digest(line)),))
            for name in names
        ]
        complete(writing.storage, trigger, writing.topology.job, tuple(parts), idle=False)
    operators = [Operator("lines", Kind.SOURCE, 1, 1, connector={"type": "text", "path": "in/*"})]
    operators += [Operator(name, Kind.SINK, 1, 1, connector={"type": "jsonl", "path": name}) for name in names]
    graph = Topology("synthetic", tuple(operators), tuple(Edge("lines", name, Partition.FORWARD) for name in names))
    return Outputs(graph, str(path), take_ownership=True), NativeStore(writing.storage)


def test_what_epochs_name_is_read_once_for_all_sinks_of_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outputs, store = a_store_with_sinks(tmp_path, sinks=4, epochs=3)
    read: list[int] = []
    plain = NativeStore.parts

    def parts(self: NativeStore, epoch: int) -> tuple[PartFacts, ...]:
        read.append(epoch)
        return plain(self, epoch)

    monkeypatch.setattr(NativeStore, "parts", parts)
    examined = outputs.examine(store, 3).files
    assert read == [1, 2, 3]
    due = {part_name(0, epoch) for epoch in (1, 2, 3)}
    assert [{name for _, name in one.wanted.due} for one in examined] == [due] * 4
