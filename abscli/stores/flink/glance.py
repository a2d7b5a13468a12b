"""What a shell offers from checkpoints of Flink: from names, and a small `_metadata`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from formats.flink.files.layout import Site, SiteKind, find, is_flink, number
from formats.flink.metadata.file import FILE, parse
from formats.flink.metadata.handles import has_state
from formats.ids import may_be_operator
from formats.storage import Storage

LARGEST = 1 << 20
"""Bytes of a `_metadata` beyond which nobody waits for it at a prompt."""


class FlinkGlance(NamedTuple):
    """Checkpoints of Flink as `abscli.stores.base.Glance`."""

    site: Site

    def epochs(self) -> Iterator[int]:
        if self.site.kind is not SiteKind.SNAPSHOT:
            numbers = {number(entry.name) for entry in self.site.storage.list("") if entry.size is None} - {None}
            yield from sorted((n for n in numbers if n is not None), reverse=True)

    def tags(self) -> Iterator[str]:
        return iter(())

    def operators(self, epoch: int | str | None, *, stateful: bool = False) -> dict[str, int]:
        path = self._metadata(epoch)
        size = None if path is None else self.site.storage.size(path)
        if path is None or size is None or size > LARGEST:
            return {}
        metadata = parse(self.site.storage.read(path))
        return {
            operator.uid if operator.uid and may_be_operator(operator.uid) else operator.id: operator.parallelism
            for operator in metadata.operators
            if not stateful or has_state(operator)
        }

    def _metadata(self, epoch: int | str | None) -> str | None:
        """The file of the epoch that is meant."""
        if self.site.kind is SiteKind.SNAPSHOT:
            return FILE
        wanted = epoch if isinstance(epoch, int) else self.site.epoch
        paths = (f"chk-{n}/{FILE}" for n in self.epochs() if wanted in (None, n))
        return next((path for path in paths if self.site.storage.size(path) is not None), None)


def glance(storage: Storage) -> FlinkGlance | None:
    """The checkpoints; None if none of Flink's lie there."""
    return FlinkGlance(find(storage.root)) if is_flink(storage.root) else None
