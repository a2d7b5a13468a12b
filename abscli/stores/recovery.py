"""Planning and restoring, of whichever system: what is asked for, what the three answer, and who answers for a system.

Each folder of `abscli.stores` has the same files for it: `plan` decides, `restore` carries out, `text/plan` has the
words, and `recovery` is the object that commands work with; `System.recovery` gives it.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from abscli.stores.copying import check_target
from abscli.stores.reasons import NoPlan
from formats.path_maps import split_map
from formats.plan import Body, Plan
from formats.reference import NOTHING, ReadOptions
from formats.storage import absolute
from formats.view import CheckpointStore

if TYPE_CHECKING:
    from abscli.engine.coordinator import Progress
    from abscli.engine.telemetry.news import News
    from formats.job.changes import Changes
    from formats.job.model import Topology


class BadOption(Exception):
    """What was asked for cannot be: an option that contradicts another, is missing, or is not of this version.

    option: as it is written, such as `--to`.
    """

    def __init__(self, option: str, message: str) -> None:
        super().__init__(message)
        self.option = option
        self.message = message

    def __str__(self) -> str:
        return f"{self.option}: {self.message}"


class JobWatcher(Protocol):
    """Who sees how a job runs."""

    def __call__(self, progress: Progress) -> None: ...

    def news(self, news: News) -> None: ...


class Watcher(Protocol):
    """Who sees how a plan or a restore goes on."""

    def __call__(self, text: str) -> None:
        """How far it is, to be shown until the next time."""

    def note(self, text: str) -> None:
        """A remark that stays."""

    def job(self, name: str) -> JobWatcher:
        """A job of this name begins to run."""


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What a plan is to be of. Options as users write them.

    epoch: that and no other; None for the newest that will do.
    failed: the job runs, and these tasks have died.
    failed_workers: the job runs, and these of its workers are lost.
    local: where the job runs: lost tasks take their steps again.
    repair: mend the epoch in place of taking every task back.
    distrust: tasks whose part of the epoch is not to be used.
    parallelism: OP=N.
    query_id, keep_in_flight, sink: of a Spark checkpoint.
    set_offset: of one, too: SOURCE:SPLIT=N.
    recreated: of one, too: SOURCE, or SOURCE=ID of a Delta table.
    name_source: of one, too: SOURCE=NAME.
    path_map: OLD=NEW.
    read: what the store was opened with.
    """

    epoch: int | None = None
    failed: tuple[str, ...] = ()
    failed_workers: tuple[int, ...] = ()
    local: bool = False
    repair: bool = False
    distrust: tuple[str, ...] = ()
    parallelism: tuple[str, ...] = ()
    query_id: str | None = None
    keep_in_flight: bool = False
    sink: str | None = None
    set_offset: tuple[str, ...] = ()
    recreated: tuple[str, ...] = ()
    name_source: tuple[str, ...] = ()
    path_map: tuple[str, ...] = ()
    read: ReadOptions = NOTHING


@dataclass(frozen=True, slots=True)
class JobFile:
    """A topology file that a user named. path: as it was written; directory: what its own paths are relative to;
    changes: what it says of operators since the last run."""

    path: str
    directory: str
    topology: Topology
    changes: Changes

    @classmethod
    def read(cls, path: str) -> JobFile:
        """Read the file; a file of Python is imported. Raises BadFile, UnsupportedVersion, FormatError."""
        from abscli.jobs.files import job_directory, read_job

        return cls(path, job_directory(path), *read_job(path))


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """What a plan is to be carried out with.

    to: where the copy, or the restored epoch, goes.
    sink_to: where the log of a Spark file sink goes.
    job: code and places of the job, where one is run.
    engine, master, policy, until, state_memory, take_ownership, accept_missing, insecure: how it is run.
    context: a SparkContext to run it on, in place of one at `master`.
    """

    to: str | None = None
    sink_to: str | None = None
    job: JobFile | None = None
    engine: str = "spark"
    master: str = "local[*]"
    policy: str | None = None
    until: str = "drained"
    state_memory: int | None = None
    take_ownership: bool = False
    accept_missing: bool = False
    insecure: bool = False
    context: Any = None


def restore_command(plan: Plan[Any], plan_file: str) -> str:
    """Return the beginning of the command that carries a plan out.

    A plan may come from anybody, so a host that it names is contacted only if the user names the store, too.
    """
    stores = "".join(f" --store {shlex.quote(place)}" for place in remote_places(plan))
    return f"abs restore {shlex.quote(plan_file)}{stores}"


def remote_places(plan: Plan[Any]) -> list[str]:
    """Return the places on other hosts that a plan reads: its store, and where it looks for moved files."""
    moved = [split_map(pair)[1] for pair in plan.read.path_map]
    places = [plan.store or "", *plan.read.search, *moved]
    return list(dict.fromkeys(place for place in places if "://" in place and not place.startswith("file:")))


def check_named(plan: Plan[Any], stores: Sequence[str]) -> None:
    """Check that the user names every place on another host that a plan reads, and no other store. Raises BadOption.

    stores: as the user names them.
    """
    from formats.storage import absolute

    named = {absolute(store) for store in stores}
    places = remote_places(plan)
    if missing := [place for place in places if absolute(place) not in named]:
        options = " ".join(f"--store {shlex.quote(place)}" for place in missing)
        message = f"the plan reads {', '.join(missing)}, which is contacted only if you name it: {options}"
        raise BadOption("--store", message)
    if other := named - {absolute(place) for place in places} - {plan.store}:
        raise BadOption("--store", f"the plan is of {plan.store}, not of {', '.join(sorted(other))}")


S = TypeVar("S", bound=CheckpointStore, contravariant=True)
B = TypeVar("B", bound=Body)
R = TypeVar("R")


class Recovery(Protocol[S, B, R]):
    """Planning and restoring of one system; what has a body here is what a system does that restores into copies.

    words: its stores, for messages.
    body: what its plans say.
    lists: members of the body that ndjson has an item a line of, and the type of those.
    plan_options, restore_options: the options that mean something here, of those that not all systems know.
    runs_job: whether a restore runs the job, on a store that it changes; the others only read, and write a copy.
    """

    words: str
    body: type[B]
    lists: Mapping[str, str] = MappingProxyType({})
    plan_options: frozenset[str] = frozenset()
    restore_options: frozenset[str] = frozenset()
    runs_job: bool = False

    def plan(self, store: S, request: PlanRequest, watch: Watcher) -> Plan[B] | NoPlan:
        """How to get a whole epoch again, or why that cannot be. Raises NotFound, UnknownTask, BadOption."""

    def check_plan(self, plan: Plan[B], store: S) -> None:
        """Raises StalePlan unless all that the plan relies on is as it was; NoRecovery if it cannot be carried out."""

    def sources(self, store: S) -> list[str]:
        """Local folders that a restore reads from: no copy is made in them."""
        return []

    def check_request(self, plan: Plan[B], store: S, request: RestoreRequest, *, dry_run: bool) -> None:
        """Raises BadOption for what is missing, OtherJob for another job, FormatError if something is in the way."""
        if request.to is not None:
            check_target(request.to, self.sources(store))
        elif not dry_run:
            raise BadOption("--to", f"a copy of {self.words} goes to a new directory: name it")

    def restore(self, plan: Plan[B], store: S, request: RestoreRequest, watch: Watcher) -> R:
        """Carry the plan out."""

    def text(self, plan: Plan[B], *, width: int, plan_file: str | None, job: str | None) -> str:
        """The plan for people. plan_file: where it was written; job: the job's file, if it is known."""

    def restarts(self, plan: Plan[B]) -> Mapping[str, str] | None:
        """What restarts by a plan, ranges of subtasks by operator; None: the whole job, from a copy."""
        return None

    def next_commands(self, plan: Plan[B], plan_file: str) -> list[str]:
        """What to type next, once the plan has been looked at; nothing for one from a graph alone."""
        if plan.store is None:
            return []
        carried_out = f"{restore_command(plan, plan_file)} {'--job JOB' if self.runs_job else '--to NEW_DIRECTORY'}"
        return [f"{carried_out} --dry-run", carried_out]

    def restored_text(self, plan: Plan[B], restored: R, request: RestoreRequest, *, width: int) -> str:
        """What a restore has done, for people."""

    def restored_json(self, plan: Plan[B], restored: R) -> dict[str, Any]:
        """The same for programs."""

    def restored_notes(self, restored: R, request: RestoreRequest) -> tuple[str, ...]:
        """What is to be said besides the result."""
        return ()


def refuse_others(given: Mapping[str, object], options: frozenset[str], words: str) -> None:
    """BadOption for an option that was given and means nothing here. options: those that do; words: where."""
    for name, value in given.items():
        if value and name not in options:
            own = [option for option in given if option in options]
            hint = f"; there {' and '.join(own)} do{'es'[: 2 * (len(own) == 1)]}" if own else ""
            raise BadOption(name, f"means nothing for {words}{hint}")


def lasting(options: ReadOptions) -> ReadOptions:
    """Read options with paths that mean the same from every folder; OLD of a `--path-map` is a name, and stays."""
    moves = ((text, *split_map(text)) for text in options.path_map)
    return ReadOptions(
        search=tuple(map(absolute, options.search)),
        path_map=tuple(f"{old}={absolute(new)}" if new else text for text, old, new in moves),
        uid=tuple(options.uid),
        type=tuple(options.type),
        topology=tuple(map(absolute, options.topology)),
    )
