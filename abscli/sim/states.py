"""What each task has come to at each step of a diagram: what its moments and messages add up to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from abscli.sim.diagram import Diagram, Message, Moment

RUNS: Final = "runs"
LOST: Final = "lost"
AGAIN: Final = "takes its steps again"


@dataclass(frozen=True, slots=True)
class TaskState:
    """Behind a step.

    condition: runs, is lost, or takes its steps again.
    copied, complete: the last epoch that it has copied, and that it has been told is complete (or has completed).
    waiting: inputs that are blocked.
    received, sent, dropped: records since the beginning; dropped are those that had come before.
    """

    condition: str = RUNS
    copied: int | None = None
    complete: int | None = None
    waiting: int = 0
    received: int = 0
    sent: int = 0
    dropped: int = 0


def states(diagram: Diagram) -> dict[str, dict[int, TaskState]]:
    """Of each line of the diagram the steps behind which it has changed, in order, and what it is then."""
    result: dict[str, dict[int, TaskState]] = {task: {} for task in diagram.lines()}
    now = dict.fromkeys(result, TaskState())
    arrivals: dict[int, list[Message]] = {}
    departures: dict[int, list[Message]] = {}
    for message in diagram.messages:
        if message.epoch is None:
            departures.setdefault(message.sent, []).append(message)
            if message.received is not None:
                arrivals.setdefault(message.received, []).append(message)
    moments: dict[int, list[Moment]] = {}
    for moment in diagram.moments:
        moments.setdefault(moment.step, []).append(moment)
    for step in diagram.steps():
        before = dict(now)
        for message in arrivals.get(step, ()):
            state = now[message.receiver]
            if message.known:
                now[message.receiver] = replace(state, dropped=state.dropped + message.count)
            else:
                now[message.receiver] = replace(state, received=state.received + message.count)
        for moment in moments.get(step, ()):
            now[moment.task] = _behind(now[moment.task], moment)
        for message in departures.get(step, ()):
            now[message.sender] = replace(now[message.sender], sent=now[message.sender].sent + message.count)
        for task, state in now.items():
            if state != before[task]:
                result[task][step] = state
    return result


def _behind(state: TaskState, moment: Moment) -> TaskState:
    match moment.kind:
        case "crash":
            return replace(state, condition=LOST, waiting=0)
        case "restore":
            return replace(state, condition=AGAIN if moment.steps_again else RUNS, waiting=0)
        case "replayed":
            return replace(state, condition=RUNS)
        case "copy":
            return replace(state, copied=moment.epoch)
        case "complete" | "commit":
            return replace(state, complete=moment.epoch)
        case "block":
            return replace(state, waiting=state.waiting + 1)
        case "unblock":
            return replace(state, waiting=max(0, state.waiting - 1))
        case _:
            return state
