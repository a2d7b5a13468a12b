"""Small job graphs for the simulator."""

from __future__ import annotations

import msgspec

from abscli.protocol.policy import Policy
from abscli.sim.model import Model
from abscli.sim.scheduler import Outcome, run
from abscli.sim.world import Limits
from formats.job.model import Edge, Keeping, Kind, Operator, Partition, Topology

TIMER = Keeping((("n", "int64"),), "at")


def graph(edges: str, *, emit: str | None = None, timers: str = "", **parallelism: int) -> Topology:
    """`"s>a a=b b>a"`: `>` is a hash edge, `=` forward, `~` rebalance, `*` broadcast, a `!` after it replayable.

    What nothing feeds is a source, what feeds nothing a sink, the rest a map; emit: an operator that is a reduce which
    emits once an epoch; timers: operators that keep rows until event time has passed them.
    """
    found = []
    for word in edges.split():
        sign = next(char for char in word if char in ">=~*")
        source, _, target = word.partition(sign)
        partition = {">": Partition.HASH, "=": Partition.FORWARD, "~": Partition.REBALANCE, "*": Partition.BROADCAST}
        found.append(Edge(source, target.strip("!"), partition[sign], replayable=target.endswith("!")))
    names = dict.fromkeys(name for edge in found for name in (edge.source, edge.target))
    fed, feeding = {e.target for e in found}, {e.source for e in found}
    operators = []
    for name in names:
        kind = Kind.SOURCE if name not in fed else Kind.MAP if name in feeding else Kind.SINK
        if name == emit:
            kind = Kind.REDUCE
        operator = Operator(name, kind, parallelism.get(name, 1), 128, emit="epoch" if name == emit else None)
        if name in timers.split():
            operator = msgspec.structs.replace(operator, kind=Kind.PROCESS, key=("key",), keeping=TIMER)
        operators.append(operator)
    return Topology("simulated", tuple(operators), tuple(found))


CHAIN = graph("s=a a=b")
NARROW_CHAIN = graph("s=a a~b", s=2, a=2, b=2)
DIAMOND = graph("s>a s>b a>c b>c")
TWO_INPUTS = graph("s>c t>c c>d", c=2)
SELF_LOOP = graph("s>a a>a a>b")
PEERS = graph("s>a a>a a>b", s=2, a=2)
TWO_TASK_LOOP = graph("s>a a>b b>a b>c", s=2, a=2, b=2)
NESTED_LOOPS = graph("s>a a>b b>b b>a b>c", a=2)
TWO_ENTRIES = graph("s>a t>b a>b b>a b>c", a=2, b=2)
BROADCAST = graph("s*a a~b", s=2, a=2, b=2)
ONCE_AN_EPOCH = graph("s>a a>b", emit="a", s=2, a=2)
TIMERS = graph("s>a t>a a>b b>c", timers="a b", s=2, a=2, b=2)
TIMER_BEHIND = graph("s>a a>b", timers="a")
REPLAYABLE = graph("s=!a a>!b b>c", s=2, a=2, b=2)

SHAPES = {
    "chain": CHAIN,
    "narrow chain": NARROW_CHAIN,
    "diamond": DIAMOND,
    "two inputs": TWO_INPUTS,
    "self-loop": SELF_LOOP,
    "peers in a self-loop": PEERS,
    "two-task loop": TWO_TASK_LOOP,
    "nested loops": NESTED_LOOPS,
    "loop with two entries": TWO_ENTRIES,
    "broadcast": BROADCAST,
    "once an epoch": ONCE_AN_EPOCH,
    "replayable": REPLAYABLE,
    "timers": TIMERS,
}

SMALL = {
    "chain": CHAIN,
    "diamond": DIAMOND,
    "two inputs": graph("s>c t>c"),
    "timer": TIMER_BEHIND,
    "self-loop": graph("s>a a>a"),
    "peers in a self-loop": graph("s>a a>a", a=2),
    "two-task loop": graph("s>a a>b b>a"),
    "nested loops": graph("s>a a>b b>b b>a"),
    "loop with two entries": graph("s>a t>b a>b b>a"),
}
"""The same with as few tasks as show the shape, for searches."""


def model(topology: Topology, records: int = 3, rounds: int = 2) -> Model:
    """The simulated job."""
    return Model.of(topology, records, rounds)


def whole(job: Model, policy: Policy, limits: Limits, seed: int, *, batch: int = 3) -> Outcome:
    """A run from a seed, in which every cut has to be consistent and the end as promised."""
    outcome = run(job, policy, limits, seed, batch=batch)
    assert outcome.rule is None, f"seed {seed}: {outcome.message}"
    return outcome
