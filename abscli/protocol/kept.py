"""The frames that a worker has sent since the newest complete epoch, for receivers that may be lost (L8)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from formats.ids import ChannelId


@dataclass(frozen=True, slots=True)
class KeptRecords:
    """A frame of `count` records. first: the number of its first; size: bytes that it counts for."""

    first: int
    count: int
    size: int
    batch: object = None


@dataclass(frozen=True, slots=True)
class KeptBarrier:
    """A barrier between frames. watermark: that it carries."""

    epoch: int
    watermark: int | None = None


Kept = KeptRecords | KeptBarrier


class KeptFrames:
    """Of all channels on which one worker's tasks send.

    A channel is kept without a hole behind its barrier of the epoch `since`; where a receiver restarts from an older
    one there is no way but to restart everything. bound: bytes, of all channels together; None: as many as come.
    """

    def __init__(self, bound: int | None = None) -> None:
        self.bound = bound
        self.size = 0
        self._frames: dict[ChannelId, list[Kept]] = {}
        self._since: dict[ChannelId, int | None] = {}

    def begin(self, channel: ChannelId, epoch: int) -> None:
        """Its sender starts from an epoch: all that it sends from now on comes behind that barrier."""
        self.size -= self._bytes(self._frames.get(channel, ()))
        self._frames[channel] = []
        self._since[channel] = epoch

    def records(self, channel: ChannelId, first: int, count: int, size: int, batch: object = None) -> bool:
        """Keep a frame that is sent; False if everything had to be let go for the bound."""
        if self._since[channel] is None:
            return True
        self._frames[channel].append(KeptRecords(first, count, size, batch))
        self.size += size
        if self.bound is None or self.size <= self.bound:
            return True
        self.let_go()
        return False

    def keeps(self, channel: ChannelId) -> bool:
        """Whether what is sent on a channel is kept; if not, it is again from the next barrier on."""
        return self._since[channel] is not None

    def let_go(self) -> None:
        """All: there is no room for more."""
        self._frames = {each: [] for each in self._frames}
        self._since = dict.fromkeys(self._since)
        self.size = 0

    @property
    def batches(self) -> Iterator[object]:
        """Of all frames that are kept."""
        return (frame.batch for frames in self._frames.values() for frame in frames if isinstance(frame, KeptRecords))

    def barrier(self, channel: ChannelId, epoch: int, watermark: int | None = None) -> None:
        """A barrier is sent: it is kept, and where nothing was kept any more, what comes behind it is again."""
        if self._since[channel] is None:
            self._since[channel] = epoch
        else:
            self._frames[channel].append(KeptBarrier(epoch, watermark))

    def complete(self, epoch: int) -> None:
        """An epoch is complete: what was sent before its barrier is not needed any more."""
        for channel, frames in self._frames.items():
            place = _place(frames, epoch)
            if place is not None:
                self.size -= self._bytes(frames[:place])
                self._frames[channel] = frames[place + 1 :]
                self._since[channel] = epoch

    def holes(self, epoch: int, channels: Iterable[ChannelId] | None = None) -> list[ChannelId]:
        """The channels (of these, or of all) whose receiver cannot restart from the epoch."""
        asked = self._since.keys() if channels is None else self._since.keys() & set(channels)
        return sorted(channel for channel in asked if (since := self._since[channel]) is None or since > epoch)

    def behind(self, channel: ChannelId, epoch: int) -> list[Kept]:
        """What was sent behind the barrier of an epoch, which `holes` does not name the channel for."""
        frames = self._frames[channel]
        place = _place(frames, epoch)
        return frames[0 if place is None else place + 1 :]

    @staticmethod
    def _bytes(frames: Iterable[Kept]) -> int:
        return sum(frame.size for frame in frames if isinstance(frame, KeptRecords))


def _place(frames: list[Kept], epoch: int) -> int | None:
    """Where the barrier of an epoch stands."""
    return next((i for i, frame in enumerate(frames) if isinstance(frame, KeptBarrier) and frame.epoch == epoch), None)
