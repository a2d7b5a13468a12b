"""The rows of a partition's files, checked many at a time: their shape, and whether keys lie where they belong."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from formats.spark.evidence.facts import FileEvidence, PartitionWork, blame
from formats.spark.state import murmur3
from formats.spark.state.codings import Family
from formats.spark.state.families import Keys, list_items, value_rows
from formats.spark.state.rules import Coding
from formats.spark.state.unsafe_places import Faults

CHECK_AT_ONCE = 1 << 17
"""Values whose shape is checked in one go."""


class RowChecks:
    """Keys and values as they are found, and what is wrong with them put down to their files. codings: of the store's
    column families, as far as they are known; strange: whether there are rows of others."""

    def __init__(self, work: PartitionWork) -> None:
        self.work = work
        self.codings: list[tuple[Family, Coding]] = []
        self._keys: set[bytes] = set()
        self._holders: list[tuple[FileEvidence, list[bytes]]] = []
        self._values: dict[int, _Kept] = {}
        self.strange = False

    def keep(self, evidence: FileEvidence, keys: list[bytes], values: list[bytes | None]) -> None:
        """Put keys and values by, to be checked many at a time."""
        self._keys.update(keys)
        self._holders.append((evidence, keys))
        if not self.codings:
            return
        if self.codings[0][1].family is None:
            of = {0: values}
        else:
            of = {}
            for key, value in zip(keys, values, strict=True):
                of.setdefault(int.from_bytes(key[:2], "little"), []).append(value)
            self.strange |= not of.keys() <= {coding.family for _, coding in self.codings}
        for number, own in of.items():
            kept = self._values.setdefault(number, _Kept([], [], []))
            kept.values.extend([value for value in own if value is not None])
            kept.ends.append(len(kept.values))
            kept.of.append(evidence)
        if sum(len(kept.values) for kept in self._values.values()) > CHECK_AT_ONCE:
            self.check_values()

    def check_values(self) -> None:
        """The shape of the values that were put by."""
        for _, coding in self.codings:
            kept = self._values.pop(coding.family or 0, None)
            if kept is None or not kept.values:
                continue
            if coding.listed:
                kept = _items(kept)
            rows = value_rows(kept.values, coding)
            for row, why in rows.check().why.items():
                evidence = kept.of[bisect_right(kept.ends, row)]
                blame(evidence, "row-mismatch", f"a value in it is not what Spark writes: {why}")
        self._values.clear()

    def check_keys(self) -> None:
        """The shape and the place of all keys."""
        bad: dict[bytes, _Fault] = {}
        left = list(self._keys)
        for family, coding in self.codings:
            own = left
            if coding.family is not None:
                head = coding.family.to_bytes(2, "little")
                own = [key for key in left if key[:2] == head]
            if not own:
                continue
            keys = Keys(own, coding)
            keys.arrays()
            bad.update(_shapes(own, keys.faults))
            bad.update(self._places(family, own, keys))
        if not bad:
            return
        for evidence, stored in self._holders:
            wrong = [bad[key] for key in stored if key in bad]
            misplaced = [fault for fault in wrong if fault.code == "misplaced-key"]
            if misplaced:
                message = f"{len(misplaced)} of its {len(stored)} keys belong elsewhere: {misplaced[0].why}"
                blame(evidence, "misplaced-key", message)
                places = {fault.belongs for fault in misplaced}
                if len(misplaced) == len(stored) and len(places) == 1:
                    evidence.belongs = places.pop()
            elif wrong:
                blame(evidence, "row-mismatch", f"a key in it is not what Spark writes: {wrong[0].why}")

    def _places(self, family: Family, own: list[bytes], keys: Keys) -> Iterator[tuple[bytes, _Fault]]:
        """Keys that Spark's hash puts into another partition."""
        if family.rule is None or not self.work.strict or not self.work.partitions:
            return
        hashes = keys.hashes(family.rule)
        if hashes is None:
            return
        wrong = ~keys.faults.bad
        for count in sorted(self.work.partitions):
            at = murmur3.partition_of(hashes, count)
            wrong &= at != self.work.id.partition
        # Before and after a repartition keys have other places: which one was meant is not known.
        only = len(self.work.partitions) == 1
        for row in np.flatnonzero(wrong).tolist():
            message = f"Spark's hash puts one into partition {at[row]}, it is in {self.work.id.partition}"
            yield own[row], _Fault("misplaced-key", message, int(at[row]) if only else None)


class _Fault(NamedTuple):
    """What is wrong with a key. belongs: the partition that it should be in, where that is known."""

    code: str
    why: str
    belongs: int | None = None


class _Kept(NamedTuple):
    """Values one after the other, where those of each file end, and the files."""

    values: list[bytes]
    ends: list[int]
    of: list[FileEvidence]


def _items(kept: _Kept) -> _Kept:
    """The items of lists."""
    out = _Kept([], [], kept.of)
    at = 0
    for end, owner in zip(kept.ends, kept.of, strict=True):
        for value in kept.values[at:end]:
            items = list_items(value)
            if items is None:
                blame(owner, "row-mismatch", "a list in it is not a list")
            else:
                out.values.extend(items)
        at = end
        out.ends.append(len(out.values))
    return out


def _shapes(own: list[bytes], faults: Faults) -> Iterator[tuple[bytes, _Fault]]:
    for row, why in faults.why.items():
        yield own[row], _Fault("row-mismatch", why)
