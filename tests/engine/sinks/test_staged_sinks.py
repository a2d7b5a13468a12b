"""Rows of a sink that lie in the store until the driver has written them: what tasks stage, and what is due."""

from __future__ import annotations

import pyarrow as pa
import pytest
from msgspec.structs import replace

from abscli.engine.errors import EngineStopped
from abscli.engine.sinks.delivered.asking import delivery_of, markers_of
from abscli.engine.sinks.part_files import JsonLinesPart
from abscli.engine.sinks.staged.contract import StagedInStore
from abscli.engine.sinks.staged.printed import Printed, print_with
from abscli.engine.sinks.staged.sink import StagedSink, Staging
from abscli.planner.target import undelivered
from formats.errors import Damaged
from formats.ids import EpochId
from formats.job.model import Kind, Operator
from formats.native.facts import SinkFile
from formats.native.marks import forget_written, note_written
from formats.native.sink import PartId, Stretch
from formats.storage import MemoryStorage

ATTEMPT = "a" * 32
OUT = Operator("out", Kind.SINK, 2, 8, connector={"type": "stdout", "row_id": "id"})


def row(line: str) -> pa.RecordBatch:
    return pa.record_batch({"line": [line]})


def staged(storage: MemoryStorage, task: int, *cuts: tuple[int, str]) -> tuple[SinkFile, ...]:
    """What the last of some epochs names, where none of those before it was complete."""
    staging = Staging(storage, "stdout", lambda rows: None, JsonLinesPart)
    sink = StagedSink(OUT, task, ATTEMPT, lambda: None, staging=staging)
    files: tuple[SinkFile, ...] = ()
    for epoch, line in cuts:
        sink.write(row(line))
        files = sink.cut(epoch)()
    return files


def named(*files: SinkFile) -> dict[PartId, SinkFile]:
    return {PartId(ATTEMPT, file.name): file for file in files}


def test_an_epoch_that_was_given_up_has_its_rows_in_the_next_manifest() -> None:
    storage = MemoryStorage()
    files = staged(storage, 1, (4, "a"), (5, "b"), (6, "c"))
    delivery = delivery_of(storage, 6, "out", named(*files, *staged(storage, 0, (6, "d"))))
    assert delivery is not None
    assert [(part.id.epoch, part.id.task) for part in delivery.parts] == [(4, 1), (5, 1), (6, 0), (6, 1)]
    assert delivery.epoch == EpochId(ATTEMPT, 6)
    rows = []
    for part in delivery.parts:
        with delivery.open(part) as file:
            rows.append(file.read())
    assert rows == [f'{{"line":"{line}"}}\n'.encode() for line in "abdc"]


def test_rows_that_the_manifest_before_has_named_are_not_written_again() -> None:
    """A task stages the next epoch before it has heard that the one before is complete."""
    storage, line = MemoryStorage(), [Stretch(ATTEMPT, 1, 9)]
    files = staged(storage, 1, (4, "a"), (5, "b"), (6, "c"))
    named_by = [delivery_of(storage, n, "out", named(*files[: n - 3])) for n in (4, 5, 6)]
    deliveries = [delivery for delivery in named_by if delivery is not None]
    for newest in (0, 4, 5, 6):
        shown = [EpochId(ATTEMPT, newest)] if newest else []
        due = undelivered(deliveries, shown, line)
        parts = [part.id.epoch for delivery in due for part in delivery.parts]
        assert parts == [epoch for epoch in (4, 5, 6) if epoch > newest]


def test_a_task_that_takes_its_steps_again_stages_beside_what_it_had() -> None:
    storage = MemoryStorage()
    (first,), (again,) = staged(storage, 0, (4, "a")), staged(storage, 0, (4, "a"))
    assert first.staged != again.staged
    assert replace(first, staged=None) == replace(again, staged=None)


def test_rows_that_are_cut_short_or_changed_are_noticed() -> None:
    storage = MemoryStorage()
    (file,) = staged(storage, 0, (4, "a"))
    delivery = delivery_of(storage, 4, "out", named(file))
    assert delivery is not None
    assert StagedInStore().lost(delivery) == []
    storage.files[str(file.staged)] = b'{"line":"b"}\n'
    with pytest.raises(Damaged, match="staged rows: expected SHA-256"):
        delivery.open(delivery.parts[0])
    storage.files[str(file.staged)] = b""
    assert [part.file for part in StagedInStore().lost(delivery)] == [file]


def test_the_id_of_a_row_is_the_same_again_and_another_for_each() -> None:
    storage = MemoryStorage()
    printed: list[bytes] = []
    print_with(printed.append)
    delivery = delivery_of(storage, 6, "out", named(*staged(storage, 1, (4, "a"), (6, "b"))))
    assert delivery is not None
    Printed(OUT).publish(delivery)
    once = b"".join(printed)
    assert once.splitlines() == [
        f'{{"id":"{ATTEMPT}-4-1-0","line":"a"}}'.encode(), f'{{"id":"{ATTEMPT}-6-1-0","line":"b"}}'.encode(),
    ]  # fmt: skip
    Printed(OUT).publish(delivery)
    assert b"".join(printed) == once * 2


def test_stdout_that_takes_nothing_stops_the_job() -> None:
    def full(data: bytes) -> None:
        raise OSError(28, "No space left on device")

    print_with(full)
    storage = MemoryStorage()
    delivery = delivery_of(storage, 4, "out", named(*staged(storage, 0, (4, "a"))))
    assert delivery is not None
    with pytest.raises(EngineStopped, match="No space left on device"):
        Printed(OUT).publish(delivery)


def test_the_store_remembers_for_a_target_that_does_not() -> None:
    storage, target = MemoryStorage(), Printed(OUT)
    assert markers_of(target, storage, ["out"]) == markers_of(target, None, ["out"]) == []
    note_written(storage, "out", EpochId(ATTEMPT, 4))
    note_written(storage, "out", EpochId(ATTEMPT, 6))
    assert markers_of(target, storage, ["out"]) == [EpochId(ATTEMPT, 6)]
    forget_written(storage, "out")
    assert markers_of(target, storage, ["out"]) == []
