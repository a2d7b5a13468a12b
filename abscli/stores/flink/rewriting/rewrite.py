"""A changed copy of a snapshot of Flink, or one of another layout: `formats.flink.rewriting` decides and makes, this
writes and proves.

The snapshot is only read. The copy appears whole and in one step, in a bucket with its `_metadata` (`stores.copying`),
after all of it was read again and checked as `abs validate` does.
"""

from __future__ import annotations

from collections.abc import Callable

from abscli.stores.copying import check_target, new_copy, work_of
from abscli.stores.flink.plan import directory_of_epoch, start_command
from abscli.stores.flink.restore import bound, fill, sources
from abscli.stores.flink.rewriting.text_rewrite import FlinkRewritten, Size
from abscli.stores.flink.verdict import check_epoch
from formats.errors import Damaged, UnknownTask
from formats.flink import facts
from formats.flink.channels import has_channels
from formats.flink.checks import stream_checks
from formats.flink.evidence import gather
from formats.flink.files.layout import Site, SiteKind
from formats.flink.metadata.file import FILE, encode
from formats.flink.metadata.handles import Metadata, OperatorState
from formats.flink.rewriting.apply import Applied, apply
from formats.flink.rewriting.changes import Changes, RemoveKey, RemoveSplit, SetKey, SetMaxParallelism, read_changes
from formats.flink.rewriting.resolve import Find
from formats.flink.rewriting.sink import Measured, Sink
from formats.flink.store import FlinkStore
from formats.storage import Storage
from formats.view import Status


def rewrite(
    store: FlinkStore,
    epoch: int,
    file: str | None,
    layout: str | None,
    to: str | None,
    *,
    write: bool,
    progress: Callable[[int], None],
) -> FlinkRewritten:
    """What the changes in a file, or another layout, make of a checkpoint, written as a copy or only worked out.

    file: None: nothing changes but the layout.
    layout: `canonical`, or None: as Flink wrote it, where nothing changes.
    to: a new directory; write: make the copy there.
    progress: told the bytes that are read or written.

    Raises BadFile for a file that does not hold or does not fit the checkpoint, CannotRewrite, NoRecovery if a
    file is gone, Damaged if the state that is rewritten, or the copy, is not whole.
    """
    changes = Changes("", ()) if file is None else read_changes(file)
    target = None if to is None else check_target(to, sources(store))
    metadata = store.metadata(epoch)
    at = store.streams(epoch)
    at.on_read = progress
    if target is None or not write:
        applied = _apply(store, epoch, changes, layout, Measured())
        notes = tuple(_notes(changes, layout, metadata, applied.metadata))
        return _rewritten(store, epoch, file, layout, applied, None, None, None, notes)
    work = work_of(encode(metadata), directory_of_epoch(store, store.home(epoch)), repr(changes.lines), layout, target)
    with new_copy(target, work=work, counts=FILE, progress=progress) as copy:
        applied = _apply(store, epoch, changes, layout, copy)
        copied = fill(copy, store, epoch, applied.metadata, target, applied.own)
        copy.settle()
        files, size = copy.files - 1, copy.bytes - len(encode(copied))
        _prove(copy.reading, progress)
    notes = (*_notes(changes, layout, metadata, applied.metadata), *bound(copied))
    return _rewritten(store, epoch, file, layout, applied, target, files, size, notes)


def _apply(store: FlinkStore, epoch: int, changes: Changes, layout: str | None, sink: Sink) -> Applied:
    metadata = store.metadata(epoch)
    return apply(
        changes, metadata, _finder(store, epoch, metadata), store.names(metadata), store.streams(epoch), sink,
        canonical=layout == "canonical", types=store.types,
    )  # fmt: skip


def _finder(store: FlinkStore, epoch: int, metadata: Metadata) -> Find:
    """An operator as `FlinkStore.find_operator` has it; a uid that only hashes to an operator's id proves itself."""
    from formats.flink.ids import operator_id

    by_id = {operator.id: operator for operator in metadata.operators}

    def find(name: str) -> OperatorState:
        try:
            return store.find_operator(epoch, name)
        except UnknownTask:
            proved = by_id.get(operator_id(name))
            if proved is None:
                raise
            return proved

    return find


def _rewritten(
    store: FlinkStore,
    epoch: int,
    file: str | None,
    layout: str | None,
    applied: Applied,
    target: str | None,
    files: int | None,
    size: int | None,
    notes: tuple[str, ...],
) -> FlinkRewritten:
    return FlinkRewritten(
        store=store.path,
        epoch=epoch,
        changes=file,
        layout=layout,
        effects=applied.effects,
        written=applied.written,
        before=_size(store.metadata(epoch)),
        after=_size(applied.metadata),
        to=target,
        files=files,
        bytes=size,
        notes=notes,
        command=None if target is None else start_command(target, applied.metadata),
    )


def _size(metadata: Metadata) -> Size:
    return Size(len(metadata.operators), sum(map(facts.operator_size, metadata.operators)))


def _notes(changes: Changes, layout: str | None, before: Metadata, after: Metadata) -> list[str]:
    """What the changes leave behind that people may not expect."""
    notes = []
    gone = {operator.id for operator in before.operators} - {operator.id for operator in after.operators}
    if has_channels(before) and len(after.operators) < len(before.operators):
        notes.append("the checkpoint is unaligned: records in flight of the operators that go are gone with them")
    if has_channels(before) and any(isinstance(line, RemoveKey | SetKey) for line in changes.lines):
        notes.append("the checkpoint is unaligned: records in flight may be of keys that go or are set, and stay")
    if layout is not None and has_channels(after):
        notes.append(
            "the checkpoint is unaligned: its records in flight are kept, and the copy stays a checkpoint; the job "
            "that starts from it must have the same exchanges between its tasks"
        )
    if before.regional:
        notes.append("the checkpoint is regional: state that was taken over is the copy's own, which names no other")
    if layout is not None and before.version < 4:
        notes.append("metadata of this version does not say what kind of snapshot it is of")
    if any(isinstance(line, RemoveSplit) for line in changes.lines):
        notes.append("a split that goes is not read any more, unless its source's enumerator hands it out again")
    if any(isinstance(line, SetMaxParallelism) for line in changes.lines):
        notes.append("operators that run chained in one task must have the same max parallelism")
    if gone:
        notes.append("a job that still has an operator that goes, or moves, under its old uid starts it without state")
    return notes


def _prove(storage: Storage, progress: Callable[[int], None]) -> None:
    """Damaged unless the copy in a storage is whole: all of its streams are read."""
    copy = FlinkStore(storage.root, site=Site(SiteKind.SNAPSHOT, storage, None))
    (number,) = copy.epoch_numbers()
    copy.streams(number).on_read = progress
    report, _, _ = check_epoch(gather(copy, number, checks=stream_checks()))
    if report.verdict is not Status.COMPLETE:
        first = report.findings[0]
        whose = f" of {first.task}" if first.task is not None else ""
        raise Damaged(
            f"the copy would not be intact, and was not kept: {first.path}{whose} {first.message}",
            path=storage.root,
            hint="check the snapshot with abs validate; use the changes file to remove damaged operators",
        )
