"""What makes a sink show exactly what belongs to a line, step by step: in a folder, and in a bucket."""

from __future__ import annotations

import contextlib
import os
from collections import Counter

from abscli.engine.sinks.bucket_moves import BucketMoves
from abscli.engine.sinks.examined import Examined
from abscli.engine.sinks.moves import Moves
from abscli.planner.lineage import is_on
from abscli.planner.settlement import Settlement
from formats.disk import sync_folder
from formats.errors import Damaged
from formats.native.facts import SinkFile
from formats.native.sink import UNNAMED, PartId, SinkClaim, SinkFolder, epoch_of_part, staged_path
from formats.native.sink_bucket import SinkBucket


def settle_bucket(sink: Examined, bucket: SinkBucket, claim: SinkClaim, moves: BucketMoves) -> None:
    """Make a sink in a bucket show exactly what belongs to the line of the claim, which is the newest."""
    shown = bucket.shown()
    settlement = sink.settlement()
    missing = {part.id for part in settlement.missing}
    moves.end(settlement.doubled)
    moves.set_aside([one for one in shown if one.part not in settlement.stays])
    # Who had the sink before may be about to take away what was not of its line.
    before = sink.claim.line if sink.claim is not None else None
    doubtful = {part for part in settlement.stays if before is not None and not is_on(before, part.epoch)}
    moves.rename([one for one in shown if one.part in doubtful])
    moves.show_again([part for part in settlement.back if part not in missing])
    moves.complete([(part, sink.wanted.named[part]) for part in settlement.reveal if part not in missing])
    # What a lost attempt has shown meanwhile.
    belongs = {*settlement.stays, *settlement.back, *settlement.reveal}
    shown = bucket.shown()
    times = Counter(one.part for one in shown)
    moves.set_aside([one for one in shown if one.part not in belongs])
    moves.rename([one for one in shown if one.part in belongs and times[one.part] > 1])


def take_away(sink: Examined, moves: Moves) -> Settlement:
    """Take away what does not belong; what is to be done besides. EngineStopped if another attempt has claimed the
    sink.

    What lies there is of that one's line then: taken for what was there before, all that it shows would be set
    aside, as the work of attempts that never made it.
    """
    settlement = sink.settlement()
    inodes = {part: moves.inode(part.name) for part in settlement.away}
    # Looked up after the folder, so that what was listed is what this claim speaks of.
    moves.check()
    for part, inode in inodes.items():
        moves.set_aside(part.name, part.superseded, inode)
    return settlement


def bring_in(sink: Examined, folder: SinkFolder, moves: Moves, attempts: set[str]) -> None:
    """Show what belongs to the line of the sink's new claim, and nothing else.

    attempts: ids of the store's, of which none is alive.
    """
    moves.clear()
    settlement = take_away(sink, moves)
    missing = {part.id for part in settlement.missing}
    for part in settlement.doubled:
        moves.drop_double(part.staged, part.name)
    for part in settlement.back:
        if part not in missing:
            moves.publish(part.superseded, part.name)
    for part in settlement.reveal:
        if part not in missing:
            moves.publish(part.staged, part.name)
    for part in settlement.aside:
        moves.set_aside(part.staged, part.superseded, moves.inode(part.staged))
    for part in settlement.strays:
        put_away_for_good(moves, part)
    _drop_unfinished(folder, attempts)
    sync_folder(folder.path)


def put_away_for_good(moves: Moves, part: PartId) -> None:
    """A part that waits never becomes visible."""
    moves.set_aside(part.staged, part._replace(attempt_id=UNNAMED).superseded, moves.inode(part.staged))


def show(folder: SinkFolder, moves: Moves, id: str, file: SinkFile) -> None:
    """Reveal a part, if that has not been done."""
    epoch_of_part(file.name)  # a name that leads elsewhere is refused before anything is moved
    try:
        moves.publish(staged_path(id, file.name), file.name)
    except FileNotFoundError:
        if folder.visible().get(file.name) != file.bytes:
            raise Damaged(
                f"an output part of {file.rows} rows is missing", path=folder.storage.local_path(file.name),
                hint="run `abs run --resume`; its error message lists the possible actions",
            ) from None  # fmt: skip


def _drop_unfinished(folder: SinkFolder, attempts: set[str]) -> None:
    """Delete what attempts of this store were writing when they ended: it belongs to no epoch."""
    for id, path in folder.unfinished():
        if id in attempts:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(folder.storage.local_path(path))
