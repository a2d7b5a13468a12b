"""What the guide shows of failed workers, run as it stands: real processes on Spark, of which one gets SIGKILL, from
the job's own function when an epoch is complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from abscli.examples.inputs import write_job
from tests.guide.test_commands import the, typed, write_word_count
from tests.support.guide.blocks import ANY, HOME, PAGES, Command, agree, run

pytestmark = pytest.mark.usefixtures("jvm")
LINES = 800_000

KILLED_ONCE = '''
import os as _os, signal as _signal, time as _time
from pathlib import Path as _Path

_HERE = _Path({folder!r})
_work = {function}


def {function}(batch):
    """As before, slowly until this process has been killed: once, when the epoch is complete."""
    if not (_HERE / "killed").exists():
        _time.sleep({pause})
        if (_HERE / "snapshots/epochs/{epoch:010d}/outcome.json").exists():
            try:
                _os.close(_os.open(_HERE / "killed", _os.O_CREAT | _os.O_EXCL))
            except FileExistsError:
                pass  # the other worker is lost
            else:
                _os.kill(_os.getpid(), _signal.SIGKILL)
    return _work(batch)
'''


def killed_once(module: Path, function: str, *, epoch: int, pause: str) -> None:
    """Has the first worker that calls a function of a job's module after an epoch is complete end by SIGKILL. pause:
    how long a batch takes until then, so that the job does not end before."""
    with module.open("a") as file:
        file.write(KILLED_ONCE.format(folder=str(module.parent), function=function, epoch=epoch, pause=pause))


def commands(first: str, last: str) -> list[Command]:
    """What the tutorial shows from one command to another."""
    all_of_it = list(typed(PAGES / "cycle.md"))
    texts = [command.text for command in all_of_it]
    start = next(i for i, text in enumerate(texts) if text.startswith(first))
    return all_of_it[start : texts.index(last, start) + 1]


def not_printed(command: Command, printed: list[str]) -> list[str]:
    """Lines that the guide shows of a command and that it has not printed, whatever numbers, times and hosts."""
    words = [re.sub(r" on \S+ \(process", " on h1 (process", line) for line in printed]
    shown_lines = [line.replace("/tmp/abs-demo/imports/killed", HOME) for line in command.printed]
    return [line for line in shown_lines if line and line != ANY and not agree([ANY, line, ANY], words)]


@pytest.mark.soak
def test_the_session_is_as_it_is_shown(tmp_path: Path) -> None:
    job = write_job("imports", tmp_path / "imports")
    chain = {f"m{i}": [f"m{i + 1}"] for i in range(120)}  # as many rounds of the loop
    (job.parent / "graph.py").write_text(f"IMPORTS = {chain!r}\n")
    lines = [f'{{"module": "{module}", "reached": "{reached[0]}"}}\n' for module, reached in chain.items()]
    (job.parent / "imports.jsonl").write_text("".join(lines))
    killed_once(job.parent / "steps.py", "further", epoch=2, pause="0.02")
    told: dict[str, list[str]] = {}
    shown_here = commands("abs topology imports.yaml", "cat out/*.jsonl | sort | uniq -d | wc -l")
    for command in shown_here:
        if command.text == "echo $?":
            (lost,) = (text for text in told if text.endswith("--restarts 0"))
            assert f"[exit {command.printed[0]}]" in told[lost]
            continue
        printed = told[command.text] = run(command, job.parent)
        missing = not_printed(command, printed)
        # Whether an epoch was being taken when the worker was lost is chance; so is what circulated.
        by_chance = (
            "3 ○ incomplete", "missing: pairs/0", "epoch 3 is not", "3  is incomplete", "Newer epochs", "Replay first",
            "further/0->pairs/0", "imports/0  imports.jsonl",
        )  # fmt: skip
        assert [line for line in missing if not line.strip().startswith(by_chance)] == [], (command.text, printed)
    assert len(list((job.parent / "out").glob("*.jsonl"))) > 0
    pairs = sum(len(file.read_text().splitlines()) for file in (job.parent / "out").glob("*.jsonl"))
    assert pairs == 120 * 121 // 2


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "text", ["abs run job.yaml --store snapshots", "abs run job.yaml --store snapshots --recovery local"]
)
def test_a_run_goes_on_without_a_worker_as_it_is_shown(tmp_path: Path, text: str) -> None:
    write_word_count(tmp_path, files=LINES // 4000, lines=4000)
    killed_once(tmp_path / "mywords.py", "split", epoch=1, pause="batch.num_rows * 1e-5")
    command = the(text)
    printed = run(command, tmp_path)
    assert not_printed(command, printed) == [], "\n".join(printed)
    assert not any(line.startswith("[exit") for line in printed), printed
    rows = "".join(file.read_text() for file in (tmp_path / "out").glob("*.jsonl"))
    counts = {word: max(map(int, re.findall(rf'"word":"{word}","n":(\d+)', rows))) for word in ("be", "or")}
    assert counts == {"be": 2 * LINES, "or": LINES}
