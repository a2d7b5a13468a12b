"""Which splits a store may have a source read: those that its job file names, looked up once however many there are."""

from __future__ import annotations

import glob
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from abscli.engine.sources.files.finding import refuse_strangers
from abscli.engine.sources.files.input_files import fitting
from formats.errors import UnsafePath
from formats.job.model import Kind, Operator
from formats.view import Position

FILES = 500


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    (tmp_path / "in").mkdir()
    for i in range(FILES):
        (tmp_path / "in" / f"{i}.txt").touch()
    (tmp_path / "other.txt").touch()
    return Operator("lines", Kind.SOURCE, 1, 1, connector={"type": "text", "path": "in/*.txt"})


def positions(*splits: str) -> list[Position]:
    return [Position(split, 0, 0) for split in splits]


def test_the_folder_is_looked_through_once(
    operator: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []

    def looked(pattern: str, **options: Any) -> Iterator[str]:
        looks.append(pattern)
        return plain(pattern, **options)

    plain = glob.iglob
    monkeypatch.setattr(glob, "iglob", looked)
    refuse_strangers(operator, str(tmp_path), positions(*(f"in/{i}.txt" for i in range(FILES))))
    assert looks == ["in/*.txt"]


def test_what_the_job_does_not_name_is_refused_if_it_is_there(operator: Operator, tmp_path: Path) -> None:
    refuse_strangers(operator, str(tmp_path), positions("in/1.txt", "in/gone.txt", "gone.txt"))
    for split in ("other.txt", "in/../other.txt", "s3://bucket/in/1.txt"):
        with pytest.raises(UnsafePath, match="does not match the file"):
            refuse_strangers(operator, str(tmp_path), positions("in/1.txt", split))


def test_names_of_servers_are_compared_without_asking(tmp_path: Path) -> None:
    splits = ["s3://b/in/a.txt", "s3://b/in/deep/a.txt", "s3://other/in/a.txt", "in/a.txt"]
    assert fitting(splits, "s3://b/in/*.txt", str(tmp_path)) == {"s3://b/in/a.txt"}
    assert fitting(splits, "s3://b/in/**", str(tmp_path)) == {"s3://b/in/a.txt", "s3://b/in/deep/a.txt"}
    assert fitting([], "in/*", str(tmp_path)) == set()
