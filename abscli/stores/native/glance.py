"""What a shell offers from a store of ours: from names, an epoch's manifest and its job graph."""

from __future__ import annotations

from collections.abc import Iterator

from formats.errors import NotFound
from formats.job.model import KEYED
from formats.native import layout
from formats.native.fact_files import FactFiles
from formats.storage import Storage


class NativeGlance(FactFiles):
    """A store of ours as `abscli.stores.base.Glance`."""

    def epochs(self) -> Iterator[int]:
        for number in reversed(self._numbers()):
            if self.has_manifest(number) or self.has_trigger(number):
                yield number

    def tags(self) -> Iterator[str]:
        yield from dict.fromkeys(tag.name for tag in self._tags())

    def operators(self, epoch: int | str | None, *, stateful: bool = False) -> dict[str, int]:
        number = self._number(epoch)
        if number is None:
            return {}
        operators = self.topology(number).operators
        return {op.id: op.parallelism for op in operators if op.kind in KEYED or not stateful}

    def _number(self, epoch: int | str | None) -> int | None:
        if isinstance(epoch, int):
            return epoch
        if epoch in (None, "latest"):
            return next((number for number in reversed(self._numbers()) if self.has_manifest(number)), None)
        return next((tag.epoch for tag in self._tags() if tag.name == epoch), None)

    def _tags(self) -> Iterator[layout.TagPath]:
        for entry in self.storage.list(layout.TAGS):
            if (tag := layout.tag_of(f"{layout.TAGS}/{entry.name}")) is not None:
                yield tag


def glance(storage: Storage) -> NativeGlance | None:
    """The store; None if none of ours lies there. FormatError for one that is damaged."""
    try:
        return NativeGlance(storage)
    except NotFound:
        return None
