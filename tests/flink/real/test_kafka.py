"""A real Flink reads a real Kafka on where a copy of its checkpoint says, and commits what its sinks had pending."""

from __future__ import annotations

import re
import shutil
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from formats.errors import FormatError, NotFound
from formats.flink.connectors.committables import Committable, committables
from formats.flink.connectors.split_kinds import Split
from formats.flink.connectors.splits import splits
from formats.flink.store import FlinkStore
from tests.support import kafka
from tests.support.commands import result_of, run_command
from tests.support.flink.java import PATIENCE, compiled, java_job
from tests.support.maven import jars
from tests.support.schemas import checked

pytestmark = [
    pytest.mark.usefixtures("jvm"),
    pytest.mark.minutes,
    pytest.mark.skipif(shutil.which("javac") is None, reason="there is no Java compiler"),
]

CONNECTOR = "org.apache.flink:flink-connector-kafka:5.0.0-2.2"
RECORDS = 300
SLOW, FAST = 20, 1
"""Milliseconds that a record takes: so many that it is stopped halfway, and so few that the rest takes seconds."""


def held(folder: Path) -> tuple[dict[str, Split], list[Committable]]:
    """The splits by id, and what the sinks have still to commit."""
    store = FlinkStore(str(folder))
    epoch = store.resolve(None)
    at = store.streams(epoch)
    subtasks = [subtask for operator in store.metadata(epoch).operators for subtask in operator.subtasks]
    return (
        {one.id or "?": one for subtask in subtasks for one in splits(subtask, at) or ()},
        [one for subtask in subtasks for one in committables(subtask, at) or ()],
    )


def halfway(checkpoints: Path) -> Path | None:
    """A checkpoint in which some of two partitions was read, and what was written of it is not committed yet."""
    for path in sorted(checkpoints.glob("*/chk-*/_metadata"), key=lambda path: -path.stat().st_mtime):
        try:
            found, pending = held(path.parent)
        except (FormatError, NotFound, OSError):  # a job drops its oldest
            continue
        begun = [split for split in found.values() if 20 < (split.next or 0) < RECORDS - 20]
        if len(begun) >= 2 and len(found) == 3 and {one.kind for one in pending} == {"kafka", "file"}:
            return path.parent
    return None


def read_to_the_end(checkpoints: Path) -> bool:
    """Whether a checkpoint was taken after the last record of each partition that is left was read."""
    for path in checkpoints.glob("*/chk-*/_metadata"):
        try:
            found, _ = held(path.parent)
        except (FormatError, NotFound, OSError):
            continue
        if all(split.next == RECORDS for split in found.values()):
            return True
    return False


def records(log: Path) -> dict[str, list[int]]:
    """The numbers that were read, by partition."""
    by_partition: dict[str, list[int]] = defaultdict(list)
    for partition, number in re.findall(r"RECORD (\d+) (\d+)", log.read_text(errors="replace")):
        by_partition[f"orders-{partition}"].append(int(number))
    return {partition: sorted(numbers) for partition, numbers in by_partition.items()}


def test_flink_reads_kafka_on_where_the_copy_says_and_commits_what_was_pending(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("broker", "job"):
        (tmp_path / name).mkdir()
    more = [jar for jar in jars(CONNECTOR) if not jar.name.startswith(("flink-core", "flink-annotations"))]
    class_path = compiled(tmp_path / "classes", "KafkaJob.java", more=more)
    with kafka.running(tmp_path / "broker") as broker:
        log = tmp_path / "first.log"
        with java_job(class_path, log, "KafkaJob", broker.address, tmp_path / "job", SLOW, "make") as first:
            until = time.monotonic() + PATIENCE
            while (checkpoint := halfway(tmp_path / "job" / "ck")) is None:
                assert first.poll() is None, log.read_text(errors="replace")[-3000:]
                assert time.monotonic() < until, "no checkpoint in time"
                time.sleep(0.1)
            first.kill()
            first.wait()

        before, pending = held(checkpoint)
        raw: dict[str, Any] = result_of("inspect", capsys, checkpoint)["raw"]
        (source,) = [one for one in raw["operators"] if one["operator-uid"] == "orders"]
        assert (source["enumerator"]["kind"], source["enumerator"]["assigned"]) == ("kafka", 3)
        gone, other, *rest = sorted(before, key=lambda name: -(before[name].next or 0))
        changes, copy = tmp_path / "changes.yaml", tmp_path / "copy"
        changes.write_text(
            f"version: 1\nremoved: [{{operator: orders, split: {gone}}}]\n"
            f"set: [{{operator: orders, split: {other}, position: {RECORDS - 10}}}]\n"
        )
        done = result_of("rewrite", capsys, checkpoint, "--changes", changes, "--to", copy)
        assert [change["no_effect"] for change in done["changes"]] == [None, None]
        shutil.rmtree(tmp_path / "job" / "ck")  # the copy has to do on its own

        again, later = tmp_path / "again.log", tmp_path / "job" / "ck"
        start = f"execution.state-recovery.path=file://{copy}"
        wanted = {other: list(range(RECORDS - 10, RECORDS))}
        for name in rest:
            wanted[name] = list(range(max(before[name].next or 0, 0), RECORDS))
        # a source of Kafka that was restored is not told that there will be no more splits: it does not end
        with java_job(class_path, again, "KafkaJob", broker.address, tmp_path / "job", FAST, "go on", start) as second:
            until = time.monotonic() + PATIENCE
            while not read_to_the_end(later):
                assert second.poll() is None, again.read_text(errors="replace")[-3000:]
                assert time.monotonic() < until, "not all was read in time"
                time.sleep(0.1)
        assert records(again) == wanted, f"nothing is read of {gone}"
        lags = result_of("inspect", capsys, copy, "--broker", broker.address)
        at = {one["split"]: (one["offset"], one["lag"], one["gap"]) for one in lags["splits"]}
        begins = {other: RECORDS - 10} | {name: before[name].next or 0 for name in rest}
        assert at == {gone: (None, RECORDS, None)} | {
            name: (None, None, None) if offset < 0 else (offset, RECORDS - offset, None)
            for name, offset in begins.items()
        }
        assert run_command("validate", capsys, copy, "--broker", broker.address, "-q")[0] == 0
        broker.drop("orders", {int(other.rpartition("-")[2]): RECORDS - 4})
        lags = result_of("inspect", capsys, copy, "--broker", broker.address)
        assert [(one["split"], one["dropped"]) for one in lags["splits"] if one["gap"]] == [(other, 6)]
        code, out, _ = run_command("validate", capsys, copy, "--broker", broker.address, "-o", "json")
        report = checked(out)
        (finding,) = (one for epoch in report["epochs"] for one in epoch["findings"])
        assert (code, finding["code"], finding["task"]) == (3, "input-missing", "orders/0")
        for one in pending:
            if one.kind == "file":
                assert Path(str(one.name).removeprefix("file:")).exists(), "the job that starts commits it"
