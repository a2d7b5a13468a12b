"""What is said of other releases of Flink, held against those releases: each starts, or does not."""

from __future__ import annotations

import re
import shutil
import zipfile
from pathlib import Path

import pytest

from abscli.stores.flink.upgrading.upgrade import _walk
from abscli.stores.flink.upgrading.upgrade_rules import TARGETS, WRITERS, Release, Step
from formats.flink.store import FlinkStore
from formats.flink.types import serializers
from formats.flink.types.serializer_classes import CLASS_ONLY, COMPOSITE, SCALA, SIMPLE
from formats.flink.types.serializers import Snapshot
from tests.support.commands import run_command
from tests.support.flink.cases import content
from tests.support.flink.java import SOURCES
from tests.support.flink.releases import STARTED, compiled_for, run, unpack
from tests.support.maven import jars, versions_of
from tests.support.schemas import checked

pytestmark = [
    pytest.mark.soak,
    pytest.mark.usefixtures("jvm"),
    pytest.mark.minutes,
    pytest.mark.skipif(shutil.which("javac") is None, reason="there is no Java compiler"),
]

UPGRADES = (
    ("1.14.6", "1.20"), ("1.20.5", "2.0"), ("1.20.5", "2.1"), ("1.17.2", "2.2"), ("1.15.4", "2.3"), ("2.3.0", "2.2"),
    ("2.3.0", "2.1"),
)  # fmt: skip
"""The release that wrote a savepoint, and the one that starts from it."""
JOB = (SOURCES / "UpgradeJob.java").read_text()


@pytest.fixture(scope="module")
def savepoints() -> dict[str, Path]:
    return unpack()


@pytest.fixture(scope="module")
def jobs() -> dict[str, str]:
    """Class paths of the job by release, compiled when they are needed."""
    return {}


@pytest.mark.parametrize(("written", "release"), UPGRADES)
def test_what_is_said_to_restore_does_row_by_row(
    written: str, release: str, savepoints: dict[str, Path], jobs: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """On the heap, which reads all of it at once: 80 states of serializers and operators of all kinds, up and down."""
    code, out, _ = run_command("validate", capsys, savepoints[written], "--for", f"flink:{release}", "-o", "json")
    report = checked(out)
    assert (code, report["verdict"], len(report["states"])) == (0, "restores", 80)
    version = STARTED[release]
    if release not in jobs:
        jobs[release] = compiled_for(version, tmp_path_factory.mktemp("job") / version, UpgradeJob=JOB)
    folder = tmp_path_factory.mktemp("started") / "run"
    start = f"execution.state-recovery.path=file://{savepoints[written]}"
    taken, log = run(jobs[release], folder, "UpgradeJob", folder, "CANONICAL", start, "state.backend.type=hashmap")
    assert taken is not None, log[-3000:]
    before, after = (content(FlinkStore(str(path))) for path in (savepoints[written], taken))
    assert [place for place in before if before[place] != after[place]] == [
        place for place in before if place[1] == "SourceReaderState"
    ], "it has read on"


def test_a_serializer_of_a_later_release_does_not_restore(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A bitmap, which Flink 2.3 brought; the version of the metadata is that of Flink 2.1."""
    job = (SOURCES / "OrderJob.java").read_text()
    bitmap = "org.apache.flink.types.bitmap.Bitmap"
    made = f"{bitmap}.fromArray(new int[] {{7}})"
    newer = job.replace("shop.Order.class", "Types.BITMAP").replace("new shop.Order()", made)
    newer = newer.replace("shop.Order", bitmap)
    class_path = compiled_for(STARTED["2.3"], tmp_path / "newer", OrderJob=newer)
    taken, log = run(class_path, tmp_path / "before", "OrderJob", tmp_path / "before" / "sp")
    assert taken is not None, log[-3000:]
    for release, expected in (("2.2", 3), ("2.1", 3), ("2.3", 0)):
        code, out, _ = run_command("validate", capsys, taken, "--for", f"flink:{release}", "-o", "json")
        rules = {(state["state"], why["rule"]) for state in checked(out)["states"] for why in state["reasons"]}
        assert (code, rules) == (expected, {("order", "serializer-newer")} if expected else set())
    order = "package shop;\npublic class Order { public long id; }\n"
    older = compiled_for(STARTED["2.2"], tmp_path / "older", OrderJob=job, shop_Order=order)
    start = f"execution.state-recovery.path=file://{taken}"
    again, log = run(older, tmp_path / "after", "OrderJob", tmp_path / "after" / "sp", start)
    assert again is None
    assert "BitmapSerializer$BitmapSerializerSnapshot" in log, log[-3000:]


# -- jars -------------------------------------------------------------------------------------------------


def classes_of(*coordinates: str) -> set[str]:
    """The classes of jars with those in them, but not of what they need."""
    return {name for path in jars(*coordinates, alone=True) for name in classes_in(path)}


def classes_in(path: Path) -> set[str]:
    """List the classes of a jar."""
    with zipfile.ZipFile(path) as jar:
        return {name[:-6].replace("/", ".") for name in jar.namelist() if name.endswith(".class")}


def test_releases_know_just_the_versions_of_metadata_that_are_said() -> None:
    versions = ("1.14.6", "1.15.4", "1.16.3", *STARTED.values())
    said, known = {}, {}
    for version, jar in zip(versions, versions_of("org.apache.flink:flink-runtime", *versions), strict=True):
        release = _release(version)
        found = (re.search(r"\.MetadataV(\d+)Serializer$", name) for name in classes_in(jar))
        known[version] = max(int(match[1]) for match in found if match)
        (writes,) = {number for number, (oldest, newest) in WRITERS.items() if oldest <= release <= newest}
        assert writes == TARGETS.get(release, writes)
        said[version] = writes
    assert known == said


LACKING = {
    release: (version, table)
    for release, version, table in (
        ("1.20", STARTED["1.20"], "1.20.2"), ("2.0", STARTED["2.0"], STARTED["2.0"]),
        ("2.1", STARTED["2.1"], "2.1.1"), ("2.2", STARTED["2.2"], STARTED["2.2"]),
    )
}  # fmt: skip
"""Of each minor release those whose jars are looked into, of the core and of SQL."""


@pytest.mark.parametrize("release", LACKING)
def test_rules_name_just_the_serializers_that_a_release_lacks(release: str) -> None:
    version, table = LACKING[release]
    core = ["flink-core", "flink-runtime", "flink-streaming-java", "flink-cep", "flink-queryable-state-client-java"]
    core.append("flink-java" if release == "1.20" else "flink-core-api")
    there = classes_of(*(f"org.apache.flink:{name}:{version}" for name in core))
    there |= classes_of(f"org.apache.flink:flink-table-runtime:{table}", f"org.apache.flink:flink-table-common:{table}")
    ours = {*SIMPLE, *COMPOSITE, *CLASS_ONLY, *serializers._BODIES}
    # of Avro and of Python, and in Flink 1 of Scala, which have jars of their own
    apart = {name for name in ours if any(part in name for part in ("formats.avro", ".python.", "ByteArrayWrapper"))}
    apart |= {name for name in ours if release == "1.20" and name.startswith(SCALA)}
    target = _release(release)
    named = {
        name
        for name in ours
        for version in (4, TARGETS[target])
        for why in _walk(Snapshot(SIMPLE.get(name, "?"), name, 1), "", Step(version, target))
        if why.rule.verdict.value == "does not"
    }
    assert ours - there - apart == named - apart


def _release(version: str) -> Release:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)
