"""What becomes of an epoch in a job file, asked before it is run."""

from __future__ import annotations

import os

import msgspec

from abscli.engine.generations.change import change_of, other_code, way_out
from abscli.jobs.files import read_job
from abscli.planner.succession import Becomes, Carried
from formats.errors import OtherJob
from formats.job.changes import Changes
from formats.native.store import NativeStore


class Succeeded(msgspec.Struct, frozen=True):
    """What becomes of the operators and edges of an epoch.

    operators: those of the epoch as declared, then those that are new.
    rows: keys of their state in the epoch, by id.
    edges: those with records on their way.
    fits: nothing stands against it.
    generation: that the next epoch is of.
    begins: it begins with that epoch.
    lines: what the job file has to say, with what it says now.
    hint: what to do where it does not fit.
    code: files of the job that have changed since.
    """

    operators: tuple[Becomes, ...]
    rows: dict[str, int | None]
    edges: tuple[Carried, ...]
    fits: bool
    generation: int
    begins: bool
    lines: Changes
    hint: str | None
    code: tuple[str, ...]


def succeeded(store: NativeStore, epoch: int, file: str) -> Succeeded:
    """What becomes of a complete epoch in the job of this file. Raises OtherJob, Damaged, FormatError."""
    topology, changes = read_job(file)
    if topology.job != store.job:
        raise OtherJob(f"is the store of job {store.job!r}, not of {topology.job!r}", path=store.path)
    change = change_of(store, epoch, topology, changes)
    code = other_code(store, epoch, topology, os.path.dirname(os.path.abspath(file)))
    return Succeeded(
        operators=change.operators,
        rows={operator.id: operator.rows for operator in store.detail(epoch).operators},
        edges=tuple(edge for edge in change.edges if edge.logged),
        fits=not change.refused and not change.stranded,
        generation=store.manifest(epoch).generation + change.generation,
        begins=change.generation,
        lines=change.lines,
        hint=way_out(store, change),
        code=code.files if code else (),
    )
