"""How long the recovery set of a job with a million tasks takes: `python -m tests.bench.bench_planner`."""

from __future__ import annotations

import statistics
import time

from abscli.stores.native.plan import plan_graph
from formats.job.model import Edge, Kind, Operator, Partition, Topology
from formats.plan import encode


def layered(operators: int, width: int, partition: Partition) -> Topology:
    """A chain of operators whose every second edge is of `partition`, the others all-to-all."""
    ops = tuple(Operator(f"o{i}", Kind.MAP if i else Kind.SOURCE, width, 1 << 20) for i in range(operators))
    edges = tuple(
        Edge(f"o{i}", f"o{i + 1}", partition if i % 2 else Partition.REBALANCE) for i in range(operators - 1)
    )
    return Topology("bench", ops, edges)


def main() -> None:
    print(f"{'operators':>9} {'tasks each':>10} {'edges':>10} {'failed':>7} {'plan ms':>8} {'file bytes':>10}")
    for operators, width in ((10, 100_000), (1_000, 1_000), (10_000, 100), (100_000, 10)):
        for partition in (Partition.HASH, Partition.FORWARD):
            topology = layered(operators, width, partition)
            for count in (1, width // 2):
                failed = [f"o{operators // 2}/{2 * i}" for i in range(count)]
                times = []
                for _ in range(3):
                    begin = time.perf_counter()
                    data = encode(plan_graph(topology, failed))
                    times.append(time.perf_counter() - begin)
                print(
                    f"{operators:>9,} {width:>10,} {partition:>10} {count:>7,} "
                    f"{statistics.median(times) * 1e3:>8.1f} {len(data):>10,}"
                )


if __name__ == "__main__":
    main()
