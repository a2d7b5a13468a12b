"""Mends of faults that were found by thinking, each taken out again, for the machine to find.

A fault is planted in the process of a command, before it begins. `rules` are those of the machine that its search is
led to.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Fault:
    """A mend that is taken out.

    plant: does it, in the process of a command.
    rules: of the machine, by which it is found.
    noticed: what the machine says then.
    """

    plant: Callable[[], None]
    rules: frozenset[str]
    noticed: str


FAULTS: dict[str, Fault] = {}


def _fault(name: str, rules: set[str], noticed: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Enters a function that plants a fault."""

    def entered(plant: Callable[[], None]) -> Callable[[], None]:
        FAULTS[name] = Fault(plant, frozenset(rules), noticed)
        return plant

    return entered


@_fault("identity", {"run", "restore"}, "refused without|shown and not read")
def _numbers_are_identities() -> None:
    """What was set aside comes back for its number, whichever attempt made it."""
    from abscli.planner import settlement
    from abscli.planner.lineage import maker
    from abscli.planner.settlement import Wanted
    from formats.native.sink import PartId

    def belongs(part: PartId, wanted: Wanted) -> bool:
        return part in wanted.due or maker(wanted.line, part.epoch.number) is not None

    settlement._belongs = belongs


@_fault("backup", {"run", "copy"}, "was to be refused")
def _claims_mean_nothing() -> None:
    """A backup that was put back, and any other store, goes on with a sink that another one has written since."""
    from abscli.engine.sinks.file_publisher import FilePublisher

    FilePublisher._of_another_store = lambda self, claim: None  # type: ignore[method-assign,assignment,return-value]
    FilePublisher._not_ours = lambda self, facts: None  # type: ignore[method-assign,assignment,return-value]


@_fault("two stores", {"contend", "run"}, "two jobs write one sink|ended otherwise")
def _two_stores_write_one_sink() -> None:
    """Two stores write one sink at once."""
    _sinks_are_not_held_by(("run", "restore"))


@_fault("restore beside", {"contend_restore", "run"}, "two jobs write one sink")
def _a_restore_begins_while_a_job_writes() -> None:
    """A restore into another store begins while a job writes the sink."""
    _sinks_are_not_held_by(("restore",))


def _sinks_are_not_held_by(commands: tuple[str, ...]) -> None:
    from abscli.engine.sinks.outputs import Outputs

    plain = Outputs.hold

    @contextlib.contextmanager
    def hold(outputs: Outputs) -> Iterator[None]:
        if sys.argv[1] in commands:
            yield
        else:
            with plain(outputs):
                yield

    Outputs.hold = hold  # type: ignore[method-assign]


@_fault("reveal", {"run"}, "read and not shown")
def _shown_by_the_next_epoch() -> None:
    """What a manifest names is shown when the next one is written: nobody is left to do it for the last."""
    from abscli.engine.sinks.outputs import Outputs

    plain, waiting = Outputs.publish, list[Any]()

    def publish(outputs: Outputs, parts: Any) -> Mapping[str, float]:
        waiting.append(parts)
        return plain(outputs, waiting.pop(0)) if len(waiting) > 1 else {}

    Outputs.publish = publish  # type: ignore[method-assign]


@_fault("back and forth", {"run", "run_from"}, "refused without a reason")
def _going_back_deletes_what_waits() -> None:
    """What a complete epoch of another branch has staged, and not shown yet, is deleted by a job that goes back."""
    from abscli.engine.sinks import file_publisher

    plain = file_publisher.bring_in

    def bring_in(sink: Any, folder: Any, moves: Any, attempts: set[str]) -> None:
        plain(sink, folder, moves, attempts)
        for part in folder.staged():
            os.unlink(os.path.join(folder.path, part.staged))

    file_publisher.bring_in = bring_in


@_fault("lost lock", {"lose_locks", "run"}, "may not end so|shown and not|shown twice")
def _nobody_is_fenced() -> None:
    """An owner that was stopped and has lost its locks completes its epoch when it comes back, and shows it."""
    from abscli.engine import attempt
    from formats.native.sink import SinkFolder

    attempt.put_fence = lambda storage, epoch, facts: None
    SinkFolder.is_newest = lambda folder, claim: True  # type: ignore[method-assign]


@_fault("missing part", {"hide_part", "run"}, "nothing was said")
def _parts_are_not_missed() -> None:
    """A job goes on though a part of its output is gone."""
    from abscli.engine.sinks import outputs

    plain = outputs.Outputs.__init__

    def init(self: Any, *arguments: Any, **options: Any) -> None:
        plain(self, *arguments, **{**options, "accept_missing": True})

    outputs.Outputs.__init__ = init  # type: ignore[method-assign]


@_fault("given up", {"run", "be_slow"}, "read and not shown")
def _given_up_is_lost() -> None:
    """A part whose epoch was given up is named by no other."""
    from abscli.engine.sinks.folder_sinks import FolderSink

    plain = FolderSink.cut

    def cut(sink: FolderSink, epoch: int) -> Any:
        sink._pending.clear()
        return plain(sink, epoch)

    FolderSink.cut = cut  # type: ignore[method-assign]


@_fault("stray", {"run", "lose_workers"}, "shown and not|comes after a count")
def _strays_stay() -> None:
    """What a lost worker had staged for an epoch that was given up waits on, also where no manifest names it."""
    from abscli.engine.sinks.file_publisher import FilePublisher

    FilePublisher.discard = lambda self, goes: None  # type: ignore[method-assign]
