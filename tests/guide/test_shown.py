"""What the pages on Flink's and Spark's checkpoints show, on checkpoints that a real Flink and a real Spark wrote."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.guide.test_commands import shown
from tests.support.guide.blocks import ANY, HOME, PAGES, Command, agree, run
from tests.support.imports import ROOT
from tests.support.spark.data import copy_of

FLINK = ROOT / "tests" / "data" / "flink"
SAVEPOINT = "savepoint-10d2f4-6792269b97e8"
CHANGED = "abs rewrite savepoint-10d2f4-6792269b97e8 --changes changes.yaml --to /srv/copy"
LAYOUT = "abs rewrite checkpoints/10d2f428c00a04dfaad672ff7b7e0dbc/chk-42 --layout canonical --to /srv/savepoint"

OF_FLINK = (
    f"abs state {SAVEPOINT} totals --state per-item --key user-9", f"abs diff {SAVEPOINT} --uids uids.txt --exit-code",
    CHANGED, LAYOUT,
)  # fmt: skip
OF_SPARK = (
    "abs validate words-checkpoint", "abs plan-recovery words-checkpoint --out plan.json",
    "abs restore plan.json --to words-restored",
)  # fmt: skip
ELSEWHERE = {
    "echo $?": "the exit code of the command before it, which is held here",
    "cat changes.yaml": "written by the test of the command behind it",
    "abs inspect 6e07414fd66f9c8e8cd4ba86c2bbafa5": "216 files are no test data: tests/flink/real does it",
    "abs plan-recovery 6e07414fd66f9c8e8cd4ba86c2bbafa5 --search savepoint-711d22 --out plan.json": "the same",
    "abs restore plan.json --to /srv/copy": "the same",
    "abs validate savepoint-1 --for flink:2.2 || echo $?": "tests/flink/test_upgrade.py",
    "flink run -s file:///srv/savepoint -Dstate.backend.type=rocksdb JOB.jar": "Flink's own: tests/flink/real",
    "abs inspect orders --broker kafka-1:9092": "needs a broker: tests/spark/test_kafka.py",
}
"""Commands that are shown and not run here, and why."""


def command(page: str, text: str) -> Command:
    """What a page shows, with places of its own machine put into the folder."""
    one = next(one for one in shown(PAGES / page) if one.text == text)
    printed = [line.replace("/srv/", f"{HOME}/srv/") for line in one.printed]
    return Command(one.line, text.replace("/srv/", "srv/"), printed)


def holds(page: str, text: str, folder: Path, code: int = 0) -> None:
    """Runs it, and holds what is printed against the page."""
    one = command(page, text)
    printed = run(one, folder)
    if code:
        assert printed.pop() == f"[exit {code}]"
    assert not any(line.startswith("[exit") for line in printed), "\n".join(printed)
    if one.printed:
        assert agree([ANY, *one.printed, ANY], printed), "\n".join(printed)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Flink's checkpoints that the page is about, under the names that they have there."""
    shutil.copytree(FLINK / "hashmap-savepoint-canonical" / SAVEPOINT, tmp_path / SAVEPOINT)
    (job,) = (FLINK / "sql").iterdir()  # of the other jobs some values are of classes that only they can read
    shutil.copytree(next(job.glob("chk-*")), tmp_path / Path(LAYOUT.split()[2]))
    (tmp_path / "srv").mkdir()
    return tmp_path


def test_state_of_flink_is_shown(folder: Path) -> None:
    holds("flink.md", OF_FLINK[0], folder)


def test_state_without_an_owner_is_shown(folder: Path) -> None:
    uids = ["totals", "join", "op-state", "types", "to-string", "out", "src-orders", "src-rules", "win-average"]
    (folder / "uids.txt").write_text("\n".join(uids) + "\n")
    holds("flink.md", OF_FLINK[1], folder, code=3)


def test_a_savepoint_is_changed_by_the_file_that_is_shown(folder: Path) -> None:
    changes = command("flink.md", "cat changes.yaml").printed
    kept = [line for line in changes if "split:" not in line]  # the savepoint is of a source without partitions
    assert len(kept) == len(changes) - 2
    (folder / "changes.yaml").write_text("\n".join(kept) + "\n")
    holds("flink.md", CHANGED, folder)
    assert (folder / "srv" / "copy" / "_metadata").is_file()


def test_a_checkpoint_becomes_a_canonical_savepoint(folder: Path) -> None:
    holds("flink.md", LAYOUT, folder)
    assert (folder / "srv" / "savepoint" / "_metadata").is_file()


def test_spark_s_checkpoint_goes_back_as_it_is_shown(tmp_path: Path) -> None:
    copy_of("broken_swapped_delta", tmp_path).rename(tmp_path / "words-checkpoint")
    for text in OF_SPARK:
        holds("spark.md", text, tmp_path, code=3 * text.startswith("abs validate"))


def test_every_command_of_these_pages_is_run_or_it_is_said_why_not() -> None:
    texts = {one.text for page in ("flink.md", "spark.md") for one in shown(PAGES / page)}
    assert texts == {*OF_FLINK, *OF_SPARK, *ELSEWHERE}
    for why in ELSEWHERE.values():
        for path in re.findall(r"tests/[\w/.]+", why):
            assert (ROOT / path).exists(), path
