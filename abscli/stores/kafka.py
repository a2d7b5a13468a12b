"""What a broker of Kafka has of topics, asked of it, and a report held against that: a batch whose input is gone cannot
be gone back to, though nothing of its own files is lost."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from abscli.report.findings import Code, Finding, StoreReport
from abscli.stores.recovery import BadOption
from formats.errors import Damaged, FormatError, NotFound, Unreachable
from formats.ids import TaskId
from formats.kafka import Bounds, Place, Topics, lags, told
from formats.view import CheckpointStore

BrokerConfig = Mapping[str, str] | str | os.PathLike[str] | None
"""Settings of the client, or the file that has them."""
SECONDS: Final = 15.0
"""How long a broker may take to answer."""
HINT: Final = "pip install 'abscli[kafka]' (confluent-kafka)"
NAMED: Final = 3
"""Partitions that a finding names."""


def ask(broker: str, topics: Collection[str], config: Mapping[str, str]) -> Topics:
    """The oldest record and the end of every partition of these topics; a topic that is not there has none.

    broker: HOST:PORT, several with commas between; config: further settings of librdkafka, such as `sasl.username`.
    Unreachable if it does not answer, BadOption where the package is not there or a setting does not hold.
    """
    try:
        from confluent_kafka import KafkaException, TopicPartition
        from confluent_kafka.admin import AdminClient, OffsetSpec
    except ImportError:
        raise BadOption("--broker", f"a broker is asked by the package confluent-kafka: {HINT}") from None

    refused: list[str] = []
    own: dict[str, Any] = {
        **config, "bootstrap.servers": broker, "error_cb": lambda error: refused.append(error.str()),
        "log_level": 0,
    }  # fmt: skip
    try:
        admin = AdminClient(own)
    except KafkaException as error:
        raise BadOption("--broker-config", error.args[0].str()) from None
    try:
        # The list of all: to ask for one topic by name can make it, where brokers are set so.
        there = admin.list_topics(timeout=SECONDS).topics
        splits = [TopicPartition(name, number) for name in topics if name in there for number in there[name].partitions]
        ends = [
            {split: future.result().offset for split, future in asked.items()}
            for asked in (
                admin.list_offsets(dict.fromkeys(splits, spec), request_timeout=SECONDS) if splits else {}
                for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
            )
        ]
    except KafkaException as error:
        why = refused[-1] if refused else error.args[0].str()
        hint = "is it HOST:PORT of a broker, and does --broker-config say how it wants to be spoken to?"
        raise Unreachable(f"no answer from the broker: {why}", path=broker, hint=hint) from None
    bounds: dict[str, dict[int, Bounds]] = {}
    for split, earliest in ends[0].items():
        bounds.setdefault(split.topic, {})[split.partition] = Bounds(earliest, ends[1][split])
    return bounds


def settings(config: BrokerConfig) -> Mapping[str, str]:
    """Settings as they are, or from a file, `name=value` a line, `#` before a remark; NotFound, Damaged, BadOption."""
    if config is None or isinstance(config, Mapping):
        return config or {}
    path = os.fspath(config)
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise NotFound(f"cannot be read: {error.strerror}", path=path) from None
    except UnicodeDecodeError:
        raise Damaged("is not UTF-8 text", path=path) from None
    read = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise BadOption("--broker-config", f"line {number} of {path} is not name=value")
        read[name.strip()] = value.strip()
    return read


def places_of(store: CheckpointStore, epoch: int) -> list[Place]:
    """Where the sources of Kafka go on after an epoch; BadOption if it has none."""
    places = store.kafka(epoch)
    if not places:
        raise BadOption("--broker", f"epoch {epoch} of {store.path} has no source of Kafka whose places are known")
    return places


def topics_of(store: CheckpointStore, report: StoreReport) -> set[str]:
    """The topics that restorable epochs go on with; BadOption if there are epochs and none has a source of Kafka."""
    topics = {place.topic for epoch in report.restorable for place in _places(store, epoch)}
    if not topics and report.restorable:
        raise BadOption("--broker", f"{store.path} has no source of Kafka whose places are known")
    return topics


def held_against(report: StoreReport, store: CheckpointStore, topics: Topics) -> StoreReport:
    """The report without those of its restorable epochs that would go on with records that the broker has no more."""
    epochs, kept = [], set(report.restorable)
    for one in report.epochs:
        if one.epoch in kept and (findings := list(_findings(_places(store, one.epoch), topics))):
            kept.discard(one.epoch)
            reason = "records that come next in its input are gone: a restart fails, or goes on without them"
            one = msgspec.structs.replace(one, findings=(*one.findings, *findings), reason=reason)
        epochs.append(one)
    return msgspec.structs.replace(
        report, epochs=tuple(epochs), restorable=tuple(epoch for epoch in report.restorable if epoch in kept)
    )


def _places(store: CheckpointStore, epoch: int) -> list[Place]:
    """None of an epoch whose files do not say: its report does."""
    try:
        return store.kafka(epoch)
    except FormatError:
        return []


def _findings(places: Iterable[Place], topics: Topics) -> Iterable[Finding]:
    """One for each source: its partitions go the same way, and there may be many."""
    by_operator: dict[str, list[str]] = {}
    for lag in lags(places, topics):
        if lag.gap is not None:
            by_operator.setdefault(lag.operator, []).append(f"{lag.split} {told(lag)}")
    for operator, wrong in by_operator.items():
        more = f"; so do {len(wrong) - NAMED} more partitions" if len(wrong) > NAMED else ""
        yield Finding(Code.INPUT_LOST, TaskId(operator, 0), None, None, "; ".join(wrong[:NAMED]) + more)
