"""Sixty jobs that lose workers, go on from epochs with logs, and change: what each did agrees with the machines,
and all that can happen to one has happened in some. Any number of them: `tests.bench.engine.bench_kills --trace`."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from abscli.engine.job import run_job
from abscli.engine.losses.decisions import Scope
from abscli.engine.telemetry.news import News, Recovering
from abscli.sim.situations import Situation
from abscli.sim.traces import Campaign, check_traces
from formats.job.changes import Changes, Move
from formats.job.model import Edge, Kind, Topology
from formats.native.store import NativeStore
from formats.storage import LocalStorage
from tests.support.commands import run_command
from tests.support.jobs.kills import Due, Kills, after, fan, write_rows
from tests.support.jobs.small import FORWARD, HASH, countdown, inline, operator, reach, write_countdown, write_graph
from tests.support.schemas import checked

pytestmark = [pytest.mark.soak, pytest.mark.minutes]

LOSING, ALONE, RESUMED, ON_SPARK = 32, 18, 8, 2
"""Jobs of each kind."""


class Case(NamedTuple):
    """One job, and what writes its input."""

    topology: Topology
    write: Callable[[Path], object]


CASES = (
    Case(fan(), lambda folder: write_rows(folder, files=60)),
    Case(reach(), lambda folder: write_graph(folder, nodes=12, turning=True)),
    Case(countdown(), lambda folder: write_countdown(folder, files=4, rows=10, rounds=4, turning=True)),
)
POLICIES = ("aligned", "unaligned", "at-least-once")


def losing(folder: Path, seed: int, **more: object) -> str:
    """The trace of a job that loses one worker, two one after the other, or a second while it recovers."""
    rng = random.Random(seed)
    case = CASES[seed % len(CASES)]
    case.write(folder)
    again = seed % 4 == 1
    first = 0 if again else rng.randrange(2)
    moments: list[tuple[Due, list[int]]] = [(after(1 + rng.randrange(2), open_epoch=True), [first])]
    if seed % 4 == 2:
        moments.append((after(4), [rng.randrange(2)]))
    kills = Kills(moments, folder, enough=1, still=True)

    def news(news: News) -> None:
        """The other worker goes when the first is known to be lost: it cannot say any more that its tasks stopped."""
        if again and isinstance(news, Recovering) and not kills.begun:
            kills.kill(1)
        kills.news(news)

    trace = str(folder / "trace.jsonl")
    options = inline(folder, **{
        "trace": trace, "interval": 0.01, "policy": POLICIES[seed // 3 % 3], "max_concurrent": 1 + seed % 3,
        "restarts": 20, **more,
    })  # fmt: skip
    run_job(case.topology, str(folder / "store"), options, kills.progress, kills.meet, on_news=news)
    return trace


LATE = """
import threading
import time
from pathlib import Path
OPEN = Path({folder!r}) / "open"

def pass_on(batch):
    if threading.current_thread().name == "abs-worker-1" and not OPEN.exists():
        time.sleep(0.001 * batch.num_rows)
    return batch
"""


def late(name: str = "late") -> Topology:
    """Two sources before two tasks, of which one is slow: much is under way to it, and while it works on what the one
    had sent, what the other had sent waits."""
    return Topology(
        "late",
        (
            operator("rows", Kind.SOURCE, 1, connector={"type": "jsonl", "path": "in/*.jsonl"}),
            operator("more", Kind.SOURCE, 1, connector={"type": "jsonl", "path": "in/*.jsonl"}),
            operator(name, Kind.MAP, 2, function="late:pass_on"),
            operator("out", Kind.SINK, 2, connector={"type": "jsonl", "path": "out"}),
        ),
        (Edge("rows", name, HASH, ("key",)), Edge("more", name, HASH, ("key",)), Edge(name, "out", FORWARD)),
    )


def resumed(folder: Path, seed: int) -> str:
    """The trace of a job whose first epoch is taken while much is under way, which goes back to that, under another id
    of its operator every second time, and loses the sender of a log that has not been read."""
    write_rows(folder, files=40)
    (folder / "late.py").write_text(LATE.format(folder=str(folder)))
    trace, store = str(folder / "trace.jsonl"), str(folder / "store")
    options = {"trace": trace, "interval": None, "policy": "unaligned"}  # the end of the input takes an epoch
    run_job(late(), store, inline(folder, **options))
    epoch = NativeStore(LocalStorage(folder / "store")).epoch_numbers()[0]
    kills = Kills([(lambda progress: True, [0])], folder)
    changes = Changes((Move("late", "later"),)) if seed % 2 else Changes()
    again = inline(folder, **options, from_epoch=epoch, changes=changes)
    topology = late("later" if seed % 2 else "late")
    run_job(topology, store, again, kills.progress, kills.meet, on_news=kills.news)
    return trace


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> list[str]:
    """Sixty traces."""

    def folder() -> Path:
        return tmp_path_factory.mktemp("job")

    traces = [losing(folder(), seed) for seed in range(LOSING)]
    traces += [losing(folder(), LOSING + seed, recovery=Scope.LOCAL) for seed in range(ALONE)]
    traces += [resumed(folder(), seed) for seed in range(RESUMED)]
    options = {"engine": "spark", "context": spark, "interval": 0.1}
    scopes = (Scope.SUBGRAPH, Scope.LOCAL)
    traces += [losing(folder(), seed, **options, recovery=scopes[seed % 2]) for seed in range(ON_SPARK)]
    assert len(traces) == 60
    return traces


@pytest.fixture(scope="module")
def campaign(paths: list[str]) -> Campaign:
    return check_traces(paths)


def test_every_job_did_what_the_machines_say(campaign: Campaign) -> None:
    assert campaign.first is None
    assert not campaign.cut
    assert campaign.attempts == LOSING + ALONE + 2 * RESUMED + ON_SPARK
    assert campaign.repeated >= 100
    assert campaign.situations[Situation.GIVEN_UP] >= 10


def test_all_that_can_happen_has_happened(campaign: Campaign) -> None:
    assert campaign.absent == []


def test_a_campaign_in_which_something_never_happened_fails(
    paths: list[str], campaign: Campaign, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the command line: without the jobs that go on from logs."""
    every = [word for path in paths for word in ("--check", path)]
    code, out, _ = run_command("simulate", capsys, *every, "--strict", "-o", "json")
    assert code == 0
    assert checked(out)["traces"] == 60
    some = [word for path in paths[: LOSING + ALONE] for word in ("--check", path)]
    code, out, _ = run_command("simulate", capsys, *some, "--strict")
    assert code == 3
    assert f"Never happened: {Situation.UNREAD}" in " ".join(out.split())
    assert run_command("simulate", capsys, *some)[0] == 0


@pytest.mark.parametrize("fault", ["changed", "dropped", "swapped"])
def test_a_fault_in_a_real_trace_is_named_by_its_line(
    paths: list[str], fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(fault)
    for path in rng.sample(paths, 10):
        lines = Path(path).read_bytes().splitlines(keepends=True)
        parsed = [json.loads(line) for line in lines]
        answered = [i for i, line in enumerate(parsed) if line.get("actions")]
        i = rng.choice(answered[:-1])
        following = [j for j in range(i + 1, len(lines)) if parsed[j].get("instance") == parsed[i]["instance"]]
        if not following or "schema" in parsed[following[0]]:
            continue
        j, wrong = following[0], i + 1
        if fault == "changed":
            parsed[i]["actions"][0][1] = dict.fromkeys(parsed[i]["actions"][0][1], 77) | {"more": 1}
            lines[i] = json.dumps(parsed[i]).encode() + b"\n"
        elif fault == "dropped":
            del lines[i]
            wrong = j  # the line after it, which has moved up by one
        else:
            lines[i], lines[j] = lines[j], lines[i]
        bad = tmp_path / "bad.jsonl"
        bad.write_bytes(b"".join(lines))
        code, out, _ = run_command("simulate", capsys, "--check", bad, "-o", "json")
        assert code == 3
        assert checked(out)["disagreement"]["line"] <= wrong
