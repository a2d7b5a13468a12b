"""The native store: sealed facts, what the read-only view makes of them, and the golden store that pins both."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abscli.stores.registry import open_store
from formats import schema
from formats.errors import Damaged, FormatError, NotFound, OtherJob, UnsafePath, UnsupportedVersion
from formats.ids import ChannelId, TaskId
from formats.native import layout, lock
from formats.native.fact_files import MAX_FACTS
from formats.native.facts import (
    SCHEMAS,
    SEAL,
    AbortFacts,
    AttemptFacts,
    FenceFacts,
    FooterFacts,
    ManifestFacts,
    PartFacts,
    StateFileFacts,
    StoreFacts,
    TasksFacts,
    TriggerFacts,
    digest,
    header,
    outcome_kind,
    seal,
    unseal,
)
from formats.native.hashing import key_groups
from formats.native.remove import remove_epoch
from formats.native.store import NativeStore
from formats.native.writer import check_store_of, create, put_aborted, put_fence, put_file, put_topology
from formats.reference import BadReference, Reference, parse_reference
from formats.storage import LocalStorage, MemoryStorage, walk
from formats.timestamps import seconds_between
from formats.view import FileFacts, Status
from tests.support.schemas import FOLDER, checked
from tests.support.stores.small import FIRST, Build, in_memory, loop_job, make_store, take_over
from tests.tiers import examples

DATA = Path(__file__).parents[1] / "data"
GOLDEN = DATA / "golden-store"
RESCALED = DATA / "golden-store-rescaled"


@pytest.fixture
def store() -> NativeStore:
    return NativeStore(make_store(MemoryStorage()).storage)


def stored(store: NativeStore) -> dict[str, bytes]:
    assert isinstance(store.storage, MemoryStorage)
    return store.storage.files


# -- sealed facts ---------------------------------------------------------------------------------------------


def facts() -> StoreFacts:
    return StoreFacts(job="wörter", created="2026-01-02T03:04:05.000Z", **header(StoreFacts))


def test_what_is_sealed_is_what_is_unsealed() -> None:
    assert unseal(seal(facts()), StoreFacts, "p") == facts()
    checked(seal(facts()))


def test_every_flipped_added_or_removed_byte_breaks_the_seal() -> None:
    data = seal(facts())
    for i in range(len(data)):
        for changed in (data[:i] + bytes([data[i] ^ 1 << i % 8]) + data[i + 1 :], data[:i] + data[i + 1 :]):
            with pytest.raises(Damaged):
                unseal(changed, StoreFacts, "p")
    for i in range(len(data) + 1):
        with pytest.raises(Damaged):
            unseal(data[:i] + b" " + data[i:], StoreFacts, "p")


@given(st.binary(max_size=400) | st.text(alphabet='[{":0,}]', max_size=100).map(str.encode))
def test_garbage_is_damage_and_nothing_else(data: bytes) -> None:
    with pytest.raises(Damaged):
        unseal(data, StoreFacts, "p")


@pytest.mark.parametrize("body", [b'{"a":' * 100_000, b"[" * 100_000, b'{"schema":"abs.store","job":[1]'])
def test_garbage_with_a_good_digest_is_damage_too(body: bytes) -> None:
    with pytest.raises(Damaged):
        unseal(body + SEAL + digest(body).encode() + b'"}\n', StoreFacts, "p")
    with pytest.raises(Damaged):
        unseal(body, StoreFacts, "p")


def test_a_file_of_another_kind_is_damage() -> None:
    other = AbortFacts(epoch=1, attempt=1, reason="", aborted="", attempt_id=FIRST, **header(AbortFacts))
    with pytest.raises(Damaged, match=r"abs\.store"):
        unseal(seal(other), StoreFacts, "p")


def sealed(body: bytes) -> bytes:
    return body + SEAL + digest(body).encode() + b'"}\n'


@pytest.mark.parametrize("data", [
    *(seal(msgspec.structs.replace(facts(), version=v)) for v in ("2.0", "2.1", "0.9", "0-dev", "1", "1.0 ", "")),
    sealed(b'{"schema":"abs.store","version":2,"job":"reach","created":""'),
    sealed(b'{"schema":"abs.store","version":"2.0","directory":"of another shape"'),
    b'{"schema":"abs.store","version":"9.1","sealed":"in another way"}',
])
def test_every_other_major_format_version_is_refused_as_such(data: bytes) -> None:
    with pytest.raises(UnsupportedVersion, match=r"reads versions 1\.x") as caught:
        unseal(data, StoreFacts, "p")
    assert "abs run" in (caught.value.hint or "")


def test_additions_of_a_newer_minor_version_are_ignored() -> None:
    body = seal(msgspec.structs.replace(facts(), version="1.17"))[: -len(SEAL) - 67]
    read = unseal(sealed(body + b',"added":{"member":[1]}'), StoreFacts, "p")
    assert (read.job, read.version) == (facts().job, "1.17")


def test_facts_that_name_no_version_are_damage() -> None:
    with pytest.raises(Damaged):
        unseal(sealed(b'{"schema":"abs.store","job":"reach","created":""'), StoreFacts, "p")


# -- the view -------------------------------------------------------------------------------------------------


def test_epochs_have_the_status_that_their_files_give_them(store: NativeStore) -> None:
    assert {e.epoch: e.status.value for e in store.epochs()} == {
        1: "complete", 2: "complete", 3: "aborted", 4: "complete", 5: "incomplete",
    }
    assert [(e.epoch, e.parent) for e in store.epochs()] == [(1, 0), (2, 1), (3, 2), (4, 2), (5, 4)]
    assert store.latest() == 4


def test_an_incomplete_epoch_names_the_tasks_that_are_missing(store: NativeStore) -> None:
    last = store.epochs()[-1]
    assert last.missing == (TaskId("seen", 1), TaskId("out", 0))
    assert (last.expected, last.acked) == (5, 3)
    assert store.epochs()[2].reason == "timed out, waiting for out/0"


class PowerCut(Exception):
    """What a `Dying` storage raises."""


class Dying(MemoryStorage):
    """Makes so many changes, and then none."""

    changes = 1_000_000

    def _change(self) -> None:
        if not self.changes:
            raise PowerCut
        self.changes -= 1

    def put(self, path: str, data: bytes | memoryview, *, replace: bool = False) -> None:
        self._change()
        super().put(path, data, replace=replace)

    def delete(self, path: str) -> None:
        self._change()
        super().delete(path)


def test_a_power_cut_at_any_change_leaves_an_epoch_complete_or_with_all_its_acks() -> None:
    found, whole = [], False
    while not whole:
        storage = Dying()
        build = Build(storage, loop_job())
        build.begin()
        build.complete(1, 0)
        storage.changes = len(found)
        try:
            build.complete(2, 1)
            whole = True
        except PowerCut:
            pass
        storage.changes = Dying.changes
        rows = NativeStore(storage).epochs()
        assert [row.status for row in rows[:1]] == [Status.COMPLETE]
        newest = rows[-1]
        found.append((newest.epoch, newest.status is Status.COMPLETE, newest.acked))
    assert found == sorted(found)
    assert {(2, False, acked) for acked in range(6)} <= set(found)
    assert found[-1] == (2, True, 5)
    assert found.count((2, True, 5)) > 1  # the manifest is not the last change: there are acks to clear away


def test_an_epoch_is_in_progress_while_its_attempt_holds_the_store(tmp_path: Path) -> None:
    build = make_store(tmp_path)
    assert isinstance(build.storage, LocalStorage)
    with lock.exclusive(build.storage):
        assert NativeStore(build.storage).epochs()[-1].status is Status.IN_PROGRESS
    assert NativeStore(build.storage).epochs()[-1].status is Status.INCOMPLETE


def test_a_missing_or_cut_file_makes_an_epoch_damaged_by_presence_and_size(store: NativeStore) -> None:
    path = layout.state(2, "seen/0", FIRST)
    stored(store)[path] = stored(store)[path][:-1]
    assert [e.epoch for e in store.epochs() if e.status is Status.DAMAGED] == [2, 4]
    del stored(store)[path]
    assert "seen/0" in (store.epochs()[1].reason or "")


def test_detail_sums_state_and_counts_every_channel(store: NativeStore) -> None:
    detail = store.detail(4)
    seen = detail.operators[1]
    assert (seen.id, seen.rows, len(seen.tasks), seen.tasks[0].log_records) == ("seen", 12, 2, 4)
    assert len(detail.channels) == 4 + 4 + 2
    by_name = {str(c.channel): (c.sent, c.received, c.logged) for c in detail.channels}
    assert by_name["lines/0->seen/1"] == (40, 40, 0)
    assert by_name["seen/1->seen/0"] == (16, 14, 2)


def test_what_a_missing_task_would_know_is_unknown(store: NativeStore) -> None:
    detail = store.detail(5)
    by_name = {str(c.channel): (c.sent, c.received, c.logged) for c in detail.channels}
    assert by_name["seen/0->seen/1"] == (20, None, None)
    assert by_name["seen/1->seen/0"] == (None, 18, 2)
    assert detail.operators[1].rows is None


def test_states_name_their_key_and_count_rows(store: NativeStore) -> None:
    detail = {op.id: op for op in store.detail(store.latest() or 0).operators}
    found = store.states(store.latest() or 0)
    assert found
    for state in found:
        assert state.rows == detail[state.operator].rows
        assert state.bytes == detail[state.operator].bytes
        rows = list(store.state(store.latest() or 0, state.operator))
        assert set(state.key) <= set(rows[0].schema.names)
    with pytest.raises(NotFound, match="no state 'x'"):
        list(store.state(store.latest() or 0, found[0].operator, "x"))


def test_state_of_several_files_has_each_key_once_the_latest_last(store: NativeStore) -> None:
    rows = [row for batch in store.state(4, "seen") for row in batch.to_pylist()]
    assert sorted(row["line"].rstrip("0123456789") for row in rows) == sorted(
        f"seen/{i} {epoch} {x}" for i in (0, 1) for epoch in (1, 2, 4) for x in "ab"
    )


def test_a_log_is_read_in_order(store: NativeStore) -> None:
    rows = [row["line"] for batch in store.log(4, ChannelId.parse("seen/1->seen/0")) for row in batch.to_pylist()]
    assert rows == ["seen/1 x", "seen/1 y"]
    assert list(store.log(4, ChannelId.parse("lines/0->seen/0"))) == []


def test_an_epoch_that_is_not_there_says_which_are(store: NativeStore) -> None:
    for ask in (store.detail, store.topology):
        with pytest.raises(NotFound):
            ask(9)
    with pytest.raises(NotFound, match="1 to 5"):
        store.resolve(9)
    assert store.resolve("latest") == store.resolve(None) == 4


def test_a_manifest_under_another_number_is_damage(store: NativeStore) -> None:
    files = stored(store)
    files[layout.outcome(7)] = files[layout.outcome(4)]
    with pytest.raises(Damaged, match="of epoch 4, not of 7"):
        store.manifest(7)


def test_a_path_that_leads_out_of_the_store_is_refused(store: NativeStore) -> None:
    parts = store.parts(4)
    evil = StateFileFacts("../../etc/passwd", 1, 1, "0" * 64, (), FooterFacts(0, "0" * 64))
    tasks = TasksFacts(epoch=4, parts=(msgspec.structs.replace(parts[2], state=(evil,)),), **header(TasksFacts))
    data = seal(tasks)
    files = stored(store)
    files[layout.tasks_file(4, FIRST)] = data
    named = FileFacts(layout.tasks_file(4, FIRST), len(data), 1, digest(data))
    files[layout.outcome(4)] = seal(msgspec.structs.replace(store.manifest(4), tasks_file=named))
    with pytest.raises(UnsafePath):
        NativeStore(store.storage).parts(4)


def test_a_fact_file_of_absurd_size_is_not_read(tmp_path: Path) -> None:
    make_store(tmp_path, more=False)
    with (tmp_path / layout.trigger(2, FIRST)).open("r+b") as f:
        f.truncate(MAX_FACTS + 1)
    with pytest.raises(Damaged, match="at most"):
        open_store(str(tmp_path)).trigger(2)


def test_the_store_of_another_job_is_refused(store: NativeStore) -> None:
    with pytest.raises(OtherJob, match="'reach', not of 'words'"):
        create(store.storage, "words")
    stranger = MemoryStorage()
    stranger.put("thesis.tex", b"")
    with pytest.raises(OtherJob, match=r"thesis\.tex"):
        create(stranger, "words")


def test_a_directory_without_a_store_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"abs-store\.json"):
        open_store(str(tmp_path))


def test_the_highest_number_counts_epochs_that_were_only_fenced(store: NativeStore) -> None:
    assert store.highest_number() == 5
    build = make_store(MemoryStorage(), more=False)
    dataclasses.replace(build, attempt=2).begin(first_epoch=9, parent=1)
    assert NativeStore(build.storage).highest_number() == 8


@pytest.mark.parametrize(("text", "path", "epoch"), [
    ("s", "s", None), ("s@7", "s", 7), ("s@latest", "s", "latest"), ("a@b/s", "a@b/s", None), ("a@1/s@2", "a@1/s", 2),
    ("abfs://box@account/b", "abfs://box@account/b", None), ("s@good", "s", "good"), ("s@x-1.2_b", "s", "x-1.2_b"),
])
def test_a_reference_is_a_path_and_perhaps_an_epoch(text: str, path: str, epoch: int | str | None) -> None:
    assert parse_reference(text) == Reference(path, epoch)


@pytest.mark.parametrize("text", ["s@", "s@_x", "s@x y", "s@-1", "s@1.0", "@7", "s@٣"])
def test_a_bad_reference_says_what_may_follow(text: str) -> None:
    with pytest.raises(BadReference):
        parse_reference(text)


def test_times_that_go_back_are_no_negative_durations() -> None:
    assert seconds_between("2026-01-02T03:04:05.000Z", "2026-01-02T03:04:06.500Z") == 1.5
    assert seconds_between("2026-01-02T03:04:05.000Z", "2026-01-02T03:04:04.000Z") == 0.0


def test_no_file_of_a_store_is_written_twice(store: NativeStore) -> None:
    with pytest.raises(FileExistsError):
        put_file(store.storage, layout.state(4, "seen/0", FIRST), b"", 0)


# -- schemas and the golden store -----------------------------------------------------------------------------


def test_the_schemas_of_fact_files_are_those_of_the_structs() -> None:
    for name, text in schema.texts().items():
        assert (FOLDER / name).read_text() == text, "run `python -m formats.schema`"


def test_the_schemas_are_made_by_the_module_alone(tmp_path: Path) -> None:
    code = "import sys, pathlib, formats.schema as s; s.FOLDER = pathlib.Path(sys.argv[1]); s.main()"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert {p.name for p in tmp_path.iterdir()} == set(schema.texts())


def test_every_fact_file_of_a_store_is_valid_by_its_schema(store: NativeStore) -> None:
    seen = {checked(data)["schema"] for name, data in stored(store).items()
            if name.endswith(".json") and not name.startswith("topologies/")}
    assert seen == {*SCHEMAS.values()} - {"abs.fence", "abs.pack", "abs.recovery", "abs.tag", "abs.written"}


def test_the_golden_store_reads_as_it_always_has() -> None:
    store = open_store(str(GOLDEN))
    assert (store.job, store.format) == ("reach", "abs")
    assert [(e.epoch, e.status.value, e.parent, e.attempt, e.acked, e.expected) for e in store.epochs()] == [
        (1, "complete", 0, 1, 3, 3),
        (2, "complete", 1, 1, 3, 3),
        (3, "aborted", 2, 1, 1, 3),
        (4, "complete", 2, 1, 3, 3),
        (5, "incomplete", 4, 1, 1, 3),
    ]
    assert store.epochs()[4].missing == (TaskId("seen", 0), TaskId("out", 0))
    detail = store.detail(4)
    assert [(str(c.channel), c.sent, c.received, c.logged) for c in detail.channels] == [
        ("lines/0->seen/0", 40, 40, 0),
        ("seen/0->seen/0", 16, 14, 2),
        ("seen/0->out/0", 0, 0, 0),
    ]
    lines, seen, _ = detail.operators
    assert lines.tasks[0].position is not None
    assert [msgspec.to_builtins(p) for p in lines.tasks[0].position] == [
        {"split": "in/0.txt", "offset": 400, "records": 40}
    ]
    *state_files, log = seen.tasks[0].files
    assert (seen.rows, seen.bytes, len(state_files)) == (6, sum(f.bytes or 0 for f in state_files), 3)
    assert log.path == layout.log(4, "seen/0", "seen/0", FIRST)
    state = [row for batch in store.state(4, "seen") for row in batch.to_pylist()]
    assert sorted(row["line"] for row in state) == [f"seen/0 {epoch} {x}" for epoch in (1, 2, 4) for x in "ab"]
    groups = key_groups([pa.array([row["line"] for row in state])], 8).tolist()
    assert [row["__key_group"] for row in state] == groups
    (batch,) = store.log(4, ChannelId.parse("seen/0->seen/0"))
    assert batch.to_pylist() == [{"line": "seen/0 x"}, {"line": "seen/0 y"}]


def test_the_golden_store_with_references_reads_as_it_always_has() -> None:
    store = NativeStore(LocalStorage(RESCALED))
    assert [(e.epoch, e.status.value, e.parent, e.attempt) for e in store.epochs()] == [
        (1, "complete", 0, 1), (2, "complete", 1, 1), (3, "aborted", 2, 1), (4, "complete", 2, 1),
        (5, "incomplete", 4, 1), (7, "complete", 4, 2),
    ]  # fmt: skip
    assert (store.manifest(7).generation, store.attempts()[1].kind) == (2, "rescale")
    seen = [part for part in store.parts(7) if part.operator == "seen"]
    assert [[(layout.epoch_of(f.path), f.key_groups) for f in part.state] for part in seen] == [
        [(1, (0, 2)), (2, (0, 2)), (4, (0, 2))],
        [(1, (3, 3)), (2, (3, 3)), (4, (3, 3)), (1, (4, 5)), (2, (4, 5)), (4, (4, 5))],
        [(4, (6, 7))],
    ]
    assert [part.rows for part in seen] == [None] * 3
    before, after = (sorted(str(row) for rows in store.state(n, "seen") for row in rows.to_pylist()) for n in (4, 7))
    assert before == after
    assert len(after) == store.manifest(7).state_rows == 12
    logs = {str(c.channel): c.logged for c in store.detail(7).channels if c.logged}
    assert logs == {"seen/0->seen/0": 2, "seen/0->seen/2": 2, "seen/1->seen/1": 4}
    assert [
        [row["line"] for rows in store.log(7, ChannelId.parse(channel)) for row in rows.to_pylist()] for channel in logs
    ] == [["seen/0 x", "seen/0 x"], ["seen/0 y", "seen/0 y"], ["seen/1 x", "seen/1 y", "seen/1 x", "seen/1 y"]]


KINDS = {
    "abs-store.json": StoreFacts, "attempts/": AttemptFacts, "/tasks.json": TasksFacts, "/trigger.json": TriggerFacts,
    "/ack.json": PartFacts,
}  # fmt: skip


@pytest.mark.parametrize("golden", [GOLDEN, RESCALED], ids=["plain", "rescaled"])
def test_the_facts_of_the_golden_stores_are_sealed_to_the_same_bytes_today(golden: Path) -> None:
    found = set()
    for name, _ in walk(LocalStorage(golden)):
        data = (golden / name).read_bytes()
        kinds = [kind for mark, kind in KINDS.items() if mark in name]
        if name.endswith("outcome.json"):
            kinds = [outcome_kind(data)]
        for kind in kinds:
            assert seal(unseal(data, kind, name)) == data
            found.add(kind)
    assert found == {*KINDS.values(), ManifestFacts, AbortFacts, FenceFacts}


def test_a_copy_of_a_store_is_the_same_store(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN, tmp_path / "copy")
    assert open_store(str(tmp_path / "copy")).epochs() == open_store(str(GOLDEN)).epochs()


def test_a_fence_is_no_epoch_and_leaves_what_it_ends_incomplete() -> None:
    build = make_store(MemoryStorage())
    take_over(build)
    store = NativeStore(build.storage)
    assert store.epoch_numbers() == [1, 2, 3, 4, 5]
    assert store.fences() == [5, 6]
    assert store.epochs()[-1].status is Status.INCOMPLETE
    assert (store.highest_number(), store.undecided_from(), store.latest()) == (6, 7, 4)
    with pytest.raises(FileExistsError):
        build.complete(5, 4)  # the older attempt comes back
    assert not store.has_manifest(5)


def test_a_fence_outlives_what_it_ended() -> None:
    build = make_store(MemoryStorage())
    take_over(build)
    remove_epoch(build.storage, 5, keep=())
    store = NativeStore(build.storage)
    assert store.epoch_numbers() == [1, 2, 3, 4]
    assert store.fences() == [5, 6]
    assert [name for name in build.storage.files if layout.epoch_of(name) == 5] == [layout.outcome(5)]  # type: ignore[attr-defined]


def test_a_number_has_one_outcome() -> None:
    build = make_store(MemoryStorage())
    attempt = NativeStore(build.storage).attempts()[0]
    for number in (3, 4):
        with pytest.raises(FileExistsError):
            put_aborted(build.storage, number, attempt, "again")
        with pytest.raises(FileExistsError):
            put_fence(build.storage, number, attempt)


def test_what_an_attempt_writes_after_it_lost_the_store_lies_apart_from_what_its_successor_writes() -> None:
    build = make_store(MemoryStorage())
    later = take_over(build)
    build.open(7, 4, missing=("out/0",))  # the older attempt, under the number that is now the newer one's
    later.open(7, 4, missing=("seen/0",))
    store = NativeStore(build.storage)
    assert store.epochs()[-1].attempt == 2
    assert store.epochs()[-1].missing == (TaskId("seen", 0),)
    later_parts = {part.task: part.attempt for part in store.parts(7)}
    assert set(later_parts.values()) == {2}


@settings(max_examples=examples(60))
@given(st.data())
def test_reading_a_store_of_garbage_raises_nothing_but_format_errors(data: st.DataObject) -> None:
    files = in_memory(make_store(MemoryStorage(), parallelism=1, more=False)).files
    name = data.draw(st.sampled_from(sorted(files)))
    garbage = MemoryStorage()
    garbage.files = {**files, name: data.draw(st.binary(max_size=200) | st.just(files[name][: len(files[name]) // 2]))}
    try:
        store = NativeStore(garbage)
        for epoch in store.epochs():
            store.detail(epoch.epoch)
            list(store.state(epoch.epoch, "seen"))
            list(store.log(epoch.epoch, ChannelId.parse("seen/0->seen/0")))
    except FormatError:
        pass


def test_two_processes_that_create_one_store_at_once_have_one_store() -> None:
    class Late(MemoryStorage):
        """A process that has looked before the other one wrote."""

        def size(self, path: str) -> int | None:
            return None

        def put(self, path: str, data: bytes | memoryview, *, replace: bool = False) -> None:
            self.files = other.files
            super().put(path, data, replace=replace)

    other = MemoryStorage()
    create(other, "job")
    sha256 = put_topology(other, loop_job())
    create(Late(), "job")
    assert put_topology(Late(), loop_job()) == sha256
    with pytest.raises(OtherJob, match="is the store of job 'job'"):
        create(Late(), "another job")


def test_a_store_that_another_process_creates_between_two_looks_is_a_store() -> None:
    class Created(MemoryStorage):
        """A store whose file appears right after it was looked for."""

        def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
            if not self.files:
                create(other, "job")
                self.files = other.files
                raise NotFound("no such file", path=path)
            return super().read(path, offset, length)

    other = MemoryStorage()
    assert not check_store_of(Created(), "job")
    with pytest.raises(OtherJob, match="is the store of job 'job'"):
        check_store_of(Created(), "another job")
