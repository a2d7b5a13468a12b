"""The files of a source."""

from __future__ import annotations

import os
from collections.abc import Iterable

from abscli.engine.errors import UsageError
from abscli.engine.sources.files.input_files import fitting, is_uri, matching_files, path_of
from formats.errors import UnsafePath
from formats.job.model import Operator
from formats.view import Position


def matching(operator: Operator, directory: str) -> list[str]:
    """The files that match its path, sorted: relative to the job file, or URIs."""
    assert operator.connector is not None
    return list(matching_files(operator.connector["path"], directory))


def find_splits(operator: Operator, directory: str) -> list[str]:
    """All splits of a file source, as of `matching`; UsageError if there is none."""
    assert operator.connector is not None
    pattern = operator.connector["path"]
    splits = matching(operator, directory)
    if not splits:
        hint = "check that objects with this prefix exist" if is_uri(pattern) else f"looked in {directory}"
        if not is_uri(pattern) and os.path.isdir(os.path.join(directory, pattern)):
            hint += f"; {pattern} is a directory: specify its files, such as {os.path.join(pattern, '*')}"
        raise UsageError(f"operator {operator.id}: no file matches {pattern!r}", hint=hint)
    return splits


def refuse_strangers(operator: Operator, directory: str, positions: Iterable[Position]) -> None:
    """UnsafePath for a split that a store names and the job's source does not: a store must not choose what is read."""
    assert operator.connector is not None
    pattern = operator.connector["path"]
    splits = [position.split for position in positions]
    own = fitting(splits, pattern, directory)
    for split in splits:
        path = path_of(directory, split)
        # A file that is gone is told when it is opened; servers that a store names are asked nothing.
        if split not in own and (is_uri(path) or os.path.lexists(path)):
            raise UnsafePath(
                f"the epoch has a read position in this file, but the path of source {operator.id} in the job file, "
                f"{pattern!r}, does not match the file",
                path=path,
                hint="if you changed the path of the source, change it back; otherwise do not use this store: it may "
                "have been tampered with",
            )
