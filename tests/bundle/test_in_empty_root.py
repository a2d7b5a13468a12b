"""`abs-reader.pyz` on a machine that has a bare Python: every command that it is for, on Flink and Spark checkpoints.

Each command prints there what the ordinary installation prints here.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.bare_root import HOME, BareRoot
from tests.support.flink.truth import DATA
from tests.support.imports import ROOT
from tests.support.spark.data import Case, unpack

pytestmark = pytest.mark.soak
FILE = "abs-reader.pyz"
HEAP = next((DATA / "hashmap-checkpoint").iterdir())
ROCKSDB = next((DATA / "state" / "rocksdb").glob("*/chk-4")).parent
FLINK = f"flink/{HEAP.name}"
ROCKS = f"rocksdb/{ROCKSDB.name}"
SPARK = "spark/ids_v2/checkpoint"
SPARK_ROCKS = "spark/wc_rocks/checkpoint"
DAMAGED = "spark/broken_swapped_delta/checkpoint"
NATIVE = "golden-store"
VARIES = re.compile(r'"(?:age|created|seconds|written|generated)\w*": ?[^,}]+')
NOT_REACHED = ("Could not find a version", "NewConnectionError", "Failed to establish", "Temporary failure")


@pytest.fixture(scope="module")
def bare(empty_root: BareRoot, tmp_path_factory: pytest.TempPathFactory) -> BareRoot:
    """The empty root with the file and checkpoints."""
    out = tmp_path_factory.mktemp("reader") / FILE
    built = subprocess.run(
        [ROOT / ".ci" / "reader", "abs-reader", out], env=os.environ | {"PYTHON": sys.executable},
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    if built.returncode and any(text in built.stderr for text in NOT_REACHED):
        pytest.skip("no package index can be reached from here")
    assert built.returncode == 0, built.stderr
    folder = empty_root.folder
    shutil.copy(out, folder / FILE)
    shutil.copytree(HEAP, folder / FLINK)
    shutil.copytree(ROCKSDB, folder / ROCKS)
    shutil.copytree(DATA.parent / "golden-store", folder / NATIVE)
    for name in ("ids_v2", "wc_rocks", "broken_swapped_delta"):
        shutil.copytree(unpack(Case.of(name)), folder / "spark" / name / "checkpoint")
    return empty_root


@pytest.fixture
def there(bare: BareRoot) -> Callable[..., str]:
    """Runs the file in the empty root; what it prints."""

    def run(*arguments: object, code: int = 0) -> str:
        done = bare.run(f"/{FILE}", *arguments)
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout

    return run


def here(bare: BareRoot, *arguments: object) -> str:
    """Run the ordinary installation, in the same folder."""
    code = "import sys; from abscli.cli.main import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], cwd=bare.folder, capture_output=True, text=True, timeout=300
    )
    return done.stdout


def steady(text: str) -> Any:
    """Read JSON without what differs between two runs: times, and the digest of a plan, which has one."""
    value = json.loads(VARIES.sub('"varies": 0', text))
    value.pop("sha256", None)
    return value


def test_the_file_has_at_most_60_megabytes_and_the_size_that_the_guide_names(bare: BareRoot) -> None:
    size = (bare.folder / FILE).stat().st_size
    assert size <= 60_000_000
    page = (ROOT / "man" / "guide" / "pages" / "installation.md").read_text(encoding="utf-8")
    assert f"{size / 2**20:.0f} MiB, and " in page


def test_the_first_start_unpacks_into_a_folder_of_the_user_alone(bare: BareRoot, there: Callable[..., str]) -> None:
    assert there("--version").startswith("abs ")
    cache = bare.folder / HOME.lstrip("/") / ".cache" / "abs"
    (folder,) = cache.iterdir()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (cache, folder)] == [0o700, 0o700]
    assert list(folder.glob("pyarrow-*.dist-info/licenses/*"))
    assert "validate" in there("--help")
    assert "Exit status" in there("help", "inspect")
    assert there("completion", "bash") == (ROOT / "completions" / "abs.bash").read_text()
    (again,) = cache.iterdir()
    assert again == folder


@pytest.mark.sample(10)
@pytest.mark.parametrize(
    "arguments",
    [
        ("inspect", FLINK), ("inspect", f"{FLINK}@2"), ("validate", FLINK), ("state", FLINK),
        ("state", FLINK, "totals", "--state", "sum"), ("diff", FLINK, FLINK), ("plan-recovery", FLINK),
        ("inspect", ROCKS), ("validate", ROCKS), ("state", ROCKS, "op", "--state", "v"), ("diff", ROCKS, ROCKS),
        ("inspect", SPARK), ("validate", SPARK), ("state", SPARK, "0"), ("diff", f"{SPARK}@3", f"{SPARK}@4"),
        ("validate", SPARK_ROCKS), ("state", SPARK_ROCKS, "0"), ("plan-recovery", SPARK),
        ("validate", DAMAGED), ("plan-recovery", DAMAGED),
        ("inspect", NATIVE), ("validate", NATIVE), ("plan-recovery", NATIVE),
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_command_prints_what_the_ordinary_installation_prints(bare: BareRoot, arguments: tuple[str, ...]) -> None:
    done = bare.run(f"/{FILE}", *arguments, "-o", "json")
    assert "Traceback" not in done.stderr
    assert done.stdout, done.stderr
    assert steady(done.stdout) == steady(here(bare, *arguments, "-o", "json").replace(str(bare.folder.resolve()), ""))


@pytest.mark.parametrize("store", [FLINK, ROCKS, SPARK, DAMAGED])
def test_a_checkpoint_is_recovered_and_its_copy_is_valid(there: Callable[..., str], store: str) -> None:
    name = "-".join(store.split("/")[:2])
    there("plan-recovery", store, "--out", f"{name}.json")
    there("restore", f"{name}.json", "--to", f"restored-{name}")
    there("validate", f"restored-{name}")


@pytest.mark.parametrize("store", [FLINK, ROCKS])
def test_a_checkpoint_is_rewritten(bare: BareRoot, there: Callable[..., str], store: str) -> None:
    (bare.folder / "changes.yaml").write_text(
        f"version: 1\nmoved: [{{from: {'totals' if store == FLINK else 'op'}, to: sums}}]\n"
    )
    copy = f"rewritten-{store.partition('/')[0]}"
    there("rewrite", store, "--changes", "changes.yaml", "--to", copy)
    assert "sums" in there("inspect", f"{copy}@latest")


@pytest.mark.parametrize("store", [FLINK, SPARK, DAMAGED])
def test_a_report_is_written(bare: BareRoot, there: Callable[..., str], store: str) -> None:
    there("report", store, "--verify", "--out", "report.html", "--force")
    assert "<title>" in (bare.folder / "report.html").read_text(encoding="utf-8")


def test_a_checkpoint_is_copied_and_rows_are_written_as_parquet(bare: BareRoot, there: Callable[..., str]) -> None:
    import pyarrow.parquet as pq

    there("copy", NATIVE, "copy-of-store")
    there("validate", "copy-of-store")
    there("state", FLINK, "totals", "--state", "sum", "--out", "sums.parquet")
    assert pq.read_table(bare.folder / "sums.parquet").num_rows > 0


def test_what_the_file_lacks_is_named_with_the_way_to_it(bare: BareRoot) -> None:
    for arguments, package in ((("inspect", "s3://bucket/store"), "obstore>=0.12"), (("demo", "d"), "pyspark>=4")):
        done = bare.run(f"/{FILE}", *arguments)
        assert done.returncode == 2
        assert re.search(rf"hint: \S.* install '{re.escape(package)}'\n", done.stderr), done.stderr
    doctor = bare.run(f"/{FILE}", "doctor").stdout
    assert "obstore is not installed" in doctor
