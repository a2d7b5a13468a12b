"""A sink as an attempt found it, and what lies in its place now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from abscli.planner.lineage import maker
from abscli.planner.settlement import Settlement, SinkFacts, Wanted, settle, with_makers
from formats.native.facts import SinkFile
from formats.native.sink import PartId, SinkClaim, SinkFolder, Stretch
from formats.native.sink_bucket import SinkBucket


@dataclass(frozen=True, slots=True)
class Examined:
    """A sink as an attempt found it.

    claim: the newest, None where there is none.
    showing: the line that what is visible was made on.
    makers_1: which attempt of a store of version 1 has which numbers: what lies without an attempt's id can only be
    of these.
    wanted: what it should show.
    taken_over: the store that showed something last, None where it was this one.
    """

    operator: str
    folder: SinkFolder | SinkBucket
    claim: SinkClaim | None
    showing: tuple[Stretch, ...]
    makers_1: tuple[Stretch, ...]
    wanted: Wanted
    taken_over: str | None

    def facts(self) -> SinkFacts:
        """What lies there now."""
        named = {id: (file,) for id, file in self.wanted.named.items()}
        return sink_facts(self.folder, self.showing, self.makers_1, named)

    def settlement(self) -> Settlement:
        """What has to be done, by what lies there now."""
        return settle(self.facts(), self.wanted)


def sink_facts(
    folder: SinkFolder | SinkBucket, showing: tuple[Stretch, ...], makers_1: Sequence[Stretch],
    named: Mapping[PartId, Sequence[SinkFile]],
) -> SinkFacts:  # fmt: skip
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
    staged, superseded = _filed(folder.staged(), makers_1), _filed(folder.superseded(), makers_1)
    return SinkFacts(with_makers(folder.visible(), showing), staged, superseded)


def _filed(parts: dict[PartId, int], makers: Sequence[Stretch]) -> dict[PartId, int]:
    """The parts with the attempt that made them also where a store of version 1 left them without."""
    return {
        part if part.attempt_id else PartId(maker(makers, part.epoch.number) or "", part.name): size
        for part, size in parts.items()
    }
