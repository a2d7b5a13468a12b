"""Why epochs take longer than they may: counted over epochs, asked of the workers, told with the task that is slow."""

from __future__ import annotations

from collections.abc import Iterable

from abscli.engine.channels.messages import Lag, Lagging
from abscli.engine.telemetry.news import Late

IN_A_ROW = 3
"""Epochs that are given up before it is told; then again when it has been twice as many."""

ANSWER_SECONDS = 2.0
"""A worker that does not answer within this time is in a function that takes long: that is an answer, too."""

_MOST_NAMED = 5


class Lateness:
    """Finds the causes of late epochs of one attempt.

    timeout: seconds that an epoch may take.
    workers: their numbers.
    """

    def __init__(self, timeout: float, workers: Iterable[int]) -> None:
        self._timeout = timeout
        self._workers = frozenset(workers)
        self._in_a_row: list[int] = []
        self._told = 0
        self._asked: tuple[int, float] | None = None
        self._answers: dict[int, Lagging] = {}

    def given_up(self, epoch: int, now: float) -> None:
        """An epoch timed out. Every worker says on its own what it was doing for it."""
        self._in_a_row.append(epoch)
        if len(self._in_a_row) >= max(IN_A_ROW, 2 * self._told) and self._asked is None:
            self._asked, self._answers = (epoch, now), {}

    def complete(self) -> None:
        """An epoch is complete: those before it are forgiven."""
        self._in_a_row.clear()
        self._told, self._asked = 0, None

    def answered(self, answer: Lagging) -> None:
        """Take the report of a worker about an aborted epoch."""
        if self._asked is not None and answer.epoch == self._asked[0]:
            self._answers[answer.worker] = answer

    def due(self, now: float, last_complete: int) -> Late | None:
        """Return the report that is due now; None without one."""
        if self._asked is None:
            return None
        epoch, since = self._asked
        silent = self._workers - self._answers.keys()
        if silent and now - since < ANSWER_SECONDS:
            return None
        self._asked, self._told = None, len(self._in_a_row)
        causes = [*_causes([lag for answer in self._answers.values() for lag in answer.tasks])]
        causes += [f"worker {n} does not answer: a function in it may take long" for n in sorted(silent)]
        more = f"; and {len(causes) - _MOST_NAMED} more" if len(causes) > _MOST_NAMED else ""
        back = f"epoch {last_complete}" if last_complete else "the start"
        return Late(
            f"{len(self._in_a_row)} epochs in a row took longer than {_seconds(self._timeout)} and were aborted, "
            f"{self._in_a_row[0]} to {self._in_a_row[-1]}"
            + (f"; epoch {epoch}: {'; '.join(causes[:_MOST_NAMED])}{more}" if causes else ""),
            f"the job continues, but a failure would roll it back to {back}; allow more time per epoch with "
            "--epoch-timeout",
        )


def _causes(lags: list[Lag]) -> Iterable[str]:
    """Name the tasks that are slow by themselves, and do not wait for a barrier of a slow task."""
    before = {lag.task for lag in lags if lag.doing in ("begin", "align", "emit")}
    for lag in sorted(lags, key=lambda lag: -lag.seconds):
        blocking = [channel for channel in lag.awaits if channel.sender in before - {lag.task}]
        if not blocking:
            yield f"{lag.task} {_doing(lag)}"


def _doing(lag: Lag) -> str:
    waits = f"the barrier of {', '.join(map(str, lag.awaits[:2]))}{' ...' if len(lag.awaits) > 2 else ''}"
    behind = f", behind {lag.queued:,} bytes that it has not read" if lag.queued else ""
    match lag.doing:
        case "begin":
            return "had not begun it"
        case "align":
            return f"was aligning, waiting for {waits}{behind}"
        case "emit":
            return f"was emitting the changes of its {lag.rows:,} rows of state, for {_seconds(lag.seconds)}"
        case "log":
            return f"had copied its state and was logging, waiting for {waits}{behind}"
        case _:
            return f"was writing its part, {lag.rows:,} rows of state, for {_seconds(lag.seconds)} so far"


def _seconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
