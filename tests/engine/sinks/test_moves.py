"""Steps of a sink in its output folder, where another process takes steps in the same folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from abscli.engine.errors import EngineStopped
from abscli.engine.sinks import moves as moves_module
from abscli.engine.sinks.moves import Moves
from formats.native.sink import CLAIMS, PartId, SinkFolder

PART = "part-00000-0000000001.jsonl"
ASIDE = PartId("0" * 31 + "1", PART).superseded


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / CLAIMS).mkdir()
    (tmp_path / PART).write_text('{"line": "a"}\n')
    return tmp_path


def moves(folder: Path) -> Moves:
    return Moves(SinkFolder(str(folder)), None, lambda: EngineStopped("another attempt has the sink", hint=None))


def set_aside(folder: Path) -> None:
    steps = moves(folder)
    steps.set_aside(PART, ASIDE, steps.inode(PART))


def test_a_part_that_is_set_aside_keeps_its_rows_and_loses_its_visible_name(folder: Path) -> None:
    set_aside(folder)
    assert not (folder / PART).exists()
    assert (folder / ASIDE).read_text() == '{"line": "a"}\n'


def test_a_part_whose_visible_name_somebody_else_removes_meanwhile_is_set_aside(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moves_module, "sync_folder", lambda _: (folder / PART).unlink())
    set_aside(folder)
    assert not (folder / PART).exists()
    assert (folder / ASIDE).read_text() == '{"line": "a"}\n'


def test_a_part_whose_visible_name_becomes_another_file_meanwhile_is_not_taken_away(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replaced(_: str) -> None:
        (folder / PART).unlink()
        (folder / PART).write_text('{"line": "of somebody else"}\n')

    monkeypatch.setattr(moves_module, "sync_folder", replaced)
    with pytest.raises(EngineStopped):
        set_aside(folder)
    assert (folder / PART).read_text() == '{"line": "of somebody else"}\n'
    assert (folder / ASIDE).read_text() == '{"line": "a"}\n'
