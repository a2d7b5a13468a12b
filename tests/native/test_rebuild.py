"""`abs rebuild`: what is lost or damaged of a store's books comes back, and the job goes on exactly."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from abscli.engine.coordinator import Progress, Service
from abscli.engine.job import run_job
from abscli.engine.sources.files import line_files
from formats.job.file import parse_topology
from formats.native import layout, lock
from formats.native.store import NativeStore
from formats.storage import LocalStorage
from tests.commands.test_jobs import JOB, abs_, fingerprint, newest, run
from tests.support.jobs.small import inline, last_counts, write_words
from tests.support.schemas import checked

pytestmark = pytest.mark.minutes

SLOW = """
import time
from pathlib import Path
from abscli.engine.functions import words

def split(batch):
    if not Path(__file__).with_name("quick").exists():
        time.sleep(0.05)  # a file is a batch: half a minute of input, so that there is a middle in which to stop
    return words(batch)
"""


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Counter[str]]:
    """A job that was stopped twice with much of its input still unread; with the counts that it is to have."""
    folder = tmp_path_factory.mktemp("stopped")
    counts = write_words(folder, files=1000, lines=1)
    (folder / "slow.py").write_text(SLOW)
    (folder / "job.yaml").write_text(JOB.replace("flat_map: words", "flat_map: slow:split"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_files, "CHUNK", 8)
        for parent in (None, -1):
            services: list[Service] = []

            def progress(seen: Progress, services: list[Service] = services) -> None:
                if seen.epochs >= 2 and services:
                    services.pop().request_stop()

            start = None if parent is None else newest(folder)
            options = inline(folder, from_epoch=start, interval=0.05)
            topology = parse_topology(folder / "job.yaml")
            outcome = run_job(topology, str(folder / "store"), options, progress, services.append)
            assert not outcome.finished
    (folder / "quick").touch()
    return folder, counts


@pytest.fixture
def job(stopped: tuple[Path, Counter[str]], tmp_path: Path) -> Path:
    shutil.copytree(stopped[0], tmp_path / "job")
    return tmp_path / "job"


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def lose(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def graph(job: Path) -> Path:
    (found,) = (job / "store" / "topologies").iterdir()
    return found


DAMAGES: dict[str, Callable[[Path], None]] = {
    "the store's file is lost": lambda job: lose(job / "store" / layout.STORE),
    "the store's file is cut short": lambda job: cut(job / "store" / layout.STORE),
    "the first attempt is cut short": lambda job: cut(job / "store" / layout.attempt(1)),
    "the newest attempt is cut short": lambda job: cut(job / "store" / layout.attempt(2)),
    "the first attempt is lost": lambda job: lose(job / "store" / layout.attempt(1)),
    "all attempts are lost": lambda job: lose(job / "store" / layout.ATTEMPTS),
    "the job graph is cut short": lambda job: cut(graph(job)),
    "topologies are lost": lambda job: lose(job / "store" / "topologies"),
    "all books are lost": lambda job: [
        lose(job / "store" / name) for name in (layout.STORE, layout.ATTEMPTS, "topologies")
    ] and None,
    "the newest manifest is cut short": lambda job: cut(job / "store" / layout.outcome(newest(job))),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("what", DAMAGES)
def test_what_is_lost_comes_back_and_the_job_goes_on_exactly(
    what: str, job: Path, stopped: tuple[Path, Counter[str]]
) -> None:
    DAMAGES[what](job)
    store = job / "store"
    before = fingerprint(job)
    said = abs_("rebuild", store, "--job", job / "job.yaml", "-o", "json")
    assert said.returncode == 0, said.stderr
    planned = checked(said.stdout)
    assert planned["done"] is False
    assert planned["created"] or planned["quarantined"]
    assert fingerprint(job) == before
    done = abs_("rebuild", store, "--job", job / "job.yaml", "--yes", "-o", "json")
    assert done.returncode == 0, done.stderr
    made = checked(done.stdout)
    assert [one["path"] for one in made["created"]] == [one["path"] for one in planned["created"]]
    after = fingerprint(job)
    for one in made["quarantined"]:  # kept as it was
        assert after[f"store/{one['to']}"] == before[f"store/{one['path']}"]
    again = checked(abs_("rebuild", store, "-o", "json").stdout)
    assert (again["quarantined"], again["created"], again["missing"]) == ([], [], [])
    assert abs_("inspect", store).returncode == 0
    validated = json.loads(abs_("validate", store, "--job", job / "job.yaml", "-o", "json").stdout)
    found = {finding["code"] for finding in validated["findings"]}
    found |= {finding["code"] for epoch in validated["epochs"] for finding in epoch["findings"]}
    lost = {"unreferenced-sink-part"} if "manifest" in what else set()  # what it had shown; the next run sets it aside
    assert found <= {"unreferenced-file", *lost}
    resumed = run(job, "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert last_counts(job) == stopped[1]


def test_without_the_job_it_says_what_is_lacking_and_does_the_rest(job: Path) -> None:
    cut(job / "store" / layout.attempt(1))
    lose(job / "store" / "topologies")
    done = abs_("rebuild", job / "store", "--yes", "-o", "json")
    assert done.returncode == 4
    result = checked(done.stdout)
    assert [one["path"] for one in result["created"]] == [layout.attempt(1)]
    (lacking,) = result["missing"]
    assert lacking["path"].startswith("topologies/")
    assert "--job" in lacking["remedy"]
    assert abs_("rebuild", job / "store", "--job", job / "job.yaml", "--yes").returncode == 0
    assert run(job, "--resume").returncode == 0


def test_a_job_file_that_has_changed_is_no_source_of_the_graph(job: Path) -> None:
    lose(job / "store" / "topologies")
    (job / "job.yaml").write_text(JOB.replace("parallelism: 2", "parallelism: 1"))
    done = abs_("rebuild", job / "store", "--job", job / "job.yaml", "--yes", "-o", "json")
    assert done.returncode == 4
    assert "has changed since" in checked(done.stdout)["missing"][0]["reason"]


def test_the_file_of_another_job_is_refused(job: Path) -> None:
    lose(job / "store" / layout.STORE)
    (job / "job.yaml").write_text(JOB.replace("job: words", "job: others"))
    done = abs_("rebuild", job / "store", "--job", job / "job.yaml", "--yes", "-o", "json")
    assert done.returncode == 4
    assert "several jobs: others, words" in checked(done.stdout)["missing"][0]["reason"]
    assert not (job / "store" / layout.STORE).exists()


def test_a_store_in_use_is_left_alone(job: Path) -> None:
    cut(job / "store" / layout.attempt(1))
    with lock.exclusive(LocalStorage(job / "store")):
        assert abs_("rebuild", job / "store").returncode == 11
        assert abs_("rebuild", job / "store", "--yes").returncode == 11


def test_a_whole_store_needs_nothing(job: Path) -> None:
    before = fingerprint(job)
    done = abs_("rebuild", job / "store", "--yes")
    assert done.returncode == 0
    assert "nothing to rebuild" in done.stdout
    assert fingerprint(job) == before


def test_where_there_is_no_store_there_is_nothing_to_rebuild(tmp_path: Path) -> None:
    assert abs_("rebuild", tmp_path).returncode == 10
    assert abs_("rebuild", tmp_path / "none").returncode == 10


def test_names_aside_are_never_taken_twice(job: Path) -> None:
    store = job / "store"
    for name in ("quarantine/attempts/000001.json", "quarantine/attempts/000001.json.2"):
        cut(store / layout.attempt(1))
        assert abs_("rebuild", store, "--yes").returncode == 0
        assert (store / name).is_file()


def test_gc_and_validate_leave_aside_alone(job: Path) -> None:
    store = job / "store"
    cut(store / layout.attempt(1))
    assert abs_("rebuild", store, "--yes").returncode == 0
    assert abs_("validate", store, "--strict").returncode == 0
    assert abs_("gc", store, "--keep", "1", "--min-age", "0s", "--yes").returncode == 0
    assert (store / "quarantine" / "attempts" / "000001.json").is_file()


def test_half_a_copy_without_its_own_file_is_not_started_anew(job: Path) -> None:
    store = job / "store"
    for name in (layout.STORE, layout.ATTEMPTS):
        lose(store / name)
    shutil.rmtree(job / "out")
    for command in (("--resume",), ()):
        done = run(job, *command)
        assert done.returncode in (2, 10)
        assert f"`abs rebuild {store} --job {job / 'job.yaml'}`" in done.stderr
        assert not (store / layout.STORE).exists()


def test_a_life_whose_beginning_is_gone_is_not_made_up(job: Path) -> None:
    """Attempt 2 has taken epochs that are pruned since: where it went back to, its later epochs do not say."""
    store = job / "store"
    for _ in range(3):
        with (job / "in" / "0.txt").open("a") as more:
            more.write("more\n")
        assert run(job, "--resume").returncode == 0
    numbers = NativeStore(LocalStorage(store)).epoch_numbers()
    last = newest(job)
    attempt = NativeStore(LocalStorage(store)).manifest(last).attempt
    assert attempt == 5
    lose(store / layout.attempt(attempt))
    done = checked(abs_("rebuild", store, "-o", "json").stdout)
    assert [one["path"] for one in done["created"]] == [layout.attempt(attempt)]  # its first epoch is there
    assert numbers[-1] == last
