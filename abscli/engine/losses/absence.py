"""Explain why workers are not connected: the cluster has no free slot for them, or the network does not let them
through. The two need opposite remedies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SLOTS = "use fewer --workers, or a master with more free slots"
OTHER_HOST = "; a replacement needs a free slot on another host"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A process that listens for connections.

    host: name of its host.
    """

    host: str
    address: str
    port: int

    def __str__(self) -> str:
        return f"{self.host} ({self.address}:{self.port})"

    @property
    def place(self) -> str:
        """Return the host with its address. Ports change with every start, so they are of no use for a check."""
        return f"{self.host} ({self.address})"


@dataclass(frozen=True, slots=True)
class Absent:
    """A worker that is not connected.

    title: of the newest process that has connected under its number, if any.
    last: where that process listened; None if none has ever connected.
    has_slot: whether the cluster runs the process that was started last; None if unknown.
    cause: why the newest process was lost; None if none has ever connected.
    is_unresponsive: whether it was lost for want of heartbeats.
    """

    title: str
    last: Endpoint | None
    has_slot: bool | None
    cause: str | None
    is_unresponsive: bool = False

    @property
    def is_unreachable(self) -> bool:
        """Decide whether its host is out of reach.

        Spark counts the slot on such a host as taken: it does not hear that the worker has left. So a replacement
        without a slot is a consequence, and not the cause.
        """
        return self.last is not None and (self.is_unresponsive or self.has_slot is not False)

    @property
    def text(self) -> str:
        """Name the process that is awaited."""
        return self.title if self.last is None else f"the replacement of {self.title}"


def explain(
    absent: Sequence[Absent], driver: Endpoint, connected: Sequence[Endpoint], seconds: float
) -> tuple[str, str]:
    """Return the error and the hint for workers that did not connect within this time.

    connected: the workers that are connected.
    """
    messages, hints = [], []
    unreachable = [one for one in absent if one.is_unreachable]
    without_slot = [one for one in absent if one.has_slot is False and not one.is_unreachable]
    never = [one for one in absent if one.has_slot is not False and one.last is None]
    if unreachable:
        listened = _listed([f"{one.last.address}:{one.last.port}" for one in unreachable if one.last is not None])
        messages.append(
            f"{_causes(unreachable)}, and no replacement connected to the driver on {driver} within {seconds:.0f} s; "
            f"the lost worker{'s'[: len(unreachable) > 1]} listened on {listened}"
        )
        needs_slot = any(one.has_slot is False for one in unreachable)
        hints.append(_check(unreachable, driver, connected) + (OTHER_HOST if needs_slot else ""))
    if never:
        were = "was" if len(never) == 1 else "were"
        messages.append(
            f"{_listed([one.title for one in never])} {were} started, but did not connect to the driver on {driver} "
            f"within {seconds:.0f} s"
        )
        hints.append(
            f"check that every host reaches {driver.address}, for example with `ping -c 3 {driver.address}`; or set "
            "--advertise to the address at which workers reach the driver"
        )
    for one in without_slot:
        process = one.title if one.cause is None else f"{one.cause}, and its replacement"
        messages.append(f"{process} got no slot of the cluster within {seconds:.0f} s")
    if without_slot:
        hints.append(SLOTS)
    return "; ".join(messages), "; ".join(hints)


def waiting_for(absent: Sequence[Absent], driver: Endpoint) -> str:
    """Describe what a job waits for while workers are not connected."""
    without_slot = [one.text for one in absent if one.has_slot is False]
    others = [one.text for one in absent if one.has_slot is not False]
    texts = []
    if others:
        have = "has" if len(others) == 1 else "have"
        texts.append(f"{_listed(others)} {have} not connected to the driver on {driver}")
    if without_slot:
        texts.append(f"{_listed(without_slot)} wait{'s'[: len(without_slot) == 1]} for a free slot of the cluster")
    return "; ".join(texts)


def restoring(titles: Sequence[str]) -> str:
    """Describe what a job waits for while connected workers start their tasks."""
    return f"{_listed(titles)} {'has' if len(titles) == 1 else 'have'} not restored all tasks from the store"


def _causes(absent: Sequence[Absent]) -> str:
    return "; ".join(dict.fromkeys(one.cause or f"{one.title} was lost" for one in absent))


def _check(unreachable: Sequence[Absent], driver: Endpoint, connected: Sequence[Endpoint]) -> str:
    places = {one.last.address: one.last for one in unreachable if one.last is not None}
    hosts = _listed([place.place for place in places.values()])
    ping = f"for example with `ping -c 3 {next(iter(places))}` on {driver.host}"
    if connected:
        return f"check the network between {driver.place} and {hosts}, {ping}"
    return f"no worker is connected: check the network of {driver.place}, which has lost {hosts}, {ping}"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
