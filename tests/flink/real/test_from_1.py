"""What `validate --for` says of state that Flink 1.20 wrote, and what a real Flink 2.3 makes of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from formats.errors import FormatError, NotFound
from formats.flink.connectors.committables import committables
from formats.flink.ids import operator_id
from formats.flink.store import FlinkStore
from tests.support import kafka
from tests.support.commands import result_of, run_command
from tests.support.flink.java import PATIENCE, SOURCES, java_job
from tests.support.flink.venv import VERSION, flink_jars
from tests.support.java import compile_java
from tests.support.maven import jars
from tests.support.schemas import checked

pytestmark = [
    pytest.mark.soak,
    pytest.mark.usefixtures("jvm"),
    pytest.mark.minutes,
    pytest.mark.skipif(shutil.which("javac") is None, reason="there is no Java compiler"),
]

FLINK_1 = "1.20.5"
CONNECTOR_1 = "org.apache.flink:flink-connector-kafka:3.4.0-1.20"
CONNECTOR_2 = "org.apache.flink:flink-connector-kafka:5.0.0-2.2"
BASE_1 = f"org.apache.flink:flink-connector-base:{FLINK_1}"
REFUSED = "must not be incompatible"
"""What Flink says of state that the new serializer does not read."""
RECORDS = 300
ORDERS, POSITIONS = operator_id("orders"), "topic-partition-offset-states"
UIDS = ("orders", "slow", "topic", "files")
SLOW, FAST = 20, 1
"""Milliseconds that a record takes: so many that it is stopped halfway, and so few that the rest takes seconds."""


def flink_1(*more: str) -> list[Path]:
    """The jars of Flink 1.20, and further ones."""
    return list(jars(f"org.apache.flink:flink-clients:{FLINK_1}", *more))


def flink_2(*more: str) -> list[Path]:
    """The jars of Flink 2.3, and further ones."""
    others = jars(*more) if more else ()
    return [*flink_jars(), *(jar for jar in others if not jar.name.startswith(("flink-core", "flink-annotations")))]


def compiled(folder: Path, class_path: list[Path], **sources: str) -> str:
    """The class path that a job runs with. sources: by name of the class, `shop_Order` for shop.Order."""
    files = []
    for name, text in sources.items():
        path = folder / "sources" / f"{name.replace('_', '/')}.java"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        files.append(path)
    compile_java(folder / "classes", class_path, *files, sources=SOURCES)
    return os.pathsep.join(map(str, [folder / "classes", *class_path]))


def source(name: str) -> str:
    return (SOURCES / f"{name}.java").read_text()


Reasons = dict[tuple[str, str], list[dict[str, Any]]]


def asked(capsys: pytest.CaptureFixture[str], snapshot: Path) -> tuple[int, Reasons]:
    """Exit code, and the reasons for each state of an operator."""
    uids = [word for uid in ("keep", *UIDS) for word in ("--uid", uid)]
    code, out, _ = run_command("validate", capsys, snapshot, "--for", f"flink:{VERSION}", *uids, "-o", "json")
    return code, {(state["operator"], state["state"]): state["reasons"] for state in checked(out)["states"]}


def halfway(
    process: subprocess.Popen[bytes], log: Path, checkpoints: Path, enough: Callable[[FlinkStore], bool]
) -> Path:
    """The newest checkpoint of a job once it is far enough; the job is killed then."""
    until = time.monotonic() + PATIENCE
    while True:
        for path in sorted(checkpoints.glob("*/chk-*/_metadata"), key=lambda path: -path.stat().st_mtime):
            try:
                if enough(FlinkStore(str(path.parent))):
                    process.kill()
                    process.wait()
                    return path.parent
            except (FormatError, NotFound, OSError):  # a job drops its oldest
                continue
        assert process.poll() is None, log.read_text(errors="replace")[-3000:]
        assert time.monotonic() < until, "no checkpoint in time"
        time.sleep(0.1)


# -- collections in Pojos ---------------------------------------------------------------------------------


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("List<String>", 'new java.util.ArrayList<>(java.util.Arrays.asList("a", "b"))'),
        ("Set<String>", 'new java.util.HashSet<>(java.util.Arrays.asList("a", "b"))'),
        ("Map<String, Long>", 'new java.util.HashMap<>(java.util.Collections.singletonMap("a", 7L))'),
        ("Collection<String>", 'new java.util.ArrayList<>(java.util.Arrays.asList("a", "b"))'),
    ],
)
def test_a_collection_in_a_pojo_does_not_go_from_1_to_2(
    kind: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    order = f"package shop;\npublic class Order {{ public long id; public java.util.{kind} items = {value}; }}\n"

    def run(folder: Path, class_path: list[Path], *options: str) -> tuple[int, str]:
        job = compiled(folder, class_path, OrderJob=source("OrderJob"), shop_Order=order)
        with java_job(job, folder / "log", "OrderJob", folder / "savepoints", *options) as process:
            code = process.wait(PATIENCE)
        return code, (folder / "log").read_text(errors="replace")

    code, log = run(tmp_path / "before", flink_1())
    assert code == 0, log[-3000:]
    (savepoint,) = (tmp_path / "before" / "savepoints").iterdir()
    code, reasons = asked(capsys, savepoint)
    (why,) = reasons["keep", "order"]
    name = kind.partition("<")[0]
    assert (code, why["rule"], why["path"]) == (
        3, "collection-serializer", f"value: PojoSerializer.items -> KryoSerializer (java.util.{name})",
    )  # fmt: skip
    assert reasons["keep", "count"] == []
    code, log = run(tmp_path / "after", flink_2(), f"execution.state-recovery.path=file://{savepoint}")
    assert (code != 0, "TOUCHED" in log) == (True, False), log[-3000:]
    assert REFUSED in log


# -- sources and sinks of the old kind --------------------------------------------------------------------


def test_a_sink_of_files_goes_from_1_to_2_with_its_class_in_another_package(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each number is in just one file that was committed, though the first job was killed with files pending."""
    package = "org.apache.flink.streaming.api.functions.sink.filesystem"
    job, log = tmp_path / "job", tmp_path / "log"
    before = compiled(
        tmp_path / "before", flink_1(f"org.apache.flink:flink-connector-files:{FLINK_1}"),
        FilesJob=source("FilesJob").replace("PACKAGE", package),
    )  # fmt: skip

    def enough(store: FlinkStore) -> bool:
        epoch = store.resolve(None)
        subtasks = [one for operator in store.metadata(epoch).operators for one in operator.subtasks]
        return len([one for task in subtasks for one in committables(task, store.streams(epoch)) or ()]) == 2

    with java_job(before, log, "FilesJob", job, RECORDS, SLOW) as first:
        checkpoint = halfway(first, log, job / "ck", enough)
    _, reasons = asked(capsys, checkpoint)
    assert {state for operator, state in reasons if operator == "files"} == {"bucket-states", "max-part-counter"}
    assert reasons["files", "max-part-counter"] == []
    assert [(why["rule"], why["verdict"]) for why in reasons["files", "bucket-states"]] == [
        ("file-sink-function", "restores")
    ]
    after = compiled(tmp_path / "after", flink_2(), FilesJob=source("FilesJob").replace("PACKAGE", f"{package}.legacy"))
    again = tmp_path / "again.log"
    start = f"execution.state-recovery.path=file://{checkpoint}"
    with java_job(after, again, "FilesJob", job, RECORDS, FAST, start) as second:
        assert second.wait(PATIENCE) == 0, again.read_text(errors="replace")[-3000:]
    files = [path for path in (job / "files").rglob("part-*") if path.is_file()]
    assert sorted(int(line) for path in files for line in path.read_text().split()) == list(range(RECORDS))


def test_a_sink_of_two_phases_does_not_go_from_1_to_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Though Flink 2 has its class in another package: the class of its serializer's snapshot was of the old one."""
    package = "org.apache.flink.streaming.api.functions.sink"
    job, log = tmp_path / "job", tmp_path / "log"
    before = compiled(tmp_path / "before", flink_1(), TwoPhaseJob=source("TwoPhaseJob").replace("PACKAGE", package))

    def enough(store: FlinkStore) -> bool:
        return any(state.name == "state" for state in store.states(store.resolve(None)))

    with java_job(before, log, "TwoPhaseJob", job, 100_000, SLOW) as first:
        checkpoint = halfway(first, log, job / "ck", enough)
    code, reasons = asked(capsys, checkpoint)
    assert (code, {why["rule"] for why in reasons["topic", "state"]}) == (3, {"two-phase-commit-sink"})
    after = compiled(
        tmp_path / "after", flink_2(), TwoPhaseJob=source("TwoPhaseJob").replace("PACKAGE", f"{package}.legacy")
    )
    again = tmp_path / "again.log"
    start = f"execution.state-recovery.path=file://{checkpoint}"
    with java_job(after, again, "TwoPhaseJob", job, 100_000, FAST, start) as second:
        assert second.wait(PATIENCE) == 1
    text = again.read_text(errors="replace")
    assert f"{package}.TwoPhaseCommitSinkFunction$StateSerializerSnapshot" in text, text[-3000:]
    assert "COMMIT" not in text


def test_a_source_and_a_sink_of_kafka_of_the_old_kind_do_not_go_from_1_to_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their classes are in no connector for Flink 2, and those of the connector for Flink 1 do not load there."""
    (tmp_path / "broker").mkdir()
    job, log = tmp_path / "job", tmp_path / "log"
    before = compiled(tmp_path / "before", flink_1(CONNECTOR_1, BASE_1), FunctionsJob=source("FunctionsJob"))

    def enough(store: FlinkStore) -> bool:
        epoch = store.resolve(None)
        rows = [row for batch in store.state(epoch, ORDERS, POSITIONS) for row in batch.to_pylist()]
        return len(rows) == 2 and all((row["value"]["next"] or 0) > 20 for row in rows)

    with kafka.running(tmp_path / "broker") as broker:
        broker.make("orders", 2)
        broker.make("out", 1)
        broker.send("orders", {0: range(RECORDS), 1: range(RECORDS)})
        with java_job(before, log, "FunctionsJob", broker.address, job, SLOW) as first:
            checkpoint = halfway(first, log, job / "ck", enough)
        code, reasons = asked(capsys, checkpoint)
        rules = {place: {why["rule"] for why in whys} for place, whys in reasons.items()}
        assert code == 3
        assert rules["orders", POSITIONS] >= {"source-function"}
        assert rules["topic", "next-transactional-id-hint-v2"] >= {"sink-function"}
        assert rules["topic", "state"] == {"sink-function"}
        lags = result_of("inspect", capsys, checkpoint, "--uid", "orders", "--broker", broker.address)
        at = {split["split"]: split for split in lags["splits"]}
        rows = result_of("state", capsys, checkpoint, "--uid", "orders", "orders")["rows"]
        stood = {row["value"]["split"]: row["value"]["next"] for row in rows}
        assert set(stood) == {"orders-0", "orders-1"}
        assert {name: (one["offset"], one["lag"]) for name, one in at.items()} == {
            name: (offset, None if offset is None else RECORDS - offset) for name, offset in stood.items()
        }
        again = tmp_path / "again.log"
        start = f"execution.state-recovery.path=file://{checkpoint}"
        classes = f"{tmp_path / 'before' / 'classes'}{os.pathsep}{os.pathsep.join(map(str, flink_2(CONNECTOR_1)))}"
        with java_job(classes, again, "FunctionsJob", broker.address, job, FAST, start) as second:
            assert second.wait(PATIENCE) == 1
    text = again.read_text(errors="replace")
    assert "NoClassDefFoundError" in text or "ClassNotFoundException" in text, text[-3000:]
    there = [name for path in jars(CONNECTOR_2) if "connector-kafka" in path.name for name in ZipFile(path).namelist()]
    assert any(name.endswith("/KafkaSource.class") for name in there)
    assert not any(name.endswith(("/FlinkKafkaConsumer.class", "/FlinkKafkaProducer.class")) for name in there)
