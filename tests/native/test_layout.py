"""Names of files in a native store."""

from __future__ import annotations

import time

import pytest

from formats.native.layout import PartPath, part_of

FILES = ["ack.json", "state.parquet", "log/a_0-b.arrow", "log/a/b.arrow", "0123456789abcdef.rows"]


@pytest.mark.parametrize("file", FILES)
def test_files_of_parts_are_told_by_their_names(file: str) -> None:
    found = part_of(f"epochs/0000000001/parts/x/parts/counts/3/{file}")
    assert found is not None
    assert (found.home, str(found.task), found.file) == ("epochs/0000000001/parts/x", "counts/3", file)


@pytest.mark.parametrize(
    "path",
    ["parts/a/0/ack.json", "/parts/a/0/ack.json", "h/parts//0/ack.json", "h/parts/a/0/log/.arrow", "h/parts/a/0/log",
     "h/parts/a/0/x/ack.json", "h/parts/a/x/ack.json", "h/parts/a/0", "h/parts/a/0/0123456789abcdef.rows\n", ""],
)  # fmt: skip
def test_other_files_belong_to_no_part(path: str) -> None:
    assert part_of(path) is None


def test_a_long_path_takes_time_in_proportion_to_its_length() -> None:
    begun = time.process_time()
    assert part_of("h" + "/parts/a/0/log/x" * 100_000) is None
    assert time.process_time() - begun < 5
    assert isinstance(part_of("h" + "/parts" * 1000 + "/a/0/ack.json"), PartPath)
