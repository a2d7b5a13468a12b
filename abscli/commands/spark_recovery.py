"""`abs plan-recovery` and `abs restore` of Spark's checkpoints: the parts of those commands that are Spark's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from abscli.cli.output import Output, emit_json, emit_ndjson, emit_text, note, progress, width

if TYPE_CHECKING:
    from formats.spark.plan import Moved, SparkPlan


def plan_checkpoint(
    path: str,
    named: int | str | None,
    epoch: int | None,
    query_id: str | None,
    path_map: Sequence[str],
    keep_in_flight: bool,
    form: Output,
    out: str | None,
) -> None:
    """Plans, writes the plan to `out` if anywhere, and shows it."""
    from abscli.cli.plans import write_plan
    from abscli.stores.spark import text_plan as render
    from abscli.stores.spark.plan import plan_spark
    from abscli.text.columns import size
    from formats.plan import encode
    from formats.spark.store import SparkStore
    from formats.storage import open_storage

    if epoch is not None and isinstance(named, int) and epoch != named:
        raise typer.BadParameter(f"REF names batch {named}, --epoch {epoch}", param_hint="'--epoch'")
    if query_id is not None:
        _check_id(query_id)
    batch = epoch if epoch is not None else named if isinstance(named, int) else None
    moves = _moves(path_map)
    store = SparkStore(open_storage(path))
    with progress() as show:
        made = plan_spark(
            store, batch=batch, query_id=query_id, moves=moves, next_as_before=keep_in_flight,
            progress=lambda read: show(f"checked {size(read)} of state"),
        )  # fmt: skip
    _check_moves(made)
    write_plan(encode(made), form, out, lambda: render.text(made, width=width(), plan_file=out), render.items)


def _check_id(text: str) -> None:
    import uuid

    try:
        uuid.UUID(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a query's id, such as 4b0a6c52-de65-4bfb-a9cf-402bce370337",
                                 param_hint="'--query-id'") from None  # fmt: skip


def _moves(texts: Sequence[str]) -> list[Moved]:
    from abscli.stores.spark.relocate import input_uri
    from formats.spark.plan import Moved

    found = []
    for text in texts:
        old, equals, new = text.partition("=")
        if not equals or not all(part.startswith("/") or ":/" in part for part in (old, new)):
            raise typer.BadParameter(f"{text!r} is not OLD=NEW with two absolute paths or URIs",
                                     param_hint="'--path-map'")  # fmt: skip
        found.append(Moved(input_uri(old), input_uri(new)))
    return found


def _check_moves(made: SparkPlan) -> None:
    """A place that no input lies below is a slip of the pen, and would make the query read all of them again."""
    for move in made.moved:
        if not any(f"{place.folder}/".startswith(f"{move.old}/") for place in made.inputs):
            folders = ", ".join(place.folder for place in made.inputs[:3]) or "no file source"
            raise typer.BadParameter(f"no input lies below {move.old}; inputs are of {folders}",
                                     param_hint="'--path-map'")  # fmt: skip


def restore_checkpoint(data: bytes, name: str, to: str | None, *, dry_run: bool, form: Output) -> None:
    """Carries the plan in the bytes of the file `name` out."""
    from abscli.cli.plans import show_plan
    from abscli.stores.spark import text_plan as render
    from abscli.stores.spark.restore import check_plan, check_target, restore_spark
    from abscli.text.columns import size
    from formats.spark.plan import decode
    from formats.storage import local_name, open_storage

    plan = decode(data, name)
    if to is None:
        raise typer.BadParameter("a Spark checkpoint is restored into a new folder: name it", param_hint="'--to'")
    to = local_name(to)
    if "://" in to:
        raise typer.BadParameter("copies are made in local folders; move it to its place from there",
                                 param_hint="'--to'")  # fmt: skip
    storage = open_storage(plan.store)
    if dry_run:
        check_target(to, storage)
        check_plan(plan, storage)
        show_plan(data, form, lambda: render.text(plan, width=width(), plan_file=name), render.items)
        note("the plan holds; nothing was written (--dry-run)")
        return
    with progress() as show:
        done = restore_spark(plan, storage, to, lambda copied: show(f"copied {size(copied)}"))
    if form is Output.TABLE:
        emit_text(render.restored_text(
            plan, to=done.to, files=done.files, bytes=done.bytes, elapsed=done.elapsed, width=width()
        ))  # fmt: skip
        return
    result = render.restored_json(
        plan, to=done.to, files=done.files, bytes=done.bytes, elapsed=done.elapsed,
        found=len(done.report.all_findings),
    )  # fmt: skip
    emit_json(result) if form is Output.JSON else emit_ndjson(result)
