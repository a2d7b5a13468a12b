"""Keyed state under another number of key groups: every key is hashed again, and dealt out to the subtasks anew.

That needs keys of which the hash is known from their bytes: what Java, its class library or Flink defines. A Pojo's or
an enum's is the job's own. What goes to each subtask is kept in a file until all has come, so that memory holds where
things are, and no state.
"""

from __future__ import annotations

import os
import struct
import tempfile
from array import array
from collections.abc import Iterable, Iterator
from typing import BinaryIO, Final

from formats.flink.rewriting.pair import Pair
from formats.flink.rewriting.prefix import CannotRewrite
from formats.flink.state.keyed_tables import KeyedState, Table
from formats.flink.state.keys import hash_of, key_group
from formats.flink.types.values import BROKEN, HiddenValue
from formats.scratch import scratch

_HEAD: Final = struct.Struct(">HHii")


class Regroup:
    """Puts pairs of one stream into the key groups that their keys have among so many. CannotRewrite."""

    def __init__(self, state: KeyedState, max_parallelism: int) -> None:
        self._state = state
        self._most = max_parallelism
        self._prefix = 1 if max_parallelism <= 128 else 2
        self._groups: dict[bytes, int] = {}
        self._hash = hash_of(state.key)
        if self._hash is None:
            raise CannotRewrite(
                f"max_parallelism: the hash of keys of {state.key.kind} is the job's own, so where each belongs is not "
                "known", path=state.path,
            )  # fmt: skip

    def __call__(self, pair: Pair, table: Table) -> Pair:
        """The pair in its new key group."""
        begin = self._state.prefix + (8 if table.timers else 0)
        try:
            value, end = self._state.key.read(pair.key, begin)
        except HiddenValue as hidden:
            raise CannotRewrite(f"keys of {hidden.name} are not decoded", path=self._state.path) from None
        except BROKEN as error:
            self._state.fail(f"state {table.name!r}: a key that cannot be read: {error}")
        key = pair.key[begin:end]
        group = self._groups.get(key)
        if group is None:
            assert self._hash is not None
            group = key_group(self._hash(pair.key, begin, end, value), self._most)
            # bounded: keys that never come again would only fill the memory
            if len(self._groups) < 100_000:
                self._groups[key] = group
        rest = pair.key[self._state.prefix :]
        return pair._replace(group=group, key=group.to_bytes(self._prefix, "big") + rest)


class Dealt:
    """Pairs of all subtasks, dealt out to the key groups' owners, and given back by key group and state.

    owners: the key groups of each subtask.
    """

    def __init__(self, owners: dict[int, range]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="rehash-", dir=scratch())
        self._files: dict[int, BinaryIO] = {}
        # numbers, not objects: a task may have a hundred million rows
        self._orders: dict[int, array[int]] = {}
        self._places: dict[int, array[int]] = {}
        self._owner = array("i", [0]) * max((groups.stop for groups in owners.values()), default=0)
        for subtask, groups in owners.items():
            self._files[subtask] = open(os.path.join(self._folder.name, str(subtask)), "w+b")  # noqa: SIM115
            self._orders[subtask], self._places[subtask] = array("I"), array("Q")
            for group in groups:
                self._owner[group] = subtask

    def __enter__(self) -> Dealt:
        return self

    def __exit__(self, *raised: object) -> None:
        for file in self._files.values():
            file.close()
        self._folder.cleanup()

    def take(self, pairs: Iterable[Pair]) -> None:
        """Pairs in any order."""
        for pair in pairs:
            subtask = self._owner[pair.group]
            file = self._files[subtask]
            self._orders[subtask].append(pair.group << 16 | pair.state)
            self._places[subtask].append(file.tell())
            file.write(_HEAD.pack(pair.group, pair.state, len(pair.key), len(pair.value)))
            file.write(pair.key)
            file.write(pair.value)

    def pairs(self, subtask: int) -> Iterator[Pair]:
        """Those of one subtask."""
        import numpy as np

        file = self._files[subtask]
        places = np.frombuffer(self._places[subtask], np.uint64)
        for at in places[np.argsort(np.frombuffer(self._orders[subtask], np.uint32), kind="stable")].tolist():
            file.seek(at)
            group, state, n, m = _HEAD.unpack(file.read(_HEAD.size))
            yield Pair(group, state, file.read(n), file.read(m))
