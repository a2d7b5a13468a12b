"""Joins in whole jobs: exact through stops, kills and rescales, and their state as every command shows it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from abscli import Job
from abscli.engine.coordinator import Progress, Service
from abscli.engine.errors import UsageError
from abscli.engine.generations.rescaling import Rescale, publish
from abscli.engine.job import run_job
from abscli.engine.losses.decisions import Scope
from abscli.engine.runnable import check_runnable
from abscli.engine.sources.files import line_files
from abscli.engine.telemetry.news import EpochDone, News
from formats.job.model import Edge, How, Kind, Topology
from formats.storage import LocalStorage
from tests.engine.recovering.test_live import on_spark, survive
from tests.support.commands import result_of, run_command
from tests.support.jobs.inline import STORE, store
from tests.support.jobs.joins import AFTER, expected, matching, moment, rows_of, shown, write_orders
from tests.support.jobs.kills import SLOW, after
from tests.support.jobs.small import FORWARD, HASH, inline, operator, output_rows


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_files, "CHUNK", 1024)


def run_until_rows_wait(folder: Path, topology: Topology, **more: Any) -> int:
    """A run that is stopped when rows wait in the join, and some of them have left; the epoch."""
    services: list[Service] = []

    def news(news: News) -> None:
        if not isinstance(news, EpochDone) or not services:
            return
        parts = [part for part in store(folder).parts(news.epoch) if part.operator == "matched"]
        if all(part.watermark is not None and part.rows for part in parts) and output_rows(folder):
            services.pop().request_stop()

    options = inline(folder, keep=None, interval=0.01, pace=30, **more)
    outcome = run_job(topology, str(folder / STORE), options, on_service=services.append, on_news=news)
    assert not outcome.finished
    return outcome.epoch


@pytest.mark.sample(2)
@pytest.mark.parametrize("how", list(How))
@pytest.mark.parametrize("policy", ["aligned", "unaligned"])
def test_a_stopped_job_goes_on_to_every_pair(tmp_path: Path, how: How, policy: str) -> None:
    write_orders(tmp_path)
    stopped = run_until_rows_wait(tmp_path, matching(how), policy=policy)
    outcome = run_job(matching(how), str(tmp_path / STORE), inline(tmp_path, from_epoch=stopped, state_memory=20_000))
    assert outcome.finished
    assert shown(tmp_path) == expected(tmp_path, how)
    assert sum(part.rows or 0 for part in store(tmp_path).parts(outcome.epoch)) == 0, "at the end nothing waits"


@pytest.mark.sample(1)
@pytest.mark.parametrize("tasks", [1, 3])
def test_a_rescaled_job_goes_on_to_every_pair(tmp_path: Path, tasks: int) -> None:
    write_orders(tmp_path, files=3)
    stopped = run_until_rows_wait(tmp_path, matching())
    epoch = publish(LocalStorage(tmp_path / STORE), Rescale(stopped, matching(parallelism=tasks), str(tmp_path)))
    run_job(matching(parallelism=tasks), str(tmp_path / STORE), inline(tmp_path, from_epoch=epoch))
    assert shown(tmp_path) == expected(tmp_path, How.OUTER)


@pytest.mark.minutes
@pytest.mark.parametrize("recovery", ["subgraph", "local"])
def test_workers_that_are_killed_change_nothing(tmp_path: Path, recovery: str) -> None:
    write_orders(tmp_path, files=40, rows=60)
    (tmp_path / "slow.py").write_text(SLOW.format(folder=str(tmp_path), pause=0.02))
    options = inline(tmp_path, interval=0.1, recovery=recovery, keep=None)
    topology = matching(slow=True, slack=1000)
    survive(topology, tmp_path, options, [(after(2, open_epoch=True), [1]), (after(5), [0])])
    assert shown(tmp_path) == expected(tmp_path, How.OUTER)


@pytest.mark.soak
@pytest.mark.minutes
@pytest.mark.parametrize("recovery", ["subgraph", "local"])
def test_workers_that_are_killed_after_a_rescale_change_nothing(tmp_path: Path, recovery: str) -> None:
    write_orders(tmp_path, files=150, rows=60)
    (tmp_path / "slow.py").write_text(SLOW.format(folder=str(tmp_path), pause=0.06))
    before, wide = (matching(slow=True, slack=1000, parallelism=tasks) for tasks in (2, 3))
    services: list[Service] = []

    def stop(progress: Progress) -> None:
        if progress.epochs == 2:
            services[0].request_stop()

    stopped = run_job(before, str(tmp_path / STORE), inline(tmp_path, keep=None), stop, services.append).epoch
    start = publish(LocalStorage(tmp_path / STORE), Rescale(stopped, wide, str(tmp_path)))
    options = inline(tmp_path, interval=0.1, recovery=recovery, keep=None, from_epoch=start)
    survive(wide, tmp_path, options, [(after(1, open_epoch=True), [1]), (after(3), [0])])
    assert shown(tmp_path) == expected(tmp_path, How.OUTER)


@pytest.mark.minutes
def test_a_python_worker_of_spark_that_joins_gets_sigkill(tmp_path: Path, spark: Any) -> None:
    write_orders(tmp_path, files=40, rows=60)
    (tmp_path / "slow.py").write_text(SLOW.format(folder=str(tmp_path), pause=0.02))
    options = on_spark(tmp_path, spark, recovery=Scope.LOCAL)
    survive(matching(slow=True, slack=1000), tmp_path, options, [(after(2), [1])])
    assert shown(tmp_path) == expected(tmp_path, How.OUTER)


def test_sigkill_after_every_epoch_changes_nothing() -> None:
    """`Job.test` ends the process of a job with SIGKILL."""
    job = Job("matching", parallelism=2)
    orders, payments = (
        job.jsonl("nowhere", schema={"order": "string", "at": "timestamp", of: "int"}, event_time="at", id=id)
        for id, of in (("orders", "number"), ("payments", "paid"))
    )
    joined = orders.join(payments, on="order", time="at", within=f"{AFTER}s", how="outer", id="matched")
    joined.to_jsonl("out", id="out")
    rows = {
        id: [{"order": f"o{i % 3}", "at": moment(step * i), of: i} for i in range(20)]
        for id, of, step in (("orders", "number", 3), ("payments", "paid", 2))
    }
    result = Counter((row["number"], row["paid"]) for row in job.test(rows, timeout="10m")["out"])
    pairs = Counter((i, j) for i in range(20) for j in range(20) if i % 3 == j % 3 and 0 <= 2 * j - 3 * i <= AFTER)
    left, right = ({pair[side] for pair in pairs} for side in (0, 1))
    pairs.update((i, None) for i in range(20) if i not in left)
    pairs.update((None, j) for j in range(20) if j not in right)
    assert result == pairs


def test_late_rows_go_where_the_job_says(tmp_path: Path) -> None:
    write_orders(tmp_path)
    topology = matching(How.INNER)
    late = operator("late", Kind.SINK, 2, connector={"type": "jsonl", "path": "late"})
    edge = msgspec.structs.replace(topology.edges[-1], target="late", output="late_right")
    topology = msgspec.structs.replace(topology, operators=(*topology.operators, late), edges=(*topology.edges, edge))
    stopped = run_until_rows_wait(tmp_path, topology)
    row = '{"order": "o1", "at": "2025-12-31T23:59:59", "paid": 9999}'
    path = tmp_path / "in" / "payments" / "0000.jsonl"
    path.write_text(path.read_text() + row + "\n")
    run_job(topology, str(tmp_path / STORE), inline(tmp_path, from_epoch=stopped))
    lines = [line for part in sorted((tmp_path / "late").glob("*.jsonl")) for line in part.read_text().splitlines()]
    assert [(row["order"], row["paid"]) for row in map(json.loads, lines)] == [("o1", 9999)]
    path.write_text(path.read_text().replace(row + "\n", ""))
    assert shown(tmp_path) == expected(tmp_path, How.INNER)


def test_every_command_shows_its_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_orders(tmp_path)
    stopped = run_until_rows_wait(tmp_path, matching())
    place = str(tmp_path / STORE)
    code, out, _ = run_command("state", capsys, f"{place}@{stopped}", "matched", "--limit", "1", "-o", "json")
    assert code == 0
    for name in ("join_side", "join_number", "left.number", "right.paid", "join_matched"):
        assert f'"{name}"' in out
    waiting = sum(part.rows or 0 for part in store(tmp_path).parts(stopped))
    inspected = result_of("inspect", capsys, f"{place}@{stopped}")
    (matched,) = (row for row in inspected["operators"] if row["id"] == "matched")
    assert matched["rows"] == waiting > 0
    assert run_command("validate", capsys, place)[0] == 0
    earlier = stopped - 1
    code, out, _ = run_command("diff", capsys, f"{place}@{earlier}", f"{place}@{stopped}")
    assert code in (0, 1), out
    assert "matched" in out


# -- what cannot be run -----------------------------------------------------------------------------------------


def refusal(topology: Topology) -> str:
    with pytest.raises(UsageError) as raised:
        check_runnable(topology)
    return f"{raised.value.message}; {raised.value.hint}"


def changed(topology: Topology, id: str, **fields: Any) -> Topology:
    operators = (msgspec.structs.replace(op, **fields) if op.id == id else op for op in topology.operators)
    return msgspec.structs.replace(topology, operators=tuple(operators))


def test_a_join_without_event_time_or_columns_is_refused() -> None:
    plain = matching()
    connector = {k: v for k, v in (plain.operators[0].connector or {}).items() if k != "event_time"}
    assert refusal(changed(plain, "orders", connector=connector)).startswith(
        "operator matched waits for event time (join), and source orders has no event time"
    )
    connector = {k: v for k, v in (plain.operators[0].connector or {}).items() if k != "schema"}
    assert refusal(changed(plain, "orders", connector=connector)) == (
        "operator matched: the types of the columns that orders emits are unknown before the job runs, but the join "
        "needs them; declare the types in the join: columns: {orders: {column: type, ...}}"
    )
    join = plain.operators[2].join
    assert join
    other = msgspec.structs.replace(join, columns={"orders": {"order": "words", "at": "timestamp"}})
    assert "unknown type 'words' of column 'order'" in refusal(changed(plain, "matched", join=other))
    numbers = msgspec.structs.replace(join, time=("number", "at"))
    assert "column 'number' of its left side cannot be event time" in refusal(changed(plain, "matched", join=numbers))


def test_a_join_in_a_loop_is_refused() -> None:
    plain = matching()
    join = plain.operators[2].join
    assert join
    again = operator("again", Kind.FILTER, function="identity")
    looped = changed(plain, "matched", join=msgspec.structs.replace(join, left="again"))
    topology = msgspec.structs.replace(
        looped,
        operators=(*looped.operators[:3], again, *looped.operators[3:]),
        edges=(Edge("orders", "again", FORWARD), Edge("matched", "again", FORWARD),
               Edge("again", "matched", HASH, ("order",)), *plain.edges[1:]),
    )  # fmt: skip
    assert "waits for event time (join), and rows of the loop" in refusal(topology)


def test_a_join_with_a_function_is_drawn_and_not_run() -> None:
    plain = matching()
    old = changed(plain, "matched", join=msgspec.UNSET, function="f")
    assert refusal(old).startswith("operator matched is of kind join, which `abs run` does not support")


def test_rows_of_the_test_are_worth_it(tmp_path: Path) -> None:
    write_orders(tmp_path)
    counts = expected(tmp_path, How.OUTER)
    assert len(rows_of(tmp_path, "orders")) == 600
    assert sum(None in pair for pair in counts) > 20
    assert sum(None not in pair for pair in counts) > 20
