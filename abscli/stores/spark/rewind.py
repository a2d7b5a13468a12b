"""Going back to a batch of a Spark checkpoint: what a copy keeps, leaves out and writes anew. Pure: nothing is copied.

A copy from which the query goes on after batch N has the query's id, offsets and commits up to N, the source logs up
to the positions of N, all schemas and operators' metadata, and of each partition the files that lead to version N + 1
(and, where they are sound, to version N).
What comes later stays behind: offsets of N + 1 would make Spark run that batch with yesterday's end, and files of
later versions would be taken for its own. Spark: `MicroBatchExecution.populateStartOffsets`.

Where the sink goes by the numbers of batches, yesterday's end is just what is wanted: then offsets of N + 1 are kept,
with what its sources had seen.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field

from abscli.stores.spark.commits import commit_of
from abscli.stores.spark.logs import contradictions
from abscli.stores.spark.relocate import METADATA, is_foreign, move_foreign, move_metadata, move_source_log
from formats.errors import NoRecovery, NotFound
from formats.spark import layout
from formats.spark.checkpoint import UNREADABLE, Checkpoint
from formats.spark.evidence.gathering import BatchEvidence, CheckpointEvidence
from formats.spark.logs import log as logs
from formats.spark.logs import places, sources
from formats.spark.logs.repartitions import Repartition, repartitions
from formats.spark.logs.source_log import SourceEvidence
from formats.spark.plan import Moved, SetPosition
from formats.spark.replay import Chain
from formats.spark.state.rocks import parse_zip
from formats.storage import absolute

_OPERATOR = re.compile(rf"{layout.STATE}/\d+/_metadata/metadata")
"""An operator's metadata of version 1."""
_RECREATED = re.compile(rf"{layout.STATE}/\d+/(\d+/(.+/)?_metadata/schema|_stateSchema/.+|_metadata/v2/\d+)")
"""Schemas of state, and metadata of version 2. Spark goes on without them, and writes them again: each was tried with
Spark 4.3. It does not start if one is damaged."""


@dataclass(frozen=True, slots=True)
class Write:
    """A file with new content.

    path: where it lies in the copy.
    why: what is the matter with the one of the checkpoint.
    data: its bytes; None for its own, with the places of the copy in them (`_renewed`).
    """

    path: str
    why: str
    data: bytes | None


@dataclass(frozen=True, slots=True)
class Rewind:
    """What the copy is made of.

    batch: the last one that is done in it.
    keep: files as they are.
    write: files with new content.
    drop: files that stay behind, and why.
    replay: what the sink will see again, batch by batch, as (batch, was committed).
    moved: of files that are kept at another path than theirs, their own path.
    """

    batch: int
    keep: tuple[str, ...]
    write: tuple[Write, ...]
    drop: tuple[tuple[str, str], ...]
    replay: tuple[tuple[int, bool], ...]
    moved: dict[str, str] = field(default_factory=dict)


def rewind(
    checkpoint: Checkpoint,
    evidence: CheckpointEvidence,
    batch: int,
    *,
    files: Sequence[str],
    query_id: str | None = None,
    moves: Sequence[Moved] = (),
    next_as_before: bool = False,
    positions: Sequence[SetPosition] = (),
) -> Rewind:
    """What a copy of the checkpoint needs to go on after a batch.

    files: all paths of the checkpoint.
    query_id: in place of one that was lost.
    moves: of inputs.
    next_as_before: the batch after it runs with the offsets that it had.
    positions: where sources go on in place of where the batch ended.

    NoRecovery if the batch's own files do not allow it; whether its state is exact is `check_spark`'s to say.
    """
    by_number = {one.batch: one for one in evidence.history}
    at = by_number.get(batch)
    if at is None or at.offsets is None:
        raise NoRecovery(f"the offsets of batch {batch} cannot be read", path=layout.offsets(batch))
    before = evidence.before(batch)
    # Spark, starting again, takes where the newest batch began from the offsets of the one before it.
    if batch > 0 and (before is None or before.offsets is None):
        raise NoRecovery(
            f"the offsets of batch {batch - 1} cannot be read, and Spark does not start from batch {batch} without",
            path=layout.offsets(batch - 1), hint="roll back further",
        )  # fmt: skip
    if not evidence.ended(at):
        raise NoRecovery(f"batch {batch} was never committed", path=layout.commits(batch))
    parted = repartitions(evidence)
    if next_as_before and batch + 1 in parted:
        raise NoRecovery(
            f"batch {batch + 1} only repartitions state, from {parted[batch + 1].before} to {parted[batch + 1].after} "
            "partitions: it has no input of its own, and Spark does not start from one that did not end",
            path=layout.offsets(batch + 1), hint="remove --keep-in-flight, and repartition the copy",
        )  # fmt: skip
    # The newest batch that the copy has offsets of: one that is not done if it is to run again with its old end.
    last = by_number.get(batch + 1) if next_as_before else at
    if last is None or last.offsets is None:
        raise NoRecovery(
            f"the offsets of batch {batch + 1} cannot be read, so that it cannot run with them again",
            path=layout.offsets(batch + 1), hint="remove --keep-in-flight",
        )  # fmt: skip
    upto = {name: places.is_file_source(offset) for name, offset in last.offsets.sources.items()}
    passed = bool(batch in parted and parted[batch].passed)
    needed, first = _state(checkpoint, evidence, at, None if passed else before)
    # Logs go back as far as state does, and to the batch before in any case: Spark reads its offsets.
    first = min(first, before.batch if before is not None else batch - 1)
    write = {file.path: file for file in _logs(checkpoint, evidence, by_number, first, batch, query_id)}
    for name, position in upto.items():
        if position is not None and name in evidence.sources:
            write.update(_entries(checkpoint, evidence.sources[name], position, moves))
    # The batch itself has been judged. Others that are contradicted stay behind: the copy is to be without fault.
    against = contradictions(evidence)
    doubted = against.keys() - {batch}
    wrong_commits = {layout.commits(n) for n in doubted if layout.commits(n) in {one.path for one in against[n]}}
    if before is not None and (path := layout.commits(before.batch)) in wrong_commits:
        with contextlib.suppress(NoRecovery):
            write[path] = Write(path, "the commit contradicts others", commit_of(evidence, before.batch))
    # This one cannot stay behind, for Spark does not start without: it is made to agree instead.
    if before is not None and before.batch in doubted:
        write.update(_settled(checkpoint, before, at))
        doubted -= {before.batch}
    if passed and before is not None:
        write.update(_passed(checkpoint, before, at, parted[batch]))
    if positions:
        write.update(_positions(checkpoint, at, positions))
    recreated = [one for one in positions if one.recreated]
    if recreated:
        # When it starts, Spark compares the batch before with the source, too. Older batches are left out.
        first = before.batch if before is not None else batch
        if before is not None:
            write.update(_positions(checkpoint, before, recreated))
    damaged = {problem.path for problem in evidence.problems if problem.loud or _OPERATOR.fullmatch(problem.path)}
    keep = _Keep(by_number, range(first, batch + 1), last.batch, upto, needed, damaged, doubted)
    kept, dropped = [], []
    for path in files:
        # Nor is the checksum file of one that is rewritten kept: it is of the old bytes.
        if main_file(path) in write:
            continue
        why = keep.why_not(path)
        if main_file(path) in wrong_commits:
            why = why or "contradicts others, and can be done without"
        if why is not None:
            dropped.append((path, why))
        elif (renewed := _renewed(checkpoint, path, moves)) is not None:
            write[path] = renewed
        # A checksum file goes along unless the file that it is of gets other bytes.
        elif main_file(path) == path or _renewed(checkpoint, main_file(path), moves) is None:
            kept.append(path)
    # A repartition read nothing, and its sink saw nothing of it; what it gave up was in flight.
    given_up = {number for move in parted.values() for number in move.passed}
    later = [
        (n, by_number[n].committed and n not in given_up) for n in sorted(by_number) if n > batch and n not in parted
    ]
    return Rewind(batch, tuple(kept), tuple(write[path] for path in sorted(write)), tuple(dropped), tuple(later))


class _Keep:
    """Which files belong to a checkpoint of some batches.

    by_number: the logs of all batches.
    batches: those whose logs are kept.
    begun: the last batch whose offsets are kept.
    upto: the last entry of each file source's log that is kept; None for a source that has no such log.
    needed: paths of the state files that are kept.
    damaged: paths with which Spark does not start. Of operators' metadata of version 1 it writes all again, or none.
    doubted: batches whose logs contradict others.
    """

    def __init__(
        self,
        by_number: dict[int, BatchEvidence],
        batches: range,
        begun: int,
        upto: dict[str, int | None],
        needed: set[str],
        damaged: Set[str],
        doubted: Set[int],
    ) -> None:
        self.by_number, self.batches, self.begun, self.upto, self.needed = by_number, batches, begun, upto, needed
        self.damaged, self.doubted = damaged, doubted
        self.nameless = any(_OPERATOR.fullmatch(path) for path in damaged)
        own = [one.offsets.sources for number, one in by_number.items() if number <= begun and one.offsets is not None]
        self.sources = {source for sources in own for source in sources}

    def why_not(self, path: str) -> str | None:
        """Why a file stays behind; None if it is kept."""
        main = main_file(path)
        folder, _, name = main.rpartition("/")
        top = main.partition("/")[0]
        if name.endswith(".tmp"):
            return "left by writes that never ended"
        entry = layout.log_entry(name)
        if folder in (layout.OFFSETS, layout.COMMITS) and entry is not None:
            return self._log(folder, entry[0])
        if top == layout.SOURCES and (source := main.split("/")[1]) not in self.sources:
            return f"of source {source}, which came later"
        if top == layout.SOURCES and entry is not None:
            upto = self.upto.get(folder.rpartition("/")[2])
            return None if upto is None or entry[0] <= upto else "seen by a source after the batch"
        if top == layout.STATE and re.fullmatch(r"state/\d+/\d+(/.+)?", folder) and "_metadata" not in folder:
            return None if main in self.needed else "state that the batch does without"
        if self.nameless and _OPERATOR.fullmatch(main):
            return "an operator's metadata is lost or damaged: Spark writes that of all operators anew"
        if METADATA.fullmatch(main) and name.isdigit() and self.batches[-1] < int(name):
            return "an operator's metadata of a later batch"
        if main in self.damaged and _RECREATED.fullmatch(main):
            return "damaged: Spark does not start with it, and writes it again"
        return None

    def _log(self, folder: str, number: int) -> str | None:
        # One batch more may have been begun than is done: it has offsets and no commit.
        if number > (self.begun if folder == layout.OFFSETS else self.batches[-1]):
            return "of later batches"
        if number < self.batches[0]:
            return "of earlier batches, whose state is not copied"
        entry = self.by_number.get(number)
        if entry is not None and entry.offsets is None:
            return "of a batch whose offsets cannot be read"
        if number in self.doubted and number <= self.batches[-1]:
            return "of a batch that contradicts others"
        if folder == layout.COMMITS and entry is not None and entry.commit is None:
            return "cannot be read, and can be done without"
        return None


def _logs(
    checkpoint: Checkpoint,
    evidence: CheckpointEvidence,
    by_number: dict[int, BatchEvidence],
    first: int,
    batch: int,
    query_id: str | None,
) -> Iterator[Write]:
    """Commits and the query's id where they are lost: what can be told from elsewhere."""
    for number in sorted(by_number):
        entry = by_number[number]
        if not first <= number <= batch or entry.offsets is None or entry.commit is not None:
            continue
        try:
            yield Write(layout.commits(number), "the commit was lost or cannot be read", commit_of(evidence, number))
        except NoRecovery:
            # Only the batch gone back to needs its commit: older ones do without.
            if number == batch:
                raise
    if checkpoint.query_id is None:
        if query_id is None:
            hint = "give it with --query-id; the query's progress events and log name it"
            raise NoRecovery("the query's id is lost", path=layout.METADATA, hint=hint)
        data = json.dumps({"id": query_id}, separators=(",", ":")).encode()
        yield Write(layout.METADATA, "the query's id was lost", data)


def _settled(checkpoint: Checkpoint, before: BatchEvidence, at: BatchEvidence) -> Iterator[tuple[str, Write]]:
    """The offsets of the batch before, of which Spark takes the positions alone, with the settings of the batch itself
    where theirs contradict them."""
    assert before.offsets is not None
    assert at.offsets is not None
    if before.offsets.conf == at.offsets.conf:
        return
    path = layout.offsets(before.batch)
    version, text, *rest = checkpoint.read(path).decode().split("\n")
    head = {**json.loads(text or "{}"), "conf": at.offsets.conf}
    data = "\n".join([version, json.dumps(head, separators=(",", ":"), ensure_ascii=False), *rest])
    yield path, Write(path, "its settings contradict those of other batches", data.encode())


def _passed(
    checkpoint: Checkpoint, before: BatchEvidence, at: BatchEvidence, move: Repartition
) -> Iterator[tuple[str, Write]]:
    """The logs of the batch before a repartition that has given it up: as of the batch whose state it has. Spark starts
    from where the batch before ended, and some sources, as of files, cannot go back from there."""
    why = f"batch {before.batch} was given up when its state was repartitioned: as of batch {move.of}"
    path = layout.offsets(before.batch)
    yield path, Write(path, why, checkpoint.read(layout.offsets(move.of)))
    left = at.commit.watermark if at.commit is not None else None
    if left is not None:
        path = layout.commits(before.batch)
        yield path, Write(path, why, b'v1\n{"nextBatchWatermarkMs":%d}' % left)


def _positions(
    checkpoint: Checkpoint, at: BatchEvidence, positions: Sequence[SetPosition]
) -> Iterator[tuple[str, Write]]:
    """The offsets of the batch, which the next one begins with, with other places in some splits."""
    assert at.offsets is not None
    path = layout.offsets(at.batch)
    lines = checkpoint.read(path).decode().split("\n")
    for number, (source, offset) in enumerate(at.offsets.sources.items()):
        changed = offset
        for one in positions:
            if one.source == source:
                changed = places.with_position(changed, one.split, one.after, one.table)
        if changed is not None and changed != offset:
            lines[number + 2] = changed if at.offsets.version == 1 else f"{source}:{changed}"
    yield path, Write(path, "sources go on from other places", "\n".join(lines).encode())


def _renewed(checkpoint: Checkpoint, path: str, moves: Sequence[Moved]) -> Write | None:
    """A file that names places: of schemas, or of inputs that have moved."""
    if METADATA.fullmatch(path):
        try:
            if move_metadata(checkpoint.read(path), path, "", frozenset()) is not None:
                return Write(path, "names schemas by their absolute paths", None)
        except UNREADABLE:
            return None
    if is_foreign(path) and main_file(path) == path and checkpoint.size(path) is not None:
        if move_foreign(checkpoint.read(path), absolute(checkpoint.storage.root), "") is not None:
            return Write(path, "names places in the checkpoint by their absolute paths", None)
        return None
    parts = path.split("/")
    if moves and len(parts) == 3 and parts[0] == layout.SOURCES and layout.log_entry(parts[2]) is not None:
        data = checkpoint.read(path)
        try:
            if any(move_source_log(data, path, move.old, move.new)[1] for move in moves):
                return Write(path, "names inputs that have moved", None)
        except UNREADABLE:
            return None
    return None


def main_file(path: str) -> str:
    """The file that a checksum file belongs to; any other file itself."""
    folder, slash, name = path.rpartition("/")
    while name.endswith(".crc"):
        name = name[:-4]
        name = name.removeprefix(".")
    return f"{folder}{slash}{name}"


def _chains(evidence: CheckpointEvidence, batch: BatchEvidence, *, clean: bool = False) -> dict[str, Chain]:
    """By partition that the batch has, the files that lead to its state, damaged snapshots passed over. NoRecovery.

    clean: nothing at all may be wrong with them.
    """
    chains: dict[str, Chain] = {}
    tasks = set(evidence.tasks(batch))
    for part in evidence.partitions:
        if part.id.task not in tasks:
            continue
        # Spark passes over a snapshot that it sees to be damaged (4.1 on): the way around it has to be in the copy.
        skip = frozenset(name for name, one in part.evidence.items() if one.file.whole and one.loud)
        try:
            chain = chains[part.folder] = part.files.chain(batch.batch + 1, skip=skip)
        except NotFound as error:
            hint = "list the restorable batches with abs validate"
            raise NoRecovery(error.message, path=part.folder, hint=hint) from None
        if clean and any(part.evidence[file.name].problems for file in chain.files):
            raise NoRecovery(f"batch {batch.batch} is damaged", path=part.folder)
    return chains


def _state(
    checkpoint: Checkpoint, evidence: CheckpointEvidence, batch: BatchEvidence, before: BatchEvidence | None
) -> tuple[set[str], int]:
    """The state files that are needed, and the first batch whose state is whole with them. With those of the batch go
    those of the one before, where they are sound: Spark keeps two at the least."""
    chains = [_chains(evidence, batch)]
    if before is not None:
        # Where the one before is not sound its files stay behind: one version less to fall back on, and no harm.
        with contextlib.suppress(NoRecovery):
            chains.insert(0, _chains(evidence, before, clean=True))
    # The first chains are those of the older batch. State is whole from the newest of their snapshots on: before that
    # some partition has none. A snapshot of version V is what batch V - 1 left.
    bases = (chain.base.version - 1 if chain.base is not None else 0 for chain in chains[0].values())
    needed = {path for own in chains for path in _needed(checkpoint, own)}
    return needed, max(bases, default=0)


def _needed(checkpoint: Checkpoint, chains: dict[str, Chain]) -> Iterator[str]:
    for folder, chain in chains.items():
        for file in chain.files:
            yield f"{folder}/{file.name}"
        if chain.base is not None and chain.base.uuid is not None:  # Spark may look for its lineage
            own = f"{folder}/{chain.base.version}_{chain.base.uuid}.changelog"
            if checkpoint.size(own) is not None:
                yield own
        if chain.base is not None and chain.base.kind == "zip":
            path = f"{folder}/{chain.base.name}"
            for sst in parse_zip(checkpoint.read(path), path).ssts:
                yield f"{folder}/{layout.SSTS}/{sst.name}"


def _entries(
    checkpoint: Checkpoint, source: SourceEvidence, upto: int, moves: Sequence[Moved]
) -> Iterator[tuple[str, Write]]:
    """Entries of a source's log that only a later compaction still holds, as files of their own again. NoRecovery."""
    lacking = {problem.path for problem in source.lacking(upto)}
    later = [base for base in source.bases if base > upto]
    if not source.any or not lacking:
        return
    if not later:
        hint = "roll back further, to a batch that had not read it"
        raise NoRecovery("the entry of the source's log is lost", path=sorted(lacking)[0], hint=hint)
    path = f"{source.folder}/{later[0]}.compact"
    version, rest = logs.lines(checkpoint.read(path), path, sources.NEWEST)
    # A compaction says of each file which entry named it, so that the entries can be had back one by one.
    by_batch: dict[int, list[str]] = {}
    for line in rest:
        by_batch.setdefault(logs.number(logs.parse(line, path), "batchId", path) or 0, []).append(line)
    # What is in an earlier compaction needs no file of its own.
    base = max((number for number in source.bases if number <= upto), default=-1)
    for number in range(base + 1, upto + 1):
        if number not in source.there:
            data = "\n".join([f"v{version}", *by_batch.get(number, ())]).encode()
            own = f"{source.folder}/{number}"
            for move in moves:
                data = move_source_log(data, own, move.old, move.new)[0]
            yield own, Write(own, "only a later compaction has the entry", data)
