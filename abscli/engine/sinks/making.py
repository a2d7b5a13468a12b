"""A sink's task, of whichever type and place."""

from __future__ import annotations

import functools
from collections.abc import Callable

from abscli.engine.postgres.database import Table
from abscli.engine.sinks.bucket_sinks import BucketSink
from abscli.engine.sinks.contract import Sink
from abscli.engine.sinks.delivered.targets import target_of, title_of
from abscli.engine.sinks.folder_sinks import FolderSink
from abscli.engine.sinks.part_files import PART_FILES
from abscli.engine.sinks.places import folder_of
from abscli.engine.sinks.postgres.sink import PostgresSink
from abscli.engine.sinks.postgres.values import ColumnCheck, CopyPart
from abscli.engine.sinks.staged.sink import WRITTEN_AS, NewPart, StagedSink, Staging
from abscli.engine.sinks.staged.trial import Trial
from formats.job.model import Operator
from formats.job.promises import is_staged, prepares_rows
from formats.native.sink_bucket import is_bucket
from formats.storage import Storage


def make_sink(
    operator: Operator, index: int, directory: str, attempt: str, may_show: Callable[[], None], *,
    job: str, storage: Storage, sinks_in: str | None = None,
) -> Sink:  # fmt: skip
    """The task of a sink. job: its name. storage: the store. sinks_in: as of `abscli.engine.job.JobOptions`."""
    if sinks_in is None and is_staged(operator):
        trial = Trial(lambda: target_of(operator, job, directory))
        staging = Staging(storage, title_of(operator), trial, _new_part(operator))
        return StagedSink(operator, index, attempt, may_show, staging=staging)
    if sinks_in is None and prepares_rows(operator):
        return PostgresSink(operator, index, attempt, may_show, job=job)
    place = folder_of(operator, directory, sinks_in)
    if is_bucket(place):
        return BucketSink(operator, index, place, attempt, may_show)
    return FolderSink(operator, index, directory, attempt, may_show, sinks_in=sinks_in)


def _new_part(operator: Operator) -> NewPart:
    """Return how a staged sink writes its rows."""
    type = (operator.connector or {})["type"]
    if type == "postgres":
        return functools.partial(CopyPart, check=ColumnCheck(Table.of(operator)))
    return PART_FILES[WRITTEN_AS[type]]
