"""Exactly-once over several attempts, stores and copies of stores on one sink: every line is visible once."""

from __future__ import annotations

import shutil
import signal

import pytest

from abscli.engine.errors import UsageError
from abscli.engine.sinks.folder_sinks import FolderSink
from abscli.stores.native.restore import copy_epoch
from formats.errors import StoreInUse
from formats.native.sink import staged_path
from tests.support.jobs.lines import (
    Gate,
    Lines,
    copy_while_it_changes,
    in_a_process,
    killed,
    restore_to,
    wait_until_stopped,
)


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
    with pytest.raises(UsageError, match="contains output of attempt") as refused:
        lines.resume()
    assert "--take-ownership" in str(refused.value.hint)
    outcome = lines.resume(take_ownership=True)
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
    lines.resume(epochs=2, take_ownership=True)
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
    with pytest.raises(UsageError, match="contains output of attempt"):
        lines.resume("a")


def test_two_stores_take_the_sink_over_from_each_other(lines: Lines) -> None:
    lines.run(epochs=4)
    shutil.copytree(lines.folder / "a", lines.folder / "b")
    for store in ("b", "a", "b", "a"):
        lines.resume(store, epochs=1, take_ownership=True)
    lines.resume("b", take_ownership=True)
    assert lines.wrong() == {}
    lines.resume("a", take_ownership=True)
    assert lines.wrong() == {}


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
        wait_until_stopped(first)
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
    half = {id: lines.folder / "out" / staged_path(id, ".open-00000-0000abcd") for id in (ours, theirs)}
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
    monkeypatch.setattr(FolderSink, "commit", lambda sink, epoch: None)
    outcome = lines.run()
    assert outcome.finished
    assert lines.wrong() == {}


def test_killed_again_and_again(lines: Lines) -> None:
    for n, where in enumerate(["reveal", "manifest", "reveal", "reveal", "manifest"]):
        from_epoch = str(lines.complete()[-1]) if n else ""
        killed(lines, where, 2, from_epoch=from_epoch)
    lines.resume()
    assert lines.wrong() == {}


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
