"""Data of other systems that people take for a store: it is named, and refused with the exit code of what is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.commands import run_command

FILES = {
    "the state directory of a Kafka Streams application": [
        ["0_0/.checkpoint", "0_0/.lock", "0_0/rocksdb/counts/CURRENT"],
        ["kafka-streams-process-metadata", "0_1/.lock"],
        ["orders-app/kafka-streams-process-metadata", "orders-app/0_0/.lock"],
        [".checkpoint", ".lock", "rocksdb/counts/CURRENT"],
    ],
    "the state directory of a Samza job": [
        ["counts/Partition_0/OFFSET-v2", "counts/Partition_0/CURRENT"],
        ["Partition 0/OFFSET", "Partition 1/OFFSET"],
        ["OFFSET-v2", "000004.sst"],
    ],
    "a set of Bytewax recovery partitions": [["part-0.sqlite3", "part-1.sqlite3"]],
    "a checkpoint of Spark Streaming (DStreams)": [
        ["checkpoint-1700000000000", "checkpoint-1700000005000.bk", "receivedBlockMetadata/log-1"]
    ],
    "a Delta table": [
        ["00000000000000000007.json"],
        ["_delta_log/00000000000000000000.json", "part-00000.snappy.parquet"],
    ],
    "an Iceberg table": [
        ["metadata/00000-8f3c.metadata.json", "data/00000-0.parquet"],
        ["metadata/version-hint.text", "metadata/v1.gz.metadata.json"],
    ],
    "a Hudi table": [[".hudi/hoodie.properties", "2026/01/01/a.parquet"]],
    "a Paimon table": [["schema/schema-0", "snapshot/LATEST", "bucket-0/data-0.orc"]],
}
CASES = [(what, files) for what, layouts in FILES.items() for files in layouts]


@pytest.mark.parametrize("command", ["inspect", "validate"])
@pytest.mark.parametrize(("what", "files"), CASES, ids=[f"{files[0]}" for _, files in CASES])
def test_a_directory_of_another_system_is_named(
    command: str, what: str, files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in files:
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).write_bytes(b"")
    code, out, err = run_command(command, capsys, tmp_path / "data")
    assert (code, out) == (10, "")
    assert f"is {what}, which abs does not read: " in err
    assert "hint: use " in err


@pytest.mark.parametrize(
    ("head", "what"),
    [
        (bytes.fromhex("aced00057372 0011") + b"java.util.HashMap\x05\x07", "the offsets file of Kafka Connect"),
        (b"SQLite format 3\x00\x10", "an SQLite database"),
    ],
)
def test_a_file_of_another_system_is_named(
    head: bytes, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "connect.offsets").write_bytes(head)
    code, out, err = run_command("inspect", capsys, tmp_path / "connect.offsets")
    assert (code, out) == (10, "")
    assert f"is {what}" in err


def test_other_directories_are_no_store_as_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "metadata").mkdir()
    (tmp_path / "notes.txt").write_text("a")
    code, _, err = run_command("inspect", capsys, tmp_path)
    assert code == 10
    assert "no store here; looked for" in err
