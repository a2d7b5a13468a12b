"""Tags of a native store: names of complete epochs, which stay while they have one.

A job may run on the store, and remove old epochs, while one is tagged: who tags writes the tag and then looks whether
the epoch is about to leave, and who removes says that it is and then looks for tags (`formats.native.remove`).
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Sequence

from abscli.report.findings import HARMLESS, EpochReport
from abscli.stores.base import Progress
from abscli.stores.native.alone import writable
from abscli.stores.native.check import check_one
from abscli.stores.recovery import BadOption
from abscli.stores.tags import Tag, Tags
from formats.errors import Damaged, FormatError, NotFound
from formats.native import layout, lock
from formats.native.facts import TagFacts, header
from formats.native.probe import Prober
from formats.native.store import NativeStore
from formats.native.writer import put_tag
from formats.reference import BadReference, is_tag_name
from formats.timestamps import now
from formats.view import EpochFacts


class NativeTags(Tags):
    """The tags of a store of ours."""

    def __init__(self, store: NativeStore) -> None:
        self._store = store

    def all(self, epoch: int | None = None) -> list[Tag]:
        paths = [(path, tag) for path, tag in _tag_paths(self._store) if epoch in (None, tag.epoch)]
        rows = {row.epoch: row for row in self._store.epochs()} if paths else {}
        return [_tag(self._store, path, tag, rows.get(tag.epoch)) for path, tag in paths]

    def epoch_of(self, name: str) -> int:
        epochs = [tag.epoch for _, tag in _tag_paths(self._store) if tag.name == name]
        if not epochs:
            raise _no_tag(self._store, name)
        if len(epochs) > 1:
            message = f"epochs {', '.join(map(str, epochs))} are tagged {name}"
            raise BadReference(message, path=self._store.path, hint="specify the epoch by its number")
        return epochs[0]

    def add(self, epoch: int, name: str, *, quick: bool, move: bool, progress: Progress) -> bool:
        store, storage = self._store, writable(self._store.storage)
        if not is_tag_name(name):
            raise BadOption("NAME", f"{name!r} is not a tag name: a letter, then letters, digits, '_', '.' or '-', "
                            "at most 100, and not 'latest'")  # fmt: skip
        others = _others(store, name, epoch)
        if others and not move:
            raise BadOption("NAME", f"epoch {others[0]} is tagged {name}: --move takes it from there")
        _check_whole(store, epoch, quick=quick, progress=progress)
        tag = TagFacts(
            name=name, epoch=epoch, attempt_id=store.manifest(epoch).attempt_id, tagged=now(), **header(TagFacts)
        )
        new = True
        try:
            put_tag(storage, tag)
        except FileExistsError:
            new = False
        # In this order: whoever removes epochs may end between our looks, and then the epoch is there, or it is not.
        leaves = storage.size(layout.leaving(epoch)) is not None and lock.held(storage)
        taken = [other for other in _others(store, name, epoch) if other not in others]
        if leaves or taken or not store.has_manifest(epoch):
            storage.delete(layout.tag(epoch, name))
            if taken:
                raise BadOption("NAME", f"epoch {taken[0]} was tagged {name} just now")
            hint = "the running job keeps only its newest epochs (--keep); tag a newer epoch"
            raise NotFound(f"epoch {epoch} is being removed just now", path=store.path, hint=hint)
        for other in others:
            storage.delete(layout.tag(other, name))
        return new

    def remove(self, name: str, epoch: int | None = None) -> list[int]:
        store, storage = self._store, writable(self._store.storage)
        paths = {tag.epoch: path for path, tag in _tag_paths(store) if tag.name == name and epoch in (None, tag.epoch)}
        if not paths:
            if epoch is not None and (others := _others(store, name, epoch)):
                raise NotFound(f"epoch {epoch} is not tagged {name}, epoch {others[0]} is", path=store.path)
            raise _no_tag(store, name)
        for path in paths.values():
            storage.delete(path)
        return sorted(paths)


def _tag_paths(store: NativeStore) -> list[tuple[str, layout.TagPath]]:
    return [(path, tag) for path in store.tag_paths() if (tag := layout.tag_of(path)) is not None]


def _tag(store: NativeStore, path: str, named: layout.TagPath, row: EpochFacts | None) -> Tag:
    tagged = None
    with contextlib.suppress(FormatError):  # `validate` says what is wrong with it
        tagged = store.tag(path).tagged
    if row is None:
        return Tag(named.name, named.epoch, tagged, None, None, None)
    return Tag(named.name, named.epoch, tagged, row.status, row.triggered, row.bytes)


def _no_tag(store: NativeStore, name: str) -> NotFound:
    names = ", ".join(sorted({tag.name for _, tag in _tag_paths(store)}))
    return NotFound(f"no epoch is tagged {name}; tags here: {names or 'none'}", path=store.path)


def _others(store: NativeStore, name: str, epoch: int) -> Sequence[int]:
    return [tag.epoch for _, tag in _tag_paths(store) if tag.name == name and tag.epoch != epoch]


def _check_whole(store: NativeStore, epoch: int, *, quick: bool, progress: Progress) -> None:
    size = 0

    def more(count: int) -> None:
        nonlocal size
        size += count
        progress(size, None)

    (report,) = check_one(store, (), epoch, Prober(store.storage, quick=quick, progress=more)).epochs
    if not report.whole:
        where = shlex.quote(store.path)
        raise Damaged(f"epoch {epoch} is not intact, so it cannot be tagged: {_why(report)}", path=store.path,
                      hint=f"`abs validate {where}` lists the restorable epochs")  # fmt: skip


def _why(report: EpochReport) -> str:
    findings = [finding for finding in report.findings if finding.code not in HARMLESS]
    if not findings:
        return f"it is {report.verdict}"
    return f"{findings[0].path}: {findings[0].message}" if findings[0].path else findings[0].message
