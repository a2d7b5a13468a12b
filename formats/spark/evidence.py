"""What is found of one partition's state files: the facts that verdicts are made of."""

from __future__ import annotations

from dataclasses import dataclass, field

from formats.errors import FormatError, NotFound
from formats.spark.checksums import ChecksumMismatch
from formats.spark.codings import Family
from formats.spark.layout import StateFile
from formats.spark.replay import PartitionFiles


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with a file. code: a word of `abscli.check.findings.Code`; loud: whether Spark notices it."""

    code: str
    path: str
    message: str
    loud: bool


@dataclass(slots=True)
class FileEvidence:
    """What was found of one state file. problems: of it, or of an SST file that it needs; rows: records or live keys;
    vouched: a checksum vouches for all of its bytes; doubted: it and what is before it do not agree, and neither is
    known to be the wrong one."""

    file: StateFile
    path: str
    problems: list[Problem] = field(default_factory=list)
    rows: int | None = None
    vouched: bool = False
    doubted: str | None = None

    @property
    def loud(self) -> bool:
        """Whether Spark notices that it cannot use the file."""
        return any(problem.loud for problem in self.problems)

    @property
    def silent(self) -> bool:
        """Whether Spark would take what is wrong for right."""
        return not self.loud and (bool(self.problems) or self.doubted is not None)


@dataclass(slots=True)
class PartitionEvidence:
    """All state files of one partition of a store. orphans: paths that no version refers to.

    shapes, places, snapshots: whether the shape of all rows, the place of all keys, and agreement of snapshots with
    what is before them were checked.
    """

    operator: int
    partition: int
    store: str
    folder: str
    files: PartitionFiles
    evidence: dict[str, FileEvidence]
    orphans: list[str]
    shapes: bool
    places: bool
    snapshots: bool

    @property
    def task(self) -> str:
        """The task that the partition is."""
        return f"{self.operator}/{self.partition}"

    def of(self, file: StateFile | None) -> FileEvidence | None:
        """The evidence of a file."""
        return None if file is None else self.evidence[file.name]


@dataclass(frozen=True, slots=True)
class PartitionWork:
    """What is to be read. families: of the store, None where its schema cannot be read; partitions: how many there
    are, of a checkpoint that was repartitioned also how many there were; strict: whether they go by all key columns;
    newest: version of the newest batch that was begun."""

    operator: int
    partition: int
    store: str
    index: int
    families: tuple[Family, ...] | None
    partitions: frozenset[int]
    row_checksums: bool
    strict: bool
    newest: int


def blame(found: FileEvidence, code: str, said: str) -> None:
    """Put a fault of rows down to a file, once a kind."""
    if all(problem.code != code for problem in found.problems):
        found.problems.append(Problem(code, found.path, said, False))


def problem_of(error: FormatError, path: str, *, loud: bool = True) -> Problem:
    """An error in reading as what is wrong with a file."""
    code = "unreadable"
    if isinstance(error, NotFound):
        code = "missing-file"
    elif isinstance(error, ChecksumMismatch):
        code = "digest-mismatch"
    return Problem(code, error.path or path, error.message, loud)
