"""Whole jobs in this process, on a store beside their input."""

from __future__ import annotations

from pathlib import Path

import msgspec

from abscli.engine.coordinator import Progress, Service
from abscli.engine.job import run_job
from formats.job.model import Topology
from formats.native.store import NativeStore
from formats.storage import LocalStorage
from tests.support.jobs.small import inline, word_count

STORE = "store"


def store(folder: Path) -> NativeStore:
    return NativeStore(LocalStorage(folder / STORE))


def run(topology: Topology, folder: Path, **more: object) -> object:
    return run_job(topology, str(folder / STORE), inline(folder, **more))


def stop_after(epochs: int) -> tuple[dict[str, object], list[Service]]:
    """Callbacks that ask for a stop as SIGTERM does, once so many epochs are complete."""
    services: list[Service] = []

    def progress(p: Progress) -> None:
        if p.epochs >= epochs and services:
            services.pop().request_stop()

    return {"on_progress": progress, "on_service": services.append}, services


class Middle:
    """Of a job with small batches: it lasts until the store has seen so many complete epochs."""

    epochs = 4


def failing(folder: Path, body: str) -> Topology:
    """Word count with another function, of this source, in place of the one that splits lines."""
    name = f"fails_{abs(hash(str(folder)))}"
    (folder / f"{name}.py").write_text(body)
    topology = word_count()
    operators = list(topology.operators)
    operators[1] = msgspec.structs.replace(operators[1], function=f"{name}:split")
    return msgspec.structs.replace(topology, operators=tuple(operators))
