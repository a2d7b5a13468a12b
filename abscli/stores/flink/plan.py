"""Plans for checkpoints of Flink: the newest whole one, why not a newer one, and what a copy of it sets right.

Read facts, then decide purely (`stores.flink.verdict`); `stores.flink.restore` writes the copy.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from abscli.stores.flink.verdict import beyond_repair
from abscli.stores.pinned import pin
from abscli.stores.reasons import NAMED, NoPlan, reasons
from formats.errors import NoRecovery
from formats.flink.evidence import EpochEvidence, StreamCheck, gather
from formats.flink.facts import file_handles, kind, state_backend
from formats.flink.files.layout import SiteKind, trimmed
from formats.flink.files.resolve import FileLike, How, Place, directory_of, search_roots
from formats.flink.metadata.file import FILE
from formats.flink.metadata.handles import FileHandle, Metadata, RelativeHandle, changelogs, streams
from formats.flink.plan import FlinkPlan, run_line
from formats.flink.rewrite import copies
from formats.flink.store import FlinkStore
from formats.plan import Plan, Skipped
from formats.reference import NOTHING, ReadOptions
from formats.storage import absolute, open_storage
from formats.storage.credentials import storage_words
from formats.timestamps import now

SYSTEM = "flink"


def plan_flink(
    store: FlinkStore,
    *,
    epoch: int | None = None,
    read: ReadOptions = NOTHING,
    checks: tuple[StreamCheck, ...] = (),
    progress: Callable[[int], None] | None = None,
) -> Plan[FlinkPlan] | NoPlan:
    """The newest whole checkpoint, or `epoch`; why there is none.

    Whole: every byte that it refers to is in a directory that was named, be it elsewhere than Flink looks.

    read: how the store was opened.
    checks: what reads the streams to the end; without, presence and sizes alone.
    progress: told the bytes of every read.

    Raises NotFound; OtherJob if it is not known which checkpoint is the newest.
    """
    numbers = [epoch] if epoch is not None else sorted(store.epoch_numbers(), reverse=True)
    # one that is not there is another error than one that cannot be restored
    if epoch is not None:
        store.home(epoch)
    refused: list[EpochEvidence] = []
    skipped: list[tuple[int, str]] = []
    for number in numbers:
        store.streams(number).on_read = progress
        evidence = gather(store, number, checks=checks)
        reason = beyond_repair(evidence)
        if reason is None:
            if epoch is None:
                store.check_newest(number)
            return _out_of_reach(store, read, evidence) or _sealed(store, read, evidence, tuple(skipped))
        skipped.append((number, reason))
        refused.append(evidence)
    return NoPlan(
        f"checkpoint {epoch} cannot be restored: {skipped[0][1]}" if epoch is not None
        else f"no checkpoint is intact ({reasons('checkpoint', skipped) or 'there is none'})",
        path=store.path,
        hint=_way_out(store, read, refused),
    )


def _way_out(store: FlinkStore, read: ReadOptions, refused: Sequence[EpochEvidence]) -> str:
    """Return what can be done if no checkpoint is intact. refused: what was found, newest first."""
    if not any(evidence.metadata is not None for evidence in refused):
        return _LOST
    search = replace(read, search=(*read.search, "DIR"))
    command = plan_command(store.path, None, search)
    ways = [f"`{command}` also looks in DIR for the missing files"] if any(map(_misses_files, refused)) else []
    if (saved := next((each for each in refused if _lost_operators(each)), None)) is not None:
        changes = f"{{version: 1, removed: [{', '.join(map(json.dumps, _lost_operators(saved)))}]}}"
        at = "" if store.only is not None else f"@{saved.epoch}"
        rewrite = f"abs rewrite {shlex.quote(store.path)}{at} --changes lost.yaml --to NEWDIR"
        ways.append(f"without a copy of them, `{rewrite}` keeps all other operators; lost.yaml is {changes}")
    elif ways:
        ways.append(f"without a copy of them {_LOST}")
    ways = ways or [f"`abs validate {shlex.quote(store.path)}` lists what is damaged, and the intact operators"]
    return "; ".join(ways)


_LOST = "nothing can be restored: start the job from another savepoint, or without one"


def _misses_files(evidence: EpochEvidence) -> bool:
    return any(file.lost or file.closed for file in evidence.files)


def _lost_operators(evidence: EpochEvidence) -> list[str]:
    """Return the operators whose files are lost; none if others are needed, too, or all are lost."""
    lost = {file.task.operator for file in evidence.files if file.lost}
    others = {file.task.operator for file in evidence.files} - lost
    return sorted(lost) if others and evidence.metadata is not None else []


def _out_of_reach(store: FlinkStore, read: ReadOptions, evidence: EpochEvidence) -> NoPlan | None:
    """Return why an intact checkpoint cannot be copied: files outside of the directories that were named are not read.

    No older checkpoint is planned in its place, since one more option is enough.
    """
    closed = {file.written for file in evidence.files if file.closed}
    if not closed or evidence.metadata is None:
        return None
    roots = search_roots(map(directory_of, closed))
    directory = directory_of_epoch(store, evidence.home)
    start = ""
    if not any(_repairs(evidence)):
        start = f"; to start without a copy: {start_command(directory, evidence.metadata)}"
    command = plan_command(store.path, evidence.epoch if store.only is None else None, read, roots)
    where = ", ".join(roots[:NAMED]) + (" ..." if len(roots) > NAMED else "")
    return NoPlan(
        f"checkpoint {evidence.epoch} is intact, but restore cannot copy it: {len(closed)} of its files are in {where},"
        " outside of the directories that were named",
        path=store.path, hint=f"{command}{start}",
    )  # fmt: skip


def plan_command(store: str, epoch: int | None, read: ReadOptions, search: Sequence[str] = ()) -> str:
    """Return the command that plans a copy, with the options by which the store was read.

    search: further directories to name.
    """
    named = replace(read, search=(*read.search, *search)).words(("search", "path_map"))
    at = "" if epoch is None else f"@{epoch}"
    return f"abs plan-recovery {shlex.quote(store)}{at}{named}{storage_words(store)} --out plan.json"


def _sealed(
    store: FlinkStore, read: ReadOptions, evidence: EpochEvidence, skipped: tuple[tuple[int, str], ...]
) -> Plan[FlinkPlan]:
    metadata = evidence.metadata
    assert metadata is not None  # beyond_repair says so of those without
    runs = to_copy(store, evidence.epoch)
    repairs = tuple(_repairs(evidence))
    directory = directory_of_epoch(store, evidence.home)
    body = FlinkPlan(
        epoch=evidence.epoch,
        kind=kind(metadata, evidence.home).kind,
        directory=directory,
        skipped=tuple(Skipped(number, _utf8(reason)) for number, reason in skipped),
        in_place=not repairs,
        repairs=tuple(map(_utf8, repairs)),
        files=len(runs),
        bytes=sum(runs.values()),
        backend=state_backend(metadata),
        claim=must_claim(metadata),
        command=None if repairs else start_command(directory, metadata),
    )
    return Plan(
        system=SYSTEM, created=now(), store=absolute(trimmed(store.path)), read=read, body=body,
        relies_on=(pin(open_storage(trimmed(store.path)), metadata_path(store, evidence.home)),),
    )  # fmt: skip


def start_command(directory: str, metadata: Metadata) -> str:
    """Return the command that starts a job from a snapshot. directory: of its `_metadata`."""
    return run_line(directory, claim=must_claim(metadata), backend=state_backend(metadata))


def directory_of_epoch(store: FlinkStore, home: str) -> str:
    """Where the `_metadata` of a checkpoint lies, absolute. home: its directory in the store."""
    root = absolute(store.storage.root)
    return f"{root}/{home}" if home else root


def metadata_path(store: FlinkStore, home: str) -> str:
    """Its `_metadata`, by its path from the store that the plan names: a `chk-N` in a job's directory, too."""
    named_alone = store.kind is SiteKind.CHECKPOINT and store.epoch is not None
    return FILE if named_alone or not home else f"{home}/{FILE}"


def _utf8(text: str) -> str:
    """With file names of any bytes, as JSON can hold it."""
    return text.encode("utf-8", "backslashreplace").decode()


def _repairs(evidence: EpochEvidence) -> Iterator[str]:
    """What keeps Flink from restoring the snapshot where it lies, and a copy sets right."""
    metadata = evidence.metadata
    if metadata is not None and metadata.problem is not None:
        yield f"its properties cannot be read ({metadata.problem}): they are rewritten"
    for how, problem in (
        (How.FOUND, "are not where Flink looks"),
        (How.MOVED, "are named by the path from before the move"),
        (How.MAPPED, "are named by the path from before the move"),
    ):
        files = {file.written: file.path for file in evidence.files if file.how is how}
        if files:
            # one of them, as an example, and the same one every time
            written, place = min(files.items())
            yield f"{len(files)} files {problem}: {written} is {place}"
    relative = of_changelog(metadata, RelativeHandle) if metadata is not None else set()
    if relative:
        yield (
            f"{len(relative)} files of the changelog backend have relative paths, which the checkpoints that follow "
            "would look for beside themselves"
        )


def must_claim(metadata: Metadata) -> bool:
    """Whether a job goes on from it in claim mode alone.

    In Flink's default mode, NO_CLAIM, the first checkpoint is a full one, which the changelog backend cannot take: the
    job starts, fails at that checkpoint, and is restarted for ever.
    """
    return next(changelogs(metadata), None) is not None


def of_changelog(metadata: Metadata, kind: type[FileHandle | RelativeHandle]) -> set[str]:
    """Paths of the files of the changelog backend whose handles are of this kind."""
    return {
        stream.path for handle in changelogs(metadata) for stream in streams(handle) if isinstance(stream, kind)
    }


def to_copy(store: FlinkStore, epoch: int) -> dict[str, int]:
    """Names in a copy -> bytes. Raises NoRecovery, see `places`."""
    return {copy.target: copy.length for copy in copies(places(store, epoch)).values()}


def places(
    store: FlinkStore, epoch: int, *, metadata: Metadata | None = None, own: Collection[RelativeHandle] = (),
) -> dict[FileLike, Place]:  # fmt: skip
    """Where every file of a checkpoint lies. Raises NoRecovery if one is in no directory that was named.

    metadata: what has become of the checkpoint's; own: files of a copy that are not the checkpoint's.
    """
    at = store.streams(epoch)
    places: dict[FileLike, Place] = {}
    for _, _, handle in file_handles(metadata or store.metadata(epoch)):
        if handle in own:
            continue
        place = at.place(handle)
        if place is None:
            looked, size = at.outside(handle)
            problem = "is not there" if looked and size is None else "lies outside of the directories that were named"
            raise NoRecovery(f"{at.name(handle)} {problem}", path=store.path, hint=at.hint(handle))
        places[handle] = place
    return places
