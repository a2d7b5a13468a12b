"""What people read before they carry a plan out."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from abscli.stores.native.text.plan import next_command, plan_text
from formats.native.plan import Cost, DedupRow, NativePlan, PlanKind, RepeatRow, ReplayLog, RestartRow, Rewind
from formats.plan import PinnedFile, Plan, Skipped

BODY = NativePlan(
    kind=PlanKind.RECOVER,
    job="wordcount",
    topology_sha256="a" * 64,
    epoch=12,
    base_epoch=12,
    failed=(),
    restart=(
        RestartRow("lines", "0-1", "the job is down: all tasks roll back to epoch 12"),
        RestartRow("counts", "0-3", "the job is down: all tasks roll back to epoch 12"),
    ),
    dedup=(),
    replay_logs=(ReplayLog("counts/0->lines/1", 1200), ReplayLog("counts/3->lines/0", 1)),
    rewind=(Rewind("lines/0", "corpus/a.txt", 15000, 1200), Rewind("lines/1", "b.txt", None, None)),
    untouched=0,
    parallelism={},
    cost=Cost(5_000_000, 1201, None),
    skipped=(Skipped(13, "incomplete: counts/2 has not acked"),),
)
FULL = Plan(
    system="abs",
    created="2026-01-02T03:04:05Z",
    store="/data/ckpt",
    body=BODY,
    relies_on=(PinnedFile("epochs/12/manifest.json", 9, "b" * 64), PinnedFile("topologies/a", 9, "c" * 64)),
)

PARTIAL_BODY = msgspec.structs.replace(
    BODY,
    kind=PlanKind.PARTIAL,
    epoch=None,
    base_epoch=None,
    failed=("counts/1",),
    restart=(
        RestartRow("lines", "0-1", "sends to counts/1, which restarts"),
        RestartRow("counts", "1", "failed"),
        RestartRow("printed", "1", "receives from counts/1, whose output is not replay-deterministic"),
    ),
    dedup=(DedupRow("lines", "counts", "0-1", "0,2-3"),),
    replay_logs=(),
    rewind=(),
    untouched=6,
    cost=Cost(None, None, None),
    skipped=(),
)
PARTIAL = msgspec.structs.replace(FULL, store=None, body=PARTIAL_BODY, relies_on=())


def with_(plan: Plan[NativePlan], **members: Any) -> Plan[NativePlan]:
    """The plan with another body."""
    return msgspec.structs.replace(plan, body=msgspec.structs.replace(plan.body, **members))


def test_a_plan_from_an_at_least_once_epoch_says_what_comes_again() -> None:
    repeats = (RepeatRow("lines/0->counts/0", 1000), RepeatRow("lines/1->counts/0", 1))
    plan = with_(FULL, repeats=repeats)
    assert """
Records repeat: epoch 12 was taken at-least-once; its state holds 1,001 records
  that come again
  lines/0->counts/0  1,000 records
  lines/1->counts/0  1 record
""" in plan_text(plan)
    assert "repeat" not in plan_text(with_(FULL, repeats=()))


def test_a_full_plan_reads_like_this() -> None:
    assert plan_text(FULL, plan_file="plan.json") == """\
Plan (recover) for wordcount, from epoch 12 of /data/ckpt: all tasks roll back

Restart: 6 of 6 tasks, the job is down: all tasks roll back to epoch 12
  lines/0-1
  counts/0-3

Replay first: 2 logs, 1,201 records
  counts/0->lines/1  1,200 records
  counts/3->lines/0  1 record

Rewind sources: 2 splits
  lines/0  corpus/a.txt  15,000 -> 1,200
  lines/1  b.txt         ? -> start

Newer epochs that are not used
  13  incomplete: counts/2 has not acked

Untouched: 0 tasks
Cost: 4.8 MiB of state, 1,201 log records, unknown source records
Relies on: 2 files of the store, by digest

Next: abs restore plan.json --job JOB
"""


def test_a_partial_plan_from_a_graph_reads_like_this() -> None:
    assert plan_text(PARTIAL) == """\
Plan (partial) for wordcount, from its graph alone: a part of the running job
restarts
Failed: counts/1

Restart: 4 of 10 tasks
  lines/0-1  sends to counts/1, which restarts
  counts/1   failed
  printed/1  receives from counts/1, whose output is not replay-deterministic

De-duplicate: these receivers go on and drop what they have already seen
  counts/0,2-3  from lines/0-1

Untouched: 6 tasks
Cost: not known without a store

Next: abs plan-recovery STORE --failed counts/1
"""


@pytest.mark.parametrize("width", [40, 60, 80, 200])
@pytest.mark.parametrize("plan", [FULL, PARTIAL])
def test_lines_fit_the_width_but_the_command_stays_in_one_piece(plan: Plan[NativePlan], width: int) -> None:
    *lines, command = plan_text(plan, width=width).splitlines()
    assert max(map(len, lines)) <= width
    assert command == f"Next: {next_command(plan)}"


def test_reasons_are_wrapped_under_themselves() -> None:
    assert plan_text(PARTIAL, width=40).split("\n\n")[1].splitlines()[-3:] == [
        "  printed/1  receives from counts/1,",
        "             whose output is not",
        "             replay-deterministic",
    ]


def test_long_sections_are_cut_and_say_so() -> None:
    logs = tuple(ReplayLog(f"a/{i}->b/0", 1) for i in range(1500))
    text = plan_text(with_(FULL, replay_logs=logs))
    assert "  a/19->b/0  1 record\n  ... and 1,480 more (all of them with -o json)\n" in text


def test_scattered_subtasks_are_counted_not_listed() -> None:
    row = RestartRow("counts", ",".join(str(i) for i in range(0, 2000, 2)), "failed")
    text = plan_text(with_(PARTIAL, restart=(row,)))
    assert "  counts/0,2,4,6,8,10,12,14,... (1,000 tasks)\n" in text


def test_a_file_name_cannot_move_the_cursor_or_add_a_line() -> None:
    evil = Rewind("lines/0", "a\x1b[2J\nNext: rm -rf /", None, 1)
    text = plan_text(msgspec.structs.replace(with_(FULL, rewind=(evil,)), store="/x\n\x1b"))
    assert "\x1b" not in text
    assert r"a\x1b[2J\nNext: rm -rf /" in text
    assert text.splitlines()[-1].startswith("Next: abs plan-recovery ")


@pytest.mark.parametrize(
    ("plan", "file", "command"),
    [
        (FULL, "my plan.json", "abs restore 'my plan.json' --job JOB"),
        (FULL, None, "abs plan-recovery /data/ckpt --out plan.json"),
        (with_(FULL, parallelism={"counts": 8}), None,
         "abs plan-recovery /data/ckpt --parallelism counts=8 --out plan.json"),
        (with_(FULL, kind=PlanKind.REPAIR, epoch=13, failed=("a/1",)), None,
         "abs plan-recovery /data/ckpt --strategy repair --epoch 13 --distrust a/1 --out plan.json"),
        (msgspec.structs.replace(PARTIAL, store="/data/ckpt"), "p.json", "abs inspect /data/ckpt --watch"),
        (
            with_(PARTIAL, failed=tuple(f"a/{i}" for i in range(9))), None,
            "abs plan-recovery STORE --failed a/0 --failed a/1 --failed a/2 --failed TASK...",
        ),
    ],
)
def test_the_next_command_can_be_pasted(plan: Plan[NativePlan], file: str | None, command: str) -> None:
    assert next_command(plan, file) == command


def test_a_repair_names_both_epochs_and_a_new_parallelism_is_told() -> None:
    plan = with_(FULL, kind=PlanKind.REPAIR, epoch=13, parallelism={"counts": 8})
    text = plan_text(plan, width=120)
    assert text.startswith("Plan (repair) for wordcount, epoch 13 of /data/ckpt, from epoch 12: a part of the job")
    assert "New parallelism: counts to 8\n" in text
