"""The effect of resuming from an epoch of our own store on the sinks of its job."""

from __future__ import annotations

from collections.abc import Sequence

from abscli.graph.job_graph import JobGraph
from abscli.planner.guarantee import Times, guarantee_of
from abscli.protocol.policy import Policy
from abscli.text.columns import some
from formats.job.model import Topology

NAMED = 6
"""Sinks that a sentence names."""
UNKNOWN_GRAPH = "Whether sinks publish rows again is not known: the job graph cannot be read."


def output_again(topology: Topology | None, policy: str | None) -> list[str]:
    """Return which sinks publish rows again, a sentence per guarantee. policy: of the epoch, None if not known."""
    if topology is None or policy not in set(Policy):
        return [UNKNOWN_GRAPH]
    sinks = guarantee_of(JobGraph.of(topology), Policy(policy)).sinks
    by_output: dict[Times | None, list[str]] = {}
    for sink in sinks:
        by_output.setdefault(sink.output, []).append(sink.sink)
    sentences = []
    if exact := by_output.get(Times.EXACTLY_ONCE):
        sentences.append(f"{_named(exact)}: no row is published twice (exactly-once).")
    if repeating := by_output.get(Times.AT_LEAST_ONCE):
        sentences.append(f"{_named(repeating)}: rows that were published after the epoch are published again.")
    if unknown := by_output.get(None):
        sentences.append(f"{_named(unknown)}: it is not known whether rows are published again.")
    return sentences


def _named(sinks: Sequence[str]) -> str:
    return f"Sink{'s'[: len(sinks) != 1]} {some(sinks, NAMED)}"
