"""What real jobs did is held against the machines: `abs run --trace`, `abs simulate --check`."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from abscli.engine.job import run_job
from abscli.engine.losses.decisions import Scope
from abscli.engine.telemetry.news import News, Recovered
from abscli.sim.situations import Situation
from abscli.sim.traces import check_trace, check_traces
from formats.errors import FormatError
from formats.job.model import Topology
from tests.support.jobs.kills import Kills, after, fan, write_rows
from tests.support.jobs.small import countdown, inline, reach, write_countdown, write_graph
from tests.support.sim.traces import encoded, renumbered

pytestmark = pytest.mark.integration

TRACES = Path(__file__).parents[2] / "data" / "traces"

CALLS = """
import itertools, time
import pyarrow as pa
from pathlib import Path
OPEN = Path({folder!r}) / "open"
calls = itertools.count()

def pass_on(batch):
    if not OPEN.exists():
        time.sleep(0.01)
    return batch.set_column(1, "id", pa.array([next(calls)] * batch.num_rows))
"""


def traced(topology: Topology, folder: Path, kills: Kills | None = None, **more: object) -> str:
    trace = str(folder / "trace.jsonl")
    options = inline(folder, **{"trace": trace, "interval": 0.02, **more})
    if kills is None:
        run_job(topology, str(folder / "store"), options)
    else:
        run_job(topology, str(folder / "store"), options, kills.progress, kills.meet, on_news=kills.news)
    return trace


@pytest.mark.parametrize("policy", ["aligned", "unaligned", "at-least-once"])
def test_a_job_did_what_the_machines_say(tmp_path: Path, policy: str) -> None:
    write_countdown(tmp_path, files=6, rows=30, rounds=6)
    campaign = check_traces([traced(countdown(), tmp_path, policy=policy, max_concurrent=3)])
    assert campaign.first is None
    assert not campaign.cut
    assert campaign.machines == 11
    assert campaign.situations[Situation.IDLE] == 1


@pytest.mark.parametrize("policy", ["aligned", "unaligned"])
def test_a_worker_is_lost_and_the_machines_agree(tmp_path: Path, policy: str) -> None:
    write_graph(tmp_path, turning=True)
    kills = Kills([(after(2, open_epoch=True), [1]), (after(4), [0])], tmp_path)
    campaign = check_traces([traced(reach(), tmp_path, kills, policy=policy)])
    assert campaign.first is None
    assert len(kills.recoveries) == 2


def test_receivers_that_go_on_agree(tmp_path: Path) -> None:
    write_rows(tmp_path)
    kills = Kills([(after(2), [0])], tmp_path)
    campaign = check_traces([traced(fan(), tmp_path, kills)])
    assert campaign.first is None
    assert campaign.situations[Situation.KNOWN]
    assert campaign.situations[Situation.GATE]


def test_a_trace_is_not_appended_to_a_file_that_is_none(tmp_path: Path) -> None:
    write_countdown(tmp_path, files=1, rows=3, rounds=2)
    (tmp_path / "trace.jsonl").write_text("a letter, whose last line has no end")
    with pytest.raises(FormatError, match="is not a trace"):
        traced(countdown(), tmp_path)
    assert (tmp_path / "trace.jsonl").read_text() == "a letter, whose last line has no end"
    assert not (tmp_path / "store").exists()


def repeating(folder: Path, **more: object) -> str:
    """The trace of a job with a loop that loses each of its two workers, one after the other; they restart alone."""
    write_countdown(folder, files=10, turning=True)
    kills = Kills([(after(2, open_epoch=True), [1]), (after(4, open_epoch=True), [0])], folder)
    trace = traced(countdown(), folder, kills, recovery=Scope.LOCAL, **more)
    assert len(kills.recoveries) == 2
    return trace


@pytest.mark.parametrize("concurrent", [1, 3])
@pytest.mark.parametrize("policy", ["aligned", "unaligned", "at-least-once"])
def test_tasks_that_take_their_steps_again_agree(tmp_path: Path, policy: str, concurrent: int) -> None:
    campaign = check_traces([repeating(tmp_path, policy=policy, max_concurrent=concurrent)])
    assert campaign.first is None
    assert campaign.repeated or policy == "at-least-once"


def test_a_kept_barrier_that_a_copy_had_passed_agrees() -> None:
    """At least once: barrier 3 came before a copy for epoch 2 that contains a record sent behind it; the task starts
    from that copy, and barrier 3 comes again among what its sender has kept."""
    with gzip.open(TRACES / "barrier-heard-before-the-copy.jsonl.gz") as lines:
        checked = check_trace(lines)
    assert checked.first is None
    assert checked.repeated


def test_a_stop_that_is_taken_again_agrees(tmp_path: Path) -> None:
    """The second worker is lost as soon as the first is there again: what it was told of that loss is a step of its."""
    write_countdown(tmp_path, files=10, turning=True)
    kills = Kills([(after(2, open_epoch=True), [0])], tmp_path, enough=2)

    def news(news: News) -> None:
        kills.news(news)
        if isinstance(news, Recovered) and len(kills.pids) == 1:
            kills.kill(1)

    trace = str(tmp_path / "trace.jsonl")
    options = inline(tmp_path, trace=trace, interval=0.02, recovery=Scope.LOCAL)
    assert run_job(countdown(), str(tmp_path / "store"), options, kills.progress, kills.meet, on_news=news).finished
    assert [recovery.again is not None for recovery in kills.recoveries] == [True, True]
    assert check_traces([trace]).first is None
    lines = lines_of(trace)
    stops = [i for i, line in enumerate(lines) if stopped_in(line) == 0]
    assert stops
    for i in stops:
        lines[i]["event"][1]["floor"] += 1000
        assert first_of(lines) == (i + 1, "heard")
        lines[i]["event"][1]["floor"] -= 1000


def test_everything_goes_back_where_a_task_does_something_else_and_the_machines_agree(tmp_path: Path) -> None:
    write_rows(tmp_path)
    (tmp_path / "slow.py").write_text(CALLS.format(folder=str(tmp_path)))
    kills = Kills([(after(2), [0])], tmp_path)
    campaign = check_traces([traced(fan(), tmp_path, kills, recovery=Scope.LOCAL, interval=0.3)])
    assert [recovery.again for recovery in kills.recoveries] == [None]
    assert campaign.first is None


@pytest.mark.parametrize("policy", ["aligned", "unaligned"])
def test_what_is_not_sent_again_is_missed(tmp_path: Path, policy: str) -> None:
    """A barrier stands elsewhere than before, or others have what the task that was lost has not sent."""
    write_rows(tmp_path)
    kills = Kills([(after(2, open_epoch=True), [0])], tmp_path)
    lines = lines_of(traced(fan(), tmp_path, kills, policy=policy, recovery=Scope.LOCAL, interval=0.1))
    again = {line["instance"] for line in lines if line.get("created", {}).get("replaying") and line["at"] == "same/0"}
    assert len(again) == 1
    own = [i for i, line in enumerate(lines) if line.get("instance") in again]
    end = next(i for i in own if stopped_in(lines[i]))
    sent = [i for i in own if i < end and is_sent_to(lines[i], "counts/1")]
    assert sent
    for i in (sent[0], sent[-1]):
        found = first_of(renumbered(lines[:i] + lines[i + 1 :]))
        assert found is not None
        assert found[0] <= end + 1
        assert found[1] in ("again", "barrier")


def lines_of(trace: str) -> list[Any]:
    return [json.loads(line) for line in Path(trace).read_bytes().splitlines()]


def stopped_in(line: Any) -> int | None:
    """The attempt of a stop that a task hears of; 0 where it is told of one again."""
    name, given = line.get("event", ["", {}])
    return int(given["attempt"]) if name == "PeersRestarted" else None


def is_sent_to(line: Any, receiver: str) -> bool:
    name, given = line.get("event", ["", {}])
    return name == "Sent" and str(given["channel"]).endswith(f"->{receiver}")


def first_of(lines: list[Any]) -> tuple[int, str] | None:
    """The first line that disagrees, and the rule."""
    first = check_trace(encoded(lines)).first
    return None if first is None else (first.number, first.rule)
