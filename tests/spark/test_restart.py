"""The real query goes on from a copy that the commands have made, to the counts that its input has."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from abscli.cli.main import main
from tests.support.schemas import checked
from tests.support.spark import cases
from tests.support.spark.words import CONFS, add_files, counts, go_on, killed

pytestmark = pytest.mark.minutes

FILES = 6


@pytest.fixture(scope="module")
def session(spark: Any) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    session = SparkSession(spark)
    yield session
    for key in (*cases.BASE, cases.PROVIDER, cases.CHANGELOG, cases.IDS):
        session.conf.unset(key)


@pytest.fixture(scope="module")
def made(session: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder for each provider, with `input` and the `checkpoint` of a query that has read it."""
    found = {}
    for name in ("hdfs", "ids", "changelog"):
        home = found[name] = tmp_path_factory.mktemp(name)
        add_files(home / "input", range(FILES))
        cases.set_conf(session, CONFS[name])
        assert go_on(session, home / "input", home / "checkpoint") == counts(home / "input")
    return found


@pytest.fixture
def own(tmp_path: Path) -> Any:
    """A folder like one of `made`, to be damaged; without the checksum files that a local file system has."""

    def copied(home: Path) -> Path:
        shutil.copytree(home, tmp_path / "own", ignore=shutil.ignore_patterns("*.crc"))
        return tmp_path / "own"

    return copied


@pytest.fixture
def goes_on(session: Any, capsys: pytest.CaptureFixture[str]) -> Any:
    """Plans, restores, adds input, restarts the query from the copy, and compares; the plan's body."""

    def run(name: str, home: Path, source: Path, *options: str, at: str = "") -> dict[str, Any]:
        file, to = home / "plan.json", home / "copy"
        assert main(["plan-recovery", f"{home / 'checkpoint'}{at}", "--out", str(file), "-o", "json", *options]) == 0
        plan: dict[str, Any] = checked(capsys.readouterr().out)["body"]
        assert main(["restore", str(file), "--to", str(to), "-o", "json"]) == 0
        capsys.readouterr()
        add_files(source, range(FILES, FILES + 1))
        cases.set_conf(session, CONFS[name])
        assert go_on(session, source, to) == counts(source)
        assert main(["validate", str(to), "-o", "json"]) == 0
        assert checked(capsys.readouterr().out)["latest_restorable"] == FILES
        return plan

    return run


def original(home: Path) -> Path:
    """The input that a copied checkpoint was made from: its log names it by absolute paths."""
    path = json.loads((home / "checkpoint/sources/0/0").read_text().splitlines()[1])["path"]
    return Path(path.removeprefix("file://")).parent


@pytest.mark.soak
def test_swapped_partitions_and_a_snapshot_that_is_gone(made: Any, own: Any, goes_on: Any) -> None:
    """And its input has moved with it, to a folder whose name has a space. The partitions are put back."""
    home = own(made["hdfs"])
    state = home / "checkpoint/state/0"
    one, other = (state / "0/6.delta").read_bytes(), (state / "1/6.delta").read_bytes()
    (state / "0/6.delta").write_bytes(other)
    (state / "1/6.delta").write_bytes(one)
    for snapshot in state.glob("*/*.snapshot"):
        snapshot.write_bytes(b"") if snapshot.parent.name == "0" else snapshot.unlink()
    (home / "input").rename(home / "moved input")
    old = original(home)
    plan = goes_on("hdfs", home, home / "moved input", "--path-map", f"{old}={home / 'moved input'}")
    assert plan["batch"] == FILES - 1
    assert {file["path"] for file in plan["restored_files"]} == {"state/0/0/6.delta", "state/0/1/6.delta"}


@pytest.mark.soak
def test_folders_of_format_2_are_swapped_and_some_commits_lost(made: Any, own: Any, goes_on: Any) -> None:
    home = own(made["ids"])
    state = home / "checkpoint/state/0"
    for name, place in (("0", "parked"), ("1", "0"), ("parked", "1")):
        (state / name).rename(state / place)
    for number in (1, 2, FILES - 2):
        (home / f"checkpoint/commits/{number}").unlink()
    source = original(home)
    plan = goes_on("ids", home, home / "input", "--path-map", f"{source}={home / 'input'}", at=f"@{FILES - 2}")
    assert (plan["batch"], f"commits/{FILES - 2}" in [file["path"] for file in plan["write"]]) == (FILES - 2, True)


def test_an_empty_log_file_and_a_lost_query_id(made: Any, own: Any, goes_on: Any) -> None:
    home = own(made["ids"])
    (home / "checkpoint/offsets" / str(FILES)).write_bytes(b"")
    said = json.loads((home / "checkpoint/metadata").read_text())["id"]
    (home / "checkpoint/metadata").unlink()
    source = original(home)
    plan = goes_on("ids", home, home / "input", "--query-id", said, "--path-map", f"{source}={home / 'input'}", at="@3")
    assert (plan["batch"], plan["query_id"]) == (3, said)


def test_all_commits_lost(made: Any, own: Any, goes_on: Any) -> None:
    """And the newest offsets are those of the batch before, so that the newest two batches are not relied on."""
    home = own(made["hdfs"])
    shutil.rmtree(home / "checkpoint/commits")
    shutil.copyfile(home / f"checkpoint/offsets/{FILES - 2}", home / f"checkpoint/offsets/{FILES - 1}")
    source = original(home)
    plan = goes_on("hdfs", home, home / "input", "--path-map", f"{source}={home / 'input'}")
    assert plan["batch"] == FILES - 3


@pytest.mark.parametrize("partitions", [2, 5])
def test_back_behind_a_repartition(
    partitions: int, made: Any, own: Any, goes_on: Any, session: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    home = own(made["changelog"])
    cases.set_conf(session, CONFS["changelog"])
    session._streamingCheckpointManager.repartition(str(home / "checkpoint"), partitions)
    assert main(["validate", str(home / "checkpoint"), "-o", "json"]) == 0
    assert checked(capsys.readouterr().out)["latest_restorable"] == FILES
    source = original(home)
    plan = goes_on("changelog", home, home / "input", "--path-map", f"{source}={home / 'input'}", at=f"@{FILES - 1}")
    assert plan["batch"] == FILES - 1


@pytest.mark.parametrize("options", [[], ["--keep-in-flight"]])
def test_a_query_that_was_killed(options: list[str], session: Any, tmp_path: Path, goes_on: Any,
                                 killed_once: Path) -> None:  # fmt: skip
    home = tmp_path / "own"
    home.mkdir()
    shutil.copytree(killed_once / "checkpoint", home / "checkpoint")
    shutil.copytree(killed_once / "input", home / "input")
    map_ = ["--path-map", f"{killed_once / 'input'}={home / 'input'}"]
    plan = goes_on("changelog", home, home / "input", *map_, *options)
    assert (plan["batch"], plan["replayed"]) == (2, [{"batch": 3, "committed": False}])


@pytest.fixture(scope="module")
def killed_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Killed with SIGKILL while the state of batch 3 was being written."""
    home = tmp_path_factory.mktemp("killed")
    add_files(home / "input", range(FILES))
    killed(home / "input", home / "checkpoint", CONFS["changelog"], "partial", 3)
    written = [partition for partition in range(3) if list((home / f"checkpoint/state/0/{partition}").glob("4.*"))]
    assert 1 <= len(written) <= 3
    assert not (home / "checkpoint/commits/3").exists()
    return home
