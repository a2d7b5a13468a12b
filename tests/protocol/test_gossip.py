"""Whoever has a frame knows all that its sender knew when it sent that, whatever was said on which connection (L3)."""

from __future__ import annotations

import struct
from collections import Counter, defaultdict, deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abscli.protocol import gossip
from abscli.protocol.causal import encode
from abscli.protocol.events import ProtocolError
from abscli.protocol.gossip import Gossip
from abscli.protocol.schedule import STEP_BYTES, Delta, Step, StepKind
from formats.ids import TaskId

WORKERS = range(5)
"""What one is told by two others about a fourth comes in the order in which that took its steps."""
TASKS = [TaskId(name, worker) for name in ("a", "b") for worker in WORKERS]
Connection = tuple[int, int, int]
"""From, to, and which of two channels between these."""


def worker(number: int) -> Gossip:
    """With its two tasks, which have just started."""
    one = Gossip(TASKS, number)
    for task in TASKS:
        if task.subtask == number:
            one.begin(task, 1)
    return one


Known = dict[TaskId, tuple[int, int]]


def known(one: Gossip) -> Known:
    """By task, the line and how many steps of it."""
    schedules = ((task, one.schedule(task)) for task in TASKS)
    return {task: (schedule.line, schedule.end) for task, schedule in schedules if schedule is not None}


def covers(one: Gossip, other: Known) -> bool:
    """Whether it knows all of that."""
    own = known(one)
    return all(own.get(task, (-1, 0)) >= place for task, place in other.items())


connections = st.sampled_from([(i, j, k) for i in WORKERS for j in WORKERS if i != j for k in (0, 1)])
steps = st.tuples(st.just("step"), st.sampled_from(TASKS))
sends = st.tuples(st.just("send"), connections)
takes = st.tuples(st.just("take"), connections)
tells = st.tuples(st.just("tell"), connections)
"""A step, and a frame that comes at once unless others are on their way."""
others = st.tuples(st.sampled_from(["complete", "line", "forget", "lose"]), st.sampled_from(WORKERS))


class World:
    """Workers, and the frames between them, each with what its sender knew."""

    def __init__(self) -> None:
        self.workers = [worker(number) for number in WORKERS]
        self.on_the_way: defaultdict[Connection, deque[tuple[bytes, Known]]] = defaultdict(deque)
        self.met: set[Connection] = set()
        self.line = 1
        self.lives = Counter[int]()

    def step(self, task: TaskId) -> None:
        self.workers[task.subtask].record(task, Step(StepKind.RECORDS, 0, 1))

    def send(self, connection: Connection) -> None:
        sender, receiver, _ = connection
        if connection not in self.met:
            self.met.add(connection)
            self.workers[sender].meet(connection, receiver)
        one = self.workers[sender]
        self.on_the_way[connection].append((one.say(connection), known(one)))

    def take(self, connection: Connection) -> None:
        sender, receiver, _ = connection
        if self.on_the_way[connection]:
            sayings, then = self.on_the_way[connection].popleft()
            self.workers[receiver].hear(sayings, sender)
            assert covers(self.workers[receiver], then)

    def tell(self, connection: Connection) -> None:
        self.step(TaskId("a", connection[0]))
        self.send(connection)
        self.take(connection)

    def complete(self, number: int) -> None:
        self.workers[number].complete(0)

    def forget(self, number: int) -> None:
        self.workers[number]._forget()

    def begin_line(self, number: int) -> None:
        self.line += 1
        self.workers[number].begin(TaskId("a", number), self.line)

    def lose(self, number: int) -> None:
        """Another worker comes in its place, knows what the others report, and all its connections are new."""
        for connection in [each for each in self.met if number in each[:2]]:
            self.met.discard(connection)
            self.on_the_way[connection].clear()
            if connection[0] != number:
                self.workers[connection[0]].part(connection)
        self.lives[number] += 1
        one = self.workers[number] = Gossip(TASKS, number, self.lives[number])
        for other in WORKERS:
            if other != number:
                one.merge(self.workers[other].report())
        self.line += 1
        for task in TASKS:
            if task.subtask == number:
                one.begin(task, self.line)


@given(st.lists(tells | tells | tells | steps | sends | takes | others, min_size=20, max_size=120))
def test_who_has_a_frame_knows_what_its_sender_knew(moves: list[tuple[str, Any]]) -> None:
    world = World()
    for move, of in moves:
        getattr(world, "begin_line" if move == "line" else move)(of)


def test_what_several_have_said_of_a_task_is_passed_on_in_its_order() -> None:
    world = World()
    world.tell((2, 4, 0))
    for first in (0, 1, 0):
        world.tell((3, first, 0))
        world.send((first, 2, 0))
        world.take((first, 2, 0))
    world.send((2, 4, 0))
    world.take((2, 4, 0))
    assert known(world.workers[4])[TaskId("a", 3)] == (1, 3)


def test_what_is_said_in_another_life_is_new() -> None:
    """A worker that is started again counts its sayings from 0 again."""
    world = World()
    for _ in range(3):
        world.tell((0, 1, 0))
    world.lose(0)
    world.tell((0, 1, 0))
    world.tell((0, 1, 0))
    assert known(world.workers[1])[TaskId("a", 0)] == (2, 2)


def test_it_is_not_told_what_it_has_said() -> None:
    one, other = worker(0), worker(1)
    one.meet("there", 1)
    other.meet("back", 0)
    other.hear(one.say("there"), 0)
    one.hear(other.say("back"), 1)
    one.record(TASKS[0], Step(StepKind.RECORDS, 0, 1))
    other.hear(one.say("there"), 0)
    assert other.say("back") == b""
    other.record(TASKS[1], Step(StepKind.RECORDS, 0, 2))
    other.record(TASKS[1], Step(StepKind.EMPTY))
    assert len(other.say("back")) == 18 + 32 + 2 * STEP_BYTES  # two heads, and the steps


def test_what_is_kept_to_be_said_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection on which nothing is sent is told all there is when something is."""
    monkeypatch.setattr(gossip, "FORGOTTEN_PAST", 200)
    one, other, third = worker(0), worker(1), worker(2)
    one.meet("seldom", 2)
    one.say("seldom")
    other.meet("often", 0)
    for number in range(100):
        other.record(TASKS[1], Step(StepKind.RECORDS, 0, number + 1))
        one.hear(other.say("often"), 1)
        assert one.waiting <= 300 + 50 * 2 + 16 * (number + 1)
    third.hear(one.say("seldom"), 0)
    assert known(third)[TASKS[1]] == (1, 100)


def head(length: int) -> bytes:
    return struct.pack("<HIIQ", 1, 0, length, 0)


def piece(place: int, delta: Delta) -> bytes:
    return encode([delta], {delta.task: place})


@pytest.mark.parametrize(
    ("sayings", "message"),
    [
        (head(0)[:-1], "end within the header of an entry"),
        (head(31) + piece(0, Delta(TASKS[0], 1, 0, 0))[:-1], "end within the header of an entry"),
        (head(32) + piece(len(TASKS), Delta(TASKS[0], 1, 0, 0)), "of task 10, but the job has 10 tasks"),
        (head(48) + piece(1, Delta(TASKS[1], 1, 0, 4, bytes(16))),
         "expected the first determinants from position 0, got position 4"),
    ],
    ids=["head", "piece", "task", "gap"],
)
def test_what_cannot_be_is_refused(sayings: bytes, message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        worker(0).hear(sayings, 1)
