"""What `abscli` offers to programs and notebooks: stores are opened and asked, plans are made and carried out.

`repr` of an object is one line; `print` shows the page that the command of the same name shows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
import msgspec.structs

from formats.errors import FormatError
from formats.reference import ReadOptions, parse_reference

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from abscli.engine.coordinator import Progress as JobProgress
    from abscli.engine.job import Outcome
    from abscli.engine.news import News
    from abscli.report.findings import EpochReport, Finding, StoreReport
    from abscli.stores.base import Checked, Owners, OwnReader, Progress, System
    from abscli.stores.comparing import Comparison
    from abscli.stores.recovery import Recovery, RestoreRequest, Watcher
    from abscli.text.diff import DiffPage
    from abscli.text.inspect_page import EpochPage, StorePage
    from formats.job.model import Topology
    from formats.plan import Plan
    from formats.query.select import Selection
    from formats.storage import Storage
    from formats.view import CheckpointStore, EpochDetail, EpochFacts, OperatorFacts, StateFacts, Status

__all__ = (
    "Diff", "Epoch", "RecoveryPlan", "Report", "Restore", "Restored", "Rows", "Store", "open_store", "plan_graph",
    "read_plan", "run_job",
)  # fmt: skip

WIDTH = 100
"""Columns of a page that is printed."""

Texts = str | Sequence[str]
"""One, or several."""


def open_store(
    ref: str | os.PathLike[str],
    *,
    format: str | None = None,
    search: Texts = (),
    path_map: Texts = (),
    uid: Texts = (),
    type: Texts = (),
) -> Store:
    """The store at a path or URI; with `@7` or `@latest` after it, that epoch is meant where a method is given none.

    format: `abs`, `flink` or `spark`, in place of what is recognised from its files.
    search: of Flink: directories where files may lie, too.
    path_map: of Flink: OLD=NEW where files were moved.
    uid: of Flink: names that operators may have.
    type: of Flink: NAME=TYPE of state whose type is not stored.

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
    options = ReadOptions(_texts(search), _texts(path_map), _texts(uid), _texts(type))
    check_options(system, options.given(), storage.root)
    return Store(path, named, system, storage, options)


class Store:
    """A store of checkpoints, of whichever system. It is read when something is asked; open it again to see later
    epochs.

    path: as it was given, without `@N`.
    named: the epoch that stood after it, a number or `latest`; None if none did.
    system: whose checkpoints they are.
    storage: where the files lie.
    options: how they are read.
    """

    def __init__(
        self, path: str, named: int | str | None, system: System, storage: Storage, options: ReadOptions
    ) -> None:
        self.path = path
        self.named = named
        self.system = system
        self.storage = storage
        self.options = options

    @cached_property
    def view(self) -> CheckpointStore:
        """The store as its system reads it: all facts of it.

        Raises NotFound, Damaged, UnsupportedVersion for one that cannot be read; `validate` works nevertheless.
        """
        return self.system.open(self.storage, self.options)

    @property
    def job(self) -> str | None:
        """The job's name where it is known."""
        return self.view.job

    @property
    def latest(self) -> int | None:
        """The newest epoch that was completed, not verified; None if none was.

        >>> open_store("snapshots").latest
        4
        """
        return self.view.latest()

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

    def resolve(self, epoch: int | str | None = None) -> int:
        """The number of the epoch that is meant; NotFound."""
        return self.view.resolve(self.named if epoch is None else epoch)

    def states(self, operator: str | None = None, *, epoch: int | str | None = None) -> list[StateFacts]:
        """The states that an epoch holds, of all operators or of one, counted where that is cheap.

        Raises NotFound, UnknownTask.

        >>> [(state.operator, state.key, state.rows) for state in open_store("snapshots").states()]
        [('seen', ('line',), 12)]
        """
        number = self.resolve(epoch)
        return self.view.counted_states(number, None if operator is None else self.view.operator_id(number, operator))

    def rows(
        self,
        operator: str | StateFacts | None = None,
        name: str | None = None,
        *,
        key: Texts = (),
        where: Texts = (),
        columns: Sequence[str] | None = None,
        epoch: int | str | None = None,
        reader: OwnReader | None = None,
    ) -> Rows:
        """Rows of one state, not read yet.

        operator: its id, or one of `states()`; None where only one operator has state.
        name: which state, where the operator has several.
        key: the row of a key, `value` or `column=value,...`; several for several keys.
        where: a condition such as `n >= 100 and word != spark`; of several, all hold.
        columns: only these, in this order.
        reader: reads in place of us; see `own_reader`.

        Raises NotFound, UnknownTask, BadPredicate.

        >>> open_store("snapshots").rows("seen", where="line = 'none'", columns=["line"])
        Rows('seen', epoch 4 of 'snapshots', columns line, where)
        """
        from formats.query.select import find_state, only_operator, selection_of

        number = self.resolve(epoch)
        if operator is None or isinstance(operator, str):
            states = self.view.states(number)
            owner = only_operator(states) if operator is None else self.view.operator_id(number, operator)
            state = find_state(states, owner, name)
        else:
            state = operator
        view = self.view
        if reader is not None:
            view, state = reader.asked(view), msgspec.structs.replace(state, opaque=None)
        return Rows(view, number, state, selection_of(state, _texts(key), _texts(where), columns))

    def state(
        self,
        operator: str | StateFacts | None = None,
        name: str | None = None,
        *,
        key: Texts = (),
        where: Texts = (),
        columns: Sequence[str] | None = None,
        epoch: int | str | None = None,
    ) -> pa.Table:
        """The rows of one state as a table of Arrow; `rows`, which takes the same, reads them piece by piece.

        Raises NotFound, UnknownTask, BadPredicate, Damaged.

        >>> store = open_store("snapshots")
        >>> store.state("seen", epoch=1).num_rows
        4
        >>> store.state(where="n > 1")
        Traceback (most recent call last):
        formats.query.predicate.BadPredicate: no column 'n'
        """
        return self.rows(operator, name, key=key, where=where, columns=columns, epoch=epoch).table()

    def validate(
        self, epoch: int | str | None = None, *, quick: bool = False, progress: Progress | None = None
    ) -> Report:
        """Checks one epoch, or the whole store if none is given nor named: what is damaged is a finding, not an error.

        quick: presence and sizes only.
        progress: called with the bytes read so far, and of how many.

        Raises NotFound, UnsupportedVersion.

        >>> report = open_store("snapshots").validate()
        >>> report
        Report('snapshots', 5 epochs, 4 findings, restorable 1, 2, 4)
        >>> report.unmet(min_epochs=9)
        ['--min-epochs 9: 3 can be restored']
        """
        checked = self.system.check(
            self.storage, self.named if epoch is None else epoch, quick=quick, progress=progress or _unseen,
            options=self.options,
        )  # fmt: skip
        return Report(self, checked, quick)

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
        repair: bool = False,
        distrust: Texts = (),
        parallelism: Texts = (),
        query_id: str | None = None,
        keep_in_flight: bool = False,
        search: Texts = (),
        path_map: Texts = (),
        watch: Watcher | None = None,
    ) -> RecoveryPlan:
        """How to get a whole epoch again: this one, or the newest that will do. Nothing is changed.

        failed: tasks that have died, where the job runs.
        repair, parallelism: not in this version.
        distrust: tasks whose part of the epoch is not to be used.
        query_id: of a Spark checkpoint that has lost its own.
        keep_in_flight: of a Spark checkpoint: the batch after runs again with exactly its input.
        search, path_map: as of `open_store`; of a Spark checkpoint: OLD=NEW where its inputs were moved.
        watch: sees how it goes on.

        Raises NoRecovery, NotFound, UnknownTask, BadOption.

        >>> plan = open_store("snapshots").plan()
        >>> plan
        RecoveryPlan('snapshots', system='abs', back to 4, relies on 15 files)
        >>> plan.save("plan.json")
        """
        from abscli.stores.recovery import PlanRequest, lasting, refuse_others

        recovery = self.system.recovery()
        searched, moved = _texts(search) or self.options.search, _texts(path_map) or self.options.path_map
        given = {
            "--failed": failed, "--strategy": repair, "--distrust": distrust, "--parallelism": parallelism,
            "--query-id": query_id, "--keep-in-flight": keep_in_flight, "--search": searched, "--path-map": moved,
        }  # fmt: skip
        refuse_others(given, recovery.plan_options, recovery.words)
        options = replace(
            self.options,
            search=searched if "search" in self.system.options else (),
            path_map=moved if "path_map" in self.system.options else (),
        )
        request = PlanRequest(
            epoch=epoch if epoch is not None else self.named if isinstance(self.named, int) else None,
            failed=_texts(failed),
            repair=repair,
            distrust=_texts(distrust),
            parallelism=_texts(parallelism),
            query_id=query_id,
            keep_in_flight=keep_in_flight,
            path_map=moved,
            read=lasting(options),
        )
        view = self.view if options == self.options else self.system.open(self.storage, options)
        return RecoveryPlan(recovery.plan(view, request, watch or _Unwatched()), recovery)

    def restore(
        self,
        plan: RecoveryPlan | str | os.PathLike[str],
        to: str | os.PathLike[str] | None = None,
        *,
        job: str | os.PathLike[str] | None = None,
        engine: str = "spark",
        master: str = "local[*]",
        policy: str | None = None,
        until: str = "drained",
        accept_missing: bool = False,
        watch: Watcher | None = None,
    ) -> Restored:
        """Carries a plan of this store out. Of a store of abs the job runs; of others a checked copy is written.

        plan: as `plan` makes it, or the file of one.
        to: where the copy, or the restored epoch, goes.
        job, engine, master, policy, until, accept_missing: of a store of abs: its topology file, and how it is run.
        watch: sees how it goes on.

        Raises StalePlan, BadOption, OtherJob, NoRecovery, Damaged, UsageError, EngineStopped, JobFailed.

        >>> store = open_store("snapshots")
        >>> store.restore(store.plan(), engine="inline")
        Traceback (most recent call last):
        abscli.stores.recovery.BadOption: --job: name the topology file of 'reach': code, and paths of sources and ...
        """
        from abscli.stores.recovery import BadOption
        from formats.storage import absolute

        plan = plan if isinstance(plan, RecoveryPlan) else read_plan(plan)
        if plan.plan.store is not None and plan.plan.store != absolute(self.view.path):
            raise BadOption("PLAN", f"the plan is of {plan.plan.store}, not of {self.path}")
        return plan.prepare(
            to, job=job, engine=engine, master=master, policy=policy, until=until, accept_missing=accept_missing
        ).carry_out(watch)

    def owners(self, file: str | os.PathLike[str], *, epoch: int | str | None = None) -> Owners:
        """Of Flink: which operators of a job would own the state of an epoch. file: their uids, one a line, or the
        job's plan JSON.

        Raises OtherFormat, NotFound.
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
        return self.system.own_reader(master, show or _unshown)

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
            facts = f"job={self.job!r}, {_count(epochs, 'epoch')}, {newest}"
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


class Rows(msgspec.Struct, frozen=True):
    """Rows of one state, read a batch at a time as they are taken; libraries that read Arrow streams take them as they
    are.

    view: the store.
    epoch: of it.
    state: whose rows they are.
    selection: which rows and columns.
    """

    view: CheckpointStore
    epoch: int
    state: StateFacts
    selection: Selection

    @property
    def schema(self) -> pa.Schema:
        """Their columns; BadPredicate for one that is not there."""
        from formats.query.select import schema_of

        return schema_of(self.view, self.epoch, self.state, self.selection)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        from formats.query.select import rows

        return rows(self.view, self.epoch, self.state, self.selection)

    def reader(self) -> pa.RecordBatchReader:
        """As a stream of Arrow, never whole in memory."""
        import pyarrow as pa

        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def table(self) -> pa.Table:
        """All of them."""
        import pyarrow as pa

        batches = list(self)
        return pa.Table.from_batches(batches) if batches else self.schema.empty_table()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.reader().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        name = f" {self.state.name}" if self.state.name else ""
        columns = f", columns {', '.join(self.selection.columns)}" if self.selection.columns is not None else ""
        where = ", where" if self.selection.where is not None else ""
        return f"Rows('{self.state.operator}{name}', epoch {self.epoch} of {self.view.path!r}{columns}{where})"


class Report(msgspec.Struct, frozen=True):
    """What a check says.

    store: that was checked.
    checked: what its system says.
    quick: whether only presence and sizes were looked at.
    """

    store: Store
    checked: Checked
    quick: bool

    @property
    def report(self) -> StoreReport:
        """Of the store: every epoch with its verdict and findings, and those that can be restored."""
        return self.checked.report

    @property
    def epochs(self) -> tuple[EpochReport, ...]:
        """Verdict and findings of each."""
        return self.report.epochs

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All of them, those of no epoch first."""
        return self.report.all_findings

    @property
    def restorable(self) -> tuple[int, ...]:
        """Epochs that can be restored, ascending."""
        return self.report.restorable

    def unmet(
        self, *, strict: bool = False, max_age: float | None = None, min_epochs: int | None = None
    ) -> list[str]:
        """What does not hold, in words; empty if all is well. The command exits with 3 for it.

        strict: any finding counts.
        max_age: seconds that the newest restorable epoch may be old.
        min_epochs: that must be restorable.
        """
        from abscli.report.demands import unmet

        return unmet(
            self.report, epoch=self.checked.epoch, strict=strict, max_age=max_age, min_epochs=min_epochs
        )

    def confirmed(self, reader: OwnReader) -> Report:
        """The same with what the system's own reader finds; see `Store.own_reader`."""
        report = reader.confirmed(self.store.storage, self.report)
        return msgspec.structs.replace(self, checked=replace(self.checked, report=report))

    def text(self, *, unmet: Sequence[str], width: int = WIDTH, ascii: bool = False) -> str:
        """The page of `abs validate`. unmet: demands that do not hold."""
        from abscli.text import validate as render

        system, path = self.store.system, self.store.path
        return render.text(
            self.report, store=path, job=self.checked.job, unmet=unmet, advice=system.advice(), width=width,
            ascii=ascii, leftovers=system.leftovers(self.store.storage, path, self.report), why=self.checked.why,
            notes=self.checked.notes,
        )  # fmt: skip

    def to_json(self, unmet: Sequence[str] = ()) -> dict[str, Any]:
        """`abs.validate`, for programs. unmet: demands that do not hold."""
        from abscli.text import validate as render

        return render.to_json(
            self.report, store=self.store.path, format=self.store.system.name, job=self.checked.job, quick=self.quick,
            unmet=unmet, why=self.checked.why, notes=self.checked.notes,
        )  # fmt: skip

    def __str__(self) -> str:
        return self.text(unmet=self.unmet()).rstrip()

    def __repr__(self) -> str:
        restorable = ", ".join(map(str, self.restorable)) or "none"
        return (
            f"Report({self.store.path!r}, {_count(len(self.epochs), 'epoch')}, "
            f"{_count(len(self.findings), 'finding')}, restorable {restorable})"
        )


class Diff(msgspec.Struct, frozen=True):
    """What differs between two epochs.

    page: operators, positions, logs and job graph, and of which two.
    """

    page: DiffPage

    @property
    def identical(self) -> bool | None:
        """Whether nothing differs; None if something could not be compared."""
        return self.page.identical

    def to_json(self) -> dict[str, Any]:
        """`abs.diff`, for programs."""
        from abscli.text import diff as render

        return render.to_json(self.page)

    def __str__(self) -> str:
        from abscli.text import diff as render

        return render.text(self.page, width=WIDTH).rstrip()

    def __repr__(self) -> str:
        ends = ", ".join(f"epoch {end.epoch} of {end.store!r}" for end in (self.page.left, self.page.right))
        return f"Diff({ends}, { {True: 'identical', False: 'differ', None: 'not all compared'}[self.identical]})"


class RecoveryPlan(msgspec.Struct, frozen=True):
    """A plan back to a whole epoch.

    plan: what it says, and every file that it relies on.
    recovery: who carries it out.
    file: where it was read from; None for one that was just made.
    """

    plan: Plan[Any]
    recovery: Recovery[Any, Any, Any]
    file: str | None = None

    @property
    def epoch(self) -> int | None:
        """The epoch that it goes back to; None in a plan from a job graph alone."""
        epoch: int | None = self.plan.body.goes_back_to
        return epoch

    def encoded(self) -> bytes:
        """The bytes of its file, sealed."""
        from formats.plan import encode

        return encode(self.plan)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes its file, for `abs restore` and `read_plan`."""
        from pathlib import Path

        from formats.disk import writing

        encoded = self.encoded()
        with writing(os.fspath(path), len(encoded)):
            Path(path).write_bytes(encoded)

    def text(self, *, width: int = WIDTH, plan_file: str | None = None, job: str | None = None) -> str:
        """The page of `abs plan-recovery`. plan_file, job: files that its last line names."""
        return self.recovery.text(self.plan, width=width, plan_file=plan_file or self.file, job=job)

    def prepare(
        self,
        to: str | os.PathLike[str] | None = None,
        *,
        job: str | os.PathLike[str] | None = None,
        engine: str = "spark",
        master: str = "local[*]",
        policy: str | None = None,
        until: str = "drained",
        accept_missing: bool = False,
        dry_run: bool = False,
    ) -> Restore:
        """A restore that can be carried out: the plan still holds, and what it needs is there. Nothing is changed.

        For what it takes see `Store.restore`. dry_run: it will not be carried out, so `to` may be missing.

        Raises StalePlan, BadOption, OtherJob, NoRecovery, NotFound.

        >>> plan = read_plan("plan.json")
        >>> plan.prepare(job="job.yaml")
        Restore(RecoveryPlan('snapshots', system='abs', back to 4, relies on 15 files))
        """
        from abscli.stores.plans import open_planned
        from abscli.stores.recovery import BadOption, JobFile, RestoreRequest, refuse_others
        from formats.job.file import parse_topology

        given = {"--job": job, "--until": until == "end", "--policy": policy, "--accept-missing-parts": accept_missing}
        refuse_others(given, self.recovery.restore_options, f"a plan of {self.recovery.words}")
        if self.plan.store is None:
            message = "the plan is from a graph alone, without a store: there is nothing to restore from"
            raise BadOption("PLAN", message)
        file = None if job is None else os.fspath(job)
        request = RestoreRequest(
            to=None if to is None else os.fspath(to),
            job=None if file is None else JobFile(file, os.path.dirname(os.path.abspath(file)), parse_topology(file)),
            engine=engine,
            master=master,
            policy=policy,
            until=until,
            accept_missing=accept_missing,
        )
        view = open_planned(self.plan)
        self.recovery.check_request(self.plan, view, request, dry_run=dry_run)
        self.recovery.check_plan(self.plan, view)
        return Restore(self, view, request)

    def __str__(self) -> str:
        return self.text().rstrip()

    def __repr__(self) -> str:
        store = "" if self.plan.store is None else f"{_short(self.plan.store)!r}, "
        back = "" if self.epoch is None else f", back to {self.epoch}"
        files = _count(len(self.plan.relies_on), "file")
        return f"RecoveryPlan({store}system={self.plan.system!r}{back}, relies on {files})"


class Restore(msgspec.Struct, frozen=True):
    """A plan that holds, with all that is needed to carry it out.

    plan: the plan.
    view: its store.
    request: what it is carried out with.
    """

    plan: RecoveryPlan
    view: CheckpointStore
    request: RestoreRequest

    def carry_out(self, watch: Watcher | None = None) -> Restored:
        """Does it. watch: sees how it goes on.

        Raises StalePlan, Damaged, NoRecovery, UsageError, EngineStopped, JobFailed.
        """
        result = self.plan.recovery.restore(self.plan.plan, self.view, self.request, watch or _Unwatched())
        return Restored(self, result)

    def __repr__(self) -> str:
        return f"Restore({self.plan!r})"


class Restored(msgspec.Struct, frozen=True):
    """What a restore has done.

    restore: that was carried out.
    result: what its system says.
    """

    restore: Restore
    result: Any

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return self.restore.plan.recovery.restored_json(self.restore.plan.plan, self.result)

    def text(self, *, width: int = WIDTH) -> str:
        """For people."""
        plan = self.restore.plan
        return plan.recovery.restored_text(plan.plan, self.result, self.restore.request, width=width)

    @property
    def notes(self) -> tuple[str, ...]:
        """What should be known besides, and what to do next."""
        return self.restore.plan.recovery.restored_notes(self.result, self.restore.request)

    def __str__(self) -> str:
        return "\n".join([self.text(), *self.notes])

    def __repr__(self) -> str:
        facts = {name: value for name, value in self.to_json().items() if isinstance(value, str | int | float)}
        shown = ", ".join(f"{name}={value!r}" for name, value in facts.items() if name not in ("schema", "version"))
        return f"Restored({shown})"


def read_plan(path: str | os.PathLike[str]) -> RecoveryPlan:
    """The plan in a file that `RecoveryPlan.save` or `abs plan-recovery --out` wrote.

    Raises BadPlan (cut short, edited, not a plan), UnsupportedVersion, UnsafePath, OtherFormat.

    >>> read_plan("plan.json").epoch
    4
    """
    from abscli.stores.plans import read_plan as decoded
    from abscli.stores.plans import recovery_of
    from formats.bounds import read_user_file
    from formats.plan import MADE_BY

    name = os.fspath(path)
    plan = decoded(read_user_file(name, hint=MADE_BY), name)
    return RecoveryPlan(plan, recovery_of(plan.system), name)


def plan_graph(job: str | os.PathLike[str], failed: Texts) -> RecoveryPlan:
    """What must restart when these tasks have died, from a topology file, or Flink's plan JSON, alone; UnknownTask."""
    from abscli.stores.plans import plan_graph, recovery_of

    plan = plan_graph(os.fspath(job), _texts(failed))
    return RecoveryPlan(plan, recovery_of(plan.system))


def run_job(
    job: str | os.PathLike[str],
    store: str | os.PathLike[str],
    *,
    engine: str = "spark",
    master: str = "local[*]",
    workers: int | None = None,
    policy: str | None = None,
    interval: float | None = 1.0,
    epoch_timeout: float = 600.0,
    max_concurrent: int = 1,
    keep: int | None = 10,
    resume: bool = False,
    from_epoch: int | None = None,
    take_over: bool = False,
    accept_missing: bool = False,
    on_progress: Callable[[JobProgress], None] | None = None,
    on_news: Callable[[News], None] | None = None,
) -> Outcome:
    """Runs a job to its end, or until SIGTERM or SIGINT, and takes snapshots of it.

    job: its topology file.
    store: the directory that the snapshots go to.
    engine: `spark`, or `inline` for this process alone.
    master: of Spark.
    workers: processes; None for as many as have something to do.
    policy: `aligned`, `unaligned` or `at-least-once`; None for that of the last run.
    interval: seconds from one epoch to the next; None for no periodic ones.
    epoch_timeout: seconds after which an epoch that cannot complete is given up.
    max_concurrent: epochs in flight at once.
    keep: complete epochs that stay; None keeps all.
    resume: go on from the newest whole epoch, or start where there is none; why newer ones are passed over goes to the
        log of `abscli`.
    from_epoch: to go on from; None, without `resume`, for an empty store.
    take_over: also sinks that another store has written since.
    accept_missing: also where parts of the output are gone.
    on_progress, on_news: told how it goes on.

    Raises BadOption, NoRecovery, UsageError, EngineStopped, JobFailed, StoreInUse, OtherJob, Damaged, FormatError for a
    bad topology file.

    >>> outcome = run_job("job.yaml", "made", engine="inline", interval=None)
    >>> outcome.finished, outcome.records
    (True, 3)
    >>> open_store("made").state("seen").num_rows
    2
    """
    import shlex

    from abscli.engine.job import JobOptions
    from abscli.stores.native.run import job_directory, prepare_job

    file = os.fspath(job)
    options = JobOptions(
        directory=job_directory(file), job_hint=shlex.quote(file) + " --engine inline" * (engine == "inline"),
        engine=engine, master=master, workers=workers, policy=policy, interval=interval, epoch_timeout=epoch_timeout,
        max_concurrent=max_concurrent, keep=keep, from_epoch=from_epoch, take_over=take_over,
        accept_missing=accept_missing,
    )  # fmt: skip
    prepared = prepare_job(file, os.fspath(store), options, resume=resume)
    if prepared.resumed is not None:
        for warning in prepared.resumed.warnings:
            _Unwatched().note(warning)
    return prepared.run(on_progress or _unshown, on_news or _unshown)


class _Unwatched:
    """Nobody sees how a plan or a restore goes on; remarks go to the log of `abscli`."""

    def __call__(self, text: str) -> None:
        """How far it is."""

    def note(self, text: str) -> None:
        """A remark."""
        import logging

        logging.getLogger("abscli").warning(text)

    def job(self, name: str) -> _UnwatchedJob:
        """A job begins to run."""
        return _UnwatchedJob()


class _UnwatchedJob:
    """Nobody sees how a job runs."""

    def __call__(self, progress: JobProgress) -> None:
        """How far it is."""

    def news(self, news: News) -> None:
        """What has happened."""


def _unseen(read: int, total: int | None) -> None:
    """Nobody asked how far it is."""


def _unshown(progress: object) -> None:
    """Nobody asked what is going on."""


def _texts(texts: Texts) -> tuple[str, ...]:
    return (texts,) if isinstance(texts, str) else tuple(texts)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s'[: number != 1]}"


def _short(path: str) -> str:
    """A path as it is seen from the current folder, if it lies in it."""
    relative = path if "://" in path else os.path.relpath(path)
    return path if relative.startswith("..") else relative
