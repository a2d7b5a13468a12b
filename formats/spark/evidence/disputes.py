"""A snapshot that differs from what the files before it lead to: which of them may be wrong."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from formats.errors import FormatError
from formats.spark.evidence.facts import FileEvidence
from formats.spark.layout import StateFile
from formats.spark.replay import apply
from formats.spark.state.records import Records

Rows = dict[bytes, bytes]


@dataclass(slots=True)
class Dispute:
    """A snapshot and the logs before it that do not agree.

    snapshot: what was read of the snapshot.
    logs: what was read of the logs between `base` and it.
    base: the snapshot that the logs follow, None for the empty state.
    keys: those in which they differ.
    snapshot_holds: the next snapshot was made of this one.
    logs_hold: the next snapshot was made of the logs.
    """

    snapshot: FileEvidence
    logs: list[FileEvidence]
    base: StateFile | None
    keys: set[bytes]
    snapshot_holds: bool = False
    logs_hold: bool = False

    def settle(
        self, others: list[StateFile], records: Callable[[StateFile], Records], rows: Callable[[StateFile], Rows]
    ) -> None:
        """Doubt what may be wrong: nothing if a file of them is known to be, not what is known to be right.

        others: all logs of the partition; records, rows: read a log, a snapshot again.
        """
        files = [self.snapshot, *self.logs]
        if any(file.problems for file in files):
            return
        vouched = [file for file in files if file.vouched]
        if len(vouched) == len(files):
            vouched = []  # each is what was written, and yet one is not what belongs here
        try:
            whole, logs = self._suspects(others, records, rows)
        except FormatError:
            whole, logs = True, self.logs
        which = "one of them is wrong: move that one away, and Spark goes by the other"
        if whole and not self.snapshot_holds and self.snapshot not in vouched:
            message = f"differs in {len(self.keys)} keys from what the files before it lead to"
            self.snapshot.doubted = f"{message}; {which}" if logs else message
        for log in logs:
            if not self.logs_hold and log not in vouched:
                message = f"what it leads to differs in {len(self.keys)} keys from {self.snapshot.path}"
                log.doubted = f"{message}; {which}" if whole else f"{message}: it holds what another log holds"

    def _suspects(
        self, others: list[StateFile], records: Callable[[StateFile], Records], rows: Callable[[StateFile], Rows]
    ) -> tuple[bool, list[FileEvidence]]:
        """Whether the snapshot may be wrong, and which logs may be, if one file is."""
        read = [records(log.file) for log in self.logs]
        if any(one.merges for one in read):  # what is appended depends on all that was before
            return True, self.logs
        snapshot = rows(self.snapshot.file)
        state = rows(self.base) if self.base is not None else {}
        for one in read:
            if state == snapshot:
                return True, []  # it is that of an earlier version
            apply(state, one)
        written = {key: number for number, one in enumerate(read) for key in one.keys}
        # A log after which a differing key was written again would not show in that key: it is not the wrong one.
        first = max((written.get(key, 0) for key in self.keys), default=0)
        own = {log.file.name: number for number, log in enumerate(self.logs)}
        alike: dict[bytes, list[str]] = {}
        for file in others:
            one = read[own[file.name]] if file.name in own else records(file)
            if one.keys:
                alike.setdefault(digest(one), []).append(file.name)
        copies = [names for names in alike.values() if len(names) > 1]
        suspects = [own[name] for names in copies for name in names if own.get(name, -1) >= first]
        if len(copies) == 1 and suspects:  # where many are alike, as those of a maximum may be, that says nothing
            return False, [self.logs[number] for number in suspects]
        return True, self.logs[first:]


def digest(records: Records) -> bytes:
    """Digest all changes of a log, in their order."""
    sums = hashlib.sha256()
    for key, value in zip(records.keys, records.values, strict=True):
        sums.update(b"%d %d " % (len(key), -1 if value is None else len(value)) + key + (value or b""))
    return sums.digest()
