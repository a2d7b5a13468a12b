"""Savepoints of a job of Flink 1.14 to 2.3: each is read alike, and what is said of other releases follows from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from abscli.stores.flink.upgrading.upgrade_rules import TARGETS, WRITERS
from formats.flink.files.streams import read_stream
from formats.flink.ids import operator_id
from formats.flink.store import FlinkStore
from tests.support.commands import result_of, run_command
from tests.support.flink.cases import content
from tests.support.flink.releases import STARTED, unpack
from tests.support.flink.releases import WRITERS as VERSIONS

VARYING = {"SourceReaderState", "_async_wait_operator_state_", "_timer_state/event_watermark-callbacks"}
"""States in which it shows when a record came; so do the times of state with a time to live."""


@pytest.fixture(scope="module")
def savepoints() -> dict[str, Path]:
    return unpack()


def alike(store: FlinkStore) -> dict[tuple[str, str | None], list[object]]:
    """The rows of every state without what differs from run to run."""

    def plain(value: object) -> object:
        if isinstance(value, dict):
            return {name: plain(part) for name, part in value.items() if "last_access" not in name}
        if isinstance(value, list):  # records of two inputs come in any order
            return sorted(map(plain, value), key=json.dumps)
        return value

    return {
        place: sorted((plain(json.loads(row)) for row in rows), key=json.dumps)
        for place, rows in content(store).items()
        if place[1] not in VARYING
    }


@pytest.mark.sample(2)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_savepoint_of_each_release_is_read_alike(version: str, savepoints: dict[str, Path]) -> None:
    """Operator state of Flink before 1.18 among it, which has another prefix."""
    rows = alike(FlinkStore(str(savepoints[version])))
    assert len(rows) == 77
    assert rows == alike(FlinkStore(str(savepoints["2.3.0"])))
    assert rows[operator_id("held"), "list"] == [
        {"subtask": task, "value": value} for task in (0, 1) for value in ("one", "two")
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_it_restores_in_every_release_that_reads_its_metadata(
    version: str, savepoints: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    written = FlinkStore(str(savepoints[version]))
    number = written.metadata(written.resolve(None)).version
    minor = tuple(int(part) for part in version.split(".")[:2])
    assert WRITERS[number][0] <= minor <= WRITERS[number][1]
    for release in STARTED:
        newest = TARGETS[tuple(int(part) for part in release.split("."))]  # type: ignore[index]
        code, out, _ = run_command("validate", capsys, written.path, "--for", f"flink:{release}", "-o", "json")
        report = json.loads(out)
        assert (code, report["verdict"]) == ((0, "restores") if number <= newest else (3, "does not")), release
        rules = {why["rule"] for state in report["states"] for why in state["reasons"]}
        assert rules == (set() if number <= newest else {"metadata-version"})


@pytest.mark.parametrize("version", ["1.14.6", "1.17.2"])
def test_operator_state_of_old_releases_is_written_as_they_read_it(
    version: str, savepoints: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = tmp_path / "changes.yaml"
    changes.write_text("version: 1\nremoved: [{operator: held, state: union}]\n")
    source = FlinkStore(str(savepoints[version]))
    result_of("rewrite", capsys, source.path, "--changes", changes, "--to", tmp_path / "copy")
    copy = FlinkStore(str(tmp_path / "copy"))
    before = content(source)
    assert content(copy) == {place: rows for place, rows in before.items() if place != (operator_id("held"), "union")}
    epoch = copy.resolve(None)
    handle = copy.find_operator(epoch, operator_id("held")).subtasks[0].managed_operator
    assert handle is not None
    assert read_stream(copy.streams(epoch), handle.stream, 0, 4) == b"\0\0\0\5"


def test_a_value_with_a_time_to_live_keeps_its_last_access_or_says_its_own(
    savepoints: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = FlinkStore(str(savepoints["2.3.0"]))
    keep, changes = operator_id("keep"), tmp_path / "changes.yaml"

    def rows(store: FlinkStore, state: str) -> dict[tuple[object, ...], tuple[object, object]]:
        """Value and last access by number and entry of the key."""
        return {
            (row["key.f1"], row.get("map_key")): (row["value"], row["ttl_last_access"])
            for row in map(json.loads, content(store)[keep, state])
        }

    one, other = "{f0: key, f1: 1}", "{f0: key, f1: -9}"
    changes.write_text(
        "version: 1\nset:\n"
        f"- {{operator: keep, state: ttl, key: {one}, value: again}}\n"
        f"- {{operator: keep, state: ttl, key: {other}, value: {{last_access: 5, value: new}}}}\n"
        f"- {{operator: keep, state: ttl-map, key: {one}, map_key: 1, value: {{last_access: -6, value: own}}}}\n"
    )
    result_of("rewrite", capsys, source.path, "--changes", changes, "--to", tmp_path / "copy")
    copy = FlinkStore(str(tmp_path / "copy"))
    before = rows(source, "ttl")
    assert rows(copy, "ttl") == before | {(1, None): ("again", before[1, None][1]), (-9, None): ("new", 5)}
    assert rows(copy, "ttl-map") == rows(source, "ttl-map") | {(1, 1): ("own", -6)}

    changes.write_text(f"version: 1\nset:\n\n- {{operator: keep, state: ttl, key: {other}, value: new}}\n")
    code, _, err = run_command("rewrite", capsys, source.path, "--changes", changes, "--to", tmp_path / "refused")
    assert (code, "line 4, keep: " in err, "has a time to live: write value: {last_access" in err) == (2, True, True)
