"""What a store holds, as its system reads it: which epoch is meant, states, their rows, and where their bytes are."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Self

import msgspec.structs

from abscli.api.rows import Rows
from abscli.api.shared import Texts, texts

if TYPE_CHECKING:
    import pyarrow as pa

    from abscli.stores.base import OwnReader, System
    from formats.errors import FormatError
    from formats.query.exported import Exported
    from formats.reference import ReadOptions
    from formats.statistics import StateStatistics
    from formats.storage import Storage
    from formats.view import CheckpointStore, StateFacts


class Contents:
    """What a store holds. It is read when something is asked.

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

    def refresh(self) -> Self:
        """The same store, as it is now: what was read of it before is forgotten.

        >>> first = run_job("job.yaml", "made", engine="inline", interval=None)
        >>> store = open_store("made")
        >>> store.latest == first.epoch
        True
        >>> second = run_job("job.yaml", "made", engine="inline", interval=None, resume=True)
        >>> store.refresh().latest == second.epoch > first.epoch
        True
        """
        self.__dict__.pop("view", None)
        return self

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

    def export(
        self, folder: str | os.PathLike[str], operator: str | None = None, *, epoch: int | str | None = None,
        workers: int | None = None,
    ) -> Iterator[Exported]:  # fmt: skip
        """Every state written to a Parquet file of its own, as it is done: with the key group of each row, and of Flink
        its subtask. A state that cannot be read says why, and the others are written.

        folder: a new one, or an empty one.
        operator: of this one alone.
        workers: processes that write; None: one for each processor, if there is enough to do.

        Raises NotFound, UnknownTask, BadExport, FormatError for a folder in the store.

        >>> [(state.operator, state.rows) for state in open_store("snapshots").export("tables")]
        [('seen', 12)]
        """
        from abscli.api.exporting import export_states
        from formats.output_file import check_outside
        from formats.query.export import new_folder

        check_outside(folder, self.path)
        number = self.resolve(epoch)
        states = self.states(operator, epoch=number)
        opened = self.path, self.system.name, self.options
        return export_states(opened, self.view, number, states, new_folder(os.fspath(folder)), workers)

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
        from formats.select import find_state, only_operator, selection_of

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
        return Rows(view, number, state, selection_of(state, texts(key), texts(where), columns))

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

    def history(
        self,
        operator: str | StateFacts | None = None,
        name: str | None = None,
        *,
        key: Texts,
        columns: Sequence[str] | None = None,
        last: int | None = None,
        sort: Texts = (),
        limit: int | None = None,
        trouble: list[FormatError] | None = None,
    ) -> pa.Table:
        """What each complete epoch has of a key, the newest first, of which only that is read: `__epoch`, `__triggered`
        and `__present`, then the columns of the state, which are null where the epoch has no such key.

        last: no epoch after this one.
        sort: by columns, the largest first with a `-` before it.
        limit: at most so many rows.
        trouble: gets what could not be read of an epoch, in place of its being raised.

        Raises NotFound, UnknownTask, BadPredicate, Damaged.

        >>> store = open_store("snapshots")
        >>> line = store.state("seen", epoch=2)["line"][0].as_py()
        >>> store.history("seen", key=line)["__epoch"].to_pylist()
        [4, 2, 1]
        """
        from formats.history import history, joined
        from formats.query.sorting import in_order, order_of

        if operator is None or isinstance(operator, str):
            state = self.newest_state(operator, name)
        else:
            state = operator
        faults: list[FormatError] = []
        tables = []
        for table in history(self.view, state, texts(key), columns, last=last, trouble=faults):
            tables.append(table)
            if not sort and limit is not None and sum(one.num_rows for one in tables) >= limit:
                break
        if faults and trouble is None:
            raise faults[0]
        if trouble is not None:
            trouble += faults
        if not tables and faults:
            raise faults[0]
        whole = joined(tables, self.path)
        if sort:
            return in_order(whole.to_batches(), whole.schema, [order_of(text) for text in texts(sort)], limit)
        return whole if limit is None else whole.slice(0, limit)

    def newest_state(self, operator: str | None = None, name: str | None = None) -> StateFacts:
        """One state, of the newest epoch that has it, up to the one that is meant.

        operator: None where only one has state. name: which, where the operator has several.

        Raises NotFound, UnknownTask with what the epoch that is meant has.
        """
        from formats.errors import UnknownTask

        meant = self.resolve()
        try:
            return self.rows(operator, name, epoch=meant).state
        except UnknownTask:
            # Every key of it may have been removed since.
            for number in reversed(self.view.complete_numbers()):
                if number < meant:
                    with suppress(UnknownTask):
                        return self.rows(operator, name, epoch=number).state
            raise

    def statistics(
        self, epoch: int | str | None = None, *, operator: str | None = None, ttl: float | None = None
    ) -> list[StateStatistics]:
        """Where the bytes of an epoch's state are: by state, task, key group and key, in bounded time.

        operator: of this one alone.
        ttl: seconds that state with a time to live lives: which share of it is expired.

        Raises NotFound, UnknownTask.

        >>> [(state.operator, state.method, state.rows) for state in open_store("snapshots").statistics()]
        [('seen', 'read', 12)]
        """
        number = self.resolve(epoch)
        owner = None if operator is None else self.view.operator_id(number, operator)
        return self.view.statistics(number, owner, ttl)
