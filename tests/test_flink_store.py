"""Flink's checkpoints through the view: found, listed, checked, chosen from, and copied so that they can be moved."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path

import pytest

from abscli.check.findings import Code
from abscli.check.flink import FlinkReport, check_store
from abscli.recovery.flink import plan_flink, restore_flink
from formats.errors import FormatError, NoRecovery, NotFound, StalePlan, UnknownTask
from formats.flink import channels, splits
from formats.flink.checks import stream_checks
from formats.flink.evidence import gather
from formats.flink.facts import file_handles
from formats.flink.handles import (
    FileHandle,
    OperatorStateHandle,
    RelativeHandle,
    SegmentHandle,
)
from formats.flink.layout import is_flink
from formats.flink.metadata import encode, parse
from formats.flink.resolve import How, PathMap, Place, parse_path_map, plain, resolve
from formats.flink.store import FlinkStore
from formats.view import Status
from tests.flink_truth import DATA

HASHMAP = next((DATA / "hashmap-checkpoint").iterdir())
UNALIGNED = next((DATA / "unaligned").iterdir())
MERGED = next((DATA / "file-merging").iterdir())
OPEN = next((DATA / "in-progress").iterdir())
OLD = next((DATA / "old-1.20-hashmap-checkpoint").iterdir())
CHANGELOG = next((DATA / "changelog").iterdir())
CANONICAL = next((DATA / "hashmap-savepoint-canonical").iterdir())
ALL = [HASHMAP, UNALIGNED, MERGED, OPEN, OLD, CHANGELOG, CANONICAL]


def check(store: FlinkStore) -> FlinkReport:
    return check_store((gather(store, n) for n in store.epoch_numbers()), store.listing())


def codes(report: FlinkReport) -> list[Code]:
    return [finding.code for finding in report.report.all_findings]


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job's directory with one checkpoint, to be damaged."""
    folder = tmp_path / HASHMAP.name
    shutil.copytree(HASHMAP, folder)
    return folder


def largest(folder: Path) -> Path:
    return max((path for path in folder.iterdir() if path.name != "_metadata"), key=lambda path: path.stat().st_size)


# -- what lies at a path ----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.parent.name)
def test_a_checkpoint_of_flink_is_known_by_what_is_there(path: Path) -> None:
    assert is_flink(str(path))
    assert is_flink(f"file://{path}/")


def test_one_checkpoint_may_be_named_by_its_directory_or_its_metadata() -> None:
    for path in (HASHMAP / "chk-2", HASHMAP / "chk-2" / "_metadata"):
        store = FlinkStore(str(path))
        assert store.epoch_numbers() == [2]
        assert store.job == HASHMAP.name


def test_what_is_not_of_flink_is_refused_with_what_to_name(tmp_path: Path) -> None:
    assert not is_flink(str(tmp_path))
    assert not is_flink(str(tmp_path / "nothing"))
    with pytest.raises(NotFound):
        FlinkStore(str(tmp_path))
    with pytest.raises(NotFound) as caught:
        FlinkStore(str(DATA / "hashmap-savepoint-canonical"))
    assert CANONICAL.name in (caught.value.hint or "")


def test_a_copied_checkpoint_does_not_bring_its_new_neighbours_in(tmp_path: Path) -> None:
    shutil.copytree(HASHMAP / "chk-2", tmp_path / "chk-2")
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "key").write_text("secret")
    store = FlinkStore(str(tmp_path / "chk-2"))
    assert "private/key" not in store.folder.walk()
    assert store.epoch_numbers() == [2]
    assert codes(check(store)) == []


def test_one_checkpoint_of_several_says_nothing_of_the_others_files() -> None:
    store = FlinkStore(str(MERGED / "chk-3"))
    assert store.epoch_numbers() == [3]
    assert list(store.listing()) == ["chk-3/_metadata"]
    assert codes(check(store)) == []


# -- the view ---------------------------------------------------------------------------------------------


def test_the_list_says_which_checkpoints_are_complete_and_which_are_open() -> None:
    rows = {row.epoch: row for row in FlinkStore(str(OPEN)).epochs()}
    assert {n: row.status for n, row in rows.items()} == {2: Status.COMPLETE, 3: Status.IN_PROGRESS}
    assert rows[2].bytes == 28056
    assert "no _metadata" in (rows[3].reason or "")
    assert rows[3].expected is None


def test_operators_are_called_by_their_uid_and_asked_for_by_hash_or_name_too() -> None:
    store = FlinkStore(str(HASHMAP))
    operator = next(o for o in store.detail(2).operators if o.id == "totals")
    assert operator.name == "Totals per user"
    assert [task.task for task in operator.tasks] == ["totals/0", "totals/1"]
    for name in ("totals", "8eeed16b661251f13cfc6a3c5e75c420", "Totals per user"):
        assert store.find_operator(2, name).uid == "totals"
    with pytest.raises(UnknownTask, match=r"it has .*totals"):
        store.find_operator(2, "nobody")


def test_a_guessed_uid_names_an_operator_of_flink_1() -> None:
    before = FlinkStore(str(OLD)).detail(4)
    assert all(len(operator.id) == 32 and operator.name is None for operator in before.operators)
    store = FlinkStore(str(OLD), uids=["totals", "join"])
    assert {"totals", "join"} <= {operator.id for operator in store.detail(4).operators}
    assert next(o for o in store.raw(4)["operators"] if o["proved-uid"] == "totals")["operator-uid"] is None


def test_sources_say_how_far_they_had_read() -> None:
    tasks = {t.task: t for o in FlinkStore(str(UNALIGNED)).detail(2).operators for t in o.tasks}
    assert {t: [(p.split, p.offset) for p in tasks[t].position or ()] for t in ("numbers/0", "numbers/1")} == {
        "numbers/0": [("2", 1003700)],
        "numbers/1": [("1", 3622)],
    }
    assert tasks["counter/0"].position is None


def test_the_raw_facts_have_the_columns_of_flinks_own_table_and_are_plain_json() -> None:
    facts = json.loads(json.dumps(FlinkStore(str(CANONICAL)).raw(3)))
    assert (facts["kind"], facts["layout"], facts["stop"], facts["backends"]) == (
        "savepoint",
        "canonical",
        None,
        ["canonical"],
    )
    assert facts["metadata_version"] == 6
    assert facts["written_by"] == "Flink 2.1 to 2.3"
    source = next(o for o in facts["operators"] if o["operator-uid"] == "src-orders")
    assert source["operator-coordinator-state-size-in-bytes"] == 16
    assert source["operator-subtask-state-count"] == source["operator-parallelism"] == 2
    assert all(o["operator-total-size-in-bytes"] >= 0 for o in facts["operators"])


def test_a_file_that_operators_share_is_counted_once() -> None:
    facts = FlinkStore(str(UNALIGNED)).raw(2)
    assert facts["files"] == len([p for p in (UNALIGNED / "chk-2").iterdir() if p.name != "_metadata"])
    assert facts["file_bytes"] == sum(p.stat().st_size for p in (UNALIGNED / "chk-2").iterdir()) - (
        (UNALIGNED / "chk-2" / "_metadata").stat().st_size
    )


def test_operator_states_are_listed_by_name_and_mode() -> None:
    rows = {(row.operator, row.name, row.kind) for row in FlinkStore(str(HASHMAP)).states(2)}
    assert ("src-orders", "SourceReaderState", "list") in rows
    assert {kind for _, _, kind in rows} >= {"list", "union", "broadcast"}


# -- in-flight data ---------------------------------------------------------------------------------------


def test_what_was_in_flight_and_what_was_counted_is_what_the_sources_have_sent() -> None:
    """Conservation, on a real unaligned checkpoint: sent = counted + in flight, on both edges."""
    store = FlinkStore(str(UNALIGNED))
    metadata, at = store.metadata(2), store.streams(2)
    names = store.names(metadata)
    flying: dict[tuple[str, str], int] = {}
    for channel in channels.in_flight(metadata, at):
        assert channel.sender is not None
        assert channel.receiver is not None
        assert channel.records is not None
        edge = names[channel.sender[0]], names[channel.receiver[0]]
        flying[edge] = flying.get(edge, 0) + channel.records
    starts = {"1": 0, "2": 1_000_000}
    sent = 0
    for subtask in store.find_operator(2, "numbers").subtasks:
        for split in splits.splits(subtask, at) or ():
            sent += (split.next or 0) - starts[split.id or ""]
    assert sent == 7322
    assert flying == {("numbers", "counter"): 7322 - 3406, ("counter", "slow"): 3406 - 357}


def test_channels_are_paired_and_their_elements_can_be_read() -> None:
    store = FlinkStore(str(UNALIGNED))
    found = store.detail(2).channels
    assert all("?" not in channel.channel for channel in found)
    for channel in found:
        rows = [row for batch in store.log(2, channel.channel) for row in batch.to_pylist()]
        assert [row["element"] for row in rows].count("record") == channel.logged
        assert all(row["element"] != "cut" for row in rows)
    with pytest.raises(UnknownTask):
        list(store.log(2, "a/0->b/0"))


# -- checks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.parent.name)
def test_a_whole_checkpoint_has_no_findings(path: Path) -> None:
    report = check(FlinkStore(str(path)))
    harmless = {Code.UNREFERENCED_FILE}
    assert set(codes(report)) <= harmless
    newest = max(r.epoch for r in report.report.epochs if r.verdict is Status.COMPLETE)
    assert report.report.latest_restorable == newest


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.parent.name)
def test_every_stream_of_a_whole_checkpoint_reads_to_its_last_byte(path: Path) -> None:
    store = FlinkStore(str(path))
    read = [gather(store, n, checks=stream_checks()) for n in store.epoch_numbers()]
    report = check_store(read, store.listing())
    assert set(codes(report)) <= {Code.UNREFERENCED_FILE}
    assert all(evidence.read for evidence in read if evidence.metadata is not None)


def test_a_flipped_byte_in_the_description_of_the_state_is_found_by_reading_it(job: Path) -> None:
    path = largest(job / "chk-2")
    data = bytearray(path.read_bytes())
    data[3] ^= 0xFF
    path.write_bytes(data)
    store = FlinkStore(str(job))
    assert check(store).report.restorable == (2,)
    (evidence,) = [gather(store, n, checks=stream_checks()) for n in store.epoch_numbers()]
    (report,) = check_store([evidence], store.listing()).report.epochs
    assert report.verdict is Status.DAMAGED
    assert {(f.code, f.path) for f in report.findings} == {(Code.UNREADABLE, f"chk-2/{path.name}")}
    with pytest.raises(NoRecovery, match=path.name):
        plan_flink(store, checks=stream_checks())


def test_what_cannot_be_checked_is_said_with_the_reason() -> None:
    report = check_store((gather(FlinkStore(str(HASHMAP)), n) for n in [2]), None)
    unchecked = report.report.epochs[0].unchecked
    assert {Code.DIGEST_MISMATCH, Code.CONSERVATION, Code.UNREADABLE, Code.UNREFERENCED_FILE} <= set(unchecked)
    assert set(report.why[2]) == set(unchecked)
    assert all(report.why[2].values())


def test_a_missing_file_is_named_with_its_task_and_what_it_held(job: Path) -> None:
    gone = largest(job / "chk-2")
    gone.unlink()
    (report,) = check(FlinkStore(str(job))).report.epochs
    assert report.verdict is Status.DAMAGED
    (finding,) = report.findings
    assert (finding.code, finding.path) == (Code.MISSING_FILE, f"chk-2/{gone.name}")
    assert (finding.task or "").startswith("totals/")
    assert "managed keyed state" in finding.message


def test_a_short_file_is_found_by_its_size(job: Path) -> None:
    short = largest(job / "chk-2")
    size = short.stat().st_size
    short.write_bytes(short.read_bytes()[:-1])
    (finding,) = check(FlinkStore(str(job))).report.epochs[0].findings
    assert finding.code is Code.SIZE_MISMATCH
    assert f"has {size - 1} bytes, {size} were written" in finding.message


def test_a_file_that_has_grown_is_named_and_no_more_of_it_is_read_than_was_written(job: Path) -> None:
    grown = largest(job / "chk-2")
    size = grown.stat().st_size
    with open(grown, "r+b") as file:
        file.truncate(1 << 40)
    store = FlinkStore(str(job))
    streams = store.streams(2)
    handle = next(h for _, _, h in file_handles(store.metadata(2)) if h.path == grown.name)
    assert len(streams.read(handle)) == size
    (finding,) = check(store).report.epochs[0].findings
    assert finding.code is Code.SIZE_MISMATCH


def test_a_file_that_nothing_refers_to_takes_nothing_away(job: Path) -> None:
    (job / "chk-2" / "11111111-2222-3333-4444-555555555555").write_text("?")
    (job / "shared").mkdir(exist_ok=True)
    (job / "shared" / "lost").write_text("?")
    report = check(FlinkStore(str(job)))
    assert [f.path for f in report.report.findings] == [
        "chk-2/11111111-2222-3333-4444-555555555555",
        "shared/lost",
    ]
    assert report.report.restorable == (2,)


def test_a_checkpoint_that_failed_is_incomplete_and_a_newer_one_may_be_open(job: Path) -> None:
    for name in ("chk-1", "chk-7"):
        (job / name).mkdir()
        (job / name / "part").write_text("?")
    report = check(FlinkStore(str(job)))
    assert {r.epoch: r.verdict for r in report.report.epochs} == {
        1: Status.INCOMPLETE,
        2: Status.COMPLETE,
        7: Status.IN_PROGRESS,
    }
    assert codes(report) == [Code.MISSING_ACK]


def test_a_damaged_metadata_says_what_is_still_whole(job: Path) -> None:
    path = job / "chk-2" / "_metadata"
    path.write_bytes(path.read_bytes()[:2290])
    (report,) = check(FlinkStore(str(job))).report.epochs
    (finding,) = report.findings
    assert finding.code is Code.MANIFEST_UNREADABLE
    assert "the 7 operators before it can be read" in finding.message


def test_key_groups_that_are_another_tasks_are_found(job: Path) -> None:
    path = job / "chk-2" / "_metadata"
    data = path.read_bytes()
    place = data.index(b"\x0c\0\0\0\x08\0\0\0\x08")  # the second subtask's handle: 8 key groups from 8
    path.write_bytes(data[: place + 4] + b"\x07" + data[place + 5 :])
    found = [f for f in check(FlinkStore(str(job))).report.epochs[0].findings if f.code is Code.MISPLACED_KEY]
    assert "holds key groups 7 to 14, the task's are 8 to 15" in found[0].message


def test_in_flight_data_that_is_not_whole_records_is_found(tmp_path: Path) -> None:
    shutil.copytree(UNALIGNED, tmp_path / UNALIGNED.name)
    chk = tmp_path / UNALIGNED.name / "chk-2"
    path = largest(chk)
    data = bytearray(path.read_bytes())
    data[4:8] = b"\0\0\0\1"
    path.write_bytes(data)
    report = check(FlinkStore(str(tmp_path / UNALIGNED.name)))
    assert codes(report) == [Code.UNREADABLE]
    assert not report.report.restorable


@pytest.mark.parametrize("path", [OPEN / "chk-2", UNALIGNED / "chk-2"], ids=["heap", "unaligned"])
def test_no_flipped_byte_of_the_metadata_breaks_the_view_the_check_or_the_copy(path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "snapshot"
    shutil.copytree(path, folder)
    data = (folder / "_metadata").read_bytes()
    for i in range(0, len(data), 23):
        (folder / "_metadata").write_bytes(data[:i] + bytes([data[i] ^ 0x80]) + data[i + 1 :])
        with contextlib.suppress(FormatError):
            store = FlinkStore(str(folder))
            (row,) = store.epochs()
            check(store)
            store.detail(row.epoch)
            json.dumps(store.raw(row.epoch))
            store.states(row.epoch)
            restore_flink(store, plan_flink(store), str(tmp_path / f"copy-{i}"))


# -- where files lie --------------------------------------------------------------------------------------


class Files:
    """A listing that is a dictionary."""

    def __init__(self, root: str, files: dict[str, int]) -> None:
        self.roots = (root,)
        self.files = files

    def size(self, path: str) -> int | None:
        return self.files.get(path)

    def named(self, name: str) -> list[tuple[str, int]]:
        return [(path, size) for path, size in self.files.items() if path.rsplit("/", 1)[-1] == name]


JOB = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("handle", "files", "found"),
    [
        (RelativeHandle("a", 3), {"chk-5/a": 3}, ("chk-5/a", How.WRITTEN)),
        (RelativeHandle("a", 3), {"chk-4/a": 3}, ("chk-4/a", How.FOUND)),
        (RelativeHandle("a", 3), {"chk-4/a": 4}, None),
        (RelativeHandle("a", 3), {"chk-5/a": 2, "chk-4/a": 3}, ("chk-5/a", How.WRITTEN)),
        (RelativeHandle("../../etc/passwd", 3), {"etc/passwd": 3}, None),
        (FileHandle(f"file:/now/{JOB}/shared/a", 3), {"shared/a": 3}, ("shared/a", How.WRITTEN)),
        (FileHandle(f"file:/then/{JOB}/shared/a", 3), {"shared/a": 3}, ("shared/a", How.MOVED)),
        (FileHandle(f"hdfs://nn:8020/then/{JOB}/shared/a", 3), {"shared/a": 3}, ("shared/a", How.MOVED)),
        (FileHandle(f"file:/then/{JOB}/shared/a", 3), {"shared/a": 2}, ("shared/a", How.MOVED)),
        (FileHandle("file:/then/x/a", 3), {"chk-5/a": 3}, ("chk-5/a", How.FOUND)),
        (FileHandle("file:/then/x/a", 3), {"chk-5/a": 2}, None),
        (FileHandle(f"file:/now/{JOB}/../../etc/passwd", 3), {"etc/passwd": 9}, ("etc/passwd", How.MOVED)),
        (FileHandle("file:/old/shared/a", 3), {"new/a": 3}, ("new/a", How.MAPPED)),
        (SegmentHandle("file:/x/taskowned/a", 2, 3, 0, "l"), {"taskowned/a": 9}, ("taskowned/a", How.MOVED)),
        (SegmentHandle("file:/x/taskowned/a", 7, 3, 0, "l"), {"chk-5/a": 9}, None),
    ],
)
def test_a_file_is_looked_for_in_a_fixed_order_and_only_where_the_user_said(
    handle: FileHandle | RelativeHandle | SegmentHandle, files: dict[str, int], found: tuple[str, How] | None
) -> None:
    maps = [PathMap("/old/shared", f"/now/{JOB}/new")]
    place = resolve(handle, "chk-5", [Files(f"/now/{JOB}", files)], maps)
    assert (place and (place.path, place.how)) == found


def test_schemes_of_one_store_are_one_and_a_path_map_has_two_sides() -> None:
    assert plain("file:///a/b/") == plain("file:/a/b") == plain("file://host/a/b") == "/a/b"
    assert plain("s3a://bucket/a") == plain("s3p://bucket/a") == "s3://bucket/a"
    assert parse_path_map("s3a://b/x=/mnt/x/") == PathMap("s3://b/x", "/mnt/x")
    for text in ("a", "=b", "a="):
        with pytest.raises(ValueError, match="OLD=NEW"):
            parse_path_map(text)


def test_a_moved_jobs_files_are_found_by_their_tail(tmp_path: Path) -> None:
    store = FlinkStore(str(MERGED))
    places = {store.streams(3).place(handle) for _, _, handle in file_handles(store.metadata(3))}
    assert {place.how for place in places if place} == {How.MOVED}
    report = check(store)
    assert report.report.restorable == (2, 3)
    assert "abs restore" in report.notes[3][0]


def test_a_path_map_leads_to_where_the_files_are_now(tmp_path: Path) -> None:
    shutil.copytree(MERGED / "chk-3", tmp_path / "chk-3")
    shutil.copytree(MERGED / "taskowned", tmp_path / "merged")
    lost = FlinkStore(str(tmp_path / "chk-3"))
    finding = check(lost).report.epochs[0].findings[0]
    assert finding.code is Code.MISSING_FILE
    assert "--path-map OLD=NEW" in finding.message
    old = f"/mnt/checkpoints/backup/file-merging/{MERGED.name}/taskowned"
    store = FlinkStore(str(tmp_path / "chk-3"), maps=[PathMap(old, str(tmp_path / "merged"))])
    assert check(store).report.restorable == (3,)


def test_a_symbolic_link_does_not_lead_out_of_the_directories(job: Path, tmp_path: Path) -> None:
    file = largest(job / "chk-2")
    outside = tmp_path / "outside"
    shutil.move(file, outside)
    file.symlink_to(outside)
    report = check(FlinkStore(str(job)))
    assert not report.report.restorable


# -- recovery ---------------------------------------------------------------------------------------------


def content(store: FlinkStore, epoch: int) -> list[tuple[str, bytes]]:
    """What every handle of files gives, in order, with its task: the copy must give the same."""
    at = store.streams(epoch)
    return [
        (f"{operator.id}/{subtask.index}", at.read(handle))
        for operator, subtask, handle in file_handles(store.metadata(epoch))
    ]


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.parent.name)
def test_a_copy_holds_the_same_bytes_under_relative_handles_alone(path: Path, tmp_path: Path) -> None:
    store = FlinkStore(str(path))
    plan = plan_flink(store)
    done = restore_flink(store, plan, str(tmp_path / "copy"))
    shutil.move(tmp_path / "copy", tmp_path / "moved")
    copy = FlinkStore(str(tmp_path / "moved"))
    assert content(copy, plan.epoch) == content(store, plan.epoch)
    assert all(isinstance(handle, RelativeHandle) for _, _, handle in file_handles(copy.metadata(plan.epoch)))
    assert codes(check(copy)) == []
    assert plan_flink(copy).in_place
    assert done.command == f"flink run -s file://{tmp_path}/copy JOB.jar"
    if not any(isinstance(h, SegmentHandle) for _, _, h in file_handles(store.metadata(plan.epoch))):
        assert copy.metadata(plan.epoch) == store.metadata(plan.epoch)


def test_segments_of_merged_files_become_files_of_their_own(tmp_path: Path) -> None:
    store = FlinkStore(str(MERGED))
    before, after = store.metadata(3), None
    restore_flink(store, plan_flink(store), str(tmp_path / "copy"))
    after = FlinkStore(str(tmp_path / "copy")).metadata(3)
    segments = {handle for _, _, handle in file_handles(before)}
    assert len([p for p in (tmp_path / "copy").iterdir() if p.name != "_metadata"]) == len(segments)
    for operator in after.operators:
        for subtask in operator.subtasks:
            state: OperatorStateHandle | None = subtask.managed_operator
            assert state is None or (state.folders is None and isinstance(state.stream, RelativeHandle))


def test_files_in_the_wrong_directory_are_found_and_the_copy_is_whole(job: Path, tmp_path: Path) -> None:
    """FLINK-39964: relative handles whose files lie in the savepoint that the job was started from."""
    savepoint = tmp_path / "savepoint-0f2efb-1c5dc2ff1ec9"
    savepoint.mkdir()
    moved = sorted(path for path in (job / "chk-2").iterdir() if path.name != "_metadata")[:5]
    for path in moved:
        shutil.move(path, savepoint)
    lost = FlinkStore(str(job))
    with pytest.raises(NoRecovery) as caught:
        plan_flink(lost)
    assert "--search DIR" in (caught.value.hint or "")
    store = FlinkStore(str(job), search=[str(savepoint)])
    assert store.epochs()[0].status is Status.DAMAGED
    report = check(store)
    assert set(codes(report)) == {Code.MISSING_FILE}
    assert "not where Flink looks" in report.report.epochs[0].findings[0].message
    plan = plan_flink(store)
    assert not plan.in_place
    assert plan.command is None
    assert plan.repairs[0].startswith("5 files are not where Flink looks")
    restore_flink(store, plan, str(tmp_path / "copy"))
    assert content(FlinkStore(str(tmp_path / "copy")), 2) == content(FlinkStore(str(HASHMAP)), 2)


@pytest.mark.parametrize("path", [HASHMAP / "chk-2", CANONICAL], ids=["checkpoint", "savepoint"])
def test_lost_properties_are_written_anew_as_they_were(path: Path, tmp_path: Path) -> None:
    folder = tmp_path / path.name
    shutil.copytree(path, folder)
    data = (folder / "_metadata").read_bytes()
    (folder / "_metadata").write_bytes(data[:-40])
    store = FlinkStore(str(folder))
    (finding,) = check(store).report.epochs[0].findings
    assert finding.code is Code.MANIFEST_UNREADABLE
    assert "all operators are whole" in finding.message
    plan = plan_flink(store)
    assert "properties" in plan.repairs[0]
    restore_flink(store, plan, str(tmp_path / "copy"))
    assert (tmp_path / "copy" / "_metadata").read_bytes() == data


def test_the_newest_whole_checkpoint_is_chosen_and_newer_ones_are_explained(job: Path) -> None:
    for number in (3, 4):
        shutil.copytree(job / "chk-2", job / f"chk-{number}")
    (job / "chk-5").mkdir()
    gone = largest(job / "chk-4").name
    (job / "chk-4" / gone).unlink()
    (job / "chk-3" / "_metadata").write_bytes(b"I`g-")
    # the file that chk-4 lacks lies in chk-2 too, with its name and size: a copy can be whole
    plan = plan_flink(FlinkStore(str(job)))
    assert plan.epoch == 4
    assert [epoch for epoch, _ in plan.skipped] == [5]
    for chk in ("chk-2", "chk-3"):
        (job / chk / gone).unlink()
    shutil.copy(HASHMAP / "chk-2" / gone, job / "chk-2" / "renamed")
    with pytest.raises(NoRecovery, match="none is whole"):
        plan_flink(FlinkStore(str(job)))
    shutil.move(job / "chk-2" / "renamed", job / "chk-2" / gone)
    with pytest.raises(NoRecovery, match="checkpoint 3 cannot be restored: ends too early"):
        plan_flink(FlinkStore(str(job)), epoch=3)


def test_the_source_is_only_read(job: Path, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in job.rglob("*")}
    store = FlinkStore(str(job))
    plan = plan_flink(store)
    restore_flink(store, plan, str(tmp_path / "copy"))
    for target in (job / "copy", job / "chk-2", job):
        with pytest.raises(FormatError, match="read from"):
            restore_flink(store, plan, str(target))
    assert {path: path.stat().st_mtime_ns for path in job.rglob("*")} == before


def test_a_directory_with_anything_in_it_is_not_written_to(job: Path, tmp_path: Path) -> None:
    store = FlinkStore(str(job))
    (tmp_path / "copy").mkdir()
    restore_flink(store, plan_flink(store), str(tmp_path / "copy"))
    with pytest.raises(FormatError, match="not an empty directory"):
        restore_flink(store, plan_flink(store), str(tmp_path / "copy"))


def test_a_copy_that_fails_leaves_nothing_behind(job: Path, tmp_path: Path) -> None:
    store = FlinkStore(str(job))
    plan = plan_flink(store)

    def stop(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        restore_flink(store, plan, str(tmp_path / "copy"), progress=stop)
    assert not (tmp_path / "copy").exists()


def test_a_plan_is_stale_when_the_metadata_is_another(job: Path, tmp_path: Path) -> None:
    store = FlinkStore(str(job))
    plan = plan_flink(store)
    path = job / "chk-2" / "_metadata"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StalePlan):
        restore_flink(FlinkStore(str(job)), plan, str(tmp_path / "copy"))


def test_names_that_collide_in_the_copy_get_a_number(tmp_path: Path) -> None:
    from formats.flink.rewrite import copies

    places = {
        FileHandle("file:/a/x", 1): Place(0, "a/x", 1, How.WRITTEN),
        FileHandle("file:/b/x", 1): Place(0, "b/x", 1, How.WRITTEN),
        FileHandle("file:/b/_metadata", 1): Place(0, "b/_metadata", 1, How.WRITTEN),
    }
    assert [copy.target for copy in copies(places).values()] == ["x", "x-2", "file"]


def test_an_old_format_is_kept_when_a_snapshot_is_copied(tmp_path: Path) -> None:
    store = FlinkStore(str(OLD))
    restore_flink(store, plan_flink(store), str(tmp_path / "copy"))
    metadata = parse((tmp_path / "copy" / "_metadata").read_bytes())
    assert metadata.version == 4
    assert encode(metadata) == (OLD / "chk-4" / "_metadata").read_bytes()
