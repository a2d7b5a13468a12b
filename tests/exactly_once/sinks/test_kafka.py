"""A topic of Kafka as a sink: each row once for readers of committed transactions, whoever is killed, and when."""

from __future__ import annotations

import json
import shutil
import uuid
from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace

from abscli.engine.errors import EngineStopped, JobFailed, UsageError
from abscli.engine.sinks.kafka import topic as sink_topic
from abscli.engine.sinks.kafka.markers import SinkName
from abscli.engine.sinks.kafka.topic import KafkaTopic, how_changed
from abscli.engine.sinks.kafka.transactions import Transactions
from abscli.engine.sinks.staged.contract import Delivery, StagedPart
from abscli.report.findings import Code, SinkVerdict
from formats.brokers import Seen
from formats.errors import Damaged
from formats.ids import EpochId
from formats.job.model import Kind
from formats.native.facts import SinkFile, digest
from formats.native.transactions import Transaction
from formats.storage import MemoryStorage
from tests.support.jobs.lines import Gate, Lines, killed, restore_to, write_lines
from tests.support.jobs.small import operator
from tests.support.kafka import SECONDS, Broker
from tests.support.kafka import running as running_broker

ATTEMPT, OTHER = "a" * 32, "b" * 32
RUNS = 40


@pytest.fixture
def topic(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> str:
    """With marks of its own: all jobs here have one name."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    broker.make(name)
    monkeypatch.setenv("LINES_BROKER", broker.address)
    return name


@pytest.fixture
def lines(tmp_path: Path, gate: Gate, topic: str) -> Lines:
    write_lines(tmp_path, 5)
    return Lines(tmp_path, gate, topic, "kafka")


# -- a job ----------------------------------------------------------------------------------------------------


@pytest.mark.sample(3)
@pytest.mark.cell("A", "exact", "kafka")
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("where", ["staged", "manifest", "reveal", "producing", "committing", "finished"])
def test_killed_at_any_step_it_goes_on(lines: Lines, where: str, n: int) -> None:
    """The first transaction is the claim; in the middle of one some rows are with the broker."""
    killed(lines, where, 1 + 9 * n if where == "producing" else n)
    lines.go_on()
    assert lines.wrong() == {}


def test_rows_that_two_manifests_name_are_written_once(
    tmp_path: Path, gate: Gate, broker: Broker, topic: str
) -> None:
    """With several epochs in flight a task stages the next before it has heard that the one before is complete: in most
    runs, and here until it has been so."""
    for number in range(RUNS):
        broker.make(f"{topic}-{number}")
        write_lines(tmp_path / str(number), 5)
        lines = Lines(tmp_path / str(number), gate, f"{topic}-{number}", "kafka")
        lines.run(max_concurrent=4)
        assert lines.wrong() == {}
        if lines.twice_named:
            return
    pytest.fail(f"in none of {RUNS} runs did two manifests name the same rows")


def test_a_key_goes_to_one_partition_and_values_are_the_rows(lines: Lines, broker: Broker) -> None:
    lines.run()
    records = broker.consumed(lines.out)
    assert all(json.loads(value or "") == {"line": key} for _, key, value in records)
    assert {partition for partition, _, _ in records} == {0, 1}


def test_nothing_is_written_before_the_manifest(lines: Lines) -> None:
    killed(lines, "reveal", 1)
    assert lines.shown() == Counter()
    report = lines.validated()
    assert Code.SINK_PART_PENDING in {finding.code for finding in report.findings}
    lines.resume()
    assert lines.wrong() == {}
    assert lines.validated().all_findings == ()


@pytest.mark.cell("J", "refused", "kafka")
def test_going_back_behind_what_is_written_is_refused_and_then_a_choice(lines: Lines) -> None:
    lines.run(epochs=3)
    first = lines.complete()[0]
    with pytest.raises(UsageError, match="cannot be rolled back"):
        lines.run(from_epoch=first)
    lines.run(from_epoch=first, epochs=1, take_ownership=True)
    lines.resume()  # what was accepted once is not asked again
    assert set(lines.wrong().values()) == {1}


def test_a_restore_into_another_store_writes_what_waits(lines: Lines) -> None:
    killed(lines, "reveal", 3)
    restore_to(lines, lines.complete()[-1], "b")
    lines.resume("b")
    assert lines.wrong() == {}


@pytest.mark.soak
@pytest.mark.minutes
def test_a_broker_that_is_killed_meanwhile_is_waited_for(lines: Lines, broker: Broker) -> None:
    def at(epochs: int) -> None:
        if epochs in (2, 4):
            broker.kill()
            broker.start()

    lines.run(at=at)
    assert lines.wrong() == {}


# -- a target -------------------------------------------------------------------------------------------------


def delivered(storage: MemoryStorage, epoch: int, *tasks: list[dict[str, object]], attempt: str = ATTEMPT) -> Delivery:
    """Lines that tasks have staged for an epoch."""
    parts = []
    for task, rows in enumerate(tasks):
        data = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        path = f"{attempt}-{epoch}-{task}"
        storage.put(path, data)
        file = SinkFile("out", f"part-{task:05d}-{epoch:010d}.jsonl", len(data), len(rows), digest(data))
        parts.append(StagedPart(Transaction(attempt, epoch, task, "out"), replace(file, staged=path)))
    return Delivery(EpochId(attempt, epoch), tuple(parts), storage)


def numbers(broker: Broker, topic: str) -> list[int]:
    return sorted(json.loads(value or "")["n"] for _, _, value in broker.consumed(topic))


def target(broker: Broker, topic: str, job: str = "job", **options: object) -> KafkaTopic:
    connector = {"type": "kafka", "brokers": broker.address, "topic": topic, **options}
    return KafkaTopic(operator("out", Kind.SINK, 1, connector=connector), ".", job)


def test_a_delivery_is_written_once_by_whomever(broker: Broker, topic: str) -> None:
    storage = MemoryStorage()
    first = delivered(storage, 3, [{"n": 1}, {"n": 2}], [{"n": 3}])
    for _ in range(2):
        sink = target(broker, topic)
        with sink.hold():
            sink.take(ATTEMPT, [], 0)
            sink.publish(first)
            sink.publish(first)
            assert sink.markers() == [EpochId(ATTEMPT, 3)]
    assert numbers(broker, topic) == [1, 2, 3]
    assert target(broker, topic).markers() == [EpochId(ATTEMPT, 3)]
    assert target(broker, topic, "another").markers() == []


@pytest.mark.cell("N", "stops", "kafka")
@pytest.mark.parametrize("when", ["before", "within", "read"])
def test_who_has_lost_the_topic_writes_nothing(
    broker: Broker, topic: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one takes it before a transaction, in the middle of one, or when its producer has just begun anew and
    read that it is the writer."""
    storage = MemoryStorage()
    older, newer = target(broker, topic), target(broker, topic)
    with older.hold(), newer.hold():
        older.take(ATTEMPT, [], 0)
        older.publish(delivered(storage, 1, [{"n": 1}]))

        def overtaken() -> None:
            monkeypatch.undo()
            newer.take(OTHER, [], 0)
            newer.publish(delivered(storage, 2, [{"n": 20}], attempt=OTHER))

        if when == "before":
            overtaken()
        elif when == "within":
            commit = Transactions._commit

            def stopped(transactions: Transactions) -> None:
                overtaken()
                commit(transactions)

            monkeypatch.setattr(Transactions, "_commit", stopped)
        else:
            older._transactions.close()
            begin = KafkaTopic._begin

            def slowly(sink: KafkaTopic) -> object:
                marks = begin(sink)
                overtaken()
                return marks

            monkeypatch.setattr(KafkaTopic, "_begin", slowly)
        with pytest.raises(EngineStopped, match="was taken over by another attempt"):
            older.publish(delivered(storage, 2, [{"n": 2}]))
        assert numbers(broker, topic) == [1, 20]
        newer.publish(delivered(storage, 3, [{"n": 30}], attempt=OTHER))  # though the other has had its id since
    assert numbers(broker, topic) == [1, 20, 30]


def test_a_transaction_whose_end_is_not_known_is_looked_up(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was committed, and the answer was lost; or it was not."""
    from confluent_kafka import KafkaError, KafkaException

    storage, sink = MemoryStorage(), target(broker, topic)
    with sink.hold():
        sink.take(ATTEMPT, [], 0)
        commit = Transactions._commit
        for epoch, is_committed in ((1, True), (2, False)):

            def lost(transactions: Transactions, is_committed: bool = is_committed) -> None:
                monkeypatch.setattr(Transactions, "_commit", commit)
                if is_committed:
                    commit(transactions)
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

            monkeypatch.setattr(Transactions, "_commit", lost)
            sink.publish(delivered(storage, epoch, [{"n": epoch}]))
    assert numbers(broker, topic) == [1, 2]


def test_another_job_that_was_killed_in_its_transaction_hides_no_mark(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader of committed transactions gets nothing of a partition that is behind an open one."""
    storage, sink, other = MemoryStorage(), target(broker, topic), target(broker, topic, "another")
    with sink.hold(), other.hold():
        other.take(OTHER, [], 0)
        sink.take(ATTEMPT, [], 0)
        commit = Transactions._commit
        monkeypatch.setattr(Transactions, "_commit", lambda transactions: transactions._producer.flush(SECONDS))
        other.publish(delivered(storage, 1, [{"n": 100}], attempt=OTHER))  # is open from here on
        monkeypatch.setattr(Transactions, "_commit", commit)
        sink.publish(delivered(storage, 1, [{"n": 1}]))
        assert target(broker, topic).markers() == [EpochId(ATTEMPT, 1)]
        again = target(broker, topic)
        with again.hold():
            again.take(ATTEMPT, [], 0)
            assert again.markers() == [EpochId(ATTEMPT, 1)]


def test_what_was_left_behind_is_not_shown_and_the_newest_mark_that_is_too_old_is_kept(
    broker: Broker, topic: str
) -> None:
    storage, sink = MemoryStorage(), target(broker, topic)
    with sink.hold():
        sink.take(ATTEMPT, [], 0)
        for epoch in (1, 2, 3, 4):
            sink.publish(delivered(storage, epoch, [{"n": epoch}]))
    again = target(broker, topic)
    with again.hold():
        again.take(OTHER, [EpochId(ATTEMPT, 4)], 3)
        assert again.markers() == [EpochId(ATTEMPT, 2), EpochId(ATTEMPT, 3)]
    assert target(broker, topic).markers() == [EpochId(ATTEMPT, 2), EpochId(ATTEMPT, 3)]


def test_rows_without_the_key_and_rows_that_are_too_large_wait(broker: Broker, topic: str) -> None:
    sink = target(broker, topic, key="word")
    with sink.hold():
        sink.take(ATTEMPT, [], 0)
        with pytest.raises(JobFailed, match="its rows have no key column 'word'; they have the columns n"):
            sink.publish(delivered(MemoryStorage(), 1, [{"n": 1, "word": "x"}, {"n": 2}]))
        with pytest.raises(JobFailed, match=r"rejected the rows: .*too large"):
            sink.publish(delivered(MemoryStorage(), 1, [{"n": 1, "word": "x"}, {"n": 2, "word": "y" * 2_000_000}]))
        assert sink.markers() == []
        rows = [{"n": 1, "word": "x"}, {"n": 2, "word": None}, {"n": 3, "word": 7}]
        sink.publish(delivered(MemoryStorage(), 1, rows))
    assert sorted((key or "", json.loads(value or "")["n"]) for _, key, value in broker.consumed(topic)) == [
        ("", 2), ("7", 3), ("x", 1),
    ]  # fmt: skip


def test_a_topic_that_is_not_there_is_refused(broker: Broker) -> None:
    (lacking,) = target(broker, "nothing").unmet(None)
    assert "has no topic 'nothing'" in lacking.message


def test_a_topic_in_which_markers_would_expire_is_refused(lines: Lines, broker: Broker, topic: str) -> None:
    lines.run(epochs=2)
    marks = SinkName("copied", "out", topic).marks
    broker.configure(marks, {"cleanup.policy": "compact,delete"})
    with pytest.raises(UsageError, match=r"has cleanup\.policy=compact,delete: commit markers expire there") as refused:
        lines.resume()
    assert f"--alter --topic {marks} --add-config cleanup.policy=compact" in str(refused.value.hint)
    broker.configure(marks, {"cleanup.policy": "compact"})
    lines.resume()
    assert lines.wrong() == {}


def test_a_broker_that_is_not_there_is_said(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_topic, "LOOK_SECONDS", 0.5)
    with pytest.raises(EngineStopped, match=r"127.0.0.1:1 does not answer"):
        target(broker, topic, brokers="127.0.0.1:1").unmet(None)


# -- a topic that loses records -----------------------------------------------------------------------------------


@pytest.mark.cell("D", "stops", "kafka")
@pytest.mark.parametrize("which", ["rows", "markers"])
def test_a_topic_that_is_created_again_while_the_job_runs_ends_it(
    lines: Lines, broker: Broker, topic: str, which: str
) -> None:
    lost = topic if which == "rows" else SinkName("copied", "out", topic).marks

    def create_again(epochs: int) -> None:
        if epochs == 3:
            broker.remove(lost)
            broker.make(lost, 2 if which == "rows" else 1)

    with pytest.raises(EngineStopped, match=r"was deleted and created again|but lost them while the job ran"):
        lines.run(at=create_again)


def test_markers_are_read_where_their_topic_no_longer_begins_at_offset_0(
    lines: Lines, broker: Broker, topic: str
) -> None:
    lines.run(epochs=3)
    marks = SinkName("copied", "out", topic).marks
    broker.configure(marks, {"cleanup.policy": "compact,delete"})  # records of a compacted topic cannot be deleted
    broker.drop(marks, {0: 1})
    broker.configure(marks, {"cleanup.policy": "compact"})
    lines.resume()
    assert lines.wrong() == {}


@pytest.mark.soak
@pytest.mark.cell("C", "refused", "kafka")
def test_a_broker_that_was_restored_from_an_older_backup_is_refused(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, backup = tmp_path / "kafka", tmp_path / "backup"
    data.mkdir()
    write_lines(tmp_path, 12)
    with running_broker(data) as broker:
        monkeypatch.setenv("LINES_BROKER", broker.address)
        broker.make("restored")
        lines = Lines(tmp_path, gate, "restored", "kafka")
        lines.run(epochs=3, keep=1)
        broker.kill()
        shutil.copytree(data, backup)
        broker.start()
        for _ in range(2):
            lines.resume(epochs=2, keep=1)
        newer = lines.shown()
        broker.kill()
        shutil.rmtree(data)
        shutil.copytree(backup, data)
        broker.start()
        older = lines.shown()
        assert older < newer
        (sink,) = lines.validated().sinks
        assert sink.verdict is SinkVerdict.INCOMPLETE
        with pytest.raises(Damaged, match=r"which the store no longer has|rows are missing"):
            lines.resume(keep=1)
        assert lines.shown() == older
        lines.resume(keep=1, accept_missing=True)
        assert set(lines.wrong().values()) == {-1}


@pytest.mark.cell("E", "refused", "kafka")
def test_a_topic_that_was_created_again_between_two_runs_is_refused_and_then_a_choice(
    lines: Lines, broker: Broker, topic: str
) -> None:
    lines.run(epochs=3)
    broker.remove(topic)
    broker.make(topic)
    with pytest.raises(UsageError, match="was deleted and created again"):
        lines.resume()
    lines.resume(take_ownership=True)
    lines.resume()


@pytest.mark.parametrize(
    ("now", "problem"),
    [
        (Seen("a", {0: 7, 1: 3}), None),
        (Seen("a", {0: 9, 1: 3, 2: 0}), None),
        (Seen("a", {0: 6, 1: 3}), "lost the end of partition 0: it ended at 7, and ends at 6"),
        (Seen("a", {0: 7}), "lost the end of partition 1: it ended at 3, and ends at 0"),
        (Seen("b", {0: 7, 1: 3}), "was deleted and created again"),
        (None, "was deleted"),
    ],
)
@pytest.mark.fast(reason="starts no broker")
def test_a_topic_has_lost_records_if_an_end_is_lower_or_its_id_another(now: Seen | None, problem: str | None) -> None:
    assert how_changed(Seen("a", {0: 7, 1: 3}), now) == problem
