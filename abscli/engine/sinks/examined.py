"""A sink as an attempt found it, and what lies in its place now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from abscli.planner.settlement import Settlement, SinkFacts, Wanted, settle, with_makers
from formats.ids import EpochId
from formats.native.facts import SinkFile
from formats.native.sink import PartId, SinkClaim, SinkFolder, Stretch
from formats.native.sink_bucket import SinkBucket
from formats.storage import concurrently


@dataclass(frozen=True, slots=True)
class Examined:
    """A sink as an attempt found it.

    claim: the newest, None where there is none.
    showing: the line that what is visible was made on.
    wanted: what it should show.
    taken_over: the store that showed something last, None where it was this one.
    committed: the newest epoch of the history whose rows have to be visible; None if none has.
    """

    operator: str
    folder: SinkFolder | SinkBucket
    claim: SinkClaim | None
    showing: tuple[Stretch, ...]
    wanted: Wanted
    taken_over: str | None
    committed: EpochId | None

    def facts(self) -> SinkFacts:
        """What lies there now."""
        named = {id: (file,) for id, file in self.wanted.named.items()}
        return sink_facts(self.folder, self.showing, named)

    def settlement(self) -> Settlement:
        """What has to be done, by what lies there now."""
        return settle(self.facts(), self.wanted)


def sink_facts(
    folder: SinkFolder | SinkBucket, showing: tuple[Stretch, ...], named: Mapping[PartId, Sequence[SinkFile]]
) -> SinkFacts:
    """What lies in a sink's place now. named: what manifests of the store name."""
    if isinstance(folder, SinkBucket):
        # In the order in which a part moves: what is shown meanwhile is seen at least once. Of uploads those count that
        # a manifest names; they are whole then.
        waiting, superseded = folder.waiting(), folder.superseded()
        visible = {one.part: one.bytes for one in folder.shown()}
        # Lists may lag. Which part is where is asked by name of all that manifests name and the list does not show.
        unseen = [
            (part, file)
            for part, files in sorted(named.items()) if part not in visible
            for file in files if file.upload is not None
        ]  # fmt: skip
        found = concurrently(folder.storage, lambda one: folder.place_of(*one), unseen)
        visible |= {part: size for (part, _), (size, _) in zip(unseen, found, strict=True) if size}
        staged = {part: file.bytes for (part, file), (_, waits) in zip(unseen, found, strict=True) if waits}
        # Of those that are visible a list is good enough: an upload that waits besides is only cleaned up.
        staged |= {
            part: file.bytes
            for part in waiting.keys() & visible.keys()
            for file in named.get(part, ())
            if file.upload is not None and file.upload.id in waiting[part]
        }
        return SinkFacts(visible, staged, superseded)
    staged, superseded = folder.staged(), folder.superseded()
    return SinkFacts(with_makers(folder.visible(), showing), staged, superseded)
