"""Snapshots of Flink 1.14, 1.17 and 2.2 whose state follows from the numbers of its keys: what these write otherwise.

tests/flink_java/TortureJob.java made the savepoints (1.14.6 from RocksDB, 1.17.2 from the heap, compressed),
tests/flink_java/AsyncJob.java the checkpoint of ForSt (2.2.0, the asynchronous state API). Each task passed the numbers
below LIMIT on, key i of KEYS gets those that leave i; the folder that the jobs wrote to is called
/mnt/checkpoints/of-jobs.
"""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from abscli.api import open_store
from abscli.report.findings import Code
from abscli.stores.flink.verdict import check_epoch
from formats.errors import FormatError
from formats.flink.checks import stream_checks
from formats.flink.evidence import gather
from formats.flink.files.streams import read_stream
from formats.flink.ids import operator_id
from formats.flink.metadata.handles import InlineHandle, KeyGroupsHandle
from formats.flink.store import FlinkStore
from formats.flink.stream_check import check_state
from formats.ids import TaskId
from formats.query.predicate import parse_predicate
from formats.view import Status
from tests.support.archives import extract
from tests.support.flink.truth import DATA

LIMIT, KEYS = 48, 12
OLD = ["1.14-canonical", "1.17-snappy"]
FORST = "2.2-forst"


@pytest.fixture(scope="module")
def snapshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("versions")
    with tarfile.open(DATA / "versions.tar.xz") as archive:
        extract(archive, folder)
    return folder


def place(snapshots: Path, name: str) -> Path:
    return next((snapshots / name).iterdir()) if name == FORST else snapshots / name


def rows(store: FlinkStore, uid: str, state: str) -> list[dict[str, Any]]:
    epoch = store.resolve(None)
    assert epoch is not None
    return [row for batch in store.state(epoch, operator_id(uid), state) for row in batch.to_pylist()]


@pytest.mark.parametrize("name", [*OLD, FORST])
def test_they_are_whole_and_read_to_the_last_byte(snapshots: Path, name: str) -> None:
    if name == FORST:
        pytest.importorskip("rocksdict", reason="needs the package rocksdict")
    store = FlinkStore(str(place(snapshots, name)))
    report, _, _ = check_epoch(gather(store, store.epoch_numbers()[-1], checks=stream_checks()))
    assert (report.verdict, report.findings) == (Status.COMPLETE, ())


@pytest.mark.parametrize("name", OLD)
def test_operator_state_of_flink_before_1_18_has_no_mark_of_compression(snapshots: Path, name: str) -> None:
    store = FlinkStore(str(place(snapshots, name)))
    assert sorted(row["value"] for row in rows(store, "kinds", "union")) == sorted(f"u{x}" for x in range(LIMIT - 12))
    listed = [row["value"] for row in rows(store, "kinds", "same@operator")]
    assert sorted(listed) == list(range(LIMIT - 12))
    rules = {(row["subtask"], row["map_key"]) for row in rows(store, "ruled", "rules")}
    assert rules == {(subtask, f"rule{x}") for subtask in range(2) for x in range(5)}
    operators = store.detail(store.epoch_numbers()[-1]).operators
    offsets = [at.offset for one in operators for task in one.tasks for at in task.position or ()]
    assert len([offset for offset in offsets if offset is not None and offset > LIMIT]) == 2


@pytest.mark.parametrize("name", OLD)
def test_states_of_old_versions_are_read_exactly(snapshots: Path, name: str) -> None:
    store = FlinkStore(str(place(snapshots, name)))
    own = {row["key"]: row["value"] for row in rows(store, "kinds", "same")}
    assert sorted(own.values()) == sorted(f"same{i}" for i in range(KEYS))
    assert {"", "\U0001f600", "a\0b", "é€", r"\ud83d"} <= own.keys()
    # without the length behind each, key and namespace of texts could not be told apart
    named = {(row["key"], row["namespace"]): row["value"] for row in rows(store, "named", "nv")}
    assert sorted(named.values()) == list(range(LIMIT))
    assert named["", ""] == 0
    assert [len(row["value"]) for row in rows(store, "named", "nl")] == [2] * LIMIT
    assert {(row["map_key"], row["value"] <= 0) for row in rows(store, "named", "nm") if not row["map_key"]} == {
        ("", True)
    }
    sessions = rows(store, "w-session", "window-contents")
    assert sorted(value for row in sessions for value in row["value"]) == list(range(LIMIT))
    for uid in ("k-tuple", "k-row", "k-pojo", "k-bigint", "k-bigdec", "k-instant", "k-list", "k-either", "k-uuid"):
        assert sorted(value for row in rows(store, uid, "l") for value in row["value"]) == sorted(
            f"l{x}" for x in range(LIMIT)
        ), uid
        assert len(rows(store, uid, "_timer_state/event_user-timers")) == LIMIT


def test_state_of_the_asynchronous_api_is_read_and_not_called_damaged(snapshots: Path) -> None:
    pytest.importorskip("rocksdict", reason="needs the package rocksdict")
    store = FlinkStore(str(place(snapshots, FORST)))
    lists = {row["key"]: row["value"] for row in rows(store, "keep", "l")}
    assert sorted(value for each in lists.values() for value in each) == sorted(f"l,{x}" for x in range(LIMIT))
    assert {len(each) for each in lists.values()} == {LIMIT // KEYS}
    assert [row["value"] for row in rows(store, "keep", "v")] == [LIMIT // KEYS] * KEYS
    assert {row["value"] for row in rows(store, "keep", "nulls")} == {"n"}, "a null of a map is no entry there"
    entries = {(row["key"], row["map_key"]): row["value"] for row in rows(store, "keep", "tm")}
    assert {value for (key, _), value in entries.items() if key == "key-7"} == {7}
    assert all(row["ttl_last_access"] > 0 for row in rows(store, "keep", "tv"))
    assert {tuple(row["value"].values()) for row in rows(store, "keep", "g")} == {
        (4 * i, "." * (LIMIT // KEYS)) for i in range(KEYS)
    }


def test_no_copy_of_it_is_written_in_a_layout_that_flink_does_not_start_from(snapshots: Path, tmp_path: Path) -> None:
    pytest.importorskip("rocksdict", reason="needs the package rocksdict")
    store = open_store(place(snapshots, FORST))
    with pytest.raises(FormatError, match="asynchronous API on ForSt"):
        store.rewrite(None, layout="canonical", to=tmp_path / "copy")
    assert list(tmp_path.iterdir()) == []
    assert Code.UNREADABLE not in {finding.code for finding in store.validate().report.all_findings}


def test_timers_that_are_kept_on_the_heap_beside_it_are_read(snapshots: Path) -> None:
    """They are raw keyed state, of a format that is Flink's."""
    store = FlinkStore(str(place(snapshots, FORST)))
    timers = rows(store, "keep", "_timer_state/event_user-timers")
    assert sorted(row["timestamp"] for row in timers) == [1_000_000 + x for x in range(LIMIT)]
    assert rows(store, "keep", "_timer_state/processing_user-timers") == []
    windows = rows(store, "w-sliding", "_timer_state/event_window-timers")
    assert {row["timestamp"] % 1000 for row in windows} == {999}
    epoch = store.epoch_numbers()[-1]
    assert "raw keyed" not in {state.kind for state in store.states(epoch)}
    (one,) = (row for row in store.counted_states(epoch) if row.name == "_timer_state/event_user-timers")
    assert (one.kind, one.key, one.rows) == ("timers", ("key",), LIMIT)
    (counted,) = (row for row in store.statistics(epoch, "keep") if row.state == one.name)
    assert (counted.rows, counted.kind) == (LIMIT, "timers")
    own = [key for key in {row["key"] for row in timers} if key == "key-7"]
    selected = store.select(epoch, operator_id("keep"), one.name, where=parse_predicate(f"key = {own[0]}"))
    assert sum(batch.num_rows for batch in selected) == LIMIT // KEYS


def test_timers_that_are_cut_or_changed_are_damage(snapshots: Path) -> None:
    store = FlinkStore(str(place(snapshots, FORST)))
    epoch = store.epoch_numbers()[-1]
    operator = store.find_operator(epoch, "keep")
    handle = operator.subtasks[0].raw_keyed
    assert isinstance(handle, KeyGroupsHandle)
    whole = read_stream(store.streams(epoch), handle.stream)
    tasks = TaskId(operator.id, 0)
    for data in (whole[:-1], whole[:-9], whole[: len(whole) // 2], whole[:300], whole + b"\0"):
        broken = msgspec.structs.replace(handle, stream=InlineHandle("cut", data))
        result = check_state(tasks, operator, operator.subtasks[0], "raw_keyed", broken, store.streams(epoch))
        assert result.problems, len(data)
    for at in range(0, len(whole), 7):
        flipped = whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :]
        broken = msgspec.structs.replace(handle, stream=InlineHandle("flipped", flipped))
        check_state(tasks, operator, operator.subtasks[0], "raw_keyed", broken, store.streams(epoch))
