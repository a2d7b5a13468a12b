"""State files of a checkpoint that lie in another partition's folder, and snapshots that are not what their logs lead
to: where each belongs, and why. Nothing is moved: a copy has them there.

What proves a place: the unique id that the commit of a batch gives a partition's state (checkpoint format 2); Spark's
hash, which puts every key of a file into one partition that has no file of that version of its own; that the schema of
a store lies in partition 0 alone. Whether state is exact with the files there is for the checks to say.
"""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from formats.spark import layout
from formats.spark.checkpoint import UNREADABLE, Checkpoint
from formats.spark.evidence.facts import FileEvidence, PartitionEvidence
from formats.spark.evidence.gathering import CheckpointEvidence
from formats.spark.ids import StorePartition
from formats.spark.rearranged import Rearranged
from formats.spark.state.rocks import parse_zip
from formats.spark.state.schema import schema_path
from formats.storage import Storage

SUPERFLUOUS = "snapshots that hold what they should not, and that the logs lead past"


@dataclass(frozen=True, slots=True)
class Arranged:
    """What a copy has elsewhere, or has not.

    moved: by the path where a file belongs, the path where it lies.
    why: by the path where it belongs, what proves it.
    hidden: files that are done without.
    newest: the last version of state that it makes exact, None if all are. Spark goes on from state that lies in the
        wrong place without a word: what it wrote later may build on that.
    """

    moved: dict[str, str] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    newest: int | None = None

    def __bool__(self) -> bool:
        return bool(self.moved or self.hidden)

    def view(self, storage: Storage) -> Storage:
        """The checkpoint as a copy would have it."""
        # A file that lies where it does not belong is not there any more, unless another one comes to its place. An
        # SST file may be needed where it lies as well: several snapshots share it.
        gone = {own for own in self.moved.values() if posixpath.basename(posixpath.dirname(own)) != layout.SSTS}
        return Rearranged(storage, self.moved, gone | self.hidden) if self else storage


def schemas_back(checkpoint: Checkpoint) -> Arranged:
    """Schemas of stores that are not in partition 0, where alone Spark looks for them."""
    out = Arranged()
    for operator in checkpoint.operators().values():
        for store in operator.stores:
            path = schema_path(operator.id, store.name)
            if checkpoint.size(path) is not None or store.schemas:
                continue
            parts = [StorePartition(operator.id, n, store.name) for n in checkpoint.partitions(operator.id) if n]
            there = [f"{layout.store_dir(part)}/_metadata/schema" for part in parts]
            there = [other for other in there if checkpoint.size(other) is not None]
            if len(there) == 1:
                _move(checkpoint, out, {}, path, there[0], "the schema of a store lies in its partition 0 alone")
    return out


def put_back(checkpoint: Checkpoint, evidence: CheckpointEvidence, known: Arranged) -> Arranged:
    """All that is to be elsewhere, with what is known already. Both are of the checkpoint with `known` carried out."""
    out = Arranged(dict(known.moved), dict(known.why), set(known.hidden))
    last = evidence.newest_commit + 1
    doubtful: list[int] = []
    stores: dict[tuple[int, str], list[PartitionEvidence]] = defaultdict(list)
    for part in evidence.partitions:
        stores[part.id.operator, part.id.store].append(part)
    for parts in stores.values():
        if evidence.with_ids:
            _by_ids(checkpoint, out, known.moved, parts)
        else:
            moved = _by_keys(checkpoint, out, known.moved, parts)
            doubtful += _later(parts, moved, last)
    elsewhere = set(out.moved.values())
    for part in evidence.partitions:
        silent = {path: version for path, version in _superfluous(part) if path not in elsewhere}
        out.hidden.update(silent)
        doubtful += _later([part], {part.id.partition: set(silent.values())}, last)
    return replace(out, newest=min(doubtful, default=None))


def _later(parts: list[PartitionEvidence], versions: dict[int, set[int]], last: int) -> Iterator[int]:
    """The newest of some versions by partition, where a later one up to the last committed has changes that may build
    on what lay there."""
    for part in parts:
        own = versions.get(part.id.partition)
        if not own:
            continue
        files = (one for one in part.evidence.values() if max(own) < one.file.version <= last)
        if any(one.records != 0 for one in files):
            yield max(own)


def _by_ids(
    checkpoint: Checkpoint, out: Arranged, known: Mapping[str, str], parts: list[PartitionEvidence]
) -> None:
    """Of checkpoint format 2, whose files have names of their own: folders that are another partition's as a whole, and
    single files that another partition's state was committed under."""
    where = {name: part for part in parts for name in part.files.with_id()}
    whole = {part.id.partition: owner for part in parts for owner in [_owner(part, parts, where)] if owner is not None}
    for part in parts:
        target, why = whole.get(part.id.partition, (None, ""))
        if target is not None and len({number for number, _ in whole.values()}) == len(whole):
            folder = next(other.folder for other in parts if other.id.partition == target)
            for name in part.files.with_id():
                if layout.state_file(name, 0) is not None:
                    _move(checkpoint, out, known, f"{folder}/{name}", f"{part.folder}/{name}", why)
    for part in parts:
        for name in part.files.committed_names():
            owner = where.get(name)
            if owner is None or owner.id.partition in (part.id.partition, *whole):
                continue
            if part.files.named(name) is None:
                why = f"its name has the id that partition {part.id.partition} was committed with"
                _move(checkpoint, out, known, f"{part.folder}/{name}", f"{owner.folder}/{name}", why)


def _owner(
    part: PartitionEvidence, parts: list[PartitionEvidence], where: Mapping[str, PartitionEvidence]
) -> tuple[int, str] | None:
    """The partition that all of a folder's files are of, and why, where that is another one."""
    names = ((other, name) for other in parts for name in other.files.committed_names())
    committed = {other.id.partition for other, name in names if where.get(name) is part}
    if len(committed) == 1:
        target = committed.pop()
        why = f"the folder has the files that partition {target} was committed with"
        return None if target == part.id.partition else (target, why)
    keyed = {one.belongs for one in part.evidence.values() if one.belongs is not None or one.records}
    if committed or len(keyed) != 1 or None in keyed:
        return None
    target = next(number for number in keyed if number is not None)
    return target, f"Spark's hash puts all keys of the folder into partition {target}"


def _by_keys(
    checkpoint: Checkpoint, out: Arranged, known: Mapping[str, str], parts: list[PartitionEvidence]
) -> dict[int, set[int]]:
    """Files of which every key belongs into one other partition, and that partition's place for it is free; the
    versions that are moved, by the partitions that they are moved between."""
    moved: dict[int, set[int]] = defaultdict(set)
    folders = {part.id.partition: part.folder for part in parts}
    by_name: dict[str, dict[int, FileEvidence]] = defaultdict(dict)
    for part in parts:
        for name, one in part.evidence.items():
            by_name[name][part.id.partition] = one
    for name, own in by_name.items():
        home = {number: _home(checkpoint, one, folders) for number, one in own.items()}
        away = {number: target for number, target in home.items() if target is not None and target != number}
        # What has no keys says nothing of its place: it makes room for what does.
        empty = [number for number, one in own.items() if one.records == 0 and number in away.values()]
        taken = own.keys() - away.keys() - set(empty) - {n for n, one in own.items() if one.loud}
        targets = list(away.values())
        if not away or len(set(targets)) < len(targets) or taken & set(targets):
            continue
        for number, target in away.items():
            why = f"Spark's hash puts all of its keys into partition {target}"
            if own[number].belongs is None:
                why = f"the SST files that it names lie in partition {target}"
            _move(checkpoint, out, known, f"{folders[target]}/{name}", f"{folders[number]}/{name}", why)
            moved[number].add(own[number].file.version)
            moved[target].add(own[number].file.version)
        free = [number for number in sorted(away) if number not in targets]
        for number, target in zip(empty, free, strict=False):
            why = "it has no keys, and its place is that of another file"
            _move(checkpoint, out, known, f"{folders[target]}/{name}", f"{folders[number]}/{name}", why)
    return moved


def _home(checkpoint: Checkpoint, one: FileEvidence, folders: Mapping[int, str]) -> int | None:
    """The partition that a file is of, where its keys tell, or the SST files that a snapshot needs; None if not."""
    if one.belongs is not None or one.file.kind != "zip" or not one.problems:
        return one.belongs
    try:
        ssts = parse_zip(checkpoint.read(one.path), one.path).ssts
    except UNREADABLE:
        return None
    for number, folder in folders.items():
        there = checkpoint.files(f"{folder}/{layout.SSTS}")
        if ssts and all(there.get(sst.name) == sst.size for sst in ssts):
            return number
    return None


def _superfluous(part: PartitionEvidence) -> Iterator[tuple[str, int]]:
    """Snapshots that hold what they should not, and that Spark takes without a word: the logs past them are sound. Path
    and version of each."""
    logs, snapshots = part.versions()
    for version, snapshot in snapshots.items():
        log = logs.get(version)
        if snapshot.problems and not snapshot.loud and log is not None and not log.problems and log.doubted is None:
            yield snapshot.path, version


def _move(
    checkpoint: Checkpoint, out: Arranged, known: Mapping[str, str], path: str, source: str, why: str
) -> None:
    """A file, its checksum files, and the SST files that a snapshot of RocksDB needs. known: what is elsewhere now."""
    for place, own in _with_sums(checkpoint, path, source):
        out.moved[place] = known.get(own, own)
        out.why[place] = why
    if not source.endswith(".zip"):
        return
    try:
        ssts = parse_zip(checkpoint.read(source), source).ssts
    except UNREADABLE:
        return
    for sst in ssts:
        place, own = (f"{posixpath.dirname(of)}/{layout.SSTS}/{sst.name}" for of in (path, source))
        if checkpoint.size(place) is None and checkpoint.size(own) is not None:
            for one, other in _with_sums(checkpoint, place, own):
                out.moved[one] = known.get(other, other)
                out.why[one] = why


def _with_sums(checkpoint: Checkpoint, path: str, source: str) -> Iterator[tuple[str, str]]:
    """The two paths of a file, and of the checksum files of both kinds beside it."""
    (folder, name), (other, own) = posixpath.split(path), posixpath.split(source)
    for pattern in ("{}", "{}.crc", ".{}.crc", ".{}.crc.crc"):
        if checkpoint.has(f"{other}/{pattern.format(own)}"):
            yield f"{folder}/{pattern.format(name)}", f"{other}/{pattern.format(own)}"
