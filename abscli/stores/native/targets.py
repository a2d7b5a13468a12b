"""The targets of a store's sinks, as the job file that the user names describes them.

A store describes its sinks, too, but a store may come from anybody. Whom `abs` contacts, with which credentials, and
which folder it lists is therefore taken from the job file that the user gives with `--job`, and from nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from abscli.stores.recovery import JobFile
from formats.errors import FormatError, OtherJob
from formats.job.model import Operator, as_sink
from formats.native.store import NativeStore

NOT_NAMED = "target not named (--job)"
"""Why a sink is not checked, and why its leftovers are not looked for."""


@dataclass(frozen=True, slots=True)
class Targets:
    """The sinks of a job file, and the ids that these sinks have in a store.

    directory: what the paths of the job file are relative to.
    sinks: by id, in the order of the job file.
    ids: id in the store -> id in the job file, of sinks that were renamed; None for sinks that were removed.
    """

    directory: str
    sinks: Mapping[str, Operator]
    ids: Mapping[str, str | None]

    @classmethod
    def of(cls, store: NativeStore, job: JobFile) -> Targets:
        """Take the targets of the store's sinks from a job file. Raises OtherJob for the file of another job."""
        if store.job and job.topology.job != store.job:
            raise OtherJob(
                f"is the store of job {store.job!r}, but {job.path} describes job {job.topology.job!r}",
                path=store.path,
                hint="set --job to the file of the job that wrote the store",
            )
        sinks = {sink.id: sink for op in job.topology.operators if (sink := as_sink(op)) is not None}
        moved = renamed_operators(store)
        heirs = {id: job.changes.heir(newest_id(id, moved)) for id in {*moved, *sink_ids(store)}}
        return cls(job.directory, sinks, heirs)

    def sink_for(self, id: str) -> Operator | None:
        """Return the sink of the job file that a sink of the store has become; None if the file has none."""
        current = self.ids.get(id, id)
        return None if current is None else self.sinks.get(current)

    def ids_of(self, sink: Operator) -> list[str]:
        """Return the id that a sink of the job file has, and those that it has had in the store."""
        return [sink.id, *sorted(old for old, current in self.ids.items() if current == sink.id and old != sink.id)]


def sink_ids(store: NativeStore) -> set[str]:
    """Return the ids of the sinks in the graph of the newest attempt; none if that graph cannot be read, which the
    check of the store reports."""
    try:
        attempts = store.attempts()
        operators = store.topology_by_digest(attempts[-1].topology_sha256).operators if attempts else ()
    except FormatError:
        return set()
    return {op.id for op in operators if as_sink(op) is not None}


def renamed_operators(store: NativeStore) -> dict[str, str]:
    """Return old id -> new id, as the manifests that can be read say it."""
    moved: dict[str, str] = {}
    for epoch in store.epoch_numbers():
        try:
            moved |= store.manifest(epoch).moved if store.has_manifest(epoch) else {}
        except FormatError:
            continue
    return moved


def newest_id(id: str, moved: Mapping[str, str]) -> str:
    """Follow renames to the newest id. A circle in `moved` ends at the id that closes it."""
    seen = {id}
    while (after := moved.get(id)) is not None and after not in seen:
        seen.add(id := after)
    return id
