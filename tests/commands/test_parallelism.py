"""`--parallelism OP=N` on the command line: what it does, what it says, and what it is refused for."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from abscli.api import read_plan
from abscli.stores.native.repairing.repair import Repaired
from formats.native.store import NativeStore
from formats.storage import LocalStorage
from tests.support.commands import result_of, run_command
from tests.support.jobs.small import last_counts, write_words

JOB = """version: 1
job: words
max_parallelism: 16
operators:
  lines:
    source: {type: text, path: in/*.txt}
  words:
    from: lines
    flat_map: words
  counts:
    from: {words: {partition: hash, key: [word]}}
    parallelism: 4
    reduce: {key: [word], n: {count: "*"}, emit: epoch}
  out:
    from: {counts: {partition: rebalance}}
    sink: {type: jsonl, path: out}
"""


@pytest.fixture
def folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A job that has run to its end, on four tasks of counts."""
    write_words(tmp_path)
    (tmp_path / "job.yaml").write_text(JOB)
    assert run_command("run", capsys, *words(tmp_path))[0] == 0
    return tmp_path


def words(folder: Path, *more: object) -> tuple[object, ...]:
    return folder / "job.yaml", "--store", folder / "store", "--engine", "inline", *more


def width(folder: Path) -> int:
    store = NativeStore(LocalStorage(str(folder / "store")))
    return store.topology(store.latest() or 0).operator("counts").parallelism


def test_a_job_is_rescaled_once_and_then_goes_on_as_it_is(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, counts = partial(run_command, "run", capsys), last_counts(folder)
    code, _, err = run(*words(folder, "--resume", "--parallelism", "counts=7"))
    assert (code, width(folder)) == (0, 7)
    assert "rescaled counts from 4 to 7: epoch" in err
    code, _, err = run(*words(folder, "--resume", "--parallelism", "counts=7"))
    assert (code, width(folder)) == (0, 7)
    assert "rescaled" not in err
    code, _, err = run(*words(folder, "--resume"))
    assert code == 2
    assert "parallelism was 7, is 4" in err
    assert "`--parallelism counts=4`" in err
    assert run(*words(folder, "--resume", "--parallelism", "counts=4"))[0] == 0
    assert (width(folder), last_counts(folder)) == (4, counts)


def test_a_rehearsal_says_what_would_be_rescaled_and_does_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    epochs = NativeStore(LocalStorage(str(folder / "store"))).epoch_numbers()
    more = ("--resume", "--parallelism", "counts=7", "--dry-run")
    result = result_of("run", capsys, *words(folder, *more, "-q"))
    assert result["rescaled"] == [{"operator": "counts", "before": 4, "after": 7}]
    assert "rescales counts from 4 to 7" in run_command("run", capsys, *words(folder, *more))[1]
    assert NativeStore(LocalStorage(str(folder / "store"))).epoch_numbers() == epochs


def test_a_plan_rescales_too_and_leads_on(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = folder / "plan.json"
    code, out, _ = run_command(
        "plan-recovery", capsys, folder / "store", "--parallelism", "counts=3", "--out", plan
    )
    assert code == 0
    assert "3 tasks in place of 4" in out
    code, _, err = run_command(
        "restore", capsys, plan, "--job", folder / "job.yaml", "--engine", "inline", "--yes"
    )
    assert (code, width(folder)) == (0, 3), err
    assert "--resume --parallelism counts=3" in err


def test_a_rescaled_job_is_drilled_and_restored_with_the_tasks_of_its_epoch(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = last_counts(folder)
    assert run_command("run", capsys, *words(folder, "--resume", "--parallelism", "counts=7"))[0] == 0
    job, plan = ("--job", folder / "job.yaml", "--engine", "inline"), folder / "plan.json"
    code, out, err = run_command("drill", capsys, folder / "store", *job)
    assert (code, "10 tasks" in out) == (0, True), err
    assert run_command("plan-recovery", capsys, folder / "store", "--out", plan)[0] == 0
    code, _, err = run_command("restore", capsys, plan, *job, "--yes")
    assert (code, width(folder), last_counts(folder)) == (0, 7, counts), err
    assert "--resume --parallelism counts=7" in err


@pytest.mark.parametrize(("given", "message"), [
    ("counts", "'counts' is not OP=N"), ("counts=0", "is not OP=N"), ("counts=x", "is not OP=N"),
    ("zzz=3", "there is no operator 'zzz'; the operators are lines"),
    ("cuonts=3", "there is no operator 'cuonts'; did you mean counts"), ("counts=17", "it has 16 key groups"),
    ("words=2", "the edge lines->words is forward, from 1 tasks to 2: add --parallelism lines=2"),
])  # fmt: skip
def test_a_parallelism_that_cannot_be_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], given: str, message: str
) -> None:
    for arguments in (("run", *words(folder, "--resume")), ("plan-recovery", folder / "store")):
        command, *rest = arguments
        code, _, err = run_command(str(command), capsys, *rest, "--parallelism", given)
        assert code == 2
        assert message in err
    assert width(folder) == 4


def test_operators_joined_by_a_forward_edge_change_together(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counts = last_counts(folder)
    more = ("--parallelism", "lines=2", "--parallelism", "words=2")
    assert run_command("run", capsys, *words(folder, "--resume", *more))[0] == 0
    assert last_counts(folder) == counts


def test_a_plan_of_a_running_job_has_no_parallelism(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run_command(
        "plan-recovery", capsys, folder / "store", "--failed", "counts/1", "--parallelism", "counts=7"
    )
    assert code == 2
    assert "--parallelism" in err


def test_an_epoch_of_a_rescaled_job_is_repaired_with_the_tasks_that_it_has(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The job file still has the numbers from before."""
    counts = last_counts(folder)
    assert run_command("run", capsys, *words(folder, "--resume", "--parallelism", "counts=7"))[0] == 0
    repair = ("--strategy", "repair", "--distrust", "counts/5", "--out", folder / "plan.json")
    assert run_command("plan-recovery", capsys, folder / "store", *repair)[0] == 0
    plan = read_plan(folder / "plan.json").prepare(job=folder / "job.yaml", engine="inline")
    done = plan.carry_out()
    assert isinstance(done.result, Repaired)
    assert done.result.tasks == 1 + 1 + 7 + 1
    unfinished = done.result._replace(finished=False)
    assert "--resume --parallelism counts=7" in plan.plan.recovery.restored_notes(unfinished, plan.request)[-1]
    assert run_command("validate", capsys, folder / "store")[0] == 0
    assert run_command("run", capsys, *words(folder, "--resume", "--parallelism", "counts=7"))[0] == 0
    assert last_counts(folder) == counts
