"""Repair of stores that servers have, where nothing holds a lock: made again on a disk, proved, and put there; who was
overtaken meanwhile completes and shows nothing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from abscli.api import open_store
from abscli.stores.native.repairing import repair as module
from formats.errors import NoRecovery, StoreInUse
from formats.native import layout
from formats.native.facts import FenceFacts, ManifestFacts
from formats.native.store import NativeStore
from formats.native.writer import put_fence
from formats.storage import Storage, WritableStorage, walk
from tests.support.jobs.damaged import assert_goes_on_exactly, damage_state, killed, newest, stopped
from tests.support.jobs.repair import opened
from tests.support.objects.fixtures import Servers, use
from tests.support.objects.places import bucket_place
from tests.support.objects.servers import ObjectServer


@pytest.fixture(params=["S3 by moto", "HDFS"])
def anywhere(request: pytest.FixtureRequest, servers: Servers, monkeypatch: pytest.MonkeyPatch) -> WritableStorage:
    return bucket_place(use(servers.get(request.param), monkeypatch)).open()


@pytest.fixture
def bucket(s3: ObjectServer) -> WritableStorage:
    return bucket_place(s3).open()


def upload(store: Path, storage: WritableStorage) -> None:
    for path in sorted(store.rglob("*")):
        if path.is_file() and path.name != "lock":
            storage.put(str(path.relative_to(store)), path.read_bytes())
    shutil.rmtree(store)


def bring_back(storage: WritableStorage, store: Path) -> None:
    """Into a directory, for what tests know of one there."""
    for file in walk(storage):
        if not file.name.startswith("lock/"):
            path = store / file.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(storage.read(file.name))


def repaired(folder: Path, storage: Storage, epoch: int | None = None) -> dict[str, Any]:
    plan = open_store(storage.root).plan(epoch, repair=True)
    return plan.prepare(job=folder / "job.json").carry_out().to_json()


def shown(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.glob("*/part-*")}


@pytest.mark.sample(1)
def test_what_is_damaged_is_made_again(tmp_path: Path, anywhere: WritableStorage) -> None:
    folder = stopped(tmp_path / "job", "counting")
    epoch, before = newest(folder), shown(folder)
    path = damage_state(folder, epoch, "counts/0")
    upload(folder / "store", anywhere)
    broken = anywhere.read(path)
    assert repaired(folder, anywhere)["epoch"] == epoch
    assert open_store(anywhere.root).validate().to_json()["latest_restorable"] == epoch
    assert anywhere.read(f"quarantine/{path}") == broken
    assert not [file.path for file in anywhere.inventory() if ".tmp-" in file.path]
    assert shown(folder) == before
    bring_back(anywhere, folder / "store")
    assert_goes_on_exactly(folder, epoch)


@pytest.mark.sample(1)
def test_what_is_missing_is_made_and_the_epoch_completed_as_by_the_job(
    tmp_path: Path, anywhere: WritableStorage
) -> None:
    folder = tmp_path / "job"
    epoch = killed(folder, "counting", "counts/0")
    upload(folder / "store", anywhere)
    assert repaired(folder, anywhere)["epoch"] == epoch
    assert NativeStore(anywhere).outcome_kind(epoch) is ManifestFacts
    bring_back(anywhere, folder / "store")
    assert_goes_on_exactly(folder, epoch)


def test_who_is_overtaken_while_it_repairs_completes_and_shows_nothing(
    tmp_path: Path, bucket: WritableStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever overtakes puts its fence at the lowest number that nobody has decided: that of the epoch."""
    folder = tmp_path / "job"
    epoch = killed(folder, "counting", "counts/0")
    upload(folder / "store", bucket)
    before, plain = shown(folder), module.complete_anew

    def overtaken(storage: WritableStorage, *arguments: Any, **options: Any) -> object:
        put_fence(storage, epoch, NativeStore(storage).attempts()[0])
        return plain(storage, *arguments, **options)

    monkeypatch.setattr(module, "complete_anew", overtaken)
    with pytest.raises(StoreInUse, match="another process is writing to this store"):
        repaired(folder, bucket)
    assert NativeStore(bucket).outcome_kind(epoch) is FenceFacts
    assert shown(folder) == before


class BrokenOff(Exception):
    pass


def test_a_repair_that_was_broken_off_in_a_directory_is_finished_in_one(
    tmp_path: Path, bucket: WritableStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its fence has the number, and who else has it cannot be told in the step that takes it."""

    def broken_off(*arguments: Any, **options: Any) -> None:
        raise BrokenOff

    folder = tmp_path / "job"
    epoch = killed(folder, "counting", "counts/0")
    with monkeypatch.context() as patch:
        patch.setattr(module, "complete_anew", broken_off)
        with pytest.raises(BrokenOff):
            repaired(folder, opened(folder).storage)
    upload(folder / "store", bucket)
    with pytest.raises(NoRecovery, match="the epoch already has an outcome"):
        repaired(folder, bucket, epoch)
    bring_back(bucket, folder / "store")
    assert repaired(folder, opened(folder).storage, epoch)["epoch"] == epoch
    assert_goes_on_exactly(folder, epoch)


def test_a_manifest_that_is_lost_is_put_where_nothing_is(tmp_path: Path, bucket: WritableStorage) -> None:
    """Of an epoch in the middle, and of the newest, which is then the lowest number that has no outcome."""
    folder = stopped(tmp_path / "job", "counting")
    newer = newest(folder)
    upload(folder / "store", bucket)
    for epoch in (newer - 1, newer):
        bucket.delete(layout.outcome(epoch))
        assert repaired(folder, bucket, epoch)["epoch"] == epoch
    assert open_store(bucket.root).validate().to_json()["latest_restorable"] == newer
    bring_back(bucket, folder / "store")
    assert_goes_on_exactly(folder, newer)
