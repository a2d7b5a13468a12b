"""Every command that reads a store, as a user types it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.guard.victim import Ran, Victim


class Reading(NamedTuple):
    """A command line. words: in which STORE, OUT and OTHER stand for paths. changes: whether it may write the store."""

    name: str
    words: tuple[str, ...]
    changes: bool = False


def _read(line: str, *, changes: bool = False) -> Reading:
    return Reading(line, tuple(line.split()), changes)


STORE, OUT, OTHER = "STORE", "OUT", "OTHER"

# `doctor` is not among them: it starts the Java of the user's own PATH, to tell which one it is.
READING = (
    _read("inspect STORE"),
    _read("inspect STORE@latest"),
    _read("inspect STORE@2 --stats"),
    _read("inspect STORE --trend"),
    _read("inspect STORE --latest-restorable"),
    _read("inspect STORE -o json"),
    _read("validate STORE"),
    _read("validate STORE --quick"),
    _read("validate STORE --strict"),
    _read("validate STORE@2"),
    _read("report STORE --out OUT/report.html"),
    _read("report STORE --verify --out OUT/report.html"),
    _read("report STORE@2 --out OUT/report.html"),
    _read("state STORE"),
    _read("state STORE --history --key 1"),
    _read("state STORE --all --out OUT/all"),
    _read("diff STORE@1 STORE@2"),
    _read("diff STORE OTHER"),
    _read("plan-recovery STORE --out OUT/plan.json"),
    _read("plan-recovery STORE@2 --failed FAILED"),
    _read("gc STORE --keep-last 1"),
    _read("gc STORE --keep-last 1 --min-age 0s --yes", changes=True),
    _read("tag STORE@2 kept", changes=True),
    _read("tag STORE"),
    _read("copy STORE OUT/copy"),
    _read("drill STORE"),
    _read("rebuild STORE"),
    _read("rewrite STORE@2 --dry-run"),
    _read("topology STORE/topologies/GRAPH"),
    _read("simulate --check STORE/abs-store.json"),
    _read("__complete ref STORE@"),
    _read("__complete task inspect STORE --task "),
    _read("__complete operator state STORE "),
    _read("__complete tag tag STORE@2 "),
)
"""The order counts: what changes the store comes after what does not."""


def of_other_systems(epoch: int, state: str) -> tuple[Reading, ...]:
    """Return what is tried on a checkpoint of Flink or Spark. epoch: one that it has; state: options of `state`."""
    ref = f"STORE@{epoch}"
    return (
        _read("inspect STORE"),
        _read(f"inspect {ref} --stats"),
        _read("inspect STORE --latest-restorable"),
        _read("validate STORE"),
        _read(f"validate {ref} --quick"),
        _read("report STORE --verify --out OUT/report.html"),
        _read(f"state {ref} {state}"),
        _read(f"diff {ref} {ref}"),
        _read("plan-recovery STORE --out OUT/plan.json"),
        _read(f"rewrite {ref} --layout canonical --dry-run"),
        _read("gc STORE"),
        _read(f"copy {ref} OUT/copy"),
        _read(f"drill {ref}"),
        _read("__complete ref STORE@"),
    )


def run(victim: Victim, store: Path, reading: Reading, other: Path | None = None) -> Ran:
    """Run a command on a store, which may read that store and write where it is told to."""
    out = victim.place("out", f"{len(list(victim.out.iterdir())):04d}")
    graph = next((path.name for path in store.glob("topologies/*")), "none")
    names = {STORE: store.name, OUT: str(out), OTHER: (other or store).name, "GRAPH": graph, "FAILED": "feed/0"}
    words = []
    for word in reading.words:
        for name, path in names.items():
            word = word.replace(name, path)
        words.append(word)
    if words[0] == "__complete" and not words[-1].endswith("@"):
        words.append("")
    # A reference with an epoch may be the name of a file as well.
    reads = (store, *((other,) if other is not None else ()), *(victim.work / word for word in words if "@" in word))
    # Copies and checks hold the store meanwhile, by a lock file in it.
    changes = (out, store) if reading.changes else (out, *locks(store))
    return victim.run(words, reads=reads, changes=changes)


def locks(store: Path) -> Iterator[Path]:
    """Yield the files of a store by which commands that only read tell others that they do."""
    yield store / "lock"
