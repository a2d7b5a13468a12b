"""Conservation of an unaligned checkpoint of Flink: what was emitted = what was counted + what was in flight.

Flink counts no records, and which state counts them is the job's own affair. But an equation between the positions of
sources (or numbers in the state of senders), a number in a receiver's state and the records in flight between them that
holds to the record is no accident, and is a law of the job where it holds again in another checkpoint with other
numbers. Operators that keep no numbers are passed through: what is in flight on both sides of them counts. So the edges
into a receiver

- hold in a checkpoint where some such equation does, with a constant that is known (what the splits began at; nothing,
  between counts) or is the same in another checkpoint whose count is clearly another;
- are told as broken where an equation holds in two other checkpoints and none does in this one. That does not make it
  damaged: a law that was learned is no proof (a job may begin to drop records), and every byte may be there;
- are unchecked otherwise, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, islice, product
from typing import Final, NamedTuple

from abscli.report.findings import Code, Finding
from formats.flink.ids import Edge, Names, OperatorHash
from formats.flink.in_flight import MOST, Tally
from formats.ids import EdgeId, edge_name

APART: Final = 16
"""Records by which the counts of two checkpoints differ at least, so that what both agree on says something."""

WAYS: Final = 8
"""Ways into an operator that are followed; with more, so much can be chosen that an equation says nothing."""

OPERATORS: Final = 300
"""Operators whose inflow is looked for, and so how long a way may be."""

LAWS: Final = 64
"""Choices of numbers that are tried for one count."""


class Law(NamedTuple):
    """An equation.

    counted: a number in the receiver's state.
    emitted: by operator the number in its state, None where it is a source's positions.
    """

    counted: str
    emitted: tuple[tuple[OperatorHash, str | None], ...]


class Numbers(NamedTuple):
    """A law in one checkpoint.

    constant_known: the constant needs no other checkpoint.
    """

    emitted: int
    counted: int
    in_flight: int
    constant_known: bool

    @property
    def rest(self) -> int:
        return self.emitted - self.counted - self.in_flight


class Inflow(NamedTuple):
    """What comes to an operator.

    origins: the operators that tell what they emitted, one for each way from them.
    edges: all edges on these ways.
    """

    origins: tuple[OperatorHash, ...]
    edges: frozenset[Edge]


class Conserved(NamedTuple):
    """What conservation says of one checkpoint.

    findings: laws that it breaks.
    holds: laws that it keeps, in words.
    why: what is unchecked, None if every edge with records in flight keeps a law.
    """

    findings: tuple[Finding, ...]
    holds: tuple[str, ...]
    why: str | None


def conserved(tally: Tally, others: Sequence[Tally], names: Names) -> Conserved:
    """Judge one checkpoint. others: checkpoints of the same job."""
    edges = {edge for one in (tally, *others) for edge in one.in_flight}
    findings: list[Finding] = []
    holds: list[str] = []
    settled: set[Edge] = set()
    inflows: dict[OperatorHash, Inflow | None] = {}
    for receiver in sorted({end for _, end in edges}):
        inflow = _inflow(receiver, tally, edges, inflows)
        if inflow is None or not inflow.edges & tally.in_flight.keys():
            continue
        kept, broken = _receiver(receiver, inflow, tally, others, names)
        if kept is not None:
            holds.append(kept)
        elif broken is not None:
            senders = dict.fromkeys(names.get(origin, origin) for origin in inflow.origins)
            channels = EdgeId(tuple(senders), names.get(receiver, receiver))
            findings.append(Finding(Code.CONSERVATION, None, channels, None, broken))
        if kept or broken:
            settled |= inflow.edges
    reasons = []
    unknown = [edge for edge in sorted(tally.in_flight) if edge not in settled]
    if unknown:
        reason = "no number in state goes with the records that were sent and are in flight"
        reasons.append(f"{', '.join(_called(edge, names) for edge in unknown)}: {reason}")
        if tally.skipped:
            large = ", ".join(names.get(operator, operator) for operator in tally.skipped)
            reasons.append(f"the state of {large} is more than {MOST >> 20} MiB and was not summed")
    if tally.loose:
        reasons.append("which operator feeds which could not be told for all of the in-flight data")
    if not tally.in_flight and not reasons:
        reasons.append("no records are in flight")
    return Conserved(tuple(findings), tuple(holds), "; ".join(reasons) or None)


def _inflow(
    receiver: OperatorHash, tally: Tally, edges: set[Edge], inflows: dict[OperatorHash, Inflow | None]
) -> Inflow | None:
    """Back from an operator to those that tell what they emitted; None if a way ends, or goes round, before one.
    inflows: what is known already."""
    if receiver in inflows or len(inflows) >= OPERATORS:
        return inflows.get(receiver)
    # until it is known, so that a way that comes round to here ends
    inflows[receiver] = None
    origins: list[OperatorHash] = []
    on: set[Edge] = set()
    for sender in sorted(sender for sender, end in edges if end == receiver):
        on.add(Edge(sender, receiver))
        if sender in tally.sources or tally.sums.get(sender):
            origins.append(sender)
            continue
        before = _inflow(sender, tally, edges, inflows)
        if before is None:
            return None
        origins += before.origins
        on |= before.edges
    if 0 < len(origins) <= WAYS:
        inflows[receiver] = Inflow(tuple(origins), frozenset(on))
    return inflows[receiver]


def _receiver(
    receiver: OperatorHash, inflow: Inflow, tally: Tally, others: Sequence[Tally], names: Names
) -> tuple[str | None, str | None]:
    """The law that holds, in words; else the one that is broken."""
    broken = None
    there = [(other, dict(_laws(receiver, inflow, other))) for other in others]
    for law, mine in _laws(receiver, inflow, tally):
        before = [(other, laws[law]) for other, laws in there if law in laws]
        same = any(n.rest == mine.rest and abs(n.counted - mine.counted) >= APART for _, n in before)
        if (mine.constant_known and mine.counted >= APART) or same:
            return _equation(receiver, law, mine, names), None
        broken = broken or _broken(receiver, law, mine, before, names)
    return None, broken


def _broken(
    receiver: OperatorHash, law: Law, mine: Numbers, before: list[tuple[Tally, Numbers]], names: Names
) -> str | None:
    for (one, first), (other, second) in combinations(before, 2):
        apart = abs(first.counted - second.counted) >= APART
        if first.rest == second.rest != mine.rest and (apart or (first.constant_known and second.constant_known)):
            off = mine.rest - first.rest
            difference = f"{abs(off)} {'are missing' if off > 0 else 'too many'}"
            pair = f"checkpoints {one.epoch} and {other.epoch}"
            return f"{difference}, by a law that {pair} keep: {_equation(receiver, law, mine, names, first.rest)}"
    return None


def _laws(receiver: OperatorHash, inflow: Inflow, tally: Tally) -> Iterator[tuple[Law, Numbers]]:
    """Every equation that may hold, those of sources' positions first."""
    in_flight = sum(tally.in_flight.get(edge, 0) for edge in inflow.edges)
    choices = [_emitted(origin, tally) for origin in inflow.origins]
    for counted, total in tally.sums.get(receiver, {}).items():
        # each choice is another chance of an accident, and of many nothing would be learned
        for chosen in islice(product(*choices), LAWS):
            emitted = sum(number for _, _, number, _ in chosen)
            starts = {sum(part) for part in product(*(starts for _, _, _, starts in chosen))}
            law = Law(counted, tuple((origin, name) for origin, name, _, _ in chosen))
            yield law, Numbers(emitted, total, in_flight, emitted - total - in_flight in starts)


def _emitted(origin: OperatorHash, tally: Tally) -> list[tuple[OperatorHash, str | None, int, tuple[int, ...]]]:
    """What may tell how much an operator emitted: which number, the number, and what it began at as far as known."""
    source = tally.sources.get(origin)
    if source is not None:
        return [(origin, None, sum(source.positions.values()), source.starts)]
    return [(origin, name, total, (0,)) for name, total in tally.sums.get(origin, {}).items()]


def _equation(receiver: OperatorHash, law: Law, numbers: Numbers, names: Names, rest: int | None = None) -> str:
    emitted = numbers.emitted - (numbers.rest if rest is None else rest)
    senders = dict.fromkeys(
        f"{names.get(origin, origin)}{'' if name is None else f' ({_column(name)})'}" for origin, name in law.emitted
    )
    return (
        f"{' and '.join(senders)} emitted {emitted}, {names.get(receiver, receiver)} counted {numbers.counted}"
        f" ({_column(law.counted)}), {numbers.in_flight} in flight"
    )


def _column(name: str) -> str:
    state, _, field = name.partition("\0")
    return f"{state}.{field}" if field else state


def _called(edge: Edge, names: Names) -> str:
    return edge_name(*(names.get(end, end) for end in edge))
