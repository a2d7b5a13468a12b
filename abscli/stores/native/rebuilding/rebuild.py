"""Bookkeeping made anew from what is whole: read what there is, decide purely, then act.

Nothing is destroyed: what is damaged moves to `quarantine/` in the store, which no command looks into. What epochs hold
is never made up: a manifest that is lost stays lost, since nothing else says that its epoch was complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from abscli.stores.native.plan import FROM_THE_START
from formats.job.model import Topology, canonical
from formats.native import layout
from formats.native.books import Books
from formats.native.facts import (
    ID_LENGTH,
    AttemptFacts,
    FenceFacts,
    ManifestFacts,
    StoreFacts,
    TagFacts,
    TriggerFacts,
    digest,
    header,
    seal,
)
from formats.storage import WritableStorage

Head = ManifestFacts | TriggerFacts


NOBODY = "0" * ID_LENGTH
"""The id of no attempt: of fences that are set where an outcome was damaged."""


class Offer(NamedTuple):
    """What the user brings.

    topology: the job's graph.
    directory: of the job file, which paths in it start from.
    """

    topology: Topology
    directory: str


class SetAside(msgspec.Struct, frozen=True):
    """A file that moves out of the way.

    path: where it is.
    to: its new name.
    why: what is wrong with it.
    """

    path: str
    to: str
    why: str


class NewFile(msgspec.Struct, frozen=True):
    """A file that is written.

    path: where.
    source: what its facts are taken from.
    data: its bytes.
    """

    path: str
    source: str
    data: bytes


class Lacking(msgspec.Struct, frozen=True):
    """What is needed and cannot be made anew.

    path: the file that is lost.
    why: what hangs on it, or is not known of it.
    do: what would help.
    """

    path: str
    why: str
    do: str


class Rebuild(msgspec.Struct, frozen=True):
    """What is to be done.

    job: the job's name; None where nothing whole says it.
    set_aside: files that move out of the way.
    new_files: files that are written.
    lacking: files that cannot be.
    notes: what it means, where that is not plain.
    """

    job: str | None
    set_aside: tuple[SetAside, ...]
    new_files: tuple[NewFile, ...]
    lacking: tuple[Lacking, ...]
    notes: tuple[str, ...]

    @property
    def nothing(self) -> bool:
        """Whether all books are whole."""
        return not (self.set_aside or self.new_files or self.lacking)


def decide(books: Books, offer: Offer | None, is_free: Callable[[str], bool], time: str) -> Rebuild:
    """What to set aside, what to write and what is beyond help.

    books: what there is, whole and damaged.
    offer: None where the user names no job file.
    is_free: whether a name in `quarantine/` can be had.
    time: RFC 3339, for what is written without one of its own.
    """
    new_files: list[NewFile] = []
    lacking: list[Lacking] = []
    notes: list[str] = []
    job = _job(books, offer, lacking)
    if books.store is None and job is not None:
        facts = StoreFacts(job=job, created=_oldest(books, time), **header(StoreFacts))
        source = "its epochs" if any(isinstance(head, ManifestFacts) for head in books.heads) else "the job file"
        new_files.append(NewFile(layout.STORE, source, seal(facts)))
    lives = _attempts(books, offer, new_files, lacking, notes)
    _graphs(books, lives, offer, new_files, lacking)
    notes += [
        f"{path} told of a live recovery: nothing else needs it" for path in sorted(books.damaged)
        if path.startswith(f"{layout.RECOVERIES}/")
    ]  # fmt: skip
    for path in sorted(books.damaged):
        if (tag := layout.tag_of(path)) is not None:
            tagged = TagFacts(name=tag.name, epoch=tag.epoch, attempt_id="", tagged=time, **header(TagFacts))
            new_files.append(NewFile(path, "its name", seal(tagged)))
    aside = tuple(SetAside(path, aside_name(path, is_free), why) for path, why in sorted(books.damaged.items()))
    for path in sorted(books.damaged):
        epoch = layout.epoch_of(path)
        if epoch is not None and path == layout.outcome(epoch):
            # The number must not be had again: an owner that has lost the store could complete it.
            fence = FenceFacts(epoch=epoch, attempt=0, attempt_id=NOBODY, fenced=time, **header(FenceFacts))
            new_files.append(NewFile(layout.outcome(epoch), "its number, which stays taken", seal(fence)))
            notes.append(f"epoch {epoch} is lost, if it was complete: nothing but its manifest said so, and of what")
            if not any(isinstance(head, ManifestFacts) for head in books.heads):
                notes.append(FROM_THE_START)
    return Rebuild(job, aside, tuple(new_files), tuple(lacking), tuple(notes))


def _job(books: Books, offer: Offer | None, lacking: list[Lacking]) -> str | None:
    """The job's name, from whoever knows it."""
    if books.store is not None:
        return books.store.job
    named = {head.job for head in books.heads if isinstance(head, ManifestFacts)}
    if offer is not None:
        named.add(offer.topology.job)
    if len(named) == 1:
        return named.pop()
    why = f"its epochs and the job file name several jobs: {', '.join(sorted(named))}" if named else "no epoch names it"
    lacking.append(Lacking(layout.STORE, f"says whose store this is; {why}", "name the job's own file with --job"))
    return None


def _oldest(books: Books, time: str) -> str:
    return min([life.started for life in books.attempts] + [head.triggered for head in books.heads], default=time)


def _attempts(
    books: Books, offer: Offer | None, new_files: list[NewFile], lacking: list[Lacking], notes: list[str]
) -> list[AttemptFacts]:
    """All lives, those that are made anew among them, ascending."""
    lives = {life.attempt: life for life in books.attempts}
    taken: dict[int, list[Head]] = {}
    for head in books.heads:
        taken.setdefault(head.attempt, []).append(head)
    # Ascending, so that a life made anew counts as one of the earlier lives of the next.
    for number in sorted(taken.keys() - lives.keys()):
        path = layout.attempt(number)
        begun = _beginning(taken[number], books, lives.values())
        # No epoch says where the job file lay: the user does, or else the record of any other life.
        directory = offer.directory if offer else next((life.directory for life in lives.values()), None)
        if _is_repair(taken[number], books):
            why = f"was a repair of epoch {taken[number][0].epoch}: whose output that shows, nothing else says"
            lacking.append(Lacking(path, why, "plan-recovery and restore --to carry its epoch to a new store"))
        elif begun is None:
            first = min(head.epoch for head in taken[number])
            why = f"began before epoch {first}, the oldest of its epochs that is left: where, nothing says"
            lacking.append(Lacking(path, why, "plan-recovery and restore --to carry its newest epoch to a new store"))
        elif directory is None:
            lacking.append(Lacking(path, "names the directory of the job file", "name the job file with --job"))
        else:
            lives[number] = _life(number, taken[number], begun, directory)
            new_files.append(NewFile(path, _epochs(taken[number]), seal(lives[number])))
    # Nothing but its own record says anything of a life that took no epoch: it is not made anew, only missed.
    for path in books.damaged:
        if path.startswith(f"{layout.ATTEMPTS}/") and not any(path == layout.attempt(number) for number in taken):
            reason = "took no epoch that is here: the job goes on from the attempts before it"
            notes.append(f"{path} {reason}; where a sink shows what it made, `abs run` needs --take-ownership")
    return [lives[number] for number in sorted(lives)]


class Beginning(NamedTuple):
    """Where a life began: its fence, and the epoch that it went on from."""

    first_epoch: int
    parent: int


def _is_repair(heads: Sequence[Head], books: Books) -> bool:
    """Whether a life had its fences above its epoch: it made one whole that had been taken before."""
    life = heads[0].attempt, heads[0].attempt_id
    return any((f.attempt, f.attempt_id) == life and f.epoch > heads[0].epoch for f in books.fences)


def _beginning(heads: Sequence[Head], books: Books, lives: Iterable[AttemptFacts]) -> Beginning | None:
    """Where it began, told by its fence, and by its oldest epoch if that is its first; None if epochs of its own before
    that are gone, so that nothing says what the first one went on from.

    A life fences the numbers right below its own. Where no fence is left, as of a job's first life, all numbers above
    those of earlier lives are its own.
    """
    oldest = min(heads, key=lambda head: head.epoch)
    fences = [f.epoch for f in books.fences if (f.attempt, f.attempt_id) == (oldest.attempt, oldest.attempt_id)]
    below = fences or [head.epoch for head in books.heads if head.attempt < oldest.attempt]
    # Epochs of an earlier life may be gone, with all that they would say: its record still tells where it began.
    below += [life.first_epoch - 1 for life in lives if life.attempt < oldest.attempt and not fences]
    first = max(below, default=0) + 1
    # The parent of a life's first epoch is of another life. One within its own means that earlier epochs are gone.
    return Beginning(first, oldest.parent) if oldest.parent < first else None


def _life(number: int, heads: Sequence[Head], begun: Beginning, directory: str) -> AttemptFacts:
    oldest, newest = (pick(heads, key=lambda head: head.epoch) for pick in (min, max))
    return AttemptFacts(
        attempt=number,
        kind="run",
        generation=oldest.generation,
        parent=begun.parent,
        first_epoch=begun.first_epoch,
        policy=newest.policy,  # the first one of a generation has that of the epoch that it was made of
        topology_sha256=oldest.topology_sha256,
        directory=directory,
        started=oldest.triggered,
        id=oldest.attempt_id,
        code=None,
        repairs=None,
        workers=None,
        **header(AttemptFacts),
    )


def _epochs(heads: Sequence[Head]) -> str:
    numbers = sorted(head.epoch for head in heads)
    return f"epoch {numbers[0]}" if len(numbers) == 1 else f"epochs {numbers[0]} to {numbers[-1]}"


def _graphs(
    books: Books, lives: Sequence[AttemptFacts], offer: Offer | None, new_files: list[NewFile], lacking: list[Lacking]
) -> None:
    """Job graphs that epochs or lives name, and that are not whole."""
    wanted: dict[str, list[str]] = {}
    for head in books.heads:
        wanted.setdefault(head.topology_sha256, []).append(f"epoch {head.epoch}")
    for life in lives:
        wanted.setdefault(life.topology_sha256, []).append(f"attempt {life.attempt}")
    data = canonical(offer.topology) if offer else b""
    for sha256 in sorted(wanted.keys() - books.graphs):
        path = layout.topology(sha256)
        # A graph goes by the digest of its bytes: the job file's is the very one that is named, or no help at all.
        if offer and digest(data) == sha256:
            new_files.append(NewFile(path, "the job file", data))
            continue
        users = ", ".join(wanted[sha256][:3]) + (" ..." if len(wanted[sha256]) > 3 else "")
        why = f"the job graph of {users}"
        if offer:
            why += f"; that of the job file has SHA-256 {digest(data)[:12]}…: it has changed since"
        lacking.append(Lacking(path, why, "name the job file, as it was then, with --job"))


def aside_name(path: str, is_free: Callable[[str], bool]) -> str:
    """A name in `quarantine/` that nothing has."""
    name, number = f"{layout.ASIDE}/{path}", 1
    while not is_free(name):
        number += 1
        name = f"{layout.ASIDE}/{path}.{number}"
    return name


def carry_out(storage: WritableStorage, rebuild: Rebuild) -> None:
    """Do it, with the store's lock held: a file is out of the way before another takes its place, and the file that
    makes the directory a store comes last. Doing it again after a crash goes on where it stopped."""
    for aside in rebuild.set_aside:
        storage.move(aside.path, aside.to)
    for file in sorted(rebuild.new_files, key=lambda file: file.path == layout.STORE):
        storage.put(file.path, file.data)
