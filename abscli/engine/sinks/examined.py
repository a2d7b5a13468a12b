"""A sink as an attempt found it, and what lies in its place now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from abscli.planner.settlement import Settlement, SinkFacts, Wanted, settle, with_makers
from formats.ids import EpochId
from formats.native.facts import SinkFile
from formats.native.sink import PartId, SinkClaim, SinkFolder, Stretch
from formats.native.sink_bucket import SinkBucket


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
        staged = {
            part: file.bytes
            for part in waiting
            for file in named.get(part, ())
            if file.upload is not None and file.upload.id in waiting[part]
        }
        return SinkFacts({one.part: one.bytes for one in folder.shown()}, staged, superseded)
    staged, superseded = folder.staged(), folder.superseded()
    return SinkFacts(with_makers(folder.visible(), showing), staged, superseded)
