"""`abs copy` and `abs tag` on a store in a bucket: the same as on a disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from formats.storage import open_writable
from tests.native.test_copy import became, made
from tests.support.commands import result_of, run_command
from tests.support.objects.places import bucket_place
from tests.support.objects.servers import ObjectServer
from tests.support.stores.small import Build, loop_job, make_store

Capture = pytest.CaptureFixture[str]


def test_a_store_goes_to_a_bucket_and_back_with_its_tags(tmp_path: Path, s3: ObjectServer, capsys: Capture) -> None:
    place = str(bucket_place(s3).root)
    make_store(tmp_path / "store")
    run_command("tag", capsys, f"{tmp_path / 'store'}@2", "good")
    assert became(made(capsys, tmp_path / "store", place)) == [(1, "copied"), (2, "copied"), (4, "copied")]
    assert made(capsys, tmp_path / "store", place)["files"] == 0
    assert run_command("validate", capsys, place)[0] == 0
    assert run_command("tag", capsys, place, "newest")[0] == 0
    kept = result_of("gc", capsys, place, "--keep", "1", "--min-age", "0s", "--yes")["kept"]
    assert kept == [2, 4]
    back = made(capsys, place, tmp_path / "back")
    assert (became(back), back["tags"]) == ([(2, "copied"), (4, "copied")], {"good": 2, "newest": 4})
    assert run_command("diff", capsys, f"{tmp_path / 'back'}@good", f"{tmp_path / 'store'}@2", "--exit-code")[0] == 0
    code, _, err = run_command("copy", capsys, place, f"{place}/inside")
    assert code == 2
    assert "lie in one another" in err


def test_a_copy_in_a_bucket_that_has_gone_on_is_left_alone(tmp_path: Path, s3: ObjectServer, capsys: Capture) -> None:
    place = str(bucket_place(s3).root)
    make_store(tmp_path / "store")
    made(capsys, tmp_path / "store", place)
    later = Build(open_writable(place), loop_job(), attempt=2)
    later.begin(first_epoch=7, parent=4)
    code, _, err = run_command("copy", capsys, tmp_path / "store", place)
    assert code == 2
    assert "has diverged" in err
