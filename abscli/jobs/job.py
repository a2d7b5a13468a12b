"""A job in Python: sources begin its streams, and it is the same job as its YAML."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Unpack

from abscli.engine.errors import UsageError
from abscli.jobs.document import read_drafts
from abscli.jobs.drafts import Drafts, Input
from abscli.jobs.durations import positive_seconds
from abscli.jobs.lines import caller
from abscli.jobs.streams import Marks, Stream, add_operator
from formats.durations import Duration, duration_text
from formats.job.changes import Changes
from formats.job.file import Check
from formats.job.file import Job as JobRead
from formats.job.model import Kind, Topology
from formats.job.written import job_yaml

__all__ = ("Job",)


class Job:
    """A job that is built in Python.

        from abscli import Job, count
        from mywords import split

        job = Job("wordcount", parallelism=2)
        lines = job.text("corpus/*.txt", id="lines")
        lines.flat_map(split).group_by("word").agg(n=count(), id="counts").to_jsonl("out")

    Functions are those of modules beside its file, or of the file itself: workers import them by name.
    """

    def __init__(self, name: str, *, parallelism: int | None = None, max_parallelism: int | None = None) -> None:
        """parallelism: tasks of every operator that says nothing else, 1 if left out; max_parallelism: key groups."""
        line, file = caller()
        directory = os.getcwd() if file is None else os.path.dirname(file)
        given = {"parallelism": parallelism, "max_parallelism": max_parallelism}
        marks = {key: value for key, value in given.items() if value is not None}
        self._drafts = Drafts(name, line, directory, marks)

    # -- sources ---------------------------------------------------------------------------------------------

    def text(
        self, path: str, *, follow: bool = False, every: Duration | None = None, **marks: Unpack[Marks]
    ) -> Stream:
        """The lines of files, in one column, `line`. path: with `*` for several, relative to the job's
        file; or a URI, as `s3://bucket/in/*.txt`.

        follow: go on with files and lines that come while the job runs, which does not end by itself then.
        every: from one look for them to the next; None: a second.
        """
        return self._source("text", _connector("text", path, _following(follow, every)), marks)

    def jsonl(
        self,
        path: str,
        *,
        schema: Mapping[str, str] | None = None,
        event_time: str | tuple[str, str] | None = None,
        delay: Duration | None = None,
        idle: Duration | None = None,
        ordered: bool = False,
        follow: bool = False,
        every: Duration | None = None,
        **marks: Unpack[Marks],
    ) -> Stream:
        """Files of JSON lines, a column for each key. schema: types by column; None: as in the first file.

        event_time: the column with the time of each row's event; or the column and its unit (s, ms, us, ns), if it
            counts time since 1970.
        delay: how much earlier than the latest before it that of a row may be.
        idle: after which a file without rows is not waited for.
        ordered: files follow each other in time.
        follow, every: as of `text`; the schema has to be given then.
        """
        connector = _connector("jsonl", path, _following(follow, every))
        if schema is not None:
            connector["schema"] = dict(schema)
        connector |= _event_time(event_time, delay, idle, ordered)
        return self._source("jsonl", connector, marks)

    def csv(
        self,
        path: str,
        *,
        schema: Mapping[str, str] | None = None,
        columns: Sequence[str] | None = None,
        delimiter: str = ",",
        header: bool = True,
        nulls: Sequence[str] = ("",),
        event_time: str | tuple[str, str] | None = None,
        delay: Duration | None = None,
        idle: Duration | None = None,
        ordered: bool = False,
        follow: bool = False,
        every: Duration | None = None,
        **marks: Unpack[Marks],
    ) -> Stream:
        """Files of CSV. A field may be quoted, and have lines' ends then.

        schema: types by column, of those that are wanted; None: as the first file has them.
        columns: in place of a schema, those that are wanted.
        delimiter: between fields, one character.
        header: whether the first line of each file names its columns; without it `schema` has one for each field.
        nulls: how an empty value is written, of columns that are no text.
        follow, every: as of `text`; the schema has to be given then.
        event_time, delay, idle, ordered: as of `jsonl`.
        """
        options = {
            "schema": None if schema is None else dict(schema),
            "columns": None if columns is None else list(columns),
            "delimiter": None if delimiter == "," else delimiter,
            "header": None if header else False,
            "nulls": None if tuple(nulls) == ("",) else list(nulls),
            **_following(follow, every),
            **_event_time(event_time, delay, idle, ordered),
        }
        return self._source("csv", _connector("csv", path, options), marks)

    def parquet(
        self,
        path: str,
        *,
        columns: Sequence[str] | None = None,
        event_time: str | tuple[str, str] | None = None,
        delay: Duration | None = None,
        idle: Duration | None = None,
        ordered: bool = False,
        follow: bool = False,
        every: Duration | None = None,
        **marks: Unpack[Marks],
    ) -> Stream:
        """Files of Parquet, whose columns have the types of the first file. columns: those that are wanted.

        follow, every: as of `text`; files have to come whole, by a rename.
        event_time, delay, idle, ordered: as of `jsonl`.
        """
        options = {
            "columns": None if columns is None else list(columns),
            **_following(follow, every),
            **_event_time(event_time, delay, idle, ordered),
        }
        return self._source("parquet", _connector("parquet", path, options), marks)

    def arrow(
        self,
        path: str,
        *,
        columns: Sequence[str] | None = None,
        event_time: str | tuple[str, str] | None = None,
        delay: Duration | None = None,
        idle: Duration | None = None,
        ordered: bool = False,
        follow: bool = False,
        every: Duration | None = None,
        **marks: Unpack[Marks],
    ) -> Stream:
        """Files of Arrow, with a footer (`.arrow`) or as a stream. columns: those that are wanted.

        follow, every: as of `text`; files have to come whole, by a rename.
        event_time, delay, idle, ordered: as of `jsonl`.
        """
        options = {
            "columns": None if columns is None else list(columns),
            **_following(follow, every),
            **_event_time(event_time, delay, idle, ordered),
        }
        return self._source("arrow", _connector("arrow", path, options), marks)

    def kafka(
        self,
        brokers: str,
        topic: str,
        *,
        schema: Mapping[str, str] | None = None,
        key: str | None = None,
        timestamp: str | None = None,
        start: Literal["earliest", "latest"] | None = None,
        follow: bool = False,
        config: str | None = None,
        event_time: str | tuple[str, str] | None = None,
        delay: Duration | None = None,
        idle: Duration | None = None,
        **marks: Unpack[Marks],
    ) -> Stream:
        """The records of a topic of Kafka, but those of transactions that are not committed.

        brokers: HOST:PORT, several with commas between.
        schema: columns of values that are JSON objects; None: one column, `value`, of their text.
        key, timestamp: columns for the text of each record's key, and for its time.
        start: where partitions begin of which no epoch has a position; None: at the oldest record.
        follow: go on with records and partitions that come while the job runs; else each is read to the end that it
        has when the job first starts.
        config: a file of further settings of librdkafka, `name=value` a line; relative to the job's file.
        event_time, delay, idle: as of `jsonl`; a partition is idle where the broker has no more records of it.
        """
        given = {"schema": None if schema is None else dict(schema), "key": key, "timestamp": timestamp,
                 "start": start, "follow": follow or None, "config": config}  # fmt: skip
        options: dict[str, object] = {name: value for name, value in given.items() if value is not None}
        options |= _event_time(event_time, delay, idle, ordered=False)
        return self._source("kafka", {"type": "kafka", "brokers": brokers, "topic": topic, **options}, marks)

    def nexmark(
        self,
        events: Literal["person", "auction", "bid"],
        *,
        total: int | None = None,
        rate: int | None = None,
        seed: int | None = None,
        out_of_order: int | None = None,
        event_time: str | tuple[str, str] | None = None,
        delay: Duration | None = None,
        idle: Duration | None = None,
        ordered: bool = False,
        **marks: Unpack[Marks],
    ) -> Stream:
        """A table of NEXMark's auctions. Tables of one total, rate and seed are of the same auctions.

        total: events of all three tables, of 50 one is a person, three are auctions, 46 bids; None: they do not end.
        rate: events a second of all three, also of event time; None: as fast as it goes, 10,000 a second of event time.
        seed: of what is random, from 1 on.
        out_of_order: of so many events, a multiple of 50, the order is another; None: they come as they happen.
        event_time, delay, idle, ordered: as of `jsonl`.
        """
        options = {"total": total, "rate": rate, "seed": seed, "out_of_order": out_of_order}
        given = {name: value for name, value in options.items() if value is not None}
        given |= _event_time(event_time, delay, idle, ordered)
        return self._source("nexmark", {"type": "nexmark", "events": events, **given}, marks)

    def generate(
        self,
        columns: Mapping[str, str | float],
        *,
        rows: int | None = None,
        rate: int | None = None,
        seed: int | None = None,
        event_time: str | tuple[str, str] | None = None,
        delay: Duration | None = None,
        idle: Duration | None = None,
        ordered: bool = False,
        **marks: Unpack[Marks],
    ) -> Stream:
        """Rows that are made of their numbers: `{"id": "row", "user": "row % 100", "price": "random(1000) / 100"}`.

        columns: an expression for each, of `row`, columns before it, numbers, 'text', `+ - * / // %`, comparisons,
        `random(n)`, `uniform()`, `choice('a', 'b')`, `text(...)` and `at('2026-01-01T00:00:00Z', seconds)`.
        rows: of all tasks; None: they do not end. rate: rows a second; None: as fast as it goes.
        seed: of what is random, from 1 on.
        event_time, delay, idle, ordered: as of `jsonl`.
        """
        options = {"rows": rows, "rate": rate, "seed": seed}
        given = {name: value for name, value in options.items() if value is not None}
        given |= _event_time(event_time, delay, idle, ordered)
        return self._source("generate", {"type": "generate", "columns": dict(columns), **given}, marks)

    def postgres(
        self,
        table: str,
        *,
        key: str | Sequence[str],
        url_env: str | None = None,
        service: str | None = None,
        schema: Mapping[str, str] | None = None,
        columns: Sequence[str] | None = None,
        follow: bool = False,
        every: Duration | None = None,
        **marks: Unpack[Marks],
    ) -> Stream:
        """Rows of a table of PostgreSQL, in order of a key that grows: `public.orders`, or `orders`.

        key: its column, or columns, which no two rows share: what is read from then on has a greater one.
        url_env: the environment variable with the URL of the database; service: of libpq's service file.
        schema: types by column, of those that are wanted; None: as the table has them.
        columns: in place of a schema, those that are wanted.
        follow: go on with rows that come while the job runs. every: from one look for them to the next; None: a second.

        Rows that are changed or deleted once they are read are not read again.
        """
        options = {
            "key": [key] if isinstance(key, str) else list(key),
            "url_env": url_env,
            "service": service,
            "schema": None if schema is None else dict(schema),
            "columns": None if columns is None else list(columns),
            **_following(follow, every),
        }
        given = {name: value for name, value in options.items() if value is not None}
        return self._source("postgres", {"type": "postgres", "table": table, **given}, marks)

    def _source(self, name: str, connector: dict[str, Any], marks: Mapping[str, object]) -> Stream:
        line, _ = caller()
        return Stream(self._drafts, (Input(add_operator(self._drafts, Kind.SOURCE, name, connector, (), marks, line)),))

    # -- since the last run ----------------------------------------------------------------------------------

    def moved(self, before: str, after: str) -> None:
        """The operator `before` of older epochs is `after` now: its state goes on there."""
        self._drafts.moved.append((caller()[0], before, after))

    def removed(self, id: str) -> None:
        """An operator of older epochs is gone: its state is dropped on purpose."""
        self._drafts.removed.append((caller()[0], id))

    # -- what it is ------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Its own."""
        return self._drafts.name

    @property
    def directory(self) -> str:
        """Of its file: where workers look for its functions, and what its paths are relative to."""
        return self._drafts.directory

    @property
    def topology(self) -> Topology:
        """Its graph; BadFile with all that is wrong."""
        return self.read().topology

    @property
    def changes(self) -> Changes:
        """What became of operators since the last run."""
        return self.read().changes

    def read(self, check: Check | None = None) -> JobRead:
        """Graph and changes, as of a job file; BadFile with all that is wrong. check: what else has to hold."""
        return read_drafts(self._drafts, check)

    def yaml(self) -> str:
        """The same job as a job file says it; the file has to lie where this one does."""
        return job_yaml(*self.read())

    def test(
        self,
        rows: Mapping[str, Iterable[str | Mapping[str, Any]]],
        *,
        keys: Mapping[str, Sequence[str]] | None = None,
        kills: int = 5,
        timeout: Duration = "1m",
    ) -> dict[str, list[dict[str, Any]]]:
        """Runs it on these rows, in place of what its sources read, and kills it: what its sinks show, by their ids.

        It runs in one batch and without a kill; in small batches; and twice more, while its process gets SIGKILL after
        every epoch, or after every other one, and another goes on from there. What the sinks show in the end has to be
        the same. Of sinks behind a `reduce` that is the last row of each key, of others every row.

        rows: by source: lines of text, or objects as of JSON lines.
        keys: by sink, columns whose last row counts, where that is not the key of the `reduce`; none: every row counts.
        kills: in each round, at most; 1 or more.
        timeout: for each of the attempts, seconds, "1m" or a timedelta.

        Nothing is left behind. Raises AssertionError that shows the rows that differ, and after which kill they came;
        BadFile, UsageError, JobFailed, EngineStopped.
        """
        from abscli.jobs.trial import try_source

        __tracebackhide__ = True  # what pytest shows of a test that fails is the user's own
        return try_source(self.read, self.directory, rows, keys or {}, kills, timeout)

    def __repr__(self) -> str:
        return f"Job({self.name!r}, {len(self._drafts.operators)} operators)"

    # -- in a notebook ---------------------------------------------------------------------------------------

    def _repr_svg_(self) -> str:
        from abscli.draw.topology_svg import topology_svg
        from abscli.graph.job_graph import JobGraph

        return topology_svg(JobGraph.of(self.topology))

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        from formats.user_file.mistakes import BadFile

        try:
            return {"image/svg+xml": self._repr_svg_(), "text/plain": repr(self)}
        except BadFile as error:  # a job in the making is shown nevertheless
            return {"text/plain": f"{self!r}, which is invalid so far:\n{error}"}


def _connector(type: str, path: str, options: Mapping[str, object]) -> dict[str, Any]:
    """With those options that say something."""
    return {"type": type, "path": path, **{name: value for name, value in options.items() if value is not None}}


def _following(follow: bool, every: Duration | None) -> dict[str, object]:
    """Of a source of files, as a file says it."""
    if every is not None and not follow:
        raise UsageError("every requires follow", hint="add follow=True")
    text = None if every is None else duration_text(positive_seconds("every", every))
    return {"follow": follow or None, "every": text}


def _event_time(
    column: str | tuple[str, str] | None, delay: Duration | None, idle: Duration | None, ordered: bool
) -> dict[str, Any]:
    """Of a source, as a file says it."""
    durations = {name: duration for name, duration in (("delay", delay), ("idle", idle)) if duration is not None}
    if column is None:
        if durations or ordered:
            raise UsageError("delay, idle and ordered require event time", hint="set event_time to the column that "
                "contains the time")
        return {}
    given = {name: duration_text(positive_seconds(name, duration)) for name, duration in durations.items()}
    named = {"column": column} if isinstance(column, str) else dict(zip(("column", "unit"), column, strict=True))
    return {"event_time": {**named, **given, **({"ordered": True} if ordered else {})}}
