"""`abs state`: the state itself."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from abscli.cli import exits
from abscli.cli.options import ANY_FILE, CHOSEN_FILE, Engine, Force, Master, OutputForm, Quiet, Ref, Verbose, at_least
from abscli.cli.output import Output, emit_json, emit_ndjson, emit_text, note, progress, width
from abscli.cli.reading import AS_TYPED, Reading, reads

if TYPE_CHECKING:
    import pyarrow as pa

    from abscli.api import Store
    from formats.errors import FormatError
    from formats.output_file import OutputFile
    from formats.view import StateFacts

SHOWN = 40
"""Rows of a table unless --limit says otherwise."""

EXAMPLES = (
    ("abs state snapshots@7 counts --key spark", "Shows one key; only the row groups that can have it are read."),
    ('abs state snapshots counts --where "n >= 100" --out counts.parquet',
     "Writes the rows with large values to a file."),
)
EXIT_STATUS = exits.status(
    3, 10, 12,
    _0="The rows were shown, also if there are none.",
    _2="Usage: invalid option, operator, state or column, or a wrong type.",
    _3="A file that is needed is damaged, or --all skipped a state.",
)
SEE_ALSO = ("inspect", "diff")
GUIDE = "operations/query.md"


@reads("type", "uid", "search", "path_map")
def state(
    ref: Ref,
    operator: Annotated[
        str | None,
        typer.Argument(metavar="OPERATOR", show_default=False, help="Operator; optional if only one has state."),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option("--key", metavar="KEY", help="Key to look up, or column=value,...; repeatable."),
        ANY_FILE,
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option("--where", metavar="CONDITION",
                     help="Condition on rows, such as n >= 10; repeatable."),
        ANY_FILE,
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="N", parser=at_least(0),
                     help="Maximum number of rows (default for tables: 40)."),
        ANY_FILE,
    ] = None,
    sort: Annotated[
        list[str] | None,
        typer.Option("--sort", metavar="COLUMN",
                     help="Sort by COLUMN, or descending by -COLUMN."),
        ANY_FILE,
    ] = None,
    history: Annotated[
        bool,
        typer.Option("--history", help="Show the rows of --key in all complete epochs."),
        ANY_FILE,
    ] = False,
    columns: Annotated[
        str | None, typer.Option("--columns", metavar="NAMES", help="Show only these columns, comma-separated."),
        ANY_FILE,
    ] = None,
    place: Annotated[
        bool, typer.Option("--place", help="Also show key group and subtask."),
        ANY_FILE,
    ] = False,
    every: Annotated[
        bool, typer.Option("--all", help="Write every state to Parquet files in --out."), ANY_FILE
    ] = False,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="FILE", help="Write rows to a .parquet, .arrow, .jsonl or .csv file."),
        CHOSEN_FILE,
    ] = None,
    force: Force = False,
    name: Annotated[
        str | None, typer.Option("--state", metavar="NAME", help="Name of the state, if the operator has several."),
        ANY_FILE,
    ] = None,
    engine: Annotated[
        Engine,
        typer.Option("--engine", help="Read with Spark, or in this process."),
        CHOSEN_FILE,
    ] = Engine.INLINE,
    master: Master = "local[*]",
    reading: Reading = AS_TYPED,
    output: OutputForm = Output.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Query the state of an epoch: keys and values.

    Without OPERATOR it lists the states, or shows the rows of the only one. --key selects a key, --where selects
    rows by a condition, and --history shows a key in all epochs. Conditions on key columns limit what is read.
    --out writes all rows to a file, and --all --out DIR writes every state. State of Flink and Spark is read without
    a JVM; no class is loaded and nothing is unpickled. Nothing is changed, and checksums are not verified: use
    'abs validate' for that.
    """
    from abscli.text import state as render
    from formats.select import find_state, with_places

    if every:
        others = {"--key": key, "--where": where, "--columns": columns, "--limit": limit is not None, "--state": name,
                  "--sort": sort, "--history": history}
        _check_all(out, [*(word for word, given in others.items() if given), *(["--engine"] * (engine != "inline"))])
    file: OutputFile | None = None
    if out is not None and not every:
        from formats.query.export import rows_file

        file = rows_file(out, force=force)
        file.check()  # before the store is read, which may take minutes
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
        _show_rows(wanted, table.schema, iter(table.to_batches()), limit, file, output, head)
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
            _show_rows(rows.state, table.schema, iter(table.to_batches()), limit, file, output, head)
        else:
            _show_rows(rows.state, rows.schema, iter(rows), limit, file, output, head)


def _check_all(out: str | None, others: list[str]) -> None:
    if out is None:
        raise typer.BadParameter("goes with --out: specify a new directory", param_hint="'--all'")
    if others:
        raise typer.BadParameter(f"it writes all states completely: remove {others[0]}", param_hint="'--all'")


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
    wanted: StateFacts, schema: pa.Schema, batches: Iterator[pa.RecordBatch], limit: int | None,
    file: OutputFile | None, output: Output, head: dict[str, object],
) -> None:  # fmt: skip
    from abscli.text import state as render

    schema, batches = render.with_moments(schema, batches)
    head["columns"] = render.described(schema)
    if file is not None:
        from formats.query.export import write_rows

        written = write_rows(file, schema, _limited(batches, limit))
        head |= {"count": written, "out": file.path}
        text = f"{written:,} rows of {wanted.operator} written to {file.path}"
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
