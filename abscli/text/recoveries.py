"""Live recoveries in words: what was lost, what restarted, and what that cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from abscli.text.columns import counted, size
from formats.ids import tasks_name

if TYPE_CHECKING:
    from abscli.engine.losses.decisions import Recovery
    from abscli.engine.telemetry.news import Recovering


def recovering(news: Recovering) -> str:
    """`worker 1 on h1 (process 4711) was lost: 6 of 8 tasks restart from epoch 4`."""
    tasks = f"{news.tasks} of {news.tasks + news.untouched} tasks restart from {_where(news.epoch)}"
    later = f" in {news.pause:g} s" if news.pause else ""
    return f"{news.cause}: {tasks}{later}"


def recovered(recovery: Recovery) -> str:
    """`recovered in 0.9 s: counts/0-3 and words/1 from epoch 4, 1,204 records replayed, 2 tasks unaffected`."""
    restart = {id: str(numbers) for id, numbers in recovery.subtasks.items()}
    text = recovered_text(restart, recovery.untouched, recovery.epoch, recovery.seconds, recovery.replayed)
    again = recovery.again
    return text + (again_text(again.steps, again.determinant_bytes, again.buffer_bytes) if again is not None else "")


def recovered_text(
    restart: Mapping[str, str], untouched: int, epoch: int, seconds: float, replayed: int
) -> str:
    """The same from a record in a store. restart: ranges of subtasks by operator."""
    unaffected = f"{untouched} task{'s'[: untouched != 1]} unaffected"
    return (
        f"recovered in {seconds:.1f} s: {tasks_text(restart, untouched)} from {_where(epoch)}, "
        f"{counted(replayed, 'record')} replayed, {unaffected}"
    )


def again_text(steps: int, determinant_bytes: int, buffer_bytes: int) -> str:
    """`; 68 steps replayed, from 2.6 KB of determinant log and 18 KB of backup buffer`."""
    log, buffer = size(determinant_bytes), size(buffer_bytes)
    return f"; {steps:,} steps replayed, from {log} of determinant log and {buffer} of backup buffer"


def tasks_text(restart: Mapping[str, str], untouched: int, most: int = 4) -> str:
    """`counts/0-3, words/1`; all tasks by that word, and of many operators the first."""
    if not untouched:
        return "all tasks"
    names = [tasks_name(operator, subtasks) for operator, subtasks in restart.items()]
    more = f" and {len(names) - most} more operators" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _where(epoch: int) -> str:
    return f"epoch {epoch}" if epoch else "the start"
