"""The guide does what it says: each page's files and commands, in order, in a folder of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.guide.blocks import PAGES, Command, File, agree, blocks, run
from tests.support.guide.checkpoints import prepare

NAMES = sorted(str(path.relative_to(PAGES)) for path in PAGES.rglob("*.md"))
CASES = [name if name == "tutorial.md" else pytest.param(name, marks=pytest.mark.integration) for name in NAMES]


@pytest.mark.parametrize("name", CASES)
def test_every_command_of_a_page_prints_what_the_page_shows(name: str, tmp_path: Path) -> None:
    prepare(name, tmp_path)
    for block in blocks(PAGES / name):
        if isinstance(block, File):
            path = tmp_path / block.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
            continue
        printed = run(block, tmp_path)
        if not agree(block.printed, printed):
            shown = "\n".join(block.printed)
            pytest.fail(f"{name}:{block.line}: {block.text}\nshown:\n{shown}\nprinted:\n" + "\n".join(printed))


def test_there_is_a_page_for_every_incident() -> None:
    runbooks = {Path(name).stem for name in NAMES if name.startswith("runbooks/")}
    incidents = {"lost-worker", "damaged-epoch", "roll-back", "disk-full", "more-tasks", "lost-store", "lost-metadata"}
    incidents |= {"flink-does-not-start", "flink-upgrade", "spark-query-fails", "spark-wrong-results"}
    incidents |= {"exit-codes", "errors"}
    assert incidents <= runbooks


def shows(*lines: str) -> list[str]:
    return Command(1, "", list(lines)).printed


def test_times_and_sizes_may_differ_and_words_may_not() -> None:
    assert agree(shows("epoch 1 complete in 0.059 s, 3 records, 4.0 KiB"), ["epoch 7 complete in 1 s, 12 records, 3 B"])
    assert agree(shows("epoch 5: 1 epoch and 0 records in 1 s"), ["epoch 7: 2 epochs and 1 record in 3.4 s"])
    assert not agree(shows("epoch 1 complete"), ["epoch 1 damaged"])
    assert not agree(shows("a"), ["a", "b"])
    assert not agree(shows("a", "b"), ["a"])
    assert not agree(shows("[exit 3]"), ["[exit 4]"])
    assert agree(shows("a", "...", "z"), ["a", "b", "c", "z"])
    assert not agree(shows("a", "...", "z"), ["a", "b"])


def test_a_line_may_be_broken_elsewhere() -> None:
    assert agree(shows("from epoch 1 of /home/you/snapshots: all"), ["from epoch 1 of", "/home/you/snapshots:", "all"])
    assert agree(shows("copied, 0 B in 3 files"), ["copied, 0", "B in 1", "file"])
