"""All that a verdict on a checkpoint is made of: what its logs say and lack, and what is in each partition's files."""

from __future__ import annotations

import os
import posixpath
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

from formats.errors import UnsupportedVersion
from formats.parallel import process_pool
from formats.spark import layout
from formats.spark.checkpoint import UNREADABLE, Checkpoint
from formats.spark.evidence.facts import PartitionEvidence, PartitionWork, Problem, problem_of
from formats.spark.evidence.partition import probe
from formats.spark.ids import StateTask, StorePartition
from formats.spark.logs import log as logs
from formats.spark.logs.offsets import Commit, Offsets
from formats.spark.logs.operators import (
    OperatorInfo,
    StoreInfo,
    metadata_path,
    metadata_v2_dir,
    parse_operator,
    schema_here,
)
from formats.spark.logs.places import is_file_source
from formats.spark.logs.source_log import SourceEvidence, read_source
from formats.spark.replay import partition_files
from formats.spark.state.codings import Family, expected_partitions, families, fits, only_first
from formats.spark.state.schema import schema_v3_root
from formats.storage import Storage, common_name

ATTEMPTS = 4
"""How often files are listed, while a running query removes some of them."""


@dataclass(slots=True)
class BatchEvidence:
    """The logs of one batch.

    batch: its number.
    offsets: what its inputs had come to; None if that is lost or does not read.
    commit: that it was done; None if that is lost or does not read.
    begun: whether there is a file of its offsets.
    committed: whether there is a file of its commit.
    problems: of its offsets and commit.
    vouched: a checksum holds for both.
    """

    batch: int
    offsets: Offsets | None
    commit: Commit | None
    begun: bool
    committed: bool
    problems: list[Problem] = field(default_factory=list)
    vouched: bool = False


@dataclass(slots=True)
class CheckpointEvidence:
    """A checkpoint's facts.

    root: where it lies.
    batches: those that are asked for.
    history: the logs of all, ascending.
    partitions: the state files of each partition of each store.
    sources: the logs of file sources, by the source's name in the offsets.
    problems: of no batch.
    stale: absolute paths that lead elsewhere.
    orphans: paths that no batch refers to.
    expected: the tasks of a batch, by its number of partitions.
    names: of stateful operators.
    quick: state files were looked at by presence and size only.
    newest_commit: the newest batch with a commit, -1 if there is none.
    newest_begun: the newest batch with offsets, -1 if there is none.
    sparse: whether its logs have the gaps that asynchronous progress tracking leaves.
    unread: why no state is read.
    described: by operator that has metadata of version 2, the batches whose metadata can be read.
    """

    root: str
    batches: list[BatchEvidence]
    history: list[BatchEvidence]
    partitions: list[PartitionEvidence]
    sources: dict[str, SourceEvidence]
    problems: list[Problem]
    stale: list[Problem]
    orphans: list[str]
    expected: dict[int | None, list[StateTask]]
    names: dict[int, str | None]
    quick: bool
    newest_commit: int
    newest_begun: int
    sparse: bool
    unread: str | None
    described: dict[int, list[int]] = field(default_factory=dict)

    @property
    def stateless(self) -> bool:
        """Whether there is no stateful operator: then progress may be tracked asynchronously."""
        return not self.names

    @property
    def oldest_begun(self) -> int:
        """The oldest batch with offsets; 0 if there is none."""
        return next((batch.batch for batch in self.history if batch.begun), 0)

    @property
    def with_ids(self) -> bool:
        """Whether it is of checkpoint format 2, whose commits and files carry unique ids."""
        by_commit = any(one.commit is not None and one.commit.ids is not None for one in self.history)
        return by_commit or any(part.files.with_ids for part in self.partitions)

    def ended(self, batch: BatchEvidence) -> bool:
        """Whether a batch was done: it has a commit, or the batch after it was begun, which Spark does only then."""
        return batch.committed or batch.batch < self.newest_begun

    def before(self, batch: int) -> BatchEvidence | None:
        """The batch whose end another one began with; None where that is lost."""
        at = bisect_left(self.history, batch, key=lambda one: one.batch)
        earlier = self.history[at - 1] if at else None
        return earlier if earlier is not None and (self.sparse or earlier.batch == batch - 1) else None

    def after(self, batch: int) -> Offsets | None:
        """The offsets of the next batch that has any."""
        return next((one.offsets for one in self.history if one.batch > batch and one.offsets is not None), None)

    def tasks(self, batch: BatchEvidence) -> list[StateTask]:
        """The operators and partitions that a batch has state of."""
        partitions = batch.offsets.partitions if batch.offsets else None
        return self.expected.get(partitions) or next(iter(self.expected.values()), [])


def gather(
    checkpoint: Checkpoint,
    *,
    quick: bool = False,
    progress: Callable[[int], None] | None = None,
    workers: int = 1,
    only: int | None = None,
) -> CheckpointEvidence:
    """Read a checkpoint whole, every file once.

    quick: state files by presence and size only.
    progress: called with the bytes of the state files that are done.
    workers: processes that share the partitions out among them (started afresh, so worth it from some thousands of
        files on).
    only: what concerns one batch, with the logs of the batch before it.

    A running query purges files meanwhile. What is read of a file that has gone, or of a batch whose state has been
    purged since its logs were listed, is read again.
    """
    for _ in range(ATTEMPTS):
        evidence = _gather(checkpoint, quick, progress, workers, only)
        version = evidence.newest_commit + 1
        if not any(part.files.purged(version) for part in evidence.partitions):
            break
        checkpoint.forget(layout.COMMITS)
        if max(checkpoint.batches(layout.COMMITS), default=-1) == evidence.newest_commit:
            break
        checkpoint.forget_all()
    return evidence


def _gather(
    checkpoint: Checkpoint, quick: bool, progress: Callable[[int], None] | None, workers: int, only: int | None
) -> CheckpointEvidence:
    history = _history(checkpoint)
    numbers = [batch.batch for batch in history]
    asked = history if only is None else [one for one in history if only - 1 <= one.batch <= only]
    problems = _identity(checkpoint)
    gathered: list[PartitionEvidence] = []
    stale: list[Problem] = []
    counts = set(_counts(checkpoint))
    newest = checkpoint.newest_offsets()
    # Batch N leaves version N + 1: files of a later version are of no batch that was begun.
    last = max(numbers, default=-1) + 1
    unread = newest.unread if newest is not None else None
    work: list[PartitionWork] = []
    spare: dict[str, None] = {}  # folders of partitions that no batch has
    described: dict[int, list[int]] = {}
    names = [operator.name for operator in checkpoint.operators().values()]
    # A second operator gets rows from the first one, also in a batch that read nothing.
    removing = frozenset(_without_input(history)) if len(names) == 1 and names[0] in _REMOVE_ONLY else frozenset()
    metadata = False
    for operator in checkpoint.operators().values():
        metadata |= operator.path is not None
        problems += _operator(checkpoint, operator, counts)
        if (batches := _described(checkpoint, operator.id, problems)) is not None:
            described[operator.id] = batches
        stale += _stale(checkpoint, operator)
        for index, store in enumerate(operator.stores):
            own = _families(checkpoint, operator, store, newest, problems)
            metadata |= any(family.grouped for family in own or ())  # as old Sparks have none
            if operator.path is not None and own is not None and not fits(operator.name, own):
                message = f"calls operator {operator.id} {operator.name}, and its state is not of that kind"
                problems.append(Problem("log-mismatch", operator.path, message, True))
            # Where no offsets read, the operator's metadata says how many there are.
            partitions = counts or {store.partitions}
            for partition in checkpoint.partitions(operator.id) if unread is None else ():
                if counts and partition >= max(counts):
                    spare.setdefault(layout.task_dir(StateTask(operator.id, partition)))
                    continue
                work.append(
                    PartitionWork(
                        StorePartition(operator.id, partition, store.name),
                        index,
                        own,
                        frozenset(partitions),
                        newest is not None and newest.row_checksum,
                        newest is None or newest.strict,
                        last,
                        removing if own is not None and not any(only_first(family) for family in own) else frozenset(),
                        None if only is None else only + 1,
                    )
                )
    if not metadata:  # no operator has any: written before Spark 4.0
        problems = [p for p in problems if not (p.code == "missing-file" and p.path.endswith("_metadata/metadata"))]
    read = 0
    for evidence in _probed(checkpoint, work, quick, workers):
        gathered.append(evidence)
        if progress is not None:
            read += sum(one.file.size for one in evidence.evidence.values())
            progress(read)
    # Batches before and after a repartition have other tasks: the list is made once for each number of partitions.
    expected: dict[int | None, list[StateTask]] = {}
    for batch in history:
        count = batch.offsets.partitions if batch.offsets else (newest.partitions if newest else None)
        if count not in expected:
            expected[count] = [
                StateTask(operator.id, partition)
                for operator in checkpoint.operators().values()
                for partition in expected_partitions(checkpoint, operator, count)
            ]
    orphans = [path for evidence in gathered for path in evidence.orphans]
    sources = _sources(checkpoint, history)
    problems += _ahead(sources, newest)
    return CheckpointEvidence(
        checkpoint.storage.root,
        asked,
        history,
        gathered,
        sources,
        problems,
        stale,
        [*orphans, *spare, *_leftovers(checkpoint)],
        expected,
        {operator.id: operator.name for operator in checkpoint.operators().values()},
        quick,
        max(checkpoint.batches(layout.COMMITS), default=-1),
        max(checkpoint.batches(layout.OFFSETS), default=-1),
        _sparse(checkpoint),
        unread,
        described,
    )


_REMOVE_ONLY = frozenset({"stateStoreSave", "dedupe", "dedupeWithinWatermark", "sessionWindowStateStoreSaveExec"})
"""Operators that only remove rows in a batch without input. Joins may also change rows then."""


def _without_input(history: list[BatchEvidence]) -> Iterator[int]:
    """The versions of batches that read nothing, and began with a newer watermark than the batch before."""
    for before, batch in pairwise(history):
        was, now = before.offsets, batch.offsets
        if was is None or now is None or before.batch != batch.batch - 1 or was.sources != now.sources:
            continue
        if was.watermark is not None and now.watermark is not None and was.watermark < now.watermark:
            yield batch.batch + 1


def _sparse(checkpoint: Checkpoint) -> bool:
    """Whether batches between others are in neither log and there is no state: asynchronous progress tracking writes
    both only now and then, and is for queries without state."""
    numbers = _numbers(checkpoint)
    return not checkpoint.operators() and len(numbers) > 1 and numbers[-1] - numbers[0] >= len(numbers)


def _ahead(sources: dict[str, SourceEvidence], newest: Offsets | None) -> list[Problem]:
    """What is wrong with entries that no batch has come to yet: Spark reads them all when it starts."""
    out = []
    for name, offset in (newest.sources if newest is not None else {}).items():
        upto = is_file_source(offset)
        if upto is not None and name in sources:
            out += sources[name].lacking(sources[name].newest, upto + 1)
    return out


def _counts(checkpoint: Checkpoint) -> Iterator[int]:
    """How many partitions there are, and were before a checkpoint was repartitioned."""
    for number in checkpoint.batches(layout.OFFSETS):
        try:
            count = checkpoint.offsets(number).partitions
        except UNREADABLE:
            continue
        if count is not None:
            yield count


def _probed(
    checkpoint: Checkpoint, work: list[PartitionWork], quick: bool, workers: int
) -> Iterator[PartitionEvidence]:
    if workers < 2 or len(work) < 2:
        yield from (_probe(checkpoint, item, quick) for item in work)
        return
    started = (checkpoint.storage,)
    with process_pool(workers, initializer=_begin, initargs=started) as pool:
        # Several chunks a worker: the largest partitions may lie side by side.
        yield from pool.map(partial(_probe_there, quick=quick), work, chunksize=max(1, len(work) // (8 * workers)))


def _probe(checkpoint: Checkpoint, item: PartitionWork, quick: bool) -> PartitionEvidence:
    folder = layout.store_dir(item.id)
    ssts = f"{folder}/{layout.SSTS}"
    for _ in range(ATTEMPTS):
        evidence = probe(checkpoint, item, partition_files(checkpoint, item.id, item.index), quick=quick)
        listed = {*checkpoint.files(folder), *checkpoint.files(ssts)}
        checkpoint.forget(folder)
        lacking = any(one.code == "missing-file" for file in evidence.evidence.values() for one in file.problems)
        unused = any(path.startswith(f"{ssts}/") for path in evidence.orphans)
        if not (lacking or unused):
            break
        now = {*checkpoint.files(folder), *checkpoint.files(ssts)}
        # A running query removes files; and it adds SST files before the snapshot that refers to them.
        if not ((lacking and listed - now) or (unused and now - listed)):
            break
    checkpoint.forget(folder)
    return evidence


def _history(checkpoint: Checkpoint) -> list[BatchEvidence]:
    """The logs of all batches, listed again where one has been purged before it was read."""
    for _ in range(ATTEMPTS):
        numbers = _numbers(checkpoint)
        history = [_batch(checkpoint, number) for number in numbers]
        if all(problem.code != "missing-file" for batch in history for problem in batch.problems):
            break
        for folder in (layout.OFFSETS, layout.COMMITS):
            checkpoint.forget(folder)
        if _numbers(checkpoint) == numbers:
            break
    return history


_there: list[Checkpoint] = []
"""In a worker: its own view of the checkpoint."""


def _begin(storage: Storage) -> None:
    _there.append(Checkpoint(storage))


def _probe_there(item: PartitionWork, quick: bool) -> PartitionEvidence:
    return _probe(_there[0], item, quick)


def _numbers(checkpoint: Checkpoint) -> list[int]:
    return sorted({*checkpoint.batches(layout.OFFSETS), *checkpoint.batches(layout.COMMITS)})


def _batch(checkpoint: Checkpoint, number: int) -> BatchEvidence:
    begun, done = (checkpoint.size(path(number)) is not None for path in (layout.offsets, layout.commits))
    batch = BatchEvidence(number, None, None, begun, done, vouched=True)
    for there, path in ((begun, layout.offsets(number)), (done, layout.commits(number))):
        if not there:
            continue
        try:
            _, vouched = checkpoint.checked(path)
            batch.vouched &= vouched
            if path.startswith(layout.OFFSETS):
                batch.offsets = checkpoint.offsets(number)
            else:
                batch.commit = checkpoint.commit(number)
        except UNREADABLE as error:
            batch.problems.append(_log_problem(error, path))
    return batch


def _log_problem(error: Exception, path: str) -> Problem:
    assert isinstance(error, UNREADABLE)
    plain = problem_of(error, path)
    hint = f"; {error.hint}" if error.hint and isinstance(error, logs.EmptyLog) else ""
    code = "manifest-unreadable" if plain.code == "unreadable" else plain.code
    return Problem(code, plain.path, plain.message + hint, True)


def _identity(checkpoint: Checkpoint) -> list[Problem]:
    """The query's id."""
    path = layout.METADATA
    if checkpoint.size(path) is None:
        message = "the query's id is lost: Spark (4.2 on) does not start without it, older versions take a new one"
        return [Problem("missing-file", path, message, True)]
    try:
        checkpoint.checked(path)
    except UNREADABLE as error:
        return [_log_problem(error, path)]
    if checkpoint.query_id is None:
        message = "names no query id that is a UUID, and Spark does not start without"
        return [Problem("manifest-unreadable", path, message, True)]
    return []


def _operator(checkpoint: Checkpoint, operator: OperatorInfo, counts: set[int]) -> list[Problem]:
    """The operator's metadata, read again for what is wrong with it."""
    try:
        reread = checkpoint.operator(operator.id)
        checkpoint.checked(reread.path or "")
    except UNREADABLE as error:
        plain = problem_of(error, metadata_path(operator.id))
        return [plain]
    from_the_first = checkpoint.batches(layout.OFFSETS)[:1] == [0]  # what was before a repartition may be purged
    for store in operator.stores:
        if from_the_first and counts and store.partitions not in counts | {1}:
            several = " or ".join(str(count) for count in sorted(counts))
            message = f"gives store {store.name} {store.partitions} partitions, the offsets of all batches {several}"
            return [Problem("log-mismatch", reread.path or "", message, False)]
    return []


def _described(checkpoint: Checkpoint, operator: int, problems: list[Problem]) -> list[int] | None:
    """The batches with metadata of version 2 that can be read; None for an operator of version 1.

    problems: what is wrong with others is added, unless it is known.
    """
    if not checkpoint.metadata_batches(operator) and not checkpoint.folders(schema_v3_root(operator)):
        return None
    out = []
    for batch in checkpoint.metadata_batches(operator):
        path = f"{metadata_v2_dir(operator)}/{batch}"
        try:
            parse_operator(checkpoint.checked(path)[0], path, operator)
            out.append(batch)
        except UNREADABLE as error:
            if all(problem.path != path for problem in problems):
                problems.append(problem_of(error, path, loud=not isinstance(error, UnsupportedVersion)))
    return out


def _families(
    checkpoint: Checkpoint, operator: OperatorInfo, store: StoreInfo, newest: Offsets | None, problems: list[Problem]
) -> tuple[Family, ...] | None:
    path = checkpoint.schema_file(operator.id, store)
    try:
        checkpoint.checked(path)
        return tuple(families(checkpoint, operator, store, newest.encoding if newest else "unsaferow"))
    except UNREADABLE as error:
        # Spark may well read a schema that is newer than this program.
        problems.append(problem_of(error, path, loud=not isinstance(error, UnsupportedVersion)))
        return None


def _stale(checkpoint: Checkpoint, operator: OperatorInfo) -> list[Problem]:
    """Schema files that metadata names by a path outside of this checkpoint: Spark looks for them there."""
    out = []
    for store in operator.stores:
        for absolute in store.schemas:
            here = schema_here(absolute)
            root = absolute[: -len(here) - 1] if here else absolute
            if here is not None and _one_place(root, checkpoint.storage.root):
                continue
            message = f"names {absolute}, which is not in this checkpoint: Spark looks for the schema there"
            out.append(Problem("stale-path", operator.path or "", message, False))
    return out


def _one_place(one: str, other: str) -> bool:
    """Whether two paths or URIs are of one folder: local ones wherever they begin and whatever links they go over."""
    one, other = _plain(one), _plain(other)
    return one == other or ("://" not in one + other and os.path.realpath(one) == os.path.realpath(other))


def _plain(uri: str) -> str:
    """A path or URI so that the same place is written in one way."""
    uri = common_name(re.sub(r"^(file:/*|dbfs:/*(?=.))", lambda lead: "/" if lead[0][0] == "f" else "/dbfs/", uri))
    scheme, slashes, path = uri.rpartition("://")
    scheme = {"abfss": "abfs"}.get(scheme, scheme)
    return scheme + slashes + posixpath.normpath(path)


def _sources(checkpoint: Checkpoint, batches: list[BatchEvidence]) -> dict[str, SourceEvidence]:
    """The logs of file sources, each file read once."""
    names = {
        name
        for batch in batches
        if batch.offsets is not None
        for name, offset in batch.offsets.sources.items()
        if is_file_source(offset) is not None
    }
    return {name: read_source(checkpoint, name) for name in sorted(names)}


def _leftovers(checkpoint: Checkpoint) -> list[str]:
    """What writes that never ended left behind: hidden `.tmp` files of Hadoop's and Spark's."""
    folders = [layout.OFFSETS, layout.COMMITS, *(f"{layout.SOURCES}/{n}" for n in checkpoint.folders(layout.SOURCES))]
    return [
        f"{folder}/{name}"
        for folder in folders
        for name in sorted(checkpoint.listing(folder).hidden)
        if name.endswith(".tmp")
    ]
