"""The frames that came on one channel: what comes again of them has to be the same, and is dropped."""

from __future__ import annotations

import xxhash

from formats.ids import ChannelId


class OtherFrame(Exception):
    """A sender that takes its steps again has sent something else than before: its output depends on more than its
    state and its inputs."""

    def __init__(self, channel: ChannelId, reason: str) -> None:
        super().__init__(f"task {channel.sender} does not emit the same output on {channel} again: {reason}")
        self.channel = channel


class Arrivals:
    """Of a channel whose receiver starts from an epoch. next_record: the first that is new to it."""

    def __init__(self, channel: ChannelId, epoch: int, next_record: int) -> None:
        self._channel = channel
        self._since = next_record
        self._newest = epoch
        self._digests: dict[int, int] = {}
        self._barriers: dict[int, int] = {}

    def records(self, first: int, next_record: int, frame: memoryview) -> None:
        """A frame of records came, of which those from `next_record` on are new; OtherFrame if it came before and was
        another one."""
        if first < self._since:
            return  # the copy that the receiver was restored from holds them
        digest = xxhash.xxh3_64_intdigest(frame)
        if first >= next_record:
            self._digests[first] = digest
        elif (before := self._digests.get(first)) != digest:
            was = "began elsewhere" if before is None else f"had the digest {before:016x}, and has {digest:016x} now"
            raise OtherFrame(self._channel, f"the frame with record {first} {was}")

    def barrier(self, epoch: int, place: int | None) -> bool:
        """A barrier came before record `place` (None: unknown); whether it is new."""
        if epoch > self._newest:
            self._newest = epoch
            if place is not None:
                self._barriers[epoch] = place
            return True
        before = self._barriers.get(epoch, place)
        if place is not None and before != place:
            reason = f"barrier {epoch} stood before record {before}, and stands before {place} now"
            raise OtherFrame(self._channel, reason)
        return False

    def complete(self, epoch: int) -> None:
        """Nobody sends again what came before this barrier."""
        place = self._barriers.get(epoch)
        if place is None:
            return
        self._since = max(self._since, place)
        self._digests = {first: digest for first, digest in self._digests.items() if first >= self._since}
        self._barriers = {barrier: at for barrier, at in self._barriers.items() if barrier > epoch}
