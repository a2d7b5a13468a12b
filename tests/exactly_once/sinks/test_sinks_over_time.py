"""What becomes of a sink's parts after the epochs that named them have gone, and of a sink whose place or claim has
changed: every line is visible once."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping

import msgspec
import pytest

from abscli.engine import attempt, journal
from abscli.engine.errors import EngineStopped, UsageError
from abscli.engine.job import JobOptions
from abscli.engine.sinks.file_publisher import FilePublisher
from abscli.engine.sinks.outputs import Outputs
from abscli.report.findings import Code
from abscli.stores.native.plan import plan_recovery
from abscli.stores.native.restore import restore
from abscli.stores.native.text.validate import next_command
from formats.errors import Damaged, OtherJob, StoreInUse
from formats.job.model import Topology
from formats.native.facts import AttemptFacts
from formats.native.sink import CLAIMS, epoch_of_part, part_name
from formats.storage import LocalStorage, Storage
from tests.support.jobs import lines as lines_job
from tests.support.jobs.lines import Gate, Lines, topology

STRANGE = "not ours"


def put_strange(lines: Lines, *epochs: int) -> None:
    """Parts with a row that the job never made."""
    (lines.folder / "out").mkdir(exist_ok=True)
    for epoch in epochs:
        (lines.folder / "out" / part_name(7, epoch)).write_text(f'{{"line": "{STRANGE}"}}\n')


def output_findings(lines: Lines) -> list[str]:
    report = lines.validated()
    return [f"{finding.code} {finding.path}" for finding in report.all_findings]


def restored(
    lines: Lines, epoch: int, *, to: str | None = None, accept_missing: bool = False
) -> Callable[[], object]:
    """A plan for an epoch of store `a`, to be carried out as often as one likes."""
    plan = plan_recovery(lines.store(), epoch=epoch)
    options = JobOptions(
        str(lines.folder), "job.yaml", engine="inline", workers=2, keep=None, until="drained", interval=0.01,
        accept_missing=accept_missing,
    )  # fmt: skip
    target = str(lines.folder / to) if to else None
    return lambda: restore(plan, topology(), options, to=target)


# -- what was set aside ---------------------------------------------------------------------------------------


def test_a_part_of_a_stranger_does_not_come_back_when_the_epochs_of_its_time_have_gone(lines: Lines) -> None:
    lines.run(epochs=3, keep=2)
    put_strange(lines, lines.complete()[-1])
    lines.resume(epochs=4, keep=1)
    assert STRANGE not in lines.shown()
    lines.resume(keep=1)
    assert lines.wrong() == {}


def test_what_was_there_before_the_first_run_is_never_taken_for_the_jobs_own(lines: Lines) -> None:
    put_strange(lines, 1, 2, 3)
    lines.run(epochs=5, keep=1, take_ownership=True)
    lines.resume(epochs=1, keep=1)
    lines.resume(keep=1)
    assert lines.wrong() == {}


# -- a sink in another place ----------------------------------------------------------------------------------


def writes(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """The job file names the sink's folder so from now on."""
    source, sink = topology().operators
    there = msgspec.structs.replace(sink, connector={"type": "jsonl", "path": path})
    changed = Topology("copied", (source, there), topology().edges)
    monkeypatch.setattr(lines_job, "topology", lambda *_: changed)


@pytest.mark.parametrize("path", ["./out", "in/../out/"])
def test_a_sink_that_is_spelt_in_another_way_is_the_same_one(
    lines: Lines, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    lines.run(epochs=4)
    with monkeypatch.context() as patch:
        writes(patch, path)
        lines.resume(epochs=2)
        assert output_findings(lines) == []
        victim = lines.folder / "out" / sorted(lines.sink.visible())[0]
        victim.rename(lines.folder / "away")
        with pytest.raises(Damaged, match="is missing"):
            lines.resume()
        (lines.folder / "away").rename(victim)
        lines.resume()
    assert lines.wrong() == {}


def test_a_sink_in_the_store_is_refused(lines: Lines) -> None:
    """`abs gc` would take what it shows for files of the store that nothing refers to."""
    (lines.folder / "link").symlink_to("a")
    for path in ("a", "a/epochs/../epochs/0000000001/out", "link/out"):
        with pytest.raises(UsageError, match="is inside the store"):
            Lines(lines.folder, lines.gate, path).run()
    assert not (lines.folder / "a").exists()
    lines.run(epochs=1)
    with pytest.raises(UsageError, match="is inside the store"):
        Lines(lines.folder, lines.gate, "a/out").resume()


def test_a_sink_whose_folder_was_moved_keeps_what_it_shows(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    lines.run(epochs=4)
    (lines.folder / "out").rename(lines.folder / "results")
    with monkeypatch.context() as patch:
        writes(patch, "results")
        lines.resume(epochs=2)
        assert output_findings(lines) == []
        lines.run(from_epoch=lines.complete()[2])
    (lines.folder / "results").rename(lines.folder / "out")
    assert lines.wrong() == {}


def test_a_sink_that_goes_on_in_a_new_folder_leaves_the_old_one_as_it_is(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines.run(epochs=4)
    before = lines.shown()
    with monkeypatch.context() as patch:
        writes(patch, "more")
        lines.resume(epochs=2)
        lines.resume()
    assert lines.shown() == before
    for part in (lines.folder / "more").glob("part-*"):
        part.rename(lines.folder / "out" / part.name)
    assert lines.wrong() == {}


# -- hints that lead out --------------------------------------------------------------------------------------


def test_a_claim_that_cannot_be_read_is_got_rid_of_as_the_hint_says(lines: Lines) -> None:
    lines.run(epochs=3)
    lines.resume(epochs=2)
    newest = sorted((lines.folder / "out" / CLAIMS).glob("*.json"))[-1]
    newest.write_bytes(newest.read_bytes()[:-9])
    with pytest.raises(Damaged) as refused:
        lines.resume()
    assert f"delete the folder {CLAIMS}" in str(refused.value.hint)
    shutil.rmtree(newest.parent)
    lines.resume(take_ownership=True)
    assert lines.wrong() == {}


def test_the_epoch_to_make_a_part_again_from_is_on_the_line_of_the_job(lines: Lines) -> None:
    lines.run(epochs=7)
    first = lines.complete()
    lines.run(from_epoch=first[2], epochs=2)
    oldest = min(name for name in lines.sink.visible() if epoch_of_part(name) > first[-1])
    (lines.folder / "out" / oldest).unlink()
    with pytest.raises(Damaged) as refused:
        lines.resume()
    # Under load an epoch of the second run may have no part, and then is the one to go back to.
    before = max(n for n in (first[2], *lines.complete()) if n < epoch_of_part(oldest) and n not in first[3:])
    assert f"--from-epoch {before}," in str(refused.value.hint)


def test_where_the_whole_output_is_gone_the_job_starts_anew_and_nothing_is_rebuilt(lines: Lines) -> None:
    lines.run(epochs=3)
    for name in lines.sink.visible():
        (lines.folder / "out" / name).unlink()
    report = lines.validated(quick=True)
    assert report.latest_restorable is None
    command = next_command(Code.SINK_PART_MISSING, report.epochs[0], report, "a")
    assert command == "abs run JOB --store a --from-epoch 0"
    lines.run(from_epoch=0)
    assert lines.wrong() == {}


def test_a_restore_goes_on_without_parts_that_a_reader_took_away_as_its_hint_says(lines: Lines) -> None:
    lines.run(epochs=4)
    victim = lines.folder / "out" / sorted(lines.sink.visible())[0]
    taken = len(victim.read_text().splitlines())
    victim.unlink()
    epoch = lines.complete()[-1]
    with pytest.raises(Damaged, match="is missing") as refused:
        restored(lines, epoch)()
    assert "--accept-missing-parts" in str(refused.value.hint)
    restored(lines, epoch, accept_missing=True)()
    lines.resume(accept_missing=True)
    assert list(lines.wrong().values()) == [-1] * taken


@pytest.mark.cell("E", "refused", "jsonl")
def test_a_sink_that_is_emptied_below_a_job_is_said_to_be(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Outputs.publish

    def empty(self: Outputs, parts: object) -> Mapping[str, float]:
        if any(part.sink for part in parts):  # type: ignore[attr-defined]
            shutil.rmtree(lines.folder / "out" / CLAIMS)
        return plain(self, parts)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Outputs, "publish", empty)
        with pytest.raises(EngineStopped, match="was emptied while the job ran"):
            lines.run()
    lines.resume()
    assert lines.wrong() == {}


# -- attempts that did not begin ------------------------------------------------------------------------------


def test_an_attempt_that_meets_a_living_owner_leaves_nothing_behind(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner has lost its locks, and writes an outcome between the look of the second attempt and its fence; then
    it goes on with the numbers that would have been the second one's."""
    plain, waiting, go_on = attempt.put_fence, threading.Event(), threading.Event()
    refused: list[BaseException] = []

    def fence(storage: Storage, epoch: int, facts: AttemptFacts) -> None:
        waiting.set()
        assert go_on.wait(300)
        plain(storage, epoch, facts)

    def second(epoch: int) -> None:
        try:
            Lines(lines.folder, Gate()).run(from_epoch=epoch)
        except BaseException as error:
            refused.append(error)

    threads: list[threading.Thread] = []

    def at(epochs: int) -> None:
        if epochs == 3:
            for lock in (lines.folder / "a" / "lock", lines.folder / "out" / CLAIMS / "lock"):
                lock.unlink()
            monkeypatch.setattr(attempt, "put_fence", fence)
            threads.append(threading.Thread(target=second, args=(lines.complete()[-1],)))
            threads[0].start()
            deadline = time.monotonic() + 300
            while not waiting.is_set() and threads[0].is_alive():
                assert time.monotonic() < deadline
                time.sleep(0.01)
        elif epochs == 4:
            go_on.set()
            threads[0].join(300)

    lines.run(epochs=10, keep=2, at=at)
    assert [type(error) for error in refused] == [StoreInUse]
    assert [life.attempt for life in lines.store().attempts()] == [1]
    monkeypatch.setattr(attempt, "put_fence", plain)
    lines.resume(epochs=1, keep=2)
    lines.resume(keep=2)
    assert lines.wrong() == {}


# -- plans ----------------------------------------------------------------------------------------------------


class Killed(BaseException):
    pass


PLACES: tuple[tuple[object, str], ...] = (
    (attempt, "put_attempt"),
    (FilePublisher, "_put_claim"),
    (journal, "put_trigger"),
    (journal, "complete"),
)


def killed_after(where: object, name: str, call: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    plain = getattr(where, name)

    def kill(*arguments: object, **options: object) -> None:
        plain(*arguments, **options)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(where, name, kill)
        with pytest.raises(Killed):
            call()


def test_an_epoch_before_the_newest_attempt_is_restored_elsewhere_however_often_that_is_killed(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attempts that began after the epoch are not copied, so that the copy's own has the number of one of them."""
    lines.run(epochs=4)
    lines.resume(epochs=2)
    again = restored(lines, lines.complete()[1], to="b")
    for where, name in PLACES:
        killed_after(where, name, again, monkeypatch)
    again()
    lines.resume("b", epochs=1)
    with pytest.raises(OtherJob, match="is not empty"):
        again()
    lines.resume("b")
    assert lines.wrong() == {}
    lines.resume(take_ownership=True)
    assert lines.wrong() == {}


def test_both_copies_of_a_whole_project_go_on(lines: Lines, gate: Gate) -> None:
    lines.run(epochs=3)
    staged = next(iter(sorted(lines.sink.visible())))
    owner = lines.store().attempts()[0].id
    # As after a kill in the middle of showing a part: a copy has two files in place of two names of one.
    os.link(lines.folder / "out" / staged, lines.folder / "out" / ".staged" / owner / staged)
    other = Lines(lines.folder.with_name(lines.folder.name + "-copy"), gate)
    shutil.copytree(lines.folder, other.folder)
    try:
        other.resume(epochs=1)
        lines.run(from_epoch=lines.complete()[1], epochs=2)
        other.run(from_epoch=other.complete()[0])
        lines.resume()
        for one in (lines, other):
            assert one.wrong() == {}
            assert output_findings(one) == []
            assert LocalStorage(one.folder / "out" / ".staged").list(owner) == []
    finally:
        shutil.rmtree(other.folder)
