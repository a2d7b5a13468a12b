"""Evidence of a small store's epochs, and the same with one thing wrong."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from abscli.stores.native.verdict import check_epoch
from formats.native.evidence import EpochEvidence, epoch_evidence
from formats.native.facts import PartFacts
from formats.native.probe import Prober
from formats.native.store import NativeStore
from tests.support.stores.small import Build


def evidence(build: Build, epoch: int, *, quick: bool = False) -> EpochEvidence:
    """What there is of an epoch of the small store."""
    found = epoch_evidence(NativeStore(build.storage), epoch, Prober(build.storage, quick=quick))
    assert found is not None
    return found


def with_part(given: EpochEvidence, task: str, change: Callable[[PartFacts], PartFacts]) -> EpochEvidence:
    """The same with another part of a task."""
    assert given.parts is not None
    return replace(given, parts=tuple(change(part) if part.task_name == task else part for part in given.parts))


def with_probe(given: EpochEvidence, path: str, **change: object) -> EpochEvidence:
    """The same with another look at a file."""
    return replace(given, probes={**given.probes, path: replace(given.probes[path], **change)})


def moved(
    parts: tuple[PartFacts, ...], task: str, neighbour: str, by: int, *, sent: bool = False
) -> tuple[PartFacts, ...]:
    """The parts with the first counter of one row shifted."""

    def shift(part: PartFacts) -> PartFacts:
        row = (part.sent if sent else part.received)[neighbour]
        counts = {neighbour: (row[0] + by, *row[1:])}
        if sent:
            return replace(part, sent={**part.sent, **counts})
        return replace(part, received={**part.received, **counts})

    return tuple(shift(part) if part.task_name == task else part for part in parts)


def codes(given: EpochEvidence) -> list[tuple[str, str | None]]:
    """Code and task of each finding."""
    return [(finding.code.value, finding.task and str(finding.task)) for finding in check_epoch(given).findings]
