"""Flink's checkpoints and savepoints, as a system."""

from __future__ import annotations

from typing import TYPE_CHECKING

from abscli.stores.base import Checked, Lives, Orphans, Owners, Progress, System, Visit, Words, unvisited
from formats.reference import NOTHING, ReadOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from abscli.diff.epochs import Besides
    from abscli.diff.state import Side
    from abscli.report.findings import StoreReport
    from abscli.stores.flink.glance import FlinkGlance
    from abscli.stores.flink.recovery import FlinkRecovery
    from abscli.stores.flink.rewriting.text_rewrite import FlinkRewritten
    from abscli.stores.flink.upgrading.text_upgrade import UpgradeReport
    from abscli.stores.recovery import JobFile
    from abscli.stores.removal import Collected, RemovalRequest
    from abscli.text.inspect_page import EpochPage, StorePage
    from abscli.text.validate import Advice
    from formats.flink.store import FlinkStore
    from formats.job.model import Topology
    from formats.storage import Storage
    from formats.view import CheckpointStore, Status


class Flink(System):
    """What a job of Flink leaves: its checkpoints, one of them, or a savepoint."""

    name = "flink"
    words = Words(
        title="Flink",
        store="Flink checkpoints",
        epoch="checkpoint",
        looked_for="chk-N, or _metadata (a checkpoint or savepoint of Flink)",
        lost_input="a restart goes on as the source's OffsetResetStrategy says: with the oldest record, with the "
        "newest, or (NONE) not at all",
    )
    options = frozenset({"search", "path_map", "uid", "type", "topology", "uids"})
    inside = ("_metadata",)

    def recognise(self, storage: Storage) -> bool:
        from formats.flink.files.layout import is_flink

        return is_flink(storage.root)

    def open(self, storage: Storage, options: ReadOptions) -> FlinkStore:
        from formats.flink.opening import open_flink

        return open_flink(storage, **options.given())

    def glance(self, storage: Storage) -> FlinkGlance | None:
        # To know that there is nothing of Flink's to offer costs no more than this.
        if not any(entry.name in self.inside or entry.name.startswith("chk-") for entry in storage.list("")):
            return None
        from abscli.stores.flink.glance import glance

        return glance(storage)

    def check(
        self, storage: Storage, epoch: int | str | None, *, quick: bool, progress: Progress,
        options: ReadOptions = NOTHING, visit: Visit = unvisited, job: JobFile | None = None,
    ) -> Checked:  # fmt: skip
        from abscli.stores.flink.check import check

        return check(storage, epoch, quick=quick, progress=progress, options=options, visit=visit)

    def recovery(self) -> FlinkRecovery:
        from abscli.stores.flink.recovery import FlinkRecovery

        return FlinkRecovery()

    def start_path(self, store: CheckpointStore, epoch: int) -> str:
        from formats.flink.store import FlinkStore
        from formats.storage import absolute

        assert isinstance(store, FlinkStore)
        home = store.home(epoch)
        root = absolute(store.storage.root)
        return f"{root}/{home}" if home else root

    def cannot_start(self, store: CheckpointStore, epoch: int) -> str | None:
        from abscli.stores.flink.jobs import cannot_start
        from formats.flink.store import FlinkStore

        assert isinstance(store, FlinkStore)
        return cannot_start(store, epoch)

    def lives(self, store: CheckpointStore, epoch: int) -> Lives | None:
        from abscli.stores.flink.jobs import lives
        from formats.flink.store import FlinkStore

        assert isinstance(store, FlinkStore)
        return lives(store, epoch)

    def orphans(self, stores: Sequence[CheckpointStore], reports: Sequence[StoreReport]) -> list[Orphans | None]:
        from abscli.stores.flink.jobs import orphans
        from formats.flink.store import FlinkStore

        return orphans([store for store in stores if isinstance(store, FlinkStore)])

    def collect(self, stores: Sequence[Storage], path: str, request: RemovalRequest) -> Collected:
        from abscli.stores.flink.removing.garbage import collect

        return collect(stores, path, request)

    def removal_text(
        self, collected: Collected, *, store: str, removed: bool, command: str, width: int, ascii: bool
    ) -> str:
        from abscli.stores.flink.removing.text_gc import text

        return text(collected, store=store, removed=removed, command=command, width=width)

    def compare(self, left: Side, right: Side) -> Besides:
        from abscli.stores.flink.diff import compare

        return compare(left, right)

    def output_again(
        self, epoch: int, newer: Mapping[int, Status], topology: Topology | None, policy: str | None
    ) -> list[str]:
        from abscli.stores.flink.text.resume import output_again

        return output_again(epoch, newer)

    def advice(self, job: str | None = None) -> Advice:
        from abscli.stores.flink.text.validate import MEANING, next_command
        from abscli.text.validate import Advice

        return Advice(self.words.store, next_command, MEANING, self.words.epoch)

    def store_text(self, page: StorePage, *, width: int, ascii: bool) -> str:
        from abscli.stores.flink.text.inspect import store_text

        return store_text(page, width=width, ascii=ascii)

    def epoch_text(self, page: EpochPage, *, width: int, ascii: bool) -> str:
        from abscli.stores.flink.text.inspect import epoch_text

        return epoch_text(page, width=width, ascii=ascii)

    def next_commands(self, page: StorePage, epoch: int | None) -> list[str]:
        from abscli.text.inspect import next_commands

        return next_commands(page, epoch, plan=False)

    def job_graph(self, data: bytes, file: str) -> Topology | None:
        from formats.flink.plan_json import is_plan, read_plan, topology

        return topology(read_plan(data, file)) if is_plan(data) else None

    def owners(self, store: CheckpointStore, epoch: int, file: str) -> Owners:
        from abscli.stores.flink.owners import of_file, owners
        from abscli.stores.flink.text.owners import OwnersPage
        from formats.flink.store import FlinkStore

        assert isinstance(store, FlinkStore)
        wanted = of_file(file)
        metadata = store.metadata(epoch)
        return OwnersPage(owners(metadata, wanted, store.names(metadata)), store.path, store.job, epoch, file)

    def rewrite(
        self, store: CheckpointStore, epoch: int, changes: str | None, layout: str | None, to: str | None, *,
        write: bool, progress: Callable[[int], None],
    ) -> FlinkRewritten:  # fmt: skip
        from abscli.stores.flink.rewriting.rewrite import rewrite
        from formats.flink.store import FlinkStore

        assert isinstance(store, FlinkStore)
        return rewrite(store, epoch, changes, layout, to, write=write, progress=progress)

    def upgrade(self, store: CheckpointStore, epoch: int, version: str, schema: str | None = None) -> UpgradeReport:
        from abscli.stores.flink.upgrading.upgrade import upgrade
        from formats.flink.store import FlinkStore

        assert isinstance(store, FlinkStore)
        return upgrade(store, epoch, version, schema)
