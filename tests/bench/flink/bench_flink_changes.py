"""A file with all kinds of changes on every layout of Flink 2.3: `python -m tests.bench.flink.bench_flink_changes`.

A job makes a snapshot of each layout; the file changes a copy of it as it is, and one in the canonical layout; a real
Flink starts from each copy, and its rows are held against those that an independent model says (tests/support/flink/
changes.py).
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path

from abscli.api import open_store
from formats.errors import FormatError
from formats.flink.store import FlinkStore
from tests.support.flink.cases import content, latest
from tests.support.flink.changes import changed_job, changes_for, options_to_start, wanted, without_own
from tests.support.flink.java import SOURCES, java_job
from tests.support.flink.releases import compiled_for, run
from tests.support.flink.venv import VERSION

ROCKS, HEAP = "state.backend.type=rocksdb", "state.backend.type=hashmap"
INCREMENTAL = "execution.checkpointing.incremental=true"
CHANGELOG = ("state.changelog.enabled=true", "state.changelog.periodic-materialize.interval=300ms")
"""With what it materializes: of state that never was, types are not stored."""
MERGED = "execution.checkpointing.file-merging.enabled=true"
UNALIGNED = "execution.checkpointing.unaligned.enabled=true"
COMPRESSED = "execution.checkpointing.snapshot-compression=true"
LAYOUTS: dict[str, tuple[str, ...]] = {
    "hashmap": ("hold", HEAP),
    "hashmap, compressed": ("hold", HEAP, COMPRESSED),
    "hashmap, savepoint": ("NATIVE", HEAP),
    "hashmap, changelog": ("hold", HEAP, *CHANGELOG),
    "hashmap, merged files": ("hold", HEAP, MERGED),
    "hashmap, unaligned": ("hold", HEAP, UNALIGNED),
    "rocksdb": ("hold", ROCKS),
    "rocksdb, incremental": ("hold", ROCKS, INCREMENTAL),
    "rocksdb, savepoint": ("NATIVE", ROCKS),
    "rocksdb, changelog": ("hold", ROCKS, *CHANGELOG),
    "rocksdb, merged files": ("hold", ROCKS, INCREMENTAL, MERGED),
    "rocksdb, unaligned": ("hold", ROCKS, INCREMENTAL, UNALIGNED),
    "rocksdb, canonical and compressed": ("CANONICAL", ROCKS, COMPRESSED),
}
"""What the job takes at its end, and Flink's options."""


def snapshot_of(class_path: str, folder: Path, how: str, *options: str) -> Path:
    """A snapshot of a layout. how: format of a savepoint, or `hold`: the newest checkpoint of a job that was killed."""
    if how == "hold":
        folder.mkdir()
        log = folder / "log"
        with java_job(class_path, log, "UpgradeJob", folder, how, *options) as process:
            while process.poll() is None and not ("HELD" in log.read_text() and _checkpoints(folder) > 1):
                time.sleep(0.2)
        return latest(next(path for path in (folder / "ck").iterdir() if len(path.name) == 32))
    taken, text = run(class_path, folder, "UpgradeJob", folder, how, *options)
    assert taken is not None, text[-3000:]
    return taken


def _checkpoints(folder: Path) -> int:
    """The number of the newest complete checkpoint of a job; 0: there is none."""
    return max((int(path.parent.name[4:]) for path in folder.glob("ck/*/chk-*/_metadata")), default=0)


def outcome(class_path: str, snapshot: Path, folder: Path, layout: str | None, backend: str, most: bool) -> str:
    """`equal`, or what went wrong."""
    folder.mkdir()
    changes, copy = folder / "changes.yaml", folder / "copy"
    changes.write_text(changes_for(snapshot, most=most))
    try:
        done = open_store(snapshot).rewrite(changes, layout=layout, to=copy).to_json()
    except FormatError as error:
        return f"refused: {error}"
    after = wanted(content(FlinkStore(str(snapshot))))
    if content(FlinkStore(str(copy))) != after:
        return "the copy has other rows"
    claim = "CLAIM" if " -claimMode CLAIM" in str(done["command"]) else "NO_CLAIM"
    options = [*options_to_start(copy, backend, most=most), f"execution.state-recovery.claim-mode={claim}"]
    taken, log = run(class_path, folder / "job", "UpgradeJob", folder / "job", "CANONICAL", *options)
    if taken is None:
        return "does not start: " + next((line for line in log.splitlines() if "Caused by" in line), "?")[:300]
    before, then = without_own(after), without_own(content(FlinkStore(str(taken))))
    differing = sorted({str(place) for place in before.keys() | then.keys() if before.get(place) != then.get(place)})
    return f"other rows in {differing}" if differing else "equal"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", metavar="NAME", help="layouts whose names have this in them")
    asked = parser.parse_args()
    equal = tries = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        writer = compiled_for(VERSION, folder / "writer", UpgradeJob=(SOURCES / "UpgradeJob.java").read_text())
        reader = changed_job(folder / "reader")
        for layout, (how, *options) in LAYOUTS.items():
            if asked.only not in layout:
                continue
            snapshot = snapshot_of(writer, folder / "snapshot", how, *options)
            for target in (None, "canonical"):
                backend = (
                    options[0].rpartition("=")[2] if target is None else ("hashmap" if ROCKS in options else "rocksdb")
                )
                verdict = outcome(reader, snapshot, folder / "work", target, backend, UNALIGNED not in options)
                tries, equal = tries + 1, equal + (verdict == "equal")
                print(f"{layout:36} {target or 'as it is':10} {verdict}", flush=True)
                shutil.rmtree(folder / "work")
            shutil.rmtree(folder / "snapshot")
    print(f"{equal} of {tries} copies started, with the rows that the file leaves")


if __name__ == "__main__":
    os.nice(19)
    main()
