"""A real Flink reads on where a copy says: files and numbers, under another uid of the operator that counts."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from abscli.cli.main import main
from formats.errors import FormatError, NotFound
from formats.flink.connectors.enumerators import enumerator
from formats.flink.connectors.split_kinds import Split
from formats.flink.connectors.splits import splits
from formats.flink.store import FlinkStore
from tests.support.flink.java import compiled, java_job
from tests.support.schemas import checked

pytestmark = [
    pytest.mark.usefixtures("jvm"),
    pytest.mark.skipif(shutil.which("javac") is None, reason="there is no Java compiler"),
]

LINES = 300
SLOW, FAST = 20, 1
"""Milliseconds that a record takes: so many that it is stopped halfway, and so few that the rest takes seconds."""
PATIENCE = 300.0
"""Seconds until a job that does not move is given up."""


def reading(folder: Path) -> dict[str, Split]:
    """The splits of a checkpoint or copy, by id."""
    store = FlinkStore(str(folder))
    epoch = store.resolve(None)
    return {
        split.id or "?": split
        for operator in store.metadata(epoch).operators
        for subtask in operator.subtasks
        for split in splits(subtask, store.streams(epoch)) or ()
    }


def waiting(folder: Path) -> set[str]:
    """The files of a checkpoint or copy that no task has yet."""
    store = FlinkStore(str(folder))
    known = enumerator(store.find_operator(store.resolve(None), "lines"))
    return set() if known is None else {split.id or "?" for split in known.splits}


def halfway(checkpoints: Path) -> Path | None:
    """A checkpoint in which some of two files and of the numbers was read, none of them to its end, and two files
    wait."""
    for path in sorted(checkpoints.glob("*/chk-*/_metadata"), key=lambda path: -path.stat().st_mtime):
        try:
            found = reading(path.parent).values()
        except (FormatError, NotFound, OSError):  # a job drops its oldest
            continue
        files = [split for split in found if split.kind == "file" and (split.next or 0) > 0]
        if len(files) == 2 and len(found) == 4 and len(waiting(path.parent)) == 2:
            return path.parent
    return None


def counts(log: Path) -> dict[str, int]:
    """What the job printed last, by key."""
    return {key: int(n) for key, n in re.findall(r"COUNT (\w+) (\d+)", log.read_text(errors="replace"))}


def told(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    code = main([*map(str, words), "-o", "json"])
    out, err = capsys.readouterr()
    assert code == 0, err
    return checked(out)


def test_flink_reads_on_where_the_copy_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files, checkpoints = tmp_path / "files", tmp_path / "checkpoints"
    files.mkdir()
    for key in "abcd":
        (files / f"{key}.txt").write_text("".join(f"{key} {i}\n" for i in range(LINES)))
    class_path = compiled(tmp_path / "classes", "SplitsJob.java")
    log = tmp_path / "first.log"
    with java_job(class_path, log, "SplitsJob", checkpoints, files, "counts", SLOW) as first:
        until = time.monotonic() + PATIENCE
        while (checkpoint := halfway(checkpoints)) is None:
            assert first.poll() is None, log.read_text(errors="replace")[-3000:]
            assert time.monotonic() < until, "no checkpoint in time"
            time.sleep(0.1)
        first.kill()
        first.wait()

    before = reading(checkpoint)
    one, other = sorted(id for id in before if id.endswith(".txt"))
    later, dropped = sorted(waiting(checkpoint))
    key, waits = one[-5], later[-5]  # lines begin with the name of their file
    numbers = [split for split in before.values() if split.kind == "number-sequence"]
    assert before[one].id == f"file:{files}/{key}.txt"
    held = {row["key"]: row["value"] for row in told(capsys, "state", checkpoint, "counts", "--state", "count")["rows"]}
    assert held[key] == before[one].next, "each line was counted once"
    assert (numbers[0].end, numbers[1].end) != (None, None)

    changes, copy = tmp_path / "changes.yaml", tmp_path / "copy"
    changes.write_text(
        "version: 1\nmoved: [{from: counts, to: tallies}]\n"
        f"removed: [{{operator: lines, split: '{other}'}}, {{operator: lines, split: '{dropped}'}}]\nset:\n"
        f"- {{operator: lines, split: '{one}', position: 10}}\n"
        f"- {{operator: lines, split: '{later}', position: 7}}\n"
        f"- {{operator: numbers, split: '{numbers[0].id}', position: {numbers[0].end}}}\n"
    )
    done = told(capsys, "rewrite", checkpoint, "--changes", changes, "--to", copy)
    assert [change["no_effect"] for change in done["changes"]] == [None] * 6
    shutil.rmtree(checkpoints)  # the copy has to do on its own
    assert (reading(copy)[one].next, waiting(copy)) == (10, {later})

    again = tmp_path / "again.log"
    start = f"execution.state-recovery.path=file://{copy}"
    with java_job(class_path, again, "SplitsJob", tmp_path / "later", files, "tallies", FAST, start) as second:
        assert second.wait(PATIENCE) == 0, again.read_text(errors="replace")[-3000:]
    last = counts(again)
    assert numbers[1].next is not None
    assert numbers[1].end is not None
    assert last == {
        key: held[key] + LINES - 10,
        waits: LINES - 7,
        "numbers": held["numbers"] + 1 + numbers[1].end - numbers[1].next + 1,
    }, "of the files whose splits have gone nothing is read"
