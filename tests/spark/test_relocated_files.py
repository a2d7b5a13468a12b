"""Files that connectors keep in a checkpoint name places in it by absolute paths: in a copy these are of the copy."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from abscli.cli.main import main
from abscli.stores.spark.relocate import is_foreign, move_foreign
from tests.support.spark.data import copy_of

LOG = "_schemas/_schema_log_3adf155d-19a7-468e-88cc-5f408e43ec0f"


def copied(root: Path, to: Path) -> None:
    plan = to.with_suffix(".json")
    assert main(["plan-recovery", str(root), "--out", str(plan)]) == 0
    assert main(["restore", str(plan), "--to", str(to)]) == 0


def test_deltas_log_of_schemas_names_the_source_of_the_copy(tmp_path: Path) -> None:
    """A real one of Delta 4.0, whose checkpoint has been moved since. Delta compares the path when a query starts."""
    root, to = copy_of("incidents/delta_schema_log", tmp_path), tmp_path / "copy"
    copied(root, to)
    for number in ("0", "1"):
        before, after = ((at / LOG / number).read_text() for at in (root, to))
        assert json.loads(after.split("\n")[1])["sourceMetadataPath"] == f"file:{to}/sources/0"
        assert after == before.replace("file:/tmp/sparkx/w/ext/delta_schema_log/ck", f"file:{to}")
    assert (root / LOG / "0").exists()


def test_a_log_that_is_restored_again_names_the_newest_place(tmp_path: Path) -> None:
    root = copy_of("incidents/delta_schema_log", tmp_path)
    copied(root, tmp_path / "once")
    copied(tmp_path / "once", tmp_path / "twice")
    shutil.rmtree(tmp_path / "once")
    text = (tmp_path / "twice" / LOG / "1").read_text()
    assert f'"sourceMetadataPath":"file:{tmp_path}/twice/sources/0"' in text


@pytest.mark.parametrize("place", ["sources/0/offsets/0", "connector/state.json", "_schemas/deep/er/9"])
def test_any_file_of_a_connector_names_the_copy(place: str, tmp_path: Path) -> None:
    root, to = copy_of("words", tmp_path), tmp_path / "copy"
    (root / place).parent.mkdir(parents=True)
    (root / place).write_text(f'v1\n{{"own": "file:{root}/sources/0", "table": "file:/lake/sources/0"}}')
    (root / "connector").mkdir(exist_ok=True)
    (root / "connector/LOCK").write_bytes(b"\xff\xfe" + str(root).encode())
    copied(root, to)
    assert (to / place).read_text() == f'v1\n{{"own": "file:{to}/sources/0", "table": "file:/lake/sources/0"}}'
    assert (to / "connector/LOCK").read_bytes() == b"\xff\xfe" + str(root).encode()


@pytest.mark.parametrize(
    ("written", "root", "to", "moved"),
    [
        ("file:/q/ck/sources/0", "/q/ck", "/new", "file:/new/sources/0"),
        ("file:///q/ck/sources/0", "/q/ck", "/new", "file:///new/sources/0"),
        ("/q/ck", "/q/ck", "/new", "/new"),
        ("s3a://b/ck/x", "s3://b/ck", "s3://c/new", "s3a://c/new/x"),
        ("s3a://b/ck/x", "s3://b/ck", "/new", "file:/new/x"),
        ("/q/ck/x", "/q/ck", "s3://c/new", "s3://c/new/x"),
        ("/q/ck-2/x", "/q/ck", "/new", None),
        ("/lake/q/ck/x", "/q/ck", "/new", None),
    ],
)  # fmt: skip
def test_a_place_keeps_the_way_in_which_it_is_written(written: str, root: str, to: str, moved: str | None) -> None:
    data = move_foreign(json.dumps({"a": written}).encode(), root, to)
    assert (None if data is None else json.loads(data)["a"]) == moved


@pytest.mark.parametrize("path", ["offsets/1", "commits/1", "metadata", "state/0/0/1.delta", "sources/0/1"])
def test_sparks_own_files_are_not_a_connectors(path: str) -> None:
    assert not is_foreign(path)
