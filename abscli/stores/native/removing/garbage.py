"""What may go from a native store, and why: epochs beyond those to keep, and files that nothing refers to.

The plan is made from what is there, and carried out by `formats.native.remove`. What a kept epoch refers to is never
in it, nor is anything that an epoch which cannot be read may refer to: that is, anything up to that epoch.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from abscli.engine.errors import EngineError
from abscli.planner.retention import MIN_AGE, Kept, Retention, expired, kept_by
from abscli.report.findings import Code
from abscli.stores.native import prepared, uploads
from abscli.stores.native.alone import alone, writable
from abscli.stores.native.check import check_all
from abscli.stores.native.checks.named_parts import Way, way_of
from abscli.stores.native.targets import NOT_NAMED, Targets
from abscli.stores.recovery import BadOption
from abscli.stores.removal import Collected, EpochRemoval, OrphanFile, Removal, RemovalRequest
from abscli.text.columns import some
from formats.errors import FormatError, StoreInUse
from formats.job.model import as_sink
from formats.job.promises import prepares_rows
from formats.native import layout
from formats.native.probe import Prober
from formats.native.remove import is_overtaken, is_unfinished, newest_attempt, remove_epochs, stored_files
from formats.native.sink_bucket import is_bucket
from formats.native.store import NativeStore, files_of
from formats.storage import Storage, Written, delete_all
from formats.storage.ranges import whole_file
from formats.timestamps import unix_time
from formats.view import EpochFacts, Status


def collect(stores: Sequence[Storage], path: str, request: RemovalRequest) -> Collected:
    """As `abscli.stores.base.System.collect`: of one store, on which no job runs."""
    for option, value in (("--stopped", request.stopped), ("--search", request.search)):
        if value:
            raise BadOption(option, "it is for Flink's checkpoints: of a store of abs it is known whether a job runs")
    if len(stores) != 1:
        raise BadOption("PATH", f"{len(stores)} stores lie there: name one")
    place = writable(stores[0])
    keep = request.keep or Retention()
    min_age = MIN_AGE if request.min_age is None else request.min_age
    opened = NativeStore(place)
    with alone(place, path, request.remove, "and removes old epochs itself (--keep)"):
        opened.held_by_us = request.remove
        request.show("looking for what nothing needs")
        _check_tags(opened, keep)
        newest = newest_attempt(place)
        targets = None if request.job is None else Targets.of(opened, request.job)
        removal = plan_removal(opened, keep, min_age=min_age, older_than=request.older_than, targets=targets)
        if request.remove:
            request.show(f"removing {len(removal.epochs)} epoch{'s'[: len(removal.epochs) != 1]}")
            carry_out(place, removal, newest, targets)
    return Collected(opened.job, removal, keep, min_age)


def _check_tags(store: NativeStore, keep: Retention) -> None:
    """BadOption for a pattern that fits no tag: a name that is typed wrongly must not cost the epoch that is meant."""
    names = sorted({tag.name for tag in _tags(store)})
    for pattern in keep.tags:
        if not any(Retention(tags=(pattern,)).holds(name) for name in names):
            raise BadOption("--keep-tag", f"no epoch is tagged {pattern}; tags here: {some(names, 8) or 'none'}")


def _tags(store: NativeStore) -> list[layout.TagPath]:
    return [tag for path in store.tag_paths() if (tag := layout.tag_of(path)) is not None]


def plan_removal(
    store: NativeStore,
    keep: int | Retention,
    *,
    min_age: float,
    older_than: float | None = None,
    now: float | None = None,
    targets: Targets | None = None,
) -> Removal:
    """What may go. keep: complete epochs that stay (those whose files are not all there do not count), a number for the
    newest so many; min_age:
    seconds that an orphan must be old; older_than: seconds that an epoch must be old; targets: where uploads and
    prepared transactions are looked for, which are left alone without."""
    now = time.time() if now is None else now
    rules = keep if isinstance(keep, Retention) else Retention(last=keep)
    rows = store.epochs()
    references, blocked = _references(store, rows)
    ceiling = max((epoch for epoch in blocked), default=0)
    blocked |= {
        row.epoch: f"epoch {ceiling} cannot be read, so that what it needs of older ones is not known"
        for row in rows
        if row.epoch < ceiling
    }
    spare = {row.epoch for row in rows if row.epoch <= ceiling or not _older(row, older_than, now)}
    stays = kept_by(rules, {row.epoch: _time(row) for row in rows if row.status is Status.COMPLETE})
    spare |= {row.epoch for row in rows if row.status is Status.DAMAGED and row.epoch > min(stays, default=0)}
    for tag in _tags(store):
        if rules.holds(tag.name):
            stays[tag.epoch] = (*stays.get(tag.epoch, ()), f"tagged {tag.name}")
    gone, needed = expired(references, 1, spare=spare | stays.keys())
    by_epoch = {row.epoch: row for row in rows}
    everything = stored_files(writable(store.storage))
    going = set(gone)
    unreferenced = _unreferenced(store)
    epochs = tuple(_epoch(by_epoch[epoch], everything, needed, rules) for epoch in sorted(going))
    orphans = tuple(
        OrphanFile(file.path, file.bytes, age := max(0.0, round(now - file.written, 3)), reason, age >= min_age)
        for file in everything
        if (layout.epoch_of(file.path) not in going or is_unfinished(file.path))
        and (reason := _why(file, references, going, needed, unreferenced, ceiling)) is not None
    )
    left, unknown = ((), None) if blocked else _leftovers_of_sinks(store, targets, min_age=min_age, now=now)
    kept = tuple(row.epoch for row in rows if row.epoch not in going)
    return Removal(
        epochs, orphans + left, kept, {e: why for e, why in blocked.items() if e not in going}, needed,
        reasons={epoch: stays[epoch] for epoch in kept if epoch in stays},
        tags=tuple(layout.tag(*tag) for tag in _tags(store) if tag.epoch in going),
        sinks_unknown=unknown,
    )  # fmt: skip


def carry_out(storage: Storage, removal: Removal, newest: int, targets: Targets | None = None) -> None:
    """Remove what the plan names; an epoch disappears in one step before its files do.

    newest: attempt when the plan was made. targets: as of `plan_removal`. StoreInUse, and nothing more is removed,
    where another attempt has begun since.
    """
    _check_newest(storage, newest)
    delete_all(storage, list(removal.tags))
    going = [epoch.epoch for epoch in removal.epochs]
    removed = remove_epochs(NativeStore(storage), going, removal.needed, newest)
    _check_newest(storage, newest)
    orphans = {orphan.path for orphan in removal.orphans if orphan.removable}
    elsewhere = {path for path in orphans if is_bucket(path)}
    transactions = {path for path in orphans if path.startswith(prepared.SCHEME)}
    delete_all(storage, sorted(orphans - elsewhere - transactions - removed.needed))
    if targets is not None:
        uploads.give_up(NativeStore(storage), uploads.buckets_of(targets), elsewhere)
        prepared.roll_back(NativeStore(storage), prepared.TableSink.all_of(targets), transactions)


def _check_newest(storage: Storage, newest: int) -> None:
    if is_overtaken(storage, newest):
        raise StoreInUse(
            f"attempt {newest + 1} has started in the meantime: the remaining files were not removed",
            path=storage.root,
            hint="run the command again when that attempt has ended",
        )


def _references(store: NativeStore, rows: Iterable[EpochFacts]) -> tuple[list[Kept], dict[int, str]]:
    """What refers to what, tasks of epochs that are not complete included; the epochs of which that cannot be read."""
    references, blocked = [], {}
    for row in rows:
        files: frozenset[str] = frozenset()
        try:
            files = frozenset(whole_file(file.path) for part in store.parts(row.epoch) for file in files_of(part))
            if store.has_manifest(row.epoch):
                files |= {store.manifest(row.epoch).tasks_file.path}
        except FormatError as error:
            blocked[row.epoch] = f"it cannot be read: {error}"
        references.append(Kept(row.epoch, row.status is Status.COMPLETE, row.parent, files))
    return references, blocked


def _older(row: EpochFacts, seconds: float | None, now: float) -> bool:
    if seconds is None:
        return True
    triggered = unix_time(row.triggered)
    return triggered is not None and now - triggered >= seconds


def _time(row: EpochFacts) -> datetime:
    """When it was triggered; the beginning of time where that cannot be read."""
    try:
        return datetime.fromisoformat(row.triggered or "").astimezone(UTC)
    except (ValueError, OverflowError):
        return datetime.min.replace(tzinfo=UTC)


def _epoch(
    row: EpochFacts, everything: Iterable[Written], needed: frozenset[str], rules: Retention
) -> EpochRemoval:
    mine = [f for f in everything if layout.epoch_of(f.path) == row.epoch and not is_unfinished(f.path)]
    goes = [file for file in mine if file.path not in needed]
    reason = {
        Status.COMPLETE: "complete, and " + (
            f"older than the newest {rules.last}" if rules == Retention(rules.last) else "no rule keeps it"
        ),
        Status.DAMAGED: "damaged, and older than all that are kept",
        Status.ABORTED: "was aborted, and a newer epoch is complete",
    }.get(row.status, "never became complete, and a newer epoch is complete")
    size = sum(file.bytes for file in goes)
    return EpochRemoval(row.epoch, row.status, row.triggered, reason, size, len(goes), len(mine) - len(goes))


def _leftovers_of_sinks(
    store: NativeStore, targets: Targets | None, *, min_age: float, now: float
) -> tuple[tuple[OrphanFile, ...], str | None]:
    """List uploads and prepared transactions that nobody will finish, and the reason why some are not known.

    A target that cannot be asked keeps nothing in the store. The database does not say how large a transaction is; it
    has no byte in the store.
    """
    if targets is None:
        kept = _sinks_with_leftovers(store)
        return (), f"sink{'s'[: len(kept) != 1]} {', '.join(kept)}: {NOT_NAMED}" if kept else None
    found: list[OrphanFile] = []
    unknown: list[str] = []

    def add(uri: str, size: int, begun: float, reason: str) -> None:
        age = max(0.0, round(now - begun, 3))
        found.append(OrphanFile(uri, size, age, reason, age >= min_age))

    try:
        for upload in uploads.left_uploads(store, uploads.buckets_of(targets)):
            add(upload.uri, upload.bytes, upload.begun, "an upload that no epoch names")
    except (FormatError, OSError) as error:
        unknown.append(str(error))
    try:
        for transaction in prepared.left_transactions(store, prepared.TableSink.all_of(targets)):
            add(transaction.uri, 0, transaction.begun, "a prepared transaction that no epoch names")
    except (FormatError, EngineError) as error:
        unknown.append(str(error))
    return tuple(found), "; ".join(unknown) or None


def _sinks_with_leftovers(store: NativeStore) -> list[str]:
    """Return the ids of sinks that, as the store says, write to a bucket or in transactions of a database."""
    try:
        attempts = store.attempts()
        operators = store.topology_by_digest(attempts[-1].topology_sha256).operators if attempts else ()
    except FormatError:  # which keeps everything else in the store as well
        return []
    sinks = [sink for op in operators if (sink := as_sink(op)) is not None]
    return [
        sink.id
        for sink in sinks
        if prepares_rows(sink)
        or (way_of(sink) is Way.FILE and is_bucket(str((sink.connector or {}).get("path", ""))))
    ]


def _unreferenced(store: NativeStore) -> set[str]:
    """As `abs validate` finds them."""
    report = check_all(store, (), Prober(store.storage, quick=True))
    return {f.path for f in report.all_findings if f.code is Code.UNREFERENCED_FILE and f.path is not None}


def _why(
    file: Written,
    references: Iterable[Kept],
    going: set[int],
    needed: frozenset[str],
    unreferenced: set[str],
    ceiling: int,
) -> str | None:
    """Why a file that lies in no epoch that goes may go; None if it stays."""
    epoch = layout.epoch_of(file.path)
    if is_unfinished(file.path):
        return "a write that was not finished"
    if file.path in needed or (epoch is not None and epoch <= ceiling):
        return None
    if file.path in unreferenced:
        return "nothing refers to it"
    users = [one.epoch for one in references if file.path in one.files]
    if users and all(one in going for one in users):
        return f"only epochs that go refer to it: {', '.join(map(str, users))}"
    return None
