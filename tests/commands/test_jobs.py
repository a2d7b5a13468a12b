"""The commands on real jobs and stores: what they print, their exit codes, and what bad input does (nothing)."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from abscli.api import open_store
from formats.native import layout
from formats.native.facts import digest
from formats.native.store import NativeStore
from formats.storage import LocalStorage
from formats.version import FORMAT_VERSION
from tests.support.jobs.small import last_counts, open_gate, write_countdown, write_words

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 300.0
"""Seconds until a process that does not move is given up."""

ABS = [sys.executable, "-m", "abscli.cli.main"]
JOB = """version: 1
job: words
parallelism: 2
operators:
  lines:
    source: {type: text, path: in/*.txt}
  words:
    from: lines
    flat_map: words
  counts:
    from: words
    reduce: {key: [word], n: {count: "*"}}
  out:
    from: counts
    sink: {type: jsonl, path: out}
"""
TURNING_JOB = """version: 1
job: countdown
parallelism: 2
operators:
  rows:
    source: {type: jsonl, path: in/*.jsonl, schema: {id: string, left: int64}}
  ring:
    union: {}
    from: {rows: {partition: hash, key: [id]}, step: {partition: rebalance}}
  step:
    from: ring
    flat_map: countdown:step
  visits:
    from: ring
    reduce: {key: [id], n: {count: "*"}}
  out:
    from: visits
    sink: {type: jsonl, path: out}
"""
"""Does not end before `open_gate`."""


def abs_(
    *arguments: object, environment: dict[str, str] | None = None, **more: Any
) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("ABS_")} | {"PYTHONPATH": str(ROOT)}
    clean |= environment or {}
    done = subprocess.run(
        [*ABS, *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE, env=clean, **more
    )
    assert "Traceback" not in done.stderr + done.stdout, done.stderr
    return done


def run(folder: Path, *more: object, **options: Any) -> subprocess.CompletedProcess[str]:
    return abs_("run", folder / "job.yaml", "--store", folder / "store", "--engine", "inline", *more, **options)


def result(done: subprocess.CompletedProcess[str], schema: str, *, stderr: bool = False) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(done.stderr if stderr else done.stdout)
    definition = json.loads((ROOT / "formats" / "schemas" / f"{schema}.json").read_text())
    Draft202012Validator(definition).validate(value)
    return value


def make_job(folder: Path, **more: Any) -> Counter[str]:
    counts = write_words(folder, **more)
    (folder / "job.yaml").write_text(JOB)
    return counts


def make_turning_job(folder: Path) -> Counter[str]:
    counts = write_countdown(folder, turning=True)
    (folder / "job.yaml").write_text(TURNING_JOB)
    return counts


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished job with its store; tests work on copies."""
    folder = tmp_path_factory.mktemp("finished")
    make_job(folder)
    assert run(folder).returncode == 0
    return folder


@pytest.fixture
def job(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "job")
    return tmp_path / "job"


def newest(folder: Path) -> int:
    latest = NativeStore(LocalStorage(folder / "store")).latest()
    assert latest is not None
    return latest


def fingerprint(folder: Path) -> dict[str, str]:
    return {
        str(p.relative_to(folder)): digest(p.read_bytes())
        for p in sorted(folder.rglob("*"))
        if p.is_file() and p.name != "lock"
    }


# -- the way through --------------------------------------------------------------------------------------


@pytest.mark.fast(reason="the whole way through the commands")
def test_run_inspect_validate_plan_restore_resume(tmp_path: Path) -> None:
    counts = make_job(tmp_path)
    ran = result(run(tmp_path, "-o", "json"), "abs.run")
    assert ran["finished"]
    assert ran["records"] == 600
    store = tmp_path / "store"
    seen = result(abs_("inspect", store, "-o", "json"), "abs.inspect")
    assert seen["latest_complete"] == ran["epoch"]
    checked = abs_("validate", store, "-o", "json")
    assert checked.returncode == 0
    assert result(checked, "abs.validate")["latest_restorable"] == ran["epoch"]
    plan = tmp_path / "plan.json"
    planned = abs_("plan-recovery", store, "--out", plan, "-o", "json")
    assert planned.stdout == plan.read_text()
    assert result(planned, "abs.plan")["body"]["epoch"] == ran["epoch"]
    restoring = ("restore", plan, "--job", tmp_path / "job.yaml", "--engine", "inline")
    restored = result(abs_(*restoring, "--yes", "-o", "json"), "abs.restore")
    assert restored["parent"] == ran["epoch"]
    again = result(run(tmp_path, "--resume", "-o", "json"), "abs.run")
    assert again["parent"] == restored["epoch"]
    assert again["finished"]
    assert last_counts(tmp_path) == counts


def test_resume_without_a_store_starts_and_says_so(tmp_path: Path) -> None:
    counts = make_job(tmp_path)
    done = run(tmp_path, "--resume")
    assert done.returncode == 0
    assert "from the beginning" in done.stderr
    assert last_counts(tmp_path) == counts


def test_a_dry_run_changes_nothing(job: Path) -> None:
    abs_("plan-recovery", job / "store", "--out", job / "plan.json")
    before = fingerprint(job)
    command = ["restore", job / "plan.json", "--job", job / "job.yaml", "--dry-run"]
    done = abs_(*command)
    assert done.returncode == 0
    assert f"Next: abs restore {job}/plan.json --job {job}/job.yaml" in done.stdout
    assert abs_(*command, "-o", "json").stdout.strip() == (job / "plan.json").read_text().strip()
    assert fingerprint(job) == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_takes_a_last_epoch_and_leaves(tmp_path: Path, number: signal.Signals) -> None:
    counts = make_turning_job(tmp_path)
    process = spawn(tmp_path, "attempts/*", "--engine", "inline", "--interval", "1h")
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE)
    assert "Traceback" not in err
    assert process.returncode == 128 + number, err
    assert "stopped at epoch" in out
    open_gate(tmp_path)
    assert run(tmp_path, "--resume").returncode == 0
    assert last_counts(tmp_path, "id") == counts


def spawn(folder: Path, sign: str, *more: str) -> subprocess.Popen[str]:
    """A job in a process group of its own, once its store has a file of this pattern."""
    process = subprocess.Popen(
        [*ABS, "run", str(folder / "job.yaml"), "--store", str(folder / "store"), *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + PATIENCE
    while not list((folder / "store").glob(sign)):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return process


def spawn_on_spark(folder: Path) -> subprocess.Popen[str]:
    """The job on Spark, once its first epoch is complete."""
    return spawn(folder, "epochs/*/outcome.json", "--master", "local[2]", "--interval", "50ms")


def group(number: int) -> list[int]:
    """Processes of a process group that are still alive."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == number and fields[0] != "Z":
                found.append(int(entry.name))
    return found


@pytest.mark.usefixtures("jvm")
def test_ctrl_c_on_spark_takes_a_last_epoch_though_every_process_gets_it(tmp_path: Path) -> None:
    counts = make_turning_job(tmp_path)
    process = spawn_on_spark(tmp_path)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    assert " at epoch " in out
    open_gate(tmp_path)
    assert run(tmp_path, "--resume").returncode == 0
    assert last_counts(tmp_path, "id") == counts


@pytest.mark.usefixtures("jvm")
def test_a_killed_driver_leaves_no_orphans_and_nothing_lost(tmp_path: Path) -> None:
    counts = make_turning_job(tmp_path)
    process = spawn_on_spark(tmp_path)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=PATIENCE)
    deadline = time.monotonic() + PATIENCE
    while group(process.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert group(process.pid) == []
    open_gate(tmp_path)
    assert run(tmp_path, "--resume").returncode == 0
    assert last_counts(tmp_path, "id") == counts


# -- bad input --------------------------------------------------------------------------------------------


def test_a_store_with_epochs_wants_resume(job: Path) -> None:
    before = fingerprint(job)
    done = run(job)
    assert done.returncode == 2
    assert "--resume" in done.stderr
    assert fingerprint(job) == before


def test_a_stale_plan_is_refused(job: Path) -> None:
    plan = job / "plan.json"
    abs_("plan-recovery", job / "store", "--out", plan)
    assert run(job, "--resume").returncode == 0
    done = abs_("restore", plan, "--job", job / "job.yaml", "--yes", "--engine", "inline", "-o", "json")
    assert done.returncode == 5
    assert result(done, "abs.error", stderr=True)["name"] == "stale-plan"


@pytest.mark.parametrize("damage", ["truncate", "garbage", "flip", "empty"])
def test_a_damaged_plan_is_refused(job: Path, damage: str) -> None:
    plan = job / "plan.json"
    abs_("plan-recovery", job / "store", "--out", plan)
    data = plan.read_bytes()
    middle = len(data) // 2
    plan.write_bytes(
        {
            "truncate": data[:middle],
            "garbage": os.urandom(400),
            "flip": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
            "empty": b"",
        }[damage]
    )
    before = fingerprint(job)
    done = abs_("restore", plan, "--job", job / "job.yaml", "--yes", "--engine", "inline")
    assert done.returncode == 2, done.stderr
    assert "plan.json" in done.stderr
    assert fingerprint(job) == before


def test_a_plan_for_another_job_is_refused(job: Path) -> None:
    plan = job / "plan.json"
    abs_("plan-recovery", job / "store", "--out", plan)
    (job / "job.yaml").write_text(JOB.replace("job: ", "job: not-"))
    done = abs_("restore", plan, "--job", job / "job.yaml", "--yes", "--engine", "inline")
    assert done.returncode == 2
    assert "has topology" in done.stderr
    assert "the plan is for" in done.stderr


def test_restore_asks_nobody_without_a_terminal(job: Path) -> None:
    plan = job / "plan.json"
    abs_("plan-recovery", job / "store", "--out", plan)
    done = abs_("restore", plan, "--job", job / "job.yaml", "--engine", "inline", stdin=subprocess.DEVNULL)
    assert done.returncode == 2
    assert "--yes" in done.stderr


@pytest.mark.sample(7)
@pytest.mark.parametrize("damage", ["truncate", "garbage", "flip", "empty"])
@pytest.mark.parametrize("which", ["manifest", "tasks", "state", "topology", "store"])
def test_a_damaged_store_is_named_and_nothing_is_lost(job: Path, which: str, damage: str) -> None:
    s = NativeStore(LocalStorage(job / "store"))
    epoch = newest(job)
    path = {
        "manifest": layout.outcome(epoch),
        "tasks": s.manifest(epoch).tasks_file.path,
        "state": next(p.state[0].path for p in s.parts(epoch) if p.state),
        "topology": layout.topology(s.topology_sha256(epoch)),
        "store": layout.STORE,
    }[which]
    file = job / "store" / path
    data = file.read_bytes()
    middle = len(data) // 2
    file.write_bytes(
        {
            "truncate": data[:middle],
            "garbage": b"\x00garbage" * 9,
            "flip": data[:middle] + bytes([data[middle] ^ 4]) + data[middle + 1 :],
            "empty": b"",
        }[damage]
    )
    before = fingerprint(job / "store")
    for command in ("inspect", "validate", "plan-recovery"):
        done = abs_(command, job / "store")
        assert done.returncode in ((0, 3) if command == "inspect" else (3, 4)), (command, done.stderr)
        if command == "validate":
            assert Path(path).name in done.stdout + done.stderr
    done = run(job, "--resume")
    assert done.returncode in (2, 3, 4), done.stderr
    after = fingerprint(job / "store")
    assert {name: after[name] for name in before} == before


@pytest.mark.fast(reason="one damaged epoch")
def test_resume_passes_over_a_damaged_epoch_and_says_so(tmp_path: Path) -> None:
    counts = make_job(tmp_path)
    assert run(tmp_path).returncode == run(tmp_path, "--resume").returncode == 0  # an epoch each at least
    s = NativeStore(LocalStorage(tmp_path / "store"))
    latest = newest(tmp_path)
    older = [n for n in s.epoch_numbers() if n < latest]
    (tmp_path / "store" / s.manifest(latest).tasks_file.path).unlink()
    asked = abs_("plan-recovery", f"{tmp_path / 'store'}@{latest}")
    assert asked.returncode == 4
    assert f"epoch {older[-1]} is the newest intact epoch" in asked.stderr
    done = run(tmp_path, "--resume")
    assert done.returncode == 0
    assert f"resuming from epoch {older[-1]}" in done.stderr
    assert last_counts(tmp_path) == counts


def test_another_format_version_is_refused_with_exit_code_12(job: Path) -> None:
    reseal(job / "store" / layout.STORE, f'"version":"{FORMAT_VERSION}"'.encode(), b'"version":"7.0"')
    for arguments in (("inspect", job / "store"), ("validate", job / "store"), ("plan-recovery", job / "store")):
        assert abs_(*arguments).returncode == 12
    assert run(job, "--resume").returncode == 12


def reseal(file: Path, old: bytes, new: bytes) -> None:
    """Change a facts file as a stranger who knows the format could."""
    from formats.native.facts import SEAL, SEAL_LENGTH

    body = file.read_bytes()[:-SEAL_LENGTH].replace(old, new)
    file.write_bytes(body + SEAL + digest(body).encode() + b'"}\n')


@pytest.mark.parametrize("path", ["../../../etc/passwd", "/etc/passwd", "a/../../b", "epochs/\\\\x"])
def test_a_path_that_leads_out_of_the_store_is_refused(job: Path, path: str) -> None:
    s = NativeStore(LocalStorage(job / "store"))
    epoch = newest(job)
    named = next(p.state[0].path for p in s.parts(epoch) if p.state)
    tasks = job / "store" / s.manifest(epoch).tasks_file.path
    before = digest(tasks.read_bytes()).encode()
    size = tasks.stat().st_size
    reseal(tasks, named.encode(), path.encode())
    manifest = job / "store" / layout.outcome(epoch)
    reseal(manifest, before, digest(tasks.read_bytes()).encode())
    reseal(manifest, f'"bytes":{size},'.encode(), f'"bytes":{tasks.stat().st_size},'.encode())
    assert abs_("validate", job / "store").returncode == 3
    done = run(job, "--resume")
    assert done.returncode in (2, 3, 4)
    assert "plain relative path" in done.stderr


def test_a_symbolic_link_out_of_the_store_is_refused(job: Path, tmp_path: Path) -> None:
    s = NativeStore(LocalStorage(job / "store"))
    named = next(p.state[0].path for p in s.parts(newest(job)) if p.state)
    file = job / "store" / named
    secret = tmp_path / "secret"
    secret.write_bytes(file.read_bytes())
    file.unlink()
    file.symlink_to(secret)
    assert abs_("validate", job / "store").returncode == 3
    done = run(job, "--resume")
    assert done.returncode in (2, 3, 4)
    assert "out of the store" in done.stderr


def test_a_second_run_on_a_store_in_use_is_refused(job: Path) -> None:
    from formats.native.lock import exclusive

    with exclusive(LocalStorage(job / "store")):
        done = run(job, "--resume")
    assert done.returncode == 11
    assert f"process {os.getpid()}" in done.stderr


def test_a_run_that_is_refused_leaves_nothing_behind(tmp_path: Path) -> None:
    make_job(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    done = run(tmp_path, "--from-epoch", "3")
    assert (done.returncode, "no epoch 3" in done.stderr) == (10, True), done.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_a_check_says_of_how_much_it_has_read_sinks_included(finished: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    job = finished / "job.yaml"
    open_store(finished / "store").validate(job=job, progress=lambda read, total: seen.append((read, total)))
    assert all(total is not None and read <= total for read, total in seen)
    output = sum(path.stat().st_size for path in (finished / "out").glob("*.jsonl"))
    assert (seen[-1][1] or 0) - (seen[0][1] or 0) == output > 0


def test_nothing_is_said_to_start_on_a_store_in_use(tmp_path: Path) -> None:
    from formats.native.lock import exclusive

    make_job(tmp_path)
    (tmp_path / "store").mkdir()
    with exclusive(LocalStorage(tmp_path / "store")):
        done = run(tmp_path, "--resume")
    assert done.returncode == 11
    assert "from the beginning" not in done.stderr


@pytest.mark.usefixtures("jvm")
def test_too_many_workers_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    make_job(tmp_path)
    done = abs_(
        "run", tmp_path / "job.yaml", "--store", tmp_path / "store", "--master", "local[1]", "--workers", "2"
    )
    assert done.returncode == 2
    assert "2 workers need 2 slots, but the master has only 1" in done.stderr
    assert not (tmp_path / "store" / "attempts").exists()


def test_a_full_disk_stops_the_job_and_the_last_epoch_stays_good(tmp_path: Path) -> None:
    counts = make_job(tmp_path, files=6, lines=60_000)

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, 12_000))

    done = run(tmp_path, "--interval", "50ms", preexec_fn=small_files)
    assert done.returncode == 6, done.stderr
    assert "File too large" in done.stderr
    assert abs_("validate", tmp_path / "store").returncode in (0, 3)
    assert run(tmp_path, "--resume").returncode == 0
    assert last_counts(tmp_path) == counts


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system takes root")
def test_state_that_has_no_room_on_disk_stops_the_job_and_it_goes_on_when_there_is_some(tmp_path: Path) -> None:
    counts = make_job(tmp_path, files=6, lines=6_000)
    (tmp_path / "tmp").mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=60k", "tmpfs", str(tmp_path / "tmp")], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("no mounting here")
    place = {"TMPDIR": str(tmp_path / "tmp"), "ABS_RUN_STATE_MEMORY": "10K"}
    try:
        done = run(tmp_path, environment=place)
        assert done.returncode == 6, done.stderr
        assert f"{tmp_path}/tmp/abs-state: No space left on device" in done.stderr
        subprocess.run(["mount", "-o", "remount,size=64m", str(tmp_path / "tmp")], check=True)
        assert run(tmp_path, "--resume", environment=place).returncode == 0
        assert not list((tmp_path / "tmp").iterdir())
    finally:
        subprocess.run(["umount", str(tmp_path / "tmp")], check=True)
    assert last_counts(tmp_path) == counts


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system takes root")
def test_a_disk_without_space_stops_the_job_and_it_goes_on_when_there_is_some(tmp_path: Path) -> None:
    counts = make_job(tmp_path, files=6, lines=60_000)
    (tmp_path / "store").mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=60k", "tmpfs", str(tmp_path / "store")], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("no mounting here")
    try:
        done = run(tmp_path, "--interval", "50ms")
        assert done.returncode == 6, done.stderr
        assert "No space left on device" in done.stderr
        subprocess.run(["mount", "-o", "remount,size=64m", str(tmp_path / "store")], check=True)
        assert run(tmp_path, "--resume").returncode == 0
    finally:
        subprocess.run(["umount", str(tmp_path / "store")], check=True)
    assert last_counts(tmp_path) == counts


def test_a_function_that_raises_ends_the_job_with_its_own_code(tmp_path: Path) -> None:
    make_job(tmp_path)
    (tmp_path / "mine.py").write_text("def split(batch):\n    raise ValueError('not today')\n")
    (tmp_path / "job.yaml").write_text(JOB.replace("flat_map: words", "flat_map: mine:split"))
    done = run(tmp_path, "-o", "json")
    assert done.returncode == 7
    warning, _, last = done.stderr.rstrip("\n").rpartition("\n")
    assert "tasks restart from the start" in warning  # it is tried once more
    error = json.loads(last)
    Draft202012Validator(json.loads((ROOT / "formats" / "schemas" / "abs.error.json").read_text())).validate(error)
    assert "operator words, task words/" in error["message"]
    assert "not today" in error["message"]


@pytest.mark.parametrize("text", ["", "job: [", "version: 9\njob: x\noperators: {}\n", "\x00\x01", "a" * 100_000])
def test_a_topology_that_does_not_hold_is_refused_before_a_store_is_made(tmp_path: Path, text: str) -> None:
    (tmp_path / "job.yaml").write_text(text)
    done = run(tmp_path)
    assert done.returncode in (2, 12)
    assert not (tmp_path / "store").exists()


def test_output_into_a_pipe_that_closes_is_quiet(job: Path) -> None:
    shell = f"{' '.join(ABS)} inspect {job / 'store'} -o ndjson | head -c 1"
    done = subprocess.run(shell, shell=True, capture_output=True, text=True, timeout=PATIENCE, cwd=ROOT)
    assert done.stderr == ""
