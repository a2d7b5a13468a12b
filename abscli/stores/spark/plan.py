"""Plans for Spark checkpoints: which batch to go back to, why not a newer one, and what a copy is made of."""

from __future__ import annotations

import os
import posixpath
import shlex
from collections.abc import Callable, Iterator, Sequence
from urllib.parse import unquote

from abscli.report.findings import HARMLESS, EpochReport, StoreReport
from abscli.stores.pinned import pin
from abscli.stores.spark.check import workers
from abscli.stores.spark.rewind import Rewind, rewind
from abscli.stores.spark.verdict import check_spark
from formats.errors import FormatError, NoRecovery
from formats.native.writer import now
from formats.plan import Plan
from formats.spark import layout
from formats.spark.gather import CheckpointEvidence, gather
from formats.spark.logs import log as logs
from formats.spark.logs.sources import is_file_source, parse_source
from formats.spark.plan import Again, InputFolder, Left, Moved, Newer, SparkPlan, Written
from formats.spark.store import SparkStore
from formats.storage import LocalStorage, absolute, walk
from formats.view import Status

NAMED = 20
"""Files that stay behind that a plan names for each reason."""
FOLDERS = 20
"""Folders of inputs that a plan names for each source."""

SYSTEM = "spark"


def plan_spark(
    store: SparkStore,
    *,
    batch: int | None = None,
    query_id: str | None = None,
    moves: Sequence[Moved] = (),
    next_as_before: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Plan[SparkPlan]:
    """Back to the newest batch from which a restart gives exact results, or to `batch`. Everything is checked first.

    query_id: of a checkpoint that lost it; moves: of inputs; next_as_before: keep the offsets of the batch after it;
    progress: told the bytes of state checked so far. NoRecovery, saying why; NotFound for a batch that is not there.
    """
    checkpoint = store.checkpoint
    evidence = gather(checkpoint, progress=progress, workers=workers(store, quick=False))
    report = check_spark(evidence)
    number = _chosen(store, report, batch)
    sizes = {path: size or 0 for path, size in walk(store.storage)}
    back = rewind(
        checkpoint, evidence, number,
        files=sorted(sizes), query_id=query_id, moves=moves, next_as_before=next_as_before,
    )  # fmt: skip
    own = [file.path for file in back.write if file.data is None]
    relies_on = tuple(pin(store.storage, path) for path in sorted([*back.keep, *own]))
    body = SparkPlan(
        query_id=checkpoint.query_id or query_id or "",
        batch=number,
        newest_begun=max(evidence.newest_begun, evidence.newest_commit),
        newest_committed=max(evidence.newest_commit, number),
        skipped=tuple(Newer(one.epoch, why_not(one, report)) for one in report.epochs if one.epoch > number),
        next_as_before=next_as_before,
        again=tuple(Again(*one) for one in back.replay),
        moved=tuple(moves),
        inputs=tuple(_inputs(store, evidence, number)),
        state_bytes=sum(sizes[path] for path in back.keep if path.startswith(f"{layout.STATE}/")),
        write=tuple(
            Written(file.path, file.why, None if file.data is None else file.data.decode()) for file in back.write
        ),
        left=tuple(_left(back, sizes)),
    )
    return Plan(system=SYSTEM, created=now(), store=absolute(store.path), body=body, relies_on=relies_on)


def _chosen(store: SparkStore, report: StoreReport, batch: int | None) -> int:
    newest = report.latest_restorable
    if batch is None:
        if newest is not None:
            return newest
        reasons = "; ".join(f"batch {one.epoch}: {why_not(one, report)}" for one in list(reversed(report.epochs))[:3])
        raise NoRecovery(
            f"no batch gives exact results ({reasons or 'none was begun'})",
            path=store.path,
            hint=f"`abs validate {shlex.quote(store.path)}` names every file; the query can start again with a new "
            "checkpointLocation",
        )
    asked = next((one for one in report.epochs if one.epoch == batch), None)
    if asked is None:
        raise store.no_epoch(batch)
    if batch in report.restorable:
        return batch
    hint = "`abs validate` names every file"
    if newest is not None:
        name = shlex.quote(f"{store.path}@{newest}")
        hint = f"batch {newest} is the newest that gives exact results: abs plan-recovery {name}"
    raise NoRecovery(f"batch {batch} does not give exact results: {why_not(asked, report)}", path=store.path, hint=hint)


def why_not(one: EpochReport, report: StoreReport) -> str:
    """Why a restart from a batch would not give exact results, in one line."""
    if one.epoch in report.restorable:
        return "it gives exact results, too, and was not asked for"
    wrong = [finding for finding in one.findings if finding.code not in HARMLESS]
    if wrong:
        first, more = wrong[0], len(wrong) - 1
        where = " ".join(part for part in (first.task and f"partition {first.task}", first.path) if part)
        return f"{where}: {first.message}" + (f" ({more} more)" if more else "")
    if one.verdict is Status.IN_PROGRESS:
        return "it was in flight and never committed"
    return one.reason or f"the offsets of batch {one.epoch - 1} cannot be read, and Spark does not start without"


def _left(back: Rewind, sizes: dict[str, int]) -> Iterator[Left]:
    by_reason: dict[str, list[str]] = {}
    for path, why in back.drop:
        by_reason.setdefault(why, []).append(path)
    for why, paths in by_reason.items():
        total = sum(sizes[path] for path in paths)
        named = (path.encode("utf-8", "backslashreplace").decode() for path in paths[:NAMED])  # names of any bytes
        yield Left(why, len(paths), total, tuple(named))


def _inputs(store: SparkStore, evidence: CheckpointEvidence, batch: int) -> Iterator[InputFolder]:
    """The folders that file sources have read up to a batch, and whether they are there: a query that does not find
    them where they were reads them again from wherever they are now, or does not start."""
    at = next(one for one in evidence.history if one.batch == batch)
    local = isinstance(store.storage, LocalStorage)
    for name, offset in (at.offsets.sources if at.offsets else {}).items():
        upto = is_file_source(offset)
        if upto is None:
            continue
        counts: dict[str, int] = {}
        folder = f"{layout.SOURCES}/{name}"
        single, compact = logs.entries(store.checkpoint.files(folder))
        base = max((n for n in compact if n <= upto), default=-1)
        for file in [*([compact[base]] if base >= 0 else []), *(f for n, f in single.items() if base < n <= upto)]:
            try:
                seen = parse_source(store.checkpoint.read(f"{folder}/{file}"), f"{folder}/{file}")
            except FormatError:
                continue
            for one in seen:
                place = posixpath.dirname(one.path)
                counts[place] = counts.get(place, 0) + 1
        for place, count in sorted(counts.items(), key=lambda item: -item[1])[:FOLDERS]:
            here = None
            if local and place.startswith("file:"):
                here = os.path.isdir(unquote("/" + place.removeprefix("file:").lstrip("/")))
            yield InputFolder(name, place, count, here)
