"""Regional checkpoints (FLIP-600), made by our own writer: state of two real checkpoints of one job, and a `_metadata`
of version 7, which no release of Flink writes yet."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

import msgspec
import pytest

from formats.flink.ids import OperatorHash
from formats.flink.metadata import properties
from formats.flink.metadata.file import encode, parse
from formats.flink.metadata.handles import (
    Metadata,
    OperatorState,
    Subtask,
)
from formats.flink.plan_json import JobPlan, Vertex
from formats.flink.regional.regions import regions
from formats.flink.store import FlinkStore
from tests.support.commands import result_of, run_command
from tests.support.flink.cases import HASHMAP, MERGED, content
from tests.support.flink.operator_state import operator_state, utf
from tests.support.schemas import checked

replace = msgspec.structs.replace
OLD, NEW = 2, 3
"""The two checkpoints of the job; state of the first stands in for a region of the second."""

Change = Callable[[OperatorState, Subtask, OperatorState], Subtask]
"""A subtask of the newer checkpoint as it is written: of its operator, itself, and the operator in the older one."""


def of_older(
    operator: OperatorState, subtask: Subtask, before: OperatorState, tasks: Collection[int] = (0,)
) -> Subtask:
    """As Flink does it for a region of which all tasks have one index."""
    if subtask.index not in tasks:
        return subtask
    (theirs,) = [one for one in before.subtasks if one.index == subtask.index]
    return replace(theirs, ref_checkpoint=OLD)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return Path(shutil.copytree(MERGED, tmp_path / MERGED.name))


def regional(job: Path, change: Change = of_older) -> Path:
    """Writes both checkpoints anew in version 7, the newer one changed; its directory."""
    store = FlinkStore(str(job))
    before, after = store.metadata(OLD), store.metadata(NEW)
    known = {operator.id: operator for operator in before.operators}
    operators = tuple(
        replace(operator, subtasks=tuple(change(operator, one, known[operator.id]) for one in operator.subtasks))
        for operator in after.operators
    )
    for number, metadata in ((OLD, before), (NEW, replace(after, operators=operators))):
        (job / f"chk-{number}" / "_metadata").write_bytes(encode(replace(metadata, version=7)))
    return job / f"chk-{NEW}"


def plan_of(job: Path, shipped: str = "FORWARD") -> Path:
    """Flink's plan of the job, with all operators that have two tasks in a row, each in a vertex of its own."""
    operators = FlinkStore(str(job)).metadata(NEW).operators
    nodes = []
    last: OperatorHash | None = None
    for operator in operators:
        inputs = [{"id": last, "ship_strategy": shipped}] if last is not None and operator.parallelism == 2 else []
        nodes.append({"id": operator.id, "parallelism": operator.parallelism, "description": operator.name,
                      "inputs": inputs})  # fmt: skip
        last = operator.id if operator.parallelism == 2 else last
    path = job.parent / "plan.json"
    path.write_text(json.dumps({"plan": {"name": "orders", "nodes": nodes}}))
    return path


def findings(capsys: pytest.CaptureFixture[str], chk: Path, *words: object) -> list[tuple[str, str | None, str]]:
    """Code, task and message of each finding of the newer checkpoint."""
    _, out, _ = run_command("validate", capsys, f"{chk.parent}@{NEW}", *words, "-o", "json")
    (epoch,) = checked(out)["epochs"]
    return [(one["code"], one["task"], one["message"]) for one in epoch["findings"]]


def test_a_region_that_is_wholly_of_an_older_checkpoint_is_whole_and_shown(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def alike(operator: OperatorState, subtask: Subtask, before: OperatorState) -> Subtask:
        return of_older(operator, subtask, before, tasks=(0,) if operator.parallelism == 2 else ())

    chk = regional(job, alike)
    plan = plan_of(job)
    found = findings(capsys, chk, "--topology", plan)
    assert [one for one in found if one[0] not in ("state-mismatch", "missing-file")] == []
    validate = partial(run_command, "validate", capsys)
    _, out, _ = validate(f"{job}@{NEW}", "-o", "json")
    (epoch,) = checked(out)["epochs"]
    assert "the metadata does not contain the job graph: --topology PLAN" in epoch["why_unchecked"]["region-mixed"]
    _, out, _ = validate(f"{job}@{NEW}", "--topology", plan, "-o", "json")
    (epoch,) = checked(out)["epochs"]
    assert "region-mixed" not in epoch["unchecked"]
    assert any(note.startswith(f"regional: the state of 6 tasks of checkpoint {OLD}: ") for note in epoch["notes"])
    _, out, _ = run_command("inspect", capsys, chk)
    assert "regional" in out
    assert f"Of checkpoint {OLD}: " in out
    raw = result_of("inspect", capsys, chk)["raw"]
    assert raw["regional"]
    tasks = {(o["operator-uid"], s["subtask"], s["taken_over_from"]) for o in raw["operators"] for s in o["subtasks"]}
    assert ("totals", 0, OLD) in tasks
    assert ("totals", 1, None) in tasks


def test_a_region_of_two_checkpoints_is_named_with_its_tasks(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def but_one(operator: OperatorState, subtask: Subtask, before: OperatorState) -> Subtask:
        tasks = (0,) if operator.parallelism == 2 and operator.uid != "totals" else ()
        return of_older(operator, subtask, before, tasks=tasks)

    chk = regional(job, but_one)
    (found,) = [one for one in findings(capsys, chk, "--topology", plan_of(job)) if one[0] == "region-mixed"]
    assert "its region is of several checkpoints" in found[2]
    assert f"totals/0 of checkpoint {NEW}" in found[2]
    code, out, _ = run_command("validate", capsys, f"{job}@{NEW}", "--topology", plan_of(job))
    assert code == 3
    assert "region-mixed" in out


def test_an_exchange_of_all_with_all_makes_one_region(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chk = regional(job)
    mixed = [one for one in findings(capsys, chk, "--topology", plan_of(job, "HASH")) if one[0] == "region-mixed"]
    assert len(mixed) == 1
    assert f"and {6 - 4} more of checkpoint {NEW}" in mixed[0][2]


def test_state_that_is_not_of_the_checkpoint_that_it_names_is_found(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def named_alone(operator: OperatorState, subtask: Subtask, before: OperatorState) -> Subtask:
        return replace(subtask, ref_checkpoint=OLD) if (operator.uid, subtask.index) == ("totals", 1) else subtask

    (found,) = [one for one in findings(capsys, regional(job, named_alone)) if one[0] == "region-mixed"]
    assert found[1:] == ("totals/1", f"its state is said to be of checkpoint {OLD}, whose keyed state is another")


def test_a_checkpoint_that_is_not_older_cannot_be_named(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def later(operator: OperatorState, subtask: Subtask, before: OperatorState) -> Subtask:
        return replace(subtask, ref_checkpoint=NEW) if (operator.uid, subtask.index) == ("totals", 1) else subtask

    (found,) = [one for one in findings(capsys, regional(job, later)) if one[0] == "region-mixed"]
    assert found[2] == f"its state is said to be of checkpoint {NEW}, not older than this, {NEW}"


def test_a_split_that_two_tasks_hold_is_found(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Task 0 got its splits back from task 1, which was then put back to where it had them."""

    def both(operator: OperatorState, subtask: Subtask, before: OperatorState) -> Subtask:
        if operator.uid != "src-orders" or subtask.index != 0:
            return subtask
        (theirs,) = [one for one in before.subtasks if one.index == 1]
        return replace(subtask, managed_operator=theirs.managed_operator)

    found = [one for one in findings(capsys, regional(job, both)) if one[0] == "split-owned-twice"]
    assert {task for _, task, _ in found} == {"src-orders/1"}
    assert all("is src-orders/0's, too: its records would be read twice" in message for _, _, message in found)


# -- what every task is to have alike ---------------------------------------------------------------------


def disagreeing(job: Path, *states: tuple[str, ...], mode: str) -> Path:
    """A checkpoint of an operator with the state of each of its tasks; that of the last is of the older checkpoint."""
    store = FlinkStore(str(job))
    after = store.metadata(NEW)
    subtasks = tuple(
        Subtask(i, managed_operator=stored, ref_checkpoint=OLD if i == len(states) - 1 else None)
        for i, stored in enumerate(operator_state("epoch", mode, *own) for own in states)
    )
    operator = OperatorState("0" * 32, "agreed", "agreed", len(states), 128, None, subtasks)
    (job / f"chk-{NEW}" / "_metadata").write_bytes(encode(replace(after, version=7, operators=(operator,))))
    shutil.rmtree(job / f"chk-{OLD}")
    return job / f"chk-{NEW}"


@pytest.mark.parametrize(
    ("mode", "states", "found"),
    [
        ("BROADCAST", (("a", "b"), ("b", "a"), ("a", "b")), False),
        ("BROADCAST", (("a", "b"), ("a", "b"), ("a",)), True),
        ("UNION", (("101",), ("101",), ("100",)), True),
        ("UNION", (("101",), ("101",), ("101",)), False),
        ("UNION", (("7",), ("8",), ("9",)), False),
    ],
    ids=["alike, in another order", "broadcast", "an epoch that all have", "the same one", "each task has its own"],
)
def test_state_that_every_task_is_to_have_alike_is_compared(
    job: Path, capsys: pytest.CaptureFixture[str], mode: str, states: tuple[tuple[str, ...], ...], found: bool
) -> None:
    disagrees = [one for one in findings(capsys, disagreeing(job, *states, mode=mode)) if one[0] == "state-mismatch"]
    assert [task for _, task, _ in disagrees] == ["agreed/2"] * found
    code, _, _ = run_command("validate", capsys, f"{job}@{NEW}")
    assert code == 0, "Flink restores it: the verdict stays"


# -- copies -----------------------------------------------------------------------------------------------


def copied(capsys: pytest.CaptureFixture[str], job: Path, how: str) -> Path:
    copy = job.parent / "copy"
    if how == "restore":
        plan = job.parent / "plan.json"
        assert run_command("plan-recovery", capsys, f"{job}@{NEW}", "--out", plan)[0] == 0
        code, out, err = run_command("restore", capsys, plan, "--to", copy)
    else:
        changes = job.parent / "changes.yaml"
        changes.write_text("version: 1\nremoved: [totals]\n")  # it has values whose ends only the job knows
        words = ("--layout", "canonical", "--changes", changes, "--to", copy)
        code, out, err = run_command("rewrite", capsys, f"{job}@{NEW}", *words)
    assert code == 0, err
    assert "names no other" in " ".join(out.split())
    return copy


@pytest.mark.parametrize("how", ["restore", "rewrite"])
def test_a_copy_names_no_other_checkpoint_and_holds_what_was_taken_over(
    job: Path, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    chk = regional(job)
    before = content(FlinkStore(str(chk)))
    copy = copied(capsys, job, how)
    shutil.rmtree(job)
    metadata = parse((copy / "_metadata").read_bytes())
    assert metadata.version == 7
    assert not metadata.regional
    after = content(FlinkStore(str(copy)))
    assert len(after) > 4
    assert after == {state: rows for state, rows in before.items() if how == "restore" or state in after}


def test_files_of_an_older_checkpoint_under_relative_handles_are_found_where_flink_does_not_look(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Written as they stand in the older one, they would mean files beside the newer one."""
    plain = Path(shutil.copytree(HASHMAP, job.parent / HASHMAP.name))
    metadata = FlinkStore(str(plain)).metadata(2)
    operators = tuple(
        replace(one, subtasks=tuple(replace(s, ref_checkpoint=2) if s.index == 0 else s for s in one.subtasks))
        for one in metadata.operators
    )
    later = Path(shutil.copytree(plain / "chk-2", plain / "chk-3"))
    for path in later.iterdir():
        path.unlink()
    (later / "_metadata").write_bytes(encode(replace(metadata, version=7, checkpoint_id=3, operators=operators)))
    _, out, _ = run_command("validate", capsys, f"{plain}@3", "-o", "json")
    (epoch,) = checked(out)["epochs"]
    codes = {one["code"] for one in epoch["findings"]}
    assert codes == {"missing-file"}
    assert all("is not where Flink looks" in one["message"] for one in epoch["findings"])


# -- what is not known yet is kept ------------------------------------------------------------------------


def test_properties_with_fields_that_are_not_known_are_read_and_kept_byte_for_byte(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = properties.encode(properties.CHECKPOINT)
    # one more boolean field, before the others: in the description of the class, and in the object
    described = known.replace(b"\x02\x00\x08Z", b"\x02\x00\x09Z" + utf("anew") + b"Z", 1)
    values = described.index(b"SnapshotType;xp") + len(b"SnapshotType;xp")
    tail = described[:values] + b"\x01" + described[values:]
    regional(job)
    path = job / f"chk-{NEW}" / "_metadata"
    metadata = replace(parse(path.read_bytes()), tail=tail)
    path.write_bytes(encode(metadata))
    again = parse(path.read_bytes())
    assert again.problem is None
    assert again.properties == properties.CHECKPOINT
    assert encode(again) == path.read_bytes()
    copy = copied(capsys, job, "restore")
    assert parse((copy / "_metadata").read_bytes()).tail == tail


# -- what regions are -------------------------------------------------------------------------------------


def two_vertices(senders: int, receivers: int, shipped: str, kept: bool = False) -> JobPlan:
    vertices = (Vertex("a", None, ("a",), senders, ()), Vertex("b", None, ("b",), receivers, (("a", shipped, kept),)))
    return JobPlan("job", vertices)


@pytest.mark.parametrize(
    ("senders", "receivers", "shipped", "expected"),
    [
        (2, 2, "FORWARD", ["a0 b0", "a1 b1"]),
        (2, 4, "RESCALE", ["a0 b0 b1", "a1 b2 b3"]),
        (4, 2, "RESCALE", ["a0 a1 b0", "a2 a3 b1"]),
        (2, 3, "RESCALE", ["a0 b0 b1", "a1 b2"]),
        (3, 2, "RESCALE", ["a0 b0", "a1 a2 b1"]),
        (2, 2, "HASH", ["a0 a1 b0 b1"]),
        (1, 3, "REBALANCE", ["a0 b0 b1 b2"]),
    ],
)
def test_tasks_that_an_exchange_joins_are_one_region(
    senders: int, receivers: int, shipped: str, expected: list[str]
) -> None:
    found = regions(two_vertices(senders, receivers, shipped))
    assert sorted(" ".join(sorted(f"{vertex}{task}" for vertex, task in region)) for region in found) == expected


def test_an_exchange_that_is_kept_on_disk_joins_nothing() -> None:
    assert len(regions(two_vertices(2, 2, "HASH", kept=True))) == 4


def test_metadata_of_version_7_goes_into_bytes_and_back(job: Path) -> None:
    found: Metadata = parse((regional(job) / "_metadata").read_bytes())
    assert found.regional
    assert parse(encode(found)) == found
