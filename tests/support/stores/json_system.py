"""A fourth system, small and whole: a ledger is a folder of JSON files, one an epoch, with a digest of what it holds.

    ledger.json         {"job": "sums"}
    epoch-7.json        {"sha256": "...", "epoch": 7, "taken": "2026-01-02T03:04:07Z", "settings": {"codec": "none"},
                         "operators": [{"id": "totals", "tasks": 2, "key": ["word"], "rows": [{"word": "a", "n": 1}],
                                        "positions": [{"split": "a.txt", "offset": 12, "records": 3}]}]}

It is a system as any other: the tests put it into the table by one line, and nothing else knows that it is there.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from abscli.diff.epochs import Besides, TopologyDiff
from abscli.diff.state import Side
from abscli.report.findings import Code, EpochReport, Finding, StoreReport
from abscli.stores import registry
from abscli.stores.base import Checked, Progress, System, Visit, Words, unvisited
from abscli.stores.copying import check_folder, new_folder, roots
from abscli.stores.pinned import check_files, pin
from abscli.stores.reasons import NoPlan
from abscli.stores.recovery import JobFile, PlanRequest, Recovery, RestoreRequest, Watcher
from formats.errors import Damaged, FormatError, NotFound
from formats.ids import AnyChannelId, TaskId
from formats.plan import Body, Plan, Skipped
from formats.reference import NOTHING, ReadOptions
from formats.storage import Storage, absolute
from formats.view import (
    ChannelTable,
    CheckpointStore,
    EpochDetail,
    EpochFacts,
    FileFacts,
    OperatorFacts,
    Position,
    StateFacts,
    Status,
    TaskFacts,
)

LEDGER = "ledger.json"


class Entry(msgspec.Struct, frozen=True):
    """What one operator holds."""

    id: str
    tasks: int
    key: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]
    positions: tuple[Position, ...] = ()


class Epoch(msgspec.Struct, frozen=True):
    """What one file says."""

    sha256: str
    epoch: int
    taken: str
    settings: dict[str, str]
    operators: tuple[Entry, ...]


def file_of(epoch: int) -> str:
    return f"epoch-{epoch}.json"


def digest_of(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def write_epoch(folder: Path, epoch: int, counts: dict[str, int], *, offset: int, codec: str = "none") -> None:
    """An epoch of a job that counts words from one file."""
    source = {
        "id": "lines", "tasks": 1, "key": [], "rows": [],
        "positions": [{"split": "a.txt", "offset": offset, "records": sum(counts.values())}],
    }  # fmt: skip
    rows = [{"word": word, "n": n} for word, n in counts.items()]
    body = {
        "epoch": epoch, "taken": f"2026-01-02T03:04:{epoch:02d}Z", "settings": {"codec": codec},
        "operators": [source, {"id": "totals", "tasks": 2, "key": ["word"], "rows": rows}],
    }  # fmt: skip
    (folder / file_of(epoch)).write_text(json.dumps({"sha256": digest_of(body), **body}))


def write_store(folder: Path) -> Path:
    """A ledger of three epochs."""
    folder.mkdir(parents=True)
    (folder / LEDGER).write_text(json.dumps({"job": "sums"}))
    write_epoch(folder, 1, {"a": 1}, offset=2)
    write_epoch(folder, 2, {"a": 2, "b": 1}, offset=6)
    write_epoch(folder, 3, {"a": 2, "b": 4, "c": 1}, offset=14, codec="zstd")
    return folder


class JsonStore(CheckpointStore):
    """A ledger opened for reading."""

    format = "ledger"

    def __init__(self, storage: Storage) -> None:
        if storage.size(LEDGER) is None:
            raise NotFound(f"no ledger here: it has no {LEDGER}", path=storage.root)
        self.storage = storage

    @property
    def path(self) -> str:
        return self.storage.root

    @property
    def job(self) -> str | None:
        return str(json.loads(self.storage.read(LEDGER))["job"])

    def epoch_numbers(self) -> list[int]:
        names = (re.fullmatch(r"epoch-([0-9]+)\.json", entry.name) for entry in self.storage.list(""))
        return sorted(int(match[1]) for match in names if match)

    def read(self, epoch: int) -> Epoch:
        """NotFound; Damaged where the digest does not hold."""
        if epoch not in self.epoch_numbers():
            raise NotFound(f"no epoch {epoch}", path=self.path)
        data = self.storage.read(file_of(epoch))
        where = f"{self.path}/{file_of(epoch)}"
        try:
            body = json.loads(data)
            page = msgspec.convert(body, Epoch)
        except (ValueError, msgspec.ValidationError) as error:
            raise Damaged(f"is no epoch: {error}", path=where) from None
        if digest_of({name: value for name, value in body.items() if name != "sha256"}) != page.sha256:
            raise Damaged("its digest is another", path=where)
        return page

    def epochs(self) -> list[EpochFacts]:
        return [self._facts(epoch) for epoch in self.epoch_numbers()]

    def _facts(self, epoch: int) -> EpochFacts:
        size = self.storage.size(file_of(epoch))
        try:
            page = self.read(epoch)
        except Damaged as error:
            return EpochFacts(epoch, Status.DAMAGED, None, None, None, None, (), size, None, None, error.message)
        tasks = sum(operator.tasks for operator in page.operators)
        return EpochFacts(epoch, Status.COMPLETE, None, None, tasks, tasks, (), size, page.taken, None)

    def detail(self, epoch: int) -> EpochDetail:
        page = self.read(epoch)
        file = FileFacts(file_of(epoch), self.storage.size(file_of(epoch)), None, page.sha256)
        operators = [
            OperatorFacts(
                one.id, None, one.tasks, None, len(one.rows),
                tuple(
                    TaskFacts(TaskId(one.id, i), (file,), None, one.positions if i == 0 else None, None, None)
                    for i in range(one.tasks)
                ),
            )
            for one in page.operators
        ]  # fmt: skip
        return EpochDetail(self._facts(epoch), tuple(operators), ChannelTable())

    def states(self, epoch: int) -> list[StateFacts]:
        return [
            StateFacts(one.id, None, "keyed", one.key, len(one.rows), None)
            for one in self.read(epoch).operators
            if one.key
        ]

    def state(self, epoch: int, operator: str, name: str | None = None) -> Iterator[pa.RecordBatch]:
        for one in self.read(epoch).operators:
            if one.id == operator and one.rows:
                yield pa.RecordBatch.from_pylist(list(one.rows))

    def log(self, epoch: int, channel: AnyChannelId) -> Iterator[pa.RecordBatch]:
        raise NotFound(f"no log of channel {channel}: a ledger keeps none", path=self.path)

    def raw(self, epoch: int, counted: str | None = None) -> dict[str, Any]:
        return {"settings": self.read(epoch).settings}


class LedgerPlan(Body, frozen=True, kw_only=True):
    """The epoch that a copy ends with, and why not a newer one."""

    epoch: int
    skipped: tuple[Skipped, ...]


class LedgerRestored(msgspec.Struct, frozen=True):
    """What was written."""

    to: str
    files: int


class JsonRecovery(Recovery[JsonStore, LedgerPlan, LedgerRestored]):
    """Planning and restoring of ledgers: a copy that ends with the plan's epoch."""

    words = "a ledger"
    body = LedgerPlan
    lists: Mapping[str, str] = MappingProxyType({"skipped": "newer"})

    def plan(self, store: JsonStore, request: PlanRequest, watch: Watcher) -> Plan[LedgerPlan] | NoPlan:
        skipped: list[Skipped] = []
        for epoch in reversed(store.epoch_numbers()):
            if request.epoch in (None, epoch):
                try:
                    store.read(epoch)
                except Damaged as error:
                    skipped.append(Skipped(epoch, error.message))
                else:
                    files = [LEDGER, *(file_of(n) for n in store.epoch_numbers() if n <= epoch)]
                    return Plan(
                        system=JsonSystem.name, created="2026-01-02T03:05:00Z", store=absolute(store.path),
                        read=request.read, body=LedgerPlan(epoch=epoch, skipped=tuple(skipped)),
                        relies_on=tuple(pin(store.storage, file) for file in files),
                    )  # fmt: skip
        return NoPlan("no epoch is whole", store.path)

    def check_plan(self, plan: Plan[LedgerPlan], store: JsonStore) -> None:
        check_files(plan, store.storage)

    def sources(self, store: JsonStore) -> list[str]:
        return roots(store.storage)

    def restore(
        self, plan: Plan[LedgerPlan], store: JsonStore, request: RestoreRequest, watch: Watcher
    ) -> LedgerRestored:
        assert request.to is not None
        to = check_folder(request.to, roots(store.storage))
        with new_folder(to) as folder:
            for pinned in plan.relies_on:
                folder.copy(store.storage, pinned.path, pinned=(plan, pinned))
        return LedgerRestored(to, folder.files)

    def text(self, plan: Plan[LedgerPlan], *, width: int, plan_file: str | None, job: str | None) -> str:
        lines = [f"Plan for {plan.store}: a copy that ends with epoch {plan.body.epoch}"]
        return "\n".join([*lines, *(f"epoch {one.epoch} {one.reason}" for one in plan.body.skipped)]) + "\n"

    def restored_text(
        self, plan: Plan[LedgerPlan], restored: LedgerRestored, request: RestoreRequest, *, width: int
    ) -> str:
        return f"copied {restored.files} files to {restored.to}"

    def restored_json(self, plan: Plan[LedgerPlan], restored: LedgerRestored) -> dict[str, Any]:
        return {"epoch": plan.body.epoch, "to": restored.to, "files": restored.files}


class JsonSystem(System):
    """Ledgers."""

    name = "ledger"
    words = Words(title="Ledger", store="Ledger", looked_for=LEDGER, graph="Settings")

    def recognise(self, storage: Storage) -> bool:
        return storage.size(LEDGER) is not None

    def open(self, storage: Storage, options: ReadOptions) -> JsonStore:
        return JsonStore(storage)

    def check(
        self, storage: Storage, epoch: int | str | None, *, quick: bool, progress: Progress,
        options: ReadOptions = NOTHING, visit: Visit = unvisited, job: JobFile | None = None,
    ) -> Checked:  # fmt: skip
        store = JsonStore(storage)
        number = None if epoch is None else store.resolve(epoch)
        reports = []
        for one in store.epoch_numbers():
            if number in (None, one):
                reports.append(self._report(store, one))
                visit(store, one)
        restorable = tuple(report.epoch for report in reports if report.whole)
        return Checked(StoreReport(tuple(reports), (), (Code.CONSERVATION,), restorable), store.job, number)

    def _report(self, store: JsonStore, epoch: int) -> EpochReport:
        try:
            page = store.read(epoch)
        except FormatError as error:
            finding = Finding(Code.DIGEST_MISMATCH, None, None, file_of(epoch), error.message)
            return EpochReport(epoch, Status.DAMAGED, (finding,), ())
        return EpochReport(epoch, Status.COMPLETE, (), (), triggered=page.taken)

    def recovery(self) -> JsonRecovery:
        return JsonRecovery()

    def compare(self, left: Side, right: Side) -> Besides:
        assert isinstance(left.store, JsonStore)
        assert isinstance(right.store, JsonStore)
        before, after = left.store.read(left.epoch).settings, right.store.read(right.epoch).settings
        return Besides([
            TopologyDiff("setting", name, before.get(name), after.get(name), "a restart takes the first's")
            for name in sorted({*before, *after})
            if before.get(name) != after.get(name)
        ])  # fmt: skip


def put_into_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more line in the table of systems, for one test."""
    importlib.import_module("abscli.cli.reading")  # it takes the choices of --format from the table for good
    monkeypatch.setattr(registry, "SYSTEMS", (*registry.SYSTEMS, JsonSystem()))
