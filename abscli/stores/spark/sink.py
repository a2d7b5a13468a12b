"""The log of a file sink brought back to a batch: which entries stay, and which are had again from a compaction. Pure.

Spark's file sink skips every batch that its log has, whatever the batch reads: a query that was taken back loses what
it reads in those, unless they are forgotten. Spark: `FileStreamSink.addBatch`, `CompactibleFileStreamLog.allFiles`.
"""

from __future__ import annotations

import math
from collections.abc import Set
from dataclasses import dataclass

from formats.errors import NoRecovery
from formats.spark.logs.sink_log import FOLDER, SinkLog, encoded

Lines = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SinkBack:
    """What the log is made of that ends with a batch.

    keep: names of entries that stay as they are.
    write: those that are rewritten, by name.
    lines: of all output files up to the batch.
    later: of those of later batches.
    """

    keep: tuple[str, ...]
    write: dict[str, bytes]
    lines: Lines
    later: Lines


def back_to(log: SinkLog, batch: int, silent: Set[int] = frozenset()) -> SinkBack:
    """The log as it was when a batch was done. NoRecovery where it does not say which files are of which batch.

    silent: batches that no sink has seen, whose entries are empty: Spark reads no log that lacks one.
    """
    if log.newest < batch and not all(number in silent for number in range(log.newest + 1, batch + 1)):
        raise NoRecovery(
            f"the sink's log ends with batch {log.newest}, and does not have the files of batch {batch}: a query "
            "that resumes after it would not write them",
            path=f"{FOLDER}/{batch}", hint=f"roll back to batch {log.newest}: append @{log.newest} to the path of "
            "the checkpoint",
        )  # fmt: skip
    base = max((number for number in log.compact if number <= batch), default=-1)
    lines = log.compact.get(base, ())
    keep, write = [f"{base}.compact"] if base >= 0 else [], dict[str, bytes]()
    for number in range(base + 1, batch + 1):
        own = log.single.get(number)
        if own is None:
            name = _name(log, number, silent)
            own = () if number in silent and name not in log.damaged else _had_again(log, number, lines)
            write[name] = encoded((*lines, *own) if name != str(number) else own)
        else:
            keep.append(str(number))
        lines = (*lines, *own)
    # Older entries do no harm, and by compactions Spark tells how far they are apart.
    keep += [f"{number}.compact" for number in log.compact if number < base]
    keep += [str(number) for number in log.single if number < base]
    return SinkBack(tuple(sorted(keep)), write, lines, _later(log, lines))


def _had_again(log: SinkLog, number: int, before: Lines) -> Lines:
    """The lines of a lost entry, from the next compaction: what stands there between the entries around it.

    before: all lines of earlier batches.
    """
    name = _name(log, number)
    problem = log.damaged.get(name, "is not there")
    after = min((other for other in log.compact if other > number), default=None)
    hint = "roll back to an earlier batch"
    if after is None:
        raise NoRecovery(f"{problem}, and no later compaction has what it said", path=f"{FOLDER}/{name}", hint=hint)
    rest = log.compact[after][len(before) :]
    # Compactions hold the batches in their order; of the last one's own files no other entry tells.
    following: Lines | None = None
    for other in range(number + 1, after):
        following = log.single.get(other)
        if following != ():  # an entry without files is no mark
            break
    if following and log.compact[after][: len(before)] == before and following[0] in rest:
        return rest[: rest.index(following[0])]
    raise NoRecovery(
        f"{problem}, and {FOLDER}/{after}.compact does not tell its files from those of batch {after}",
        path=f"{FOLDER}/{name}", hint=hint,
    )  # fmt: skip


def _name(log: SinkLog, number: int, silent: Set[int] = frozenset()) -> str:
    """What Spark looks for as the entry of a batch."""
    compact = f"{number}.compact"
    is_compaction = compact in log.damaged or _compacts(log, number, silent)
    return compact if is_compaction and str(number) not in log.damaged else str(number)


def _compacts(log: SinkLog, number: int, silent: Set[int]) -> bool:
    """Whether Spark compacts its log with a batch: with every so many, which compactions tell."""
    ends = [other + 1 for other in log.compact]
    if number not in silent:
        interval = max(log.compact) - sorted(log.compact)[-2] if len(ends) > 1 else None
        return interval is not None and (number - max(log.compact)) % interval == 0
    if ends and (number + 1) % math.gcd(*ends) == 0:
        return True
    # The first of all may be the one that was never written. Spark takes the interval from it, if it is there: then no
    # entry that it would take for a compaction may be none.
    multiples = [other for other in log.single if (other + 1) % (number + 1) == 0]
    return not multiples and all(end % (number + 1) == 0 for end in ends)


def _later(log: SinkLog, lines: Lines) -> Lines:
    """The lines of the whole log that are not among those of the batches that stay."""
    base = max(log.compact, default=-1)
    whole = [*log.compact.get(base, ()), *(line for n, own in log.single.items() if n > base for line in own)]
    stay = set(lines)
    return tuple(line for line in whole if line not in stay)
