"""Jobs with every aggregate through stops, restarts and other parallelisms: the values in the end are those of all
rows, and a key's row is put out again only where it differs."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from abscli.engine.generations.rescaling import Rescale, publish
from abscli.engine.job import run_job
from formats.job.file import parse_job
from formats.job.model import Topology
from formats.storage import LocalStorage
from tests.engine.test_aggregates import EXPECTED
from tests.support.jobs.inline import STORE, Middle, stop_after, store
from tests.support.jobs.small import inline

EVERY = """
      n: {count: "*"}
      total: {sum: v}
      least: {min: v}
      most: {max: s}
      middle: {mean: v}
      oldest: {first: s}
      newest: {last: v}
      best: {top_n: s, n: 2, by: v}
      largest: {top_n: v, n: 3}
      some: {collect: s, limit: 4}
"""
THAT_REST = "least: {min: v}, most: {max: s}, oldest: {first: s}, best: {top_n: s, n: 2, by: v}"
JOB = f"""
version: 1
job: aggregates
max_parallelism: 16
operators:
  rows:
    source: {{type: jsonl, path: rows.jsonl, schema: {{k: string, v: int64, s: string}}}}
  every:
    from: rows
    parallelism: WIDTH
    reduce:
      key: [k]
{EVERY}
  all:
    from: every
    sink: {{type: jsonl, path: all}}
  resting:
    from: rows
    parallelism: WIDTH
    reduce: {{key: [k], {THAT_REST}, emit: change}}
  changes:
    from: resting
    sink: {{type: jsonl, path: changes}}
"""


def write_rows(folder: Path, count: int = 3_000) -> dict[str, list[tuple[Any, ...]]]:
    """Rows by key, of which the first few have all the least and largest values."""
    rows: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    with (folder / "rows.jsonl").open("w") as file:
        for i in range(count):
            row = (f"k{i % 7}", None if i % 11 == 3 else (i * 31) % 13, None if i % 5 == 2 else "xyzw"[(i // 7) % 4])
            rows[str(row[0])].append(row)
            file.write(json.dumps(dict(zip("kvs", row, strict=True))) + "\n")
    return rows


def written(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """What was shown for each key, in the order of epochs."""
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for path in sorted(folder.glob("part-*.jsonl"), key=lambda path: path.stem.rpartition("-")[2]):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            rows[row.pop("k")].append(row)
    return rows


def rescaled(folder: Path, topology: Topology, epoch: int) -> int:
    """The epoch from which a job of this graph goes on; the same one where the graph is."""
    if store(folder).topology(epoch) == topology:
        return epoch
    return publish(LocalStorage(folder / STORE), Rescale(epoch, topology, str(folder)))


@pytest.mark.sample(1)
@pytest.mark.parametrize("policy", ["aligned", "unaligned"])
def test_values_and_changes_through_stops_and_other_parallelisms(
    tmp_path: Path, small_batches: Middle, policy: str
) -> None:
    rows = write_rows(tmp_path)
    expected = {key: {name: of(some) for name, of in EXPECTED.items()} for key, some in rows.items()}
    start = None
    for width, epochs, limit in ((1, 3, None), (3, 3, 1), (3, 3, None), (2, None, None)):
        small_batches.epochs = (start or 0) + 6 if epochs else 0
        (tmp_path / "job.yaml").write_text(JOB.replace("WIDTH", str(width)))
        topology = parse_job(tmp_path / "job.yaml").topology
        if start:
            start = rescaled(tmp_path, topology, start)
        options = inline(tmp_path, interval=0.02, keep=None, policy=policy, from_epoch=start, state_memory=limit)
        callbacks = stop_after(epochs)[0] if epochs else {}
        start = run_job(topology, str(tmp_path / STORE), options, **callbacks).epoch  # type: ignore[arg-type]
    assert {key: shown[-1] for key, shown in written(tmp_path / "all").items()} == expected
    changes = written(tmp_path / "changes")
    names = list(next(iter(changes.values()))[-1])
    assert {key: shown[-1] for key, shown in changes.items()} == {
        key: {name: values[name] for name in names} for key, values in expected.items()
    }
    for shown in changes.values():
        assert all(before != after for before, after in itertools.pairwise(shown))
