"""A checkpoint of RocksDB's files: read from a copy, with nothing of the machine that wrote it, or refused."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import msgspec
import pytest

from formats.errors import Damaged, FormatError, NotFound
from formats.flink.evidence import gather
from formats.flink.metadata.handles import (
    IncrementalHandle,
    InlineHandle,
    LocalFile,
)
from formats.flink.state import rocksdb
from formats.flink.state.keyed import read_blocks
from formats.flink.state.rows import batches
from formats.flink.store import FlinkStore
from formats.flink.stream_check import check_state
from tests.support.archives import unpacked
from tests.support.commands import run_command
from tests.support.flink.truth import DATA, opened

CHECKPOINT = min(path.parent for path in (DATA / "state" / "rocksdb").rglob("chk-*/_metadata"))


def rocksdb_handle() -> tuple[IncrementalHandle, FlinkStore, int]:
    store, epoch = opened(CHECKPOINT)
    handle = store.find_operator(epoch, "op").subtasks[0].managed_keyed
    assert isinstance(handle, IncrementalHandle)
    return handle, store, epoch


def test_a_missing_package_for_rocksdb_is_said_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    store, epoch = opened(CHECKPOINT)
    found = store.find_operator(epoch, "op")
    with pytest.raises(FormatError) as caught:
        list(batches(found, store.streams(epoch), "v"))
    assert "pip install" in (caught.value.hint or "")
    evidence = gather(store, epoch, checks=(check_state,))
    assert evidence.problems == ()
    assert "misplaced-key" in evidence.unchecked


def test_rocksdb_is_read_from_a_copy_that_is_gone_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rocksdict", reason="needs the package rocksdict")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = {file: file.read_bytes() for file in CHECKPOINT.parent.rglob("*") if file.is_file()}
    store, epoch = opened(CHECKPOINT)
    blocks = batches(store.find_operator(epoch, "op"), store.streams(epoch), "v")
    next(blocks)
    blocks.close()  # type: ignore[attr-defined]
    del store, blocks
    gc.collect()
    assert list(tmp_path.iterdir()) == []
    assert {file: file.read_bytes() for file in CHECKPOINT.parent.rglob("*") if file.is_file()} == before


def test_rocksdb_without_its_options_is_refused_and_not_read_as_empty() -> None:
    handle, store, epoch = rocksdb_handle()
    private = tuple(file for file in handle.private if not file.name.startswith("OPTIONS-"))
    bare = IncrementalHandle(
        handle.tag,
        handle.checkpoint_id,
        handle.backend,
        handle.first,
        handle.count,
        None,
        handle.meta,
        handle.shared,
        private,
    )
    with pytest.raises(NotFound, match="OPTIONS"):
        list(read_blocks(bare, store.streams(epoch), 300))


def with_file(handle: IncrementalHandle, name: str, data: bytes) -> IncrementalHandle:
    """The handle with other bytes in one of its files."""

    def changed(files: tuple[LocalFile, ...]) -> tuple[LocalFile, ...]:
        return tuple(
            LocalFile(file.name, InlineHandle(name, data)) if file.name.startswith(name) else file for file in files
        )

    return msgspec.structs.replace(handle, shared=changed(handle.shared), private=changed(handle.private))


def test_lists_of_rocksdb_are_refused_where_the_options_have_lost_the_merge_operator() -> None:
    pytest.importorskip("rocksdict", reason="needs the package rocksdict")
    handle, store, epoch = rocksdb_handle()
    options = next(file for file in handle.private if file.name.startswith("OPTIONS-"))
    assert options.stream is not None
    text = store.streams(epoch).read(options.stream)
    lost = with_file(handle, "OPTIONS-", text.replace(b"{id=StringAppendTESTOperator;delimiter=,;}", b"nullptr"))
    blocks = list(read_blocks(lost, store.streams(epoch), 300))
    problems = {block.table.name: block.problem for block in blocks if block.problem is not None}
    assert set(problems) == {"l"}
    assert "merge operator" in str(problems["l"])


def test_paths_and_options_of_the_old_machine_do_not_reach_rocksdb(tmp_path: Path) -> None:
    pytest.importorskip("rocksdict", reason="needs the package rocksdict")
    handle, store, epoch = rocksdb_handle()
    options = next(file for file in handle.private if file.name.startswith("OPTIONS-"))
    assert options.stream is not None
    text = store.streams(epoch).read(options.stream)
    due = [(block.group, block.keys, block.values) for block in read_blocks(handle, store.streams(epoch), 300)]
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "LOG.old.1").write_text("another's")
    for line in (
        b"  wal_dir=/mnt/gone/db",
        b"  db_log_dir=" + str(logs).encode(),
        b"  wal_dir=" + str(logs).encode(),
        b"  an_option_of_the_future=1",
        b"  keep_log_file_num=1",
    ):
        assert b"[DBOptions]\n" in text
        other = with_file(handle, "OPTIONS-", text.replace(b"[DBOptions]\n", b"[DBOptions]\n" + line + b"\n"))
        blocks = list(read_blocks(other, store.streams(epoch), 300))
        assert [(block.group, block.keys, block.values) for block in blocks] == due
    assert [path.name for path in logs.iterdir()] == ["LOG.old.1"]


def test_a_current_that_names_no_manifest_of_the_instance_is_refused() -> None:
    handle, store, epoch = rocksdb_handle()
    for data in (b"", b"../../etc/passwd\n", b"MANIFEST-999999\n", b"/dev/zero\n"):
        with pytest.raises(Damaged, match="CURRENT"):
            list(read_blocks(with_file(handle, "CURRENT", data), store.streams(epoch), 300))


@pytest.mark.parametrize(
    ("message", "damage"),
    [
        ("Corruption: block checksum mismatch", True),
        ("IO error: No such file or directory: While open a file for random read: 000025.sst", True),
        ("Invalid argument: wal_dir not found: /mnt/gone", False),
        ("IO error: No such file or directory: /mnt/gone/db", False),
        ("Not implemented: compression type 99", False),
        ("Corruption: Unknown Footer version. Maybe this file was created with newer version of RocksDB?", False),
    ],
)
def test_only_what_rocksdb_says_of_the_bytes_is_damage(message: str, damage: bool) -> None:
    assert isinstance(rocksdb._refused(message, "instance"), Damaged) is damage


def test_a_manifest_that_has_lost_a_file_is_refused() -> None:
    pytest.importorskip("rocksdict", reason="needs the package rocksdict")
    handle, store, epoch = rocksdb_handle()
    manifest = next(file for file in handle.private if file.name.startswith("MANIFEST-"))
    assert manifest.stream is not None
    data = store.streams(epoch).read(manifest.stream)
    with pytest.raises(Damaged):
        list(read_blocks(with_file(handle, "MANIFEST-", data[: len(data) // 2]), store.streams(epoch), 300))


@pytest.mark.parametrize(
    ("command", "opens"),
    [(["diff", "small2", "small3"], 4), (["state", "small3", "--all", "--out", "NEW"], 2), (["validate", "small3"], 2)],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_an_instance_is_opened_once_however_many_states_it_has(
    command: list[str], opens: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """19 states in one RocksDB per subtask, two subtasks: 68 and 38 opens before."""
    rocksdict = pytest.importorskip("rocksdict", reason="needs the package rocksdict")
    count, real = [0], rocksdict.Rdict

    def counted(*args: object, **options: object) -> object:
        count[0] += 1
        return real(*args, **options)

    monkeypatch.setattr(rocksdict, "Rdict", counted)
    snapshots = unpacked(DATA / "subclass-in-one-task.tar.xz")
    words = [str(snapshots / word) if word.startswith("small") else word for word in command[1:]]
    words = [str(tmp_path / "new") if word == "NEW" else word for word in words]
    assert run_command(command[0], capsys, *words)[0] == 0
    assert count == [opens]


def test_instances_that_stay_open_are_bounded_and_end_with_their_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("rocksdict", reason="needs the package rocksdict")
    monkeypatch.setattr(rocksdb, "scratch", lambda: str(tmp_path))
    monkeypatch.setattr(rocksdb, "KEPT", 1)
    store = FlinkStore(str(unpacked(DATA / "subclass-in-one-task.tar.xz") / "small3"))
    rows = sum(batch.num_rows for batch in store.state(3, "k-dbl", "pojos"))
    assert (rows, len(list(tmp_path.iterdir()))) == (120, 1)
    first = store.state(3, "k-dbl", "pojos")
    next(first)
    assert len(list(tmp_path.iterdir())) <= 2, "one is read, one may stay"
    assert sum(batch.num_rows for batch in store.state(3, "k-dbl", "pojos")) == 120
    assert sum(batch.num_rows for batch in first) < 120
    del store, first
    gc.collect()
    assert list(tmp_path.iterdir()) == []
