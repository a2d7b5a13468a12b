"""Golden scripts: a short text drives a task or the coordinator, and the expected trace stands below each line.

`pytest tests/protocol/test_golden.py --rewrite` renews the traces; read the diff.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import NamedTuple, TypeVar

import pytest

from abscli.protocol import committer as c
from abscli.protocol import events as e
from abscli.protocol.committer import Committer
from abscli.protocol.coordinator import Coordinator
from abscli.protocol.policy import Policy
from abscli.protocol.task import Task
from formats.ids import ChannelId, EpochId, TaskId
from formats.watermark import END, IDLE

ANY = ChannelId(TaskId("s", 0), TaskId("a", 0))
Id = TypeVar("Id", TaskId, ChannelId)
SCRIPTS = sorted((Path(__file__).parents[1] / "golden").glob("*.txt"))


def task_event(words: list[str], task: Task) -> e.TaskEvent:
    match words:
        case ["records", name, count]:
            channel = ChannelId.parse(name)
            return e.RecordsArrived(channel, task.received.get(channel, 0) + 1, int(count))
        case ["records", name, count, "from", first]:
            return e.RecordsArrived(ChannelId.parse(name), int(first), int(count))
        case ["barrier", name, epoch]:
            return e.BarrierArrived(ChannelId.parse(name), int(epoch))
        case ["barrier", name, epoch, "at", watermark]:
            return e.BarrierArrived(ChannelId.parse(name), int(epoch), _watermark(watermark))
        case ["watermark", watermark]:
            return e.Watermarked(_watermark(watermark))
        case ["trigger", epoch]:
            return e.Triggered(int(epoch))
        case ["sent", channel, count]:
            return e.Sent(ChannelId.parse(channel), int(count))
        case ["end"]:
            return e.EndOfInput()
        case ["persisted", epoch]:
            return e.Persisted(int(epoch))
        case ["completed", epoch]:
            return e.Completed(int(epoch))
        case ["aborted", epoch]:
            return e.Aborted(int(epoch))
        case ["peers-restarted", floor, *replayed]:
            counts = dict(item.split("=") for item in replayed)
            replays = {ChannelId.parse(channel): int(count) for channel, count in counts.items()}
            return e.PeersRestarted(2, int(floor), replays)
    raise ValueError(words)


def coordinator_event(words: list[str]) -> e.CoordinatorEvent:
    match words:
        case ["due"]:
            return e.TriggerDue()
        case ["ack", task, epoch, *more]:
            options = dict(item.split("=") for item in more)
            counts = {name: {ANY: int(options[name])} for name in ("sent", "received") if name in options}
            return e.Acked(
                TaskId.parse(task),
                int(epoch),
                int(options.get("attempt", 1)),
                options.get("finished") == "yes",
                int(options.get("logged", 0)),
                behind=options.get("behind") == "yes",
                **counts,
            )
        case ["stored", epoch]:
            return e.Stored(int(epoch))
        case ["timeout", epoch]:
            return e.TimedOut(int(epoch))
        case ["ended", task]:
            return e.SourceEnded(TaskId.parse(task))
        case ["stop"]:
            return e.StopRequested()
        case ["lost", tasks, *channels]:
            return e.TasksLost(
                frozenset(map(TaskId.parse, tasks.split(","))), frozenset(map(ChannelId.parse, channels))
            )
        case ["stopped", task, attempt]:
            return e.Stopped(TaskId.parse(task), int(attempt))
        case ["caught-up", channel, attempt]:
            return e.ChannelCaughtUp(ChannelId.parse(channel), int(attempt))
    raise ValueError(words)


class Rows(NamedTuple):
    """Rows that a manifest names for a target. cut_for: the epochs that they were cut for."""

    epoch: int
    cut_for: tuple[int, ...]

    def behind(self, epoch: int) -> Rows | None:
        left = tuple(cut for cut in self.cut_for if cut > epoch)
        return Rows(self.epoch, left) if left else None

    def __str__(self) -> str:
        return f"{self.epoch}:{','.join(map(str, self.cut_for))}"


def rows(words: list[str]) -> list[Rows]:
    """Parse rows of manifests: `5:4,5` is the manifest of epoch 5, with rows that were cut for epochs 4 and 5."""
    named = (word.partition(":") for word in words)
    return [Rows(int(epoch), tuple(map(int, cuts.split(",")))) for epoch, _, cuts in named]


def committer_event(words: list[str]) -> c.Event[Rows]:
    match words:
        case ["asked", epoch, *more]:
            due = rows([word for word in more if ":" in word])
            obstacles = frozenset(c.Obstacle(word) for word in more if ":" not in word)
            return c.TargetAsked(int(epoch), tuple(due), obstacles)
        case ["begun"]:
            return c.AttemptBegun()
        case ["taken", *more]:
            return c.TargetTaken("foreign" in more, *commits([word for word in more if word != "foreign"]))
        case ["manifest", epoch, *named]:
            return c.ManifestWritten(int(epoch), *rows(named) or [None])
        case ["published", *more]:
            return c.RowsPublished(*commits(more))
    raise ValueError(words)


def commits(words: list[str]) -> list[EpochId | None]:
    return [EpochId("a", int(word)) for word in words] or [None]


def make(words: list[str]) -> Task | Coordinator | Committer[Rows]:
    kind, *rest = words
    if kind == "committer":
        return Committer(c.Permissions("take-ownership" in rest, "accept-missing" in rest))
    options = dict(item.split("=") for item in rest)

    def ids(kind: type[Id], key: str) -> list[Id]:
        return [kind.parse(name) for name in options.get(key, "").split(",") if name]

    if kind == "task":
        return Task(
            TaskId.parse(options.get("name", "t/0")),
            ids(ChannelId, "inputs"),
            ids(ChannelId, "outputs"),
            ids(ChannelId, "back"),
            policy=Policy(options.get("policy", "aligned")),
            first_epoch=int(options.get("first", 1)),
        )
    return Coordinator(
        ids(TaskId, "tasks"),
        ids(TaskId, "sources"),
        attempt=int(options.get("attempt", 1)),
        first_epoch=int(options.get("first", 1)),
        max_concurrent=int(options.get("concurrent", 1)),
        until="drained" if options.get("until") == "drained" else "end",
        ended=ids(TaskId, "ended"),
    )


def _watermark(word: str) -> int:
    return {"end": END, "idle": IDLE}.get(word) or int(word)


def said(action: object) -> str:
    fields = {name: getattr(action, name) for name in action.__slots__ if name != "batch"}  # type: ignore[attr-defined]
    if not fields.get("skip"):
        fields.pop("skip", None)
    if "watermark" in fields and (watermark := fields.pop("watermark")) is not None:
        fields["watermark"] = {END: "end", IDLE: "idle"}.get(watermark, watermark)
    shown = (
        ",".join(sorted(map(str, f))) if isinstance(f, frozenset) else str(f.number if isinstance(f, EpochId) else f)
        for f in fields.values()
    )
    return " ".join([type(action).__name__, *shown])


def play(text: str) -> str:
    machine: Task | Coordinator | Committer[Rows] | None = None
    lines = []
    for line in text.splitlines():
        if line.startswith("    "):
            continue
        lines.append(line)
        words = shlex.split(line, comments=True)
        if not words:
            continue
        if words[0] in ("task", "coordinator", "committer"):
            machine = make(words)
            continue
        if words == ["next"]:
            assert isinstance(machine, Coordinator)
            lines.append(f"    {machine.next_epoch()}")
            continue
        try:
            if isinstance(machine, Task):
                actions: list[object] = list(machine.on(task_event(words, machine)))
            elif isinstance(machine, Committer):
                machine, answered = machine.on(committer_event(words))
                actions = list(answered)
            else:
                assert isinstance(machine, Coordinator)
                actions = list(machine.on(coordinator_event(words)))
        except e.ProtocolError as error:
            lines.append(f"    ProtocolError: {error}")
            continue
        lines += [f"    {said(action)}" for action in actions] or ["    -"]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_trace_is_the_golden_one(script: Path, request: pytest.FixtureRequest) -> None:
    text = script.read_text()
    trace = play(text)
    if request.config.getoption("--rewrite"):
        script.write_text(trace)
    assert trace == text


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 10
