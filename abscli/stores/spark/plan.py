"""Plans for Spark checkpoints: which batch to go back to, why not a newer one, and what a copy is made of."""

from __future__ import annotations

import os
import posixpath
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import unquote

import msgspec

from abscli.report.findings import HARMLESS, EpochReport, StoreReport
from abscli.stores.pinned import pin
from abscli.stores.reasons import NoPlan
from abscli.stores.spark.check import workers
from abscli.stores.spark.late_rows import late_rows
from abscli.stores.spark.naming import check_names, named
from abscli.stores.spark.put_back import SUPERFLUOUS, Arranged, put_back, schemas_back
from abscli.stores.spark.rewind import Rewind, rewind
from abscli.stores.spark.sink_copy import plan_sink
from abscli.stores.spark.verdict import check_spark
from formats.errors import FormatError, NoRecovery
from formats.plan import Plan
from formats.spark import layout
from formats.spark.evidence.gathering import CheckpointEvidence, gather
from formats.spark.logs import log as logs
from formats.spark.logs import places
from formats.spark.logs.places import is_file_source, kind_of
from formats.spark.logs.repartitions import repartitions
from formats.spark.logs.sources import parse_source
from formats.spark.plan import (
    Again,
    InputFolder,
    Left,
    Moved,
    Newer,
    PutBack,
    SetPosition,
    SourceName,
    SparkPlan,
    Undone,
    Written,
)
from formats.spark.store import SparkStore
from formats.storage import LocalStorage, Storage, absolute, walk
from formats.timestamps import now
from formats.view import Status

NAMED = 20
"""Files that stay behind that a plan names for each reason."""
RIGHT_TOO = "its place is right as well"
NAMED_SO = "what a source keeps for itself lies under its name"
FOLDERS = 20
"""Folders of inputs that a plan names for each source."""

SYSTEM = "spark"
SETTABLE = ("Kafka's TOPIC-PARTITION", "version of a Delta table")
"""Splits of sources for `positions`."""


def plan_spark(
    store: SparkStore,
    *,
    batch: int | None = None,
    query_id: str | None = None,
    moves: Sequence[Moved] = (),
    next_as_before: bool = False,
    positions: Sequence[tuple[str, str, int]] = (),
    recreated: Mapping[str, str | None] = MappingProxyType({}),
    sink: str | None = None,
    names: Mapping[str, str] = MappingProxyType({}),
    progress: Callable[[int], None] | None = None,
) -> Plan[SparkPlan] | NoPlan:
    """Back to the newest batch from which a restart gives exact results, or to `batch`; or why not. Everything is
    checked first.

    query_id: of a checkpoint that lost it; moves: of inputs; next_as_before: keep the offsets of the batch after it;
    positions: source, split and where the source goes on in it;
    recreated: sources whose topic or table is another one of the same name, with the id of a Delta table;
    sink: the output of a file sink, whose log goes back as well; names: what sources are called in the copy;
    progress: told the bytes of state checked so far.
    NotFound for a batch that is not there, or an output without such a log.
    """
    seen = _best(store, batch, progress)
    evidence, report, arranged = seen.evidence, seen.report, seen.arranged
    number = _chosen(store, report, batch)
    if isinstance(number, NoPlan):
        return number
    view = seen.store
    placed = _placed(evidence, number, positions, recreated)
    if isinstance(placed, NoPlan):
        return placed
    refused = _refused_names(evidence, number, names)
    if refused is not None:
        return refused
    sizes = {path: size or 0 for path, size in walk(view.storage)}
    try:
        back = rewind(
            view.checkpoint, evidence, number,
            files=sorted(sizes), query_id=query_id, moves=moves, next_as_before=next_as_before,
            positions=placed,
        )  # fmt: skip
        back = named(view.checkpoint, back, names) if names else back
        sink_back = None
        if sink is not None:
            sink_back = plan_sink(sink, number, max(evidence.newest_begun, number), repartitions(evidence).keys())
    except NoRecovery as error:  # the checks do not ask for all that a copy needs: it shows when it is put together
        return NoPlan.of(error)
    own = [file.path for file in back.write if file.data is None]
    copies: dict[str, list[str]] = {}
    for path in [*back.keep, *own]:
        source = back.moved.get(path, path)
        copies.setdefault(arranged.moved.get(source, source), []).append(path)
    relies_on = tuple(pin(store.storage, path) for path in sorted(copies))
    body = SparkPlan(
        query_id=view.checkpoint.query_id or query_id or "",
        batch=number,
        newest_started=max(evidence.newest_begun, evidence.newest_commit),
        newest_committed=max(evidence.newest_commit, number),
        skipped=tuple(Newer(one.epoch, why_not(one, report)) for one in report.epochs if one.epoch > number),
        next_batch_unchanged=next_as_before,
        replayed=tuple(Again(*one) for one in back.replay),
        moved=tuple(moves),
        inputs=tuple(_inputs(view, evidence, number, local=isinstance(store.storage, LocalStorage))),
        state_bytes=sum(sizes[path] for path in back.keep if path.startswith(f"{layout.STATE}/")),
        write=tuple(
            Written(file.path, file.why, None if file.data is None else file.data.decode()) for file in back.write
        ),
        positions=placed,
        excluded=tuple(_left(back, sizes, arranged, store.storage)),
        reverted_repartitions=tuple(
            Undone(move.batch, move.before or 0, move.after or 0)
            for move in repartitions(evidence).values()
            if move.batch > number
        ),
        renamed_sources=tuple(SourceName(*one) for one in names.items()),
        restored_files=tuple(
            PutBack(path, source, arranged.why.get(path, NAMED_SO if path in back.moved else RIGHT_TOO))
            for source, paths in sorted(copies.items())
            for path in sorted(paths)
            if paths != [source]
        ),
        sink=sink_back,
        late_rows=late_rows(evidence, number, unchanged=next_as_before),
    )
    return Plan(system=SYSTEM, created=now(), store=absolute(store.path), body=body, relies_on=relies_on)


def _placed(
    evidence: CheckpointEvidence,
    batch: int,
    positions: Sequence[tuple[str, str, int]],
    recreated: Mapping[str, str | None],
) -> tuple[SetPosition, ...] | NoPlan:
    """Places that sources are set to, with those that they come from."""
    at = next(one for one in evidence.history if one.batch == batch)
    before = evidence.before(batch)
    ends = at.offsets.sources if at.offsets else {}
    starts = before.offsets.sources if before is not None and before.offsets is not None else {}
    out: list[SetPosition] = []
    new = dict(ends)
    for source, split, to in [*positions, *_beginnings(ends, positions, recreated)]:
        if source not in ends:
            message = f"batch {batch} has no source {source} that could resume from {split}={to}"
            return NoPlan(message, path=layout.offsets(batch), hint="sources in this batch: "
                f"{', '.join(ends) or 'none'}")
        end, start = ends[source], starts.get(source)
        table = recreated.get(source)
        reason, changed = places.why_not_set(end, split), places.with_position(new[source], split, to, table)
        if reason is None and source in recreated and (table is None) == (kind_of(end) == "delta"):
            message = f"source {source} is {kind_of(end)}: --recreated {source}" + ("=ID" if table is None else "")
            hint = "the id of the new table is metaData.id in its _delta_log" if table is None else "without an id"
            return NoPlan(f"{message} is wanted", path=layout.offsets(batch), hint=hint)
        if reason is not None or changed is None:
            message = f"the position of {source}:{split} in batch {batch} cannot be set"
            hint = f"only the following can be set: {', '.join(SETTABLE)}"
            return NoPlan(f"{message}: {reason}", path=layout.offsets(batch), hint=hint)
        earliest = places.earliest(start, end, split)
        if to < earliest and source not in recreated:
            message = f"{source}:{split} was at {earliest} when batch {batch} began, and is to go on from {to}"
            if kind_of(end) == "delta":
                message = f"{source}:{split} can be {earliest} or more after batch {batch}, and is to be {to}"
            hint = (
                "state contains the records read since: roll back to an older batch, with @N. If the topic or table "
                f"was recreated: --recreated {source}{'=ID' if kind_of(end) == 'delta' else ''}"
            )
            return NoPlan(message, path=layout.offsets(batch), hint=hint)
        new[source] = changed
        unit = places.unit_of(end)
        out.append(SetPosition(source, split, places.at(end, split) or 0, to, unit, source in recreated, table))
    if out and new == starts and not recreated:
        message = f"these are the positions at which batch {batch} began: its whole input would be read again"
        return NoPlan(message, path=layout.offsets(batch), hint=f"roll back to batch {batch - 1} and its state")
    return tuple(out)


def _beginnings(
    ends: Mapping[str, str | None], positions: Sequence[tuple[str, str, int]], recreated: Mapping[str, str | None]
) -> list[tuple[str, str, int]]:
    """The beginnings of recreated sources, in the splits that are not set."""
    out = []
    known = {position[:2] for position in positions}
    for source in recreated:
        splits = [one.split for one in places.positions(ends.get(source)) or ()] or ["0"]
        if kind_of(ends.get(source)) == "delta":
            splits = [places.VERSION]
        out += [(source, split, 0) for split in splits if (source, split) not in known]
    return out


def _refused_names(evidence: CheckpointEvidence, batch: int, names: Mapping[str, str]) -> NoPlan | None:
    at = next(one for one in evidence.history if one.batch == batch)
    return check_names(at, names) if names else None


class _Seen(NamedTuple):
    """A checkpoint as its copy would be, and what the checks say of it."""

    store: SparkStore
    evidence: CheckpointEvidence
    report: StoreReport
    arranged: Arranged


def _best(store: SparkStore, batch: int | None, progress: Callable[[int], None] | None) -> _Seen:
    """The checkpoint as it is, or with what lies elsewhere put back, where more can be restored so."""
    plain = _seen(store, schemas_back(store.checkpoint), progress)
    arranged = put_back(plain.store.checkpoint, plain.evidence, plain.arranged)
    if arranged == plain.arranged:
        return plain
    mended = _seen(store, arranged, progress)
    if arranged.newest is not None:
        mended = mended._replace(report=_up_to(mended.report, arranged.newest - 1))
    wanted = batch if batch is not None else mended.report.latest_restorable
    better = wanted in mended.report.restorable and wanted not in plain.report.restorable
    return mended if better and wanted is not None else plain


def _seen(store: SparkStore, arranged: Arranged, progress: Callable[[int], None] | None) -> _Seen:
    view = SparkStore(arranged.view(store.storage))
    evidence = gather(view.checkpoint, progress=progress, workers=workers(view, quick=False))
    return _Seen(view, evidence, check_spark(evidence), arranged)


def _up_to(report: StoreReport, batch: int) -> StoreReport:
    """The report without what may build on state that lay in the wrong place."""
    reason = f"it may build on state that lay in the wrong place, or on a wrong snapshot, after batch {batch}"
    return msgspec.structs.replace(
        report,
        restorable=tuple(number for number in report.restorable if number <= batch),
        epochs=tuple(
            msgspec.structs.replace(one, reason=reason) if one.epoch > batch else one for one in report.epochs
        ),
    )


def _chosen(store: SparkStore, report: StoreReport, batch: int | None) -> int | NoPlan:
    newest = report.latest_restorable
    if batch is None:
        if newest is not None:
            return newest
        reasons = "; ".join(f"batch {one.epoch}: {why_not(one, report)}" for one in list(reversed(report.epochs))[:3])
        return NoPlan(
            f"no batch gives exact results ({reasons or 'none was begun'})",
            path=store.path,
            hint="nothing can be restored unless a backup has the files (`abs validate "
            f"{shlex.quote(store.path)}` lists them): start the query again with a new checkpointLocation",
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
    return NoPlan(f"batch {batch} does not give exact results: {why_not(asked, report)}", path=store.path, hint=hint)


def why_not(one: EpochReport, report: StoreReport) -> str:
    """Why a restart from a batch would not give exact results, in one line."""
    if one.epoch in report.restorable:
        return "its results are exact, too, but another batch was requested"
    wrong = [finding for finding in one.findings if finding.code not in HARMLESS]
    if wrong:
        first, more = wrong[0], len(wrong) - 1
        where = " ".join(part for part in (first.task and f"partition {first.task}", first.path) if part)
        return f"{where}: {first.message}" + (f" ({more} more)" if more else "")
    if one.verdict is Status.IN_PROGRESS:
        return "it was in flight and never committed"
    return one.reason or f"the offsets of batch {one.epoch - 1} cannot be read, and Spark does not start without"


def _left(back: Rewind, sizes: dict[str, int], arranged: Arranged, storage: Storage) -> Iterator[Left]:
    by_reason: dict[str, list[str]] = {}
    for path, why in [*back.drop, *((path, SUPERFLUOUS) for path in sorted(arranged.hidden))]:
        by_reason.setdefault(why, []).append(path)
        sizes.setdefault(path, storage.size(path) or 0)
    for why, paths in by_reason.items():
        total = sum(sizes[path] for path in paths)
        named = (path.encode("utf-8", "backslashreplace").decode() for path in paths[:NAMED])  # names of any bytes
        yield Left(why, len(paths), total, tuple(named))


def _inputs(store: SparkStore, evidence: CheckpointEvidence, batch: int, *, local: bool) -> Iterator[InputFolder]:
    """The folders that file sources have read up to a batch, and whether they are there: a query that does not find
    them where they were reads them again from wherever they are now, or does not start."""
    at = next(one for one in evidence.history if one.batch == batch)
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
