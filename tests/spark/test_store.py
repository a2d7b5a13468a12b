"""The view of a Spark checkpoint: epochs, operators, positions, and files of any bytes at all."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from abscli.stores.spark.verdict import check_spark
from formats.codec.sst import parse_sst
from formats.errors import FormatError, NotFound
from formats.ids import TaskId
from formats.spark.checkpoint import Checkpoint, is_spark
from formats.spark.checksums import check_hadoop_crc, check_spark_crc
from formats.spark.evidence.gathering import gather
from formats.spark.logs.offsets import parse_commit, parse_offsets
from formats.spark.logs.operators import parse_operator
from formats.spark.logs.sources import parse_sink, parse_source
from formats.spark.state.blocks import unpack as unpack_blocks
from formats.spark.state.records import parse_records
from formats.spark.state.rocks import parse_zip
from formats.spark.state.schema import parse_schema
from formats.spark.store import SparkStore
from formats.storage import LocalStorage, MemoryStorage
from formats.view import CheckpointStore, Position, Status
from tests.support.spark.data import CASES, Case, copy_of, unpack


def open_case(name: str) -> SparkStore:
    return SparkStore(LocalStorage(unpack(Case.of(name))))


def test_every_view_of_every_case_can_be_had() -> None:
    for case in CASES:
        store: CheckpointStore = SparkStore(LocalStorage(unpack(case)))
        for facts in store.epochs():
            detail = store.detail(facts.epoch)
            assert detail.facts == facts
            tasks = [task.task for operator in detail.operators for task in operator.tasks]
            assert len(tasks) == len(set(tasks))
            assert store.topology(facts.epoch) is None
            json.dumps(store.raw(facts.epoch))
            store.states(facts.epoch)


def test_a_batch_in_flight_is_in_progress_and_names_its_missing_tasks() -> None:
    last = open_case("killed_partial_state").epochs()[-1]
    assert (last.epoch, last.status, last.expected, last.acked) == (3, Status.IN_PROGRESS, 2, 1)
    assert last.missing == (TaskId("0", 1),)


def test_sources_are_operators_with_positions() -> None:
    source = open_case("file_compact").detail(5).operators[0]
    assert (source.id, source.name) == ("source-0", "file source")
    assert source.tasks[0].position == (Position("log", 5, None), Position("files", 6, None))
    assert [Path(file.path).name for file in source.tasks[0].files] == ["3.compact", "4", "5"]


def test_operators_have_sparks_names_rows_and_bytes() -> None:
    detail = open_case("multi_op").detail(3)
    assert [(op.id, op.name, op.parallelism) for op in detail.operators[1:]] == [
        ("0", "stateStoreSave", 2),
        ("1", "dedupe", 2),
    ]
    assert all(op.bytes and op.rows for op in detail.operators[1:])


def test_the_raw_words_of_a_batch() -> None:
    raw = open_case("wc_rocks_v2").raw(5)
    assert raw["provider"] == "rocksdb"
    assert raw["checkpoint_format"] == 2
    assert raw["readable"] == [0, 5]
    assert raw["in_flight"] is None
    assert [len(partition) for partition in raw["state_ids"]["0"]] == [1, 1]
    assert raw["sources"] == [{"source": "0", "kind": "file", "offset": '{"logOffset":5}', "start": '{"logOffset":4}'}]
    assert open_case("killed_partial_state").raw(3)["in_flight"] == 3


def test_sparks_reader_is_told_the_format_of_the_checkpoint() -> None:
    key = "spark.sql.streaming.stateStore.checkpointFormatVersion"
    assert [open_case(name).reader_conf()[key] for name in ("wc_hdfs", "wc_rocks_v2")] == ["1", "2"]


def test_a_checkpoint_that_was_never_committed_has_nothing_to_go_back_to(tmp_path: Path) -> None:
    root = copy_of("killed_partial_state", tmp_path)
    for path in [*root.glob("commits/*"), *root.glob("offsets/[123]")]:
        path.unlink()
    store = SparkStore(LocalStorage(root))
    assert [(facts.epoch, facts.status) for facts in store.epochs()] == [(0, Status.IN_PROGRESS)]
    assert store.latest() is None
    assert check_spark(gather(store.checkpoint)).latest_restorable is None


def test_epochs_and_raw_load_neither_pyarrow_nor_numpy() -> None:
    path = unpack(Case.of("wc_rocks"))
    code = (
        "import sys\nfrom formats.spark.store import SparkStore\nfrom formats.storage import LocalStorage\n"
        f"store = SparkStore(LocalStorage({str(path)!r}))\nstore.epochs()\nstore.raw(3)\n"
        "assert not {'pyarrow', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_is_no_checkpoint_is_not_taken_for_one(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    assert not is_spark(LocalStorage(tmp_path))
    with pytest.raises(NotFound, match="no Spark checkpoint here"):
        SparkStore(MemoryStorage())
    (tmp_path / "metadata").write_text('{"id":"x"}')
    assert is_spark(LocalStorage(tmp_path))


def test_offsets_of_version_2_have_names() -> None:
    head = b'v2\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}\n'
    said = parse_offsets(head + b'left:{"logOffset":3}\nright:-', "x")
    assert said.sources == {"left": '{"logOffset":3}', "right": None}


PARSERS = {
    "offsets": (lambda data: parse_offsets(data, "x"), "wc_hdfs", "offsets/6"),
    "commit": (lambda data: parse_commit(data, "x"), "wc_hdfs", "commits/6"),
    "commit of format 2": (lambda data: parse_commit(data, "x"), "wc_rocks_v2", "commits/5"),
    "source log": (lambda data: parse_source(data, "x"), "file_compact", "sources/0/3.compact"),
    "sink log": (lambda data: parse_sink(data, "x"), "file_compact", "sources/0/5"),
    "operator": (lambda data: parse_operator(data, "x", 0), "ss_join", "state/0/_metadata/metadata"),
    "operator of version 2": (lambda data: parse_operator(data, "x", 0), "tws_row", "state/0/_metadata/v2/0"),
    "schema": (lambda data: parse_schema(data, "x"), "wc_hdfs", "state/0/0/_metadata/schema"),
    "schema of version 3": (lambda data: parse_schema(data, "x"), "tws_row", "state/0/_stateSchema/default/0_*"),
    "lz4": (lambda data: unpack_blocks(data, "x"), "wc_hdfs", "state/0/0/7.delta"),
    "zstd": (lambda data: unpack_blocks(data, "x"), "wc_hdfs_zstd", "state/0/0/2.delta"),
    "zip": (lambda data: parse_zip(data, "x"), "wc_rocks", "state/0/0/4.zip"),
    "sst": (lambda data: parse_sst(data, "x"), "wc_rocks", "state/0/0/SSTs/*.sst"),
    "hadoop": (lambda data: check_hadoop_crc(b"{}", data, "x"), "wc_hdfs", "offsets/.6.crc"),
    "sparks sum": (lambda data: check_spark_crc(b"{}", data, "x"), "wc_rocks_v2", "state/0/0/6_*.zip.crc"),
    "delta": (lambda data: parse_records(data, "x", changelog=False), "wc_hdfs", "state/0/0/7.delta"),
    "changelog 2": (lambda data: parse_records(data, "x", changelog=True), "tws_row", "state/0/0/2.changelog"),
    "changelog 3": (lambda data: parse_records(data, "x", changelog=True), "ids_v2", "state/0/0/3_*.changelog"),
}


@pytest.mark.parametrize("name", PARSERS)
def test_files_cut_short_or_flipped_are_refused_with_an_error_of_ours(name: str) -> None:
    """Cut at every length (of long files, at 500), flipped in 400 places: an error of `formats.errors` or an answer."""
    parse, case, path = PARSERS[name]
    data = next(p for p in sorted(unpack(Case.of(case)).glob(path)) if p.is_file()).read_bytes()
    if name.startswith(("delta", "changelog")):
        data = unpack_blocks(data, "x").data
    if name not in ("hadoop", "sparks sum"):
        parse(data)
    draw = random.Random(name)
    refused = 0
    cuts = range(len(data)) if len(data) <= 500 else sorted(draw.sample(range(len(data)), 500))
    for cut in cuts:
        refused += _refuses(parse, data[:cut])
    at_least = {"source log": 1, "sink log": 1}.get(name, 0.95 * len(cuts))  # a log of fewer lines may be whole
    assert refused >= at_least
    for _ in range(400):
        at, bit = draw.randrange(len(data)), draw.randrange(8)
        _refuses(parse, data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])


def _refuses(parse: object, data: bytes) -> bool:
    assert callable(parse)
    try:
        parse(data)
    except FormatError as error:
        return "\n" not in error.message
    return False


@pytest.mark.parametrize("name", ["tws_row", "ids_v2", "sessions_changelog", "types_zstd_checksummed", "ss_join"])
def test_whatever_byte_is_flipped_a_verdict_comes_out(name: str, tmp_path: Path) -> None:
    root = copy_of(name, tmp_path, sidecars=False)
    paths = sorted(path for path in root.rglob("*") if path.is_file())
    draw = random.Random(name)
    for _ in range(40):
        path = draw.choice(paths)
        good = path.read_bytes()
        at = draw.randrange(len(good))
        path.write_bytes(good[:at] + bytes([good[at] ^ 1 << draw.randrange(8)]) + good[at + 1 :])
        report = check_spark(gather(Checkpoint(LocalStorage(root))))
        assert all("\n" not in finding.message for finding in report.all_findings)
        SparkStore(LocalStorage(root)).epochs()
        path.write_bytes(good)
