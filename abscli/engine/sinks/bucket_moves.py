"""The steps that change what a sink in a bucket shows, by an attempt that may have lost the sink before any of them.

A process that was stopped and has lost the sink goes on in the middle of its steps, and no look before a request keeps
it from being stopped between the two. A bucket has no rename, and neither completing an upload nor copying asks what
was there. So it is names that keep attempts apart: what an attempt shows it alone has ever shown under that name, and a
name that a lost one may still be about to take away is one that nobody relies on any more: the next claim shows the
part under a name of its own. What goes has a copy that was set aside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from abscli.engine.errors import EngineStopped
from abscli.planner.lineage import is_on
from formats.errors import Damaged, NotFound
from formats.native.facts import SinkFile
from formats.native.sink import PartId, SinkClaim
from formats.native.sink_bucket import Shown, SinkBucket, object_name
from formats.storage import concurrently


class BucketMoves:
    """Steps in a sink, for as long as `claim` is its newest; then EngineStopped.

    claim: of the attempt that takes the steps. overtaken: makes the error to raise when another has claimed it.
    """

    def __init__(self, bucket: SinkBucket, claim: SinkClaim, overtaken: Callable[[], EngineStopped]) -> None:
        self._bucket = bucket
        self._claim = claim
        self._overtaken = overtaken

    def check(self) -> None:
        """EngineStopped if another attempt has claimed the sink."""
        if not self._bucket.is_newest(self._claim):
            raise self._overtaken()

    def complete(self, parts: Iterable[tuple[PartId, SinkFile]]) -> None:
        """Show what waits, as uploads that are open; again is no harm.

        Damaged if one is not there, and has not become what it should; EngineStopped if another attempt has claimed the
        sink: what is not of its line has gone again then.
        """
        due = list(parts)
        if not due:
            return
        self.check()
        shown = concurrently(self._bucket.storage, lambda part: self._complete(*part), due)
        if not self._bucket.is_newest(self._claim):
            self._take_back(object_name(part) for part, _ in due)
            raise self._overtaken()
        for (_, file), is_shown in zip(due, shown, strict=True):
            if not is_shown:
                raise Damaged(
                    f"an output part of {file.rows} rows is missing, and so is its upload",
                    path=self._where(file),
                    hint="run `abs run --resume`; its error message lists the possible actions",
                )

    def end(self, parts: Iterable[PartId]) -> None:
        """Let what is shown wait no more."""
        if names := [object_name(part) for part in parts]:
            self.check()
            self._bucket.uploads.end(names)

    def show_again(self, parts: Sequence[PartId]) -> None:
        """Show what was set aside, under names of this claim."""
        self._shown_by_us([(part, (part.superseded,)) for part in parts])
        # Whatever a lost attempt still takes away has another name.
        self._drop(part.superseded for part in parts)

    def rename(self, shown: Iterable[Shown]) -> None:
        """Show what is shown under names of this claim alone: another may be about to take the old ones away, and of
        two names of a part its rows would be read twice."""
        names: dict[PartId, list[Shown]] = {}
        for one in shown:
            names.setdefault(one.part, []).append(one)
        new = {part: ones for part, ones in names.items() if all(one.claim != self._claim.number for one in ones)}
        self._shown_by_us([(part, (*(one.object for one in ones), part.superseded)) for part, ones in new.items()])
        self._drop(one.object for ones in names.values() for one in ones if one.claim != self._claim.number)

    def set_aside(self, shown: Sequence[Shown]) -> None:
        """Take parts away from readers, and keep them."""
        if not shown:
            return
        self.check()
        concurrently(self._bucket.storage, self._keep, [(one.object, one.part) for one in shown])
        # What still shows when another attempt has claimed the sink and cleared it is what that one shows.
        self.check()
        self._drop(one.object for one in shown)

    def _complete(self, part: PartId, file: SinkFile) -> bool:
        """Whether the part is shown now, by whomever."""
        name, upload = object_name(part), file.upload
        if upload is not None and self._bucket.uploads.complete(name, upload.id, upload.etags, file.sha256):
            return True
        # A reply may have been lost, or the process before this one have done it.
        return self._bucket.storage.identity(name) == file.sha256

    def _shown_by_us(self, parts: Sequence[tuple[PartId, Sequence[str]]]) -> None:
        """Copy parts to names of this claim, each from the first of some objects that is there."""
        if not parts:
            return
        self.check()
        concurrently(self._bucket.storage, lambda part: self._copy(*part), parts)
        if not self._bucket.is_newest(self._claim):
            self._take_back(object_name(part, self._claim.number) for part, _ in parts)
            raise self._overtaken()

    def _copy(self, part: PartId, objects: Sequence[str]) -> None:
        for n, source in enumerate(objects, 1):
            try:
                self._bucket.storage.copy(source, object_name(part, self._claim.number))
            except NotFound:
                if n == len(objects):
                    raise
            else:
                return

    def _take_back(self, objects: Iterable[str]) -> None:
        """Take away what was shown when another attempt had claimed the sink, unless that one relies on it: it is of
        its line, and has no other name."""
        newest, shown = self._bucket.newest_claim(), self._bucket.shown()
        names, times = set(objects), Counter(one.part for one in shown)
        for one in shown:
            is_theirs = newest is not None and is_on(newest.line, one.part.epoch) and times[one.part] == 1
            if one.object in names and not is_theirs:
                self._keep((one.object, one.part))
                self._drop([one.object])

    def _keep(self, shown: tuple[str, PartId]) -> None:
        """Put what is shown aside, where it goes on being shown."""
        name, part = shown
        try:
            self._bucket.storage.copy(name, part.superseded)
        except NotFound:
            return  # whoever has the sink now did the same

    def _drop(self, objects: Iterable[str]) -> None:
        names = list(objects)
        if names:
            self._bucket.uploads.end(names)
            self._bucket.storage.delete_all(names)

    def _where(self, file: SinkFile) -> str:
        return f"{self._bucket.path}/{file.object}"
