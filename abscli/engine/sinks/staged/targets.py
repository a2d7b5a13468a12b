"""The target of a sink whose rows are staged in the store, by its type."""

from __future__ import annotations

from abscli.engine.postgres.database import Table
from abscli.engine.sinks.kafka.topic import KafkaTopic
from abscli.engine.sinks.places import place_of
from abscli.engine.sinks.postgres.upsert import UpsertedTable
from abscli.engine.sinks.staged.contract import Target
from abscli.engine.sinks.staged.delta import DeltaSink
from abscli.engine.sinks.staged.printed import Printed
from formats.job.kafka import Topic
from formats.job.model import Operator


def title_of(operator: Operator) -> str:
    """What facts call the target of a sink."""
    if _type(operator) == "stdout":
        return "stdout"
    if _type(operator) == "delta":
        path: str = (operator.connector or {})["path"]
        return path
    if _type(operator) == "kafka":
        return f"kafka:{Topic.of(operator).name}"
    return f"postgres:{Table.of(operator).title}"


def target_of(operator: Operator, job: str, directory: str) -> Target:
    """job: its name; directory: of the job file."""
    if _type(operator) == "stdout":
        return Printed(operator)
    if _type(operator) == "delta":
        return DeltaSink(operator.id, place_of(directory, (operator.connector or {})["path"]), job)
    if _type(operator) == "kafka":
        return KafkaTopic(operator, directory, job)
    return UpsertedTable(Table.of(operator), (operator.connector or {})["key"], job)


def _type(operator: Operator) -> str:
    type: str = (operator.connector or {})["type"]
    return type
