"""Going back to a batch of a Spark checkpoint: what a copy keeps, leaves out and writes anew. Pure: nothing is copied.

A copy from which the query goes on after batch N has the query's id, offsets and commits up to N, the source logs up
to the positions of N, all schemas and operators' metadata, and of each partition the files that lead to version N + 1.
What comes later stays behind: offsets of N + 1 would make Spark run that batch with yesterday's end, and files of
later versions would be taken for its own. Spark: `MicroBatchExecution.populateStartOffsets`.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass

from formats.errors import FormatError, NoRecovery, NotFound
from formats.spark import layout, logs, sources
from formats.spark.checkpoint import Checkpoint
from formats.spark.gather import CheckpointEvidence, SourceEvidence
from formats.spark.operators import schema_here
from formats.spark.replay import Chain
from formats.spark.rocks import parse_zip


@dataclass(frozen=True, slots=True)
class Rewind:
    """What the copy is made of. keep: files as they are; write: files with new content; drop: files that stay behind,
    and why; replay: what the sink will see again, batch by batch, as (batch, was committed)."""

    batch: int
    keep: tuple[str, ...]
    write: tuple[tuple[str, bytes], ...]
    drop: tuple[tuple[str, str], ...]
    replay: tuple[tuple[int, bool], ...]


def rewind(
    checkpoint: Checkpoint,
    evidence: CheckpointEvidence,
    batch: int,
    *,
    to: str,
    files: list[str],
    query_id: str | None = None,
) -> Rewind:
    """What a copy of the checkpoint at `to` needs to go on after a batch.

    files: all paths of the checkpoint; query_id: in place of one that was lost. NoRecovery if the batch's own files do
    not allow it; whether its state is exact is `check_spark`'s to say.
    """
    known = {found.batch: found for found in evidence.batches}
    at = known.get(batch)
    if at is None or at.offsets is None:
        raise NoRecovery(f"the offsets of batch {batch} cannot be read", path=evidence.root)
    if batch > 0 and ((before := known.get(batch - 1)) is None or before.offsets is None):
        said = f"the offsets of batch {batch - 1} cannot be read, and Spark does not start from batch {batch} without"
        raise NoRecovery(said, path=layout.offsets(batch - 1), hint="go back further")
    keep = _Keep(evidence, batch, {name: sources.is_file_source(offset) for name, offset in at.offsets.sources.items()})
    write: dict[str, bytes] = {}
    if not at.committed or at.commit is None:
        if at.begun and batch > evidence.newest_commit:
            raise NoRecovery(f"batch {batch} was never committed", path=evidence.root)
        write[layout.commits(batch)] = commit_of(evidence, batch)
    if checkpoint.query_id is None:
        if query_id is None:
            hint = "give it with --query-id; the query's progress events and the file sink's folder name it"
            raise NoRecovery("the query's id is lost", path=layout.METADATA, hint=hint)
        write[layout.METADATA] = json.dumps({"id": query_id}, separators=(",", ":")).encode()
    for name, upto in keep.upto.items():
        if upto is not None and name in evidence.sources:
            write.update(_entries(checkpoint, evidence.sources[name], upto))
    chains = dict(_chains(checkpoint, evidence, batch))
    needed = set(_needed(checkpoint, chains))
    for operator in checkpoint.operators().values():
        if operator.path is not None and (text := _moved(checkpoint, operator.path, to)) is not None:
            write[operator.path] = text
    kept, dropped = [], []
    for path in files:
        if path in write or (_main(path) in write):
            continue
        why = keep.why_not(path, needed)
        if why is None:
            kept.append(path)
        else:
            dropped.append((path, why))
    later = [(n, known[n].committed) for n in sorted(known) if n > batch]
    return Rewind(batch, tuple(kept), tuple(sorted(write.items())), tuple(dropped), tuple(later))


class _Keep:
    """Which files belong to a checkpoint that ends with a batch."""

    def __init__(self, evidence: CheckpointEvidence, batch: int, upto: dict[str, int | None]) -> None:
        self.evidence, self.batch, self.upto = evidence, batch, upto

    def why_not(self, path: str, needed: set[str]) -> str | None:
        """Why a file stays behind; None if it is kept."""
        main = _main(path)
        folder, _, name = main.rpartition("/")
        top = main.partition("/")[0]
        if name.endswith(".tmp"):
            return "left by a write that never ended"
        entry = layout.log_entry(name)
        if folder in (layout.OFFSETS, layout.COMMITS) and entry is not None:
            return None if entry[0] <= self.batch else f"of batch {entry[0]}"
        if top == layout.SOURCES and entry is not None:
            upto = self.upto.get(folder.rpartition("/")[2])
            return None if upto is None or entry[0] <= upto else "seen by the source after the batch"
        if top == layout.STATE and re.fullmatch(r"state/\d+/\d+(/.+)?", folder) and "_metadata" not in folder:
            return None if main in needed else "not of the batch's state"
        return None


def _main(path: str) -> str:
    """The file that a checksum file belongs to; any other file itself."""
    folder, slash, name = path.rpartition("/")
    while name.endswith(".crc"):
        name = name[:-4]
        name = name.removeprefix(".")
    return f"{folder}{slash}{name}"


def _chains(checkpoint: Checkpoint, evidence: CheckpointEvidence, batch: int) -> Iterator[tuple[str, Chain]]:
    """The files that lead to the batch's state, damaged snapshots passed over."""
    for part in evidence.partitions:
        skip = frozenset(name for name, found in part.evidence.items() if found.file.whole and found.loud)
        try:
            yield part.folder, part.files.chain(batch + 1, skip=skip)
        except NotFound as error:
            raise NoRecovery(error.message, path=part.folder, hint="abs validate names the batches to go to") from None


def _needed(checkpoint: Checkpoint, chains: dict[str, Chain]) -> Iterator[str]:
    for folder, chain in chains.items():
        for file in chain.files:
            yield f"{folder}/{file.name}"
        if chain.base is not None and chain.base.kind == "zip":
            path = f"{folder}/{chain.base.name}"
            for sst in parse_zip(checkpoint.read(path), path).ssts:
                yield f"{folder}/{layout.SSTS}/{sst.name}"


def _entries(checkpoint: Checkpoint, source: SourceEvidence, upto: int) -> Iterator[tuple[str, bytes]]:
    """Entries of a source's log that only a later compaction still holds, as files of their own again. NoRecovery."""
    lacking = {problem.path for problem in source.lacking(upto)}
    later = [base for base in source.bases if base > upto]
    if not source.any or not lacking:
        return
    if not later:
        raise NoRecovery("an entry of the source's log is lost", path=sorted(lacking)[0])
    path = f"{source.folder}/{later[0]}.compact"
    version, rest = logs.lines(checkpoint.read(path), path, sources.NEWEST)
    by_batch: dict[int, list[str]] = {}
    for line in rest:
        by_batch.setdefault(logs.number(logs.parse(line, path), "batchId", path) or 0, []).append(line)
    base = max((found for found in source.bases if found <= upto), default=-1)
    for number in range(base + 1, upto + 1):
        if number not in source.there:
            text = "\n".join([f"v{version}", *by_batch.get(number, ())])
            yield f"{source.folder}/{number}", text.encode()


def commit_of(evidence: CheckpointEvidence, batch: int) -> bytes:
    """A commit for a batch that lost its own: its watermark is what the next batch began with. NoRecovery for
    checkpoint format 2, whose unique ids nothing else says."""
    after = next((found for found in evidence.batches if found.batch == batch + 1), None)
    if after is None or after.offsets is None or after.offsets.watermark is None:
        said = f"commits/{batch} is lost, and batch {batch + 1} does not say the watermark that it left"
        raise NoRecovery(said, path=layout.commits(batch))
    if any(found.commit is not None and found.commit.ids is not None for found in evidence.batches):
        raise NoRecovery(
            f"commits/{batch} is lost, and with it the unique ids of its state", path=layout.commits(batch)
        )
    return b'v1\n{"nextBatchWatermarkMs":%d}' % after.offsets.watermark


def _moved(checkpoint: Checkpoint, path: str, to: str) -> bytes | None:
    """An operator's metadata with the paths of its schemas at the copy; None if it has none."""
    try:
        data = checkpoint.read(path)
        _, rest = logs.lines(data, path, 2)
        said = logs.parse("\n".join(rest), path)
    except FormatError:
        return None
    changed = False
    for store in said.get("stateStoreInfo") or ():
        for i, absolute in enumerate(store.get("stateSchemaFilePaths") or ()):
            here = schema_here(absolute)
            if here is not None:
                store["stateSchemaFilePaths"][i] = f"{uri(to)}/{here}"
                changed = True
    head = data.split(b"\n", 1)[0]
    return head + b"\n" + json.dumps(said, separators=(",", ":"), ensure_ascii=False).encode() if changed else None


def uri(path: str) -> str:
    """A path as Spark writes it into its logs: local ones as `file:/...`."""
    return path.rstrip("/") if "://" in path else "file:" + posixpath.normpath("/" + path.lstrip("/"))


def move_source_log(data: bytes, path: str, old: str, new: str) -> tuple[bytes, int]:
    """A file source's log with input paths below `old` now below `new`, and how many were changed."""
    version, rest = logs.lines(data, path, sources.NEWEST)
    out, changed = [f"v{version}"], 0
    before, after = old.rstrip("/") + "/", new.rstrip("/") + "/"
    for line in rest:
        said = logs.parse(line, path)
        if str(said.get("path", "")).startswith(before):
            said["path"] = after + said["path"][len(before) :]
            changed += 1
            line = json.dumps(said, separators=(",", ":"), ensure_ascii=False)
        out.append(line)
    return "\n".join(out).encode(), changed
