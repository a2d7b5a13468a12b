"""The one table of systems, and what follows from it: whose store lies at a path, and what may be asked of it."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from abscli.stores.base import System, meaningless
from abscli.stores.flink.system import Flink
from abscli.stores.foreign import refuse_foreign, refuse_foreign_file
from abscli.stores.native.system import Native
from abscli.stores.spark.system import Spark
from formats.errors import FormatError, NotFound, OtherFormat
from formats.reference import NOTHING, ReadOptions

if TYPE_CHECKING:
    from formats.job.file import Check, Job
    from formats.job.model import Topology
    from formats.storage import Storage
    from formats.view import CheckpointStore

SYSTEMS: tuple[System, ...] = (Native(), Flink(), Spark())
"""In the order in which they are tried."""

NAMED = 3
"""Stores nearby that an error names."""
LOOKED_AT = 100
"""Directories below that are looked into for them."""


def system_named(name: str) -> System:
    """The system of this name; OtherFormat for one that this version does not read."""
    for system in SYSTEMS:
        if system.name == name:
            return system
    names = ", ".join(system.name for system in SYSTEMS)
    raise OtherFormat(f"{name!r} is not a format that this version reads; it reads {names}")


def system_of(store: CheckpointStore) -> System:
    """The system that an open store is of."""
    return system_named(store.format)


def storage_at(path: str) -> Storage:
    """Where a store lies that is named by its path, or by a file inside it as people of its system do."""
    from formats.storage import open_storage

    for system in SYSTEMS:
        for file in system.inside:
            path = path.removesuffix(f"/{file}")
    return open_storage(path)


def recognise(storage: Storage, wanted: str | None = None) -> System:
    """The system of the store that lies there, or the one called `wanted` without a look.

    NotFound, saying what was looked for, if there is none.
    """
    if wanted is not None:
        return system_named(wanted)
    for system in SYSTEMS:
        if system.recognise(storage):
            return system
    looked = "; ".join(f"{system.name}: {system.words.looked_for}" for system in SYSTEMS)
    raise NotFound(
        f"no store here; looked for {looked}", path=storage.root,
        hint="use --format to specify the format of a damaged store",
    )


def locate(path: str, format: str | None = None) -> tuple[System, Storage]:
    """Whose store lies at a path, of the format that is recognised or named; NotFound if there is none, with those
    nearby."""
    refuse_foreign_file(path)
    storage = storage_at(path)
    if "://" in storage.root:
        from abscli.stores.copying.claims import refuse_unfinished

        refuse_unfinished(storage)
    try:
        return recognise(storage, format), storage
    except NotFound as error:
        refuse_foreign(storage)
        if stores := list(itertools.islice(_near(storage), NAMED)):
            raise NotFound(error.message, path=error.path, hint="pass the path of a store, such as "
                f"{' or '.join(stores)}") from None
        raise


def open_store(path: str, format: str | None = None, options: ReadOptions = NOTHING) -> CheckpointStore:
    """The store at a path, opened; see `locate`.

    OtherFormat for an option that the system has no use for.
    """
    system, storage = locate(path, format)
    check_options(system, options.given(), storage.root)
    return system.open(storage, options)


def check_options(system: System, given: Mapping[str, object], path: str) -> None:
    """OtherFormat for an option that was given and that the system has no use for."""
    for name, value in given.items():
        if value and name not in system.options:
            others = [other for other in SYSTEMS if name in other.options]
            raise meaningless(f"--{name.replace('_', '-')}", system, others, path)


def _near(storage: Storage) -> Iterator[str]:
    """Stores right above a directory that is none, or right below it."""
    from pathlib import Path

    from formats.storage import LocalStorage

    if not isinstance(storage, LocalStorage):
        return
    root = Path(storage.root)
    below = [root / entry.name for entry in storage.list("")[:LOOKED_AT] if entry.size is None]
    for place in (root.parent, root.parent.parent, *below):
        with contextlib.suppress(FormatError, OSError):
            near = LocalStorage(place)
            if any(system.recognise(near) for system in SYSTEMS):
                yield str(place)


def foreign_graph(data: bytes, file: str) -> tuple[System, Topology] | None:
    """The graph of a job as a system describes it in a file of its own; None for a topology file."""
    for system in SYSTEMS:
        if (graph := system.job_graph(data, file)) is not None:
            return system, graph
    return None


def parse_job(path: str, check: Check | None = None, *, must_check: bool = True) -> Job:
    """Read a job from its file, or from another system's description of a job. A Python file is imported.

    check: finds what else is wrong with a job file.
    must_check: whether another system's description, which cannot be checked, is refused with OtherFormat.
    """
    from abscli.jobs.files import is_python, read_job
    from formats.bounds import read_user_file
    from formats.job.changes import NO_CHANGES
    from formats.job.file import MAX_BYTES, Job, parse_job_bytes

    if is_python(path):
        return read_job(path, check)
    data = read_user_file(path, MAX_BYTES, hint="pass a job file: YAML, JSON or Python")
    if (foreign := foreign_graph(data, path)) is None:
        return parse_job_bytes(data, path, check)
    if check is not None and must_check:
        title = foreign[0].words.title
        message = f"this is {title}'s plan of a job, which {title} runs; --check is of a topology file"
        raise OtherFormat(message, path=path)
    return Job(foreign[1], NO_CHANGES)
