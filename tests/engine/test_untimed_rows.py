"""Records without a time, and those with which a sum of one of their windows overflows: left out, each written once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from abscli import try_job
from abscli.engine.failures import Failures
from abscli.engine.job import JobOptions, Outcome, run_job
from abscli.engine.operators.making import MakeState, in_memory, keyed_by, make_operator
from abscli.engine.sources.files import line_files
from abscli.engine.state.bounded_state import BoundedState
from abscli.engine.state.memory import StateMemory
from formats.ids import TaskId
from formats.job.file import parse_topology
from formats.job.model import Aggregate, Aggregation, Emit, Kind, Operator, Topology, Window, WindowKind
from formats.storage import open_writable
from formats.watermark import END
from tests.support.jobs.inline import STORE, stop_after
from tests.support.jobs.small import inline
from tests.support.objects.places import bucket_place
from tests.support.objects.servers import ObjectServer

BIG = 2**62
IS_UNTIMED = 7
"""Of these rows one in so many has no time."""
BIG_ONES = (1, 3)
"""The last digits of rows that are too much for one sum together."""
MIDNIGHT = datetime(2026, 1, 1)


class Kept:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def write(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.to_pylist()


def shown(folder: Path) -> list[dict[str, Any]]:
    lines = [line for part in sorted(folder.glob("part-*.jsonl")) for line in part.read_text().splitlines()]
    return [json.loads(line) for line in lines]


def run(topology: Topology, folder: Path, callbacks: dict[str, Any] | None = None, **more: object) -> Outcome:
    return run_job(topology, str(folder / STORE), inline(folder, **more), **(callbacks or {}))


MINUTE = 60_000_000
TIMED = pa.schema([("k", pa.string()), ("at", pa.timestamp("us")), ("v", pa.int64())])
WINDOWS = {
    "tumbling": Window("at", WindowKind.TUMBLING, 10 * MINUTE),
    "sliding": Window("at", WindowKind.SLIDING, 10 * MINUTE, every=5 * MINUTE),
    "session": Window("at", WindowKind.SESSION, 10 * MINUTE),
}


def windowed(
    rows: list[tuple[str, int | None, int]], kind: str, sizes: list[int], limit: int | None = None
) -> tuple[dict[tuple[str, int], tuple[int, int]], list[int]]:
    """By key and start in minutes the sum and the count, and the numbers of rows that failed. limit: of memory."""
    aggregates = (Aggregate("v", Aggregation.SUM, "v"), Aggregate("n", Aggregation.COUNT, "*"))
    operator = Operator(
        "sums", Kind.REDUCE, 1, 8, key=("k",), aggregates=aggregates, emit=Emit.EPOCH, window=WINDOWS[kind],
        on_error="skip",
    )  # fmt: skip
    kept = Kept()
    failures = Failures(TaskId("sums", 0), kept)
    make_state: MakeState = in_memory
    if limit is not None:
        key, expires = keyed_by(operator)
        make_state = lambda _: BoundedState(key, 8, StateMemory(limit), 3, expires=expires)  # noqa: E731
    reduce = make_operator(operator, TaskId("sums", 0), ".", make_state, failures)
    timed = [{"k": k, "at": None if minute is None else minute * MINUTE, "v": v} for k, minute, v in rows]
    batch = pa.RecordBatch.from_pylist(timed, TIMED)
    first, last = 0, {}
    for size in [*sizes, len(rows)]:
        with failures.during(1):
            if first < len(rows):
                assert reduce.process(batch.slice(first, size), first + 1) is None
        first += min(size, len(rows) - first)
        list(reduce.flush(0))
    for output in reduce.flush(END):
        for row in output.to_pylist():
            start = int(row["window_start"].replace(tzinfo=UTC).timestamp()) // 60
            last[row["k"], start] = row["v"], row["n"]
    assert reduce.state is not None
    assert reduce.state.rows == 0  # none is left of windows that only such records had begun
    assert all(row["error"] in ("NoTime", "Overflow") for row in kept.rows)
    for row in kept.rows:
        assert json.loads(row["record"])["v"] == rows[int(row["number"]) - 1][2]
    return last, sorted(int(row["number"]) for row in kept.rows)


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from([None, 1, 4, 7, 12]), st.sampled_from([BIG, -BIG, 1])),
        min_size=1, max_size=30,
    ),
    st.sampled_from(["tumbling", "sliding"]),
    st.lists(st.integers(1, 9), max_size=9),
)  # fmt: skip
def test_a_row_that_fails_in_one_of_its_windows_is_in_none(
    rows: list[tuple[str, int | None, int]], kind: str, sizes: list[int]
) -> None:
    sums: dict[tuple[str, int], tuple[int, int]] = {}
    failing = []
    for number, (key, minute, v) in enumerate(rows, 1):
        starts = [] if minute is None else [minute - minute % 10]
        if minute is not None and kind == "sliding":
            starts = [minute - minute % 5, minute - minute % 5 - 5]
        after = {(key, start): sums.get((key, start), (0, 0)) for start in starts}
        after = {window: (total + v, n + 1) for window, (total, n) in after.items()}
        if after and all(-(2**63) <= total < 2**63 for total, _ in after.values()):
            sums |= after
        else:
            failing.append(number)
    assert windowed(rows, kind, sizes) == (sums, failing)


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(0, 60), st.sampled_from([BIG, -BIG, 1])), min_size=1, max_size=30
    ),
    st.lists(st.integers(1, 9), max_size=9),
    st.sampled_from([None, 1]),
)  # fmt: skip
@example([("a", 1, BIG), ("a", 3, -BIG), ("a", 2, BIG)], [], None)  # in order of time a sum leaves 64 bits on the way
@example([("a", 1, BIG), ("a", 30, BIG), ("a", 11, -BIG), ("a", 21, -BIG)], [3, 1], 1)
def test_a_row_that_is_too_much_for_a_session_does_not_join_its_neighbours(
    rows: list[tuple[str, int, int]], sizes: list[int], limit: int | None
) -> None:
    sessions: dict[str, list[list[tuple[int, int]]]] = {"a": [], "b": []}
    failing = []
    for number, (key, minute, v) in enumerate(rows, 1):
        near = [one for one in sessions[key] if any(abs(minute - other) <= 10 for other, _ in one)]
        whole = [(minute, v), *(row for one in near for row in one)]
        if -(2**63) <= sum(v for _, v in whole) < 2**63:
            sessions[key] = [one for one in sessions[key] if one not in near] + [whole]
        else:
            failing.append(number)
    wanted = {
        (key, min(minute for minute, _ in one)): (sum(v for _, v in one), len(one))
        for key, several in sessions.items() for one in several
    }  # fmt: skip
    assert windowed(rows, "session", sizes, limit) == (wanted, failing)


def test_a_row_without_a_time_is_in_no_session() -> None:
    rows = [("a", 1, 3), ("a", None, 7), ("a", 4, 5), ("b", None, 1), ("a", 30, 2)]
    assert windowed(rows, "session", [2]) == ({("a", 1): (8, 2), ("a", 30): (2, 1)}, [2, 4])


POISONED = """version: 1
job: poisoned
operators:
  rows:
    source:
      type: jsonl
      path: rows/*.jsonl
      schema: {k: string, at: timestamp, v: int64, n: int64}
      event_time: {column: at, delay: 1m}
  others:
    source: {type: jsonl, path: rows/*.jsonl, schema: {k: string, at: timestamp, w: int64}, event_time: {column: at}}
  windows:
    from: rows
    reduce: {key: [k], v: {sum: v}, n: {count: "*"}}
    window: {time: at, sliding: 10m, every: 5m}
    on_error: {dead_letter: DEAD/windows}
  sessions:
    from: rows
    reduce: {key: [k], v: {sum: v}, n: {count: "*"}}
    window: {time: at, session: 2m}
    on_error: {dead_letter: DEAD/sessions}
  kept:
    from: rows
    reduce: {key: [k], n: {count: "*"}, emit: record}
    ttl: {time: at, after: 365d}
    on_error: {dead_letter: DEAD/kept}
  once:
    from: rows
    distinct: [n]
    ttl: {time: at, after: 365d}
    on_error: {dead_letter: DEAD/once}
  pairs:
    from: [rows, others]
    join: {key: [k], left: rows, time: at, within: {before: 0s, after: 0s}}
    on_error: {dead_letter: DEAD/pairs}
SINKS"""
OF_POISONED = ("windows", "sessions", "kept", "once", "pairs")


def write_poisoned(folder: Path, dead: str = "dead", rows: int = 240) -> Topology:
    """A row a minute; one in so many has no time, or is with another more than a sum can be."""
    (folder / "rows").mkdir()
    lines = []
    for n in range(1, rows + 1):
        at = None if not n % IS_UNTIMED else f"2026-01-01T{n // 60:02}:{n % 60:02}:00"
        lines.append(json.dumps({"k": "ab"[n % 2], "at": at, "v": BIG if n % 10 in BIG_ONES else 1, "n": n, "w": n}))
    (folder / "rows" / "a.jsonl").write_text("\n".join(lines) + "\n")
    sinks = "".join(f"  to_{id}: {{from: {id}, sink: {{type: jsonl, path: out/{id}}}}}\n" for id in OF_POISONED)
    (folder / "job.yaml").write_text(POISONED.replace("DEAD", dead).replace("SINKS", sinks))
    return parse_topology(folder / "job.yaml")


def check_poisoned(folder: Path, letters_of: Callable[[str], list[dict[str, Any]]], rows: int = 240) -> None:
    """Each record without a time is a letter of every operator, once; of two that are too much one is, of windows."""
    untimed = [n for n in range(1, rows + 1) if not n % IS_UNTIMED]
    for id in OF_POISONED:
        letters = letters_of(id)
        without = Counter(json.loads(row["record"]).get("n") for row in letters if row["error"] == "NoTime")
        sides = Counter(json.loads(row["record"]).get("n") for row in letters)
        if id == "pairs":  # both of its inputs have such rows
            assert sides == {**dict.fromkeys(untimed, 1), None: len(untimed)}
        else:
            assert without == dict.fromkeys(untimed, 1), id
        assert {row["operator"] for row in letters} == {id}
    over = [json.loads(row["record"])["n"] for row in letters_of("windows") if row["error"] == "Overflow"]
    assert sorted(over) == [n for n in range(1, rows + 1) if n % 10 == 3 and n % IS_UNTIMED and (n - 2) % IS_UNTIMED]
    wanted = Counter[tuple[str, int]]()
    for n in range(1, rows + 1):
        if n % IS_UNTIMED and n not in over:
            wanted.update({("ab"[n % 2], n - n % 5): 1, ("ab"[n % 2], n - n % 5 - 5): 1})
    got = {
        (row["k"], (datetime.fromisoformat(row["window_start"]) - MIDNIGHT) // timedelta(minutes=1)): row["n"]
        for row in shown(folder / "out" / "windows")
    }
    assert got == wanted
    timed = [n for n in range(1, rows + 1) if n % IS_UNTIMED]
    assert sorted(row["n"] for row in shown(folder / "out" / "once")) == timed
    assert len(shown(folder / "out" / "pairs")) == rows - len(untimed)


@pytest.mark.parametrize("chunk", [256, 1 << 20])
def test_poison_in_windows_is_a_dead_letter_once(tmp_path: Path, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_files, "CHUNK", chunk)
    run(write_poisoned(tmp_path), tmp_path)
    check_poisoned(tmp_path, lambda id: shown(tmp_path / "dead" / id))


def test_a_job_that_stops_and_goes_on_writes_each_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_files, "CHUNK", 256)
    topology = write_poisoned(tmp_path)
    callbacks, _ = stop_after(3)
    first = run(topology, tmp_path, callbacks, interval=0.005, pace=20)
    second = run(topology, tmp_path, from_epoch=first.epoch)
    check_poisoned(tmp_path, lambda id: shown(tmp_path / "dead" / id))
    untimed = sum(not n % IS_UNTIMED for n in range(1, 241))
    assert first.skipped["once"] + second.skipped["once"] == untimed
    assert 0 < first.skipped["once"] < untimed


def test_a_job_that_is_killed_writes_each_once(tmp_path: Path) -> None:
    """SIGKILL after every epoch, and other batches: `try_job` compares dead letters as it does sinks."""
    write_poisoned(tmp_path, rows=1)
    rows = [
        {"k": "a", "at": f"2026-01-01T00:{n:02}:00" if n % IS_UNTIMED else None, "v": BIG if n in (9, 11) else 1,
         "n": n, "w": n}
        for n in range(1, 31)
    ]  # fmt: skip
    trial = try_job(tmp_path / "job.yaml", {"rows": rows, "others": rows}, kills=3)
    failed = {id: sorted(json.loads(row["record"]).get("n") or 0 for row in trial[id]) for id in OF_POISONED}
    assert failed["windows"] == failed["sessions"] == [7, 11, 14, 21, 28]
    assert failed["pairs"] == [0, 0, 0, 0, 7, 14, 21, 28]
    assert failed["kept"] == failed["once"] == [7, 14, 21, 28]


def in_bucket(place: str) -> list[dict[str, Any]]:
    storage = open_writable(place)
    names = [entry.name for entry in storage.list("") if entry.size is not None and entry.name.startswith("part-")]
    return [json.loads(line) for name in names for line in storage.read(name).splitlines()]


@pytest.mark.minutes
def test_dead_letters_in_a_bucket_are_each_there_once(
    tmp_path: Path, s3: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_files, "CHUNK", 256)
    place = str(bucket_place(s3).root)
    topology = write_poisoned(tmp_path, dead=place)
    callbacks, _ = stop_after(3)
    first = run(topology, tmp_path, callbacks, interval=0.005, pace=20)
    run(topology, tmp_path, from_epoch=first.epoch)
    check_poisoned(tmp_path, lambda id: in_bucket(f"{place}/{id}"))


@pytest.mark.minutes
def test_dead_letters_on_spark_are_each_there_once_also_after_going_back(tmp_path: Path, spark: Any) -> None:
    topology = write_poisoned(tmp_path)
    options = JobOptions(str(tmp_path), "job.yaml", context=spark, interval=0.1, workers=1, pace=60, keep=None)
    run_job(topology, str(tmp_path / STORE), options)
    check_poisoned(tmp_path, lambda id: shown(tmp_path / "dead" / id))
    again = JobOptions(
        str(tmp_path), "job.yaml", context=spark, interval=0.1, workers=1, keep=None, from_epoch=1
    )
    run_job(topology, str(tmp_path / STORE), again)
    check_poisoned(tmp_path, lambda id: shown(tmp_path / "dead" / id))
