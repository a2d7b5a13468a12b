"""What is found of one partition's state files: the facts that verdicts are made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from formats.errors import ChecksumMismatch, FormatError, NotFound
from formats.spark.ids import StorePartition
from formats.spark.layout import SNAPSHOTS, StateFile
from formats.spark.replay import PartitionFiles
from formats.spark.state.codings import Family


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with a file.

    code: a word of `abscli.report.findings.Code`.
    path: of the file, from the root of the checkpoint.
    message: what is wrong, to stand behind the path.
    loud: whether Spark notices it.
    """

    code: str
    path: str
    message: str
    loud: bool


@dataclass(slots=True)
class FileEvidence:
    """What was found of one state file.

    file: which it is, by its name.
    path: from the root of the checkpoint.
    problems: of it, or of an SST file that it needs.
    vouched: a checksum vouches for all of its bytes.
    doubted: it and what is before it do not agree, and neither is known to be the wrong one.
    unread: why what it holds is not read here.
    since: of a changelog of checkpoint format 2, the oldest version of its lineage.
    records: of a delta or changelog, how many changes it has, None if that is not known.
    belongs: the partition that all of its keys belong into, where that is another one.
    """

    file: StateFile
    path: str
    problems: list[Problem] = field(default_factory=list)
    vouched: bool = False
    doubted: str | None = None
    unread: str | None = None
    since: int | None = None
    records: int | None = None
    belongs: int | None = None

    @property
    def loud(self) -> bool:
        """Whether Spark notices that it cannot use the file."""
        return any(problem.loud for problem in self.problems)

    @property
    def plain(self) -> bool:
        """Whether there is nothing to be said of it."""
        return self.vouched and not self.problems and self.doubted is None and self.since is None


@dataclass(slots=True)
class PartitionEvidence:
    """The state files of one partition of a store.

    id: which one.
    folder: where the files lie.
    files: all that are there, by name alone.
    evidence: by name, of those that were read.
    orphans: paths that no version refers to.
    shapes: whether the shape of all rows was checked.
    places: whether the place of all keys was checked.
    unread: why not, where that is known.
    """

    id: StorePartition
    folder: str
    files: PartitionFiles
    evidence: dict[str, FileEvidence]
    orphans: list[str]
    shapes: bool
    places: bool
    unread: str | None

    def __reduce__(self) -> tuple[Any, ...]:
        """What goes between processes: little of files of which there is nothing to be said."""
        plain = {name: evidence.records for name, evidence in self.evidence.items() if evidence.plain}
        full = {name: evidence for name, evidence in self.evidence.items() if not evidence.plain}
        return _unpacked, (self.id, self.folder, self.files, plain, full,
                           self.orphans, self.shapes, self.places, self.unread)  # fmt: skip

    def versions(self) -> tuple[dict[int, FileEvidence], dict[int, FileEvidence]]:
        """Logs and snapshots by version; of checkpoint format 2 those that were committed."""
        logs: dict[int, FileEvidence] = {}
        whole: dict[int, FileEvidence] = {}
        by_id = self.files.with_ids
        for evidence in self.evidence.values():
            version, uuid, kind, _, _ = evidence.file
            if not by_id or uuid == self.files.id_of(version):
                (whole if kind in SNAPSHOTS else logs)[version] = evidence
        return logs, whole

    def unreached(self, version: int) -> str | None:
        """The snapshot that Spark wants for a version of checkpoint format 2 and does not get past, by its path.

        It takes the version's own snapshot or the one at the start of its changelog's lineage. If that is not usable
        it takes the one at the start of that one's own lineage, and needs the changelog of that version as well; there
        it ends (Spark 4.3, by trials).
        """
        log = self.of(self.files.log(version))
        if log is None or log.file.uuid is None:
            return None
        first = version if self.files.whole(version) is not None else log.since
        if first is None or self._usable(first) or (first == 1 and self.files.whole(1) is None):
            return None
        between = self.of(self.files.log(first))
        second = between.since if between is not None else None
        if second is not None and self._usable(second) and self.files.log(second) is not None:
            return None
        whole = self.files.whole(first)
        name = whole.name if whole is not None else f"{first}_{self.files.id_of(first)}.zip"
        return f"{self.folder}/{name}"

    def _usable(self, version: int) -> bool:
        evidence = self.of(self.files.whole(version))
        return evidence is not None and not evidence.loud

    def of(self, file: StateFile | None) -> FileEvidence | None:
        """The evidence of a file."""
        return None if file is None else self.evidence.get(file.name)


def _unpacked(
    id: StorePartition, folder: str, files: PartitionFiles, plain: dict[str, int | None],
    full: dict[str, FileEvidence], orphans: list[str], shapes: bool, places: bool, unread: str | None,
) -> PartitionEvidence:  # fmt: skip
    """The inverse of `PartitionEvidence.__reduce__`."""
    for name, records in plain.items():
        file = files.named(name)
        assert file is not None
        full[name] = FileEvidence(file, f"{folder}/{name}", vouched=True, records=records)
    return PartitionEvidence(id, folder, files, full, orphans, shapes, places, unread)


@dataclass(frozen=True, slots=True)
class PartitionWork:
    """What is to be read of one partition of a store.

    id: which one.
    index: of the store among the operator's.
    families: of the store, None where its schema cannot be read.
    partitions: how many there are, of a checkpoint that was repartitioned also how many there were.
    row_checksums: whether each row has one.
    strict: whether partitions go by all key columns.
    newest: version of the newest batch that was begun.
    removing: versions of batches that read nothing and moved the watermark: they only remove rows.
    only: the version that is asked for, None for all.
    """

    id: StorePartition
    index: int
    families: tuple[Family, ...] | None
    partitions: frozenset[int]
    row_checksums: bool
    strict: bool
    newest: int
    removing: frozenset[int] = frozenset()
    only: int | None = None


def blame(evidence: FileEvidence, code: str, message: str) -> None:
    """Put a fault of rows down to a file, once a kind."""
    if all(problem.code != code for problem in evidence.problems):
        evidence.problems.append(Problem(code, evidence.path, message, False))


def problem_of(error: FormatError, path: str, *, loud: bool = True) -> Problem:
    """An error in reading as what is wrong with a file."""
    code = "unreadable"
    if isinstance(error, NotFound):
        code = "missing-file"
    elif isinstance(error, ChecksumMismatch):
        code = "digest-mismatch"
    return Problem(code, error.path or path, error.message, loud)
