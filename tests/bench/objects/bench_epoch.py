"""What an epoch costs on an object store: requests and seconds, with so many milliseconds a request.

Word count with 100 tasks (25 of each of four operators) on 8 workers in this process, its store in a bucket behind a
proxy on loopback that adds the latency: `python -m tests.bench.objects.bench_epoch --server moto --delay 50`.
"""

from __future__ import annotations

import argparse
import re
import statistics
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from abscli.engine.coordinator import Progress, Service
from abscli.engine.job import run_job
from formats.native.store import NativeStore
from formats.storage import open_writable
from tests.support.jobs import lines
from tests.support.jobs.small import inline, word_count, write_words
from tests.support.objects.fixtures import SERVERS, use
from tests.support.objects.places import bucket_place
from tests.support.objects.proxy import proxy_to

KINDS = (
    ("pack", r"/packs/"), ("leaving", r"/leaving"),
    ("ack", r"/ack\.json"), ("state", r"/state\.parquet"), ("log", r"/log/"), ("outcome", r"/outcome\.json"),
    ("tasks", r"/tasks\.json"), ("trigger", r"/trigger\.json"), ("lock", r"/lock/|prefix=[^&]*lock"),
    ("list", r"\?.*prefix="),
)  # fmt: skip


LINES = 100
"""That each source reads between two epochs."""


def kind_of(url: str) -> str:
    return next((kind for kind, pattern in KINDS if re.search(pattern, url)), "other")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default="moto", choices=("moto", "rgw"))
    parser.add_argument("--delay", type=float, default=50, help="milliseconds that a request takes longer")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--parallelism", type=int, default=25, help="of each of four operators")
    given = parser.parse_args()
    name = {"moto": "S3 by moto", "rgw": "S3 by Ceph RGW"}[given.server]
    with SERVERS[name]() as server, proxy_to(server.port) as proxy, tempfile.TemporaryDirectory() as scratch:
        patch = pytest.MonkeyPatch()
        use(server, patch, proxy.port)
        place = bucket_place(server)
        assert place.root is not None
        folder = Path(scratch)
        write_words(folder, files=given.parallelism, lines=LINES * (given.epochs + 3))
        gate = lines.Gate()
        patch.setattr(lines, "LINES_AN_EPOCH", LINES)
        gate.install(patch.setattr)
        proxy.delay = given.delay / 1000
        services: list[Service] = []
        began: list[int] = []

        def progress(p: Progress) -> None:
            gate.epochs = p.epochs
            if p.epochs > len(began):
                began.append(len(proxy.urls))
            if p.epochs > given.epochs and services:
                services.pop().request_stop()

        options = inline(folder, workers=8, interval=0.2, keep=2)
        topology = word_count(given.parallelism)
        run_job(topology, place.root, options, on_progress=progress, on_service=services.append)
        patch.undo()
        use(server, patch)
        store = NativeStore(open_writable(place.root))
        manifests = [store.manifest(n) for n in store.epoch_numbers() if store.has_manifest(n)]
        patch.undo()
    middle = proxy.urls[began[0] : began[-1]]
    epochs = len(began) - 1
    per_epoch = Counter((method, kind_of(url)) for method, url in middle)
    print(f"{4 * given.parallelism} tasks, 8 workers, {given.delay:g} ms a request, {name}, {epochs} epochs")
    print(f"requests an epoch: {len(middle) / epochs:.0f}")
    for (method, kind), count in per_epoch.most_common():
        print(f"  {method:7} {kind:8} {count / epochs:8.1f}")
    print("seconds from trigger to manifest: " + ", ".join(f"{m.duration:.2f}" for m in manifests))
    print(f"median {statistics.median(m.duration for m in manifests):.2f}")


if __name__ == "__main__":
    main()
