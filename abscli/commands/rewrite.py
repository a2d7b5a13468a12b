"""`abs rewrite`: a changed copy of a checkpoint."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from abscli.cli import exits
from abscli.cli.options import OutputForm, Quiet, Ref, Verbose
from abscli.cli.output import Output
from abscli.cli.reading import AS_TYPED, Reading, reads

EXAMPLES = (
    ("abs rewrite savepoint-1 --changes changes.yaml", "What each line would do; nothing is written."),
    ("abs rewrite savepoint-1 --changes changes.yaml --to /srv/copy", "Writes the copy, and checks all of it."),
    ("abs rewrite job/ --changes changes.yaml --to copy -o json | jq -r .command",
     "The line that starts a job from the copy."),
    ("abs rewrite job/chk-42 --layout canonical --to /srv/savepoint",
     "A savepoint that any state backend starts from, of a job that runs no more."),
)  # fmt: skip
EXIT_STATUS = exits.status(
    3, 4, 6, 10, 11, 12,
    _0="It was worked out, or the copy written.",
    _2="A bad option, a file of changes that does not hold or does not fit the checkpoint, or a change or layout that "
    "state as this cannot have.",
    _3="The state that is rewritten, or the copy, is not whole; nothing was written.",
    _4="A file of the checkpoint is gone.",
)


class Layout(StrEnum):
    """How keyed state lies in the copy."""

    CANONICAL = "canonical"


@reads("type", "search", "path_map", "uid")
def rewrite(
    ref: Ref,
    changes: Annotated[
        str | None,
        typer.Option("--changes", metavar="FILE", show_default=False, help="What changes, in YAML or JSON."),
    ] = None,
    layout: Annotated[
        Layout | None,
        typer.Option("--layout", show_default=False, help="Write all keyed state so, for any state backend."),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="PATH", show_default=False,
                     help="New directory, or empty place in a bucket, for the copy; without, nothing is written."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would become of the checkpoint, and write nothing.")
    ] = False,
    reading: Reading = AS_TYPED,
    output: OutputForm = Output.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Make a changed copy of a checkpoint.

    Of Flink's checkpoints and savepoints, without a JVM. The checkpoint is only read. The copy appears at --to in one
    step, after all of it was read again and checked as 'abs validate' does; 'flink run -s' starts from it. Without --to
    every line is worked out on the state itself, and nothing is written.

    The file of changes has 'version: 1' and lists. 'moved: [{from: totals, to: sums}]': an operator has another uid.
    'removed: [audit]': an operator goes with all that it has, so that a job that has it starts it anew; 'removed:
    [{operator: sums, state: seen}]': one of its states goes. With 'key: 7' (or 'key: {user: anna, day: 3}', as 'abs
    state' names the columns) one key goes from that state, or without a state from all keyed states and timers of the
    operator; 'map_key: x' beside it names one entry of a map; with 'split: orders-3' a split of a source goes. 'set'
    has entries of three kinds: '{operator, state, key, value}' gives a key a value, written as 'abs state -o json'
    prints it, also a key that is not there; '{operator, split, position}' says where a number sequence or a Kafka
    partition is read on (a number, or earliest, latest, committed), or how many records of a file's split, which is
    named by its path, are passed over; '{operator, max_parallelism: 256}' makes so many key groups. Operators are named
    by uid, by the hash that Flink prints, or by a name that only one has, always as the checkpoint has them. A line
    whose operator or state is gone already does nothing and says so, and what has moved already is found by its old
    name, so that the same file does for the next checkpoint, too.

    Keys are found where their type is decoded exactly: text, whole numbers, booleans, bytes, and what is made of them.
    Values are written for text, numbers, booleans, bytes, tuples, rows, Pojos without subclasses, rows of SQL, and
    lists of these; a map entry by entry. --type says what stands in a state's bytes, as for 'abs state', so that its
    values and the keys of its entries are given, shown and walked over by that type; messages of Protobuf are read by
    it and not written. Another max parallelism means that every key is hashed again: that is possible
    where the hash of its type is known (what Java, its class library and Flink define; not that of a Pojo, an enum or a
    class of the job's own), where there is no raw keyed state, and in a checkpoint that is not unaligned. Operators
    that run chained in one task must have the same.

    An operator of which keyed state is changed has all of its keyed state written as a canonical savepoint has it,
    which every state backend starts from; everything else stays as Flink wrote it, byte for byte.

    With --layout canonical, with a file of changes or without, all operators' keyed state is written so: of the heap,
    of RocksDB (incremental, full or native) and of the changelog backend, whose changes are applied. The copy is a
    canonical savepoint, made though the cluster is gone, from which a job starts with another state backend. Operator
    state, sources, coordinators and raw keyed state are kept. Records in flight of an unaligned checkpoint are kept,
    too: the copy then stays a checkpoint, and the job that starts from it must have the same exchanges. With the
    changelog backend a job starts in claim mode alone, and Flink itself finds the files of its checkpoints only once it
    has materialised its state (FLINK-39964): keep the copy until then.

    Values are kept in the bytes that Flink wrote, and not decoded for that. What cannot be written exactly is refused
    by name, and nothing is written (exit 2): in the heap's own layout values whose ends only a class of the job's own
    knows; of the changelog backend windows that the job's own function merged since state was last materialised, and
    keys whose type is not stored, where there are neither materialised state nor timers. Such a state, or its operator,
    can be removed by a line.
    """
    from abscli.cli.output import progress, width
    from abscli.cli.running import emit_result
    from abscli.text.columns import size

    if changes is None and layout is None:
        raise typer.BadParameter("say what changes, or --layout canonical", param_hint="'--changes'")
    store = reading.open(ref)
    done = 0
    with progress() as show:

        def more(count: int) -> None:
            nonlocal done
            done += count
            show(f"read and written {size(done)}")

        rewritten = store.rewrite(changes, to, layout=layout, dry_run=dry_run, progress=more)
    emit_result(rewritten.to_json(), rewritten.text(width()), output)
