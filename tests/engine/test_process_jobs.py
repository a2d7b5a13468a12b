"""Whole jobs with a keyed `process`: every alarm once, through lost workers, stops and other numbers of tasks."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from abscli.engine.columns import column_faults
from abscli.engine.coordinator import Progress, Service
from abscli.engine.errors import JobFailed, UsageError
from abscli.engine.generations.rescaling import Rescale, publish
from abscli.engine.job import run_job
from abscli.engine.losses.decisions import Scope
from abscli.engine.runnable import check_runnable
from abscli.planner.rescale import with_parallelism
from formats.errors import OtherJob
from formats.job.file import parse_topology_bytes
from formats.job.model import DeadLetter, Edge, Keeping, Kind, Topology
from formats.storage import LocalStorage
from formats.user_file.mistakes import BadFile
from tests.engine.recovering.alone import check_alone, local
from tests.engine.recovering.test_live import on_spark, survive
from tests.support.commands import result_of, run_command
from tests.support.jobs import silent
from tests.support.jobs.inline import STORE, run, store
from tests.support.jobs.kills import after, fan, in_event_time, write_rows
from tests.support.jobs.small import REBALANCE, inline, operator, output_rows

SILENT = timedelta(seconds=60)
TRACK = silent.track(60) + """
@per_key({"key": "string", "n": "int64", "silent_since": "timestamp"})
def track_even(key, row, state, timer):
    if row is None and state["n"] % 2:
        raise ValueError("an odd number")
    return track.__wrapped__(key, row, state, timer)
"""


def alarms(folder: Path, *, files: int = 120) -> Topology:
    """The job that looks for keys that are silent, and its input."""
    write_rows(folder, files=files)
    (folder / "silent.py").write_text(TRACK)
    topology = in_event_time(fan(), folder)
    rows, same, _, out = topology.operators
    track = operator("track", Kind.PROCESS, 2, key=("key",), function="silent:track", keeping=silent.KEEPING)
    edges = (topology.edges[0], Edge("same", "track", topology.edges[1].partition, ("key",)),
             Edge("track", "out", REBALANCE))  # fmt: skip
    return Topology("alarms", (rows, same, track, msgspec.structs.replace(out, parallelism=1)), edges)


def expected(folder: Path, *, even: bool = False) -> tuple[Counter[str], Counter[str]]:
    """By a dict, over all rows in the order of time: alarms, and the keys of timers that fail. even: those do that
    come after an odd number of rows, and the key is kept."""
    kept: dict[str, tuple[int, datetime]] = {}
    silent: set[str] = set()
    shown: Counter[str] = Counter()
    failed: Counter[str] = Counter()

    def fire(key: str) -> None:
        n, last = kept[key]
        if even and n % 2:
            silent.add(key)
            failed[key] += 1
        else:
            shown[f"{key} {n} {last.isoformat()}"] += 1
            del kept[key]

    for path in sorted((folder / "in").iterdir()):
        for row in map(json.loads, path.read_text().splitlines()):
            key, at = row["key"], datetime.fromisoformat(row["at"])
            if key in kept and key not in silent and kept[key][1] + SILENT <= at:
                fire(key)
            silent.discard(key)
            kept[key] = (kept[key][0] + 1 if key in kept else 1, at)
    for key in [key for key in kept if key not in silent]:
        fire(key)
    return shown, failed


def shown(folder: Path) -> Counter[str]:
    return Counter(
        f"{row['key']} {row['n']} {datetime.fromisoformat(str(row['silent_since'])).isoformat()}"
        for row in output_rows(folder)
    )


def until_timers_wait(folder: Path, topology: Topology) -> int:
    """A run that is stopped while keys have timers."""
    services: list[Service] = []

    def progress(now: Progress) -> None:
        if now.epochs >= 3 and services:
            services.pop().request_stop()

    options = inline(folder, interval=0.02, keep=None, pace=40)
    outcome = run_job(topology, str(folder / STORE), options, progress, services.append)
    assert not outcome.finished
    assert store(folder).manifest(outcome.epoch).state_rows
    return outcome.epoch


@pytest.mark.minutes
@pytest.mark.parametrize("lost", [0, 1])
def test_a_worker_is_lost_while_timers_wait_and_every_alarm_comes_once(tmp_path: Path, lost: int) -> None:
    topology = alarms(tmp_path)
    _, (recovery,) = survive(topology, tmp_path, inline(tmp_path, **local), [(after(2, open_epoch=True), [lost])])
    check_alone(recovery, topology, lost)
    assert shown(tmp_path) == expected(tmp_path)[0]
    assert store(tmp_path).manifest(store(tmp_path).latest() or 0).state_rows == 0, "all are forgotten"


@pytest.mark.minutes
@pytest.mark.sample(1)
@pytest.mark.parametrize("lost", [0, 1])
def test_a_timer_that_fails_is_a_dead_letter_once_though_a_worker_is_lost(tmp_path: Path, lost: int) -> None:
    topology = alarms(tmp_path)
    rows, same, track, out = topology.operators
    track = msgspec.structs.replace(track, function="silent:track_even", on_error=DeadLetter("dead"))
    topology = msgspec.structs.replace(topology, operators=(rows, same, track, out))
    outcome, (recovery,) = survive(
        topology, tmp_path, inline(tmp_path, **local), [(after(2, open_epoch=True), [lost])]
    )  # fmt: skip
    check_alone(recovery, topology, lost)
    lines = [line for part in (tmp_path / "dead").glob("part-*.jsonl") for line in part.read_text().splitlines()]
    letters = Counter(json.loads(json.loads(line)["record"])["key"] for line in lines)
    alarms_wanted, failed = expected(tmp_path, even=True)
    assert shown(tmp_path) == alarms_wanted
    assert letters == failed
    assert outcome.skipped == {"track": failed.total()}


@pytest.mark.minutes
def test_a_python_worker_of_spark_with_timers_gets_sigkill(tmp_path: Path, spark: Any) -> None:
    topology = alarms(tmp_path)
    survive(topology, tmp_path, on_spark(tmp_path, spark, recovery=Scope.LOCAL), [(after(2), [1])])
    assert shown(tmp_path) == expected(tmp_path)[0]


def test_a_stopped_job_goes_on_with_other_tasks_and_all_that_it_keeps_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "open").touch()
    topology = alarms(tmp_path, files=60)
    stopped = until_timers_wait(tmp_path, topology)
    before = sorted(str(row) for batch in store(tmp_path).state(stopped, "track") for row in batch.to_pylist())
    (wide,) = [with_parallelism(topology, {"track": 3})]
    epoch = publish(LocalStorage(tmp_path / STORE), Rescale(stopped, wide, str(tmp_path)))
    after = sorted(str(row) for batch in store(tmp_path).state(epoch, "track") for row in batch.to_pylist())
    assert after == before
    where = tmp_path / STORE
    run(wide, tmp_path, from_epoch=epoch, keep=None, interval=0.05)
    assert shown(tmp_path) == expected(tmp_path)[0]
    assert run_command("validate", capsys, where)[0] == 0
    (kept,) = result_of("state", capsys, f"{where}@{stopped}", "track", "--limit", "1")["rows"]
    assert {"key", "n", "last_at"} <= kept.keys()
    history = result_of("state", capsys, where, "track", "--key", kept["key"], "--history")["rows"]
    assert len(history) > 1
    assert "track" in str(result_of("diff", capsys, f"{where}@{stopped}", f"{where}@{epoch}"))


def test_state_of_other_columns_is_not_taken_over(tmp_path: Path) -> None:
    (tmp_path / "open").touch()
    topology = alarms(tmp_path, files=20)
    stopped = until_timers_wait(tmp_path, topology)
    other = Keeping((("n", "double"), ("last_at", "timestamp")), "at")
    operators = tuple(
        msgspec.structs.replace(op, keeping=other) if op.id == "track" else op for op in topology.operators
    )
    with pytest.raises(OtherJob, match="state was n: int64, last_at: timestamp, is n: double, last_at: timestamp"):
        run(msgspec.structs.replace(topology, operators=operators), tmp_path, from_epoch=stopped)


def test_what_it_raises_ends_the_job_with_the_key(tmp_path: Path) -> None:
    (tmp_path / "open").touch()
    topology = alarms(tmp_path, files=20)
    (tmp_path / "silent.py").write_text(TRACK.replace("state[\"n\"] + 1", "1 / 0"))
    key = r"operator track, task track/\d, key {'key': 'k\d+'}"
    with pytest.raises(JobFailed, match=key + r": ZeroDivisionError: .*silent.py, line 9"):
        run(topology, tmp_path)


# -- what is refused before it runs ---------------------------------------------------------------------------------

JOB = """version: 1
job: j
operators:
  rows: {{source: {{type: jsonl, path: x, schema: {{user: string, at: timestamp}}{event_time}}}}}
  track: {{from: {inputs}, process: {process}{more}}}
  again: {{from: track, filter: m:f}}
  out: {{from: again, sink: {{type: jsonl, path: out}}}}
"""
PROCESS = "{key: [user], function: 'm:f', state: {n: int64}, time: at}"


def job(
    process: str = PROCESS, inputs: str = "rows", event_time: str = ", event_time: {column: at}", more: str = ""
) -> Topology:  # fmt: skip
    text = JOB.format(process=process, inputs=inputs, event_time=event_time, more=more)
    return parse_topology_bytes(text.encode(), "job.yaml")


def test_what_is_said_of_it_is_read() -> None:
    topology = job()
    assert topology.operator("track").kept == Keeping((("n", "int64"),), "at")
    check_runnable(topology)
    check_runnable(job("{key: [user], function: 'm:f'}", event_time=""))
    check_runnable(job("{key: [user], function: 'm:f'}", more=", ttl: {time: at, after: 1h}"))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"event_time": ""}, "operator track waits for event time (process), and source rows has no event time"),
        ({"event_time": "", "process": "{key: [user], function: 'm:f'}", "more": ", ttl: {time: at, after: 1h}"},
         "operator track waits for event time (ttl), and source rows has no event time"),
        ({"inputs": "[rows, again]"}, "operator track waits for event time (process), and rows of the loop"),
        ({"process": "m:f"}, "operator track is a process without a key"),
        ({"process": "{key: [user], function: identity}"}, "operator track: identity is a function of rows"),
        ({"process": "{key: [user], function: 'm:f', state: {n: number}}"}, "unknown type 'number' of column 'n'"),
    ],
)  # fmt: skip
def test_what_cannot_run_is_refused(how: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        check_runnable(job(**how))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"process": "{function: 'm:f', time: at}"}, "process: time is of keys, and it has none"),
        ({"process": "{key: [user], function: 'm:f', state: {user: string}}"}, "state: user is a key column, too"),
        ({"process": "{key: [user], function: 'm:f', state: {__due: int64}}"}, "begins with __"),
        ({"process": "{key: [user], function: 'm:f', state: {}}"}, "state names no column"),
        ({"process": "{key: [user], state: {n: int64}}"}, "process has no function"),
        ({"more": ", ttl: {time: at, after: 1h}"}, "a key has a timer or a time to live, and this says both"),
        ({"process": "m:f", "more": ", ttl: {time: at, after: 1h}"}, "not for a process without a key"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_is_a_mistake_of_the_file(how: dict[str, str], message: str) -> None:
    with pytest.raises(BadFile, match=message):
        job(**how)


def test_a_column_with_event_time_that_is_not_there_is_said() -> None:
    (fault,) = column_faults(job(), {"rows": pa.schema([("user", pa.string())])})
    assert fault.message == "operator track: no column 'at' in what rows sends"
    assert fault.keys == ("process", "time")
