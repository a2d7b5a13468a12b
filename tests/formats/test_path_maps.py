"""OLD=NEW whose paths contain `=`."""

from __future__ import annotations

import pytest

from abscli.stores.recovery import lasting
from formats.flink.files.resolve import parse_path_map
from formats.path_maps import split_map, splits
from formats.reference import ReadOptions


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        ("/a=/b", "/a", "/b"),
        ("/in/dt=2026-01-01=/new/dt=2026-01-02", "/in/dt=2026-01-01", "/new/dt=2026-01-02"),
        ("/in/dt=2026-01-01=s3://b/dt=1", "/in/dt=2026-01-01", "s3://b/dt=1"),
        ("file:/in/a=1/b=2=file:///new", "file:/in/a=1/b=2", "file:///new"),
        ("/in/a=b:c=/new", "/in/a=b:c", "/new"),
        ("/gone=other", "/gone", "other"),
        ("/gone", "/gone", ""),
        ("/gone=", "/gone", ""),
    ],
)
def test_the_new_path_begins_where_an_absolute_path_follows(text: str, old: str, new: str) -> None:
    assert split_map(text) == (old, new)
    if new.startswith("/"):
        parsed = parse_path_map(text)
        assert (parsed.old, parsed.new) == (old.removeprefix("file:"), new)
        assert lasting(ReadOptions(path_map=(text,))).path_map == (text,)


def test_several_ways_are_all_listed() -> None:
    assert splits("/a=/b=/c") == [("/a", "/b=/c"), ("/a=/b", "/c")]
