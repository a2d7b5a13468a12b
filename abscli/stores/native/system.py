"""Our own store, as a system."""

from __future__ import annotations

from typing import TYPE_CHECKING

from abscli.stores.base import Checked, Progress, System, Visit, Words, unvisited
from formats.reference import NOTHING, ReadOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from abscli.diff.rows import Compared
    from abscli.diff.state import Pair, Side
    from abscli.report.findings import StoreReport
    from abscli.stores.base import Owners
    from abscli.stores.drills import Drilled
    from abscli.stores.native.glance import NativeGlance
    from abscli.stores.native.recovery import NativeRecovery
    from abscli.stores.native.tagging import NativeTags
    from abscli.stores.native.text.copy import CopyPage
    from abscli.stores.recovery import JobFile, RestoreRequest, Watcher
    from abscli.stores.removal import Collected, RemovalRequest
    from abscli.text.inspect_page import EpochPage, StorePage
    from abscli.text.validate import Advice, Leftovers
    from formats.job.model import Topology
    from formats.native.store import NativeStore
    from formats.storage import Storage
    from formats.view import CheckpointStore, Status


class Native(System):
    """What `abs run` writes."""

    name = "abs"
    options = frozenset({"uids", "job"})
    words = Words(title="abs", store="Store", looked_for="abs-store.json (written by `abs run`)")

    def recognise(self, storage: Storage) -> bool:
        from formats.native.store import is_native

        return is_native(storage)

    def open(self, storage: Storage, options: ReadOptions) -> NativeStore:
        from formats.native.store import NativeStore

        return NativeStore(storage)

    def glance(self, storage: Storage) -> NativeGlance | None:
        from formats.native import layout

        if storage.size(layout.STORE) is None:  # to know that it is not ours costs no more than this
            return None
        from abscli.stores.native.glance import glance

        return glance(storage)

    def check(
        self, storage: Storage, epoch: int | str | None, *, quick: bool, progress: Progress,
        options: ReadOptions = NOTHING, visit: Visit = unvisited, job: JobFile | None = None,
    ) -> Checked:  # fmt: skip
        from abscli.stores.native.check import check

        return check(storage, epoch, quick=quick, progress=progress, visit=visit, job=job)

    def recovery(self) -> NativeRecovery:
        from abscli.stores.native.recovery import NativeRecovery

        return NativeRecovery()

    def collect(self, stores: Sequence[Storage], path: str, request: RemovalRequest) -> Collected:
        from abscli.stores.native.removing.garbage import collect

        return collect(stores, path, request)

    def removal_text(
        self, collected: Collected, *, store: str, removed: bool, command: str, width: int, ascii: bool
    ) -> str:
        from abscli.stores.native.removing.text_gc import text

        return text(collected.removal, store=store, job=collected.job, removed=removed, command=command, width=width,
                    ascii=ascii)  # fmt: skip

    def copy(
        self, store: CheckpointStore, epoch: int | None, to: str, progress: Callable[[int], None]
    ) -> CopyPage:
        from abscli.stores.native.copying import copy_store
        from abscli.stores.native.text.copy import CopyPage
        from formats.native.store import NativeStore

        assert isinstance(store, NativeStore)
        return CopyPage(copy_store(store, epoch, to, progress))

    def drill(
        self, store: CheckpointStore, epoch: int | None, request: RestoreRequest, watch: Watcher
    ) -> Drilled:
        from abscli.stores.native.drill import drill
        from abscli.stores.recovery import BadOption
        from formats.native.store import NativeStore

        assert isinstance(store, NativeStore)
        if request.job is None:
            raise BadOption("--job", f"name the topology file of {store.job!r}: its code is what restores")
        return drill(store, epoch, request.job, request, watch)

    def tags(self, store: CheckpointStore) -> NativeTags:
        from abscli.stores.native.tagging import NativeTags
        from formats.native.store import NativeStore

        assert isinstance(store, NativeStore)
        return NativeTags(store)

    def compare_rows(self, left: Side, right: Side, pair: Pair, *, rows: bool) -> Iterator[Compared] | None:
        from abscli.stores.native.diff import compare_rows

        return compare_rows(left, right, pair, rows=rows)

    def recoveries(self, page: StorePage) -> list[str]:
        from abscli.stores.native.text.inspect import recovery_lines

        return recovery_lines(page)

    def store_text(self, page: StorePage, *, width: int, ascii: bool) -> str:
        from abscli.stores.native.text.inspect import store_text

        return store_text(page, width=width, ascii=ascii)

    def epoch_text(self, page: EpochPage, *, width: int, ascii: bool) -> str:
        from abscli.stores.native.text.inspect import epoch_text

        return epoch_text(page, width=width, ascii=ascii)

    def owners(self, store: CheckpointStore, epoch: int, file: str) -> Owners:
        from abscli.stores.native.owners import succeeded
        from abscli.stores.native.text.owners import SuccessionPage
        from formats.native.store import NativeStore

        assert isinstance(store, NativeStore)
        return SuccessionPage(succeeded(store, epoch, file), store.path, store.job, epoch, file)

    def output_again(
        self, epoch: int, newer: Mapping[int, Status], topology: Topology | None, policy: str | None
    ) -> list[str]:
        from abscli.stores.native.text.resume import output_again

        return output_again(topology, policy)

    def advice(self, job: str | None = None) -> Advice:
        from functools import partial

        from abscli.stores.native.text.validate import next_command
        from abscli.text.validate import Advice

        return Advice(self.words.store, partial(next_command, job=job))

    def leftovers(self, storage: Storage, path: str, report: StoreReport) -> Leftovers | None:
        from abscli.stores.native.removing.leftovers import leftovers

        return leftovers(storage, path, report)
