"""`abs gc`: what goes is planned first, and nothing goes that a kept epoch needs."""

from __future__ import annotations

import json
import os
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abscli.planner.retention import Kept, expired
from abscli.stores.native.removing.garbage import carry_out, plan_removal
from formats.errors import StoreInUse
from formats.native import layout, lock, remove
from formats.native.remove import newest_attempt
from formats.native.store import NativeStore
from formats.storage import LocalStorage
from formats.view import Status
from tests.support.commands import result_of, run_command
from tests.support.stores.small import FIRST, Build, loop_job, make_store


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Epochs 1, 2 and 4 complete, each on top of the files of the one before; 3 aborted, 5 incomplete."""
    path = tmp_path / "store"
    make_store(path)
    return path


run = partial(run_command, "gc")
result = partial(result_of, "gc")


def files(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file() and p.name != "lock"}


def whole(path: Path) -> list[int]:
    """Epochs that can be restored."""
    from abscli.stores.native.check import check

    report = check(LocalStorage(path), None, quick=False, progress=lambda read, total: None).report
    return list(report.restorable)


def aged(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def test_without_yes_nothing_changes(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files(store)
    told = result(capsys, store, "--keep", "1")
    assert ([e["epoch"] for e in told["epochs"]], told["kept"], told["removed"]) == ([1, 2, 3], [4, 5], False)
    assert files(store) == before
    code, out, _ = run(capsys, store, "--keep", "1")
    assert code == 0
    assert f"Next: abs gc {store} --keep-last 1 --yes" in out
    assert "nothing was changed" in out


def test_what_a_kept_epoch_refers_to_stays(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    needed = {f.path for part in NativeStore(LocalStorage(store)).parts(4) for f in part.state}
    sizes = {name: len(data) for name, data in files(store).items()}
    planned = result(capsys, store, "--keep", "1")
    told = result(capsys, store, "--keep", "1", "--yes")
    assert told == planned | {"removed": True}
    left = files(store)
    assert needed <= left.keys()
    assert told["bytes"] == sum(size for name, size in sizes.items() if name not in left)
    assert whole(store) == [4]
    assert [e.epoch for e in NativeStore(LocalStorage(store)).epochs()] == [4, 5]
    assert [(e["epoch"], e["files_kept"]) for e in told["epochs"]] == [(1, 2), (2, 2), (3, 0)]
    again = result(capsys, store, "--keep", "1")
    assert (again["epochs"], again["orphans"], again["bytes"]) == ([], [], 0)
    assert "Nothing to remove." in run(capsys, store)[1]


def test_files_that_only_a_gone_epoch_needed_go_with_it(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result(capsys, store, "--keep", "1", "--yes")
    storage = LocalStorage(store)
    build = Build(storage, loop_job())
    build.complete(6, 4)  # refers to no older file
    for path in store.rglob("*.parquet"):
        aged(path, 7200)
    told = result(capsys, store, "--keep", "1", "--yes")
    assert [e["epoch"] for e in told["epochs"]] == [4, 5]
    assert {o["reason"] for o in told["orphans"] if o["removable"]} == {"only epochs that go refer to it: 4"}
    assert {layout.epoch_of(name) for name in files(store)} == {None, 6}


def test_a_damaged_epoch_does_not_count_as_one_that_is_kept(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (store / layout.log(4, "seen/0", "seen/0", FIRST)).unlink()
    told = result(capsys, store, "--keep", "1", "--yes")
    assert ([e["epoch"] for e in told["epochs"]], told["kept"]) == ([1], [2, 3, 4, 5])
    assert whole(store) == [2]


def test_a_damaged_epoch_goes_only_if_it_is_older_than_all_that_are_kept(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (store / layout.log(2, "seen/0", "seen/0", FIRST)).unlink()
    assert [e["epoch"] for e in result(capsys, store, "--keep", "2")["epochs"]] == [3]
    assert [(e["epoch"], e["reason"]) for e in result(capsys, store, "--keep", "1")["epochs"]] == [
        (1, "complete, and older than the newest 1"), (2, "damaged, and older than all that are kept"),
        (3, "was aborted, and a newer epoch is complete"),
    ]  # fmt: skip


def test_an_epoch_that_cannot_be_read_keeps_everything_up_to_it(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (store / layout.tasks_file(2, FIRST)).write_bytes(b"garbage")
    before = files(store)
    told = result(capsys, store, "--keep", "1")
    assert [e["epoch"] for e in told["epochs"]] == [3]
    assert [b["epoch"] for b in told["blocked"]] == [1, 2]
    _, out, _ = run(capsys, store, "--keep", "1", "--yes")
    assert "epoch 1 stays: epoch 2 cannot be read" in out
    assert files(store).keys() == {name for name in before if layout.epoch_of(name) != 3}


def test_of_epochs_that_cannot_be_read_the_newest_keeps_everything_up_to_it(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for epoch in (1, 2):
        (store / layout.tasks_file(epoch, FIRST)).write_bytes(b"garbage")
    planned = result(capsys, store, "--keep", "1")
    assert ([e["epoch"] for e in planned["epochs"]], planned["kept"]) == ([3], [1, 2, 4, 5])


def test_orphans_are_named_and_go_when_they_are_old(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = store / "epochs/0000000002/parts/seen/0/forgotten.parquet"
    new = store / "epochs/0000000009/parts/seen/0/state.parquet"
    unfinished = store / "epochs/0000000004/.tmp-abc"
    for path in (old, new, unfinished):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * 10)
    aged(old, 3700)
    aged(unfinished, 3700)
    told = result(capsys, store)
    assert {(o["path"].rpartition("/")[2], o["removable"], o["reason"]) for o in told["orphans"]} == {
        ("forgotten.parquet", True, "nothing refers to it"), (".tmp-abc", True, "a write that was not finished"),
        ("state.parquet", False, "nothing refers to it"),
    }  # fmt: skip
    assert ([e["epoch"] for e in told["epochs"]], told["bytes"]) == ([3], 20 + told["epochs"][0]["bytes"])
    assert "stays, written" in run(capsys, store)[1]
    run(capsys, store, "--yes")
    assert [path.exists() for path in (old, new, unfinished)] == [False, True, False]
    run(capsys, store, "--yes", "--min-age", "0s")
    assert not new.exists()


def test_beside_an_epoch_that_cannot_be_read_no_orphan_goes(store: Path) -> None:
    for epoch in (1, 2, 4):
        (store / layout.epoch_dir(epoch) / "forgotten.parquet").write_bytes(b"x")
    assert len(plan_removal(NativeStore(LocalStorage(store)), 1, min_age=0).orphans) == 1
    (store / layout.tasks_file(2, FIRST)).write_bytes(b"garbage")
    assert plan_removal(NativeStore(LocalStorage(store)), 1, min_age=0).orphans == ()


def test_epochs_go_only_when_they_are_old_enough(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [e["epoch"] for e in result(capsys, store, "--keep", "1", "--older-than", "1d")["epochs"]] == [1, 2, 3]
    native = NativeStore(LocalStorage(store))
    then = 1767323040.0 + 2.5  # triggered: epoch n at second n
    removal = plan_removal(native, 1, min_age=0, older_than=1, now=then)
    assert [e.epoch for e in removal.epochs] == [1]


def test_a_store_in_use_is_left_alone(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files(store)
    with lock.exclusive(LocalStorage(store)):
        for args in ((), ("--yes",)):
            code, out, err = run(capsys, store, "--keep", "1", *args)
            assert (code, out) == (11, "")
            assert "in use" in err or "uses this store" in err
    assert files(store) == before


def test_a_store_without_a_complete_epoch_keeps_all_there_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_store(tmp_path / "s", more=False)
    (tmp_path / "s" / layout.outcome(1)).unlink()
    assert result(capsys, tmp_path / "s", "--keep", "1", "--min-age", "1h")["epochs"] == []


def test_ndjson_and_wrong_usage(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, store, "--keep", "2", "-o", "ndjson")
    header, *items = [json.loads(line) for line in out.splitlines()]
    assert (header["schema"], [(i["type"], i["epoch"]) for i in items]) == ("abs.gc", [("epoch", 1), ("epoch", 3)])
    assert run(capsys, store, "--keep", "0")[0] == 2
    assert run(capsys, tmp_path / "nowhere")[0] == 10


@pytest.mark.parametrize("width", [80, 200])
def test_tables_fit_their_width(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.chdir(store.parent)
    _, out, _ = run(capsys, "store", "--keep", "1")
    assert max(map(len, out.splitlines())) <= width
    assert "complete, and older than the newest 1" in out


@given(
    st.lists(st.tuples(st.booleans(), st.frozensets(st.sampled_from("abcdef"))), max_size=8),
    st.integers(1, 4), st.none() | st.integers(0, 8), st.frozensets(st.integers(1, 8)),
)  # fmt: skip
def test_what_stays_has_all_of_its_files(
    epochs: list[tuple[bool, frozenset[str]]], keep: int, floor: int | None, spare: frozenset[int]
) -> None:
    known = [Kept(i, complete, None, refers) for i, (complete, refers) in enumerate(epochs, start=1)]
    gone, files = expired(known, keep, floor, spare)
    complete = [e.epoch for e in known if e.complete]
    assert not set(gone) & (set(complete[-keep:]) | spare)
    assert files >= {f for e in known if e.epoch not in gone for f in e.files}
    assert not complete or not [e for e in gone if e > complete[-1]]


class Dies(LocalStorage):
    """The process ends when so many files have been deleted."""

    left = 0

    def delete(self, path: str) -> None:
        if self.left == 0:
            raise KeyboardInterrupt
        self.left -= 1
        super().delete(path)


def test_an_epoch_is_gone_before_the_files_that_it_refers_to_in_older_ones(store: Path) -> None:
    native = NativeStore(LocalStorage(store))
    Build(native.storage, loop_job()).complete(6, 4)  # refers to no older file, as 2 and 4 do
    removal = plan_removal(native, 1, min_age=0)
    for deletions in range(1, 12, 2):
        storage = Dies(store)
        storage.left = deletions
        with pytest.raises(KeyboardInterrupt):
            carry_out(storage, removal, 1)
        assert [epoch for epoch in native.epoch_numbers() if native.has_manifest(epoch)] == whole(store)


def test_who_has_lost_the_store_meanwhile_removes_nothing_more(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was stopped for longer than its lock lasts, and another attempt goes on from an epoch that was to go."""
    storage = LocalStorage(store)
    removal = plan_removal(native := NativeStore(storage), 1, min_age=0)
    assert len(removal.epochs) > 1
    newest, plain = newest_attempt(storage), remove.remove_epoch
    before = [row.epoch for row in native.epochs()]

    def overtaken(*arguments: Any, **options: Any) -> set[str]:
        storage.put(layout.attempt(newest + 1), b"begun")
        return plain(*arguments, **options)

    monkeypatch.setattr(remove, "remove_epoch", overtaken)
    with pytest.raises(StoreInUse, match="has started in the meantime"):
        carry_out(storage, removal, newest)
    storage.delete(layout.attempt(newest + 1))
    left = [row.epoch for row in native.epochs()]
    assert left == [epoch for epoch in before if epoch != removal.epochs[-1].epoch]


def test_a_crash_half_way_leaves_whole_epochs_and_the_rest_for_the_next_time(store: Path) -> None:
    native = NativeStore(LocalStorage(store))
    removal = plan_removal(native, 1, min_age=0)

    died = 0
    for deletions in range(1, 12, 2):
        storage = Dies(store)
        storage.left = deletions
        try:
            carry_out(storage, removal, 1)
        except KeyboardInterrupt:
            died += 1
        assert 4 in whole(store)
    assert died >= 3
    carry_out(LocalStorage(store), plan_removal(NativeStore(LocalStorage(store)), 1, min_age=0), 1)
    assert [e.epoch for e in native.epochs() if e.status is Status.COMPLETE] == [4]
    assert whole(store) == [4]
