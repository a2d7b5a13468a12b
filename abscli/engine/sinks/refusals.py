"""Why an attempt may not have a sink, and what to do about it."""

from __future__ import annotations

import os
from collections.abc import Sequence

from abscli.engine.sinks.examined import Examined
from abscli.planner.lineage import maker
from abscli.planner.settlement import Missing
from formats.errors import Damaged
from formats.native.sink import epoch_of_part
from formats.native.store import NativeStore


def parts_missing(sink: Examined, missing: Sequence[Missing], store: NativeStore | None) -> Damaged:
    first = missing[0]
    more = f", and {len(missing) - 1} more like it" if len(missing) > 1 else ""
    if first.size is None:
        message = f"an output part of {first.file.rows} rows is missing{more}"
    else:
        message = f"an output part has {first.size} bytes, {first.file.bytes} were written{more}"
    oldest = min(epoch_of_part(part.file.name) for part in missing)
    epochs = store.epoch_numbers() if store is not None else []
    on_line = [epoch for epoch in epochs if epoch < oldest and maker(sink.wanted.line, epoch) is not None]
    complete = [epoch for epoch in on_line if store is not None and store.has_manifest(epoch)]
    option = f"--from-epoch {complete[-1] if complete else 0}"
    return Damaged(
        message,
        path=os.path.join(sink.folder.path, first.file.object),
        hint=f"restore the file; or resume with {option}, which writes it again; or, if a consumer removed the file, "
        "use --accept-missing-parts to resume without its rows",
    )


def way_on(before: str, now: str) -> str:
    """What to do where a sink that begins anew would write where one of the job has written."""
    apart = "give the sink another path; or move the existing output aside with --take-ownership"
    if before == now:
        return f"the sink was removed from the job and added again, so it starts without output: {apart}"
    return f"if both are the same sink, add `moved: [{{from: {before}, to: {now}}}]` to the job file; otherwise {apart}"
