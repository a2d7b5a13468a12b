"""An interactive bash on a terminal of its own: what its line is after keys were pressed."""

from __future__ import annotations

import os
import pty
import select
import shlex
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

TAB = "\t"
ALL = "\x1b*"
"""Puts every offer into the line."""
_SHOW, _CLEAR = "\x18", "\x15"
PATIENCE = 120.0


class Terminal:
    """A bash that has read a script. `typed` gives its line."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._seen = ""

    def typed(self, line: str, keys: str = TAB) -> str:
        """The line after it was typed and the keys were pressed; it is not run."""
        self._send(line + keys + _SHOW)
        shown = self._until("]LINE")
        self._send(_CLEAR)
        return shown.rpartition("LINE[")[2]

    def run(self, command: str) -> None:
        """Runs a command to its end."""
        self._send(f"{command}; echo DO''NE\n")
        self._until("DONE")

    def _send(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def _until(self, mark: str) -> str:
        ends = time.monotonic() + PATIENCE
        while mark not in self._seen:
            assert time.monotonic() < ends, f"bash has not said {mark} but {self._seen!r}"
            if select.select([self._descriptor], [], [], 1.0)[0]:
                self._seen += os.read(self._descriptor, 1 << 16).decode(errors="replace")
        before, _, self._seen = self._seen.partition(mark)
        return before


@contextmanager
def bash(script: Path, folder: Path, environment: Mapping[str, str]) -> Iterator[Terminal]:
    """A bash in a folder, with nobody's settings, that has sourced a script."""
    pid, descriptor = pty.fork()
    if pid == 0:
        try:
            os.chdir(folder)
            variables = {**os.environ, **environment, "TERM": "dumb", "PS1": "$ ", "INPUTRC": os.devnull}
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], {**variables, "COLUMNS": "10000"})
        finally:
            os._exit(127)
    try:
        terminal = Terminal(descriptor)
        show = r"""bind -x '"\C-x":printf "LINE[%s]LI""NE\n" "$READLINE_LINE"'"""
        terminal.run(f"stty cols 10000; bind 'set bell-style none'; {show}; source {shlex.quote(str(script))}")
        yield terminal
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(descriptor)
