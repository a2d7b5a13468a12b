"""Copies, opened by Flink's own loader."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from abscli.stores.flink.plan import plan_flink
from abscli.stores.flink.restore import restore as restore_flink
from formats.flink.metadata.file import encode, parse
from formats.flink.store import FlinkStore
from tests.support.flink.java import compiled
from tests.support.flink.truth import DATA
from tests.support.java import QUICK

pytestmark = [
    pytest.mark.usefixtures("jvm"),
    pytest.mark.skipif(shutil.which("javac") is None, reason="there is no Java compiler"),
]

CASES = [
    path
    for case in ("hashmap-checkpoint", "unaligned", "file-merging", "in-progress", "changelog")
    for path in (DATA / case).iterdir()
] + list((DATA / "hashmap-savepoint-canonical").iterdir())


@pytest.fixture(scope="module")
def class_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compiled(tmp_path_factory.mktemp("java") / "classes", "Load.java")


def load(class_path: str, *snapshots: Path) -> list[str]:
    """What Flink says of each snapshot."""
    command = ["java", *QUICK, "-cp", class_path, "Load", *map(str, snapshots)]
    done = subprocess.run(command, check=True, timeout=300, capture_output=True, text=True)
    return [line for line in done.stdout.splitlines() if line.startswith(("OK ", "FAIL "))]


def test_flink_opens_every_copy_and_reads_every_stream_to_its_end(class_path: str, tmp_path: Path) -> None:
    copies = []
    for path in CASES:
        store = FlinkStore(str(path))
        copy = tmp_path / path.parent.name
        restore_flink(plan_flink(store), store, str(copy))
        copies.append(copy)
    said = load(class_path, *copies)
    assert [line.split()[0] for line in said] == ["OK"] * len(CASES)
    streams = [int(line.split()[1]) for line in said]
    assert all(count > 0 for count in streams)


def test_flink_cannot_open_what_has_moved_and_can_open_its_copy(class_path: str, tmp_path: Path) -> None:
    moved = next((DATA / "file-merging").iterdir())
    store = FlinkStore(str(moved))
    plan = plan_flink(store)
    assert not plan.body.in_place
    restore_flink(plan, store, str(tmp_path / "copy"))
    before, after = load(class_path, moved / "chk-3", tmp_path / "copy")
    assert before.startswith("FAIL java.io.FileNotFoundException")
    assert after.startswith("OK 11 42525")


def test_flink_reads_properties_that_were_written_anew(class_path: str, tmp_path: Path) -> None:
    (tmp_path / "lost").mkdir()
    source = next((DATA / "in-progress").iterdir()) / "chk-2"
    shutil.copytree(source, tmp_path / "lost", dirs_exist_ok=True)
    data = (source / "_metadata").read_bytes()
    (tmp_path / "lost" / "_metadata").write_bytes(data[:-40])
    store = FlinkStore(str(tmp_path / "lost"))
    restore_flink(plan_flink(store), store, str(tmp_path / "copy"))
    before, after = load(class_path, tmp_path / "lost", tmp_path / "copy")
    assert before.startswith("FAIL java.io.EOFException")
    assert after.startswith("OK ")


def test_flink_2_3_refuses_metadata_of_the_version_after_it(class_path: str, tmp_path: Path) -> None:
    """Written by our own writer: what `validate --for` says of the whole snapshot (`metadata-version`)."""
    source = next((DATA / "in-progress").iterdir()) / "chk-2"
    shutil.copytree(source, tmp_path / "newer")
    metadata = parse((source / "_metadata").read_bytes())
    (tmp_path / "newer" / "_metadata").write_bytes(encode(msgspec.structs.replace(metadata, version=7)))
    (said,) = load(class_path, tmp_path / "newer")
    assert "Unrecognized checkpoint version number: 7" in said
