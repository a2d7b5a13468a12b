"""A target that is put back from a backup, older than what the store keeps: refused with what is missing, and called
incomplete by `validate`. Where the rows are given up on purpose, all others are there once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from abscli.engine.errors import EngineStopped, UsageError
from abscli.engine.job import JobOptions
from abscli.engine.sinks.delivered.publisher import TargetPublisher
from abscli.engine.sinks.gaps import FilesOfSink, find_gap_in_files
from abscli.engine.sinks.promises import NO_PROMISES
from abscli.engine.sinks.staged.contract import Delivery, StagedPart
from abscli.engine.sinks.staged.delta import DeltaSink
from abscli.planner.lineage import Life
from abscli.planner.target import Gap
from abscli.report.findings import Code, SinkVerdict
from abscli.stores.native.plan import plan_recovery
from abscli.stores.native.restore import restore
from formats.errors import Damaged, StalePlan
from formats.ids import EpochId
from formats.job.model import Kind, Operator
from formats.native.facts import CommittedFacts, SinkFile
from formats.native.plan import NativePlan
from formats.native.sink import MARKERS, Stretch
from formats.native.transactions import Transaction
from formats.plan import Plan
from formats.storage import MemoryStorage, open_writable, walk
from tests.support.jobs.backups import BACKED_UP, back_up
from tests.support.jobs.kinds import Kinds, cases
from tests.support.jobs.lines import Gate, Lines, write_lines

FIRST, LATER = "1" * 32, "2" * 32
"""Ids of attempts."""


@pytest.fixture(params=cases(BACKED_UP))
def lines(tmp_path: Path, kinds: Kinds, request: pytest.FixtureRequest) -> Lines:
    write_lines(tmp_path, 12)
    return kinds.lines(request.param, tmp_path)


def verdict(lines: Lines) -> SinkVerdict:
    (sink,) = lines.validated().sinks
    return sink.verdict


def check_given_up(lines: Lines, lost: set[str], keep: int) -> None:
    """Go on without the rows: they alone are missing, and the job goes on from there as any other."""
    lines.resume(keep=keep, accept_missing=True)
    assert {line for line, n in lines.wrong().items() if n == -1} == lost
    assert set(lines.wrong()) == lost
    lines.resume(keep=keep, accept_missing=True)
    assert set(lines.wrong()) == lost


@pytest.mark.cell("C", "refused")
@pytest.mark.parametrize("keep", [1, 3])
def test_a_target_from_a_backup_older_than_the_kept_epochs_is_refused(lines: Lines, keep: int) -> None:
    lines.run(epochs=3, keep=keep)
    put_back, before = back_up(lines), lines.shown()
    lines.resume(epochs=6, keep=keep)
    assert verdict(lines) is SinkVerdict.EXACT
    newer = lines.shown()
    put_back()
    assert lines.shown() == before
    with pytest.raises(Damaged, match=r"which the store no longer has|rows are missing"):
        lines.resume(keep=keep)
    assert lines.shown() == before
    assert verdict(lines) is SinkVerdict.INCOMPLETE
    kept = set()
    if lines.type not in ("postgres", "jsonl"):  # whose rows are nowhere else once they are published
        lines.resume(keep=keep, epochs=1, accept_missing=True)
        kept = lines.shown().keys() & newer.keys() - before.keys()
    check_given_up(lines, set(newer) - set(before) - kept, keep)


@pytest.mark.cell("C", "refused")
def test_a_target_from_a_backup_is_refused_when_no_kept_epoch_names_rows(lines: Lines) -> None:
    lines.run(epochs=3, keep=1)
    put_back, before = back_up(lines), lines.shown()
    lines.resume(keep=1)
    newer = lines.shown()
    for _ in range(3):
        lines.resume(keep=1)
    assert not any(part.sink for epoch in lines.complete() for part in lines.store().parts(epoch))
    assert verdict(lines) is SinkVerdict.EXACT
    put_back()
    with pytest.raises(Damaged, match=r"lacks up to \d+ rows of epochs \d+ to \d+, which the store no longer has"):
        lines.resume(keep=1)
    report = lines.validated()
    assert [sink.verdict for sink in report.sinks] == [SinkVerdict.INCOMPLETE]
    assert Code.SINK_PART_MISSING in {finding.code for epoch in report.epochs for finding in epoch.findings}
    check_given_up(lines, set(newer) - set(before), keep=1)


@pytest.mark.parametrize("keep", [1, 3])
def test_a_folder_whose_owner_archives_parts_is_exact(tmp_path: Path, gate: Gate, keep: int) -> None:
    """Parts that no kept epoch names may go; the commit marker tells that they were there."""
    write_lines(tmp_path, 12)
    lines = Lines(tmp_path, gate, "out", "jsonl")
    lines.run(epochs=6, keep=keep)
    named = {file.name for n in lines.complete() for part in lines.store().parts(n) for file in part.sink}
    archived: Counter[str] = Counter()
    for path in (tmp_path / "out").glob("part-*"):
        if path.name not in named:
            archived += Counter(row["line"] for row in map(json.loads, path.read_text().splitlines()))
            path.unlink()
    assert archived
    assert verdict(lines) is SinkVerdict.EXACT
    for _ in range(5):
        lines.resume(keep=keep)
    for path in (tmp_path / "out").glob("part-*"):
        path.unlink()
    assert verdict(lines) is SinkVerdict.EXACT
    lines.resume(keep=keep)
    assert len(list((tmp_path / "out" / MARKERS).iterdir())) == 1


@pytest.mark.parametrize(
    ("marker", "showing", "is_missed"),
    [
        (EpochId(FIRST, 3), (Stretch(FIRST, 1, None),), False),
        (EpochId(FIRST, 2), (Stretch(FIRST, 1, None),), True),
        # Of an attempt that began after the backup of the store: it went on from this history, or from an older epoch.
        (EpochId(LATER, 9), (Stretch(LATER, 7, None), Stretch(FIRST, 1, 6)), False),
        (EpochId(LATER, 9), (Stretch(LATER, 7, None), Stretch(FIRST, 1, 2)), True),
    ],
)
def test_a_store_from_a_backup_does_not_miss_parts_that_were_archived(
    marker: EpochId, showing: tuple[Stretch, ...], is_missed: bool
) -> None:
    """No kept epoch names rows, no part is left, and the store knows epoch 3 of the first attempt as the newest."""
    record = CommittedFacts("out", "out", 3, 0, 10)
    promises = replace(NO_PROMISES, lives=(Life(1, 0, FIRST),), parts={5: {}}, parents={5: 0}, committed={5: (record,)})
    files = FilesOfSink([marker], showing, (), ())
    gap = find_gap_in_files(promises, 5, "out", {5: record}, files)
    assert gap == (Gap(marker.number if marker.attempt_id == FIRST else 0, 3, 10) if is_missed else None)


@pytest.mark.cell("D", "stops")
def test_a_target_that_becomes_an_older_copy_while_the_job_runs_ends_it(lines: Lines) -> None:
    """As by a failover to a replica that lags behind."""
    put_back: list[Callable[[], None]] = []

    def replace_server(epochs: int) -> None:
        if epochs == 3:
            put_back.append(back_up(lines))
        if epochs == 7:
            put_back[0]()

    with pytest.raises(EngineStopped, match=r"but lost them while the job ran|cannot be read"):
        lines.run(at=replace_server)
    due = Counter(line for file in (lines.folder / "in").iterdir() for line in file.read_text().splitlines())
    assert lines.shown() < due
    if lines.type in ("postgres", "jsonl"):  # whose rows are nowhere else once they are published
        with pytest.raises(Damaged, match=r"rows (are|is) missing|which the store no longer has"):
            lines.resume()
        return
    lines.resume()  # the store has kept all that was staged
    assert lines.wrong() == {}


def test_a_target_that_has_all_stays_exact_however_few_epochs_are_kept(lines: Lines) -> None:
    lines.run(epochs=2, keep=1)
    for epochs in (1, 2, 1):
        lines.resume(epochs=epochs, keep=1)
        assert verdict(lines) is SinkVerdict.EXACT
    lines.resume(keep=1)
    lines.resume(keep=1)
    assert lines.wrong() == {}
    assert verdict(lines) is SinkVerdict.EXACT


def restore_version(folder: Path, version: int) -> None:
    """What `RESTORE TABLE ... TO VERSION AS OF` does."""
    from deltalake import DeltaTable

    DeltaTable(str(folder / "out")).restore(version)


@pytest.fixture
def lake(tmp_path: Path, gate: Gate) -> Lines:
    write_lines(tmp_path, 12)
    return Lines(tmp_path, gate, "out", "delta")


@pytest.mark.cell("E", "refused", "delta")
def test_a_delta_table_that_was_set_back_between_two_runs_is_refused(lake: Lines) -> None:
    from deltalake import DeltaTable

    lake.run(epochs=3)
    version = DeltaTable(str(lake.folder / "out")).version()
    lake.resume(epochs=3)
    restore_version(lake.folder, version)
    before = lake.shown()
    with pytest.raises(UsageError, match="was rolled back to version"):
        lake.resume()
    assert lake.shown() == before
    lake.resume(take_ownership=True)
    lost = {line for line, n in lake.wrong().items() if n == -1}
    assert lost == set(lake.wrong())
    assert not lost & before.keys()
    lake.resume()


def test_a_delta_table_that_is_set_back_while_the_job_runs_ends_it(lake: Lines) -> None:
    def set_back(epochs: int) -> None:
        if epochs == 5:
            restore_version(lake.folder, 2)

    with pytest.raises(EngineStopped, match=r"was rolled back to version 2 .* while the job ran"):
        lake.run(at=set_back)
    with pytest.raises(UsageError, match="was rolled back to version"):
        lake.resume()


def test_a_restore_that_takes_no_row_of_the_sink_is_none_of_its_business(lake: Lines) -> None:
    """One of before the sink's first commit, and one that undoes somebody else's."""
    from deltalake import DeltaTable, write_deltalake

    place = str(lake.folder / "out")
    for _ in range(2):
        write_deltalake(place, pa.table({"line": ["somebody else's"]}), mode="append")
    DeltaTable(place).restore(0)
    lake.run(epochs=3)
    own = DeltaTable(place).version()
    write_deltalake(place, pa.table({"line": ["a mistake"]}), mode="append")
    DeltaTable(place).restore(own)
    lake.resume(epochs=2)
    lake.resume()
    assert set(lake.wrong()) == {"somebody else's"}


def test_a_delta_table_that_is_set_back_before_the_first_delivery_ends_the_job(
    lake: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.run(epochs=4)
    plain = DeltaSink.take

    def take(sink: DeltaSink, *arguments: Any) -> None:
        plain(sink, *arguments)
        restore_version(lake.folder, 2)

    monkeypatch.setattr(DeltaSink, "take", take)
    with pytest.raises(EngineStopped, match=r"was rolled back to version 2 .* while the job ran"):
        lake.resume()


class Marked:
    """A target whose marks are of the epochs for which parts were cut, as those of a table with `mode: upsert`."""

    operator, title, remembers = "out", "a table", True

    def __init__(self) -> None:
        self.marks: set[EpochId] = set()

    def publish(self, delivery: Delivery) -> None:
        self.marks |= {part.id.made_for for part in delivery.parts}

    def identity(self) -> None:
        return None

    def has(self, epoch: EpochId) -> bool:
        return any(mark.attempt_id == epoch.attempt_id and mark.number >= epoch.number for mark in self.marks)


def test_rows_of_an_epoch_that_was_given_up_are_not_taken_for_lost() -> None:
    """The next manifest, of epoch 6, names the part of epoch 5 and no other; then come rows of epoch 7."""
    target = Marked()
    publisher = TargetPublisher(Operator("out", Kind.SINK, 1, 1, connector={"type": "stdout"}), "copied", "")
    publisher._target = target  # type: ignore[assignment]
    for manifest, cut in ((6, 5), (7, 7)):
        file = SinkFile("a table", f"part-00000-{cut:010d}.csv", 1, 1, "0" * 64, staged="rows")
        part = StagedPart(Transaction("a" * 32, cut, 0, "out"), file)
        delivery = Delivery(EpochId("a" * 32, manifest), (part,), MemoryStorage())  # type: ignore[arg-type]
        newest = publisher.publish(delivery, is_resumed=False)
        assert newest is not None
        publisher.verify(newest)
    assert {mark.number for mark in target.marks} == {5, 7}
    target.marks.clear()
    with pytest.raises(EngineStopped, match="contained the rows of epoch 7, but lost them"):
        publisher.verify(newest)


def test_a_table_whose_owner_cleans_up_is_exact(lake: Lines) -> None:
    """Compaction, deleted files, and a log whose old commits are gone take no mark away."""
    from deltalake import DeltaTable

    lake.run(epochs=4, keep=1)
    table = DeltaTable(str(lake.folder / "out"))
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    table.create_checkpoint()
    for commit in sorted((lake.folder / "out" / "_delta_log").glob("*.json"))[:-1]:
        commit.unlink()
    assert verdict(lake) is SinkVerdict.EXACT
    lake.resume(epochs=1, keep=1)
    lake.resume(keep=1)
    assert lake.wrong() == {}


def test_a_table_from_which_its_owner_deletes_rows_is_exact(lake: Lines) -> None:
    from deltalake import DeltaTable

    lake.run(epochs=4, keep=1)
    DeltaTable(str(lake.folder / "out")).delete("line like 'line 0 %'")
    assert verdict(lake) is SinkVerdict.EXACT
    lake.resume(keep=1)
    assert {line for line, n in lake.wrong().items() if not line.startswith("line 0 ")} == set()


@pytest.mark.cell("E", "refused")
@pytest.mark.parametrize("lines", cases(("jsonl", "bucket")), indirect=True)
def test_a_place_that_was_emptied_between_two_runs_is_refused_and_then_a_choice(lines: Lines) -> None:
    lines.run(epochs=4)
    lost = lines.shown()
    place = open_writable(lines.out if "://" in lines.out else str(lines.folder / lines.out))
    for entry in walk(place):
        place.delete(entry.name)
    assert verdict(lines) is SinkVerdict.INCOMPLETE
    with pytest.raises(Damaged, match="missing"):
        lines.resume()
    lines.resume(accept_missing=True)
    assert set(lines.wrong()) == set(lost)


@pytest.mark.cell("H", "refused")
@pytest.mark.parametrize("lines", cases((*BACKED_UP, "kafka", "stdout")), indirect=True)
def test_a_plan_that_was_made_while_the_job_ran_is_stale_when_that_has_gone_on(lines: Lines) -> None:
    plans: list[Plan[NativePlan]] = []

    def plan(epochs: int) -> None:
        if epochs == 3:
            made = plan_recovery(lines.store())
            assert isinstance(made, Plan)
            plans.append(made)

    lines.run(epochs=8, at=plan)
    with pytest.raises(StalePlan, match=r"the job has continued since: epoch \d+ is complete, the plan covers .* \d+"):
        restore(plans[0], lines.job().topology, options(lines))


def test_a_restore_in_place_behind_committed_rows_is_refused_or_leaves_them(lake: Lines) -> None:
    lake.run(epochs=5)
    before = lake.shown()
    plan = plan_recovery(lake.store(), epoch=lake.complete()[1])
    assert isinstance(plan, Plan)
    with pytest.raises(UsageError, match="not part of the history being resumed"):
        restore(plan, lake.job().topology, options(lake))
    assert lake.shown() == before
    restore(plan, lake.job().topology, replace(options(lake), take_ownership=True))
    assert lake.shown() >= before


def options(lines: Lines) -> JobOptions:
    return JobOptions(str(lines.folder), "job.yaml", engine="inline", workers=2, until="drained", interval=0.01)
