"""What cannot be changed in a copy is refused with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from formats.flink.ids import operator_id
from formats.flink.rewriting.changes import (
    MoveOperator,
    RemoveOperator,
    RemoveState,
    parse_changes,
)
from formats.flink.store import FlinkStore
from formats.user_file.mistakes import BadFile
from tests.support.flink.cases import CANONICAL, CHANGELOG, HASHMAP, UNALIGNED
from tests.support.flink.rewritten import rewritten


@pytest.mark.parametrize(
    ("store", "lines", "message"),
    [
        (HASHMAP, "moved: [{from: totals, to: join}]", "'join' is an operator of the snapshot, which stays"),
        (HASHMAP, "moved: [{from: nobody, to: noone}]", "neither 'nobody' nor 'noone' is there"),
        (HASHMAP, "moved: [{from: totals, to: join}, {from: join, to: totals}]", "is also moved from"),
        (HASHMAP, f"moved: [{{from: totals, to: join}}, {{from: {operator_id('join')}, to: totals}}]", "is also moved"),
        (HASHMAP, "moved: [{from: Totals per user, to: join}, {from: join, to: a}]", "is also moved from"),
        (HASHMAP, "moved: [{from: totals, to: x}, {from: join, to: x}]", "two lines move to 'x'"),
        (HASHMAP, "moved: [{from: totals, to: x}]\nremoved: [{operator: x, state: sum}]", "'x' is what 'totals'"),
        (HASHMAP, "moved: [{from: totals, to: x}]\nset: [{operator: x, max_parallelism: 9}]", "'x' is what 'totals'"),
        (HASHMAP, "removed: [totals, {operator: totals, state: sum}]", "'totals' is removed in line 2"),
        (HASHMAP, "removed: [totals, totals]", "a second line removes 'totals'"),
        (HASHMAP, "removed: [totls]", "the snapshot has no operator 'totls'"),
        (HASHMAP, "removed: [{operator: totl, state: sum}]", "the snapshot has no operator 'totl'"),
        (HASHMAP, "removed: [{operator: totals}]", "names an operator alone"),
        (HASHMAP, "gone: [totals]", "unknown key 'gone'"),
        (HASHMAP, "set: [{operator: nobody, max_parallelism: 7}]", "no operator 'nobody'"),
        (HASHMAP, "set: [{operator: totals, max_parallelism: 1}]", "'totals' has 2 tasks"),
        (HASHMAP, "set: [{operator: totals, state: sum}]", "an entry of set has state"),
        (HASHMAP, "removed: [{operator: totals, state: sum, split: x}]", "which do not go together"),
        (HASHMAP, "set: [{operator: src-orders, split: x, position: 3}]", "it has no split 'x'"),
        (HASHMAP, "set: [{operator: src-orders, split: x, position: -3}]", "a whole number from 0 on"),
        (UNALIGNED, "set: [{operator: counter, max_parallelism: 99}]", "the checkpoint is unaligned"),
        (CANONICAL, "set: [{operator: totals, state: sum, key: user-1, value: x}]", "'x' is no"),
        (CANONICAL, "set: [{operator: totals, state: nothing, key: user-1, value: x}]", "it has no state 'nothing'"),
        (CANONICAL, "set: [{operator: totals, state: per-item, key: user-1, value: {}}]", "only its keys as wholes"),
        (CANONICAL, "removed: [{operator: totals, state: sum, key: user-1, map_key: x}]", "is not a map"),
        (CANONICAL, "set: [{operator: totals, state: opaque, key: user-1, value: 1}]", "are not written here"),
        (CANONICAL, "removed: [{operator: totals, key: {user: 1}}]", "the key has the columns key"),
        (
            CANONICAL,
            "set: [{operator: totals, state: sum, key: user-1, value: 1}, "
            "{operator: totals, state: sum, key: {key: user-1}, value: 2}]",
            "are of the same key of state 'sum'",
        ),
        (
            CANONICAL,
            "set: [{operator: totals, state: sum, key: user-1, value: 1}]\nremoved: "
            "[{operator: totals, state: sum, key: {key: user-1}}]",
            "lines 2 and 3 are of the same key",
        ),
        (HASHMAP, "moved: totals", "moved must be a list"),
        (CHANGELOG, "removed: [{operator: history, state: last}]", "changelog backend"),
        (HASHMAP, "removed: [{operator: totals, state: sum}]", "(KryoSerializer), whose ends only its class knows"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_reason(
    store: Path, lines: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in rewritten(capsys, tmp_path, store, lines, code=2)["message"]


def test_a_reason_that_many_operators_share_is_given_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = "set:\n" + "".join(
        f"- {{operator: {one.id}, max_parallelism: 99}}\n"
        for one in FlinkStore(str(UNALIGNED)).metadata(FlinkStore(str(UNALIGNED)).resolve(None)).operators
    )
    message = rewritten(capsys, tmp_path, UNALIGNED, lines, code=2)["message"]
    assert message.count("the checkpoint is unaligned") == 1
    assert ", lines 3 to " in message
    assert " more operators: max_parallelism" in message


def test_an_unaligned_checkpoint_says_what_goes_with_an_operator(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = rewritten(capsys, tmp_path, UNALIGNED, "removed: [slow]", "--dry-run")
    assert any("in flight" in note for note in done["notes"])


def test_a_file_of_changes_is_read_with_the_line_of_each() -> None:
    text = b"version: 1\nmoved:\n- {from: a, to: b}\nremoved:\n- c\n- {operator: d, state: e}\n"
    assert parse_changes(text, "f").lines == (
        MoveOperator(operator="a", to="b", line=3, column=3),
        RemoveOperator(operator="c", line=5, column=3),
        RemoveState(operator="d", state="e", line=6, column=3),
    )
    with pytest.raises(BadFile, match="f:1:1: changes: version is missing"):
        parse_changes(b"removed: [a]", "f")


def test_a_store_of_another_system_is_not_rewritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    golden = Path(__file__).parents[2] / "data" / "golden-store"
    assert "not rewritten" in rewritten(capsys, tmp_path, golden, "", code=2)["message"]
