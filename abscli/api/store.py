"""A store of checkpoints, of whichever system: opened, checked, compared, planned for, restored, cleared.

`repr` of an object is one line; `print` shows the page that the command of the same name shows.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from abscli.api.contents import Contents
from abscli.api.directory import Start
from abscli.api.plans import RecoveryPlan, Restored, read_plan
from abscli.api.reports import Diff, Report
from abscli.api.requests import plan_request, refuse_one_epoch, refuse_other_stores, release_of
from abscli.api.shared import WIDTH, Texts, Unwatched, count, retention, texts, unseen, unshown
from abscli.api.upkeep import Garbage
from abscli.stores.removal import RemovalRequest
from formats.errors import FormatError
from formats.redaction import Location, refuse_credentials
from formats.reference import ReadOptions, parse_reference

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from abscli.planner.retention import Retention
    from abscli.stores.base import Owners, OwnReader, Progress, Rewritten, StoreCopy, Upgrade
    from abscli.stores.comparing import Comparison
    from abscli.stores.drills import Drilled
    from abscli.stores.kafka import BrokerConfig
    from abscli.stores.recovery import JobFile, Watcher
    from abscli.stores.tags import Tag
    from abscli.text.inspect_page import EpochPage, StorePage
    from abscli.text.lag import LagPage
    from formats.job.model import Topology
    from formats.view import EpochDetail, EpochFacts, OperatorFacts, Status


def open_store(
    ref: str | os.PathLike[str],
    *,
    format: str | None = None,
    search: Texts = (),
    path_map: Texts = (),
    uid: Texts = (),
    type: Texts = (),
    topology: Texts = (),
) -> Store:
    """The store at a path or URI; with `@7`, `@latest` or a tag after it, that epoch is meant where a method is given
    none.

    format: `abs`, `flink` or `spark`, in place of what is recognised from its files.
    search: of Flink: directories where files may lie, too.
    path_map: of Flink: OLD=NEW where files were moved.
    uid: of Flink: names that operators may have.
    type: of Flink: NAME=TYPE of state whose type is not stored.
    topology: of Flink: a file with its plan of the job (REST's /jobs/ID/plan), which says what its regions are.

    Raises NotFound, Unreachable, OtherFormat for an option that means nothing there, BadReference.

    >>> open_store("snapshots")
    Store('snapshots', system='abs', job='reach', 5 epochs, latest 4)
    >>> open_store("nowhere")
    Traceback (most recent call last):
    formats.errors.NotFound: nowhere: no such store
    """
    from abscli.stores.registry import check_options, locate

    path, named = parse_reference(os.fspath(ref))
    system, storage = locate(path, format)
    options = ReadOptions(texts(search), texts(path_map), texts(uid), texts(type), texts(topology))
    check_options(system, options.given(), storage.root)
    if isinstance(named, str) and named != "latest":
        named = system.tags(system.open(storage, options)).epoch_of(named)
    return Store(path, named, system, storage, options)


class Store(Contents):
    """A store of checkpoints, of whichever system. It is read when something is asked; `refresh` it to see later
    epochs. Its attributes, and how its state is read, are those of `Contents`.
    """

    def epochs(self) -> list[Epoch]:
        """All epochs, ascending.

        >>> open_store("snapshots").epochs()[3:]
        [Epoch(4, complete, 5/5 tasks), Epoch(5, incomplete, 3/5 tasks)]
        """
        return [Epoch(self, facts) for facts in self.view.epochs()]

    def epoch(self, epoch: int | str | None = None) -> Epoch:
        """One epoch: a number, `latest`, or None for the one that the reference names, else the newest complete one.

        Raises NotFound.

        >>> epoch = open_store("snapshots").epoch(2)
        >>> epoch.status.value, [operator.id for operator in epoch.operators], len(epoch.channels)
        ('complete', ['lines', 'seen', 'out'], 10)
        """
        detail = self.view.detail(self.resolve(epoch))
        return Epoch(self, detail.facts, detail)

    def validate(
        self, epoch: int | str | None = None, *, job: str | os.PathLike[str] | None = None, quick: bool = False,
        progress: Progress | None = None,
    ) -> Report:  # fmt: skip
        """Checks one epoch, or the whole store if none is given nor named: what is damaged is a finding, not an error.

        job: of a store of abs: the job file that names the targets of its sinks; these are asked. Without it nothing
            outside the store is looked at, and sinks are unchecked.
        quick: presence and sizes only.
        progress: called with the bytes read so far, and of how many.

        Raises NotFound, UnsupportedVersion, OtherJob for the file of another job.

        >>> report = open_store("snapshots").validate()
        >>> report
        Report('snapshots', 5 epochs, 4 findings, restorable 1, 2, 4)
        >>> report.unsatisfied(min_epochs=9)
        ['--min-epochs 9: 3 can be restored']
        """
        checked = self.system.check(
            self.storage, self.named if epoch is None else epoch, quick=quick, progress=progress or unseen,
            options=self.options, job=self.job_file(job),
        )  # fmt: skip
        return Report(self.path, self.system, self.storage, checked, quick, None if job is None else os.fspath(job))

    def job_file(self, job: str | os.PathLike[str] | None) -> JobFile | None:
        """Read the job file that a method was given; OtherFormat for a store whose sinks a job file does not name."""
        from abscli.stores.recovery import JobFile

        self.check_options(job=job)
        return None if job is None else JobFile.read(os.fspath(job))

    def latest_restorable(self, epoch: int | str | None = None, *, verify: bool = False) -> Start:
        """Find the newest epoch from which the job can be started without a copy.

        epoch: the only one that is considered, if it is given or was named with the store.
        verify: read every file; otherwise presence and sizes are compared.
        The `path` of the result is what the system's own tools are given.

        Raises NoRecovery with the reason, NotFound.

        >>> open_store("snapshots").latest_restorable().epoch
        4
        """
        from abscli.stores.directory import newest_restorable
        from abscli.stores.reasons import NoPlan

        report = self.validate(epoch, quick=not verify).report
        answer = newest_restorable(self.system, self.view, report)
        if isinstance(answer, NoPlan):
            raise answer.error()
        return Start.of(self.path, answer, verified=verify)

    def lag(
        self, broker: str, *, config: BrokerConfig = None, epoch: int | str | None = None
    ) -> LagPage:
        """How far the sources of Kafka of an epoch are behind, and what retention has taken before it was read.

        broker: HOST:PORT of one that is asked; several with commas between.
        config: further settings of librdkafka, such as `sasl.username`, or the file that has them.

        Raises NotFound, Unreachable, BadOption for an epoch without such a source.
        """
        from abscli.stores.kafka import ask, places_of, settings
        from abscli.text.lag import LagPage
        from formats.kafka import lags

        _refuse_credentials(broker, config)
        number = self.resolve(epoch)
        places = places_of(self.view, number)
        seen = lags(places, ask(broker, {place.topic for place in places}, settings(config)))
        return LagPage(self.path, self.system.name, self.job, number, broker, seen, self.system.words.lost_input)

    def held_against(self, report: Report, broker: str, *, config: BrokerConfig = None) -> Report:
        """A report of `validate` without the epochs that would go on with records that a broker has no more.

        broker, config: as of `lag`. Raises Unreachable, BadOption where no epoch has a source of Kafka.
        """
        from abscli.stores.kafka import ask, held_against, settings, topics_of

        _refuse_credentials(broker, config)
        checked = report.report
        topics = ask(broker, topics_of(self.view, checked), settings(config))
        return report.replaced(held_against(checked, self.view, topics))

    def upgrade(
        self, target: str, *, schema: str | os.PathLike[str] | None = None, epoch: int | str | None = None
    ) -> Upgrade:
        """Whether another release restores an epoch, by what is known of its state's serializers; of Flink's.

        target: such as `flink:2.2`.
        schema: a file that declares classes as the job is to have them: what that makes of state.

        Raises NotFound, OtherFormat, FormatError for a file that does not hold, BadOption for a release that is not
        asked about, and for classes that no state has.
        """
        version = release_of(self.system, target)
        file = None if schema is None else os.fspath(schema)
        return self.system.upgrade(self.view, self.resolve(epoch), version, file)

    def comparison(
        self,
        other: Store | None = None,
        *,
        epoch: int | str | None = None,
        to: int | str | None = None,
        operator: str | None = None,
    ) -> Comparison:
        """What `diff` compares, before it does; NotFound."""
        from abscli.stores.comparing import comparison

        other = self if other is None else other
        return comparison(
            self.path, self.view, self.resolve(epoch), other.path, other.view, other.resolve(to), operator=operator
        )

    def diff(
        self,
        other: Store | None = None,
        *,
        epoch: int | str | None = None,
        to: int | str | None = None,
        operator: str | None = None,
    ) -> Diff:
        """What changed from an epoch of this store to one of the other, or of this one: state, positions, logs, job.

        epoch, to: of this store, of the other.
        operator: compare the state of this operator alone.

        Raises NotFound, UnknownTask, Damaged.

        >>> diff = open_store("snapshots").diff(epoch=2, to=4)
        >>> diff
        Diff(epoch 2 of 'snapshots', epoch 4 of 'snapshots', differ)
        >>> [(state.added, state.unchanged) for operator in diff.page.operators for state in operator.states]
        [(4, 8)]
        """
        return Diff(self.comparison(other, epoch=epoch, to=to, operator=operator).page())

    def plan(
        self,
        epoch: int | None = None,
        *,
        failed: Texts = (),
        failed_workers: Sequence[int] = (),
        local: bool = False,
        repair: bool = False,
        distrust: Texts = (),
        parallelism: Texts = (),
        query_id: str | None = None,
        keep_in_flight: bool = False,
        sink: str | os.PathLike[str] | None = None,
        set_offset: Texts = (),
        recreated: Texts = (),
        name_source: Texts = (),
        search: Texts = (),
        path_map: Texts = (),
        watch: Watcher | None = None,
    ) -> RecoveryPlan:
        """How to get a whole epoch again: this one, or the newest that will do. Nothing is changed.

        failed: tasks that have died, where the job runs.
        failed_workers: numbers of workers that are lost, where the job runs.
        local: the job runs with `--recovery local`: these take their steps again.
        repair: make the epoch whole that is not, in place of taking every task back; of a store of abs.
        parallelism: OP=N: operators that are to have other numbers of tasks than in the epoch.
        distrust: tasks whose part of the epoch is not to be used.
        query_id: of a Spark checkpoint that has lost its own.
        keep_in_flight: of a Spark checkpoint: the batch after runs again with exactly its input.
        sink: of a Spark checkpoint: the output of a file sink, whose log goes back too.
        set_offset: of a Spark checkpoint: SOURCE:SPLIT=N, where a source of Kafka goes on.
        recreated: of a Spark checkpoint: SOURCE, or SOURCE=ID of a Delta table, that was deleted and created again.
        name_source: of a Spark checkpoint: SOURCE=NAME, so that the query may have more sources, or fewer.
        search, path_map: as of `open_store`; of a Spark checkpoint: OLD=NEW where its inputs were moved.
        watch: sees how it goes on.

        Raises NoRecovery, NotFound, UnknownTask, BadOption.

        >>> plan = open_store("snapshots").plan()
        >>> plan
        RecoveryPlan('snapshots', system='abs', back to 4, relies on 15 files)
        >>> plan.save("plan.json")
        """
        from abscli.stores.reasons import NoPlan
        from abscli.stores.recovery import PlanRequest

        asked = PlanRequest(
            epoch=epoch if epoch is not None else self.named if isinstance(self.named, int) else None,
            failed=texts(failed),
            failed_workers=tuple(failed_workers),
            local=local,
            repair=repair,
            distrust=texts(distrust),
            parallelism=texts(parallelism),
            query_id=query_id,
            keep_in_flight=keep_in_flight,
            sink=None if sink is None else os.fspath(sink),
            set_offset=texts(set_offset),
            recreated=texts(recreated),
            name_source=texts(name_source),
            path_map=texts(path_map),
        )
        request, options = plan_request(self.system, asked, texts(search), self.options)
        view = self.view if options == self.options else self.system.open(self.storage, options)
        recovery = self.system.recovery()
        plan = recovery.plan(view, request, watch or Unwatched())
        if isinstance(plan, NoPlan):
            raise plan.error()
        return RecoveryPlan(plan, recovery)

    def restore(
        self,
        plan: RecoveryPlan | str | os.PathLike[str],
        to: str | os.PathLike[str] | None = None,
        *,
        sink_to: str | os.PathLike[str] | None = None,
        job: str | os.PathLike[str] | None = None,
        engine: str = "spark",
        master: str = "local[*]",
        policy: str | None = None,
        until: str = "drained",
        state_memory: int | None = None,
        take_ownership: bool = False,
        accept_missing: bool = False,
        insecure: bool = False,
        context: Any = None,
        watch: Watcher | None = None,
    ) -> Restored:
        """Carries a plan of this store out. Of a store of abs the job runs; of others a checked copy is written.

        plan: as `plan` makes it, or the file of one.
        to: where the copy, or the restored epoch, goes.
        sink_to: of a plan with `sink`: where the log of the sink goes.
        job, engine, master, policy, until, state_memory, take_ownership, accept_missing, insecure: of a store of abs:
            its topology file, and how it is run.
        context: a SparkContext that runs already, and goes on, in place of one at `master`. One in local mode needs
            `spark.authenticate`, unless `insecure` is set.
        watch: sees how it goes on.

        Raises StalePlan, BadOption, OtherJob, NoRecovery, Damaged, UsageError, EngineStopped, JobFailed.

        >>> store = open_store("snapshots")
        >>> store.restore(store.plan(), engine="inline")
        Traceback (most recent call last):
        abscli.stores.recovery.BadOption: --job: name the topology file of 'reach': code, and paths of sources and ...
        """
        plan = plan if isinstance(plan, RecoveryPlan) else read_plan(plan)
        refuse_other_stores(plan, self)
        return plan.prepare(
            to, sink_to=sink_to, job=job, engine=engine, master=master, policy=policy, until=until,
            state_memory=state_memory, take_ownership=take_ownership, accept_missing=accept_missing, insecure=insecure,
            context=context, store=(self.path, *self.options.search) if plan.file is not None else (),
        ).carry_out(watch)  # fmt: skip

    def rewrite(
        self,
        changes: str | os.PathLike[str] | None,
        to: str | os.PathLike[str] | None = None,
        *,
        layout: str | None = None,
        epoch: int | str | None = None,
        dry_run: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> Rewritten:
        """A changed copy of an epoch; of Flink's checkpoints. The epoch itself is only read.

        changes: the file that says what changes; None: nothing but the layout.
        layout: `canonical`: a savepoint that every state backend starts from.
        to: a new directory for the copy; None: it is only worked out what would become of the epoch.
        dry_run: the same, though a directory is named.
        progress: told the bytes of every read and write.

        Raises NotFound, OtherFormat, FormatError for a file that does not hold or does not fit, NoRecovery, Damaged.
        """
        if to is not None:
            refuse_credentials(os.fspath(to), "--to")
        return self.system.rewrite(
            self.view, self.resolve(epoch), None if changes is None else os.fspath(changes), layout,
            None if to is None else os.fspath(to), write=to is not None and not dry_run, progress=progress or unshown,
        )  # fmt: skip

    def garbage(
        self, keep: int | Retention | None = None, *, older_than: float | None = None, min_age: float | None = None,
        stopped: Texts = (), search: Texts = (), job: str | os.PathLike[str] | None = None,
    ) -> Garbage:  # fmt: skip
        """What may go from a store that abs wrote, or from a job of Flink's; nothing is changed. `gc` does it.

        keep: of a store of abs: complete epochs that stay, with all that they refer to: the newest so many, or by the
        rules of a `Retention`; the newest 10. Those that have a tag stay, too.
        older_than: of a store of abs: seconds that an epoch must be old to go.
        min_age: seconds that a file must be old to go which nothing refers to; an hour, of Flink's a day.
        stopped: of Flink: jobs that do not run, by their id, though they may have written of late.
        search: of Flink: further directories whose checkpoints may refer to files here.
        job: of a store of abs: the job file that names the sinks whose unfinished uploads and prepared transactions
            are looked for, too; without it these stay.

        Raises OtherFormat, StoreInUse where a job runs on it, BadOption for a store behind a URI, OtherJob.

        >>> garbage = open_store("snapshots").garbage(keep=1)
        >>> [(epoch.epoch, epoch.reason) for epoch in garbage.epochs][-1]
        (3, 'was aborted, and a newer epoch is complete')
        >>> garbage.kept
        (4, 5)
        """
        stays, file = retention(keep), self.job_file(job)
        return self._collected(
            RemovalRequest(
                stays, older_than, min_age, texts(stopped), texts(search), remove=False, show=unshown, job=file
            )
        )

    def gc(
        self, keep: int | Retention | None = None, *, older_than: float | None = None, min_age: float | None = None,
        stopped: Texts = (), search: Texts = (), job: str | os.PathLike[str] | None = None,
        show: Callable[[str], None] | None = None,
    ) -> Garbage:  # fmt: skip
        """Removes old epochs, and files that nothing needs, and says what has gone; see `garbage`.

        show: called with what it does.

        Raises StoreInUse, too, where all that would go is of a job of Flink's that may be alive.

        >>> store = open_store("snapshots")
        >>> store.gc(keep=1).kept, store.epochs()
        ((4, 5), [Epoch(4, complete, 5/5 tasks), Epoch(5, incomplete, 3/5 tasks)])
        """
        stays, file = retention(keep), self.job_file(job)
        return self._collected(
            RemovalRequest(
                stays, older_than, min_age, texts(stopped), texts(search), remove=True, show=show or unshown, job=file
            )
        )

    def _collected(self, request: RemovalRequest) -> Garbage:
        refuse_one_epoch(self)
        collected = self.system.collect([self.storage], self.path, request)
        self.refresh()
        return Garbage(self.path, self.system, collected, request)

    def copy(
        self, to: str | os.PathLike[str], epoch: int | str | None = None, *,
        progress: Callable[[int], None] | None = None, watch: Watcher | None = None,
    ) -> StoreCopy | Restored:  # fmt: skip
        """A copy of an epoch, or of all complete ones where none is given nor named, at `to`: with only what is missing
        where an older copy lies there. A job may run meanwhile. Of Flink and Spark a copy of one checkpoint in a new
        directory, as `plan` and `restore` make it.

        progress: told the bytes of every file that is written.
        watch: sees how a copy for Flink or Spark goes on.

        Raises NotFound, OtherJob for a directory that is no copy of this store, StoreInUse, Damaged, NoRecovery.

        >>> store = open_store("snapshots")
        >>> [(row["epoch"], row["outcome"]) for row in store.copy("backup").to_json()["epochs"]]
        [(1, 'copied'), (2, 'copied'), (4, 'copied')]
        >>> store.copy("backup").to_json()["bytes"], open_store("backup").latest
        (0, 4)
        """
        chosen = self.named if epoch is None else epoch
        number = None if chosen is None else self.resolve(chosen)
        copied = self.system.copy(self.view, number, os.fspath(to), progress or unshown)
        return self.restore(self.plan(number), to, watch=watch) if copied is None else copied

    def drill(
        self, epoch: int | str | None = None, *, job: str | os.PathLike[str] | None = None, engine: str = "spark",
        master: str = "local[*]", state_memory: int | None = None, insecure: bool = False,
        reader: OwnReader | None = None, watch: Watcher | None = None,
    ) -> Drilled:  # fmt: skip
        """Proves that an epoch, or the newest that is whole, can be restored, in a scratch folder that is gone at the
        end. Of a store of abs it is run to a fresh epoch, with sinks that write into that folder; of others the copy
        that `restore` makes is checked and compared.

        job, engine, master, state_memory, insecure: of a store of abs: its topology file, and how it is run.
        reader: as of `rows`: the system's own reads the copy, too.
        watch: sees how it goes on.

        Raises NoRecovery where none can be restored, Damaged, BadOption, OtherJob, EngineStopped, JobFailed.
        """
        from abscli.api.drills import drill_of_copy
        from abscli.stores.recovery import BadOption, JobFile, RestoreRequest

        chosen = self.named if epoch is None else epoch
        number = None if chosen in (None, "latest") else self.resolve(chosen)
        if job is not None and not self.system.recovery().runs_job:
            raise BadOption("--job", f"no job is run for a checkpoint of {self.system.words.title}: leave it out")
        watch = watch or Unwatched()
        request = RestoreRequest(
            job=None if job is None else JobFile.read(os.fspath(job)), engine=engine, master=master,
            state_memory=state_memory, insecure=insecure,
        )
        drilled = self.system.drill(self.view, number, request, watch)
        if drilled is not None:
            return drilled
        return drill_of_copy(self, number, partial(open_store, format=self.system.name), reader, watch)

    def tags(self, epoch: int | None = None) -> list[Tag]:
        """Names of epochs of a store that abs wrote, which stay while they have one; of one epoch, or all.

        Raises OtherFormat.
        """
        return self.system.tags(self.view).all(epoch)

    def tag(
        self, name: str, epoch: int | str | None = None, *, quick: bool = False, move: bool = False,
        progress: Progress | None = None,
    ) -> bool:  # fmt: skip
        """Gives a complete epoch a name, so that neither `gc` nor a running job removes it; False if it had that.

        quick: its files are looked for, and not read.
        move: take the name from another epoch.

        Raises OtherFormat, NotFound, Damaged for an epoch that is not whole, BadOption for a name that is another's.

        >>> store = open_store("snapshots")
        >>> store.tag("before-upgrade", 2)
        True
        >>> [(tag.name, tag.epoch) for tag in store.tags()], store.garbage(keep=1).kept
        ([('before-upgrade', 2)], (2, 4, 5))
        >>> open_store("snapshots@before-upgrade").epoch()
        Epoch(2, complete, 5/5 tasks)
        >>> store.untag("before-upgrade")
        [2]
        """
        number = self.resolve(epoch)
        tags = self.system.tags(self.view)
        return tags.add(number, name, quick=quick, move=move, progress=progress or unseen)

    def untag(self, name: str, epoch: int | None = None) -> list[int]:
        """Takes a name away; the epochs that had it. Raises OtherFormat, NotFound."""
        return self.system.tags(self.view).remove(name, epoch)

    def owners(self, file: str | os.PathLike[str], *, epoch: int | str | None = None) -> Owners:
        """Which operators of a job would own the state of an epoch. file: the job's topology file; of Flink: the uids
        of its operators, one a line, or its plan JSON.

        Raises OtherFormat, NotFound, OtherJob.
        """
        self.check_options(uids=True)
        return self.system.owners(self.view, self.resolve(epoch), os.fspath(file))

    def own_reader(
        self, master: str = "local[*]", show: Callable[[str], None] | None = None
    ) -> AbstractContextManager[OwnReader]:
        """The system's own reader, running while the block does: of a Spark checkpoint, Spark's, for `rows` and
        `Report.confirmed`.

        show: called with what it does.
        """
        self.check_options(engine=True)
        return self.system.own_reader(master, show or unshown)

    def check_options(self, **given: object) -> None:
        """OtherFormat for an option, by its name, that means nothing to a store of this system."""
        from abscli.stores.registry import check_options

        check_options(self.system, given, self.path)

    def page(self) -> StorePage:
        """What `print` shows."""
        from abscli.text.inspect_page import StorePage

        return StorePage.of(self.view)

    def __str__(self) -> str:
        return self.system.store_text(self.page(), width=WIDTH, ascii=False).rstrip()

    def __repr__(self) -> str:
        ref = self.path if self.named is None else f"{self.path}@{self.named}"
        try:
            epochs, latest = len(self.view.epoch_numbers()), self.latest
            newest = "none complete" if latest is None else f"latest {latest}"
            facts = f"job={self.job!r}, {count(epochs, 'epoch')}, {newest}"
        except FormatError as error:
            facts = f"cannot be read: {error.message}"
        return f"Store({ref!r}, system={self.system.name!r}, {facts})"


class Epoch:
    """One epoch of a store.

    store: that it is in.
    facts: what the store's list has of it: tasks, sizes, times.
    """

    def __init__(self, store: Store, facts: EpochFacts, detail: EpochDetail | None = None) -> None:
        self.store = store
        self.facts = facts
        self._detail = detail

    @property
    def number(self) -> int:
        """Its number."""
        return self.facts.epoch

    @property
    def status(self) -> Status:
        """What it is by what is there; `validate` checks it."""
        return self.facts.status

    @cached_property
    def detail(self) -> EpochDetail:
        """All that is known of it; Damaged for facts that cannot be read."""
        return self._detail or self.store.view.detail(self.number)

    @property
    def operators(self) -> tuple[OperatorFacts, ...]:
        """With their tasks and files."""
        return self.detail.operators

    @property
    def channels(self) -> Sequence[Any]:
        """Counters of each channel at the cut (`formats.view.ChannelFacts`)."""
        return self.detail.channels

    @property
    def topology(self) -> Topology | None:
        """The job graph that it was taken of; None where the system does not keep it."""
        return self.store.view.topology(self.number)

    def state(
        self, operator: str | None = None, name: str | None = None, *, where: Texts = (),
        columns: Sequence[str] | None = None,
    ) -> pa.Table:  # fmt: skip
        """The rows of one of its states; see `Store.state`."""
        return self.store.state(operator, name, where=where, columns=columns, epoch=self.number)

    def validate(self, *, quick: bool = False) -> Report:
        """Checks it; see `Store.validate`."""
        return self.store.validate(self.number, quick=quick)

    def page(self) -> EpochPage:
        """What `print` shows."""
        from abscli.text.inspect_page import EpochPage

        return EpochPage.of(self.store.view, self.store.page(), self.number)

    def __str__(self) -> str:
        return self.store.system.epoch_text(self.page(), width=WIDTH, ascii=False).rstrip()

    def __repr__(self) -> str:
        facts = self.facts
        acked = "?" if facts.acked is None else facts.acked
        tasks = "" if facts.expected is None else f", {acked}/{facts.expected} tasks"
        return f"Epoch({facts.epoch}, {facts.status}{tasks})"


def _refuse_credentials(broker: str, config: BrokerConfig) -> None:
    """Raise CredentialsRefused for credentials in the names of brokers, or in the path of their settings."""
    refuse_credentials(broker, "--broker", Location.BROKERS)
    if isinstance(config, str):
        refuse_credentials(config, "--broker-config")
