"""A Spark checkpoint's offsets and commits held against each other: what one batch says that its neighbours deny.

A fault is put down to one entry where the others outvote it. Where two contradict each other and nothing tells which
one is wrong, neither is relied on: going back further is always exact. Pure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise

from abscli.report.findings import Code, Finding
from formats.spark import layout
from formats.spark.evidence.facts import PartitionEvidence
from formats.spark.evidence.gathering import BatchEvidence, CheckpointEvidence
from formats.spark.logs import places
from formats.spark.logs.offsets import CONF, PARTITIONS, Offsets
from formats.spark.logs.repartitions import Repartition, repartitions
from formats.spark.logs.settings import right_value, why_illegal

Findings = dict[int, dict[str, Finding]]
"""Findings by batch and message."""
Moves = dict[int, Repartition]
"""Batches that only repartition state, by number."""

_ALWAYS = (
    PARTITIONS,
    CONF + "providerClass",
    CONF + "compression.codec",
    "spark.sql.streaming.multipleWatermarkPolicy",
    "spark.sql.streaming.aggregation.stateFormatVersion",
    "spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion",
    "spark.sql.streaming.join.stateFormatVersion",
)
"""Settings that every Spark since 3.2 writes; newer ones come with an upgrade."""
_BY_INPUT = frozenset({"stateStoreSave", "dedupe", "dedupeWithinWatermark", "symmetricHashJoin"})
"""Operators whose state changes with input or the watermark alone, not with the time of day."""


def contradictions(evidence: CheckpointEvidence) -> dict[int, list[Finding]]:
    """What contradicts what, by batch: none of these can be gone back to."""
    findings: Findings = defaultdict(dict)
    moves = repartitions(evidence)
    passed = {number for move in moves.values() for number in move.passed}
    batches = [batch for batch in evidence.history if batch.offsets is not None and batch.batch not in passed]
    history = [batch for batch in evidence.history if batch.batch not in passed]
    for path, message, batch in (
        *_settings(batches, stateful=bool(evidence.partitions)),
        *_partitions(batches, evidence, moves),
        *_shapes(batches),
        *_watermarks(history, moves),
        *_commits(history, evidence),
        *_idle(batches, evidence),
        *_ahead(batches),
    ):
        findings[batch].setdefault(message, Finding(Code.LOG_MISMATCH, None, None, path, message))
    # Last, since of two twins the one is taken for the copy that the checks above deny.
    for path, message, batch in _twins(batches, moves, findings):
        findings[batch].setdefault(message, Finding(Code.LOG_MISMATCH, None, None, path, message))
    return {batch: list(own.values()) for batch, own in findings.items()}


Contradiction = tuple[str, str, int]
"""A path, what is wrong with it, and the batch that this is of."""


def _offsets(batch: BatchEvidence) -> Offsets:
    assert batch.offsets is not None
    return batch.offsets


def _settings(batches: list[BatchEvidence], *, stateful: bool) -> Iterator[Contradiction]:
    """A query keeps its settings for life; an upgrade adds some. The legal value that most batches have is right."""
    names = {name for batch in batches for name in _offsets(batch).conf}
    for name in sorted(names):
        own = [(batch.batch, _offsets(batch).conf.get(name)) for batch in batches]
        right = right_value(name, [value for _, value in own])
        for number, value in own:
            illegal = None if value is None else why_illegal(name, value)
            if illegal is not None:
                message = f"has {name} {value!r}, which {illegal}: Spark does not start with it"
                yield layout.offsets(number), message, number
            elif value not in (None, right) and not (name == PARTITIONS and stateful):
                message = f"has {name} {value!r}, the other batches {right!r}: a query keeps it for life"
                yield layout.offsets(number), message, number
    for before, batch in pairwise(batches):
        for name in _ALWAYS:
            if name in _offsets(before).conf and name not in _offsets(batch).conf:
                message = f"has no {name}, which batch {before.batch} has: Spark would take the session's"
                yield layout.offsets(batch.batch), message, batch.batch


def _partitions(
    batches: list[BatchEvidence], evidence: CheckpointEvidence, moves: Moves
) -> Iterator[Contradiction]:
    """The number of partitions against the state that the batch left, and against the batch before it: only a
    repartition changes it."""
    if not evidence.partitions:
        return
    most = max((_offsets(batch).partitions or 0 for batch in batches), default=0)
    for batch in batches:
        count = _offsets(batch).partitions
        if count is None or not evidence.ended(batch):
            continue
        # A number too small shows by files: the batch changed a partition that it says it does not have.
        for part in evidence.partitions:
            if count <= part.id.partition < most and (file := _own(part, batch.batch + 1)) is not None:
                message = f"has {count} partitions, and the batch left state in {part.folder}/{file}"
                yield layout.offsets(batch.batch), message, batch.batch
                break
    for before, batch in pairwise(batches):
        was, now = _offsets(before).partitions, _offsets(batch).partitions
        if was is None or now is None or was == now or batch.batch in moves:
            continue
        message = f"has {now} partitions, batch {before.batch} has {was}, and its state was not repartitioned"
        # Which of the two is odd? If the next batch has the number of the one before again, this one is.
        following = next((one for one in batches if one.batch > batch.batch), None)
        back = following is not None and _offsets(following).partitions == was
        earlier = next((one for one in reversed(batches) if one.batch < before.batch), None)
        if not back and earlier is not None and _offsets(earlier).partitions == now:
            continue  # it is the batch before that is odd
        yield layout.offsets(batch.batch), message, batch.batch


def _own(part: PartitionEvidence, version: int) -> str | None:
    """The name of a partition's own file of a version."""
    file = part.files.log(version) or part.files.whole(version)
    return None if file is None else file.name


def _shapes(batches: list[BatchEvidence]) -> Iterator[Contradiction]:
    """Number and kinds of sources, and what an entry has that another lacks."""
    by_line = [batch for batch in batches if _offsets(batch).version == 1]
    numbers = Counter(len(_offsets(batch).sources) for batch in by_line)
    for batch in by_line:
        own, right = len(_offsets(batch).sources), numbers.most_common(1)[0][0]
        if own != right:
            message = f"has offsets of {own} sources, the other batches of {right}"
            yield layout.offsets(batch.batch), message, batch.batch
    seen: set[str] = set()
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    for batch in batches:
        for name, offset in _offsets(batch).sources.items():
            # Every offset of a source has one shape; the one that most have is right.
            kinds[name].update(kind for kind in (places.kind_of(offset),) if kind is not None)
    for batch in batches:
        for name, offset in _offsets(batch).sources.items():
            if offset is None:
                if name in seen:
                    message = f"has no offset of source {name}, which had one before: Spark would read all of it again"
                    yield layout.offsets(batch.batch), message, batch.batch
                continue
            seen.add(name)
            usual = kinds[name].most_common(1)[0][0] if kinds[name] else None
            if usual is not None and offset != "{}" and (kind := places.kind_of(offset)) != usual:
                message = f"has an offset of source {name} that is {kind or 'of no known kind'}, others are {usual}"
                yield layout.offsets(batch.batch), message, batch.batch
    for field, key in (("watermark", "batchWatermarkMs"), ("timestamp", "batchTimestampMs")):
        lacking = [batch for batch in batches if getattr(batch.offsets, field) is None]
        for batch in lacking if len(lacking) < len(batches) else ():
            message = f"has no {key}, which other batches have: Spark would take 0"
            yield layout.offsets(batch.batch), message, batch.batch


def _watermarks(history: list[BatchEvidence], moves: Moves) -> Iterator[Contradiction]:
    """The watermark that a commit leaves is that of the next batch, and never goes back. A repartition takes over what
    the batch of its state began with, and what that one left."""
    for batch in history:
        begun = batch.offsets.watermark if batch.offsets else None
        left = batch.commit.watermark if batch.commit else None
        if begun is not None and left is not None and left < begun:
            message = f"leaves watermark {left}, and the batch began with {begun}: it never goes back"
            yield layout.commits(batch.batch), message, batch.batch
    for before, batch in pairwise(history):
        left = before.commit.watermark if before.commit else None
        begun = batch.offsets.watermark if batch.offsets else None
        if left is None or begun is None or left == begun or before.batch != batch.batch - 1 or batch.batch in moves:
            continue
        # A third value tells which is wrong: watermarks grow, from what a batch begins with to what it leaves.
        first = before.offsets.watermark if before.offsets else None
        last = batch.commit.watermark if batch.commit else None
        early = left < begun and first is not None and left < first
        late = left > begun and last is not None and last < left
        if not (early or late):
            message = f"begins with watermark {begun}, and batch {before.batch} left {left}"
            yield layout.offsets(batch.batch), message, batch.batch
        behind = first is not None and begun < first
        ahead = last is not None and begun > last
        if not (behind or ahead):
            message = f"leaves watermark {left}, and batch {batch.batch} began with {begun}"
            yield layout.commits(before.batch), message, before.batch


def _commits(history: list[BatchEvidence], evidence: CheckpointEvidence) -> Iterator[Contradiction]:
    """The unique ids of state: of every operator and partition, each given once, in every commit after the first."""
    owners: dict[str, int] = {}
    earlier = False
    foreign = {
        version - 1: other - 1 for part in evidence.partitions for version, other in part.files.foreign_ids.items()
    }
    for batch in history:
        if batch.batch in foreign:
            message = f"has unique ids that files of batch {foreign[batch.batch]} have: it is a copy of another commit"
            yield layout.commits(batch.batch), message, batch.batch
    for batch in history:
        if batch.commit is None:
            continue
        ids = batch.commit.ids
        if ids is None:
            if earlier:
                message = "has no unique ids of state, which the commits before it have"
                yield layout.commits(batch.batch), message, batch.batch
            continue
        earlier = True
        tasks = evidence.tasks(batch) if batch.offsets is not None else []
        for operator in sorted({task.operator for task in tasks}):
            partitions = sum(task.operator == operator for task in tasks)
            if partitions > 1 and len(ids.get(operator, ())) != partitions:
                named = len(ids.get(operator, ()))
                message = f"has unique ids of {named} partitions of operator {operator}, the offsets have {partitions}"
                yield layout.commits(batch.batch), message, batch.batch
        own = {uuid for partitions_of in ids.values() for stores in partitions_of for uuid in stores}
        again = sorted(owners[uuid] for uuid in own if uuid in owners)
        if again:
            message = f"has unique ids of state that batch {again[-1]} has: one of them is a copy"
            yield layout.commits(batch.batch), message, batch.batch
        owners.update(dict.fromkeys(own, batch.batch))


def _idle(batches: list[BatchEvidence], evidence: CheckpointEvidence) -> Iterator[Contradiction]:
    """A batch that read nothing by its offsets leaves state as it is, where the watermark does not move either."""
    operators = {part.id.operator for part in evidence.partitions}
    if len(operators) != 1 or evidence.names.keys() != operators or evidence.names[min(operators)] not in _BY_INPUT:
        return
    for older, before, batch in zip(batches, batches[1:], batches[2:], strict=False):
        same = _offsets(before).sources == _offsets(batch).sources
        still = _offsets(older).watermark == _offsets(before).watermark == _offsets(batch).watermark
        if not same or not still or batch.batch != before.batch + 1 or not evidence.ended(batch):
            continue
        for part in evidence.partitions:
            log = part.of(part.files.log(batch.batch + 1))
            if log is not None and log.records:
                # Either may have been overwritten with the other: both are doubted.
                message = f"has the offsets of batch {before.batch}, and yet {log.path} changes {log.records} keys"
                yield layout.offsets(batch.batch), message, batch.batch
                message = f"has the offsets of batch {batch.batch}, which read something: {log.path}"
                yield layout.offsets(before.batch), message, before.batch
                break


def _ahead(batches: list[BatchEvidence]) -> Iterator[Contradiction]:
    """Of a batch that went back behind the one before it, the one before may be the wrong one: where leaving it out
    makes positions grow."""
    for number in range(1, len(batches)):
        before, batch = batches[number - 1], batches[number]
        older = batches[number - 2] if number > 1 else None
        after = _offsets(batches[number + 1]).sources if number + 1 < len(batches) else {}
        for name, offset in _offsets(batch).sources.items():
            if places.why_recreated(_offsets(before).sources.get(name), offset, after.get(name)) is not None:
                continue
            split = _behind(_offsets(before).sources.get(name), offset)
            if split is None or (older is not None and _behind(_offsets(older).sources.get(name), offset) is not None):
                continue
            message = f"is ahead of batch {batch.batch} in {split} of source {name}"
            yield layout.offsets(before.batch), message, before.batch


def _behind(old: str | None, new: str | None) -> str | None:
    """The first split in which a position is less than an older one."""
    stood = {position.split: position.offset for position in places.positions(old) or ()}
    for position in places.positions(new) or ():
        was = stood.get(position.split)
        if was is not None and position.offset is not None and position.offset < was:
            return position.split
    return None


def _twins(batches: list[BatchEvidence], moves: Moves, findings: Findings) -> Iterator[Contradiction]:
    """Batches of one and the same time: one is a copy of the other. The one that its commits deny, if there is one."""
    by_time: dict[int, list[BatchEvidence]] = defaultdict(list)
    for batch in batches:
        at = _offsets(batch).timestamp
        if at is not None:
            alike = by_time[at]
            # A repartition takes over the time of the batch before it, and is no copy.
            if not (alike and batch.batch in moves and moves[batch.batch].of == alike[-1].batch):
                alike.append(batch)
            else:
                alike[-1] = batch
    for alike in by_time.values():
        if len(alike) < 2:
            continue
        denied = [batch for batch in alike if findings.get(batch.batch)]
        for batch in denied if 0 < len(denied) < len(alike) else alike:
            other = next(one for one in alike if one is not batch)
            message = f"has the time of batch {other.batch} to the millisecond: one of them is a copy"
            yield layout.offsets(batch.batch), message, batch.batch
