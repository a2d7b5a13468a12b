"""Every command that works on our own stores, on one in a bucket: it answers as on a disk."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from abscli.cli.main import main
from formats.native import layout
from formats.storage import ObjectStorage, open_writable
from formats.storage.credentials import ENDPOINT, hadoop_configuration, s3_settings
from formats.storage.uploading import open_uploads
from tests.support.jobs.small import write_words
from tests.support.objects.fixtures import Servers, use
from tests.support.objects.hdfs import SITE
from tests.support.objects.places import bucket_place
from tests.support.objects.servers import ObjectServer, free_port
from tests.support.schemas import checked

pytestmark = pytest.mark.minutes

JOB = """version: 1
job: words
operators:
  lines:
    source: {type: text, path: in/*.txt}
  words:
    from: lines
    flat_map: splitting:words
  counts:
    from: {words: {partition: hash, key: [word]}}
    parallelism: 2
    reduce: {key: [word], emit: epoch, n: {count: "*"}}
  out:
    from: counts
    sink: {type: jsonl, path: %s}
"""
SPLITTING = """
import pyarrow as pa

def words(batch):
    return pa.record_batch({"word": [w for line in batch.column("line").to_pylist() for w in line.split()]})
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_words(tmp_path, lines=50)
    (tmp_path / "splitting.py").write_text(SPLITTING)
    (tmp_path / "job.yaml").write_text(JOB % "out")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "job.yaml"


@pytest.fixture
def bucket(s3: ObjectServer) -> str:
    return str(bucket_place(s3).root)


@pytest.fixture(params=["S3 by moto", "Azure by Azurite", "Google by a server in memory"])
def sink(request: pytest.FixtureRequest, servers: Servers, monkeypatch: pytest.MonkeyPatch) -> str:
    """A place for a sink in a bucket of each kind that has uploads."""
    return str(bucket_place(use(servers.get(request.param), monkeypatch)).root)


@pytest.fixture(params=["S3 by moto", "HDFS"])
def anywhere(request: pytest.FixtureRequest, servers: Servers, monkeypatch: pytest.MonkeyPatch) -> str:
    return str(bucket_place(use(servers.get(request.param), monkeypatch)).root)


class Abs:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: object, code: int = 0) -> str:
        ended = main([*map(str, words)])
        out, err = self._capsys.readouterr()
        assert ended == code, err
        assert "Traceback" not in err
        return out + err

    def json(self, *words: object, code: int = 0) -> dict[str, Any]:
        ended = main([*map(str, words), "-o", "json"])
        out, err = self._capsys.readouterr()
        assert ended == code, err
        answer: dict[str, Any] = json.loads(out)
        return answer


    def findings(self, store: str, job: Path | None = None) -> list[dict[str, Any]]:
        """All that validation finds, of the store and of its epochs. job: the job file whose sinks are asked."""
        main(["validate", store, "-o", "json", *([] if job is None else ["--job", str(job)])])
        answer = json.loads(self._capsys.readouterr().out)
        return [*answer["findings"], *(finding for epoch in answer["epochs"] for finding in epoch["findings"])]


@pytest.fixture
def abs_(capsys: pytest.CaptureFixture[str]) -> Abs:
    return Abs(capsys)


def run(abs_: Abs, job: Path, store: str, *more: object, code: int = 0) -> str:
    return abs_("run", job, "--store", store, "--engine", "inline", "--interval", "5ms", *more, code=code)


def test_commands_answer_as_on_a_disk(abs_: Abs, job: Path, anywhere: str) -> None:
    run(abs_, job, "here")
    (job.parent / "out").rename(job.parent / "out-of-here")
    run(abs_, job, anywhere)
    here, there = abs_.json("inspect", "here"), abs_.json("inspect", anywhere)
    assert there["store"] == anywhere
    assert there["epochs"]
    assert {epoch["status"] for epoch in there["epochs"]} == {epoch["status"] for epoch in here["epochs"]}
    for store in ("here", anywhere):
        assert abs_.findings(store) == []
    states = [sorted(map(str, abs_.json("state", store, "counts")["rows"])) for store in ("here", anywhere)]
    assert states[0] == states[1]
    assert len(states[0]) > 10
    assert "differ" not in abs_("diff", "here", anywhere).splitlines()[0]
    assert abs_.json("inspect", anywhere.replace("s3:", "s3a:"))["epochs"] == there["epochs"]


@pytest.mark.sample(1)
def test_a_job_is_gone_on_with_and_its_store_tidied_and_mended(abs_: Abs, job: Path, anywhere: str) -> None:
    run(abs_, job, anywhere, "--keep", "5")
    assert "--resume" in run(abs_, job, anywhere, code=2)
    run(abs_, job, anywhere, "--resume")
    run(abs_, job, anywhere, "--from-epoch", 1)
    storage = open_writable(anywhere)
    storage.put("epochs/0000000001/stray", b"1")
    assert [finding["path"] for finding in abs_.findings(anywhere)] == ["epochs/0000000001/stray"]
    removed = abs_.json("gc", anywhere, "--keep", 1, "--min-age", "0s", "--yes")
    assert removed["removed"]
    assert removed["kept"]
    assert storage.size("epochs/0000000001/stray") is None
    assert abs_.findings(anywhere) == []
    storage.delete(layout.STORE)
    abs_("inspect", anywhere, code=10)
    abs_("rebuild", anywhere, "--job", job, "--yes")
    assert abs_.findings(anywhere) == []
    storage.put(layout.STORE, b"garbage", replace=True)
    abs_("rebuild", anywhere, "--job", job, "--yes")
    assert open_writable(anywhere).read(f"quarantine/{layout.STORE}") == b"garbage"
    run(abs_, job, anywhere, "--resume")


@pytest.mark.sample(1)
def test_plans_are_made_and_carried_out_there(abs_: Abs, job: Path, anywhere: str) -> None:
    run(abs_, job, anywhere)
    abs_("plan-recovery", f"{anywhere}@1", "--out", "plan.json")
    words = ("restore", "plan.json", "--store", anywhere, "--job", job, "--engine", "inline", "--yes")
    abs_(*words, "--dry-run", "--to", f"{anywhere}-copy")
    said = abs_(*words, "--to", f"{anywhere}-copy")
    assert f"--store {anywhere}-copy --resume" in said
    assert abs_.findings(f"{anywhere}-copy") == []
    abs_(*words, code=2)  # the copy has taken the sink over
    abs_(*words, "--take-ownership")
    assert abs_.findings(anywhere) == []
    abs_(*words, "--to", "viewfs://cluster/x", code=2)


def test_a_rescale_is_published_there(abs_: Abs, job: Path, bucket: str) -> None:
    run(abs_, job, bucket)
    run(abs_, job, bucket, "--resume", "--parallelism", "counts=3")
    assert abs_.findings(bucket) == []


def test_who_is_waited_for_is_said_and_for_how_long(
    abs_: Abs, job: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A holder of another machine that has gone without a word."""
    run(abs_, job, bucket)
    storage = open_writable(bucket)
    (newest,) = storage.list(layout.LOCK)
    path = f"{layout.LOCK}/{newest.name}"
    claim = {**json.loads(storage.read(path)), "released": False, "machine": "another", "pid": 4711, "host": "gone",
             "seconds": 0.5}  # fmt: skip
    storage.put(path, json.dumps(claim).encode(), replace=True)
    said = run(abs_, job, bucket, "--resume", "--log-format", "json")
    (wait,) = [line for line in map(json.loads, re.findall(r"^{.*}$", said, re.MULTILINE))
               if line.get("event") == "waiting"]
    checked(wait)
    assert (wait["holder"], wait["store"], wait["seconds"]) == ("process 4711 on gone", bucket, 0.5)
    assert "waiting up to 0.5 s" in wait["message"]
    assert "waiting" not in run(abs_, job, bucket, "--resume")


def test_options_say_where_s3_answers_before_variables_do(
    abs_: Abs, job: Path, bucket: str, monkeypatch: pytest.MonkeyPatch, s3: ObjectServer
) -> None:
    endpoint = s3.environment["AWS_ENDPOINT_URL"]
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    run(abs_, job, bucket, "--endpoint", endpoint, "--region", "us-east-1")
    assert open_settings() == {"endpoint": endpoint, "region": "us-east-1"}
    assert abs_.json("inspect", bucket, "--endpoint", endpoint)["epochs"]
    assert open_settings() == {"endpoint": endpoint}
    Path("abs.toml").write_text(f'endpoint = "{endpoint}"\n')
    abs_("inspect", bucket, code=2)
    monkeypatch.setenv("ABS_CONFIG", "abs.toml")
    assert abs_.json("inspect", bucket)["epochs"]
    monkeypatch.delenv("ABS_CONFIG")
    Path("abs.toml").unlink()
    monkeypatch.setenv("ABS_ENDPOINT", endpoint)
    assert abs_.json("validate", bucket)["epochs"]
    abs_("validate", bucket, "--endpoint", "localhost:9000", code=2)


def test_a_job_of_one_process_leaves_it_to_the_variables_where_the_next_one_looks(
    abs_: Abs, job: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Workers on other hosts are told what the driver's Hadoop says; here it outlived the job that it was said for."""
    (tmp_path / "core-site.xml").write_text(SITE.format("fs.defaultFS", "hdfs://127.0.0.1:1"))
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    run(abs_, job, "here")
    assert hadoop_configuration({}) == {}


def open_settings() -> dict[str, str]:
    """What was said on the command line, as a client of S3 is told it and workers are."""
    settings = s3_settings({})
    sent = hadoop_configuration({})
    assert sent.get(ENDPOINT) == settings.get("endpoint")
    return {name: value for name, value in settings.items() if name in ("endpoint", "region")}


def test_commands_answer_of_a_job_whose_sink_lies_in_a_bucket(abs_: Abs, job: Path, sink: str) -> None:
    job.write_text(JOB % sink.replace("s3:", "s3a:").replace("az:", "abfs:"))
    run(abs_, job, "here", "--dry-run")
    run(abs_, job, "here")
    assert abs_.findings("here") == []
    shown = open_writable(sink).list("")
    assert any(entry.name.startswith("part-") for entry in shown)
    abs_("drill", "here", "--job", job, "--engine", "inline")
    abs_("copy", "here", "copied")
    assert open_writable(sink).list("") == shown  # neither touches what the job has put out
    assert abs_.findings("copied") == []
    abs_("plan-recovery", "here@1", "--out", "plan.json")
    abs_("restore", "plan.json", "--job", job, "--engine", "inline", "--yes")
    run(abs_, job, "here", "--resume")
    assert abs_.findings("here") == []
    run(abs_, job, "copied", "--resume", code=2)  # the sink shows what the other store made since
    run(abs_, job, "copied", "--resume", "--take-ownership")
    assert abs_.findings("copied") == []
    part = next(entry.name for entry in open_writable(sink).list("") if entry.name.startswith("part-"))
    open_writable(sink).delete(part)
    assert [finding["code"] for finding in abs_.findings("copied", job)] == ["sink-part-missing"]
    run(abs_, job, "copied", "--resume", code=3)
    run(abs_, job, "copied", "--resume", "--accept-missing-parts")


@pytest.mark.parametrize("place", ["", "/of uploadId=1", "/a 1%20+ö"])
def test_uploads_that_are_left_are_named_and_given_up(abs_: Abs, job: Path, sink: str, place: str) -> None:
    sink += place
    job.write_text(JOB % json.dumps(sink))
    run(abs_, job, "here")
    attempt = json.loads(next(Path("here/attempts").glob("*.json")).read_text())["id"]
    uploads = open_uploads(sink)
    left = uploads.begin(f"part-00000-0000000099-{attempt}.jsonl", "digest")
    uploads.put(f"part-00000-0000000099-{attempt}.jsonl", left, 1, b"{}\n")
    other = f"part-00000-0000000099-{'a' * 32}.jsonl"
    uploads.put(other, uploads.begin(other, "of another store"), 1, b"{}\n")
    assert [finding["code"] for finding in abs_.findings("here", job)] == ["abandoned-upload"]
    assert abs_.findings("here") == []
    said = abs_("validate", "here", "--job", job)
    assert "abandoned-upload" in said
    assert "abs gc here --job" in said
    assert abs_.json("gc", "here", "--keep", "100", "--min-age", "0s")["orphans"] == []
    (orphan,) = abs_.json("gc", "here", "--keep", "100", "--min-age", "0s", "--job", job)["orphans"]
    assert (orphan["bytes"], orphan["removable"]) == (3, True)
    assert left in orphan["path"]
    assert len(uploads.below()) == 2
    Path("here/epochs/0000000001/a?uploadId=1").write_text("a file that is called so")
    abs_("gc", "here", "--keep", "100", "--min-age", "0s", "--job", job, "--yes")
    assert abs_.findings("here", job) == []
    assert len(uploads.below()) == 1


def test_a_sinks_bucket_that_is_gone_keeps_nothing_in_the_store(abs_: Abs, job: Path, bucket: str) -> None:
    job.write_text(JOB % bucket)
    run(abs_, job, "here")
    stray = Path("here/epochs/0000000001/stray")
    stray.touch()
    ObjectStorage(bucket).delete_all([file.path for file in ObjectStorage(bucket).below("")])
    open_uploads(bucket)._ask("DELETE", None, {})
    answer = abs_.json("gc", "here", "--min-age", "0s", "--job", job)
    assert "no bucket" in answer["sinks_unknown"]
    checked(answer)
    said = abs_("gc", "here", "--min-age", "0s", "--job", job, "--yes")
    assert "what sinks have left is not looked for: " in " ".join(said.split())
    assert not stray.exists()


@pytest.mark.parametrize(
    ("place", "words"),
    [("hdfs://namenode:8020/out", "sinks write to directories and to buckets"),
     ("s3://key@bucket/out", "contains credentials"), ("s3://", "names no bucket")],
)  # fmt: skip
def test_a_sink_where_none_can_be_is_refused_where_it_is_written(
    abs_: Abs, job: Path, place: str, words: str
) -> None:
    job.write_text(JOB % place)
    said = run(abs_, job, "here", code=2)
    assert words in " ".join(said.split())
    assert f"{job}:" in said
    assert not (job.parent / "s3:").exists()


def test_a_damaged_epoch_is_repaired_there(abs_: Abs, job: Path, bucket: str) -> None:
    run(abs_, job, bucket)
    storage = open_writable(bucket)
    newest = max(entry.name for entry in storage.list("epochs"))
    state = next(file.path for file in storage.inventory() if newest in file.path and file.path.endswith(".pack"))
    storage.put(state, b"damaged", replace=True)
    out = abs_("validate", bucket, code=3)
    assert state in out
    abs_("plan-recovery", f"{bucket}@{int(newest)}", "--strategy", "repair", "--out", "repair.json")
    done = abs_.json("restore", "repair.json", "--store", bucket, "--job", job, "--yes")
    assert done["epoch"] == int(newest)
    assert abs_.findings(bucket) == []
    assert storage.read(f"quarantine/{state}") == b"damaged"
    run(abs_, job, bucket, "--resume")
    assert abs_.findings(bucket) == []
