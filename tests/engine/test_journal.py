"""The coordinator's hand on the store: outcomes are one dense sequence, whatever order epochs end in."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import msgspec
import pytest

from abscli.engine.errors import EngineStopped
from abscli.engine.journal import Journal
from formats.ids import TaskId
from formats.native import layout
from formats.native.facts import AbortFacts, ManifestFacts, PartFacts
from formats.native.store import NativeStore
from formats.native.writer import put_fence, put_part
from formats.storage import MemoryStorage
from tests.support.stores.small import Build, loop_job


class Recorder(MemoryStorage):
    """Remembers in which order files appear."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[str] = []

    def put(self, path: str, data: bytes | memoryview, *, replace: bool = False) -> None:
        super().put(path, data, replace=replace)
        self.order.append(path)


@pytest.fixture
def build() -> Build:
    return Build(Recorder(), loop_job(1))


@pytest.fixture
def journal(build: Build) -> Journal:
    attempt = build.begin()
    return Journal(build.storage, build.topology, attempt, keep=None, directory_hint="job.yaml")


def acked(build: Build, journal: Journal, epoch: int) -> None:
    journal.begin(epoch)
    for task in build.tasks():
        put_part(build.storage, build.part(epoch, task))


def outcomes(build: Build) -> list[str]:
    assert isinstance(build.storage, Recorder)
    return [path for path in build.storage.order if path.endswith("outcome.json")]


def test_an_epoch_that_completes_first_gives_those_below_it_their_outcome_before_its_own(
    build: Build, journal: Journal
) -> None:
    for epoch in (1, 2, 3):
        acked(build, journal, epoch)
    journal.complete(3, idle=False)
    assert outcomes(build) == [layout.outcome(epoch) for epoch in (1, 2, 3)]
    journal.abort(1, "epoch 3, which contains it, was complete first")  # what the coordinator says afterwards
    store = NativeStore(build.storage)
    assert [store.outcome_kind(n) for n in (1, 2, 3)] == [AbortFacts, AbortFacts, ManifestFacts]
    assert store.undecided_from() == 4


def test_an_epoch_that_is_given_up_waits_for_the_outcome_of_the_one_below_it(build: Build, journal: Journal) -> None:
    for epoch in (1, 2):
        acked(build, journal, epoch)
    journal.abort(2, "timed out")
    assert outcomes(build) == []
    journal.complete(1, idle=False)
    assert outcomes(build) == [layout.outcome(1), layout.outcome(2)]
    given_up = NativeStore(build.storage).aborted(2)
    assert given_up is not None
    assert given_up.reason == "timed out"


def test_an_owner_that_met_a_fence_writes_nothing_above_it(build: Build, journal: Journal) -> None:
    for epoch in (1, 2):
        acked(build, journal, epoch)
    attempt = dataclasses.replace(build, attempt=2).begin(first_epoch=4, parent=0)
    put_fence(build.storage, 1, attempt)
    with pytest.raises(EngineStopped, match="attempt 2 took the store over"):
        journal.complete(2, idle=False)
    assert outcomes(build) == [layout.outcome(1)]


def test_a_manifest_names_the_newest_complete_epoch_as_its_parent_though_another_was_when_it_began(
    build: Build, journal: Journal
) -> None:
    for epoch in (1, 2):
        acked(build, journal, epoch)
    journal.complete(1, idle=False)
    journal.complete(2, idle=False)
    assert NativeStore(build.storage).manifest(2).parent == 1


def test_no_manifest_is_written_when_a_file_that_an_ack_names_is_gone(build: Build, journal: Journal) -> None:
    from formats.errors import Damaged

    acked(build, journal, 1)
    build.storage.delete(layout.state(1, "seen/0", build.id))
    with pytest.raises(Damaged, match="refers to it, and it is missing"):
        journal.complete(1, idle=False)
    assert outcomes(build) == []
    assert NativeStore(build.storage).part(1, TaskId("seen", 0)) is not None


def test_nothing_that_an_epoch_which_cannot_be_read_may_need_is_removed(build: Build) -> None:
    attempt = build.begin()
    build.complete(1, 0)
    build.complete(2, 1, base=1)
    build.complete(3, 2, base=2)
    tasks = NativeStore(build.storage).manifest(2).tasks_file.path
    build.storage.put(tasks, b"garbage", replace=True)
    journal = Journal(
        build.storage, build.topology, msgspec.structs.replace(attempt, first_epoch=4, parent=3),
        keep=1, directory_hint="job.yaml",
    )  # fmt: skip
    before = {path for path in build.storage.files if "/parts/" in path}  # type: ignore[attr-defined]
    for epoch in (4, 5):
        acked(build, journal, epoch)
        journal.complete(epoch, idle=False)
        journal.prune(last=True)
    left = set(build.storage.files)  # type: ignore[attr-defined]
    assert {path for path in before if (layout.epoch_of(path) or 0) <= 2} <= left
    assert layout.outcome(1) in left
    assert layout.outcome(3) not in left


def test_what_outlived_its_epoch_goes_with_the_last_that_refers_to_it_and_nothing_else_does(build: Build) -> None:
    attempt = build.begin()
    build.storage.put("epochs/notes.txt", b"a person's")
    for epoch, base in ((1, None), (2, 1), (3, None)):
        build.complete(epoch, epoch - 1, base=base)
    outlives = layout.state(1, "seen/0", build.id)
    journal = Journal(
        build.storage, build.topology, msgspec.structs.replace(attempt, first_epoch=4, parent=3),
        keep=2, directory_hint="job.yaml",
    )  # fmt: skip
    left = []
    for epoch in (None, 4):
        if epoch is not None:
            acked(build, journal, epoch)
            journal.complete(epoch, idle=False)
        journal.prune(last=True)
        left.append(build.storage.size(outlives) is not None)
    assert left == [True, False]
    assert build.storage.read("epochs/notes.txt") == b"a person's"


def test_parts_become_visible_after_the_manifest_and_before_anybody_hears_of_it(build: Build) -> None:
    attempt = build.begin()
    seen: list[bool] = []

    def reveal(parts: Sequence[PartFacts]) -> dict[str, float]:
        seen.append(NativeStore(build.storage).has_manifest(1))
        return {}

    journal = Journal(
        build.storage, build.topology, attempt, keep=None, directory_hint="job.yaml", reveal=reveal
    )
    acked(build, journal, 1)
    journal.complete(1, idle=False)
    assert seen == [True]


def test_who_was_overtaken_while_it_removes_epochs_removes_no_more(build: Build) -> None:
    """It was stopped there for longer than its lock lasts: what the newer attempt goes on from is not known to it."""
    attempt = build.begin()
    for epoch in (1, 2, 3):
        build.complete(epoch, epoch - 1)
    journal = Journal(
        build.storage, build.topology, msgspec.structs.replace(attempt, first_epoch=4, parent=3),
        keep=1, directory_hint="job.yaml",
    )  # fmt: skip
    acked(build, journal, 4)
    journal.complete(4, idle=False)
    build.storage.put(layout.attempt(attempt.attempt + 1), b"begun")
    journal.prune(last=True)
    assert NativeStore(build.storage).epoch_numbers() == [1, 2, 3, 4]
    build.storage.delete(layout.attempt(attempt.attempt + 1))
    journal.prune(last=True)
    assert NativeStore(build.storage).epoch_numbers() == [4]
