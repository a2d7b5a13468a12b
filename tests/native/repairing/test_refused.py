"""Repairs that are refused, and leave the store as it was: what would come out is not what was, or cannot be proved."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from abscli.api import open_store
from abscli.stores.recovery import BadOption
from formats.errors import NoRecovery, OtherJob, StalePlan, UnknownTask
from formats.native import layout
from tests.commands.test_jobs import fingerprint
from tests.support.jobs.damaged import (
    assert_goes_on_exactly,
    damage_state,
    flip,
    killed,
    make,
    newest,
    part_of,
    repaired,
    stopped,
)
from tests.support.jobs.repair import opened, run


def refused(folder: Path, match: str, epoch: int | None = None, *, distrust: tuple[str, ...] = ()) -> None:
    plan = open_store(folder / "store").plan(epoch, repair=True, distrust=distrust)
    before = fingerprint(folder)
    with pytest.raises(NoRecovery, match=match):
        plan.prepare(job=folder / "job.json").carry_out()
    assert fingerprint(folder) == before


def test_a_function_that_does_something_else_now_is_noticed(job: Path) -> None:
    """Its module is the same: only what comes out says it."""
    damage_state(job, newest(job), "counts/0")
    (job / "suffix").write_text("x")
    refused(job, "does not come out as it was")


def test_a_neighbour_alone_notices_it_where_nothing_of_the_old_part_is_believed(job: Path) -> None:
    (job / "suffix").write_text("x")
    refused(job, r"words/0->counts/[01]: ", newest(job), distrust=("words/0",))


def test_a_function_that_does_something_else_is_noticed_where_no_route_depends_on_it(tmp_path: Path) -> None:
    """One task each, so that every count is what it was: what readers have seen is not."""
    for attempt in range(5):  # the last epoch before a stop may have no rows
        folder = stopped(tmp_path / str(attempt) / "job", "alone")
        if any(part.sink for part in opened(folder).parts(newest(folder))):
            break
    damage_state(folder, newest(folder), "counts/0")
    (folder / "suffix").write_text("+")
    refused(folder, "readers have seen")


@pytest.mark.parametrize(
    ("suffix", "damaged", "message"),
    [("+", False, "most of .* was [0-9], is [0-9]"), ("=one", True, "keys were in its state, [0-9]+ are now")],
)
def test_it_is_noticed_by_the_state_where_readers_have_seen_nothing(
    tmp_path: Path, suffix: str, damaged: bool, message: str
) -> None:
    folder = tmp_path / "job"
    epoch = killed(folder, "alone", "out/0")
    if damaged:
        damage_state(folder, epoch, "counts/0")
    (folder / "suffix").write_text(suffix)
    refused(folder, message)
    (folder / "suffix").unlink()
    assert repaired(folder)["epoch"] == epoch


def test_a_module_that_has_changed_is_named(job: Path) -> None:
    damage_state(job, newest(job), "counts/0")
    (job / "counting.py").write_text((job / "counting.py").read_text() + "\n# another one\n")
    refused(job, r"counting\.py changed since")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda head, stretch: head + stretch[:100], "lines/0 had read .* of it at barrier"),
        (lambda head, stretch: head[:100], "lines/0 had read .* of it at barrier"),
        (lambda head, stretch: head + stretch.replace("w", "v"), "is not what it was|come out as it was"),
        (lambda head, stretch: head + stretch.replace("\n", " ", 3), "is not what it was"),
    ],
    ids=["shorter", "much shorter", "other words", "fewer lines"],
)
def test_a_source_file_that_has_changed_since_is_noticed(
    job: Path, change: Callable[[str, str], str], message: str
) -> None:
    """From where the tasks read again; what lies before that is in the state of the epoch that they run from."""
    epoch = newest(job)
    damage_state(job, epoch, "counts/0")
    source = job / "in" / "0.txt"
    start, end = ((part_of(job, n, "lines/0").positions or ())[0].offset or 0 for n in (epoch - 1, epoch))
    text = source.read_text()
    changed = change(text[:start], text[start:end])
    source.write_text(changed if len(changed) < end else changed + text[end:])
    refused(job, message)


def test_it_is_noticed_beside_a_loop_that_is_never_at_rest(tmp_path: Path) -> None:
    """The loop goes on for as long as its barrier does not come back: nobody waits for it to end."""
    folder = stopped(tmp_path / "job", "beside", epochs=3)
    source = folder / "in" / "0.txt"
    stood = {n: (part_of(folder, n, "lines/0").positions or ())[0].offset or 0 for n in opened(folder).epoch_numbers()}
    epoch = max(n for n in stood if stood.get(n - 1, stood[n]) < stood[n])
    start, end = stood[epoch - 1], stood[epoch]
    text = source.read_text()
    source.write_text(text[:start] + text[start:end].replace("\n", " ", 3) + text[end:])
    refused(folder, "is not what it was", epoch, distrust=("counts/0", "pairs/0"))


def test_more_input_changes_nothing(job: Path) -> None:
    epoch = newest(job)
    damage_state(job, epoch, "counts/0")
    with (job / "in" / "0.txt").open("a") as file:
        file.write("what came later\n")
    repaired(job)
    assert_goes_on_exactly(job, epoch)


def test_an_epoch_that_is_whole_needs_no_repair(job: Path) -> None:
    for epoch in (None, newest(job)):
        with pytest.raises(NoRecovery, match="is intact"):
            open_store(job / "store").plan(epoch, repair=True)


def test_a_line_that_the_job_has_left_is_not_repaired(job: Path) -> None:
    epoch = newest(job)
    damage_state(job, epoch, "counts/0")
    run(job, "counting", from_epoch=epoch - 1)
    with pytest.raises(NoRecovery, match=f"the job has abandoned: attempt 2 resumed from epoch {epoch - 1}"):
        open_store(job / "store").plan(epoch, repair=True)


def test_at_least_once_is_not_repaired(tmp_path: Path) -> None:
    folder = stopped(tmp_path / "job", "counting", "at-least-once", epochs=2)
    damage_state(folder, newest(folder), "counts/0")
    with pytest.raises(NoRecovery, match="was taken at-least-once"):
        open_store(folder / "store").plan(repair=True)


def test_a_list_of_parts_that_is_lost_cannot_say_what_was_shown(job: Path) -> None:
    epoch = newest(job)
    flip(job / "store" / opened(job).manifest(epoch).tasks_file.path)
    with pytest.raises(NoRecovery, match="what it has shown in its sinks is not known"):
        open_store(job / "store").plan(epoch, repair=True)


def test_an_unknown_task_and_options_that_mean_nothing(job: Path) -> None:
    epoch = newest(job)
    with pytest.raises(UnknownTask, match="no task 'counts/9'"):
        open_store(job / "store").plan(epoch, repair=True, distrust=["counts/9"])
    plan = open_store(job / "store").plan(epoch, repair=True, distrust=["counts/0"])
    for more in ({"to": job / "other"}, {"until": "end"}, {"policy": "unaligned"}):
        with pytest.raises(BadOption, match="a repair makes an epoch whole where it is"):
            plan.prepare(job=job / "job.json", **more)  # type: ignore[arg-type]
    with pytest.raises(BadOption, match="--failed"):
        open_store(job / "store").plan(repair=True, failed=["counts/0"])


def test_another_job_is_refused(job: Path, tmp_path: Path) -> None:
    damage_state(job, newest(job), "counts/0")
    plan = open_store(job / "store").plan(repair=True)
    other = make(tmp_path / "other", "reach")
    with pytest.raises(OtherJob):
        plan.prepare(job=other / "job.json")


def test_another_job_is_refused_also_where_the_manifest_is_lost_that_says_what_it_was(job: Path) -> None:
    """As after a rescale, when the job file still has the numbers from before."""
    (job / "store" / layout.outcome(newest(job))).unlink()
    plan = open_store(job / "store").plan(repair=True)
    file = json.loads((job / "job.json").read_text())
    file["operators"]["counts"]["ordered_output"] = True
    (job / "job.json").write_text(json.dumps(file))
    with pytest.raises(OtherJob):
        plan.prepare(job=job / "job.json")


def test_a_plan_is_stale_when_the_job_has_run_or_more_is_damaged(job: Path) -> None:
    epoch = newest(job)
    damage_state(job, epoch, "counts/0")
    plan = open_store(job / "store").plan(repair=True)
    damage_state(job, epoch, "counts/1")
    with pytest.raises(StalePlan, match="counts/1"):
        plan.prepare(job=job / "job.json")
    plan = open_store(job / "store").plan(repair=True)
    run(job, "counting", from_epoch=epoch - 1)
    with pytest.raises(StalePlan, match="the job has run since"):
        plan.prepare(job=job / "job.json")


def test_a_plan_that_lists_too_little_is_refused(job: Path) -> None:
    damage_state(job, newest(job), "counts/0")
    planned = open_store(job / "store").plan(repair=True)
    fewer = msgspec.structs.replace(planned.plan, relies_on=planned.plan.relies_on[:-1])
    with pytest.raises(StalePlan, match="does not list every file"):
        msgspec.structs.replace(planned, plan=fewer).prepare(job=job / "job.json")


def test_a_staged_part_that_is_gone_is_made_again_when_its_task_is_distrusted(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    epoch = killed(folder, "counting", "counts/0")
    raw = part_of(folder, epoch, "raw/1")
    (folder / "raw" / ".staged" / raw.attempt_id / raw.sink[0].name).unlink()
    refused(folder, "that raw/1 staged", epoch)
    repaired(folder, epoch, distrust=("raw/1",))
    assert_goes_on_exactly(folder, epoch)
