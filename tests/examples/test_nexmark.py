"""NEXMark's queries as they are shipped: they show what DuckDB answers over the same events, each row once, with any
number of tasks, through kills and losses of workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from abscli.engine.generations.rescaling import Rescale, publish
from abscli.engine.job import run_job
from abscli.examples.nexmark import QUERIES
from abscli.jobs.attempts import Attempts, Order
from formats.storage import LocalStorage
from tests.engine.recovering.test_live import survive
from tests.support.jobs.inline import STORE
from tests.support.jobs.kills import after
from tests.support.jobs.nexmark import PLACE, Rows, answer, query_job, shown, write_events
from tests.support.jobs.small import inline

EVENTS = 260_000
"""26 seconds of event time: several windows of ten seconds, and some of two behind the last of them."""

PACE = {"q3": 800, "q8": 800}
"""Lines of a source task for an epoch: auctions take ten of two tasks, and so do bids with what all others have."""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Rows]:
    folder = tmp_path_factory.mktemp("events")
    write_events(folder, EVENTS)
    return {query: answer(query, folder) for query in QUERIES}


@pytest.fixture(scope="module")
def attempts() -> Iterator[Attempts]:
    with Attempts() as attempts:
        yield attempts


@pytest.mark.sample(2)
@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("tasks", [1, 3])
def test_its_rows_are_those_of_duckdb(query: str, tasks: int, answers: dict[str, Rows], tmp_path: Path) -> None:
    options = inline(PLACE, sinks_in=str(tmp_path / "out"), interval=0.1)
    assert run_job(query_job(query, EVENTS, tasks=tasks), str(tmp_path / STORE), options).finished
    assert shown(query, tmp_path / "out" / "shown") == answers[query]


@pytest.mark.sample(1)
@pytest.mark.parametrize("query", ["q4", "q5", "q7", "q8"])
def test_events_out_of_order_change_nothing(query: str, answers: dict[str, Rows], tmp_path: Path) -> None:
    """A thousand events are a tenth of a second."""
    event_time = {"column": "date_time", "delay": "100ms"}
    topology = query_job(query, EVENTS, out_of_order=1000, event_time=event_time)
    options = inline(PLACE, sinks_in=str(tmp_path / "out"), interval=0.05)
    assert run_job(topology, str(tmp_path / STORE), options).finished
    assert shown(query, tmp_path / "out" / "shown") == answers[query]


def test_the_answers_have_rows_to_be_wrong_about(answers: dict[str, Rows]) -> None:
    """An empty answer would be right of a job that shows nothing."""
    assert {query: len(rows) for query, rows in answers.items()} == {
        "q0": 239_200, "q1": 239_200, "q2": 1_752, "q3": 1_448, "q4": 5, "q5": 17, "q7": 3, "q8": 2_234,
    }  # fmt: skip


@pytest.mark.sample(1)
@pytest.mark.parametrize("query", QUERIES)
def test_sigkill_of_the_driver_changes_nothing(
    query: str, answers: dict[str, Rows], attempts: Attempts, tmp_path: Path
) -> None:
    """It is killed five times, and on the way it gets another number of tasks."""
    store, pace, epoch, kills, tasks = tmp_path / STORE, PACE.get(query, 12_000), 0, 0, 2
    while True:
        topology = query_job(query, EVENTS, tasks=tasks)
        order = Order(topology, str(PLACE), str(store), str(tmp_path / "out"), epoch, pace, 1 if kills < 5 else None)
        attempt = attempts.run(order, 300)
        assert attempt.failure is None, attempt.failure
        epoch = attempt.epoch
        if not attempt.killed:
            break
        kills += 1
        if kills == 3:
            tasks = 3
            epoch = publish(LocalStorage(store), Rescale(epoch, query_job(query, EVENTS, tasks=3), str(PLACE)))
    assert kills == 5
    assert shown(query, tmp_path / "out" / "shown") == answers[query]


@pytest.mark.sample(2)
@pytest.mark.minutes
@pytest.mark.parametrize("query", ["q4", "q5", "q7"])
@pytest.mark.parametrize("recovery", ["subgraph", "local"])
def test_workers_that_are_killed_change_nothing(
    query: str, recovery: str, answers: dict[str, Rows], tmp_path: Path
) -> None:
    options = inline(PLACE, sinks_in=str(tmp_path / "out"), interval=0.1, recovery=recovery, keep=None, pace=12_000)
    survive(query_job(query, EVENTS), tmp_path, options, [(after(2, open_epoch=True), [1]), (after(5), [0])])
    assert shown(query, tmp_path / "out" / "shown") == answers[query]
