"""Our own store, as a system."""

from __future__ import annotations

from typing import TYPE_CHECKING

from abscli.stores.base import Checked, Progress, System, Words
from formats.reference import NOTHING, ReadOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from abscli.diff.rows import Compared
    from abscli.diff.state import Pair, Side
    from abscli.report.findings import StoreReport
    from abscli.stores.native.recovery import NativeRecovery
    from abscli.text.inspect_page import StorePage
    from abscli.text.validate import Advice, Leftovers
    from formats.native.store import NativeStore
    from formats.storage import Storage


class Native(System):
    """What `abs run` writes."""

    name = "abs"
    words = Words(title="abs", store="Store", looked_for="abs-store.json (written by `abs run`)")

    def recognise(self, storage: Storage) -> bool:
        from formats.native.store import is_native

        return is_native(storage)

    def open(self, storage: Storage, options: ReadOptions) -> NativeStore:
        from formats.native.store import NativeStore

        return NativeStore(storage)

    def check(
        self, storage: Storage, epoch: int | str | None, *, quick: bool, progress: Progress,
        options: ReadOptions = NOTHING,
    ) -> Checked:  # fmt: skip
        from abscli.stores.native.check import check

        return check(storage, epoch, quick=quick, progress=progress)

    def recovery(self) -> NativeRecovery:
        from abscli.stores.native.recovery import NativeRecovery

        return NativeRecovery()

    def compare_rows(self, left: Side, right: Side, pair: Pair, *, rows: bool) -> Iterator[Compared] | None:
        from abscli.stores.native.diff import compare_rows

        return compare_rows(left, right, pair, rows=rows)

    def store_text(self, page: StorePage, *, width: int, ascii: bool) -> str:
        from abscli.stores.native.text_inspect import store_text

        return store_text(page, width=width, ascii=ascii)

    def advice(self) -> Advice:
        from abscli.stores.native.text_validate import next_command
        from abscli.text.validate import Advice

        return Advice(self.words.store, next_command)

    def leftovers(self, storage: Storage, path: str, report: StoreReport) -> Leftovers | None:
        from abscli.stores.native.leftovers import leftovers

        return leftovers(storage, path, report)
