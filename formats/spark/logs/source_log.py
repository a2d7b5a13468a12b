"""The log of one file source, `sources/I`: its entries and compactions held against each other."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from formats.ranges import ranges
from formats.spark import layout
from formats.spark.checkpoint import UNREADABLE, Checkpoint
from formats.spark.evidence.facts import Problem, problem_of
from formats.spark.logs import log as logs
from formats.spark.logs.sources import SourceFile, parse_source

NAMED = 3
"""Problems that are told of one source at the most."""

_File = tuple[str, int | None]
"""An input file as the source tells it from others: its path and its time."""


@dataclass(slots=True)
class SourceEvidence:
    """The log of one file source.

    source: the name that it has in the offsets.
    folder: where its log lies.
    bases: numbers of compactions that can be relied on, ascending.
    there: numbers of entries that can be relied on.
    problems: what is wrong with other entries.
    spoiled: what is wrong with other compactions.
    newest: the highest number, -1 if there is none.
    """

    source: str
    folder: str
    bases: list[int] = field(default_factory=list)
    there: set[int] = field(default_factory=set)
    problems: dict[int, Problem] = field(default_factory=dict)
    spoiled: dict[int, Problem] = field(default_factory=dict)
    newest: int = -1

    @property
    def any(self) -> bool:
        """Whether it has a file at all."""
        return self.newest >= 0

    def lacking(self, upto: int, since: int = 0) -> list[Problem]:
        """What is wrong with the entries that a query needs to go on from position `upto`: all since a compaction.

        since: the first that is of interest.
        """
        at = bisect_right(self.bases, upto)
        base = self.bases[at - 1] if at else -1
        out: list[Problem] = []
        for number in range(max(base + 1, since), upto + 1):
            if number in self.spoiled:
                out.append(self.spoiled[number])
            elif number not in self.there:
                path = f"{self.folder}/{number}"
                out.append(self.problems.get(number) or Problem("missing-file", path, "is not there", True))
            if len(out) >= NAMED:
                break
        return out


def read_source(checkpoint: Checkpoint, name: str) -> SourceEvidence:
    """The log of a file source, each file read once."""
    return _Reading(checkpoint, name).evidence


class _Reading:
    def __init__(self, checkpoint: Checkpoint, name: str) -> None:
        self.checkpoint = checkpoint
        folder = f"{layout.SOURCES}/{name}"
        self.evidence = SourceEvidence(name, folder)
        single, compact = logs.entries(checkpoint.files(folder))
        self.evidence.newest = max([*single, *compact], default=-1)
        self._own: dict[int, frozenset[_File]] = {}
        self._owner: dict[_File, int] = {}
        for number, file in single.items():
            self._entry(number, file)
        compactions = {number: self._compaction(number, file) for number, file in compact.items()}
        whole = {number: entries for number, entries in compactions.items() if entries is not None}
        # Entries that all compactions deny go first: else compactions would be held against wrong entries, and spoiled.
        for number in self._contradicted(whole):
            message = f"names other files than all compactions have of entry {number}"
            self.evidence.problems[number] = Problem("log-mismatch", f"{folder}/{number}", message, False)
            del self._own[number]
        for number, entries in whole.items():
            self._hold_against(number, f"{folder}/{compact[number]}", entries)
        self.evidence.there.update(self._own)

    def _contradicted(self, whole: dict[int, dict[int, frozenset[_File]]]) -> list[int]:
        """Entries of which several compactions say something else, and all the same."""
        out = []
        for number, own in self._own.items():
            others = [entries[number] for entries in whole.values() if number in entries]
            if len(others) > 1 and own not in others and len(set(others)) == 1:
                out.append(number)
        return out

    def _files(self, file: str, problems: dict[int, Problem], number: int) -> list[SourceFile] | None:
        """The input files that a file of the log names; None if it cannot be relied on."""
        path = f"{self.evidence.folder}/{file}"
        try:
            data, _ = self.checkpoint.checked(path)
            files = parse_source(data, path)
        except UNREADABLE as error:
            problems[number] = problem_of(error, path)
            return None
        if not files:
            message = "names no file, and Spark writes none such: it was cut short"
            problems[number] = Problem("unreadable", path, message, False)
        elif lacking := {name for one in files for name in ("batch", "timestamp") if getattr(one, name) is None}:
            key = "batchId" if "batch" in lacking else "timestamp"
            message = f"names a file without its {key}, and Spark does not start with that"
            problems[number] = Problem("unreadable", path, message, True)
        else:
            return files
        return None

    def _entry(self, number: int, file: str) -> None:
        """An entry of its own: all of its files are of its number, and of no other entry."""
        problems = self.evidence.problems
        files = self._files(file, problems, number)
        if files is None:
            return
        path = f"{self.evidence.folder}/{file}"
        others = sorted({one.batch for one in files if one.batch is not None} - {number})
        if others:
            message = f"names files of entry {others[0]}, and is entry {number}: it was copied, or changed by hand"
            problems[number] = Problem("log-mismatch", path, message, False)
            return
        for one in files:
            if (owner := self._owner.setdefault((one.path, one.timestamp), number)) != number:
                for mine, other in ((number, owner), (owner, number)):  # either may be the one that was changed
                    message = f"names {one.path} as entry {other} does: a file is read once"
                    place = f"{self.evidence.folder}/{mine}"
                    problems.setdefault(mine, Problem("log-mismatch", place, message, False))
                self._own.pop(owner, None)
                return
        own = frozenset((one.path, one.timestamp) for one in files)
        if len(own) < len(files):
            problems[number] = Problem("log-mismatch", path, "names a file twice: a file is read once", False)
            return
        self._own[number] = own

    def _compaction(self, number: int, file: str) -> dict[int, frozenset[_File]] | None:
        """The files of a compaction by their entries: some of each up to its own number."""
        spoiled = self.evidence.spoiled
        files = self._files(file, spoiled, number)
        if files is None:
            return None
        by_entry: dict[int, list[_File]] = {}
        seen: set[_File] = set()
        path = f"{self.evidence.folder}/{file}"
        for one in files:
            own = (one.path, one.timestamp)
            if own in seen:
                spoiled[number] = Problem("log-mismatch", path, f"names {one.path} twice: a file is read once", False)
                return None
            seen.add(own)
            by_entry.setdefault(one.batch or 0, []).append(own)
        if by_entry.keys() != set(range(number + 1)):
            message = f"holds files of entries {ranges(by_entry)}, and stands for 0 to {number}"
            spoiled[number] = Problem("log-mismatch", path, message, False)
            return None
        return {entry: frozenset(own) for entry, own in by_entry.items()}

    def _hold_against(self, number: int, path: str, entries: dict[int, frozenset[_File]]) -> None:
        """A compaction holds what the entries before it say."""
        for entry, own in self._own.items():
            if entry <= number and own != entries[entry]:
                message = f"has other files of entry {entry} than {self.evidence.folder}/{entry} names"
                self.evidence.spoiled[number] = Problem("log-mismatch", path, message, False)
                return
        self.evidence.bases.append(number)
        self.evidence.there.add(number)
