"""Plans and copies of Flink's snapshots, for `abs plan-recovery` and `abs restore`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from abscli.cli.output import Output, emit_json, emit_ndjson, emit_text, note, progress, width

if TYPE_CHECKING:
    from formats.open import Looking


def plan(path: str, epoch: int | str | None, looking: Looking, form: Output, out: str | None) -> None:
    """Choose a snapshot and show the plan. epoch: None or `latest`: the newest whole one."""
    from abscli.cli.plans import write_plan
    from abscli.stores.flink.plan import plan_flink
    from abscli.stores.flink.plan_file import encode
    from abscli.stores.flink.text_plan import plan_text
    from abscli.text.columns import size
    from formats.flink.checks import stream_checks
    from formats.flink.store import FlinkStore
    from formats.open import open_store

    store = open_store(path, "flink", looking)
    assert isinstance(store, FlinkStore)
    number = epoch if isinstance(epoch, int) else store.only
    done = 0
    with progress() as show:

        def more(count: int) -> None:
            nonlocal done
            done += count
            show(f"read {size(done)}")

        made = plan_flink(store, epoch=number, checks=stream_checks(), progress=more)
    write_plan(encode(made, looking), form, out, lambda: plan_text(made, width=width(), plan_file=out))


def restore(data: bytes, path: str, to: str | None, form: Output, *, dry_run: bool) -> None:
    """Carry a plan out: write the copy. path: of the plan file, for messages."""
    import typer

    from abscli.cli.plans import show_plan
    from abscli.stores.flink.plan import check_plan, restore_flink
    from abscli.stores.flink.plan_file import decode, restored_json
    from abscli.stores.flink.text_plan import plan_text, restored_text
    from abscli.text.columns import size
    from formats.flink.store import FlinkStore
    from formats.open import open_store
    from formats.storage import local_name

    planned, looking = decode(data, path)
    store = open_store(planned.store, "flink", looking)
    assert isinstance(store, FlinkStore)
    check_plan(store, planned)
    if dry_run:
        show_plan(data, form, lambda: plan_text(planned, width=width(), plan_file=path))
        note("the plan holds; nothing was written (--dry-run)")
        return
    if to is None:
        what = "a copy of a snapshot of Flink goes to a new directory: name it with --to"
        raise typer.BadParameter(what, param_hint="'--to'")
    to = local_name(to)
    done = 0
    with progress() as show:

        def more(count: int) -> None:
            nonlocal done
            done += count
            show(f"copied {size(done)} of {size(planned.bytes)}")

        made = restore_flink(store, planned, to, progress=more)
    if form is Output.TABLE:
        emit_text(restored_text(made, width()))
    elif form is Output.JSON:
        emit_json(restored_json(planned, made))
    else:
        emit_ndjson(restored_json(planned, made))
