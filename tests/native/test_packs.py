"""Packs: the parts of a worker's tasks in one file, and all that reads, keeps, copies and removes them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import pytest

from abscli.report.findings import Code, StoreReport
from abscli.stores.native.check import check_all
from abscli.stores.native.copying import Became, copy_store
from abscli.stores.native.plan import newest_whole, plan_recovery
from abscli.stores.native.removing.garbage import carry_out, plan_removal
from abscli.stores.native.restore import files_to_copy
from abscli.stores.reasons import NoPlan
from formats.errors import Damaged, UnsafePath
from formats.ids import TaskId
from formats.native import layout
from formats.native.evidence import open_for_validation
from formats.native.facts import TasksFacts, header
from formats.native.names import check_facts
from formats.native.packs import encode_pack, read_pack
from formats.native.probe import Prober
from formats.native.remains import remains_of
from formats.native.remove import newest_attempt
from formats.native.store import NativeStore
from formats.storage import LocalStorage, MemoryStorage, ranges
from formats.storage.ranges import range_of, whole_file
from formats.view import Status
from tests.support.schemas import checked
from tests.support.stores.packed import INCARNATIONS, PackedBuild, make_packed
from tests.support.stores.packed import ranges as named
from tests.support.stores.small import in_memory, loop_job, make_store


@pytest.fixture(scope="module")
def build() -> PackedBuild:
    return make_packed(MemoryStorage())


@pytest.fixture
def storage(build: PackedBuild) -> MemoryStorage:
    """A copy, to be damaged."""
    return in_memory(build)


def report(storage: MemoryStorage) -> StoreReport:
    store, problems = open_for_validation(storage)
    return check_all(store, problems, Prober(storage))


def findings(storage: MemoryStorage) -> list[tuple[Code, str | None]]:
    return [(finding.code, finding.path) for finding in report(storage).all_findings]


def packs(storage: MemoryStorage, epoch: int) -> list[str]:
    return [path for path in sorted(storage.files) if layout.epoch_of(path) == epoch and path.endswith(".pack")]


# -- what they hold -------------------------------------------------------------------------------------------


def test_the_same_epochs_can_be_read_of_packs_and_of_files(build: PackedBuild) -> None:
    alone, packed = NativeStore(make_store(MemoryStorage()).storage), NativeStore(build.storage)
    assert packed.epoch_numbers() == alone.epoch_numbers()
    for epoch in packed.epoch_numbers():
        assert {part.task for part in packed.parts(epoch)} == {part.task for part in alone.parts(epoch)}
    for epoch in (1, 2, 4):
        rows = [list(store.state(epoch, "seen")) for store in (alone, packed)]
        assert [batch.to_pydict() for batch in rows[0]] == [batch.to_pydict() for batch in rows[1]]
        for channel in packed.log_digests(epoch):
            logs = [list(store.log(epoch, channel)) for store in (alone, packed)]
            assert logs[0] == logs[1]
            assert logs[0]
    assert {whole_file(file.path) for file in named(packed, 4)} == {
        path for epoch in (1, 2, 4) for path in packs(build.storage, epoch)  # type: ignore[arg-type]
    }


def test_a_store_of_packs_is_sound(build: PackedBuild) -> None:
    assert not [pair for pair in findings(build.storage) if pair[0] is not Code.MISSING_ACK]  # type: ignore[arg-type]
    assert report(build.storage).restorable == (1, 2, 4)  # type: ignore[arg-type]


def test_who_has_acked_an_open_epoch_is_known_from_its_packs(build: PackedBuild) -> None:
    rows = {row.epoch: row for row in NativeStore(build.storage).epochs()}
    for epoch, status in ((3, Status.ABORTED), (5, Status.INCOMPLETE)):
        assert rows[epoch].status is status
        assert rows[epoch].missing == (TaskId("seen", 1), TaskId("out", 0))
    left = remains_of(NativeStore(build.storage), 5)
    assert set(left.parts) == {TaskId("lines", 0), TaskId("lines", 1), TaskId("seen", 0)}
    assert set(left.facts) == {layout.trigger(5, build.id), *packs(build.storage, 5)}  # type: ignore[arg-type]


def test_a_pack_begins_with_its_facts_and_says_what_every_byte_is(build: PackedBuild) -> None:
    loose = [build.loose(9, task) for task in build.tasks()]
    path = layout.pack(9, build.id, INCARNATIONS[0], 1)
    data, parts = encode_pack(path, loose)
    storage = MemoryStorage()
    storage.put(path, data)
    pack = read_pack(storage, path)
    assert pack.parts == parts
    assert pack.bytes == len(data)
    line = data.index(b"\n") + 1
    assert checked(data[:line])["schema"] == "abs.pack"
    assert next(place.offset for file in pack.files if (place := range_of(file.path))) == line
    contents = {name: content for one in loose for name, content in one.files.items()}
    assert len(pack.files) == len(contents) == 6
    for file in pack.files:
        place = range_of(file.path)
        assert place is not None
        own = next(content for name, content in contents.items() if layout.name_in_pack(name) == place.name)
        assert ranges.read(storage, file.path) == own
        assert ranges.size(storage, file.path) == len(own) == file.bytes


def test_a_pack_of_acks_alone_has_nothing_behind_them(build: PackedBuild) -> None:
    path = layout.pack(9, build.id, INCARNATIONS[0], 1)
    data, _ = encode_pack(path, [build.loose(9, "out/0")])
    storage = MemoryStorage()
    storage.put(path, data)
    assert read_pack(storage, path).files == ()
    assert data.count(b"\n") == 1
    assert data.endswith(b'"}\n')


# -- damage ---------------------------------------------------------------------------------------------------


@pytest.mark.integration
@pytest.mark.parametrize("epoch", [2, 5])
def test_a_flipped_byte_anywhere_in_a_pack_is_found(storage: MemoryStorage, epoch: int) -> None:
    path = packs(storage, epoch)[0]
    whole = storage.files[path]
    before = findings(storage)
    # Every byte of the line and the files would take minutes; these are of each of them.
    for at in range(0, len(whole), 97):
        storage.files[path] = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        assert findings(storage) != before, at
    for damaged in (whole + b"x", whole[:-1], b"", b"\n", whole[:40]):
        storage.files[path] = damaged
        assert findings(storage) != before
    del storage.files[path]
    assert findings(storage) != before


def test_a_missing_pack_is_reported_for_each_file_in_it_and_not_once_more(storage: MemoryStorage) -> None:
    path = packs(storage, 4)[0]
    storage.delete(path)
    reported = [(code, of) for code, of in findings(storage) if of is not None and whole_file(of) == path]
    assert len(reported) > 1
    assert all(code is Code.MISSING_FILE and range_of(of) is not None for code, of in reported)


def test_damage_behind_what_an_epoch_needs_takes_nothing_away_from_it(storage: MemoryStorage) -> None:
    """The acks in a pack, once the manifest stands for them."""
    path = packs(storage, 4)[0]
    at = storage.files[path].index(b"seen/0")
    storage.files[path] = storage.files[path][:at] + b"SEEN/0" + storage.files[path][at + 6 :]
    assert (Code.UNREFERENCED_FILE, path) in findings(storage)
    assert report(storage).restorable == (1, 2, 4)
    whole = newest_whole(NativeStore(storage))
    assert not isinstance(whole, NoPlan)
    assert whole[0].facts.epoch == 4


def test_a_damaged_range_is_of_the_epochs_that_need_it(storage: MemoryStorage) -> None:
    file = next(file for file in named(NativeStore(storage), 4) if layout.epoch_of(file.path) == 2)
    place = range_of(file.path)
    assert place is not None
    data = bytearray(storage.files[place.file])
    data[place.offset + place.length // 2] ^= 1
    storage.files[place.file] = bytes(data)
    assert report(storage).restorable == (1,)
    assert (Code.DIGEST_MISMATCH, file.path) in findings(storage)
    plan = plan_recovery(NativeStore(storage))
    assert not isinstance(plan, NoPlan)
    assert plan.body.epoch == 1


@pytest.mark.parametrize(("change", "error"), [
    (lambda path: path.replace("+0", "+1"), "in a range of"),
    (lambda path: "../" + path, "no plain relative path"),
    (lambda path: path.replace(".pack@", ".pack/../x.pack@"), "no plain relative path"),
    (lambda path: path + "/..", "no plain relative path"),
])  # fmt: skip
def test_a_range_that_cannot_be_is_refused(build: PackedBuild, change: object, error: str) -> None:
    parts = NativeStore(build.storage).parts(1)
    victim = next(part for part in parts if part.state)
    file = victim.state[0]
    assert callable(change)
    evil = msgspec.structs.replace(victim, state=(msgspec.structs.replace(file, path=change(file.path)),))
    for facts in (evil, TasksFacts(epoch=1, parts=(*parts, evil), **header(TasksFacts))):
        with pytest.raises((Damaged, UnsafePath), match=error.replace("no plain", "not a plain")):
            check_facts(facts, "tasks.json")


def test_a_range_behind_the_end_of_its_pack_is_damage(storage: MemoryStorage) -> None:
    file = named(NativeStore(storage), 1)[0]
    storage.files[whole_file(file.path)] = b"short"
    assert ranges.size(storage, file.path) == 0
    assert ranges.read(storage, file.path) == b""
    row = next(row for row in NativeStore(storage).epochs() if row.epoch == 1)
    assert row.status is Status.DAMAGED
    assert "has 0 bytes" in (row.reason or "")


def test_a_pack_of_another_epoch_is_none(build: PackedBuild) -> None:
    path = layout.pack(9, build.id, INCARNATIONS[0], 1)
    data, _ = encode_pack(path, [build.loose(8, "out/0")])
    storage = MemoryStorage()
    storage.put(path, data)
    with pytest.raises(Damaged, match="for epoch 8"):
        read_pack(storage, path)


def test_a_pack_that_leaves_bytes_to_no_file_is_none(build: PackedBuild) -> None:
    path = layout.pack(9, build.id, INCARNATIONS[0], 1)
    loose = build.loose(9, "seen/0")
    data, _ = encode_pack(path, [loose])
    line, rest = data[: (end := data.index(b"\n") + 1)], data[end:]
    first = read_pack(_with(path, data), path).parts[0]
    moved = msgspec.structs.replace(first.state[0], path=first.state[0].path.replace("@0000", "@0001"))
    facts = msgspec.json.decode(line)
    facts.pop("sha256")
    facts["parts"][0]["state"][0]["path"] = moved.path
    body = msgspec.json.encode(facts)[:-1]
    sealed = body + b',"sha256":"' + hashlib.sha256(body).hexdigest().encode() + b'"}\n'
    with pytest.raises(Damaged, match="begins at byte"):
        read_pack(_with(path, sealed + rest), path)


def _with(path: str, data: bytes) -> MemoryStorage:
    storage = MemoryStorage()
    storage.put(path, data)
    return storage


# -- what may go ----------------------------------------------------------------------------------------------


def test_a_pack_goes_when_no_epoch_that_stays_has_a_range_of_it(storage: MemoryStorage) -> None:
    """Epoch 4 refers to ranges of 1 and 2."""
    removal = plan_removal(NativeStore(storage), 1, min_age=0)
    assert [epoch.epoch for epoch in removal.epochs] == [1, 2, 3]
    carry_out(storage, removal, newest_attempt(storage))
    assert len(packs(storage, 1)) == len(packs(storage, 2)) == 2
    assert packs(storage, 3) == []
    assert report(storage).restorable == (4,)
    assert {code for code, _ in findings(storage)} == {Code.MISSING_ACK}
    build = PackedBuild(storage, loop_job(2))
    build.complete(6, 4)  # refers to nothing older
    removal = plan_removal(NativeStore(storage), 1, min_age=0)
    carry_out(storage, removal, newest_attempt(storage))
    assert [path for epoch in range(1, 6) for path in packs(storage, epoch)] == []
    assert report(storage).restorable == (6,)
    assert findings(storage) == []


def test_a_pack_that_no_manifest_names_is_an_orphan(storage: MemoryStorage) -> None:
    """A worker that was lost, and came back, wrote it."""
    build = PackedBuild(storage, loop_job(2))
    stray = build.pack(4, 0, [build.loose(4, "seen/0")], number=7)
    path = whole_file(stray[0].state[-1].path)
    assert (Code.UNREFERENCED_FILE, path) in findings(storage)
    assert report(storage).restorable == (1, 2, 4)
    removal = plan_removal(NativeStore(storage), 9, min_age=0)
    assert [orphan.path for orphan in removal.orphans] == [path]
    carry_out(storage, removal, newest_attempt(storage))
    assert path not in storage.files
    assert report(storage).restorable == (1, 2, 4)


# -- copies ---------------------------------------------------------------------------------------------------


def test_a_copy_has_the_packs_that_its_epochs_need(tmp_path: Path) -> None:
    source = make_packed(tmp_path / "a")
    store = NativeStore(source.storage)
    copied = copy_store(store, 4, str(tmp_path / "b"))
    assert [epoch.outcome for epoch in copied.epochs] == [Became.COPIED]
    copy = NativeStore(LocalStorage(tmp_path / "b"))
    assert report_of(copy).restorable == (4,)
    assert list(copy.state(4, "seen")) == list(store.state(4, "seen"))
    again = copy_store(store, None, str(tmp_path / "b"))
    assert {epoch.epoch: epoch.outcome for epoch in again.epochs} == {
        1: Became.COPIED, 2: Became.COPIED, 4: Became.PRESENT,
    }  # fmt: skip
    assert report_of(copy := NativeStore(LocalStorage(tmp_path / "b"))).restorable == (1, 2, 4)
    assert not report_of(copy).all_findings
    assert set(files_to_copy(store, 4)) <= {path for path, _, _ in copy.storage.inventory()} | {  # type: ignore[attr-defined]
        layout.STORE
    }


def test_what_a_copied_pack_lacks_is_seen_when_another_epoch_needs_it(tmp_path: Path) -> None:
    source = make_packed(tmp_path / "a")
    store = NativeStore(source.storage)
    copy_store(store, 4, str(tmp_path / "b"))
    copied = LocalStorage(tmp_path / "b")
    needed = {file.path for file in named(store, 4)}
    other = next(file for file in named(store, 1) if file.path not in needed)
    place = range_of(other.path)
    assert place is not None
    data = bytearray(copied.read(place.file))
    data[place.offset] ^= 1
    copied.put(place.file, bytes(data), replace=True)
    copy_store(store, None, str(tmp_path / "b"))
    assert report_of(NativeStore(copied)).restorable == (1, 2, 4)


def test_an_epoch_whose_range_is_damaged_is_not_copied(tmp_path: Path) -> None:
    source = make_packed(tmp_path / "a")
    store = NativeStore(source.storage)
    place = range_of(next(file for file in named(store, 4) if layout.epoch_of(file.path) == 4).path)
    assert place is not None
    data = bytearray(source.storage.read(place.file))
    data[place.offset] ^= 1
    assert isinstance(source.storage, LocalStorage)
    source.storage.put(place.file, bytes(data), replace=True)
    copied = copy_store(store, None, str(tmp_path / "b"))
    assert {epoch.epoch: epoch.outcome for epoch in copied.epochs} == {
        1: Became.COPIED, 2: Became.COPIED, 4: Became.DAMAGED,
    }  # fmt: skip
    assert report_of(NativeStore(LocalStorage(tmp_path / "b"))).restorable == (1, 2)


def report_of(store: NativeStore) -> StoreReport:
    return check_all(store, (), Prober(store.storage))
