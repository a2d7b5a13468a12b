"""Every next step of a report or refusal is taken literally, until something runs again or nothing can be saved.

A chain begins with a command on a damaged store. The first `abs` command that its output names, and that was not run
since the store last changed, is the next. A chain is good if it ends within five commands: in a job that runs, in a
store that can be restored, or in the plain statement that nothing can be restored.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from abscli.cli.main import main
from abscli.stores.native.plan import FROM_THE_START
from tests.commands.test_jobs import make_job

pytestmark = pytest.mark.integration

MOST = 5
ENDS = {"run": "runs", "restore": "restored", "rewrite": "restorable", "validate": "restorable"}
"""How a chain ends, by the command that succeeds."""
DATA = Path(__file__).parents[1] / "data"
_NEXT = re.compile(r"^\s*(?:Next|next): (abs .+)$", re.M)
_QUOTED = re.compile(r"`(abs [^`]+)`")
_CHANGES = re.compile(r"lost\.yaml is (\{.*\})")
_STARTS = re.compile(r"^\s*(?:Next: )?((?:\S*/)?flink run -s .+)$", re.M)


@dataclass
class Walk:
    """One chain. said: what each command printed."""

    folder: Path
    capsys: pytest.CaptureFixture[str]
    taken: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def follow(self, command: str) -> str:
        """Return how the chain ends: as one of ENDS, or `lost`."""
        while True:
            self.taken.append(command)
            assert len(self.taken) <= MOST, self.shown()
            words = shlex.split(command)
            code = main(words[1:])
            text = "".join(self.capsys.readouterr())
            self.said.append(f"exit code {code}\n{text}")
            if code == 0 and (words[1] in ENDS or _STARTS.search(text)):
                return ENDS.get(words[1], "restorable")
            if "nothing can be restored" in text:
                return "lost"
            command = self._next(command, text)

    def _next(self, command: str, text: str) -> str:
        if "give --yes" in text:
            return f"{command} --yes"
        if changes := _CHANGES.search(text):
            (self.folder / "lost.yaml").write_text(changes[1])
        for found in (*_NEXT.findall(text), *_QUOTED.findall(text)):
            if "DIR" in found.split():  # a place that only the user knows
                continue
            filled = found.replace(" JOB", f" {self.folder}/job.yaml")
            filled = re.sub("NEWDIR|NEW_CHECKPOINT", f"{self.folder}/copy", filled)
            if filled not in self.taken or command.endswith(" --yes"):
                return str(filled)
        raise AssertionError(f"no next step that was not taken\n{self.shown()}")

    def shown(self) -> str:
        """Return the chain, for a test that fails."""
        return "\n".join(f"$ {command}\n{said}" for command, said in zip(self.taken, self.said, strict=False))


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Jobs that have finished, with one epoch and with several."""
    folder = tmp_path_factory.mktemp("walks")
    for name, options in (("one", []), ("several", ["--interval", "10ms", "--keep", "50"])):
        (folder / name).mkdir()
        make_job(folder / name, files=2, lines=1_000 if name == "one" else 300_000)
        job = str(folder / name / "job.yaml")
        assert main(["run", job, "--store", str(folder / name / "store"), "--engine", "inline", "-q", *options]) == 0
    assert len(epochs(folder / "several" / "store")) >= 3
    return folder


@pytest.fixture
def job(stores: Path, tmp_path: Path) -> Callable[[str], Path]:
    def copied(name: str) -> Path:
        shutil.copytree(stores / name, tmp_path / name)
        return tmp_path / name

    return copied


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def epochs(store: Path) -> list[Path]:
    return sorted((store / "epochs").iterdir())


def states(store: Path) -> Iterator[Path]:
    return (path for epoch in epochs(store) for path in epoch.rglob("state.parquet"))


def damage_state_of_newest(store: Path) -> None:
    flip(next(epochs(store)[-1].rglob("state.parquet")))


def damage_state_of_all(store: Path) -> None:
    for path in states(store):
        flip(path)


def lose_state_of_newest(store: Path) -> None:
    next(epochs(store)[-1].rglob("state.parquet")).unlink()


def damage_manifest_of_newest(store: Path) -> None:
    flip(next(epochs(store)[-1].rglob("outcome.json")))


def lose_description(store: Path) -> None:
    (store / "abs-store.json").unlink()


def damage_attempt(store: Path) -> None:
    flip(next((store / "attempts").rglob("*.json")))


OWN = [damage_state_of_newest, damage_state_of_all, lose_state_of_newest, damage_manifest_of_newest, lose_description,
       damage_attempt]  # fmt: skip


@pytest.mark.parametrize("begins", ["validate {store}", "plan-recovery {store}",
                                    "run {job} --store {store} --engine inline --resume"])  # fmt: skip
@pytest.mark.parametrize("name", ["one", "several"])
@pytest.mark.parametrize("damage", OWN, ids=lambda damage: damage.__name__)
def test_steps_on_a_store_of_abs_lead_out(
    job: Callable[[str], Path], damage: Callable[[Path], None], name: str, begins: str,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    folder = job(name)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("ABS_RESTORE_ENGINE", "inline")  # a session of Spark may belong to another test
    damage(folder / "store")
    walk = Walk(folder, capsys)
    end = walk.follow("abs " + begins.format(store=folder / "store", job=folder / "job.yaml"))
    if end == "lost":
        assert name == "one" or damage is damage_state_of_all, walk.shown()
        (command,) = _QUOTED.findall(FROM_THE_START)
        words = shlex.split(command.replace("JOB", str(folder / "job.yaml")).replace("NEWDIR", str(folder / "new")))
        assert main([*words[1:], "--engine", "inline"]) == 0


def newest_checkpoint(job: Path) -> Path:
    return max(job.glob("chk-*"), key=lambda path: int(path.name.removeprefix("chk-")))


def lose_file_of_newest(job: Path) -> None:
    max((path for path in newest_checkpoint(job).iterdir() if path.name != "_metadata"), key=os.path.getsize).unlink()


def damage_metadata_of_newest(job: Path) -> None:
    (newest_checkpoint(job) / "_metadata").write_bytes(b"no metadata")


def damage_all_metadata(job: Path) -> None:
    for path in job.rglob("_metadata"):
        path.write_bytes(path.read_bytes()[:100])


@pytest.mark.parametrize("begins", ["validate {job}", "plan-recovery {job}"])
@pytest.mark.parametrize("name", ["hashmap-checkpoint", "unaligned"])
@pytest.mark.parametrize("damage", [lose_file_of_newest, damage_metadata_of_newest, damage_all_metadata],
                         ids=lambda damage: damage.__name__)  # fmt: skip
def test_steps_on_checkpoints_of_flink_lead_out(
    damage: Callable[[Path], None], name: str, begins: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    shutil.copytree(DATA / "flink" / name, tmp_path / "job")
    job = next(path.parent.parent for path in sorted((tmp_path / "job").rglob("_metadata")))
    damage(job)
    walk = Walk(tmp_path, capsys)
    end = walk.follow("abs " + begins.format(job=job))
    has_another = damage is damage_metadata_of_newest and len([*job.glob("chk-*")]) > 1
    has_other_operators = damage is lose_file_of_newest and name == "hashmap-checkpoint"
    assert (end == "lost") == (not has_other_operators and not has_another), walk.shown()


def newest_deltas(checkpoint: Path) -> list[Path]:
    """Return the newest file of changes of each partition of state 0."""
    return [max(folder.glob("*.delta"), key=lambda path: int(path.stem)) for folder in checkpoint.glob("state/0/[0-9]")]


def lose_newest_delta(checkpoint: Path) -> None:
    newest_deltas(checkpoint)[0].unlink()


def exchange_newest_deltas(checkpoint: Path) -> None:
    one, other = newest_deltas(checkpoint)[:2]
    one.write_bytes(other.read_bytes())


def lose_all_state(checkpoint: Path) -> None:
    for path in checkpoint.glob("state/*/*/[0-9]*"):
        path.unlink()


def lose_newest_offsets(checkpoint: Path) -> None:
    max((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name)).unlink()


def damage_all_offsets(checkpoint: Path) -> None:
    for path in (checkpoint / "offsets").glob("[0-9]*"):
        path.write_bytes(b"v1\n{")


@pytest.mark.parametrize("begins", ["validate {checkpoint}", "plan-recovery {checkpoint}"])
@pytest.mark.parametrize("damage", [lose_newest_delta, exchange_newest_deltas, lose_all_state, lose_newest_offsets,
                                    damage_all_offsets], ids=lambda damage: damage.__name__)  # fmt: skip
def test_steps_on_checkpoints_of_spark_lead_out(
    damage: Callable[[Path], None], begins: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    with tarfile.open(DATA / "spark" / "words.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    damage(tmp_path / "checkpoint")
    walk = Walk(tmp_path, capsys)
    end = walk.follow("abs " + begins.format(checkpoint=tmp_path / "checkpoint"))
    assert (end == "lost") == (damage in (lose_all_state, damage_all_offsets)), walk.shown()
