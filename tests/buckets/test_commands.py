"""Commands on checkpoints of Flink and Spark that lie in a bucket: the same answers as in a directory, under each of
the bucket's names; copies from anywhere to anywhere. By moto, which is a mock of S3; the cheap half of `test_flink`
and `test_spark`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from formats.storage import ObjectStorage
from tests.spark.test_sink import written
from tests.support.commands import answer_of, run_command
from tests.support.flink import cases
from tests.support.flink.matrix import CASES, unpack
from tests.support.spark.data import copy_of

JOBS = {case.name: str(Path(case.folder).parent) for case in CASES if case.version == "2.3"
        and case.kind == "checkpoint" and case.name in ("rocksdb-incremental", "changelog-files")}  # fmt: skip
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def jobs() -> dict[str, Path]:
    """Jobs of Flink whose checkpoints have files in `shared/`, by what they ran with."""
    pytest.importorskip("rocksdict", reason="needs the package rocksdict")
    root = unpack()
    return {name: root / folder for name, folder in JOBS.items()}


def upload(folder: Path, uri: str) -> str:
    """The files of a folder, but for Hadoop's checksum files, which it writes to no bucket."""
    storage = ObjectStorage(uri)
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not (path.name.startswith(".") and path.name.endswith(".crc")):
            storage.put(str(path.relative_to(folder)), path.read_bytes())
    return uri


def contents(uri: str) -> dict[str, bytes]:
    storage = ObjectStorage(uri)
    return {file.path: storage.read(file.path) for file in storage.inventory()}


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    def run(command: str, *args: object, code: int = 0) -> Any:
        return answer_of(command, capsys, *args, code=code)

    return run


SAME_ELSEWHERE = re.compile(
    r'"(timers|as_of|triggered|modified|written|created|age|elapsed|took|exists)": [^,}\]]*|"undated": (null|"[^"]*")'
)
"""What tells of the files' own times, of the asking, or of this machine."""


def neutral(answer: Any, root: str) -> Any:
    """An answer as it would be of any place."""
    text = SAME_ELSEWHERE.sub("", json.dumps(answer))
    text = text.replace(f"file://{root}", root)
    for name in (root, "s3" + root.partition(":")[2] if "://" in root else root, f"file:{root}"):
        text = text.replace(name, "ROOT")
    return text


@pytest.mark.sample(1)
@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3p"])
def test_a_store_in_a_bucket_is_read_like_one_in_a_directory_moto(
    scheme: str, moto_bucket: str, ask: Callable[..., Any], jobs: dict[str, Path], tmp_path: Path
) -> None:
    spark = copy_of("wc_hdfs", tmp_path, sidecars=False)
    for number, folder in enumerate((spark, jobs["rocksdb-incremental"], cases.MERGED, cases.CANONICAL)):
        name = folder.name
        uri = f"{scheme}{upload(folder, f'{moto_bucket}/{number}/{name}')[2:]}"
        newest = ask("inspect", str(folder))["latest_complete"]
        for command, *options in (
            ("inspect",),
            ("inspect", "--stats"),
            ("validate",),
            ("validate", "--quick"),
            ("plan-recovery",),
        ):
            target = f"@{newest}" if options == ["--stats"] else ""
            here, there = (neutral(ask(command, f"{place}{target}", *options), str(place)) for place in (folder, uri))
            assert without_pins(there) == without_pins(here), (name, command)
        if folder is spark:
            here, there = (ask("state", f"{place}@2")["rows"] for place in (folder, uri))
            assert sorted(map(str, there)) == sorted(map(str, here))
            diffs = [neutral(ask("diff", f"{place}@1", f"{place}@2"), str(place)) for place in (folder, uri)]
            assert diffs[0] == diffs[1]


def without_pins(text: str) -> str:
    """Of a plan, without the digest of all of it, and of files that name no place."""
    return re.sub(r'"sha256": "[0-9a-f]{64}"', "", text)


def test_a_directory_of_jobs_in_a_bucket_moto(
    moto_bucket: str, ask: Callable[..., Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    root = f"{moto_bucket}/jobs"
    newest = upload(cases.HASHMAP, f"{root}/{cases.HASHMAP.name}")
    upload(copy_of("wc_hdfs", tmp_path, sidecars=False), f"{root}/query")
    jobs = {job["name"]: job for job in ask("inspect", root)["jobs"]}
    assert jobs.keys() == {cases.HASHMAP.name, "query"}
    assert jobs[cases.HASHMAP.name]["latest_restorable"]["age"] is not None
    code, out, _ = run_command("inspect", capsys, newest.replace("s3:", "s3p:"), "--latest-restorable", "-q")
    assert code == 0
    assert re.fullmatch(rf"s3p{re.escape(newest[2:])}/chk-\d+\n", out)
    ask("inspect", newest, "--trend")


def test_nothing_is_removed_of_flinks_jobs_in_a_bucket_moto(
    moto_bucket: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing there tells whether a job is alive."""
    root = upload(cases.HASHMAP, f"{moto_bucket}/{cases.HASHMAP.name}")
    ObjectStorage(root).put("shared/orphan", b"1")
    before = contents(root)
    for options in ([], ["--yes"], ["--stopped", cases.HASHMAP.name, "--yes"]):
        code, _, error = run_command("gc", capsys, root, *options)
        assert (code, "whether their job is alive" in error) == (2, True), error
    assert contents(root) == before


def source_of(name: str, jobs: dict[str, Path], folder: Path) -> Path:
    return jobs[name] if name in jobs else copy_of(name, folder, sidecars=False)


@pytest.mark.parametrize("name", [*JOBS, "wc_hdfs", "tws_row"])
def test_copies_go_from_anywhere_to_anywhere_and_are_the_same_moto(
    name: str, moto_bucket: str, ask: Callable[..., Any], jobs: dict[str, Path], tmp_path: Path
) -> None:
    """From a directory into a bucket, there into another place, and back."""
    here: object = source_of(name, jobs, tmp_path)
    copies: list[object] = [f"{moto_bucket}/one", f"{moto_bucket.replace('s3:', 's3a:')}/two", tmp_path / "three"]
    rows: list[list[str]] = []
    for number, to in enumerate(copies):
        plan = tmp_path / f"plan-{number}.json"
        search = ["--search", jobs[name].parents[1]] if number == 0 and name in jobs else []
        ask("plan-recovery", here, "--out", plan, *search)
        done = ask("restore", plan, "--store", here, "--to", to)
        report = ask("validate", to)
        assert report["latest_restorable"] == done.get("batch", done.get("epoch"))
        assert [finding["code"] for one in report["epochs"] for finding in one["findings"]] == []
        rows.append([])
        if name != "tws_row":
            operator = ["keep", "--state", "map"] if name in jobs else []
            rows[-1] = sorted(map(str, ask("state", to, *operator, "--limit", 0)["rows"]))
        here = to
    assert rows[0] == rows[1] == rows[2]
    files = [set(contents(str(to))) for to in copies[:2]]
    three = {str(path.relative_to(tmp_path / "three")) for path in (tmp_path / "three").rglob("*") if path.is_file()}
    assert files[0] == files[1] == three
    two = contents(f"{moto_bucket}/two")
    if name == "tws_row":  # whose schemas Spark names by their whole paths, as the client is called that it has
        named = b"".join(data for path, data in two.items() if "/_metadata/v2/" in path)
        assert f"{copies[1]}/state/0/_stateSchema".encode() in named
    if name == "changelog-files":
        assert f"{copies[1]}/".encode() in two["_metadata"]
        assert b"file:" not in two["_metadata"]


def test_a_rewritten_copy_in_a_bucket_is_proved_before_it_counts_moto(
    moto_bucket: str, ask: Callable[..., Any], jobs: dict[str, Path], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    source, to = str(jobs["rocksdb-incremental"]), f"{moto_bucket}/canonical"
    done = ask("rewrite", source, "--layout", "canonical", "--to", to)
    assert done["command"].endswith(f"-s {to} JOB.jar")
    assert ask("validate", to)["latest_restorable"] is not None
    put = ObjectStorage.put

    def damaging(self: ObjectStorage, path: str, data: bytes | memoryview, *, replace: bool = False) -> None:
        flip = len(data) > 200 and not path.startswith(".")
        put(self, path, bytes(data[:100]) + b"?" * 20 + bytes(data[120:]) if flip else data, replace=replace)

    monkeypatch.setattr(ObjectStorage, "put", damaging)
    code, _, error = run_command("rewrite", capsys, source, "--layout", "canonical", "--to", f"{to}-2")
    assert (code, "the copy would not be intact" in error) == (3, True)
    assert contents(f"{to}-2") == {}


def test_what_is_in_the_way_in_a_bucket_is_refused_moto(
    moto_bucket: str, ask: Callable[..., Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    root, plan = upload(cases.HASHMAP, f"{moto_bucket}/{cases.HASHMAP.name}"), tmp_path / "plan.json"
    before = contents(moto_bucket)
    ask("plan-recovery", root, "--out", plan)
    for to in (root, f"{root.replace('s3:', 's3p:')}/new", moto_bucket):
        words = (plan, "--store", root, "--to", to)
        code, _, error = run_command("restore", capsys, *words, "--dry-run")
        assert (code, "hint: " in error) == (2, True), error
        assert run_command("restore", capsys, *words, "--yes")[0] == 2
    assert contents(moto_bucket) == before


KILLED = """
import os, signal, sys
from formats.storage import ObjectStorage
put, left = ObjectStorage.put, int(sys.argv[1])
def dying(self, path, data, **options):
    global left
    left -= ".tmp-" not in path
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    put(self, path, data, **options)
ObjectStorage.put = dying
from abscli.cli.main import main
main(sys.argv[2:])
"""


@pytest.mark.parametrize("name", ["rocksdb-incremental", "wc_hdfs"])
@pytest.mark.parametrize("after", [0, 5, 14])
def test_a_restore_into_a_bucket_that_is_killed_is_seen_and_finished_moto(
    name: str, after: int, moto_bucket: str, ask: Callable[..., Any], capsys: pytest.CaptureFixture[str],
    jobs: dict[str, Path], tmp_path: Path,
) -> None:  # fmt: skip
    source = source_of(name, jobs, tmp_path)
    plan, to = tmp_path / "plan.json", f"{moto_bucket}/copies/copy"
    ask("plan-recovery", source, "--out", plan)
    command = [sys.executable, "-c", KILLED, str(after), "restore", str(plan), "--to", to, "--yes"]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=300, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    for reading in ("inspect", "validate", "plan-recovery", "state"):
        code, _, error = run_command(reading, capsys, to)
        assert (code, "contains a copy that process" in error, "finishes it" in error) == (10, True, True), error
    names = contents(to)
    assert not {"_metadata", "metadata"} & names.keys()
    logs = [path for path in names if path.startswith(("offsets/", "commits/"))]
    states = [path for path in names if path.startswith("state/")]
    assert name in jobs or logs or not states  # Spark does not take it for a place of a new query
    other = tmp_path / "other.json"
    ask("plan-recovery", source, "--out", other)
    code, _, error = run_command("restore", capsys, other, "--to", to, "--yes")
    assert (code, "an unfinished copy" in error) == (2, True), error
    ask("restore", plan, "--to", to)
    assert ask("validate", to)["latest_restorable"] is not None
    assert not [path for path in contents(to) if path.startswith(".tmp-") and path != ".tmp-copy-2"]


def test_a_sinks_log_goes_into_a_bucket_as_well_moto(moto_bucket: str, ask: Callable[..., Any], tmp_path: Path) -> None:
    output, plan = ObjectStorage(f"{moto_bucket}/output"), tmp_path / "plan.json"
    for name, data in written([1] * 6, 3).items():
        output.put(name, data)
    checkpoint = copy_of("wc_hdfs", tmp_path, sidecars=False)
    ask("plan-recovery", f"{checkpoint}@4", "--sink", output.root, "--out", plan)
    ask("restore", plan, "--store", checkpoint, "--to", f"{moto_bucket}/copy", "--sink-to", f"{moto_bucket}/log")
    log = contents(f"{moto_bucket}/log")
    assert max(int(name.partition(".")[0]) for name in log) == 4
    assert ask("validate", f"{moto_bucket}/copy")["latest_restorable"] == 4
