"""What comes twice when an epoch is restored: records that are in its state and behind its barriers.

Under at-least-once a task goes on reading an input between its barrier and the copy. What it took meanwhile is in the
copy, and the sender sends it again: received - sent, channel by channel. What is made of those records repeats too.
"""

from __future__ import annotations

from collections.abc import Sequence

from abscli.protocol.policy import Policy
from formats.view import ChannelFacts, Repeat


def may_repeat(policy: str | None, channels: Sequence[ChannelFacts]) -> tuple[Repeat, ...] | None:
    """The channels of an epoch on which records can repeat, and how many; None if that cannot be known."""
    if policy not in set(Policy):
        return None
    if Policy(policy).exactly_once:
        return ()
    repeats = []
    for channel in channels:
        if channel.sent is None or channel.received is None:
            return None
        if channel.received > channel.sent:
            repeats.append(Repeat(channel.channel, channel.received - channel.sent))
    return tuple(repeats) if channels else None


def total(repeats: Sequence[Repeat]) -> int:
    """Records over all channels."""
    return sum(repeat.records for repeat in repeats)
