"""The report of a store, an epoch, or a saved validation, comparison or plan: one page, and the same facts as JSON."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import msgspec.structs

from abscli.api.shared import WIDTH, Texts, unseen, unshown
from abscli.api.store import Store, open_store
from formats.errors import Damaged, FormatError, OtherFormat
from formats.view import Status

if TYPE_CHECKING:
    from abscli.pages.facts import Report as Facts
    from abscli.pages.facts import Times
    from abscli.pages.resume import Maker
    from abscli.pages.store_report import Gathered
    from abscli.report.findings import Code, EpochReport, StoreReport
    from abscli.stores.base import Progress
    from abscli.text.inspect_page import StorePage
    from abscli.text.validate import Advice, NextCommand
    from formats.job.model import Topology
    from formats.output_file import OutputFile
    from formats.reference import ReadOptions
    from formats.view import CheckpointStore, EpochDetail, EpochFacts, OperatorFacts

MOST = 256 << 20
"""Bytes of a saved file that are read."""
UNREAD = 20
"""Epochs that cannot be read and are named."""


def report_file(path: str | os.PathLike[str], *, force: bool = False) -> OutputFile:
    """Return the file that a report is written to. force: it may replace any file."""
    from abscli.pages.html import BEGINNING
    from formats.output_file import OutputFile, beginning_with

    return OutputFile(os.fspath(path), beginning_with("report", BEGINNING), force)


class HtmlReport(msgspec.Struct, frozen=True):
    """What `abs report` writes.

    ref: what it is of.
    facts: all that it says.
    reads: folders that it was made from, in which it is not written.
    """

    ref: str
    facts: Facts
    reads: tuple[str, ...] = ()

    @property
    def state(self) -> str:
        """Return `ok`, `unverified`, `warning`, `damaged`, `not-restorable` or `unknown`."""
        return str(self.facts.state)

    @property
    def summary(self) -> str:
        """How it stands, in a sentence."""
        return self.facts.summary

    def html(self) -> bytes:
        """The page: one file, which asks nobody for anything; the same bytes for the same facts."""
        from abscli.pages.html import html_of

        return html_of(self.facts)

    def to_json(self) -> dict[str, Any]:
        """`abs.report`, for programs; it stands in the page, too."""
        from abscli.pages.html import json_of

        return json_of(self.facts)

    def items(self) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
        """The same in pieces: what stands once, then an epoch or a problem each."""
        whole = self.to_json()
        lists = {"problems": "problem", "epochs": "epoch"}
        header = {name: value for name, value in whole.items() if name not in lists}
        return header, ({"type": kind, **item} for name, kind in lists.items() for item in whole[name])

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> int:
        """Writes the page in one step, and says how many bytes it has.

        force: replace any file. Without it only an empty file and an earlier report are replaced.

        Raises FormatError for a place in the store that it is of, WouldOverwrite for another file.
        """
        from formats.output_file import check_outside, write_whole

        for folder in self.reads:
            check_outside(path, folder)
        page = self.html()
        write_whole(report_file(path, force=force), page)
        return len(page)

    def __repr__(self) -> str:
        return f"HtmlReport({self.ref!r}, {self.state})"


def report_on(
    ref: str | os.PathLike[str],
    *,
    format: str | None = None,
    search: Texts = (),
    path_map: Texts = (),
    uid: Texts = (),
    topology: Texts = (),
    verify: bool = False,
    stats: bool = True,
    job: str | os.PathLike[str] | None = None,
    store: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    show: Callable[[str], None] | None = None,
) -> HtmlReport:
    """The report of a store, of one of its epochs (`PATH@7`), or of a file: what a validation, a comparison or a plan
    has said, as `-o json` wrote it.

    format, search, path_map, uid, topology: as of `open_store`.
    verify: read all files, as `Store.validate` does; else presence and sizes alone are checked.
    store: of a file: the store that it is about, for its job graph. The store that the file names is not looked at.
    stats: read state, in bounded time, for key groups and skew.
    job: of a store of abs: the job file that names the targets of its sinks, which are asked; see `Store.validate`.
    progress: told the bytes that were checked, and of how many.
    show: called with what it does.

    Raises NotFound, UnsupportedVersion, OtherFormat, FormatError for a file that is none of these.

    >>> report = report_on("snapshots")
    >>> report
    HtmlReport('snapshots', unverified)
    >>> report.save("report.html") < 150_000
    True
    >>> report_on("plan.json").summary
    'Back to epoch 4: 3 operators restart'
    """
    from abscli.stores.recovery import BadOption

    name, show = os.fspath(ref), show or unshown
    if os.path.isfile(name) and os.path.basename(name) != "_metadata":
        if job is not None:
            raise BadOption("--job", f"it contacts the targets of a store, and {name} is a saved JSON file")
        return _of_file(name, None if store is None else os.fspath(store))
    if store is not None:
        raise BadOption("--store", f"names the store that a file is about, and {name} is a store itself")
    opened = open_store(name, format=format, search=search, path_map=path_map, uid=uid, topology=topology)
    return HtmlReport(name, _of_store(opened, verify, stats, job, progress or unseen, show), (opened.path,))


# -- of a store ----------------------------------------------------------------------------------------------


def _of_store(
    store: Store, verify: bool, stats: bool, job: str | os.PathLike[str] | None, progress: Progress,
    show: Callable[[str], None],
) -> Facts:  # fmt: skip
    from abscli.pages.store_report import Gathered, store_report
    from formats.storage import absolute

    number = _named(store)
    epochs = _Epochs(show)
    checked = store.system.check(
        store.storage, number, quick=not verify, progress=progress, options=store.options, visit=epochs,
        job=store.job_file(job),
    )  # fmt: skip
    advice = store.system.advice(None if job is None else absolute(os.fspath(job)))
    gathered = Gathered(
        path=absolute(store.path), maker=_maker(), format=store.system.name, job=checked.job, named=number,
        quick=not verify, report=checked.report,
        advice=advice._replace(next_command=_reading_as(advice.next_command, store.options)), why=checked.why,
        notes=checked.notes,
    )  # fmt: skip
    try:
        gathered = _with_epochs(store, gathered, epochs)
        gathered = _with_depth(store, gathered, stats, show)
    except Damaged as error:  # what was checked is worth a page, though facts of the store cannot be read
        gathered = replace(gathered, unread=(*gathered.unread, f"not all of it can be read: {error}"))
    return store_report(gathered)


class _Epochs:
    """What a page says of each epoch, taken down while the check has it at hand.

    facts: of those that could be read.
    unread: why others could not.
    times: where the time of complete ones went.
    grown: when they were written, and their operators without tasks, which are many and which growth does not ask for.
    """

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self.facts: dict[int, EpochFacts] = {}
        self.unread: dict[int, FormatError] = {}
        self.times: dict[int, Times | None] = {}
        self.grown: dict[int, tuple[str | None, tuple[OperatorFacts, ...]]] = {}

    def __call__(self, view: CheckpointStore, epoch: int) -> None:
        """An epoch, in depth."""
        from abscli.pages.depth import slowest

        self._show(f"reading epoch {epoch}")
        try:
            detail = view.detail(epoch)
        except FormatError as error:
            self.unread[epoch] = error
            return
        facts = self.facts[epoch] = detail.facts
        if facts.status is Status.COMPLETE:
            self.times[epoch] = slowest(detail)
            operators = tuple(msgspec.structs.replace(operator, tasks=()) for operator in detail.operators)
            self.grown[epoch] = facts.triggered or view.written(epoch), operators

    def page(self, store: Store) -> StorePage:
        """The page of the store, read again where not all of its epochs could be."""
        from abscli.text.inspect_page import StorePage

        whole = list(self.facts) == store.view.epoch_numbers()
        return StorePage.of(store.view, tuple(self.facts.values()) if whole else None)


def _named(store: Store) -> int | None:
    """The epoch that is meant; None for the whole store, whatever of it can be read."""
    if store.named is not None:
        return store.resolve()
    try:
        return store.view.only
    except Damaged:
        return None


def _with_epochs(store: Store, gathered: Gathered, epochs: _Epochs) -> Gathered:
    """The list of epochs, with where their time went and how state grew."""
    from abscli.pages.store_report import EPOCHS
    from abscli.text.statistics import TrendPage

    page, system = epochs.page(store), store.system
    shown = [facts.epoch for facts in page.epochs if gathered.named in (None, facts.epoch)][-EPOCHS:]
    grown = [(epoch, *epochs.grown[epoch]) for epoch in shown if epoch in epochs.grown]
    growth = TrendPage.over(store.path, system.name, page.job, grown) if len(grown) > 1 else None
    complete = {facts.epoch for facts in page.epochs if facts.status is Status.COMPLETE}
    unread = [f"epoch {n} cannot be read: {error}" for n, error in epochs.unread.items() if n in complete]
    return replace(
        gathered, job=page.job or gathered.job, epochs=page.epochs,
        times={epoch: epochs.times[epoch] for epoch in shown if epoch in epochs.times}, tags=_tags(store),
        growth=growth, recoveries=system.recoveries(page),
        next=[_read_as(command, store.options)
              for command in system.next_commands(replace(page, path=gathered.path), gathered.named)],
        unread=tuple(unread[:UNREAD]),
    )  # fmt: skip


_READING: Mapping[str, tuple[str, ...]] = {
    "inspect": ("search", "path_map", "uid"), "validate": ("search", "path_map", "uid"),
    "plan-recovery": ("search", "path_map"),
}  # fmt: skip
"""Commands that read a store, with the read options that they have."""


def _read_as(command: str, options: ReadOptions) -> str:
    """Return a command with the options by which the user has read the store, valid in every folder."""
    from abscli.stores.recovery import lasting

    name, given = command.split(" ", 2)[1:2], lasting(options)
    names = _READING.get(name[0], ()) if name and command.startswith("abs ") else ()
    if given.search:
        command = command.replace(" --search DIR ", " ", 1)
    return command + given.words(names)


def _reading_as(advice: NextCommand, options: ReadOptions) -> NextCommand:
    """Return the same advice, its commands with the options by which the user has read the store."""

    def command(
        code: Code, epoch: EpochReport | None, report: StoreReport, store: str, path: str | None = None
    ) -> str:
        return _read_as(advice(code, epoch, report, store, path=path), options)

    return command


def _tags(store: Store) -> dict[int, list[str]]:
    """Names of epochs, where there is such a thing."""
    tags: dict[int, list[str]] = {}
    with contextlib.suppress(OtherFormat):
        for tag in store.tags():
            tags.setdefault(tag.epoch, []).append(tag.name)
    return tags


def _with_depth(store: Store, gathered: Gathered, stats: bool, show: Callable[[str], None]) -> Gathered:
    """One epoch whole: the one that was named, else the newest that can be restored, is complete, or is there."""
    from abscli.pages.resume import newer_than

    epoch = gathered.named
    if epoch is None:
        numbers = [facts.epoch for facts in gathered.epochs]
        complete = [facts.epoch for facts in gathered.epochs if facts.status is Status.COMPLETE]
        candidates = (gathered.report.latest_restorable, *reversed(complete), *reversed(numbers))
        epoch = next((number for number in candidates if number is not None), None)
    if epoch is None:
        return gathered
    detail, topology = store.view.detail(epoch), store.view.topology(epoch)
    gathered = replace(gathered, detail=detail, topology=topology)
    if epoch in gathered.report.restorable:
        newer = newer_than(epoch, gathered.report, gathered.epochs)
        output = store.system.output_again(epoch, newer, topology, detail.policy)
        gathered = replace(gathered, output=output, later=_later(store, gathered, epoch))
    if not stats:
        return replace(gathered, statistics_note="state was not to be read (--no-stats)")
    if detail.facts.status not in (Status.COMPLETE, Status.DAMAGED):
        return replace(gathered, statistics_note="the state of an epoch that is not complete is not read")
    show(f"reading state of epoch {epoch}")
    try:
        return replace(gathered, statistics=store.view.statistics(epoch))
    except FormatError as error:
        return replace(gathered, statistics_note=f"state cannot be read: {error}")


def _later(store: Store, gathered: Gathered, epoch: int) -> EpochDetail | None:
    """Return the newest epoch after `epoch` that has positions of sources: the known progress of the job."""
    for facts in reversed(gathered.epochs):
        if facts.epoch <= epoch:
            return None
        with contextlib.suppress(FormatError):
            detail = store.view.detail(facts.epoch)
            if any(task.position for operator in detail.operators for task in operator.tasks):
                return detail
    return None


def _maker() -> Maker:
    """Return who makes a report now, or at SOURCE_DATE_EPOCH (seconds since 1970), for reproducible files."""
    from abscli.pages.resume import Maker
    from abscli.release import VERSION
    from formats.timestamps import now, rfc3339

    fixed = os.environ.get("SOURCE_DATE_EPOCH", "")
    at = rfc3339(int(fixed)) if fixed.isascii() and fixed.isdigit() and len(fixed) < 12 else now()
    return Maker(f"abs {VERSION}", at, _utc_offset)


def _utc_offset(at: float) -> int:
    """Return by how many minutes local time is ahead of UTC at a moment; 0 at the ends of the calendar."""
    from datetime import UTC, datetime

    try:
        local = datetime.fromtimestamp(at, UTC).astimezone().utcoffset()
    except (OverflowError, ValueError, OSError):  # local time would be in the year 0 or 10000: a store may claim any
        return 0
    return 0 if local is None else round(local.total_seconds() / 60)


# -- of a file -----------------------------------------------------------------------------------------------


def _of_file(name: str, store: str | None) -> HtmlReport:
    from abscli.pages import saved
    from abscli.stores.plans import read_plan as decoded
    from abscli.stores.plans import recovery_of
    from abscli.stores.registry import system_named
    from formats.bounds import read_json, read_user_file
    from formats.plan import SCHEMA
    from formats.storage import absolute

    maker, location = _maker(), None if store is None else absolute(store)
    data = read_user_file(name, MOST, hint=saved.SAVED_BY)
    document = read_json(data, name, hint=saved.SAVED_BY)
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema == "abs.validate":
        validation = saved.read_validation(document, name)
        advice = system_named(validation.format).advice()
        newest = max((epoch.epoch for epoch in validation.epochs), default=None)
        around = saved.Around(maker, _graph(store, newest, document), advice, location)
        return HtmlReport(name, saved.validation_report(validation, around))
    if schema == "abs.diff":
        diff = saved.read_diff(document, name)
        topology = _graph(store, diff.right.epoch, document, diff.right.format)
        around = saved.Around(maker, topology, _advice(diff.right.format))
        return HtmlReport(name, saved.diff_report(diff, around))
    if schema == SCHEMA:
        plan = decoded(data, name)
        recovery = recovery_of(plan.system)
        back = plan.body.goes_back_to
        topology = _graph(store, back, document, plan.system)
        facts = saved.plan_report(
            document, saved.Around(maker, topology, system_named(plan.system).advice()),
            restarts=recovery.restarts(plan), job=_job_of(document),
            text=recovery.text(plan, width=WIDTH, plan_file=absolute(name), job=None), goes_back_to=back,
            next=recovery.next_commands(plan, absolute(name)),
        )  # fmt: skip
        return HtmlReport(name, facts)
    shown = f"has the schema {schema}" if isinstance(schema, str) else "has no schema"
    raise FormatError(f"`abs report` does not support this file, which {shown}", path=name, hint=saved.SAVED_BY)


def _advice(format: str) -> Advice:
    """Return what a system says of findings, and of no system in particular for a format that is not known."""
    from abscli.stores.registry import system_named
    from abscli.text.validate import Advice

    try:
        return system_named(format).advice()
    except OtherFormat:
        return Advice("Store")


def _graph(
    path: str | None, epoch: int | None, document: Mapping[str, Any], format: str | None = None
) -> Topology | None:
    """Read the job graph of an epoch that a file is about, from the store that the user names; None without one.

    The file names a store, too, but anybody may have written the file.
    """
    from abscli.stores.registry import locate
    from formats.reference import NOTHING

    if path is None:
        return None
    system, storage = locate(path, format or document.get("format"))
    view = system.open(storage, NOTHING)
    return view.topology(view.resolve(epoch))


def _job_of(document: Mapping[str, Any]) -> str | None:
    job = document["body"].get("job")
    return job if isinstance(job, str) else None
