"""What starts workers on hosts without Spark: a Python process each, of which only the network says how it is.

A worker that cannot start says why. Of one that has started nobody hears but over its connections, and nobody can kill
it: where a host is gone nobody could, and who is declared lost has to leave by itself.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType

import msgspec

from abscli.engine.channels.messages import JobSpec
from abscli.engine.errors import EngineError, EngineStopped
from abscli.engine.worker import Worker


class HostWorkers:
    """Of a driver at `host`. enter: the words that run a program on each host.

    places: by worker number, the hosts of its launches, the last one also of all later ones.
    """

    pulse = True
    in_clear = None

    def __init__(self, host: str, enter: Mapping[str, Sequence[str]], places: Sequence[Sequence[str]]) -> None:
        self.host = self.bind = host
        self._enter = enter
        self._places = places
        self._spec = b""

    def slots(self, least: int, most: int, waiting: Callable[[int], None]) -> int | None:
        """As many as there are places."""
        return len(self._places)

    def prepare(self, spec: JobSpec) -> None:
        """What every worker gets."""
        self._spec = msgspec.json.encode(spec)

    def launch(self, number: int, launch: int, failed: Callable[[EngineError], None]) -> None:
        """Start a process, which is on its own from then on."""
        places = self._places[number]
        place = places[min(launch, len(places) - 1)]
        words = [*self._enter[place], sys.executable, "-m", "tests.support.hosts.workers", str(number), str(launch)]
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        threading.Thread(target=self._listen, args=(process, launch, failed), daemon=True).start()

    def _listen(self, process: subprocess.Popen[bytes], launch: int, failed: Callable[[EngineError], None]) -> None:
        why, _ = process.communicate(self._spec)
        if why and not launch:  # a later one may be on a host from which nobody hears
            failed(EngineStopped(why.decode()))

    def has_slot(self, number: int) -> bool:
        """A process starts at once."""
        return True

    def kill(self, number: int, pid: int | None) -> None:
        """Nobody reaches it."""

    def __enter__(self) -> HostWorkers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        """They leave by themselves."""


def main() -> None:
    """One worker: its job on stdin, its number and launch as words."""
    spec = msgspec.json.decode(sys.stdin.buffer.read(), type=JobSpec)
    try:
        worker = Worker(spec, int(sys.argv[1]), int(sys.argv[2]))
    except EngineStopped as error:
        sys.stdout.write(error.message)
        return
    sys.stdout.close()
    worker.run()


if __name__ == "__main__":
    main()
