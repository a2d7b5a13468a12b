"""The files of a source."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable

from abscli.engine.errors import UsageError
from formats.errors import UnsafePath
from formats.job.model import Operator
from formats.view import Position


def matching(operator: Operator, directory: str) -> list[str]:
    """The files that match its path, sorted, relative to the job file."""
    assert operator.connector is not None
    return sorted(
        path
        for path in glob.glob(operator.connector["path"], root_dir=directory, recursive=True)
        if os.path.isfile(os.path.join(directory, path))
    )


def find_splits(operator: Operator, directory: str) -> list[str]:
    """All splits of a file source, sorted by path, relative to the job file; UsageError if there is none."""
    assert operator.connector is not None
    pattern = operator.connector["path"]
    splits = matching(operator, directory)
    if not splits:
        hint = f"looked in {directory}"
        if os.path.isdir(os.path.join(directory, pattern)):
            hint += f"; it is a directory there: name its files, such as {os.path.join(pattern, '*')}"
        raise UsageError(f"operator {operator.id}: no file matches {pattern!r}", hint=hint)
    return splits


def refuse_strangers(operator: Operator, directory: str, positions: Iterable[Position]) -> None:
    """UnsafePath for a split that a store names and the job's source does not: a store must not choose what is read."""
    assert operator.connector is not None
    pattern = operator.connector["path"]
    own = set(glob.glob(pattern, root_dir=directory, recursive=True))
    for position in positions:
        path = os.path.join(directory, position.split)
        if position.split not in own and os.path.lexists(path):  # a file that is gone is told when it is opened
            raise UnsafePath(
                f"the epoch has a position in it, and the source {operator.id} of the job file, {pattern!r}, does not "
                "name it",
                path=path,
                hint="give the source the path that it had; if it has not changed, do not trust this store",
            )
