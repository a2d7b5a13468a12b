"""The target of a sink to which the driver delivers rows, by its type."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from abscli.engine.postgres.database import Table
from abscli.engine.sinks.delivered.renamed import Renamed
from abscli.engine.sinks.iceberg.place import TablePlace
from abscli.engine.sinks.iceberg.table import IcebergTable
from abscli.engine.sinks.kafka.topic import KafkaTopic
from abscli.engine.sinks.places import place_of
from abscli.engine.sinks.postgres.append import AppendedTable
from abscli.engine.sinks.postgres.upsert import UpsertedTable
from abscli.engine.sinks.staged.contract import Target
from abscli.engine.sinks.staged.delta import DeltaSink
from abscli.engine.sinks.staged.extras import require_package
from abscli.engine.sinks.staged.printed import Printed
from formats.job.kafka import Topic
from formats.job.model import Operator
from formats.job.promises import prepares_rows


def title_of(operator: Operator) -> str:
    """What facts call the target of a sink."""
    if _type(operator) == "stdout":
        return "stdout"
    if _type(operator) == "delta":
        path: str = (operator.connector or {})["path"]
        return path
    if _type(operator) == "iceberg":
        return TablePlace.of(operator, "").title
    if _type(operator) == "kafka":
        return f"kafka:{Topic.of(operator).name}"
    return Table.of(operator).place


def target_of(operator: Operator, job: str, directory: str, ids: Sequence[str] = ()) -> Target:
    """job: its name; directory: of the job file. ids: of the sink, as of `ids_of`, where it may have had others.
    UsageError where its package is not installed."""
    require_package(operator)
    if len(ids) > 1 and marks_by_id(operator):
        return Renamed([target_of(msgspec.structs.replace(operator, id=id), job, directory) for id in ids])
    if _type(operator) == "stdout":
        return Printed(operator)
    if _type(operator) == "delta":
        return DeltaSink(operator.id, place_of(directory, (operator.connector or {})["path"]), job)
    if _type(operator) == "iceberg":
        return IcebergTable(operator, directory, job)
    if _type(operator) == "kafka":
        return KafkaTopic(operator, directory, job)
    if prepares_rows(operator):
        return AppendedTable(Table.of(operator), job)
    return UpsertedTable(Table.of(operator), (operator.connector or {})["key"], job)


def marks_by_id(operator: Operator) -> bool:
    """Whether a sink that has another id finds what was marked under the old one only by that: a database has one table
    of epochs for all."""
    return _type(operator) != "postgres"


def folder_of_target(operator: Operator, directory: str) -> str | None:
    """Where a target lies that is a folder or a place in a bucket; None of others."""
    if _type(operator) == "delta":
        return place_of(directory, (operator.connector or {})["path"])
    return TablePlace.of(operator, directory).folder if _type(operator) == "iceberg" else None


def _type(operator: Operator) -> str:
    type: str = (operator.connector or {})["type"]
    return type
