"""The log of a file sink, planned for and written as a copy: the output itself is only looked at."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Set
from typing import Any
from urllib.parse import unquote

from abscli.stores.copying import NewCopy
from abscli.stores.pinned import check_files, pin, stale
from abscli.stores.spark.sink import back_to
from formats.errors import NoRecovery, NotFound
from formats.plan import PinnedFile, Plan
from formats.spark.logs.sink_log import FOLDER, WHICH_OUTPUT, output_files, read_sink
from formats.spark.logs.sources import SinkFile
from formats.spark.plan import SinkPlan, SparkPlan, Written
from formats.storage import LocalStorage, Storage, absolute, local_name, open_storage

NAMED = 20
"""Files of the output that are not there which a plan names."""


SILENT = "the batch only repartitioned state, and wrote no entry: Spark does not read a log that lacks one"


def _number(name: str) -> int:
    """The batch of an entry of the log."""
    return int(name.partition(".")[0])


def log_folders(sink: SinkPlan | None) -> list[str]:
    """Where the log of a plan's sink lies: a copy that was made in it would be taken for an entry by the query that
    writes it."""
    return [] if sink is None else [posixpath.join(local_name(sink.output), FOLDER)]


def plan_sink(output: str, batch: int, newest_begun: int, silent: Set[int]) -> SinkPlan:
    """What the log at an output is made of that ends with a batch. NotFound, NoRecovery.

    newest_begun: of the checkpoint: a sink that has later batches is another query's.
    silent: batches that only repartition state, and that no sink sees.
    """
    try:
        storage = open_storage(output)
    except NotFound:
        raise NotFound("no such directory", path=output, hint=WHICH_OUTPUT) from None
    log = read_sink(storage)
    if log.newest > newest_begun:
        raise NoRecovery(
            f"its log contains batch {log.newest}, but the newest batch of the checkpoint is {newest_begun}: the sink "
            "belongs to another query, or the checkpoint is older than the sink",
            path=output, hint="specify the output of this query with --sink",
        )  # fmt: skip
    back = back_to(log, batch, silent)
    files, later = output_files(back.lines), output_files(back.later)
    return SinkPlan(
        output=absolute(output),
        newest=log.newest,
        files=len(files),
        bytes=sum(file.size or 0 for file in files),
        later_files=len(later),
        later_bytes=sum(file.size or 0 for file in later),
        missing=tuple(_missing(storage, files)),
        write=tuple(
            Written(name, log.damaged.get(name, SILENT if _number(name) in silent else "is not there"), data.decode())
            for name, data in sorted(back.write.items())
        ),
        relies_on=tuple(pin(storage, f"{FOLDER}/{name}") for name in back.keep),
    )


def _missing(storage: Storage, files: list[SinkFile]) -> list[str]:
    """Files of the output that are not there, or not of their size; files elsewhere are not looked for."""
    if not isinstance(storage, LocalStorage):
        return []
    below = storage.root.rstrip("/") + "/"
    folders: dict[str, Mapping[str, int | None]] = {}
    out = []
    for file in files:
        place = re.sub("^file:/+", "/", unquote(file.path))
        if not place.startswith(below):
            continue
        folder, name = posixpath.split(place.removeprefix(below))
        if folder not in folders:
            folders[folder] = {entry.name: entry.size for entry in storage.list(folder)}
        if folders[folder].get(name) != file.size:
            out.append(file.path)
            if len(out) == NAMED:
                break
    return out


def check_sink(plan: Plan[SparkPlan], sink: SinkPlan) -> None:
    """StalePlan unless the log is as it was."""
    storage = open_storage(sink.output)
    try:
        newest = read_sink(storage).newest
    except NotFound:
        raise stale(plan, f"{sink.output} has no {FOLDER} any more") from None
    if newest != sink.newest:
        change = f"the newest batch of the sink's log was {sink.newest} when it was made and is {newest}"
        raise stale(plan, f"{change}: stop the query first")
    check_files(_about(plan, sink), storage)


def counts_of(sink: SinkPlan) -> str:
    """The entry that a reader of the log begins with: it reads none of the others without."""
    return min(_entries(sink), key=_number, default="0")


def _entries(sink: SinkPlan) -> dict[str, PinnedFile | Written]:
    """The entries of the copy, by name."""
    return {**{pinned.path.removeprefix(f"{FOLDER}/"): pinned for pinned in sink.relies_on},
            **{file.path: file for file in sink.write}}  # fmt: skip


def write_sink(plan: Plan[SparkPlan], sink: SinkPlan, copy: NewCopy) -> None:
    """Write the log into a copy, the newest entry first, and read it again; StalePlan, NoRecovery."""
    storage = open_storage(sink.output)
    about = _about(plan, sink)
    for name, entry in sorted(_entries(sink).items(), key=lambda item: -_number(item[0])):
        if isinstance(entry, Written):
            copy.write(name, (entry.text or "").encode())
        else:
            copy.copy(storage, entry.path, name, pinned=(about, entry))
    copy.settle()
    back = back_to(read_sink(copy.reading, ""), plan.body.batch)
    if back.write or back.later or len(output_files(back.lines)) != sink.files:
        raise NoRecovery("the copy of the sink's log does not read as it was planned", path=sink.output)


def _about(plan: Plan[SparkPlan], sink: SinkPlan) -> Plan[Any]:
    """The plan with what it relies on of the sink."""
    return Plan(system=plan.system, created=plan.created, store=plan.store, body=plan.body, relies_on=sink.relies_on)
