"""Where a sink writes."""

from __future__ import annotations

import os

from formats.job.model import Operator
from formats.native.sink_bucket import bucket_place, is_bucket


def folder_of(operator: Operator, directory: str, sinks_in: str | None = None) -> str:
    """Where a sink writes, a folder or a place in a bucket. directory: of the job file; sinks_in: a folder with one for
    each sink, in place of it."""
    assert operator.connector is not None
    return place_of(directory, operator.connector["path"]) if sinks_in is None else os.path.join(sinks_in, operator.id)


def place_of(directory: str, path: str) -> str:
    """Where a sink's path leads. directory: of the job file."""
    return bucket_place(path) if is_bucket(path) else os.path.normpath(os.path.join(directory, path))
