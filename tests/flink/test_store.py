"""Flink's checkpoints through the view: found, listed and checked."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path

import pytest

from abscli.report.findings import Code
from abscli.stores.flink.plan import plan_flink
from abscli.stores.flink.restore import restore as restore_flink
from abscli.stores.flink.verdict import check_store
from abscli.stores.reasons import NoPlan
from formats.errors import FormatError, NotFound, UnknownTask
from formats.flink import channels
from formats.flink.checks import stream_checks
from formats.flink.connectors import splits
from formats.flink.evidence import gather
from formats.flink.facts import file_handles
from formats.flink.files.layout import is_flink
from formats.flink.store import FlinkStore
from formats.ids import ChannelId, TaskId
from formats.view import Status
from tests.support.archives import unpacked
from tests.support.commands import run_command
from tests.support.flink.cases import (
    ALL,
    CANONICAL,
    HASHMAP,
    MERGED,
    OLD,
    OPEN,
    UNALIGNED,
    check,
    codes,
    content,
    largest,
)
from tests.support.flink.truth import DATA


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job's directory with one checkpoint, to be damaged."""
    folder = tmp_path / HASHMAP.name
    shutil.copytree(HASHMAP, folder)
    return folder


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
    assert [str(task.task) for task in operator.tasks] == ["totals/0", "totals/1"]
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
    tasks = {str(t.task): t for o in FlinkStore(str(UNALIGNED)).detail(2).operators for t in o.tasks}
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
    assert all(isinstance(channel.channel, ChannelId) for channel in found)
    for channel in found:
        rows = [row for batch in store.log(2, channel.channel) for row in batch.to_pylist()]
        assert [row["element"] for row in rows].count("record") == channel.logged
        assert all(row["element"] != "cut" for row in rows)
    with pytest.raises(UnknownTask):
        list(store.log(2, ChannelId.parse("a/0->b/0")))


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
    answer = plan_flink(store, checks=stream_checks())
    assert isinstance(answer, NoPlan)
    assert path.name in answer.message


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
    assert finding.task in (TaskId("totals", 0), TaskId("totals", 1))
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
    os.utime(job / "chk-1" / "part", (0, 0))  # a younger file may be of another run that counts from 1 again
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
            plan = plan_flink(store)
            if not isinstance(plan, NoPlan):
                restore_flink(plan, store, str(tmp_path / f"copy-{i}"))


def test_a_savepoint_of_the_state_processor_api_is_complete_and_restorable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """SavepointWriter.fromExisting of Flink 2.3.0. Its properties are null; a job of Flink 2.3 started from it."""
    savepoint = tmp_path / "sp"
    shutil.copytree(unpacked(DATA / "state-processor.tar.xz") / "sp", savepoint)
    store = FlinkStore(str(savepoint))
    report = check(store)
    assert (codes(report), report.report.restorable) == ([], (2,))
    assert run_command("inspect", capsys, savepoint, "--latest-restorable", "-q")[:2] == (0, f"{savepoint}\n")
    plan = tmp_path / "plan.json"
    code, out, _ = run_command("plan-recovery", capsys, savepoint, "--out", plan)
    assert (code, "Flink can restore it where it lies" in out) == (0, True)
    assert run_command("restore", capsys, plan, "--to", tmp_path / "copy")[0] == 0
    assert (tmp_path / "copy" / "_metadata").read_bytes().endswith(bytes.fromhex("ACED000570"))
    assert content(FlinkStore(str(tmp_path / "copy"))) == content(store)
    changes = tmp_path / "changes.yaml"
    changes.write_text("version: 1\nremoved: [src]\n")
    assert run_command("rewrite", capsys, savepoint, "--changes", changes, "--to", tmp_path / "changed")[0] == 0
    assert codes(check(FlinkStore(str(tmp_path / "changed")))) == []
