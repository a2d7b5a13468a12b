"""Conservation of an unaligned checkpoint of Flink: what was emitted = what was counted + what was in flight.

Flink counts no records, and which state counts them is the job's own affair. But an equation between a source's
positions (or a number in the sender's state), a number in the receiver's state and the records in flight between the
two that holds to the record is no accident, and is a law of the job where it holds again in another checkpoint with
other numbers. So an edge

- holds in a checkpoint where some such equation does, with a constant that is known (what the splits began at; nothing,
  between two counts) or is the same in another checkpoint whose count is clearly another;
- is told as broken where an equation holds in two other checkpoints and none does in this one. That does not make it
  damaged: a law that was learned is no proof (a job may begin to drop records), and every byte may be there;
- is unchecked otherwise, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from abscli.check.findings import Code, Finding
from formats.flink.tally import Tally

APART: Final = 16
"""Records by which the counts of two checkpoints differ at least, so that what both agree on says something."""

Edge = tuple[str, str]
Names = Mapping[str, str]


class Law(NamedTuple):
    """An equation: emitted (None: the source's positions; else a number in the sender's state) and counted."""

    emitted: str | None
    counted: str


class Numbers(NamedTuple):
    """A law in one checkpoint. known: whether the constant needs no other checkpoint."""

    emitted: int
    counted: int
    in_flight: int
    known: bool

    @property
    def rest(self) -> int:
        return self.emitted - self.counted - self.in_flight


class Conserved(NamedTuple):
    """Of one checkpoint. findings: laws that it breaks; holds: those that it keeps, in words; why: what is unchecked,
    None if every edge with records in flight keeps one."""

    findings: tuple[Finding, ...]
    holds: tuple[str, ...]
    why: str | None


def conserved(tally: Tally, others: Sequence[Tally], names: Names) -> Conserved:
    """Judge one checkpoint. others: checkpoints of the same job."""
    findings: list[Finding] = []
    holds: list[str] = []
    unknown: list[str] = []
    for edge in sorted(tally.in_flight):
        said, broken = _edge(edge, tally, others, names)
        if said is not None:
            holds.append(said)
        elif broken is not None:
            findings.append(Finding(Code.CONSERVATION, None, _called(edge, names), None, broken))
        else:
            unknown.append(_called(edge, names))
    reasons = []
    if unknown:
        said = "no number in state goes with the records that were sent and are in flight"
        reasons.append(f"{', '.join(unknown)}: {said}")
    if tally.loose:
        reasons.append("which operator feeds which could not be told for all of the in-flight data")
    if not tally.in_flight and not reasons:
        reasons.append("no records are in flight")
    return Conserved(tuple(findings), tuple(holds), "; ".join(reasons) or None)


def _edge(edge: Edge, tally: Tally, others: Sequence[Tally], names: Names) -> tuple[str | None, str | None]:
    """The law that holds, in words; else the one that is broken."""
    broken = None
    for law, mine in _laws(edge, tally):
        before = [(other, found) for other in others if (found := dict(_laws(edge, other)).get(law)) is not None]
        same = [(other, n) for other, n in before if n.rest == mine.rest and abs(n.counted - mine.counted) >= APART]
        if (mine.known and mine.counted >= APART) or same:
            return _said(edge, law, mine, names), None
        broken = broken or _broken(edge, law, mine, before, names)
    return None, broken


def _broken(
    edge: Edge, law: Law, mine: Numbers, before: list[tuple[Tally, Numbers]], names: Names
) -> str | None:
    for i, (one, first) in enumerate(before):
        for other, second in before[i + 1 :]:
            apart = abs(first.counted - second.counted) >= APART
            if first.rest == second.rest != mine.rest and (apart or (first.known and second.known)):
                off = mine.rest - first.rest
                what = f"{abs(off)} {'are missing' if off > 0 else 'too many'}"
                pair = f"checkpoints {one.epoch} and {other.epoch}"
                return f"{what}, by a law that {pair} keep: {_said(edge, law, mine, names, first.rest)}"
    return None


def _laws(edge: Edge, tally: Tally) -> Iterator[tuple[Law, Numbers]]:
    """Every equation that may hold on an edge, the source's positions first."""
    sender, receiver = edge
    in_flight = tally.in_flight.get(edge)
    if in_flight is None:
        return
    source = tally.sources.get(sender)
    sent: dict[str | None, tuple[int, tuple[int, ...]]] = {}
    if source is not None:
        sent[None] = sum(source.positions.values()), source.starts
    sent |= {name: (total, (0,)) for name, total in tally.sums.get(sender, {}).items()}
    for counted, total in tally.sums.get(receiver, {}).items():
        for emitted, (number, starts) in sent.items():
            known = number - total - in_flight in starts
            yield Law(emitted, counted), Numbers(number, total, in_flight, known)


def _said(edge: Edge, law: Law, numbers: Numbers, names: Names, rest: int | None = None) -> str:
    sender, receiver = (names.get(end, end) for end in edge)
    emitted = numbers.emitted - (numbers.rest if rest is None else rest)
    by = "" if law.emitted is None else f" ({_column(law.emitted)})"
    return (
        f"{sender} emitted {emitted}{by}, {receiver} counted {numbers.counted} ({_column(law.counted)}),"
        f" {numbers.in_flight} in flight"
    )


def _column(name: str) -> str:
    state, _, field = name.partition("\0")
    return f"{state}.{field}" if field else state


def _called(edge: Edge, names: Names) -> str:
    return "->".join(names.get(end, end) for end in edge)
