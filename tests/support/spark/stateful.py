"""Queries that keep state of their own: `transformWithState` with rows or pandas, `applyInPandasWithState`.

They need protobuf and pandas. `python -m tests.support.spark.stateful FOLDER [NAME ...]` makes a checkpoint of each
kind, and `truth.json` with what Spark's reader returns.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from tests.support.spark import cases

ENCODING = "spark.sql.streaming.stateStore.encodingFormat"
ROCKS = {cases.PROVIDER: cases.ROCKS}
CHANGELOG = {**ROCKS, cases.CHANGELOG: "true"}
AVRO = {ENCODING: "avro"}
DAY = 86_400_000
"""Milliseconds of a day."""

ALL_TYPES = (
    "b boolean, by byte, sh short, l long, f float, d double, s string, bin binary, da date, ts timestamp, "
    "dec decimal(10,2), big decimal(30,5), st struct<a:int,b:string>, arr array<int>, arrs array<string>, "
    "m map<string,long>"
)
KEY = ("cast(id % 5 as long) g", "coalesce(b, by > 0) kb")
AVRO_TYPES = (
    "b boolean, l long, f float, d double, s string, bin binary, da date, ts timestamp, dec decimal(10,2), "
    "big decimal(30,5), st struct<a:int,b:string>, m map<string,long>"
)
"""Columns that Spark 4.3 writes as Avro and reads again: no bytes and shorts, and no null in an array."""
NESTED = (
    "count long, texts array<string>, more map<string,long>, pairs array<struct<a:int,w:string>>, "
    "by_word map<string,struct<a:int,numbers:array<int>>>, "
    "grid array<array<int>>, nested map<string,map<string,long>>"
)
OUTPUT = "g long, b boolean, n long, ids long, counted long, newest string"


def names_in(schema: str) -> list[str]:
    """Return the columns of a schema that has no comma and space within a type."""
    return [column.split()[0] for column in schema.split(", ")]


class Keeper(StatefulProcessor):
    """Keep of each key the newest row, a list of ids, and a map of counts; and a timer for each row.

    newest: the columns that are kept of the newest row, after a count of rows. ttl: milliseconds that state lives.
    timers: after how many milliseconds a timer goes off. more: whether there is a fourth state.
    """

    def __init__(
        self, newest: str = ALL_TYPES, *, ttl: int | None = None, timers: int | None = None, more: bool = False
    ) -> None:
        self._schema, self._ttl, self._timers, self._more = newest, ttl, timers, more
        self._columns, self._all = names_in(newest), newest in (ALL_TYPES, AVRO_TYPES)

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._newest = handle.getValueState("newest", f"n long, {self._schema}", self._ttl)
        self._ids = handle.getListState("ids", "id int, s string", self._ttl)
        counted = NESTED if self._all else "count long"
        self._counts = handle.getMapState("counts", "word string, odd int", counted, self._ttl)
        self._total = handle.getValueState("total", "total long") if self._more else None

    def close(self) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        yield Row(**self._keep(key, sorted((row.asDict() for row in rows), key=lambda row: row["id"]), timerValues))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
        yield Row(**self._forget(key, expiredTimerInfo.getExpiryTimeInMs()))

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        self._newest.update((initialState.n, *[None] * len(self._columns)))

    def _keep(self, key: Any, rows: list[dict[str, Any]], now: Any) -> dict[str, Any]:
        known = self._newest.get() if self._newest.exists() else None
        last = rows[-1]
        count = (known[0] if known else 0) + len(rows)
        self._newest.update((count, *(last[name] for name in self._columns)))
        self._ids.appendList([(row["id"], row["s"]) for row in rows])
        if len(list(self._ids.get())) > 6:
            self._ids.put([(row["id"], row["s"]) for row in rows])
        for row in rows:
            word = ((row["s"] or "none")[-1:], row["id"] % 2)
            before = self._counts.getValue(word)
            more = (before[0] if before else 0) + 1
            nested = _nested(word[0], row["id"], more) if self._all else ()
            self._counts.updateValue(word, (more, *nested))
            if row["id"] % 5 == 4:
                self._counts.removeKey(word)
            if self._timers is not None:
                at = row["ts"]
                begin = now.getCurrentProcessingTimeInMs() if self._ttl else (int(at.timestamp() * 1000) if at else 0)
                self._handle.registerTimer(begin + self._timers + row["id"])
        if self._total is not None:
            self._total.update((count,))
        ids = len(list(self._ids.get()))
        counted = sum(value[0] for _, value in self._counts.iterator())
        return {"g": key[0], "b": key[1], "n": count, "ids": ids, "counted": counted, "newest": last["s"]}

    def _forget(self, key: Any, expired: int) -> dict[str, Any]:
        n = self._newest.get()[0] if self._newest.exists() else -1
        if expired % 2:
            self._newest.clear()
        else:
            self._ids.clear()
        return {"g": key[0], "b": key[1], "n": n, "ids": -1, "counted": expired, "newest": None}


def _nested(word: str, id: int, more: int) -> tuple[Any, ...]:
    """Return values of the columns of NESTED after the first."""
    pairs = [(more, word), (None, None)]
    by_word = {word: (None, [more, 2])}
    return ["x", word], {"id": id, word: more}, pairs, by_word, [[1, more], []], {"a": {"b": more}}


class PandasKeeper(Keeper):
    """Do the same with pandas data frames."""

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        import pandas

        found = []
        for frame in rows:
            for row in frame.to_dict("records"):
                at = row["ts"]
                ts = None if pandas.isna(at) else at.to_pydatetime()
                text = None if pandas.isna(row["s"]) else row["s"]
                found.append({"id": int(row["id"]), "s": text, "ts": ts})
        found.sort(key=lambda row: row["id"])
        yield pandas.DataFrame([self._keep(key, found, timerValues)])

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
        import pandas

        yield pandas.DataFrame([self._forget(key, expiredTimerInfo.getExpiryTimeInMs())])

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        self._newest.update((int(initialState.at[0, "n"]), *[None] * len(self._columns)))


def counted(key: Any, frames: Iterator[Any], state: Any) -> Iterator[Any]:
    """Count the rows of a group, and forget it when its time is over."""
    import pandas

    n, text = state.get if state.exists else (0, None)
    if state.hasTimedOut:
        state.remove()
        yield pandas.DataFrame({"g": [key[0]], "b": [key[1]], "n": [-n], "text": [text]})
        return
    newest = 0
    for frame in frames:
        n += len(frame)
        text = f"{text}{len(frame)}" if text else str(len(frame))
        newest = max(newest, *(0 if pandas.isna(at) else int(at.timestamp() * 1000) for at in frame["ts"]))
    state.update((n, text))
    if _timed(state):
        state.setTimeoutTimestamp(max(newest, state.getCurrentWatermarkMs() + 1) + 3 * DAY)
    yield pandas.DataFrame({"g": [key[0]], "b": [key[1]], "n": [n], "text": [text]})


def _timed(state: Any) -> bool:
    return bool(state._timeout_conf == "EventTimeTimeout")


Stream = Callable[[Any, Any], Any]


def rows_with(keeper: Keeper, time: str, *, pandas: bool = False, initial: bool = False) -> Stream:
    """Build a query with `transformWithState`, in mode `NoTime`, `EventTime` or `ProcessingTime`."""

    def query(session: Any, stream: Any) -> Any:
        columns = ["s", "ts"] if pandas else names_in(ALL_TYPES)
        grouped = stream.withWatermark("ts", "2 days").selectExpr(*KEY, "id", *columns).groupBy("g", "kb")
        more = {}
        if initial:
            frame = session.createDataFrame([(g, None, 100 * g) for g in range(3)], "g long, kb boolean, n long")
            more["initialState"] = frame.groupBy("g", "kb")
        method = grouped.transformWithStateInPandas if pandas else grouped.transformWithState
        return method(keeper, OUTPUT, "Update", time, **more)

    return query


def groups(timeout: str) -> Stream:
    """Build a query with `applyInPandasWithState`."""

    def query(session: Any, stream: Any) -> Any:
        grouped = stream.withWatermark("ts", "2 days").selectExpr(*KEY, "ts").groupBy("g", "kb")
        output = "g long, b boolean, n long, text string"
        return grouped.applyInPandasWithState(counted, output, "n long, text string", "update", timeout)

    return query


@dataclass(frozen=True)
class Kind:
    """A query and its settings. then: the query that reads the last two of its files, after a restart."""

    query: Stream
    conf: dict[str, str] = field(default_factory=dict)
    then: Stream | None = None


PLAIN = "s string"
EVENTS = rows_with(Keeper(timers=3 * DAY), "EventTime")
EVENTS_AVRO = rows_with(Keeper(AVRO_TYPES, timers=3 * DAY), "EventTime")
LIVING = rows_with(Keeper(ttl=DAY, timers=DAY), "ProcessingTime")
LIVING_AVRO = rows_with(Keeper(AVRO_TYPES, ttl=DAY, timers=DAY), "ProcessingTime")
KINDS: dict[str, Kind] = {
    "tws_events": Kind(EVENTS, ROCKS),
    "tws_events_avro": Kind(EVENTS_AVRO, {**ROCKS, **AVRO}),
    "tws_events_changelog": Kind(EVENTS, CHANGELOG),
    "tws_ids_avro": Kind(EVENTS_AVRO, {**CHANGELOG, **AVRO, cases.IDS: "2"}),
    "tws_ttl": Kind(LIVING, CHANGELOG),
    "tws_ttl_avro": Kind(LIVING_AVRO, {**CHANGELOG, **AVRO}),
    "tws_expired": Kind(rows_with(Keeper(PLAIN, ttl=1), "ProcessingTime"), CHANGELOG),
    "tws_expired_avro": Kind(rows_with(Keeper(PLAIN, ttl=1), "ProcessingTime"), {**CHANGELOG, **AVRO}),
    "tws_pandas": Kind(rows_with(PandasKeeper(PLAIN, timers=3 * DAY), "EventTime", pandas=True), CHANGELOG),
    "tws_pandas_ttl_avro": Kind(
        rows_with(PandasKeeper(PLAIN, ttl=DAY, timers=DAY), "ProcessingTime", pandas=True), {**ROCKS, **AVRO}
    ),
    "tws_initial": Kind(rows_with(Keeper(PLAIN), "NoTime", initial=True), CHANGELOG),
    "tws_checksummed_avro": Kind(EVENTS_AVRO, {**CHANGELOG, **AVRO, cases.ROW_CHECKSUM: "true"}),
    "tws_added": Kind(rows_with(Keeper(PLAIN), "NoTime"), CHANGELOG, rows_with(Keeper(PLAIN, more=True), "NoTime")),
    "tws_removed": Kind(rows_with(Keeper(PLAIN, more=True), "NoTime"), CHANGELOG, rows_with(Keeper(PLAIN), "NoTime")),
    "tws_widened_avro": Kind(
        rows_with(Keeper("s string, by int"), "NoTime"), {**CHANGELOG, **AVRO},
        rows_with(Keeper("l long, s string, by long, m map<string,long>"), "NoTime"),
    ),
    "groups": Kind(groups("EventTimeTimeout")),
    "groups_rocks": Kind(groups("EventTimeTimeout"), ROCKS),
    "groups_ids": Kind(groups("NoTimeout"), {**CHANGELOG, cases.IDS: "2"}),
}


def go_on(session: Any, source: Path, checkpoint: Path, query: Stream) -> dict[int, Counter[str]]:
    """Run a query from its checkpoint until its input is read. Returns the rows of each batch that emits any.

    A query with timers or a time to live in processing time has a next batch at any time: it is stopped.
    """
    seen: dict[int, Counter[str]] = {}
    files = len(list(source.glob("*.parquet")))

    def sink(frame: Any, batch: int) -> None:
        if rows := Counter(str(row) for row in frame.collect()):
            seen[batch] = rows

    schema = cases.SCHEMA.replace("ym int", "ym interval year to month")
    stream = session.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(source))
    writer = query(session, stream).writeStream.foreachBatch(sink).outputMode("update")
    running = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    while not running.awaitTermination(0.05):
        if (checkpoint / f"commits/{files}").exists():  # one batch after that of the last file
            running.stop()
    return seen


def set_conf(session: Any, kind: Kind) -> None:
    """Set what a kind needs, and nothing that an earlier one needed."""
    session.conf.unset(ENCODING)
    cases.set_conf(session, kind.conf)


def add_inputs(session: Any, folder: Path, files: range, count: int = 12) -> None:
    """Add files to the input of a query, each with rows of its own."""
    source = folder / "input"
    source.mkdir(parents=True, exist_ok=True)
    for number in files:
        frame = session.createDataFrame(cases.rows(number * count, count), cases.SCHEMA)
        made = folder / f"made-{number}"
        columns = ["make_ym_interval(id, -1) ym" if name == "ym" else name for name in frame.columns]
        frame.selectExpr(*columns).coalesce(1).write.parquet(str(made))
        next(made.glob("part-*")).rename(source / f"b{number:03d}.parquet")


def make(session: Any, folder: Path, kind: Kind, files: int = 5) -> dict[int, Counter[str]]:
    """Make a checkpoint of a kind. Returns the rows that Spark emitted, by batch.

    A kind with another query at its end reads the last two files with that.
    """
    set_conf(session, kind)
    first = files - 2 if kind.then is not None else files
    add_inputs(session, folder, range(first))
    seen = go_on(session, folder / "input", folder / "checkpoint", kind.query)
    if kind.then is not None:
        add_inputs(session, folder, range(first, files))
        seen |= go_on(session, folder / "input", folder / "checkpoint", kind.then)
    return seen


def reads(session: Any, checkpoint: Path, batches: range) -> list[dict[str, Any]]:
    """Return what Spark's own reader says of each state of some batches, in the form of the test data."""
    from formats.spark.store import SparkStore
    from formats.storage import LocalStorage

    store = SparkStore(LocalStorage(checkpoint))
    out: list[dict[str, Any]] = []
    for batch in batches:
        for family in store.families(batch):
            options: dict[str, Any] = {"operatorId": 0, "batchId": batch}
            if family.kind == "timers" and (family.name or "").endswith("Timers_keyToTimestamp"):
                options["readRegisteredTimers"] = True
            elif family.kind in ("internal", "timers"):
                continue
            elif family.grouped:
                options["stateVarName"] = family.name
            try:
                out.append({"options": options, "rows": cases.read(session, checkpoint, **options)})
            except Exception as error:
                out.append({"options": options, "error": str(error)[:300]})
    return out


def main(folder: str, *names: str) -> None:
    """Make a checkpoint of each kind, or of those with these names, with what Spark says of it."""
    from pyspark.sql import SparkSession

    from abscli.engine.drivers.spark import start_context

    session = SparkSession(start_context("local[2]"))
    for name in names or KINDS:
        target = Path(folder) / name
        make(session, target, KINDS[name])
        checkpoint = target / "checkpoint"
        last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
        truth = {"reads": reads(session, checkpoint, range(max(0, last - 2), last + 1))}
        (target / "truth.json").write_text(json.dumps(truth, default=str))
        failed = [read["error"] for read in truth["reads"] if "error" in read]
        print(name, last, len(truth["reads"]), failed[:1], flush=True)  # noqa: T201
    session.stop()


if __name__ == "__main__":
    import sys

    main(*sys.argv[1:])
