"""What hints say leads out, always: each refusal is made to happen, each command that it names is run as it stands, and
what was refused succeeds in the end (or, where a hint only shows something, that is shown)."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from formats.native import layout
from formats.native.store import NativeStore
from formats.storage import LocalStorage
from tests.commands.test_jobs import JOB, abs_, make_job, newest
from tests.native.test_rebuild import cut, lose

STEPS = 8
"""Commands that are followed at most: a circle is longer."""
USABLE = {"validate": {0, 3}, "rebuild": {0, 4}}
"""Exit codes of commands that only look: what they find is told by them."""

FLINK = Path(__file__).parents[1] / "data" / "flink" / "hashmap-checkpoint"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished job of two attempts, a plan for it, and what is needed to go wrong."""
    folder = tmp_path_factory.mktemp("whole")
    make_job(folder, files=2, lines=30)
    (folder / "raises.py").write_text("def split(batch):\n    raise ValueError('not today')\n")
    for more in ((), ("--resume",)):
        done = abs_("run", "job.yaml", "--store", "store", "--engine", "inline", *more, cwd=folder)
        assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def job(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "a job")
    return tmp_path / "a job"


class Refusal(NamedTuple):
    """command: that is refused; code: its exit code; mend: what the hint asks of a person before the command; goal:
    what succeeds in the end, the command itself if None; shows: whether the hint only leads to something to look at."""

    arrange: Callable[[Path], object]
    command: str
    code: int
    mend: Callable[[Path], object] = lambda job: None
    goal: str | None = None
    shows: bool = False


def at(name: str) -> Callable[[Path], Path]:
    return lambda job: job / "store" / name


def attempt(number: int) -> Callable[[Path], object]:
    return lambda job: cut(job / "store" / layout.attempt(number))


def graphs(job: Path) -> Path:
    return job / "store" / "topologies"


def tasks(job: Path) -> Path:
    return job / "store" / NativeStore(LocalStorage(job / "store")).manifest(newest(job)).tasks_file.path


def planned(job: Path) -> None:
    assert abs_("plan-recovery", "store", "--out", "plan.json", cwd=job).returncode == 0


def stale(job: Path) -> None:
    planned(job)
    assert abs_("run", "job.yaml", "--store", "store", "--engine", "inline", "--resume", cwd=job).returncode == 0


def raising(job: Path) -> None:
    (job / "job.yaml").write_text(JOB.replace("flat_map: words", "flat_map: raises:split"))
    lose(job / "store")
    lose(job / "out")


def no_manifest(job: Path) -> None:
    for epoch in NativeStore(LocalStorage(job / "store")).epoch_numbers():
        lose(job / "store" / layout.outcome(epoch))


RESUME = "run job.yaml --store store --engine inline --resume"
RESTORE = "restore plan.json --job job.yaml --engine inline --yes"

REFUSALS = {
    "a store that has epochs": Refusal(lambda job: None, "run job.yaml --store store --engine inline", 2, goal=RESUME),
    "an epoch that is not there": Refusal(lambda job: None, "inspect store@99", 10, shows=True),
    "going on from an epoch that is not there": Refusal(
        lambda job: None, "run job.yaml --store store --engine inline --from-epoch 99", 10, shows=True
    ),
    **{
        f"{what}: {command.split()[0]}": Refusal(arrange, command, code)
        for command in (RESUME, "inspect store", "plan-recovery store", "gc store", "state store counts --limit 1")
        for what, arrange, code in (
            ("its own file is lost", lambda job: lose(job / "store" / layout.STORE), 10),
            ("its own file is cut short", lambda job: cut(job / "store" / layout.STORE), 3),
        )
    },
    "the first attempt is cut short": Refusal(attempt(1), RESUME, 3),
    "the newest attempt is cut short": Refusal(attempt(2), RESUME, 3),
    "job graphs are lost: run": Refusal(lambda job: lose(graphs(job)), RESUME, 4),
    "job graphs are lost: plan-recovery": Refusal(lambda job: lose(graphs(job)), "plan-recovery store", 4),
    "job graphs are lost: state": Refusal(lambda job: lose(graphs(job)), "state store counts --limit 1", 10),
    "a job graph is cut short: state": Refusal(
        lambda job: cut(next(graphs(job).iterdir())), "state store counts --limit 1", 3
    ),
    "the newest manifest is cut short: state": Refusal(
        lambda job: cut(job / "store" / layout.outcome(newest(job))), "state store counts", 3, goal=RESUME
    ),
    "the newest tasks are lost: state": Refusal(
        lambda job: lose(tasks(job)), "state store counts", 10, goal=RESUME
    ),
    "a damaged epoch is planned for": Refusal(
        lambda job: cut(tasks(job)), "plan-recovery store@NEWEST", 4, goal=RESUME
    ),
    "no epoch is complete": Refusal(no_manifest, "state store counts", 10, shows=True),
    "a plan that is stale": Refusal(stale, RESTORE, 5),
    "a function that raises": Refusal(
        raising, "run job.yaml --store store --engine inline", 7, lambda job: (job / "job.yaml").write_text(JOB), RESUME
    ),
    "another's checkpoint": Refusal(
        lambda job: shutil.copytree(FLINK, job / "flink"), "rebuild flink/JOBID", 2, shows=True
    ),
    "right above a store": Refusal(lambda job: None, "validate .", 10, goal="inspect store"),
}


def commands(done: object, job: Path) -> list[str]:
    """The commands of `abs` that an output names: in backticks, or behind `Next:` and its like."""
    text = getattr(done, "stdout", "") + getattr(done, "stderr", "")
    lines = "\n".join(line for line in text.splitlines() if re.match(r"hint: |\s*Next: ", line))
    named = re.findall(r"`abs ([^`]+)`", lines) + re.findall(r"Next: abs (.+)", lines)
    return [name.replace(" JOB", " job.yaml") for name in dict.fromkeys(named)]


@pytest.mark.sample(4)
@pytest.mark.parametrize("what", REFUSALS)
def test_what_a_hint_says_leads_out(what: str, job: Path) -> None:
    refusal = REFUSALS[what]
    refusal.arrange(job)
    fill = {"NEWEST": lambda: str(newest(job)), "JOBID": lambda: next((job / "flink").iterdir()).name}
    command = re.sub("NEWEST|JOBID", lambda found: fill[found[0]](), refusal.command)
    refused = abs_(*shlex.split(command), cwd=job)
    assert refused.returncode == refusal.code, refused.stderr
    assert "hint: " in refused.stderr, refused.stderr
    refusal.mend(job)
    goal = refusal.goal or command
    waiting, taken = commands(refused, job), set[str]()
    if refusal.goal == "inspect store":
        assert str(job / "store") in refused.stderr or "./store" in refused.stderr or " store" in refused.stderr
        return
    assert waiting, refused.stderr
    while waiting:
        step = waiting.pop(0)
        if step in taken:
            continue
        taken.add(step)
        assert len(taken) <= STEPS, f"a circle: {taken}"
        words = shlex.split(step)
        if "--engine" not in step and words[0] in ("run", "restore"):
            words += ["--engine", "inline"]
        if words[0] == "restore" and "--yes" not in words:
            words.append("--yes")
        if "--watch" in words:
            words.remove("--watch")
        done = abs_(*words, cwd=job)
        assert done.returncode in USABLE.get(words[0], {0}), f"{step}: {done.stderr}"
        if not refusal.shows and abs_(*shlex.split(goal), cwd=job).returncode == 0:
            return
        waiting += commands(done, job)
    assert refusal.shows, f"{sorted(taken)} do not lead to {goal}"


def test_no_hint_names_a_command_without_what_it_needs() -> None:
    """In the code itself: backticks mark what can be typed, and a command without a store or a job cannot."""
    bare = re.compile(r"hint=f?\"[^\"]*`abs (?:validate|inspect|plan-recovery|restore|gc|state|run|rebuild)`")
    root = Path(__file__).resolve().parents[2]
    found = [
        f"{path.relative_to(root)}: {line.strip()}"
        for package in ("abscli", "formats") for path in (root / package).rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines() if bare.search(line)
    ]  # fmt: skip
    assert found == []
