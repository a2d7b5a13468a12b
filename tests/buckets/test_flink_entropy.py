"""Checkpoints that Flink wrote to S3 with entropy injection: each file of state below a random prefix of the bucket."""

from __future__ import annotations

from pathlib import Path

import pytest

from formats.storage import ObjectStorage
from tests.support.commands import answer_of, run_command
from tests.support.flink.cases import job_id_twice

ENTROPY = "_entropy_"


def put_with_entropy(job: Path, bucket: ObjectStorage) -> None:
    """Put chk-3 of a job as Flink does: `_metadata` below `ck`, the files that it shares below `RANDOM/ck`."""
    metadata = (job / "chk-3" / "_metadata").read_bytes()
    for file in (job / "shared").iterdir():
        below, random = f"ck/{job.name}/shared/{file.name}", f"{file.name[:8]}x"
        metadata = metadata.replace(f"{ENTROPY}/{below}".encode(), f"{random}/{below}".encode())
        bucket.put(f"{random}/{below}", file.read_bytes())
    assert ENTROPY.encode() not in metadata
    for file in (job / "chk-3").iterdir():
        data = metadata if file.name == "_metadata" else file.read_bytes()
        bucket.put(f"ck/{job.name}/chk-3/{file.name}", data)


def test_files_below_random_prefixes_of_the_bucket_are_found(
    moto_bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket = ObjectStorage(moto_bucket)
    job = job_id_twice(tmp_path, written=f"{moto_bucket.replace('s3:', 's3a:')}/{ENTROPY}/ck")
    put_with_entropy(job, bucket)
    place = f"{moto_bucket}/ck/{job.name}"
    answer = answer_of("validate", capsys, place)
    assert (answer["latest_restorable"], answer["epochs"][0]["findings"]) == (3, [])
    assert run_command("inspect", capsys, place, "--latest-restorable", "-q")[:2] == (0, f"{place}/chk-3\n")
    code, _, err = run_command("plan-recovery", capsys, place)
    assert (code, err.count("--search")) == (4, 1), "one directory is named for all files"
    assert f"--search {moto_bucket}" in err
    answer = answer_of("validate", capsys, place, "--search", moto_bucket)
    assert "unreadable" not in answer["epochs"][0]["why_unchecked"], "all files were read"
    plan = tmp_path / "plan.json"
    assert run_command("plan-recovery", capsys, place, "--search", moto_bucket, "--out", plan)[0] == 0
    stores = ["--store", place, "--store", moto_bucket]
    assert run_command("restore", capsys, plan, *stores, "--to", tmp_path / "copy")[0] == 0

    lost = next(file.path for file in bucket.inventory() if "/shared/" in file.path)
    name = lost.rpartition("/")[2]
    needed = name.encode() in (job / "chk-3" / "_metadata").read_bytes()
    bucket.delete(lost)
    answer = answer_of("validate", capsys, place, code=3 if needed else 0)
    assert any(name in (finding["path"] or "") for finding in answer["epochs"][0]["findings"]) == needed
