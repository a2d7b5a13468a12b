"""The OPTIONS file of RocksDB: what is taken from it, and in which time and memory."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from formats.errors import Damaged
from formats.flink.state.rocksdb_options import families, prepare

LISTS = "{id=StringAppendTESTOperator;delimiter=,;}"


def test_options_of_column_families_are_found_and_others_left_out() -> None:
    text = (
        "# comment\n[DBOptions]\n  comparator=of no family\n"
        '[CFOptions "default"]\n  comparator=leveldb.BytewiseComparator\n  merge_operator=nullptr\n'
        '[TableOptions/BlockBasedTable "default"]\n  comparator=of a table\n'
        f'[CFOptions "a "quoted" ]name"] \t\n\n comparator = x \n merge_operator= {LISTS}\t\nmerge_operator_x=1\n'
        '[CFOptions "empty"]\n  merge_operator=\n'
    )
    assert families(text.splitlines(keepends=True), "f") == {
        "default": {"comparator": "leveldb.BytewiseComparator", "merge_operator": "nullptr"},
        'a "quoted" ]name': {"comparator": "x", "merge_operator": LISTS},
        "empty": {"merge_operator": ""},
    }


@pytest.mark.parametrize("filling", ["x" + "\n" * 200_000, "comparator=a" + " " * 200_000 + "b"])
def test_blanks_and_line_ends_take_time_in_proportion_to_their_number(tmp_path: Path, filling: str) -> None:
    (tmp_path / "OPTIONS-000001").write_text(f'[CFOptions "state"]\n{filling}\nmerge_operator={LISTS}\n')
    begun = time.process_time()
    assert prepare(str(tmp_path), "f") == {"state"}
    assert time.process_time() - begun < 5  # the regular expression that stood here took eight minutes


def test_a_section_of_more_than_a_megabyte_is_refused(tmp_path: Path) -> None:
    (tmp_path / "OPTIONS-000001").write_text('[CFOptions "state"]\n' + "  a=b\n" * (1 << 18))
    with pytest.raises(Damaged, match="more than 1048576 bytes"):
        prepare(str(tmp_path), "f")
