"""A long or bad line: a thread that carries frames between two TAP devices, late, or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import select
import struct
import subprocess
import threading
import time
from collections import deque

TUNSETIFF = 0x400454CA
TAP_WITHOUT_HEADER = 0x1002
FRAME = 65536


class Relay:
    """Carries until `end`, and its devices go with it. seconds: each way; loss: share of frames, by the seed's dice."""

    def __init__(self, namespace: str, names: tuple[str, str], *, seconds: float, loss: float, seed: int) -> None:
        self._taps = [_tap(name, namespace) for name in names]
        self._seconds = seconds
        self._loss = loss
        self._dice = random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Carry nothing any more."""
        self._stop.set()
        self._thread.join()

    def _carry(self) -> None:
        late: deque[tuple[float, int, bytes]] = deque()  # in the order of their times: the delay is constant
        while not self._stop.is_set():
            pause = max(0.0, min(0.1, late[0][0] - time.monotonic())) if late else 0.1
            for tap in select.select(self._taps, [], [], pause)[0]:
                with contextlib.suppress(BlockingIOError):
                    frame = os.read(tap, FRAME)
                    if self._dice.random() >= self._loss:
                        late.append((time.monotonic() + self._seconds, self._taps[tap == self._taps[0]], frame))
            while late and late[0][0] <= time.monotonic():
                _, tap, frame = late.popleft()
                with contextlib.suppress(OSError):  # its port is down
                    os.write(tap, frame)
        for tap in self._taps:
            os.close(tap)


def _tap(name: str, namespace: str) -> int:
    """A new device of this name in the namespace; it is there as long as its descriptor."""
    descriptor, passing = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK), f"t{os.getpid()}"
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", passing.encode(), TAP_WITHOUT_HEADER))
    subprocess.run(["ip", "link", "set", passing, "netns", namespace, "name", name], check=True)
    return descriptor
