"""`abs rebuild`: bookkeeping that is lost or damaged, made anew from what is whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from abscli.cli import exits
from abscli.cli.options import OutputForm, Quiet, Verbose
from abscli.cli.output import Output, emit_json, emit_ndjson, emit_text, progress, width

if TYPE_CHECKING:
    from abscli.stores.native.rebuild import Offer

EXAMPLES = (
    ("abs rebuild snapshots", "What is lost or damaged, and what could be made anew; nothing is changed."),
    ("abs rebuild snapshots --job job.yaml --yes", "Does it, with the job's graph and directory from its file."),
    ("abs rebuild snapshots -o json | jq '.lacking'", "What is beyond help, for a script."),
)
EXIT_STATUS = exits.status(
    4, 6, 10, 11, 12,
    _0="It was shown, or with --yes done; or there is nothing to do.",
    _4="Something that is needed cannot be made anew; the rest was shown, or done.",
    _11="A job runs on the store.",
)


def rebuild(
    path: Annotated[str, typer.Argument(metavar="PATH", help="Directory of a store that abs wrote.")],
    job: Annotated[
        str | None,
        typer.Option("--job", metavar="JOB",
                     help="Topology file of the job, for its graph, its name and its directory where they are lost."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it; without, nothing is changed.")] = False,
    output: OutputForm = Output.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Make a store's lost or damaged books anew.

    The store's own file, the records of attempts and the job graphs are made from epochs that are whole and from the
    job's file. Each step is said; --yes does it. What is damaged moves to aside/ in the store, as it is, and nothing is
    removed. State, logs and manifests are never made up: epochs of which they are lost or damaged stay so.
    """
    import contextlib
    import os

    from abscli.stores.native import text_rebuild as render
    from abscli.stores.native.rebuild import carry_out, decide
    from abscli.stores.own import native_storage
    from formats.errors import StoreInUse
    from formats.native import lock
    from formats.native.books import read_books
    from formats.native.writer import now

    storage = native_storage(path, purpose="`abs rebuild`")
    if storage is None:
        raise typer.BadParameter("stores behind a URI are read-only", param_hint="'PATH'")
    offer = _offer(job) if job is not None else None
    if not yes and lock.held(storage):
        raise StoreInUse("a job runs on it", path=path, hint="wait for it, or stop it with SIGTERM")
    with lock.exclusive(storage) if yes else contextlib.nullcontext(), progress() as show:
        show("reading the books")
        done = decide(
            read_books(storage), offer, lambda name: not os.path.lexists(storage.local_path(name)), now()
        )
        if yes:
            carry_out(storage, done)
    if output is Output.TABLE:
        emit_text(render.text(done, store=path, job_file=job, done=yes, width=width()))
    else:
        result = render.to_json(done, store=path, done=yes)
        emit_json(result) if output is Output.JSON else emit_ndjson(*render.items(result))
    if done.lacking:
        raise typer.Exit(exits.NO_RECOVERY)


def _offer(job: str) -> Offer:
    import os

    from abscli.stores.native.rebuild import Offer
    from formats.job.file import parse_topology

    return Offer(parse_topology(job), os.path.dirname(os.path.abspath(job)))
