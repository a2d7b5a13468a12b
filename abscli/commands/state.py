"""`abs state`: the state itself."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from abscli.cli import exits
from abscli.cli.options import Engine, Master, OutputForm, Quiet, Ref, Verbose, at_least
from abscli.cli.output import Output, emit_json, emit_ndjson, emit_text, note, progress, width
from abscli.cli.reading import AS_TYPED, Reading, reads

if TYPE_CHECKING:
    import pyarrow as pa

    from abscli.api import Store
    from formats.errors import FormatError
    from formats.view import StateFacts

SHOWN = 40
"""Rows of a table unless --limit says otherwise."""

EXAMPLES = (
    ("abs state snapshots", "The states of the newest complete epoch; of a single one its first rows."),
    ("abs state snapshots@7 counts --key spark", "One key: only the row groups that can hold it are read."),
    ("abs state snapshots counts --where \"n >= 100 and word != spark\" -o ndjson", "Rows by their values."),
    ("abs state snapshots pairs --key module=os,reached=abc", "A key of two columns."),
    ("abs state snapshots counts --key spark --history", "What every epoch has of it, the newest first."),
    ("abs state snapshots counts --sort -n --limit 10", "The ten keys with the largest n."),
    ("abs state snapshots counts --out counts.parquet", "All rows to a file, for other tools:"),
    ("abs state savepoint-10d2f4-6792269b97e8 totals --state count", "Of several states of a Flink operator, one."),
    ("abs state savepoint-1 --all --out tables", "Every state to a Parquet file, in parallel."),
    ("abs state chk-7 totals --state count --place --where \"__key_group = 5\"", "What a key group of Flink's holds."),
    ("abs state chk-7 totals --state python-state-seen --type python-state-seen=long", "State that PyFlink wrote."),
    ("duckdb -c \"SELECT * FROM 'counts.parquet' ORDER BY n DESC LIMIT 10\"", "DuckDB."),
    ("python -c \"import polars; print(polars.read_parquet('counts.parquet'))\"", "Polars."),
    ("python -c \"import pandas; print(pandas.read_parquet('counts.parquet'))\"", "pandas."),
    ("spark-sql -e 'SELECT * FROM parquet.`counts.parquet` LIMIT 10'", "Spark."),
)
EXIT_STATUS = exits.status(
    3, 10, 12,
    _0="It was shown, if only to say that no row fits.",
    _2="A bad option, an unknown operator, state or column, or a value that is not of its column's type.",
    _3="A file that is needed is damaged. With --all: some state could not be written.",
)


@reads("type", "uid", "search", "path_map")
def state(
    ref: Ref,
    operator: Annotated[
        str | None,
        typer.Argument(metavar="OPERATOR", show_default=False, help="Whose state; left out where only one has any."),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option("--key", metavar="KEY", help="The row of this key: a value, or column=value,...; repeatable."),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option("--where", metavar="CONDITION",
                     help="Rows that satisfy it, such as \"n >= 10 and word = spark\"; repeatable: all of them."),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="N", parser=at_least(0),
                     help="At most this many rows; a table has 40 unless told."),
    ] = None,
    sort: Annotated[
        list[str] | None,
        typer.Option("--sort", metavar="COLUMN",
                     help="Rows by this column, the largest first with a - before it; repeatable: those alike by the "
                          "next."),
    ] = None,
    history: Annotated[
        bool,
        typer.Option("--history", help="What each complete epoch has of --key, the newest first; of PATH@7 up to 7."),
    ] = False,
    columns: Annotated[
        str | None, typer.Option("--columns", metavar="NAMES", help="Only these columns, by name, with commas.")
    ] = None,
    place: Annotated[
        bool, typer.Option("--place", help="Show where each row lies, too: its key group, and of Flink's its subtask.")
    ] = False,
    every: Annotated[
        bool, typer.Option("--all", help="All states, each to a Parquet file of its own in the folder --out.")
    ] = False,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="FILE", help="Write the rows to x.parquet, x.arrow, x.jsonl or x.csv."),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--state", metavar="NAME", help="Which state, where an operator has several.")
    ] = None,
    engine: Annotated[
        Engine,
        typer.Option("--engine", help="spark: ask Spark's own reader, of a Spark checkpoint; inline: no JVM."),
    ] = Engine.INLINE,
    master: Master = "local[*]",
    reading: Reading = AS_TYPED,
    output: OutputForm = Output.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Show the state that an epoch holds: keys and their values.

    Of several states without OPERATOR: which there are. A condition compares columns with values by =, !=, <, <=, >
    and >=, or tests them with 'in (a, b)' and 'is null'. The words and, or, not and parentheses join conditions. Text
    with spaces stands in single quotes, a column whose name is not a word in double ones. What a condition says of
    key columns decides which key groups and row groups are read. The columns __key_group and, of Flink's, __subtask are
    shown by --place, and can stand in --columns and conditions.

    Values are shown as the epoch has them: the newest row of a key. Digests are not checked here; 'abs validate' does.
    In JSON bytes are hex, times RFC 3339, decimals text, and "NaN", "Infinity" and "-Infinity" text as well, since null
    is another value; a condition can ask for them. What only a class of the job's own can read is shown as class,
    length and bytes; no class is loaded and nothing is unpickled.

    Messages of Protobuf, kept as bytes or by Kryo, are read by their descriptor: --type 'last=protobuf(FILE,
    shop.Order)', where FILE is what 'protoc --include_imports --descriptor_set_out=FILE' writes. What a message does
    not hold is null where its absence means something, else the default; fields that FILE does not name are left out.

    --history shows --key in all complete epochs, the newest first; of each only what can hold the key is read. __epoch,
    __triggered and __present stand before the columns of the state; an epoch that has no such key has a row without
    values. --sort orders all rows that fit before --limit takes the first; without --limit it needs memory for them.

    --all --out DIR writes every state, or those of OPERATOR, to a Parquet file of its own in a new folder, with the
    places of --place, key, namespace and value, in as many processes as there are processors. A state that cannot be
    read is named with the reason (exit 3), and the others are written.
    """
    from abscli.text import state as render
    from formats.select import find_state, with_places

    if every:
        others = {"--key": key, "--where": where, "--columns": columns, "--limit": limit is not None, "--state": name,
                  "--sort": sort, "--history": history}
        _check_all(out, [*(word for word, given in others.items() if given), *(["--engine"] * (engine != "inline"))])
    elif out is not None:
        from formats.query.export import check_ending

        check_ending(out)
    if history and (place or where or engine is not Engine.INLINE):
        other = "--place" if place else "--where" if where else "--engine"
        raise typer.BadParameter(f"means nothing with {other}", param_hint="'--history'")
    if history and not key:
        raise typer.BadParameter("goes with --key: name the key", param_hint="'--history'")
    store = reading.open(ref)
    store.check_options(engine=engine is not Engine.INLINE)
    if out is not None and not every:
        from formats.output_file import check_outside

        check_outside(out, store.path)
    epoch = store.resolve()
    if operator is not None:
        operator = store.view.operator_id(epoch, operator)
    states = store.states(operator, epoch=epoch)
    if operator is None and name is not None and len(named := [one for one in states if one.name == name]) == 1:
        operator = named[0].operator
    head = render.header(store.path, store.system.name, epoch, states)
    if every:
        assert out is not None
        _export(store, epoch, operator, out, output, head)
        return
    if operator is None and len(states) != 1 and not (history and not states):
        if key or where or columns or name or out:
            owners = ", ".join(dict.fromkeys(one.operator for one in states)) or "none"
            raise typer.BadParameter(f"name one of {owners}", param_hint="'OPERATOR'")
        _show_states(head, render.states_text(store.path, epoch, states, width()), output)
        return
    if history:
        wanted = store.newest_state(operator, name)
    else:
        wanted = find_state(states, operator or states[0].operator, name)
    head |= {"operator": wanted.operator, "state": wanted.name}
    if limit is None and output is Output.TABLE and out is None:
        limit = SHOWN
    names = None if columns is None else [column.strip() for column in columns.split(",")]
    if history:
        last = None if store.named in (None, "latest") else epoch
        trouble: list[FormatError] = []
        with progress() as show:
            show("reading epochs")
            table = store.history(wanted, key=key or (), columns=names, last=last, sort=sort or (),
                                  limit=None if limit is None else limit + 1, trouble=trouble)  # fmt: skip
        _show_rows(wanted, table.schema, iter(table.to_batches()), limit, out, output, head)
        if trouble:
            raise trouble[0]
        return
    with contextlib.ExitStack() as running:
        reader = None
        if engine is not Engine.INLINE:
            with progress() as show:
                reader = running.enter_context(store.own_reader(master, show))
        if place:
            names = with_places(store.view, epoch, wanted, names)
        rows = store.rows(wanted, key=key or (), where=where or (), columns=names, epoch=epoch, reader=reader)
        if sort:
            table = rows.sorted(sort, None if limit is None else limit + 1)
            _show_rows(rows.state, table.schema, iter(table.to_batches()), limit, out, output, head)
        else:
            _show_rows(rows.state, rows.schema, iter(rows), limit, out, output, head)


def _check_all(out: str | None, others: list[str]) -> None:
    if out is None:
        raise typer.BadParameter("goes with --out: name a new folder", param_hint="'--all'")
    if others:
        raise typer.BadParameter(f"writes whole states, for which {others[0]} means nothing", param_hint="'--all'")


def _export(
    store: Store, epoch: int, operator: str | None, folder: str, output: Output, head: dict[str, object]
) -> None:
    from abscli.text import state as render
    from abscli.text.columns import number

    written = []
    with progress() as show:
        for one in store.export(folder, operator, epoch=epoch):
            written.append(one)
            show(f"{len(written)} states, {number(sum(state.rows for state in written))} rows")
    written.sort(key=lambda one: (one.operator, one.state or ""))
    head |= {"out": folder, "count": sum(one.rows for one in written), "written": [one._asdict() for one in written]}
    if output is Output.TABLE:
        emit_text(render.exported_text(folder, written, width()))
    else:
        _emit(head, output)
    if any(one.file is None for one in written):
        raise typer.Exit(exits.FINDING)


def _show_rows(
    wanted: StateFacts, schema: pa.Schema, batches: Iterator[pa.RecordBatch], limit: int | None, out: str | None,
    output: Output, head: dict[str, object],
) -> None:  # fmt: skip
    from abscli.text import state as render

    schema, batches = render.with_moments(schema, batches)
    head["columns"] = render.described(schema)
    if out is not None:
        from formats.query.export import write_rows

        written = write_rows(out, schema, _limited(batches, limit))
        head |= {"count": written, "out": out}
        text = f"{written:,} rows of {wanted.operator} written to {out}"
        emit_text(text) if output is Output.TABLE else _emit(head, output)
        _note_opaque(wanted)
        return
    trouble: list[FormatError] = []
    items = render.row_items(_whole(_limited(batches, None if limit is None else limit + 1), trouble))
    if output is Output.NDJSON:
        head.pop("rows")
        emit_ndjson(head, ({"type": "row", "row": row} for row in itertools.islice(items, limit)))
        if trouble:
            raise trouble[0]
        return
    shown = list(items)
    if trouble and not shown:
        raise trouble[0]
    more = limit is not None and len(shown) > limit
    shown = shown[:limit]
    if output is Output.JSON:
        emit_json(head | {"count": len(shown), "more": more, "rows": shown})
    else:
        emit_text(render.rows_text(shown, schema, more, width()))
        _note_opaque(wanted)
    if trouble:
        raise trouble[0]


def _note_opaque(state: StateFacts) -> None:
    """Say what is missing from the rows, or is there as bytes alone."""
    if state.opaque:
        note(f"{state.operator} {state.name or ''}: {state.opaque}")


def _whole(batches: Iterator[pa.RecordBatch], trouble: list[FormatError]) -> Iterator[pa.RecordBatch]:
    """The batches up to the first that cannot be read; the error is kept until what was read has been shown."""
    from formats.errors import FormatError
    from formats.query.predicate import BadPredicate

    try:
        yield from batches
    except BadPredicate:
        raise
    except FormatError as error:
        trouble.append(error)


def _limited(batches: Iterator[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """The first rows."""
    if limit == 0:
        return
    left = limit
    for batch in batches:
        if left is not None and batch.num_rows >= left:
            yield batch.slice(0, left)
            return
        yield batch
        if left is not None:
            left -= batch.num_rows


def _show_states(head: dict[str, object], text: str, output: Output) -> None:
    if output is Output.TABLE:
        emit_text(text)
    elif output is Output.JSON:
        emit_json(head)
    else:
        states = head.pop("states")
        assert isinstance(states, list)
        emit_ndjson(head, ({"type": "state", **one} for one in states))


def _emit(head: dict[str, object], output: Output) -> None:
    emit_json(head) if output is Output.JSON else emit_ndjson(head)
