"""A real Spark query with its checkpoint on a real HDFS, by Spark's own client: read through WebHDFS, gone back in, and
gone on with from the copy there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import answer_of
from tests.support.objects.fixtures import Servers, use
from tests.support.objects.hdfs import Hdfs
from tests.support.objects.places import bucket_place
from tests.support.spark import s3a, words

pytestmark = pytest.mark.minutes

HERE = {"HADOOP_CONF_DIR": ""}
"""Of Spark, so that paths without a scheme are of this machine; its checkpoint has one."""


@pytest.mark.soak
def test_a_query_goes_on_exactly_from_a_copy_there(
    servers: Servers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = use(servers.get("HDFS"), monkeypatch)
    assert isinstance(server, Hdfs)
    root = str(bucket_place(server).root)
    path = root.partition(server.at)[2]
    source = tmp_path / "in"
    words.add_files(source, range(3))
    assert s3a.in_a_process(source, f"{root}/query", {}, HERE) == words.counts(source)

    def ask(command: str, *args: object) -> Any:
        return answer_of(command, capsys, *args, code=0)

    for uri in (root, f"webhdfs://127.0.0.1:{server.port}/{path}", f"hdfs:///{path}"):
        report = ask("validate", f"{uri}/query")
        assert report["latest_restorable"] == 2
        assert {finding["code"] for one in report["epochs"] for finding in one["findings"]} == set()
    assert {row["word"]: row["count"] for row in ask("state", f"{root}/query@2")["rows"]} == words.counts(source)
    (job,) = ask("inspect", root)["jobs"]
    assert (job["latest_restorable"]["epoch"], job["latest_restorable"]["written"] is not None) == (2, True)
    plan = tmp_path / "plan.json"
    ask("plan-recovery", f"{root}/query@1", "--out", plan)
    assert ask("restore", plan, "--store", f"{root}/query", "--to", f"{root}/copy")["batch"] == 1
    assert ask("validate", f"{root}/copy")["latest_restorable"] == 1
    words.add_files(source, range(3, 4))
    assert s3a.in_a_process(source, f"{root}/copy", {}, HERE) == words.counts(source)
    assert ask("validate", f"{root}/copy")["latest_restorable"] == 3
