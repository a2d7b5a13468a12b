"""Actions of a process that an observer outside of it can see."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Action(StrEnum):
    """What a process did, the worst first. MAP: it loaded a library; LOOK: it asked whether a path is there."""

    MAP = "map"
    EXEC = "exec"
    CONNECT = "connect"
    BIND = "bind"
    CHANGE = "change"
    READ = "read"
    LOOK = "look"


class Event(NamedTuple):
    """An action, and the object of it.

    target: `HOST:PORT` or a socket's path of CONNECT and BIND, else an absolute path.
    failed: the system refused it. An attempt counts as well: on another machine it would succeed.
    """

    action: Action
    target: str
    failed: bool = False

    def __str__(self) -> str:
        return f"{self.action} {self.target}{' (failed)' if self.failed else ''}"
