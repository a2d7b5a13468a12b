"""Checkpoints of Spark's Structured Streaming, as a system."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from abscli.stores.base import Checked, OwnReader, Progress, System, Visit, Words, unvisited
from formats.reference import NOTHING, ReadOptions

if TYPE_CHECKING:
    from abscli.diff.epochs import Besides
    from abscli.diff.state import Side
    from abscli.stores.recovery import JobFile
    from abscli.stores.spark.glance import SparkGlance
    from abscli.stores.spark.recovery import SparkRecovery
    from abscli.text.inspect_page import EpochPage
    from abscli.text.validate import Advice
    from formats.job.model import Topology
    from formats.spark.store import SparkStore
    from formats.storage import Storage
    from formats.view import Status


class Spark(System):
    """What a streaming query of Spark leaves at its checkpointLocation."""

    name = "spark"
    words = Words(
        title="Spark",
        store="Spark checkpoints",
        epoch="batch",
        looked_for="offsets/ of a streaming query",
        graph="Operators, schemas and settings",
        lost_input="a restart fails where the query minds lost data (failOnDataLoss, as Spark does by default), and "
        "else goes on without those records",
    )
    options = frozenset({"deep", "engine"})

    def recognise(self, storage: Storage) -> bool:
        from formats.spark.checkpoint import is_spark

        return is_spark(storage)

    def open(self, storage: Storage, options: ReadOptions) -> SparkStore:
        from formats.spark.store import SparkStore

        return SparkStore(storage)

    def glance(self, storage: Storage) -> SparkGlance | None:
        from abscli.stores.spark.glance import glance

        return glance(storage)

    def check(
        self, storage: Storage, epoch: int | str | None, *, quick: bool, progress: Progress,
        options: ReadOptions = NOTHING, visit: Visit = unvisited, job: JobFile | None = None,
    ) -> Checked:  # fmt: skip
        from abscli.stores.spark.check import check

        return check(storage, epoch, quick=quick, progress=progress, visit=visit)

    def recovery(self) -> SparkRecovery:
        from abscli.stores.spark.recovery import SparkRecovery

        return SparkRecovery()

    def compare(self, left: Side, right: Side) -> Besides:
        from abscli.stores.spark.diff import compare

        return compare(left, right)

    def epoch_text(self, page: EpochPage, *, width: int, ascii: bool) -> str:
        from abscli.stores.spark.text.inspect import epoch_text

        return epoch_text(page, width=width, ascii=ascii)

    def output_again(
        self, epoch: int, newer: Mapping[int, Status], topology: Topology | None, policy: str | None
    ) -> list[str]:
        from abscli.stores.spark.text.resume import output_again

        return output_again(epoch, newer)

    def advice(self, job: str | None = None) -> Advice:
        from abscli.stores.spark.text.validate import MEANING, next_command
        from abscli.text.validate import Advice

        return Advice(self.words.store, next_command, MEANING, self.words.epoch)

    def own_reader(self, master: str, show: Callable[[str], None]) -> AbstractContextManager[OwnReader]:
        from abscli.stores.spark.reader import running

        return running(master, show)
