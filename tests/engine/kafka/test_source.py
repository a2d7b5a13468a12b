"""Records of a real topic: each once, from whatever position, in transactions or not; what is gone is said."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from abscli.engine import patience
from abscli.engine.errors import EngineStopped, JobFailed, UsageError
from abscli.engine.failures import Failures
from abscli.engine.sources.contract import NOT_YET, Source
from abscli.engine.sources.event_times import EventTimes
from abscli.engine.sources.kafka import topics
from abscli.engine.sources.kafka.source import KafkaSource
from abscli.engine.sources.kafka.topics import beginnings
from abscli.engine.sources.making import make_source
from abscli.engine.waits import Doing, StepTimer, Wait
from formats.ids import TaskId
from formats.job.model import Edge, Kind, Operator, Partition, Topology
from formats.native.facts import PartFacts, header
from formats.view import Position
from formats.watermark import IDLE
from tests.support.jobs.small import operator
from tests.support.kafka import SECONDS, Broker


class Reader:
    """Makes sources, and closes them."""

    def __init__(self, broker: Broker, topic: str, closing: ExitStack) -> None:
        self._options = {"type": "kafka", "brokers": broker.address, "topic": topic}
        self._closing = closing

    def operator(self, tasks: int = 1, **options: object) -> Operator:
        return operator("orders", Kind.SOURCE, tasks, connector={**self._options, **options})

    def begin(
        self, positions: tuple[Position, ...] | None = None, task: int = 0, tasks: int = 1,
        failures: Failures | None = None, others: tuple[str, ...] = (), **options: object,
    ) -> Source:  # fmt: skip
        op = self.operator(tasks, **options)
        source = make_source(op, task, ".", positions, None, others, failures)
        self._closing.callback(source.close)
        return source


@pytest.fixture
def reader(broker: Broker, topic: str) -> Iterator[Reader]:
    with ExitStack() as closing:
        yield Reader(broker, topic, closing)


def rows_until(source: Source, enough: Any) -> list[dict[str, Any]]:
    """What it puts out until that is so of it and of its rows."""
    rows: list[dict[str, Any]] = []
    deadline = time.monotonic() + SECONDS
    while not enough(source, rows):
        assert time.monotonic() < deadline, rows
        batch = source.read()
        if batch is None:
            break
        rows += batch.to_pylist()
    return rows


def values(source: Source, count: int) -> list[str]:
    """So many, in the order of their text."""
    return sorted(row["value"] for row in rows_until(source, lambda _, rows: len(rows) >= count))


def all_of(source: Source) -> list[dict[str, Any]]:
    """To the end of a source that has one."""
    return rows_until(source, lambda source, _: source.finished)


def is_at_end(source: Source, rows: object = None) -> bool:
    return bool(source.unread) and set(source.unread) == set(source.waiting)


def offsets(source: Source) -> list[int | None]:
    return [position.offset for position in source.positions]


# -- what is read ---------------------------------------------------------------------------------------------


def test_each_partition_is_read_to_the_end_that_it_had_and_no_further(
    broker: Broker, topic: str, reader: Reader
) -> None:
    broker.send(topic, {0: range(5), 1: range(5, 12)})
    source = reader.begin()
    first = source.read()
    broker.send(topic, {0: range(100, 110)})
    assert first is not None
    rows = [*first.to_pylist(), *all_of(source)]
    assert sorted(int(row["value"]) for row in rows) == [*range(12)]
    assert [(at.split, at.offset, at.records, at.until) for at in source.positions] == [
        (f"{topic}-0", 5, 5, 5), (f"{topic}-1", 7, 7, 7),
    ]  # fmt: skip
    assert source.read() is None


def test_another_one_goes_on_where_it_stood(broker: Broker, topic: str, reader: Reader) -> None:
    broker.send(topic, {0: range(50), 1: range(50, 100)})
    seen, positions = [], None
    for _ in range(200):
        source = reader.begin(positions)
        source.stop_at(lines=7)
        rows = rows_until(source, lambda source, rows: len(rows) >= 7 or source.finished)
        assert len(rows) <= 7
        seen += [int(row["value"]) for row in rows]
        positions = source.cut()
        source.close()
        if source.finished:
            break
    assert sorted(seen) == [*range(100)]


def test_a_source_that_follows_reads_what_comes_and_partitions_that_come(
    broker: Broker, topic: str, reader: Reader
) -> None:
    source = reader.begin(follow=True)
    rows_until(source, is_at_end)
    broker.send(topic, {1: range(3)})
    assert values(source, 3) == ["0", "1", "2"]
    broker.widen(topic, 4)
    broker.send(topic, {2: range(3, 5), 3: range(5, 6)})
    assert values(source, 3) == ["3", "4", "5"]
    assert not source.finished
    assert [at.split for at in source.positions] == [f"{topic}-{n}" for n in range(4)]


def test_partitions_that_came_between_runs_are_read_by_one_task_each(
    broker: Broker, topic: str, reader: Reader
) -> None:
    """Also where a rescale has dealt the others out by other rules: what another task owns is not read twice."""
    broker.widen(topic, 4)
    broker.send(topic, {n: range(n * 10, n * 10 + 3) for n in range(4)})
    owned = (Position(f"{topic}-0", 3, 3), Position(f"{topic}-1", 3, 3)), (Position(f"{topic}-2", 3, 3),)
    others = tuple(at.split for mine in owned for at in mine)
    sources = [reader.begin(owned[i], i, 2, follow=True, others=others) for i in range(2)]
    assert values(sources[1], 3) == ["30", "31", "32"]
    assert rows_until(sources[0], is_at_end) == []
    assert [at.split for at in sources[1].positions] == [f"{topic}-2", f"{topic}-3"]


def test_whether_it_follows_may_change_between_two_runs(broker: Broker, topic: str, reader: Reader) -> None:
    broker.send(topic, {0: range(3)})
    source = reader.begin()
    assert len(all_of(source)) == 3
    broker.send(topic, {0: range(3, 5), 1: range(5, 6)})
    source = reader.begin(source.positions, follow=True)
    assert values(source, 3) == ["3", "4", "5"]
    broker.send(topic, {0: range(6, 9)})
    assert sorted(row["value"] for row in all_of(reader.begin(source.positions))) == ["6", "7", "8"]


def test_latest_begins_with_what_comes_later(broker: Broker, topic: str, reader: Reader) -> None:
    broker.send(topic, {0: range(5)})
    source = reader.begin(follow=True, start="latest")
    rows_until(source, is_at_end)
    broker.send(topic, {0: range(5, 7)})
    assert values(source, 2) == ["5", "6"]


def test_json_with_the_key_and_the_time_of_each_record(broker: Broker, topic: str, reader: Reader) -> None:
    before = dt.datetime.now(dt.UTC).replace(tzinfo=None)
    odd = '{\n "id": 2,\r\n "name": "zwei", "more": [1]}'
    broker.produce(topic, [(0, "a", '{"id": 1, "name": "one"}'), (0, "b", None), (0, None, odd)])
    source = reader.begin(schema={"id": "int", "name": "string"}, key="word", timestamp="at")
    rows = all_of(source)
    times = [row.pop("at") for row in rows]
    assert rows == [
        {"id": 1, "name": "one", "word": "a"},
        {"id": None, "name": None, "word": "b"},
        {"id": 2, "name": "zwei", "word": None},
    ]
    assert all(abs((at - before).total_seconds()) < 3600 for at in times)
    assert source.connector == {"id": "int64", "name": "string"}


BAD = ['{"id": "x"}', "", "5", '{"id": 1}{"id": 2}', '{"id": 1}{"id":', "2}", "\udcff"]
"""Two of them, one behind the other, would make an object."""


def test_a_record_that_cannot_be_read_is_named_and_can_be_left_out(
    broker: Broker, topic: str, reader: Reader
) -> None:
    good = [json.dumps({"id": n}) for n in range(5)]
    bad = [text.encode("utf-8", "surrogateescape") for text in BAD]
    broker.produce(topic, [(0, None, text) for text in [*good[:3], *bad, *good[3:]]])  # type: ignore[misc]
    with pytest.raises(JobFailed, match=rf"{topic}-0, offset 3: .* does not fit the schema"):
        all_of(reader.begin(schema={"id": "int"}))

    class Letters:
        rows: list[dict[str, Any]] = []

        def write(self, batch: pa.RecordBatch) -> None:
            self.rows += batch.to_pylist()

    failures = Failures(TaskId("orders", 0), Letters())
    with failures.during(1):
        source = reader.begin(schema={"id": "int"}, failures=failures)
        assert [row["id"] for row in all_of(source)] == [*range(5)]
    assert [(row["origin"], row["offset"]) for row in Letters.rows] == [(f"{topic}-0", n) for n in range(3, 10)]
    assert failures.count == len(BAD)


# -- transactions ---------------------------------------------------------------------------------------------


def test_what_was_not_committed_is_never_read(broker: Broker, topic: str, reader: Reader) -> None:
    broker.produce(topic, [(0, None, "a"), (1, None, "b")], commit=True)
    broker.produce(topic, [(0, None, "x")] * 3, commit=False)
    broker.produce(topic, [(0, None, "c")], commit=True)
    source = reader.begin()
    assert sorted(row["value"] for row in all_of(source)) == ["a", "b", "c"]
    # Each transaction has a mark in each of its partitions, and what was given up is gone over as well.
    assert [(at.offset, at.records) for at in source.positions] == [(8, 2), (2, 1)]


def test_a_transaction_that_is_open_is_waited_for_and_not_gone_over(
    broker: Broker, topic: str, reader: Reader
) -> None:
    from confluent_kafka import Producer

    broker.send(topic, {0: range(2)})
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": topic, "log_level": 0})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, "open", partition=0)
    producer.flush()
    assert len(all_of(reader.begin())) == 2
    source = reader.begin(follow=True, start="latest")
    rows_until(source, is_at_end)
    assert offsets(source) == [2, 0]
    producer.commit_transaction()
    assert values(source, 1) == ["open"]


# -- what is gone ---------------------------------------------------------------------------------------------


def check(source: Operator, positions: tuple[Position, ...]) -> None:
    """What the driver looks at before a job goes on."""
    empty = dict.fromkeys(("alignment", "sync", "async_"), 0.0)
    part = PartFacts(
        epoch=1, attempt=1, task_name="orders/0", state=(), rows=None, logs=(), sent={}, received={},
        positions=positions, round_robin={}, connector=None, sink=(), finished=False, attempt_id="",
        **empty, **header(PartFacts),
    )  # fmt: skip
    sink = operator("out", Kind.SINK, 1, connector={"type": "jsonl", "path": "out"})
    topology = Topology("job", (source, sink), (Edge("orders", "out", Partition.FORWARD),))
    assert beginnings(topology, [part], ".", StepTimer()) == {}


def look(by: str, reader: Reader, positions: tuple[Position, ...]) -> None:
    """As the driver does before the job goes on, or as a task does while it reads."""
    if by == "driver":
        check(reader.operator(), positions)
    else:
        rows_until(reader.begin(positions, follow=True), lambda *_: False)


@pytest.mark.parametrize("by", ["driver", "task"])
def test_a_position_that_retention_has_taken_is_an_error_with_both_offsets(
    broker: Broker, topic: str, reader: Reader, by: str
) -> None:
    broker.send(topic, {0: range(10), 1: range(3)})
    broker.drop(topic, {0: 7})
    positions = (Position(f"{topic}-0", 4, 4), Position(f"{topic}-1", 1, 1))
    gone = f"{topic}-0 resumes at 4, but the oldest offset is 7: 3 records removed unread"
    with pytest.raises(JobFailed, match=gone):
        look(by, reader, positions)


@pytest.mark.parametrize("by", ["driver", "task"])
def test_a_topic_that_was_cut_is_an_error_with_both_offsets(
    broker: Broker, topic: str, reader: Reader, by: str
) -> None:
    broker.send(topic, {0: range(3)})
    positions = (Position(f"{topic}-0", 9, 9),)
    with pytest.raises(JobFailed, match=f"{topic}-0 resumes at 9, but the partition ends at 3"):
        look(by, reader, positions)


@pytest.mark.parametrize("by", ["driver", "task"])
def test_a_topic_that_was_made_anew_is_told_by_its_id_though_it_has_as_many_records(
    broker: Broker, topic: str, reader: Reader, by: str
) -> None:
    broker.send(topic, {0: range(5)})
    source = reader.begin(follow=True)
    values(source, 5)
    rows_until(source, is_at_end)
    broker.remove(topic)
    broker.make(topic)
    broker.send(topic, {0: range(50)})
    with pytest.raises(JobFailed, match=f"topic '{topic}' was recreated: its id is [^,]+, but the epoch"):
        look(by, reader, source.positions)


def test_a_topic_that_goes_while_it_is_read_is_an_error(broker: Broker, topic: str, reader: Reader) -> None:
    broker.send(topic, {0: range(5)})
    source = reader.begin(follow=True)
    values(source, 5)
    broker.remove(topic)
    with pytest.raises(JobFailed, match=f"topic '{topic}' is missing"):
        rows_until(source, lambda *_: False)
    with pytest.raises(JobFailed, match=f"topic '{topic}' is missing"):
        check(reader.operator(), source.positions)


def test_a_topic_that_is_not_there_and_one_that_is_another_are_refused(reader: Reader, topic: str) -> None:
    with pytest.raises(UsageError, match="has no topic 'nothing'"):
        reader.begin(topic="nothing").read()
    with pytest.raises(UsageError, match=f"reads topic 'another', but the epoch has a position in '{topic}-0'"):
        reader.begin((Position(f"{topic}-0", 1, 1),), topic="another")


# -- the same again -------------------------------------------------------------------------------------------


def test_the_same_batches_come_again_though_more_is_there(broker: Broker, topic: str, reader: Reader) -> None:
    broker.send(topic, {0: range(30), 1: range(30, 60)})
    begin = topics.beginning(reader.operator(follow=True), ".")
    source = reader.begin(begin, follow=True)
    steps, batches = [], []
    for lines in (3, 0, 11, 2, 20):
        source.stop_at(lines=lines)
        rows = rows_until(source, lambda _, rows, lines=lines: bool(rows) or not lines)
        steps.append((source.split, len(rows)))
        batches.append(rows)
    broker.send(topic, {0: range(60, 90), 1: range(90, 120)})
    another = reader.begin(begin, follow=True)
    another.stop_at(lines=0)  # as a source that waited for the next epoch
    for (split, count), rows in zip(steps, batches, strict=True):
        deadline = time.monotonic() + SECONDS
        while (batch := another.read_again(split, count)) is NOT_YET:
            assert time.monotonic() < deadline
        assert not isinstance(batch, type(NOT_YET))
        assert batch is not None
        assert batch.to_pylist() == rows
    assert another.positions == source.positions


def test_what_has_not_come_again_yet_is_not_the_end(
    broker: Broker, topic: str, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.send(topic, {0: range(3)})
    source = reader.begin((Position(f"{topic}-0", 0, 0, until=10),))
    monkeypatch.setattr(KafkaSource, "_fetch", lambda *_: None)
    assert source.read_again(0, 3) is NOT_YET
    monkeypatch.undo()
    while (batch := source.read_again(0, 3)) is NOT_YET:
        pass
    assert not isinstance(batch, type(NOT_YET))
    assert batch is not None
    assert batch.num_rows == 3


def test_it_stops_at_offsets_also_where_no_record_is(broker: Broker, topic: str, reader: Reader) -> None:
    broker.produce(topic, [(0, None, str(n)) for n in range(4)], commit=True)
    broker.produce(topic, [(0, None, "later")], commit=True)
    source = reader.begin((Position(f"{topic}-0", 0, 0), Position(f"{topic}-1", 0, 0)), follow=True)
    source.stop_at({f"{topic}-0": 2})
    assert values(source, 2) == ["0", "1"]
    source.stop_at({f"{topic}-0": 5})
    rows = rows_until(source, lambda source, _: offsets(source)[0] == 5)
    assert [row["value"] for row in rows] == ["2", "3"]
    source.stop_at()
    assert values(source, 1) == ["later"]


# -- a broker that is away ------------------------------------------------------------------------------------


@pytest.mark.soak
def test_a_broker_that_hangs_is_waited_for_and_no_partition_is_idle_meanwhile(
    broker: Broker, topic: str, reader: Reader
) -> None:
    broker.send(topic, {0: range(2)})
    times = {"column": "at", "idle": "6s"}
    source = reader.begin(follow=True, timestamp="at", event_time=times)
    assert isinstance(source, EventTimes)
    rows_until(source, lambda source, rows: len(rows) == 2 and is_at_end(source))
    with broker.stopped():
        rows_until(source, lambda source, _: source.held_up is not None)
        assert source.waiting == ()
        since = time.monotonic()
        while time.monotonic() - since < 8:
            source.read()
            assert source.watermark is None
    broker.send(topic, {0: range(2, 3)})
    assert len(rows_until(source, lambda _, rows: rows)) == 1
    rows_until(source, lambda source, _: source.held_up is None)
    rows_until(source, lambda source, _: source.watermark == IDLE)


def test_who_begins_while_no_broker_answers_is_told_so(
    broker: Broker, topic: str, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "SECONDS", 0.5)
    op, timer = reader.operator(brokers="127.0.0.1:1"), StepTimer()
    step = Wait(op.id, Doing.FIND, "127.0.0.1:1")
    stopped = pytest.raises(EngineStopped, match=r"127.0.0.1:1 does not answer: no answer from the broker")
    with stopped, timer.run(step):
        try:
            topics.beginning(op, ".")
        finally:
            reasons = [wait.reason for wait in timer.waits(over=0)]
    assert "no answer from the broker" in reasons[0]


def test_a_task_without_a_partition_keeps_nobody_waiting(topic: str, reader: Reader) -> None:
    times = {"column": "at"}
    source = reader.begin((), 2, 3, follow=True, timestamp="at", event_time=times)
    assert source.watermark == IDLE
    assert all_of(reader.begin((), 2, 3)) == []


def test_the_clients_settings_come_from_a_file(
    reader: Reader, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TLS to a listener without it: if it were not read, the broker would answer."""
    monkeypatch.setattr(patience, "SECONDS", 0.5)
    config = tmp_path / "kafka.properties"
    config.write_text("# of a broker that wants it\nsecurity.protocol = ssl\nno line\n")
    with pytest.raises(UsageError, match=r"line 3 of .*kafka.properties is not name=value"):
        topics.beginning(reader.operator(config=str(config)), str(tmp_path))
    config.write_text("socket.no.such.setting=1\n")
    with pytest.raises(UsageError, match="No such configuration property"):
        topics.beginning(reader.operator(config=str(config)), str(tmp_path))
    config.write_text("security.protocol=ssl\n")
    with pytest.raises(EngineStopped, match="does not answer"):
        topics.beginning(reader.operator(config="kafka.properties"), str(tmp_path))
    config.write_text("# all as it is\n")
    assert len(topics.beginning(reader.operator(config="kafka.properties"), str(tmp_path))) == 2
