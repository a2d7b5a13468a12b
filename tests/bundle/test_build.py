"""What goes into the single file: locked wheels alone, the files of them that are used, the same bytes each time."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path

import pytest

from abscli.cli.bundle.build import build, main
from abscli.cli.bundle.contents import VARIANTS, BadBundle, Pin, Variant, chosen, pins, place, target_of, wheel_of
from tests.house.test_setup import locked
from tests.support.bundles import SMALL, WHEELS, manifest_of, small_file, write_wheels
from tests.support.imports import ROOT

LOCK = """numpy==2.4.6 ; python_full_version < '3.12' \\
    --hash=sha256:{a} \\
    --hash=sha256:{b}
    # via abs
Typing_Extensions==4.16.0 \\
    --hash=sha256:{c}
""".format(a="a" * 64, b="b" * 64, c="c" * 64)
OWN = "abscli-0.1.0-py3-none-any.whl"
NUMPY = "numpy-2.4.6-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl"
TYPING = "typing_extensions-4.16.0-py3-none-any.whl"


def test_the_lock_is_read_with_its_conditions() -> None:
    assert pins(LOCK) == [
        Pin("numpy", "2.4.6", frozenset({"a" * 64, "b" * 64}), True),
        Pin("typing-extensions", "4.16.0", frozenset({"c" * 64}), False),
    ]


def test_the_lock_of_the_project_names_what_the_other_locks_name() -> None:
    reader, tested = locked("reader.txt"), locked("requirements.txt")
    assert all(versions <= tested[name] for name, versions in reader.items()), "make lock"
    wanted = [line for line in (ROOT / ".ci" / "reader.in").read_text().splitlines() if line[:1] not in ("", "#")]
    assert set(wanted) <= reader.keys(), "make lock"
    assert all(variant.without <= reader.keys() for variant in VARIANTS.values())
    assert {pin.name for pin in pins((ROOT / ".ci" / "reader.txt").read_text())} == reader.keys()


def test_only_wheels_of_the_lock_are_taken() -> None:
    digests = {OWN: "0" * 64, NUMPY: "b" * 64, TYPING: "c" * 64}
    locked = pins(LOCK)
    assert chosen(digests, locked, SMALL) == [OWN, NUMPY, TYPING]
    assert chosen(digests, locked, Variant("x", frozenset({"numpy"}), 1)) == [OWN, TYPING]
    with pytest.raises(BadBundle, match=r"numpy.* is not a file that the lock names"):
        chosen({**digests, NUMPY: "d" * 64}, locked, SMALL)
    with pytest.raises(BadBundle, match="no wheel of typing-extensions"):
        chosen({OWN: "", NUMPY: "b" * 64}, locked, SMALL)
    with pytest.raises(BadBundle, match="no wheel of abscli"):
        chosen({NUMPY: "b" * 64, TYPING: "c" * 64}, locked, SMALL)


def test_the_oldest_glibc_that_is_enough_for_all_wheels_is_named() -> None:
    here = {"python": "3.11", "glibc": "2.36"}
    arrow = "pyarrow-26.0.1-cp311-cp311-manylinux_2_28_x86_64.whl"
    old = "mmh3-5.3.1-cp311-cp311-manylinux1_x86_64.manylinux_2_28_x86_64.manylinux_2_5_x86_64.whl"
    assert target_of([NUMPY, old], here) == {"python": "3.11", "glibc": "2.27"}
    assert target_of([NUMPY, old, arrow], here)["glibc"] == "2.28"
    assert target_of(["helper-1-py3-none-any.whl"], here) == {"python": "3.11"}


def test_a_file_that_is_no_wheel_is_refused() -> None:
    with pytest.raises(BadBundle):
        wheel_of("numpy-2.4.6.tar.gz")


@pytest.mark.parametrize(
    ("distribution", "name", "where"),
    [
        ("pyarrow", "pyarrow/libarrow.so.2600", "pyarrow/libarrow.so.2600"),
        ("pyarrow", "pyarrow/libarrow_python.so.2600", "pyarrow/libarrow_python.so.2600"),
        ("pyarrow", "pyarrow/libarrow_python.so.2600.1.0", None),
        ("pyarrow", "pyarrow/libarrow_flight.so.2600", None),
        ("pyarrow", "pyarrow/_dataset.cpython-311-x86_64-linux-gnu.so", None),
        ("pyarrow", "pyarrow/_parquet.cpython-311-x86_64-linux-gnu.so",
         "pyarrow/_parquet.cpython-311-x86_64-linux-gnu.so"),
        ("pyarrow", "pyarrow/lib.pxd", None),
        ("pyarrow", "pyarrow-26.0.1.dist-info/licenses/LICENSE.txt", "pyarrow-26.0.1.dist-info/licenses/LICENSE.txt"),
        ("pyarrow", "pyarrow-26.0.1.dist-info/RECORD", None),
        ("numpy", "numpy/_core/tests/test_umath.py", None),
        ("numpy", "numpy/lib/tests/data/x.npy", None),
        ("rich", "rich/tests/a.py", "rich/tests/a.py"),
        ("abscli", "abscli-0.1.0.data/data/share/zsh/site-functions/_abs", "completions/_abs"),
        ("abscli", "abscli-0.1.0.data/data/share/man/man1/abs.1", None),
        ("abscli", "abscli/cli/", None),
    ],
)  # fmt: skip
def test_a_file_of_a_wheel_has_a_place_or_is_left_out(distribution: str, name: str, where: str | None) -> None:
    assert place(distribution, name) == where


def test_the_same_wheels_give_the_same_bytes(tmp_path: Path) -> None:
    one, other = small_file(tmp_path / "one"), small_file(tmp_path / "other")
    assert one.read_bytes() == other.read_bytes()


def test_the_manifest_has_the_digest_of_every_file(tmp_path: Path) -> None:
    archive = small_file(tmp_path)
    facts = json.loads(manifest_of(archive))
    with zipfile.ZipFile(archive) as opened:
        names = {name.removeprefix("files/") for name in opened.namelist() if name.startswith("files/")}
        assert [name for name, _, _ in facts["files"]] == sorted(names)
        for name, size, digest in facts["files"]:
            content = opened.read(f"files/{name}")
            assert (len(content), hashlib.sha256(content).hexdigest()) == (size, digest)


def test_a_file_that_is_too_large_is_not_written(tmp_path: Path) -> None:
    lock = write_wheels(tmp_path / "wheels")
    with pytest.raises(BadBundle, match="and may have 10"):
        build(SMALL._replace(most=10), lock, tmp_path / "wheels", tmp_path / "out" / "small.pyz")
    assert list((tmp_path / "out").iterdir()) == []


def test_two_wheels_with_the_same_file_are_refused(tmp_path: Path) -> None:
    again = {"other-1.0-py3-none-any.whl": {"helper.py": ""}}
    with pytest.raises(BadBundle, match=r"brings helper\.py"):
        small_file(tmp_path, {**WHEELS, **again})


def test_the_reader_is_at_most_60_megabytes() -> None:
    assert VARIANTS["abs-reader"].most == 60_000_000


def test_a_variant_that_does_not_exist_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["abs-writer", "lock", "wheels", "out"]) == 2
    assert "abs-reader,abs-reader-buckets" in capsys.readouterr().err


def test_the_makefile_builds_each_variant() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for name in VARIANTS:
        target = name.removeprefix("abs-")
        assert f"\n{target}: setup  ## " in makefile
        assert f"@.ci/reader {name}\n" in makefile
