"""A real Spark query with its checkpoint in a bucket of Ceph's RGW: read, gone back in, and gone on with from the copy,
in the bucket."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from formats.storage import ObjectStorage
from tests.support.commands import answer_of
from tests.support.objects.fixtures import Servers, use
from tests.support.objects.places import bucket_place
from tests.support.spark import cases, s3a, words

pytestmark = pytest.mark.minutes

CASES: dict[str, dict[str, str]] = {
    "renamed": {},
    "streamed": {**s3a.STREAMS, cases.PROVIDER: cases.ROCKS, cases.CHANGELOG: "true",
                 "spark.sql.streaming.stateStore.minDeltasForSnapshot": "100"},
}  # fmt: skip
"""With the manager of checkpoint files that renames, and the one for object stores."""


def left_behind(storage: ObjectStorage) -> set[str]:
    """What writes leave that were cut off before they were renamed."""
    names = {
        f"offsets/.9.{uuid.uuid4()}.tmp", f"commits/.0.{uuid.uuid4()}.tmp", f"state/0/0/.4.delta.{uuid.uuid4()}.tmp",
        f"state/0/1/temp-{uuid.uuid4()}",
    }  # fmt: skip
    for name in names:
        storage.put(name, b"half of")
    return names


@pytest.mark.parametrize("case", CASES)
def test_a_query_goes_on_exactly_from_a_copy_in_the_bucket(
    case: str, servers: Servers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = use(servers.get("S3 by Ceph RGW"), monkeypatch)
    root = str(bucket_place(server).root)
    source = tmp_path / "in"
    words.add_files(source, range(3))
    s3a_root = root.replace("s3:", "s3a:")
    assert s3a.run(server, source, f"{s3a_root}/query", CASES[case]) == words.counts(source)
    temporary = left_behind(ObjectStorage(f"{root}/query"))

    def ask(command: str, *args: object, code: int = 0) -> Any:
        return answer_of(command, capsys, *args, code=code)

    reports = [ask("validate", f"{scheme}{root[2:]}/query") for scheme in ("s3", "s3a", "s3p")]
    for report in reports:
        assert report["latest_restorable"] == 2
        assert {finding["code"] for one in report["epochs"] for finding in one["findings"]} == set()
    state = ask("state", f"{root}/query@2")
    assert {row["word"]: row["count"] for row in state["rows"]} == words.counts(source)
    (job,) = ask("inspect", root)["jobs"]
    assert (job["latest_restorable"]["epoch"], job["latest_restorable"]["written"] is not None) == (2, True)
    plan = tmp_path / "plan.json"
    ask("plan-recovery", f"{root}/query@1", "--out", plan)
    done = ask("restore", plan, "--store", f"{root}/query", "--to", f"{s3a_root}/copy")
    assert done["batch"] == 1
    copy = ObjectStorage(f"{root}/copy")
    assert not {name.rpartition(".")[2] for name in temporary} & {file.path for file in copy.inventory()}
    assert ask("validate", f"{root}/copy")["latest_restorable"] == 1
    words.add_files(source, range(3, 4))
    assert s3a.run(server, source, f"{s3a_root}/copy", CASES[case]) == words.counts(source)
    assert ask("validate", f"{root}/copy")["latest_restorable"] == 3
