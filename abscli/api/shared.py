"""What the parts of the API share: arguments of one text or several, numbers and paths in a `repr`, and the one who
watches where nobody does."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from abscli.planner.retention import Retention

if TYPE_CHECKING:
    from abscli.engine.coordinator import Progress as JobProgress
    from abscli.engine.telemetry.news import News

WIDTH = 100
"""Columns of a page that is printed."""

Texts = str | Sequence[str]
"""One, or several."""


def texts(texts: Texts) -> tuple[str, ...]:
    return (texts,) if isinstance(texts, str) else tuple(texts)


def retention(keep: int | Retention | None) -> Retention | None:
    """The rules that are meant: a number is that of the newest epochs."""
    return Retention(last=keep) if isinstance(keep, int) else keep


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s'[: number != 1]}"


def short(path: str) -> str:
    """A path as it is seen from the current folder, if it lies in it."""
    relative = path if "://" in path else os.path.relpath(path)
    return path if relative.startswith("..") else relative


def unseen(read: int, total: int | None) -> None:
    """Nobody asked how far it is."""


def unshown(progress: object) -> None:
    """Nobody asked what is going on."""


class Unwatched:
    """Nobody sees how a plan or a restore goes on; remarks go to the log of `abscli`."""

    def __call__(self, text: str) -> None:
        """How far it is."""

    def note(self, text: str) -> None:
        """A remark."""
        import logging

        logging.getLogger("abscli").warning(text)

    def job(self, name: str) -> UnwatchedJob:
        """A job begins to run."""
        return UnwatchedJob()


class UnwatchedJob:
    """Nobody sees how a job runs."""

    def __call__(self, progress: JobProgress) -> None:
        """How far it is."""

    def news(self, news: News) -> None:
        """What has happened."""
