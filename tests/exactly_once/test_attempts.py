"""Exactly-once over several attempts, stores and copies of stores on one sink: every line is visible once."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from abscli.engine.errors import EngineStopped, UsageError
from abscli.engine.io.sinks import JsonLinesSink
from abscli.engine.journal import Journal
from abscli.report.findings import Code, StoreReport
from abscli.stores.base import Checked
from abscli.stores.native.check import check, check_all
from abscli.stores.native.checks.outputs import with_output
from abscli.stores.native.plan import plan_recovery
from abscli.stores.native.restore import copy_epoch, restore
from formats.errors import Damaged, StoreInUse
from formats.native import layout
from formats.native.evidence import open_for_validation
from formats.native.probe import Prober
from formats.native.sink import CLAIMS, epoch_of_part, part_name, staged_path
from tests.support.archives import extract
from tests.support.lines_job import Gate, Lines, copy_while_it_changes, topology, write_lines

ROOT = Path(__file__).resolve().parents[2]
EPOCHS = 12


@pytest.fixture
def lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lines:
    write_lines(tmp_path, EPOCHS)
    gate = Gate()
    gate.install(monkeypatch.setattr)
    return Lines(tmp_path, gate)


def restore_to(lines: Lines, epoch: int, to: str, *, store: str = "a") -> None:
    """As `abs plan-recovery STORE@EPOCH` and `abs restore PLAN --to` do it."""
    from abscli.engine.job import JobOptions

    plan = plan_recovery(lines.store(store), epoch=epoch)
    options = JobOptions(
        str(lines.folder), "job.yaml", engine="inline", workers=2, keep=None, until="drained", interval=0.01
    )
    restore(plan, topology(), options, to=str(lines.folder / to))


def in_a_process(lines: Lines, where: str, n: int, number: int, *, from_epoch: str = "") -> subprocess.Popen[str]:
    """The job on store `a` in a process that sends itself a signal; see `tests.support.lines_job`."""
    job = "tests.support.lines_job"
    command = [sys.executable, "-m", job, str(lines.folder), "a", from_epoch, where, str(n), str(number)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


def killed(lines: Lines, where: str, n: int, *, from_epoch: str = "") -> None:
    """The job was killed with SIGKILL at the n-th call of `where`."""
    process = in_a_process(lines, where, n, signal.SIGKILL, from_epoch=from_epoch)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL, errors


def wait_for(fact: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Until it is so; fails when the process has ended without it."""
    deadline = time.monotonic() + 300
    while not fact():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_stopped(process: subprocess.Popen[str]) -> bool:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


# -- copies of a store ----------------------------------------------------------------------------------------


def test_a_copy_that_goes_on_with_the_numbers_of_the_original_does_not_show_its_parts(lines: Lines) -> None:
    lines.run()
    assert lines.wrong() == {}
    restore_to(lines, lines.complete()[4], "b")
    lines.resume("b")
    assert lines.wrong() == {}


@pytest.mark.parametrize("more", [1, 4])
def test_a_backup_that_is_put_back_is_refused_and_then_takes_the_sink_over(lines: Lines, more: int) -> None:
    lines.run(epochs=3)
    shutil.copytree(lines.folder / "a", lines.folder / "backup")
    lines.resume(epochs=more)
    shutil.rmtree(lines.folder / "a")
    (lines.folder / "backup").rename(lines.folder / "a")
    with pytest.raises(UsageError, match="made since") as refused:
        lines.resume()
    assert "--take-over" in str(refused.value.hint)
    outcome = lines.resume(take_over=True)
    assert outcome.taken_over.keys() == {"out"}
    assert lines.wrong() == {}


def test_neither_number_of_an_attempt_nor_of_an_epoch_makes_a_part_ours(lines: Lines) -> None:
    """A backup that is taken in attempt 1 and resumed twice has attempt 2 and its epochs twice."""
    lines.run(epochs=3)
    shutil.copytree(lines.folder / "a", lines.folder / "backup")
    lines.resume(epochs=3)
    first = lines.store().attempts()[-1]
    shutil.rmtree(lines.folder / "a")
    (lines.folder / "backup").rename(lines.folder / "a")
    lines.resume(epochs=2, take_over=True)
    second = lines.store().attempts()[-1]
    assert (first.attempt, first.first_epoch) == (second.attempt, second.first_epoch)
    assert first.id != second.id
    lines.resume()
    assert lines.wrong() == {}


def test_a_copy_made_while_the_job_ran_goes_on_from_its_own_newest_epoch(lines: Lines) -> None:
    def copy(epochs: int) -> None:
        if epochs == 3:
            copy_while_it_changes(lines.folder / "a", lines.folder / "b")

    lines.run(epochs=7, at=copy)
    lines.resume("b")
    assert lines.wrong() == {}
    with pytest.raises(UsageError, match="made since"):
        lines.resume("a")


def test_two_stores_take_the_sink_over_from_each_other(lines: Lines) -> None:
    lines.run(epochs=4)
    shutil.copytree(lines.folder / "a", lines.folder / "b")
    for store in ("b", "a", "b", "a"):
        lines.resume(store, epochs=1, take_over=True)
    lines.resume("b", take_over=True)
    assert lines.wrong() == {}
    lines.resume("a", take_over=True)
    assert lines.wrong() == {}


# -- two jobs at once -----------------------------------------------------------------------------------------


def test_a_sink_is_written_by_one_job_at_a_time(lines: Lines) -> None:
    refused: list[StoreInUse] = []

    def second(epochs: int) -> None:
        if epochs == 2:
            other = Lines(lines.folder, Gate())
            with pytest.raises(StoreInUse, match="sink out is in use by process") as error:
                other.run("b")
            refused.append(error.value)

    lines.run(at=second)
    assert len(refused) == 1
    assert lines.wrong() == {}


def test_two_processes_on_one_empty_sink_are_one_job_and_one_refusal(lines: Lines) -> None:
    """Real processes, started at once; the first one that has the sink stops itself, so that both are there."""
    first = in_a_process(lines, "manifest", 1, signal.SIGSTOP)
    try:
        wait_for(lambda: is_stopped(first), first)
        with pytest.raises(StoreInUse, match=f"process {first.pid} "):
            lines.run("b")
    finally:
        first.send_signal(signal.SIGCONT)
        _, errors = first.communicate(timeout=300)
    assert first.returncode == 0, errors
    assert lines.wrong() == {}


def test_a_restore_into_another_store_waits_for_the_job_that_writes_the_sink(lines: Lines) -> None:
    refused: list[StoreInUse] = []

    def second(epochs: int) -> None:
        if epochs == 3:
            with pytest.raises(StoreInUse, match="sink out") as error:
                restore_to(lines, lines.complete()[0], "b")
            refused.append(error.value)

    lines.run(at=second)
    assert len(refused) == 1
    assert lines.wrong() == {}


# -- kills between a manifest and what it shows ---------------------------------------------------------------


def test_what_a_manifest_names_is_shown_by_the_next_attempt(lines: Lines) -> None:
    killed(lines, "reveal", 4)
    assert lines.sink.staged()
    lines.resume()
    assert lines.wrong() == {}


def test_what_was_staged_for_an_epoch_that_did_not_complete_is_not_shown(lines: Lines) -> None:
    killed(lines, "manifest", 4)
    staged = lines.sink.staged()
    assert staged
    lines.resume()
    assert lines.wrong() == {}
    assert not lines.sink.staged()
    assert staged.keys() <= lines.sink.superseded().keys()


def test_what_an_attempt_was_writing_when_it_was_killed_is_dropped_and_nobody_elses(lines: Lines) -> None:
    lines.run(epochs=3)
    ours, theirs = lines.store().attempts()[0].id, f"{7:032x}"
    half = {id: lines.folder / "out" / staged_path(id, ".open-00000-0000abcd") for id in ("", ours, theirs)}
    for path in half.values():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"line": "ha')
    assert {id for id, _ in lines.sink.unfinished()} == set(half)
    lines.resume()
    assert {id for id, path in half.items() if path.exists()} == {theirs}
    assert lines.wrong() == {}


def test_going_back_keeps_what_a_complete_epoch_of_another_branch_has_not_shown_yet(lines: Lines) -> None:
    killed(lines, "reveal", 6)
    unshown = lines.sink.staged()
    epochs = lines.complete()
    lines.run(from_epoch=epochs[2], epochs=2)
    assert unshown.items() <= lines.sink.staged().items()
    lines.run(from_epoch=epochs[5], epochs=1)
    lines.resume()
    assert lines.wrong() == {}


def test_a_run_has_finished_when_all_is_visible_whoever_is_left(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No worker takes part in showing what a manifest names."""
    monkeypatch.setattr(JsonLinesSink, "commit", lambda sink, epoch: None)
    outcome = lines.run()
    assert outcome.finished
    assert lines.wrong() == {}


def test_killed_again_and_again(lines: Lines) -> None:
    for n, where in enumerate(["reveal", "manifest", "reveal", "reveal", "manifest"]):
        from_epoch = str(lines.complete()[-1]) if n else ""
        killed(lines, where, 2, from_epoch=from_epoch)
    lines.resume()
    assert lines.wrong() == {}


# -- going back and forth -------------------------------------------------------------------------------------


def test_each_branch_has_its_own_output(lines: Lines) -> None:
    lines.run(epochs=8)
    first = lines.complete()
    lines.run(from_epoch=first[2], epochs=3)
    second = lines.complete()[len(first) :]
    lines.run(from_epoch=first[6], epochs=2)
    lines.run(from_epoch=second[1], epochs=1)
    lines.run(from_epoch=first[4])
    assert lines.wrong() == {}


def test_a_job_that_keeps_few_epochs_shows_all_that_it_ever_made(lines: Lines) -> None:
    lines.run(epochs=6, keep=1)
    lines.resume(epochs=2, keep=1)
    copy_epoch(lines.store(), lines.complete()[-1], str(lines.folder / "b"))
    lines.resume("b", keep=1)
    assert lines.wrong() == {}


# -- an owner that has lost the store ------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["manifest", "reveal"])
def test_an_owner_that_was_stopped_and_has_lost_its_locks_completes_and_shows_nothing(lines: Lines, where: str) -> None:
    """What an expired lease of NFS does to the locks: the files that they are on are other ones."""
    stale = in_a_process(lines, where, 3, signal.SIGSTOP)
    try:
        wait_for(lambda: is_stopped(stale), stale)
        for lock in (lines.folder / "a" / layout.LOCK, lines.folder / "out" / ".abs-sink" / "lock"):
            lock.rename(lock.with_name("lock-of-old"))
        before = lines.complete()
        lines.resume(epochs=2)
        fences = lines.store().fences()
        assert fences
        assert fences[0] == before[-1] + 1
    finally:
        stale.send_signal(signal.SIGCONT)
        _, errors = stale.communicate(timeout=300)
    assert stale.returncode == 1, errors
    assert ("took the store over" if where == "manifest" else "was taken over by attempt 2") in errors
    (lines.folder / "a" / "lock-of-old").unlink()
    lines.resume()
    assert lines.wrong() == {}
    store, problems = open_for_validation(lines.store().storage)
    report, _ = with_output(store, check_all(store, problems, prober := Prober(store.storage)), prober, at_rest=True)
    assert not report.damaged


def test_a_stale_owner_cannot_give_an_epoch_up_either(lines: Lines, tmp_path: Path) -> None:
    lines.run(epochs=2)
    attempt = lines.store().attempts()[0]
    storage = lines.store().storage
    stale = Journal(storage, topology(), attempt, keep=None, directory_hint="job.yaml")
    number = stale._undecided = lines.complete()[-1] + 1
    lines.resume(epochs=1)
    with pytest.raises(EngineStopped, match="took the store over"):
        stale.abort(number, "timed out")


# -- output that is gone --------------------------------------------------------------------------------------


def test_a_part_that_is_gone_is_said_and_made_again_from_the_epoch_before_it(lines: Lines) -> None:
    lines.run(epochs=5)
    victim = sorted(lines.sink.visible())[2]
    (lines.folder / "out" / victim).unlink()
    before = lines.sink.visible()
    with pytest.raises(Damaged, match=r"an output part of \d+ rows is gone") as refused:
        lines.resume()
    assert lines.sink.visible() == before
    hint = str(refused.value.hint)
    lines.run(from_epoch=int(hint.partition("--from-epoch ")[2].partition(";")[0]))
    assert lines.wrong() == {}


def test_more_parts_that_are_gone_are_counted(lines: Lines) -> None:
    lines.run(epochs=5)
    for victim in sorted(lines.sink.visible())[:2]:
        (lines.folder / "out" / victim).unlink()
    with pytest.raises(Damaged, match=r"rows is gone, and 1 more like it"):
        lines.resume()


def test_a_part_that_was_cut_short_is_one_that_is_gone(lines: Lines) -> None:
    lines.run(epochs=5)
    victim = lines.folder / "out" / sorted(lines.sink.visible())[0]
    victim.write_bytes(victim.read_bytes()[:-5])
    with pytest.raises(Damaged, match=r"an output part has \d+ bytes, \d+ were written"):
        lines.resume()


def test_a_part_that_a_reader_took_away_need_not_come_back(lines: Lines) -> None:
    lines.run(epochs=5)
    victim = lines.folder / "out" / sorted(lines.sink.visible())[0]
    taken = {line.partition('"line":"')[2].rstrip('"}') for line in victim.read_text().splitlines()}
    victim.unlink()
    lines.resume(accept_missing=True)
    assert lines.wrong() == dict.fromkeys(taken, -1)


def test_a_part_of_a_stranger_is_set_aside_and_never_overwritten(lines: Lines) -> None:
    lines.run(epochs=5)
    names = sorted(lines.sink.visible())
    stranger = names[-1].replace("part-00001", "part-00007").replace("part-00000", "part-00007")
    (lines.folder / "out" / stranger).write_text('{"line": "not ours"}\n')
    lines.resume()
    assert lines.wrong() == {}


def test_nothing_is_moved_where_a_run_is_refused(lines: Lines) -> None:
    lines.run(epochs=4)
    shutil.copytree(lines.folder / "a", lines.folder / "b")
    lines.resume("b", epochs=1)
    before = {path: path.stat().st_ino for path in (lines.folder / "out").rglob("part-*")}
    with pytest.raises(UsageError, match="made since"):
        lines.resume("a")
    assert {path: path.stat().st_ino for path in (lines.folder / "out").rglob("part-*")} == before
    assert len(lines.store("a").attempts()) == 1


def test_a_reveal_that_was_cut_off_in_its_middle_is_ended(lines: Lines) -> None:
    """A part is linked under its visible name, and then its staged name goes."""
    lines.run(epochs=3)
    attempt = lines.store().attempts()[0].id
    name = sorted(lines.sink.visible())[-1]
    os.link(lines.folder / "out" / name, lines.folder / "out" / staged_path(attempt, name))
    lines.resume()
    assert lines.wrong() == {}
    assert not lines.sink.staged()


# -- what validation says of output ---------------------------------------------------------------------------


def checked(lines: Lines, *, quick: bool = False) -> Checked:
    return check(lines.store().storage, None, quick=quick, progress=lambda read, total: None)


def validated(lines: Lines, *, quick: bool = False) -> StoreReport:
    return checked(lines, quick=quick).report


def why_output_is_unchecked(lines: Lines) -> dict[int, str]:
    """The reason, by epoch; every epoch whose output is unchecked has one."""
    result = checked(lines)
    why = result.why
    assert {n for n in why if Code.SINK_PART_MISSING in why[n]} == {
        row.epoch for row in result.report.epochs if Code.SINK_PART_MISSING in row.unchecked
    }
    return {n: reasons[Code.SINK_PART_MISSING] for n, reasons in why.items()}


def output_findings(report: StoreReport) -> list[tuple[str, str]]:
    """Code and file name of what is said of output."""
    return [(f.code.value, os.path.basename(f.path or "")) for f in report.all_findings]


def test_a_store_whose_output_is_whole_has_nothing_to_say_of_it(lines: Lines) -> None:
    lines.run(epochs=4, keep=2)
    lines.run(from_epoch=lines.complete()[-1], epochs=2, keep=2)
    report = validated(lines)
    assert output_findings(report) == []
    assert all(Code.SINK_PART_MISSING not in row.unchecked for row in report.epochs)


def test_a_part_that_is_gone_is_a_finding_of_the_epoch_that_named_it(lines: Lines) -> None:
    lines.run(epochs=5)
    victim = sorted(lines.sink.visible(), key=epoch_of_part)[4]
    (lines.folder / "out" / victim).unlink()
    for quick in (False, True):
        report = validated(lines, quick=quick)
        assert output_findings(report) == [("sink-part-missing", victim)]
        assert (report.latest_restorable or 0) < epoch_of_part(victim)


def test_a_flipped_byte_of_output_is_found_where_bytes_are_read(lines: Lines) -> None:
    lines.run(epochs=3)
    victim = lines.folder / "out" / sorted(lines.sink.visible())[1]
    victim.write_bytes(victim.read_bytes().replace(b"line", b"lime", 1))
    assert output_findings(validated(lines)) == [("sink-part-missing", victim.name)]
    assert output_findings(validated(lines, quick=True)) == []


def test_a_part_that_waits_to_be_shown_is_not_missing(lines: Lines) -> None:
    killed(lines, "reveal", 3)
    assert lines.sink.staged()
    assert output_findings(validated(lines)) == []


def test_a_visible_part_that_no_epoch_names_is_a_finding(lines: Lines) -> None:
    lines.run(epochs=3)
    newest = lines.complete()[-1]
    stray = lines.folder / "out" / part_name(7, newest)
    stray.write_text('{"line": "line 0 0"}\n')
    assert output_findings(validated(lines)) == [("sink-part-unnamed", stray.name)]
    lines.resume()
    assert lines.wrong() == {}
    assert output_findings(validated(lines)) == []


def test_output_that_another_store_took_over_or_that_is_not_here_is_not_judged(lines: Lines) -> None:
    lines.run(epochs=3)
    shutil.copytree(lines.folder / "a", lines.folder / "b")
    lines.resume("b", epochs=1)
    report = validated(lines)
    assert output_findings(report) == []
    out = str(lines.folder / "out")
    reasons = why_output_is_unchecked(lines)
    assert reasons
    assert set(reasons.values()) == {f"{out} shows the output of another store now, {lines.folder / 'b'}"}
    shutil.rmtree(out)
    assert output_findings(validated(lines)) == []
    assert set(why_output_is_unchecked(lines).values()) == {
        f"{out} is not there: the sink is looked for where the job file was when the job ran last"
    }


def test_validate_says_which_claim_of_a_sink_cannot_be_read(lines: Lines) -> None:
    lines.run(epochs=3)
    newest = sorted((lines.folder / "out" / CLAIMS).glob("*.json"))[-1]
    newest.write_bytes(newest.read_bytes()[:-9])
    assert output_findings(validated(lines)) == []
    (reason,) = set(why_output_is_unchecked(lines).values())
    assert reason.startswith(f"what {lines.folder / 'out'} says of itself cannot be read: ")
    assert newest.name in reason


def test_output_is_unchecked_where_the_attempts_that_made_it_cannot_be_read(lines: Lines) -> None:
    lines.run(epochs=3)
    record = lines.folder / "a" / layout.attempt(1)
    record.write_bytes(record.read_bytes()[:-9])
    (reason,) = set(why_output_is_unchecked(lines).values())
    assert reason.startswith(f"which attempts made the output is not known: {record}: ")


# -- a store of version 1, with what it left in its sink ------------------------------------------------------
# Five epochs, two more from the third, and one whose parts of two epochs were never shown, as after a SIGKILL.


@pytest.fixture
def first_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lines:
    with tarfile.open(ROOT / "tests" / "data" / "store-1-with-sink.tar.gz") as archive:
        extract(archive, tmp_path / "job")
    gate = Gate()
    gate.install(monkeypatch.setattr)
    return Lines(tmp_path / "job", gate)


def test_a_resume_brings_a_store_of_version_1_up_and_shows_what_it_had_not_shown(first_version: Lines) -> None:
    first_version.resume(epochs=1)
    assert first_version.store().facts.version == "2.0"
    assert not first_version.sink.staged()
    first_version.resume()
    assert first_version.wrong() == {}
    assert output_findings(validated(first_version)) == []


def test_the_other_branch_of_a_store_of_version_1_comes_back_from_where_it_was_set_aside(first_version: Lines) -> None:
    first_version.run(from_epoch=6, epochs=1)
    first_version.run(from_epoch=14, epochs=1)
    first_version.run(from_epoch=5)
    assert first_version.wrong() == {}


def test_a_store_of_version_1_that_was_brought_up_and_then_killed_still_owns_its_sink(
    first_version: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def kill(*arguments: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("abscli.engine.attempt.put_attempt", kill)
        with pytest.raises(Killed):
            first_version.resume()
    assert first_version.store().facts.version == "2.0"
    first_version.resume()
    assert first_version.wrong() == {}


def test_another_store_does_not_write_the_sink_of_a_store_of_version_1(first_version: Lines) -> None:
    with pytest.raises(UsageError, match="did not write"):
        first_version.run("b")
