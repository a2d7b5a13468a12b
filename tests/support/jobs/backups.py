"""Back up the target of the job of lines and restore it, as an operator does with a database, a table or a folder."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable

from formats.storage import open_writable, walk
from tests.support.jobs.kinds import TABLES
from tests.support.jobs.lines import Lines, copy_while_it_changes
from tests.support.postgres import execute

FOLDERS = {"jsonl": "{out}", "delta": "{out}", "iceberg": "lake"}
"""Folder of the target by type of sink, relative to the folder of the job."""
MARKER_TABLES = ("abs_epochs", "abs_writers")
BACKED_UP = (*FOLDERS, "bucket", *TABLES)
"""Kinds of sinks whose target has backups."""


def back_up(lines: Lines) -> Callable[[], None]:
    """Back the target up as it is now; return the function that puts the backup back, as often as one likes."""
    if "://" in lines.out:
        return _back_up_bucket(lines)
    return _back_up_tables(lines) if lines.type in TABLES else _back_up_folder(lines)


def _back_up_bucket(lines: Lines) -> Callable[[], None]:
    place = open_writable(lines.out)
    kept = {entry.name: place.read(entry.name) for entry in walk(place)}

    def put_back() -> None:
        for name in {entry.name for entry in walk(place)} - kept.keys():
            place.delete(name)
        for name, data in kept.items():
            place.put(name, data, replace=True)

    return put_back


def _back_up_folder(lines: Lines) -> Callable[[], None]:
    place = lines.folder / FOLDERS[lines.type].format(out=lines.out)
    kept = lines.folder / f"backup-{uuid.uuid4().hex}"
    copy_while_it_changes(place, kept)

    def put_back() -> None:
        place.rename(lines.folder / f"replaced-{uuid.uuid4().hex}")  # in one step: a job may be writing there
        shutil.copytree(kept, place)

    return put_back


def _back_up_tables(lines: Lines) -> Callable[[], None]:
    url, number = os.environ["LINES_DATABASE"], uuid.uuid4().hex[:8]
    tables = (lines.out, *([f"{lines.out}_written"] if lines.type == "upsert" else []), *MARKER_TABLES)
    execute(url, *(f"create table {name}_{number} as select * from {name}" for name in tables))

    def put_back() -> None:
        execute(  # without locks on whole tables, which a job that runs holds as well
            url, "set session_replication_role = replica", *(f"delete from {name}" for name in tables),
            *(f"insert into {name} select * from {name}_{number}" for name in tables),
        )  # fmt: skip

    return put_back
