"""Checkpoints that a real Flink writes into a bucket of Ceph's RGW by either of its plug-ins: read, copied in the
bucket, and started from."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from abscli.api import open_store
from formats.flink.store import FlinkStore
from formats.storage import ObjectStorage
from tests.support.commands import answer_of
from tests.support.flink.java import PATIENCE, compiled, java_job
from tests.support.flink.starts import difference, starts
from tests.support.flink.venv import VERSION
from tests.support.maven import jars
from tests.support.objects.fixtures import Servers, use
from tests.support.objects.places import bucket_place
from tests.support.objects.servers import ObjectServer

pytestmark = [pytest.mark.minutes, pytest.mark.usefixtures("jvm")]


def options(server: ObjectServer) -> list[str]:
    """What both plug-ins are told."""
    return [
        f"s3.endpoint={server.environment['AWS_ENDPOINT_URL']}", "s3.endpoint.region=us-east-1",
        f"s3.access-key={server.environment['AWS_ACCESS_KEY_ID']}",
        f"s3.secret-key={server.environment['AWS_SECRET_ACCESS_KEY']}",
        "s3.path.style.access=true", "s3.path-style-access=true", "s3.connection.ssl.enabled=false",
        # Ceph of Debian 12 refuses an empty file that is signed chunk by chunk, as AWS' client does without TLS.
        "s3.signing-algorithm=AWS4UnsignedPayloadSignerType",
    ]  # fmt: skip


def held(log: Path, process: subprocess.Popen[bytes], folder: ObjectStorage) -> None:
    """Until a checkpoint is complete that was begun when all keys had their state."""
    until, first = time.monotonic() + PATIENCE, None
    while first is None or first >= newest(folder):
        text = log.read_text(errors="replace")
        assert process.poll() is None, text[-3000:]
        assert time.monotonic() < until, text[-3000:]
        if first is None and "HELD" in text:
            first = newest(folder) + 1  # one may be under way that was begun before
        time.sleep(0.3)


def newest(folder: ObjectStorage) -> int:
    """Number of the newest complete checkpoint of the job in a directory; 0 if there is none."""
    names = [file.path.split("/") for file in folder.inventory() if file.path.endswith("/_metadata")]
    return max((int(name[-2].removeprefix("chk-")) for name in names), default=0)


@pytest.mark.parametrize(("plugin", "scheme", "backend"), [("hadoop", "s3a", "hashmap"), ("presto", "s3p", "rocksdb")])
def test_flink_starts_from_a_copy_in_the_bucket(
    plugin: str, scheme: str, backend: str, servers: Servers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    class_path = compiled(
        tmp_path / "classes", "MatrixJob.java",
        more=jars(f"org.apache.flink:flink-s3-fs-{plugin}:{VERSION}", alone=True),
    )  # fmt: skip
    server = use(servers.get("S3 by Ceph RGW"), monkeypatch)
    root = str(bucket_place(server).root)
    flink_root = root.replace("s3:", f"{scheme}:")
    words = [*options(server), f"state.backend.type={backend}", "execution.checkpointing.incremental=true"]
    log = tmp_path / "log"
    with java_job(class_path, log, "MatrixJob", flink_root, "hold", *words) as process:
        held(log, process, ObjectStorage(f"{root}/ck"))

    def ask(command: str, *args: object) -> Any:
        return answer_of(command, capsys, *args)

    answers = [ask("inspect", f"{name}{root[2:]}/ck") for name in ("s3", "s3a", "s3p")]
    (job,) = answers[0]["jobs"]
    newest = job["latest_restorable"]
    assert newest["path"] == f"{root}/ck/{job['name']}/chk-{newest['epoch']}"
    assert newest["written"] is not None
    for name in ("s3", "s3a", "s3p"):
        # The newest alone: the job may have been killed while it removed an older one.
        report = ask("validate", f"{name}{root[2:]}/ck/{job['name']}@{newest['epoch']}")
        assert report["latest_restorable"] == newest["epoch"]
        assert [one["findings"] for one in report["epochs"] if one["epoch"] == newest["epoch"]] == [[]]
    plan = tmp_path / "plan.json"
    body = ask("plan-recovery", f"{root}/ck/{job['name']}", "--out", plan)["body"]
    assert body["in_place"]  # by its other name it has not moved
    done = ask("restore", plan, "--store", f"{root}/ck/{job['name']}", "--to", f"{flink_root}/copy")
    assert done["files"] == body["files"]
    assert done["command"].split()[3] == f"{flink_root}/copy"
    assert ask("validate", f"{root}/copy")["latest_restorable"] == newest["epoch"]
    copy = FlinkStore(f"{root}/copy")
    savepoint, text = starts(class_path, tmp_path / "started", f"{flink_root}/copy", backend, *options(server),
                             "execution.state-recovery.claim-mode=NO_CLAIM")  # fmt: skip
    assert savepoint is not None, text[-3000:]
    assert difference(copy, savepoint, "copied") is None
    # And from another layout of it, written in the bucket, with the other backend.
    other = "rocksdb" if backend == "hashmap" else "hashmap"
    open_store(f"{root}/copy").rewrite(None, layout="canonical", to=f"{root}/canonical")
    assert ObjectStorage(f"{root}/canonical").size("_metadata") is not None
    savepoint, text = starts(class_path, tmp_path / "again", f"{flink_root}/canonical", other, *options(server),
                             "execution.state-recovery.claim-mode=NO_CLAIM")  # fmt: skip
    assert savepoint is not None, text[-3000:]
    assert difference(copy, savepoint, "canonical") is None
