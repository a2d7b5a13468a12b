"""What `abs simulate --check` found: how much was held against the machines, what happened in it, the first line that
disagrees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from abscli.sim.situations import Situation
from abscli.sim.traces import Campaign
from abscli.text.columns import columns, wrapped
from formats.version import FORMAT_VERSION

_WORDS = {"machines": "state machines", "repeated": "of them replayed"}
_KEYS = {"machines": "state_machines", "repeated": "replayed"}


def text(campaign: Campaign, width: int) -> str:
    """For people."""
    rows = [(situation.value, f"{campaign.situations[situation]:,}") for situation in Situation]
    lines = [
        *wrapped(", ".join(f"{count:,} {_WORDS.get(name, name)}" for name, count in _counts(campaign)), width),
        "",
        *columns(("SITUATION", "TIMES"), rows, "lr", width),
        "",
    ]
    for path in campaign.cut:
        lines += wrapped(f"{path}: its last line is not whole: the job was killed", width)
    if campaign.absent:
        lines += wrapped(", ".join(campaign.absent), width, "  ", "Never happened: ")
    if campaign.first is None:
        return "\n".join([*lines, "No line disagrees."]) + "\n"
    path, first = campaign.first
    message = f"{path}:{first.number}: {first.at or 'a line'} ({first.rule}): {first.message}"
    return "\n".join([*lines, *wrapped(message, width, "  ", "DISAGREES: ")]) + "\n"


def to_json(campaign: Campaign) -> dict[str, Any]:
    """`abs.simulate.check`."""
    return {
        "schema": "abs.simulate.check",
        "version": FORMAT_VERSION,
        **{_KEYS.get(name, name): value for name, value in _counts(campaign)},
        "situations": [{"situation": s.value, "times": campaign.situations[s]} for s in Situation],
        "truncated": list(campaign.cut),
        "disagreement": None
        if campaign.first is None
        else {
            "path": campaign.first[0],
            "line": campaign.first[1].number,
            "at": campaign.first[1].at or None,
            "rule": campaign.first[1].rule,
            "message": campaign.first[1].message,
        },
    }


def _counts(campaign: Campaign) -> Sequence[tuple[str, int]]:
    names = ("attempts", "machines", "steps", "repeated", "epochs")
    return [("traces", len(campaign.traces)), *((name, getattr(campaign, name)) for name in names)]
