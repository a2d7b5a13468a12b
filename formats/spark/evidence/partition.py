"""Reads all state files of one partition once."""

from __future__ import annotations

from collections.abc import Iterator

from formats.codec.sst import DELETION, SINGLE_DELETION, Contents, Entry, read_table
from formats.errors import ChecksumMismatch, Damaged, UnsupportedVersion
from formats.spark import layout
from formats.spark.checkpoint import UNREADABLE, Checkpoint
from formats.spark.evidence.disputes import Dispute, digest
from formats.spark.evidence.facts import FileEvidence, PartitionEvidence, PartitionWork, Problem, problem_of
from formats.spark.evidence.row_checks import RowChecks
from formats.spark.layout import StateFile
from formats.spark.replay import PartitionFiles, apply, read_records, records_of, rocks_rows, snapshot_rows
from formats.spark.state.blocks import unpack
from formats.spark.state.codings import family_numbers, only_first
from formats.spark.state.families import list_items
from formats.spark.state.records import Records
from formats.spark.state.rocks import RocksSnapshot, parse_zip, why_foreign

COMPARE_UP_TO = 4_000_000
"""Rows of all snapshots of a partition up to which each is compared with what the files before it lead to."""


def probe(checkpoint: Checkpoint, work: PartitionWork, files: PartitionFiles, *, quick: bool) -> PartitionEvidence:
    """Read every state file of a partition once, or those around the version asked for. quick: presence and sizes only.

    Around a version: what leads to it, from the last snapshot but one, and up to the next snapshot, so that both can be
    held against what is between them; further back where no snapshot of them can be used.
    """
    if work.only is None or quick:
        return _Probe(checkpoint, work, files, quick, None).run()
    # The last snapshot but one and the logs after it say what the last one should hold.
    back = 2
    while True:
        names, bottom = files.around(work.only, back)
        if not names:
            partition = _Probe(checkpoint, work, files, True, None).run()
            # There are no rows to be checked.
            partition.shapes = partition.places = True
            return partition
        partition = _Probe(checkpoint, work, files, False, names).run()
        usable = any(
            evidence.file.whole and evidence.file.version <= work.only and not evidence.loud
            for evidence in partition.evidence.values()
        )
        if usable or bottom:
            return partition
        # Twice as far each time: everything is read again, so that rounds cost more than files too many.
        back *= 2


class _Probe:
    def __init__(
        self, checkpoint: Checkpoint, work: PartitionWork, files: PartitionFiles, quick: bool, names: set[str] | None
    ) -> None:
        self.checkpoint, self.work, self.files, self.quick = checkpoint, work, files, quick
        self.folder = layout.store_dir(work.id)
        self.some = names is not None
        if names is None:
            self.all = checkpoint.state_files(work.id)
        else:
            named = (files.named(name) for name in names)
            self.all = sorted((file for file in named if file is not None), key=layout.by_version)
        self.evidence = {file.name: FileEvidence(file, f"{self.folder}/{file.name}") for file in self.all}
        self.ssts: dict[str, tuple[Problem | None, list[Entry], bool]] = {}
        self.tables: dict[str, Contents] = {}
        self.puts: dict[str, int] = {}
        self.sums: dict[str, bytes] = {}
        self.uses: dict[str, list[str]] = {}
        self.holding: dict[str, FileEvidence] = {}
        self.families = tuple(f for f in work.families or () if f.opaque is None)
        self.rows = RowChecks(work)
        self.numbers: dict[str, int] = {}
        self.disputes: list[Dispute] = []
        self.compared = 0

    def run(self) -> PartitionEvidence:
        rocks = any(file.kind in ("zip", "changelog") for file in self.all)
        numbers = self.numbers
        if any(family.grouped for family in self.families):
            numbers.update(self._numbers(max((file.version for file in self.all), default=0)))
        for family in self.families:
            coding = family.coding(rocks, numbers)
            if coding is not None:
                self.rows.codings.append((family, coding))
        opaque = next((family.opaque for family in self.work.families or () if family.opaque is not None), None)
        if self.quick:
            for file in self.all:
                self._presence(file)
        else:
            self._walk()
            self.rows.check_values()
            self.rows.check_keys()
            for name, ssts in self.uses.items():
                for sst in ssts:
                    if sst in self.holding:
                        self.evidence[name].problems += self.holding[sst].problems
                homes = {self.holding[sst].belongs for sst in ssts if sst in self.holding}
                if len(homes) == 1 and None not in homes:
                    self.evidence[name].belongs = homes.pop()
            self._doubt_exchanged()
            for dispute in self.disputes:
                others = [file for file in self.all if not file.whole and not self.evidence[file.name].problems]
                dispute.settle(others, self._records_again, self._rows_again)
        reasons = (evidence.unread for evidence in self.evidence.values())
        unread = opaque or next((reason for reason in reasons if reason is not None), None)
        if unread is None and self.rows.strange:
            unread = f"{self.folder} has rows of column families that no snapshot names"
        coded = bool(numbers) or len(self.rows.codings) == len(self.families)  # one without a number has no rows
        complete = self.work.families is not None and unread is None and coded
        places = complete and self.work.strict and bool(self.work.partitions)
        places = places and all(f.rule is not None or only_first(f) for f, _ in self.rows.codings)
        return PartitionEvidence(
            self.work.id,
            self.folder,
            self.files,
            self.evidence,
            list(self._orphans()),
            complete and not self.quick,
            places and not self.quick,
            unread,
        )

    def _doubt_exchanged(self) -> None:
        """Doubt logs that write rows, of batches that read nothing, and logs that these may be exchanged with.

        The others write no rows, though their batches read something. Without any, the log is a copy of one that has
        the same changes, or else the log before may be the wrong one.
        """
        logs = {file.version: self.evidence[file.name] for file in self.all if file.name in self.puts}
        puts = {version: self.puts[one.file.name] for version, one in logs.items()}
        for version in sorted(self.work.removing & puts.keys()):
            if not puts[version]:
                continue
            suspects = {other for other, count in puts.items() if not count and other not in self.work.removing}
            sums = [self.sums[one.file.name] for other, one in logs.items() if other != version]
            if not suspects and self.sums[logs[version].file.name] not in sums:
                suspects = {version - 1}
            why = f"writes {puts[version]} rows, and batch {version - 1} read nothing: such a batch only removes rows"
            self._doubt(logs[version], why)
            for other in sorted(suspects & logs.keys()):
                self._doubt(logs[other], f"may be exchanged with {logs[version].path}, which {why}")

    def _doubt(self, evidence: FileEvidence, why: str) -> None:
        if not evidence.problems and evidence.doubted is None:
            evidence.doubted = why

    # Column families, which a repartition numbers anew: all rows are taken as if they had the newest numbers.

    def _numbers(self, version: int) -> dict[str, int]:
        return family_numbers(self.checkpoint, self.work.id, version)

    def _renumbering(self, version: int) -> dict[bytes, bytes]:
        """What the keys of a version begin with, and what those of the newest do; nothing where that is the same."""
        if not self.numbers or len(self.work.partitions) < 2:
            return {}
        heads = {}
        for name, number in self._numbers(version).items():
            newest = self.numbers.get(name, _NO_LONGER | number)
            if newest != number:
                heads[number.to_bytes(2, "little")] = newest.to_bytes(2, "little")
        return heads

    # Files, one after the other

    def _presence(self, file: StateFile) -> None:
        evidence = self.evidence[file.name]
        if file.size == 0:
            evidence.problems.append(Problem("unreadable", evidence.path, "is empty", True))
        elif file.kind == "zip":
            try:
                snapshot = parse_zip(self.checkpoint.read(evidence.path), evidence.path)
            except UNREADABLE as error:
                evidence.problems.append(problem_of(error, evidence.path))
                return
            self.uses[file.name] = [sst.name for sst in snapshot.ssts]
            for sst in snapshot.ssts:
                if (absent := self._absent(sst.name, sst.size)) is not None:
                    evidence.problems.append(absent)

    def _walk(self) -> None:
        """Files by version; alongside, the state that they lead to, for snapshots to be compared with.

        In checkpoint format 2 only files that were committed have a place in that chain.
        """
        # Rows after version `at`: None from a gap or a log that does not read on, until a snapshot says them again.
        state: dict[bytes, bytes] | None = {}
        rival: dict[bytes, bytes] | None = None
        at = 0
        base: StateFile | None = None
        since: list[FileEvidence] = []
        for file in self.all:
            evidence = self.evidence[file.name]
            if file.whole:
                rows = self._snapshot(file, evidence)
                # A file of an attempt that was not committed was read for its own faults alone: nothing is built on it.
                if rows is None or (file.uuid is not None and self.files.whole(file.version) != file):
                    continue
                if state is not None and at == file.version:
                    rival = self._compare(evidence, state, rival, rows, base, since)
                # Also where it differs from the logs: Spark loads the newest snapshot, and so goes on from this one.
                if not evidence.problems:
                    state, at, base, since = rows, file.version, file, []
                continue
            records = self._log(file, evidence)
            if file.uuid is not None and self.files.log(file.version) != file:
                continue
            if records is None or state is None or file.version != at + 1:
                state = rival = None
                continue
            apply(state, records)
            if rival is not None:
                apply(rival, records)
            at = file.version
            since.append(evidence)

    def _log(self, file: StateFile, evidence: FileEvidence) -> Records | None:
        try:
            data, vouched = self.checkpoint.checked(evidence.path)
            unpacked = unpack(data, evidence.path, vouched=vouched)
            records = records_of(unpacked.data, file, evidence.path, self.work.row_checksums)
        except UnsupportedVersion as error:
            evidence.unread = f"{evidence.path} {error.message}"
            return None
        except UNREADABLE as error:
            evidence.problems.append(problem_of(error, evidence.path))
            return None
        records = _renumbered(records, self._renumbering(file.version))
        evidence.vouched = vouched or unpacked.checked or self.work.row_checksums
        evidence.records = len(records.keys)
        if not file.whole and self.work.removing and (file.uuid is None or self.files.log(file.version) == file):
            self.puts[file.name] = sum(value is not None for value in records.values)
            self.sums[file.name] = digest(records)
        if records.lineage:
            self.files.know(records.lineage)
            if (message := self._broken(file, records.lineage)) is not None:
                evidence.problems.append(Problem("log-mismatch", evidence.path, message, False))
            evidence.since = min(version for version, _ in records.lineage)
        self.rows.keep(evidence, records.keys, records.values)
        return records

    def _broken(self, file: StateFile, lineage: tuple[tuple[int, str], ...]) -> str | None:
        """How the lineage of a changelog of checkpoint format 2 contradicts its name or the commits; None if not."""
        version, uuid = max(lineage)
        if version != file.version - 1:
            return f"was made of version {version}, and is version {file.version}: it is a copy of another"
        committed = self.files.id_of(version)
        if self.files.log(file.version) == file and committed is not None and committed != uuid:
            return f"was made of version {version} with id {uuid}, and {committed} was committed"
        return None

    def _snapshot(self, file: StateFile, evidence: FileEvidence) -> dict[bytes, bytes] | None:
        if file.kind == "snapshot":
            records = self._log(file, evidence)
            if records is None:
                return None
            rows: dict[bytes, bytes] = {}
            apply(rows, records)
            if len(rows) != len(records.keys):
                message = f"has {len(records.keys)} rows of {len(rows)} keys: some key is in it twice"
                evidence.problems.append(Problem("row-mismatch", evidence.path, message, False))
            return rows
        try:
            snapshot = parse_zip(self.checkpoint.checked(evidence.path)[0], evidence.path)
        except UnsupportedVersion as error:
            evidence.unread = f"{evidence.path} {error.message}"
            return None
        except UNREADABLE as error:
            evidence.problems.append(problem_of(error, evidence.path))
            return None
        evidence.vouched = True  # every entry of a zip file has a CRC32
        return self._zipped(snapshot, evidence)

    def _zipped(self, snapshot: RocksSnapshot, evidence: FileEvidence) -> dict[bytes, bytes] | None:
        entries: list[Entry] = []
        self.uses[evidence.file.name] = [sst.name for sst in snapshot.ssts]
        try:
            ids = snapshot.unique_ids(evidence.path)
        except Damaged as error:
            evidence.problems.append(problem_of(error, evidence.path))
            return None
        for sst in snapshot.ssts:
            problem = self._absent(sst.name, sst.size)
            if problem is None:
                problem, own, vouched = self._sst(sst.name, evidence.file.version)
                entries += own
                evidence.vouched &= vouched
                table = self.tables.get(sst.name)
                why = why_foreign(sst, table, ids) if table is not None else None
                if why is not None:
                    path = f"{self.folder}/{layout.SSTS}/{sst.name}"
                    problem = Problem("digest-mismatch", path, f"{why}: Spark does not load {evidence.path}", True)
            if problem is not None and problem.code == "unchecked":
                evidence.unread = f"{problem.path} {problem.message}"
            elif problem is not None:
                evidence.problems.append(problem)
        if snapshot.wal:
            evidence.unread = f"{evidence.path} has rows in a write-ahead log, which is not read here"
        if evidence.problems or evidence.unread is not None:
            return None
        self.compared += len(entries)
        if self.compared > COMPARE_UP_TO:
            return None
        try:
            rows = rocks_rows(snapshot, entries, evidence.path, self.work.row_checksums)
        except ChecksumMismatch as error:
            evidence.problems.append(Problem("digest-mismatch", evidence.path, error.message, True))
            return None
        except Damaged as error:
            evidence.problems.append(Problem("row-mismatch", evidence.path, error.message, False))
            return None
        rows = _rows_renumbered(rows, self._renumbering(evidence.file.version))
        if self.work.row_checksums:
            self.rows.keep(evidence, list(rows), list(rows.values()))
        return rows

    def _absent(self, name: str, size: int) -> Problem | None:
        path = f"{self.folder}/{layout.SSTS}/{name}"
        there = self.checkpoint.size(path)
        if there is None:
            return Problem("missing-file", path, "is not there", True)
        if there != size:
            return Problem("size-mismatch", path, f"has {there} bytes, {size} were written", True)
        return None

    def _sst(self, name: str, version: int) -> tuple[Problem | None, list[Entry], bool]:
        """One SST file, read once for all snapshots that share it. RocksDB passes over blocks that do not hold."""
        if name not in self.ssts:
            path = f"{self.folder}/{layout.SSTS}/{name}"
            try:
                data, _ = self.checkpoint.checked(path)
                self.tables[name] = table = read_table(data, path)
                entries = table.entries
            except UnsupportedVersion as error:
                self.ssts[name] = (Problem("unchecked", path, error.message, False), [], False)
            except UNREADABLE as error:
                self.ssts[name] = (problem_of(error, path, loud=False), [], True)
            else:
                self.ssts[name] = (None, entries, True)
                holder = FileEvidence(StateFile(0, None, "sst", name, len(data)), path)
                # With row checksums these are not yet keys and values: `_zipped` keeps those of the snapshot.
                if not self.work.row_checksums:
                    values = [None if e.kind in (DELETION, SINGLE_DELETION) else e.value for e in entries]
                    heads = self._renumbering(version)
                    self.rows.keep(holder, [_key(entry.key, heads) for entry in entries], values)
                self.holding[name] = holder
        problem, entries, vouched = self.ssts[name]
        return problem, entries, vouched

    def _compare(
        self,
        snapshot: FileEvidence,
        state: dict[bytes, bytes],
        rival: dict[bytes, bytes] | None,
        rows: dict[bytes, bytes],
        base: StateFile | None,
        since: list[FileEvidence],
    ) -> dict[bytes, bytes] | None:
        """A snapshot holds what the files before it lead to. Where not, one of them is wrong, and not known which.

        state: what the last snapshot and what followed lead to; rival: what they do without a snapshot in dispute. The
        one that this snapshot agrees with was right. The rival of the next snapshot, if this one is in dispute.
        """
        self.compared += len(rows)
        if self.compared > COMPARE_UP_TO or self.work.families is None or len(self.families) < len(self.work.families):
            return None  # lists that are not known as such differ in how RocksDB puts them together
        agrees = self._equal(state, rows)
        # The rival is what the logs alone lead to, past the disputed snapshot: who agrees with them proves it wrong.
        if rival is not None and self._equal(rival, rows):
            if not agrees:
                self.disputes[-1].logs_hold = True
            return None
        if agrees:
            if rival is not None:
                self.disputes[-1].snapshot_holds = True
            return None
        differ = {key for key in state.keys() | rows.keys() if state.get(key) != rows.get(key)}
        self.disputes.append(Dispute(snapshot, list(since), base, differ))
        return dict(state)

    def _records_again(self, file: StateFile) -> Records:
        records = read_records(self.checkpoint, self.folder, file, self.work.row_checksums)
        return _renumbered(records, self._renumbering(file.version))

    def _rows_again(self, file: StateFile) -> dict[bytes, bytes]:
        rows = snapshot_rows(self.checkpoint, self.folder, file, self.work.row_checksums)
        return _rows_renumbered(rows, self._renumbering(file.version))

    def _equal(self, one: dict[bytes, bytes], other: dict[bytes, bytes]) -> bool:
        return one == other or (self.listed and self._plain(one) == self._plain(other))

    @property
    def listed(self) -> bool:
        """Whether some column family holds lists."""
        return any(coding.listed for _, coding in self.rows.codings)

    def _plain(self, rows: dict[bytes, bytes]) -> dict[bytes, object]:
        """Rows with lists taken apart: how their items are delimited is RocksDB's affair."""
        listed = {c.family.to_bytes(2, "little") for _, c in self.rows.codings if c.listed and c.family is not None}
        return {key: list_items(value) if key[:2] in listed else value for key, value in rows.items()}

    def _orphans(self) -> Iterator[str]:
        """State files of no batch: beyond the newest that was begun, or of another attempt than was committed."""
        if self.some:
            return
        for file in self.all:
            if file.version > self.work.newest:
                yield f"{self.folder}/{file.name}"
            elif file.uuid is not None:
                own = self.files.id_of(file.version)
                if own is not None and own != file.uuid:
                    yield f"{self.folder}/{file.name}"
        zips = [file.name for file in self.all if file.kind == "zip"]
        # What a snapshot needs that does not read is not known.
        if zips and all(name in self.uses for name in zips):
            named = {name for names in self.uses.values() for name in names}
            for name in self.checkpoint.files(f"{self.folder}/{layout.SSTS}"):
                if not name.startswith(".") and not name.endswith(".crc") and name not in named:
                    yield f"{self.folder}/{layout.SSTS}/{name}"


_NO_LONGER = 0x8000
"""Set in the number of a column family that the newest snapshot does not have."""


def _key(key: bytes, heads: dict[bytes, bytes]) -> bytes:
    return heads.get(key[:2], key[:2]) + key[2:] if heads else key


def _renumbered(records: Records, heads: dict[bytes, bytes]) -> Records:
    return records._replace(keys=[_key(key, heads) for key in records.keys]) if heads else records


def _rows_renumbered(rows: dict[bytes, bytes], heads: dict[bytes, bytes]) -> dict[bytes, bytes]:
    return {_key(key, heads): value for key, value in rows.items()} if heads else rows
