"""Tables that do not answer, or to which others commit first: how long and how often they are tried."""

from __future__ import annotations

import contextvars
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

from abscli.engine.errors import EngineStopped
from abscli.engine.patience import Deadline
from abscli.engine.sinks.staged.refusals import Unanswered

Answer = TypeVar("Answer")

TRIES: Final = 11
"""Times that a commit is tried if other writers commit first."""
WAIT: Final = 0.05
"""Seconds before the second try; twice as many before each further one, up to `LONGEST`, and a share at random."""
LONGEST: Final = 5.0


def pause(number: int) -> float:
    """Return the seconds to wait after try `number`, counted from 0."""
    return min(WAIT * 2.0 ** min(number, 20), LONGEST) * (1 + random.random())


def until_told(ask: Callable[[], Answer], failed: Callable[[], None] = lambda: None) -> Answer:
    """Return an answer. If `ask` raises Unanswered, it is asked again for `patience.SECONDS`, and at least once.

    failed: called after each failure.
    """
    deadline, number = Deadline(), 0
    while True:
        deadline.begin()
        try:
            answer = ask()
        except Unanswered as error:
            if deadline.is_over(error.reason or error.message) and number:
                raise
            failed()
            time.sleep(pause(number))
            number += 1
        else:
            deadline.end()
            return answer


def until_done(step: Callable[[], bool], crowded: EngineStopped, failed: Callable[[], None] = lambda: None) -> None:
    """Take a step until it finds that it is done.

    step: returns False if it has tried, and has to look what came of that. Raises Unanswered, as of `until_told`.
    crowded: is raised if that does not end, since others are always first.
    failed: see `until_told`.
    """
    for number in range(TRIES):
        if number:
            time.sleep(pause(number - 1))
        if until_told(step, failed):
            return
    raise crowded


def within(seconds: float, call: Callable[[], Answer], late: Callable[[], Exception]) -> Answer:
    """Return the result of a call of a client that has no deadline of its own.

    A call that takes longer than `seconds` goes on in its thread, which ends with the process. So it must be harmless
    if it succeeds later.
    late: makes the error for that.
    """
    future: Future[Answer] = Future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            future.set_result(context.run(call))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="abs-table", daemon=True).start()
    try:
        return future.result(seconds)
    except TimeoutError:
        if future.done():  # the call itself has raised it
            raise
        raise late() from None
