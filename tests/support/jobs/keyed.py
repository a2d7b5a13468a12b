"""A keyed `process` without a job around it, and a dict that does the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from abscli import KeyedBatch, Result, per_key
from abscli.engine.failures import Failures, taken_by
from abscli.engine.operators.keyed_process import KeyedProcess
from abscli.engine.operators.making import keyed_by
from abscli.engine.state.bounded_state import BoundedState
from abscli.engine.state.contract import State
from abscli.engine.state.keyed_state import KeyedState
from abscli.engine.state.memory import StateMemory
from formats.ids import TaskId
from formats.job.model import Keeping, Kind, Operator, Ttl
from formats.native.state.tables import DUE, decode_state, encode_tables
from formats.watermark import END

START = datetime(2026, 1, 1)
SCHEMA = pa.schema([("user", pa.string()), ("at", pa.timestamp("us")), ("amount", pa.int64())])
COLUMNS = (("count", "int64"), ("total", "int64"), ("last_at", "timestamp"), ("note", "string"))
KEEPING = Keeping(COLUMNS, "at")
SILENT = timedelta(seconds=10)


def moment(second: int) -> datetime:
    return START + timedelta(seconds=second)


def microseconds(second: int) -> int:
    return int((moment(second) - datetime(1970, 1, 1)).total_seconds() * 1_000_000)


def batch_of(rows: list[tuple[str | None, int, int]]) -> pa.RecordBatch:
    return pa.record_batch(
        [[user for user, _, _ in rows], [moment(second) for _, second, _ in rows], [amount for _, _, amount in rows]],
        schema=SCHEMA,
    )


def made(
    function: Callable[[KeyedBatch], Any], state: State | None = None, keeping: Keeping = KEEPING,
    ttl: Ttl | None = None, failures: Failures | None = None,
) -> KeyedProcess:  # fmt: skip
    more = {} if ttl is None else {"ttl": ttl}
    operator = Operator("track", Kind.PROCESS, 1, 32, function="m:f", key=("user",), keeping=keeping, **more)
    key, expires = keyed_by(operator)
    state = state or KeyedState(key, 32, expires=expires)
    return KeyedProcess(operator, TaskId("track", 0), state, function, failures)


# -- a dict that does the same -------------------------------------------------------------------------------------


@per_key({"user": "string", "what": "string", "count": "int64", "at": "timestamp"})
def track(key: Any, row: Any, state: Any, timer: Any) -> Result:
    """Two alarms for a user who is silent, the second one ends it; every third row is put out, and 13 ends it, too."""
    if row is None:
        out = {**key, "what": f"silent {state['note']}", "count": state["count"], "at": timer}
        if state["note"] == "twice":
            return Result(None, [out])
        return Result({**state, "note": "twice"}, [out], timer + SILENT)
    if row["amount"] == 13:
        return Result(None, [{**key, "what": "unlucky", "count": None, "at": row["at"]}])
    before = state or {"count": 0, "total": 0}
    count, total = before["count"] + 1, before["total"] + row["amount"]
    state = {"count": count, "total": total, "last_at": row["at"], "note": "once"}
    rows = [{**key, "what": "third", "count": state["count"], "at": row["at"]}] if state["count"] % 3 == 0 else []
    return Result(state, rows, row["at"] + SILENT)


Kept = tuple[dict[str, Any], datetime | None] | None
"""A key's state and timer."""


@dataclass
class Model:
    """Of the same, one row at a time. call: the function of one row. failed: rows on which it raises, and times of
    timers, each with its key."""

    call: Callable[..., Result] = field(default_factory=lambda: plain_track)
    states: dict[Any, tuple[dict[str, Any], datetime | None]] = field(default_factory=dict)
    out: list[dict[str, Any]] = field(default_factory=list)
    failed: list[tuple[Any, datetime, int | None]] = field(default_factory=list)
    _before: tuple[Kept, int] = (None, 0)

    def take(self, user: Any, second: int, amount: int) -> None:
        self._before = self.states.get(user), len(self.out)
        self.fire(user, moment(second))
        state, timer = self.states.get(user, (None, None))
        try:
            self._call(user, {"user": user, "at": moment(second), "amount": amount}, state, timer)
        except ValueError:
            # As if it had never come: what its time has let fire fires later.
            self.failed.append((user, moment(second), amount))
            before, shown = self._before
            del self.out[shown:]
            self.states.pop(user, None)
            if before is not None:
                self.states[user] = before

    def fire(self, user: Any, until: datetime | None) -> None:
        while user in self.states:
            state, timer = self.states[user]
            if timer is None or (until is not None and timer > until):
                return
            try:
                self._call(user, None, state, timer)
            except ValueError:
                self.failed.append((user, timer, None))
                self.states[user] = state, None
                self._before = self.states[user], len(self.out)

    def advance(self, until: datetime | None) -> None:
        for user in list(self.states):
            self.fire(user, until)

    def _call(self, user: Any, row: Any, state: Any, timer: Any) -> None:
        result = self.call({"user": user}, row, state, timer)
        self.out += [dict(row) for row in result.rows]
        if result.state is None:
            self.states.pop(user, None)
        else:
            self.states[user] = dict(result.state), result.timer


plain_track: Callable[..., Result] = track.__wrapped__  # type: ignore[attr-defined]


class Run:
    """The operator under a limit of memory (None: none), and what comes out of it."""

    def __init__(
        self, limit: int | None, function: Callable[[KeyedBatch], Any] = track, failures: Failures | None = None
    ) -> None:
        self.failures = failures
        self.memory = None if limit is None else StateMemory(limit)
        self.function = function
        self.epoch = self.records = 0
        self.files: list[bytes] = []
        self.out: list[dict[str, Any]] = []
        self.operator = self._made()

    def _made(self) -> KeyedProcess:
        state = None
        if self.memory is not None:
            key, expires = keyed_by(made(self.function)._operator)
            state = BoundedState(key, 32, self.memory, 3, expires=expires)
        return made(self.function, state, failures=self.failures)

    @property
    def state(self) -> State:
        assert self.operator.state is not None
        return self.operator.state

    def take(self, rows: list[tuple[str | None, int, int]]) -> None:
        with taken_by(self.failures, self.epoch + 1):
            shown = self.operator.process(batch_of(rows), self.records + 1)
        self.records += len(rows)
        self.out += shown.to_pylist() if shown is not None else []

    def barrier(self, watermark: int | None) -> None:
        with taken_by(self.failures, self.epoch + 1):
            for shown in self.operator.flush(watermark):
                self.out += shown.to_pylist()
        self.epoch += 1
        copy = self.state.copy(self.epoch, self.epoch - 1)
        if copy is not None:
            self.files.append(encode_tables(copy.tables(), self.state.keyed_by, in_key_order=copy.in_key_order))
        self.state.forget(self.epoch)

    def restart(self) -> None:
        watermark = self.operator.watermark
        self.state.close()
        self.operator = self._made()
        self.operator.watermark = watermark
        for data in self.files:
            self.state.load(decode_state(data, "f"))
        self.epoch = 0
        self.state.end_interval(0)
        self.state.forget(0)

    def rows(self) -> dict[Any, dict[str, Any]]:
        """Of the state, by user, as the files have it."""
        rows: dict[Any, dict[str, Any]] = {}
        for data in self.files:
            for row in decode_state(data, "f").to_pylist():
                rows[row["user"]] = row
        return {user: row for user, row in rows.items() if row[DUE] is not None}


def text(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(str(row) for row in rows)


Steps = list[tuple[str, list[tuple[str | None, int, int]]]]


def steps(users: Sequence[str | None], amounts: Sequence[int]) -> st.SearchStrategy[Steps]:
    """Rows (user, seconds later, amount), barriers and restarts."""
    row = st.tuples(st.sampled_from(users), st.integers(0, 15), st.sampled_from(amounts))
    step = st.tuples(
        st.sampled_from(["rows", "rows", "rows", "barrier", "restart"]), st.lists(row, min_size=1, max_size=12)
    )
    return st.lists(step, max_size=14)


def play(steps: Steps, model: Model, runs: Sequence[Run], compare: Callable[[Run], None]) -> None:
    """The steps for all of them, to the end of event time: rows come up to 15 seconds out of order, and none behind a
    watermark. compare: what is to hold of each run after a barrier."""
    second = 0
    for what, rows in steps:
        if what == "rows":
            moved = [(user, second + later, amount) for user, later, amount in rows]
            for row in moved:
                model.take(*row)
            for run in runs:
                run.take(moved)
            second += 7
            continue
        model.advance(moment(second))
        for run in runs:
            run.barrier(microseconds(second))
            if what == "restart":
                run.restart()
            compare(run)
            assert run.state.rows == len(model.states)
    model.advance(None)
    for run in runs:
        run.barrier(END)
