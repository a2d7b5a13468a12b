"""Parts of the output that are gone, cut short or a stranger's: said, made again where that is asked for, and nothing
is overwritten."""

from __future__ import annotations

import os
import shutil

import pytest

from abscli.engine.errors import UsageError
from formats.errors import Damaged
from formats.native.sink import staged_path
from tests.support.jobs.lines import Lines


def test_a_part_that_is_gone_is_said_and_made_again_from_the_epoch_before_it(lines: Lines) -> None:
    lines.run(epochs=5)
    victim = sorted(lines.sink.visible())[2]
    (lines.folder / "out" / victim).unlink()
    before = lines.sink.visible()
    with pytest.raises(Damaged, match=r"an output part of \d+ rows is missing") as refused:
        lines.resume()
    assert lines.sink.visible() == before
    hint = str(refused.value.hint)
    lines.run(from_epoch=int(hint.partition("--from-epoch ")[2].partition(",")[0]))
    assert lines.wrong() == {}


def test_more_parts_that_are_gone_are_counted(lines: Lines) -> None:
    lines.run(epochs=5)
    for victim in sorted(lines.sink.visible())[:2]:
        (lines.folder / "out" / victim).unlink()
    with pytest.raises(Damaged, match=r"rows is missing, and 1 more like it"):
        lines.resume()


def test_a_part_that_was_cut_short_is_one_that_is_gone(lines: Lines) -> None:
    lines.run(epochs=5)
    victim = lines.folder / "out" / sorted(lines.sink.visible())[0]
    victim.write_bytes(victim.read_bytes()[:-5])
    with pytest.raises(Damaged, match=r"an output part has \d+ bytes, \d+ were written"):
        lines.resume()


def test_a_part_that_a_reader_took_away_need_not_come_back(lines: Lines) -> None:
    lines.run(epochs=5)
    victim = lines.folder / "out" / sorted(lines.sink.visible())[0]
    taken = {line.partition('"line":"')[2].rstrip('"}') for line in victim.read_text().splitlines()}
    victim.unlink()
    lines.resume(accept_missing=True)
    assert lines.wrong() == dict.fromkeys(taken, -1)


def test_a_part_of_a_stranger_is_set_aside_and_never_overwritten(lines: Lines) -> None:
    lines.run(epochs=5)
    names = sorted(lines.sink.visible())
    stranger = names[-1].replace("part-00001", "part-00007").replace("part-00000", "part-00007")
    (lines.folder / "out" / stranger).write_text('{"line": "not ours"}\n')
    lines.resume()
    assert lines.wrong() == {}


def test_nothing_is_moved_where_a_run_is_refused(lines: Lines) -> None:
    lines.run(epochs=4)
    shutil.copytree(lines.folder / "a", lines.folder / "b")
    lines.resume("b", epochs=1)
    before = {path: path.stat().st_ino for path in (lines.folder / "out").rglob("part-*")}
    with pytest.raises(UsageError, match="contains output of attempt"):
        lines.resume("a")
    assert {path: path.stat().st_ino for path in (lines.folder / "out").rglob("part-*")} == before
    assert len(lines.store("a").attempts()) == 1


def test_a_reveal_that_was_cut_off_in_its_middle_is_ended(lines: Lines) -> None:
    """A part is linked under its visible name, and then its staged name goes."""
    lines.run(epochs=3)
    attempt = lines.store().attempts()[0].id
    name = sorted(lines.sink.visible())[-1]
    os.link(lines.folder / "out" / name, lines.folder / "out" / staged_path(attempt, name))
    lines.resume()
    assert lines.wrong() == {}
    assert not lines.sink.staged()
