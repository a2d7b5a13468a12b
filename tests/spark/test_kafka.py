"""A query over a real broker of Kafka: what the broker is asked, what retention has taken, where a source is set to."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from abscli.cli.main import main
from tests.support.commands import result_of, run_command
from tests.support.kafka import Broker
from tests.support.schemas import checked
from tests.support.spark import cases
from tests.support.spark.data import copy_of, copy_of_running
from tests.support.spark.orders import go_on, with_connector

pytestmark = pytest.mark.minutes

TOPIC = "new-orders"


@pytest.fixture(scope="module")
def session(spark: Any, broker: Broker) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    session = with_connector(SparkSession(spark))
    cases.set_conf(session, {})
    yield session
    for key in cases.BASE:
        session.conf.unset(key)


@pytest.fixture(scope="module")
def made(session: Any, broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of a query that has read 60 records of one partition, numbered from 0, and 60 from 1000 on."""
    checkpoint = tmp_path_factory.mktemp("orders") / "checkpoint"
    broker.make(TOPIC)
    broker.send(TOPIC, {0: range(60), 1: range(1000, 1060)})
    assert sum(len(batch) for batch in go_on(session, broker, TOPIC, checkpoint).values()) == 120
    return checkpoint


@pytest.fixture
def own(made: Path, broker: Broker, tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Path, str]:
    """A copy of the checkpoint that goes on in a topic of its own, which has the same records, and the topic's name."""
    topic = "".join(c if c.isalnum() else "-" for c in request.node.name)
    broker.make(topic)
    broker.send(topic, {0: range(60), 1: range(1000, 1060)})
    checkpoint = Path(shutil.copytree(made, tmp_path / "own", ignore=shutil.ignore_patterns("*.crc")))
    for path in [*checkpoint.glob("offsets/[0-9]*"), *checkpoint.glob("sources/0/[0-9]*")]:
        path.write_text(path.read_text().replace(TOPIC, topic))
    return checkpoint, topic


def offsets(checkpoint: Path, batch: int) -> dict[str, int]:
    """Where the batch ended, by partition."""
    (topic,) = json.loads((checkpoint / f"offsets/{batch}").read_text().splitlines()[-1]).values()
    return dict(topic)


def newest(checkpoint: Path) -> int:
    return max(int(path.name) for path in checkpoint.glob("offsets/[0-9]*"))


# -- how far behind, and what is gone -------------------------------------------------------------------------


@pytest.mark.soak
def test_the_lag_of_every_batch_is_what_the_topic_has_beyond_it(
    made: Path, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    for batch in range(newest(made) + 1):
        page = result_of("inspect", capsys, f"{made}@{batch}", "--broker", broker.address)
        at = offsets(made, batch)
        assert {split["split"]: split["lag"] for split in page["splits"]} == {
            f"{TOPIC}-{partition}": 60 - offset for partition, offset in at.items()
        }
        assert (page["lag"], page["dropped"], page["gaps"]) == (120 - sum(at.values()), 0, 0)
    assert main(["validate", str(made), "--broker", broker.address, "-q"]) == 0


def test_a_partition_that_the_query_has_not_seen_is_new(
    own: tuple[Path, str], broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint, topic = own
    broker.widen(topic, 3)
    broker.send(topic, {2: range(7)})
    page = result_of("inspect", capsys, checkpoint, "--broker", broker.address)
    assert [(s["split"], s["offset"], s["lag"]) for s in page["splits"]][-1] == (f"{topic}-2", None, 7)


def test_what_retention_has_taken_is_counted_and_those_batches_are_not_gone_back_to(
    own: tuple[Path, str], session: Any, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint, topic = own
    at = offsets(checkpoint, 0)
    first = at["0"] + 4
    broker.drop(topic, {0: first})
    page = result_of("inspect", capsys, f"{checkpoint}@0", "--broker", broker.address)
    assert [(s["gap"], s["dropped"]) for s in page["splits"]] == [("dropped", 4), (None, 0)]
    code, out, _ = run_command("validate", capsys, checkpoint, "--broker", broker.address, "-o", "json")
    report = checked(out)
    assert code == 0, "the newest goes on"
    assert report["restorable"] == list(range(1, newest(checkpoint) + 1))
    (finding,) = report["epochs"][0]["findings"]
    assert (finding["code"], finding["task"]) == ("input-missing", "source-0/0")
    message = f"{topic}-0 resumes at {at['0']}, but the oldest offset is {first}: 4 records removed unread"
    assert finding["message"] == message
    # Spark agrees: from that batch it does not start, from the newest it does.
    back = checkpoint.parent / "back"
    assert main(["plan-recovery", f"{checkpoint}@0", "--out", str(back) + ".json", "-q"]) == 0
    assert main(["restore", str(back) + ".json", "--to", str(back), "-q"]) == 0
    with pytest.raises(Exception, match="STREAM_FAILED"):
        go_on(session, broker, topic, copy_of_running(back, Path(f"{back}-minds")))
    rest = [value for batch in go_on(session, broker, topic, back, failOnDataLoss="false").values() for value in batch]
    gone = {str(number) for number in range(at["0"], first)}
    assert {str(number) for number in (*range(at["0"], 60), *range(1000 + at["1"], 1060))} - set(rest) == gone
    broker.send(topic, {0: range(60, 65)})
    assert sum(len(batch) for batch in go_on(session, broker, topic, checkpoint).values()) == 5


def test_nothing_is_restorable_once_retention_itself_has_passed_the_newest_batch(
    own: tuple[Path, str], broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint, topic = own
    broker.send(topic, {0: range(9), 1: range(3)})
    broker.expire(topic)
    page = result_of("inspect", capsys, checkpoint, "--broker", broker.address)
    assert [(s["gap"], s["dropped"], s["lag"]) for s in page["splits"]] == [("dropped", 9, 9), ("dropped", 3, 3)]
    code, out, _ = run_command("validate", capsys, f"{checkpoint}@latest", "--broker", broker.address, "-o", "json")
    assert (code, checked(out)["restorable"]) == (3, [])
    code, out, _ = run_command("validate", capsys, checkpoint, "--broker", broker.address)
    assert (code, "input-missing" in out, "no batch can be restored" in out) == (3, True, True)
    code, out, _ = run_command("inspect", capsys, checkpoint, "--broker", broker.address)
    assert (code, "12 of them were removed" in " ".join(out.split())) == (0, True)


def test_a_topic_that_is_gone_or_made_anew_is_told_apart(
    own: tuple[Path, str], broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint, topic = own
    broker.remove(topic)
    page = result_of("inspect", capsys, checkpoint, "--broker", broker.address)
    assert [(s["gap"], s["end"], s["lag"]) for s in page["splits"]] == [("gone", None, None)] * 2
    broker.make(topic, 1)
    broker.send(topic, {0: range(5)})
    page = result_of("inspect", capsys, checkpoint, "--broker", broker.address)
    assert [(s["gap"], s["end"], s["lag"]) for s in page["splits"]] == [("ahead", 5, None), ("gone", None, None)]


# -- other places ---------------------------------------------------------------------------------------------


def test_a_query_goes_on_from_where_it_is_set_to_and_reads_just_what_the_plan_says(
    own: tuple[Path, str], session: Any, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint, topic = own
    broker.send(topic, {0: range(60, 80), 1: range(1060, 1080)})
    plan, copy = checkpoint.parent / "plan.json", checkpoint.parent / "copy"
    options = ["--set-offset", f"0:{topic}-0=55", "--set-offset", f"0:{topic}-1=67"]
    assert main(["plan-recovery", str(checkpoint), "--out", str(plan), *options]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "60 -> 55: up to 5 records are read twice" in text
    assert "60 -> 67: up to 7 records are skipped" in text
    assert main(["restore", str(plan), "--to", str(copy), "-q"]) == 0
    capsys.readouterr()
    lag = result_of("inspect", capsys, copy, "--broker", broker.address)
    assert [split["lag"] for split in lag["splits"]] == [25, 13]
    came: dict[str, int] = {}
    for batch in go_on(session, broker, topic, copy).values():
        came.update(batch)
    assert came == {
        **{str(n): 2 for n in range(55, 60)},  # read twice: the state has them already
        **{str(n): 1 for n in range(60, 80)},
        **{str(n): 1 for n in range(1067, 1080)},  # 1060 to 1066 are skipped
    }


def test_batches_are_compared_in_records(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    diff = result_of("diff", capsys, f"{made}@0", f"{made}@{newest(made)}")
    moved = {at["split"]: at["moved"]["records"] for at in diff["positions"]}
    assert moved == {f"{TOPIC}-{partition}": 60 - offset for partition, offset in offsets(made, 0).items()}


# -- what cannot be asked -------------------------------------------------------------------------------------


def test_a_broker_that_does_not_answer_is_named(
    made: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("formats.brokers.SECONDS", 1.0)
    code, out, err = run_command("inspect", capsys, made, "--broker", "127.0.0.1:1")
    assert (code, out, "127.0.0.1:1: no answer from the broker" in err) == (6, "", True)


def test_settings_of_the_client_come_from_a_file(
    made: Path, broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# as librdkafka has them\n\nsecurity.protocol = plaintext\n")
    options = ["--broker", broker.address, "--broker-config", file]
    assert result_of("inspect", capsys, made, *options)["gaps"] == 0
    for text, message in (("no.such=1\n", "no.such"), ("words\n", "line 1 of")):
        file.write_text(text)
        code, _, err = run_command("validate", capsys, made, *options)
        assert (code, message in err) == (2, True)


def test_options_that_mean_nothing_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                               monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    root = copy_of("wc_hdfs", tmp_path)
    for command in ("inspect", "validate"):
        code, _, err = run_command(command, capsys, root, "--broker", "127.0.0.1:1")
        assert (code, "has no source of Kafka" in " ".join(err.split())) == (2, True)
        code, _, err = run_command(command, capsys, root, "--broker-config", "x")
        assert (code, "goes with --broker" in err) == (2, True)
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    for path in root.glob("offsets/[0-9]*"):
        path.write_text("\n".join([*path.read_text().split("\n")[:2], '{"orders":{"0":1}}']))
    code, _, err = run_command("inspect", capsys, root, "--broker", "127.0.0.1:1")
    assert (code, "pip install 'confluent-kafka>=2.4'" in " ".join(err.split())) == (2, True)


def test_the_query_goes_on_in_a_recreated_topic_with_the_state_that_it_has(
    own: tuple[Path, str], session: Any, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the new topic there are 30 records in one partition and 10 in the other: fewer than the query had read."""
    checkpoint, topic = own
    broker.remove(topic)
    broker.make(topic)
    broker.send(topic, {0: [*range(20), *range(2000, 2010)], 1: range(3000, 3010)})
    with pytest.raises(Exception, match="STREAM_FAILED"):
        go_on(session, broker, topic, copy_of_running(checkpoint, checkpoint.parent / "fails"))
    plan, to = str(checkpoint.parent / "plan.json"), checkpoint.parent / "copy"
    assert main(["plan-recovery", str(checkpoint), "--recreated", "0", "--out", plan, "-q"]) == 0
    assert main(["restore", plan, "--to", str(to), "-q"]) == 0
    seen: dict[str, int] = {}
    for batch in go_on(session, broker, topic, to).values():
        seen |= batch
    again, new = range(20), [*range(2000, 2010), *range(3000, 3010)]
    assert seen == {str(number): 2 for number in again} | {str(number): 1 for number in new}
    assert main(["validate", str(to), "-q"]) == 0
