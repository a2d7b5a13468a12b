"""What a broker of Kafka has of topics, asked of it, and a report held against that: a batch whose input is gone cannot
be gone back to, though nothing of its own files is lost."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from abscli.report.findings import Code, Finding, StoreReport
from abscli.stores.recovery import BadOption
from formats.brokers import BadSetting, Brokers
from formats.brokers import settings as read_settings
from formats.errors import FormatError, Unreachable
from formats.ids import TaskId
from formats.kafka import Place, Topics, lags, told
from formats.view import CheckpointStore

BrokerConfig = Mapping[str, str] | str | os.PathLike[str] | None
"""Settings of the client, or the file that has them."""
NAMED: Final = 3
"""Partitions that a finding names."""


def ask(broker: str, topics: Collection[str], config: Mapping[str, str]) -> Topics:
    """The oldest record and the end of every partition of these topics; a topic that is not there has none.

    broker: HOST:PORT, several with commas between; config: further settings of librdkafka, such as `sasl.username`.
    Raises Unreachable if the broker does not answer, MissingPackage without confluent-kafka, BadOption for a setting
    that is invalid.
    """
    try:
        return Brokers(broker, config).topics(topics)
    except BadSetting as error:
        raise BadOption("--broker-config", str(error)) from None
    except Unreachable as error:
        hint = "is it HOST:PORT of a broker, and does --broker-config have its security settings?"
        raise Unreachable(error.message, path=broker, hint=hint) from None


def settings(config: BrokerConfig) -> Mapping[str, str]:
    """Settings as they are, or from a file, `name=value` a line, `#` before a remark; NotFound, Damaged, BadOption."""
    if config is None or isinstance(config, Mapping):
        return config or {}
    try:
        return read_settings(config)
    except BadSetting as error:
        raise BadOption("--broker-config", str(error)) from None


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
            reason = "the next records of its input were removed: a restart fails, or resumes without them"
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
        yield Finding(Code.INPUT_MISSING, TaskId(operator, 0), None, None, "; ".join(wrong[:NAMED]) + more)
