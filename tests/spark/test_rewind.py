"""Going back in a Spark checkpoint and what differs between its batches; real queries go on from what is made."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from abscli.engine.errors import EngineError
from abscli.report.findings import Code
from abscli.stores.spark.diff import Refusal, diff_conf, diff_schemas
from abscli.stores.spark.reader import deep_check, spark_rows
from abscli.stores.spark.relocate import Relocation, input_uri, move_metadata, move_source_log, renewed, uri
from abscli.stores.spark.rewind import Rewind, rewind
from abscli.stores.spark.verdict import check_spark
from formats.errors import NoRecovery
from formats.spark.evidence.gathering import gather
from formats.spark.store import SparkStore
from formats.storage import LocalStorage
from tests.support.spark import cases
from tests.support.spark.data import Case, copy_of, unpack

pytestmark = pytest.mark.minutes


def plan(root: Path, batch: int, **options: Any) -> Rewind:
    store = SparkStore(LocalStorage(root))
    files = sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
    return rewind(store.checkpoint, gather(store.checkpoint), batch, files=files, **options)


def carry_out(made: Rewind, root: Path, to: Path) -> None:
    for path in made.keep:
        (to / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / path, to / path)
    for file in made.write:
        (to / file.path).parent.mkdir(parents=True, exist_ok=True)
        data = file.data
        if data is None:
            relocation = Relocation(str(root), str(to), (), {*made.keep})
            data = renewed(file.path, (root / file.path).read_bytes(), relocation)
        (to / file.path).write_bytes(data)


def written(made: Rewind) -> dict[str, bytes | None]:
    return {file.path: file.data for file in made.write}


def state(root: Path, batch: int) -> Counter[str]:
    store = SparkStore(LocalStorage(root))
    return Counter(str(row) for batches in store.state(batch, "0") for row in batches.to_pylist())


@pytest.mark.parametrize(
    ("written", "to", "name"),
    [
        ("s3a://b/q", "s3://c/copy", "s3a://c/copy"), ("s3://b/q", "s3a://c/copy", "s3a://c/copy"),
        ("file:/q", "s3://c/copy", "s3://c/copy"), ("s3a://b/q", "gs://c/copy", "gs://c/copy"),
        ("s3a://b/q", "/copy", "file:/copy"), ("gs://b/q", "s3://c/copy", "s3://c/copy"),
    ],
)  # fmt: skip
def test_schemas_in_a_bucket_are_named_as_sparks_client_calls_it(written: str, to: str, name: str) -> None:
    """`s3://` is our word for a bucket, and Spark may know it as `s3a://` alone."""
    schema = "state/0/_stateSchema/default/0_5e1f3a54-6f9b-4e0c-9df0-6a6d4fbb6f6c"
    info = {"stateStoreInfo": [{"stateSchemaFilePaths": [f"{written}/{schema}"]}]}
    moved = renewed("state/0/_metadata/v2/0", f"v2\n{json.dumps(info)}".encode(), Relocation("/q", to, (), {schema}))
    assert json.loads(moved.split(b"\n")[1])["stateStoreInfo"][0]["stateSchemaFilePaths"] == [f"{name}/{schema}"]


COPIED = ["wc_hdfs", "wc_rocks", "wc_rocks_v2", "ids_changelog_zstd", "ss_join", "file_compact"]


@pytest.mark.parametrize("name", COPIED)
def test_a_copy_rewound_is_whole_and_ends_with_the_batch(name: str, tmp_path: Path) -> None:
    root, to = copy_of(name, tmp_path), tmp_path / "copy"
    carry_out(plan(root, 2), root, to)
    report = check_spark(gather(SparkStore(LocalStorage(to)).checkpoint))
    assert report.all_findings == ()
    assert [epoch.epoch for epoch in report.epochs][-2:] == [1, 2]
    assert {1, 2} <= set(report.restorable) or name in ("wc_rocks", "wc_rocks_v2")
    assert report.latest_restorable == 2
    if name not in ("file_compact", "ss_join"):
        assert state(to, 2) == state(root, 2)


def test_what_the_sink_will_see_again_is_said() -> None:
    root = unpack(Case.of("killed_partial_state"))
    made = plan(root, 1)
    assert made.replay == ((2, True), (3, False))
    assert ("offsets/3", "of later batches") in made.drop


def test_a_damaged_snapshot_is_left_behind_where_deltas_reach(tmp_path: Path) -> None:
    root, to = copy_of("wc_hdfs", tmp_path, sidecars=False), tmp_path / "copy"
    healthy = state(root, 6)
    (root / "state/0/0/4.snapshot").write_bytes(b"LZ4Block")
    carry_out(plan(root, 6), root, to)
    assert not (to / "state/0/0/4.snapshot").exists()
    assert state(to, 6) == healthy


def test_a_lost_commit_and_a_lost_id_are_written_anew(tmp_path: Path) -> None:
    root = copy_of("ss_join", tmp_path)
    said = (root / "commits/3").read_bytes()
    (root / "commits/3").unlink()
    (root / "metadata").unlink()
    with pytest.raises(NoRecovery, match="the query's id is lost"):
        plan(root, 3)
    made = plan(root, 3, query_id="4b0a6c52-de65-4bfb-a9cf-402bce370337")
    assert written(made)["commits/3"] == said
    assert json.loads(written(made)["metadata"]) == {"id": "4b0a6c52-de65-4bfb-a9cf-402bce370337"}


def test_schema_paths_lead_into_the_copy(tmp_path: Path) -> None:
    root, to = copy_of("tws_row", tmp_path), tmp_path / "copy"
    carry_out(plan(root, 1), root, to)
    assert check_spark(gather(SparkStore(LocalStorage(to)).checkpoint)).all_findings == ()
    assert uri("/a/b/") == "file:/a/b"
    assert uri("s3://b/c/") == "s3://b/c"
    assert input_uri("/a b/ü#/") == "file:///a%20b/ü%23"
    assert [input_uri(f"{lead}/in") for lead in ("file:", "file://", "s3://b")] == 2 * ["file:///in"] + ["s3://b/in"]


def test_entries_that_only_a_later_compaction_holds_are_files_again(tmp_path: Path) -> None:
    root = copy_of("file_compact", tmp_path)
    gone = {number: (root / f"sources/0/{number}").read_bytes() for number in (0, 1, 2)}
    for number in gone:
        (root / f"sources/0/{number}").unlink()
    made = plan(root, 1)
    assert written(made) == {f"sources/0/{number}": gone[number] for number in (0, 1)}


def test_inputs_that_were_moved_are_named_anew() -> None:
    data = (unpack(Case.of("file_compact")) / "sources/0/3.compact").read_bytes()
    old = json.loads(data.split(b"\n")[1])["path"].rpartition("/")[0]
    moved, changed = move_source_log(data, "x", old, "file:///new/place")
    assert changed == 4
    assert json.loads(moved.split(b"\n")[4])["path"].startswith("file:///new/place/")
    for elsewhere in (f"{old}/within", old[:-1]):
        assert move_source_log(data, "x", elsewhere, "file:///new/place") == (data, 0)


@pytest.mark.parametrize(("name", "batch"), [("wc_hdfs", 99), ("killed_partial_state", 3)])
def test_a_batch_that_cannot_be_gone_back_to_is_refused(name: str, batch: int) -> None:
    with pytest.raises(NoRecovery):
        plan(unpack(Case.of(name)), batch)


def test_a_batch_whose_offsets_cannot_be_read_is_refused_by_name(tmp_path: Path) -> None:
    root = copy_of("wc_hdfs", tmp_path, sidecars=False)
    (root / "offsets/6").write_bytes(b"")
    with pytest.raises(NoRecovery, match="the offsets of batch 6 cannot be read") as refused:
        plan(root, 6)
    assert refused.value.path == "offsets/6"


def test_of_an_older_batch_whose_offsets_cannot_be_read_no_commit_is_made_up(tmp_path: Path) -> None:
    root = copy_of("wc_hdfs", tmp_path, sidecars=False)
    for path in ("offsets/4", "commits/4"):
        (root / path).write_bytes(b"")
    made = plan(root, 6)
    assert ("commits/4", "of a batch whose offsets cannot be read") in made.drop
    assert written(made) == {}


def test_a_commit_of_format_2_that_cannot_be_read_is_made_anew_from_the_lineage_of_later_changelogs(
    tmp_path: Path,
) -> None:
    root = copy_of("wc_rocks_v2", tmp_path, sidecars=False)
    before = (root / "commits/1").read_bytes()
    (root / "commits/1").write_bytes(b"")
    assert written(plan(root, 2)) == {"commits/1": before}


def test_a_commit_that_cannot_be_read_or_told_stays_behind(tmp_path: Path) -> None:
    root = copy_of("wc_rocks_v2", tmp_path, sidecars=False)
    (root / "commits/1").write_bytes(b"")
    # What would say the id of the state that batch 1 left: the name of its file, and the lineage of the next one.
    for file in [*root.glob("state/0/0/2_*"), *root.glob("state/0/0/3_*.changelog")]:
        file.unlink()
    made = plan(root, 2)
    assert ("commits/1", "cannot be read, and can be done without") in made.drop
    assert written(made) == {}


def test_a_file_among_a_sources_that_is_no_entry_of_its_log_is_kept(tmp_path: Path) -> None:
    root = copy_of("file_compact", tmp_path)
    (root / "sources/0/notes.txt").write_text("mine")
    assert "sources/0/notes.txt" in plan(root, 2).keep


def test_a_query_goes_on_from_a_rewound_copy_to_the_same_counts(session: Any, tmp_path: Path) -> None:
    """Rewound to batch 1 in another folder, the real query reads the rest again and ends where it would have."""
    for name, conf in {
        "hdfs": {},
        "rocks": {cases.PROVIDER: cases.ROCKS, cases.CHANGELOG: "true", cases.IDS: "2"},
    }.items():
        home, to = tmp_path / name, tmp_path / f"{name}-copy"
        home.mkdir()
        root = cases.run(session, home, cases.by_id, conf, batches=4)
        carry_out(plan(root, 1), root, to)
        cases.go_on(session, home / "input", to, cases.by_id)
        assert state(to, 3) == state(root, 3)
        assert not check_spark(gather(SparkStore(LocalStorage(to)).checkpoint)).damaged


@pytest.fixture
def session(spark: Any) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    session = SparkSession(spark)
    yield session
    for key in (*cases.BASE, cases.PROVIDER, cases.CHANGELOG, cases.IDS):
        session.conf.unset(key)


def test_settings_that_differ_are_named() -> None:
    store = SparkStore(LocalStorage(unpack(Case.of("wc_hdfs"))))
    one, two = (store.checkpoint.offsets(batch) for batch in (1, 4))
    assert diff_conf(one, two) == []
    other = SparkStore(LocalStorage(unpack(Case.of("wc_rocks")))).checkpoint.offsets(1)
    assert [name.rpartition(".")[2] for name, _, _ in diff_conf(one, other)] == ["codec", "providerClass"]


def test_a_schema_that_spark_would_refuse_is_told_from_one_that_it_takes() -> None:
    words, ids, types = (
        SparkStore(LocalStorage(unpack(Case.of(name)))).families(1) for name in ("wc_hdfs", "ids_v2", "types")
    )
    assert list(diff_schemas(words, words)) == []
    assert [change.refused for change in diff_schemas(words, ids)] == [Refusal.KEY]
    assert [change.refused for change in diff_schemas(words, [])] == [Refusal.GONE]
    assert [change.refused for change in diff_schemas(types, words)] == [Refusal.KEY]


def test_sparks_own_reader_is_asked_with_the_checkpoints_settings(session: Any) -> None:
    for name in ("wc_rocks_v2", "wc_hdfs", "ids_v2"):  # one after the other: formats 2 and 1 need other settings
        store = SparkStore(LocalStorage(unpack(Case.of(name))))
        assert deep_check(session.sparkContext, store, 2) == []
        family = store.families(2)[0]
        read = sum(batch.num_rows for batch in spark_rows(session.sparkContext, store, 2, family))
        assert read == sum(batch.num_rows for batch in store.state(2, "0"))


def test_rows_that_rocksdb_loses_without_a_word_are_found(session: Any, tmp_path: Path) -> None:
    root = copy_of("wc_rocks", tmp_path, sidecars=False)
    sst = sorted((root / "state/0/1/SSTs").glob("*.sst"))[-1]
    data = bytearray(sst.read_bytes())
    data[40] ^= 1
    sst.write_bytes(bytes(data))
    assert deep_check(session.sparkContext, SparkStore(LocalStorage(root)), 3)


def test_what_spark_refuses_is_one_line(session: Any, tmp_path: Path) -> None:
    root = copy_of("wc_hdfs", tmp_path, sidecars=False)
    (root / "state/0/1/7.delta").unlink()
    store = SparkStore(LocalStorage(root))
    with pytest.raises(EngineError) as caught:
        list(spark_rows(session.sparkContext, store, 6, store.families(6)[0]))
    assert "\n" not in str(caught.value)
    assert [finding.code for finding in deep_check(session.sparkContext, store, 6)] == [Code.UNREADABLE]


@pytest.mark.parametrize(
    "stores", ['"a"', "{}", "3", '["a"]', "[[]]", "[null]", '[{"stateSchemaFilePaths": "a"}]',
               '[{"stateSchemaFilePaths": [null, 3, {}]}]'],
)  # fmt: skip
def test_metadata_of_another_shape_than_spark_writes_names_no_schema(stores: str) -> None:
    data = f'v2\n{{"stateStoreInfo": {stores}}}'.encode()
    assert move_metadata(data, "state/0/_metadata/v2/0", "copy", set()) is None
