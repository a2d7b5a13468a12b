"""What a sink shows, and when: parts of epochs that were given up belong to the next one that is complete."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooLate
from pathlib import Path

import pyarrow as pa
import pytest

from abscli.engine.sinks.folder_sinks import FolderSink
from formats.job.model import Kind
from formats.native.sink import SinkFolder
from tests.support.jobs.small import operator

ID = "0" * 32
OUT = operator("out", Kind.SINK, 1, connector={"type": "jsonl", "path": "out"})


def rows(*values: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values)], names=["n"])


def test_an_epoch_is_not_durable_before_the_parts_of_given_up_epochs_that_it_names(tmp_path: Path) -> None:
    sink = FolderSink(OUT, 0, str(tmp_path), ID)
    sink.write(rows(1))
    slow = sink.cut(3)  # given up while its part is being written
    sink.write(rows(2))
    stage = sink.cut(4)
    assert [part.name for part in sink.parts] == ["part-00000-0000000003.jsonl", "part-00000-0000000004.jsonl"]
    with ThreadPoolExecutor(1) as pool:
        durable = pool.submit(stage)
        with pytest.raises(TooLate):
            durable.result(0.05)
        slow()
        assert durable.result(10) == sink.parts
    assert SinkFolder(str(tmp_path / "out")).staged().keys() == {(ID, part.name) for part in sink.parts}
    sink.commit(4)
    assert sink.cut(5)() == ()


def test_a_part_that_could_not_be_written_fails_every_epoch_that_names_it(tmp_path: Path) -> None:
    sink = FolderSink(OUT, 0, str(tmp_path), ID)
    sink.write(rows(1))
    lost = sink.cut(3)
    ((_, unnamed),) = SinkFolder(str(tmp_path / "out")).unfinished()
    (tmp_path / "out" / unnamed).unlink()
    sink.write(rows(2))
    stages = [lost, sink.cut(4), sink.cut(5)]
    for stage in stages:
        with pytest.raises(FileNotFoundError):
            stage()
