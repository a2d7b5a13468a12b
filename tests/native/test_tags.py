"""`abs tag`: an epoch that has a name stays, whoever removes epochs, and whenever."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abscli.engine.journal import Journal
from abscli.planner.retention import Retention, kept_by
from abscli.stores.native.check import check
from abscli.stores.native.removing.garbage import carry_out, plan_removal
from abscli.stores.native.tagging import NativeTags
from formats.errors import NotFound
from formats.native import layout, lock
from formats.native.facts import TagFacts, header
from formats.native.store import NativeStore
from formats.native.writer import put_tag
from formats.storage import LocalStorage
from tests.support.commands import result_of, run_command
from tests.support.flink.cases import OPEN
from tests.support.schemas import checked
from tests.support.spark.data import copy_of
from tests.support.stores.small import FIRST, Build, loop_job, make_store

Capture = pytest.CaptureFixture[str]
tag = partial(run_command, "tag")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Epochs 1, 2 and 4 complete, each on top of the files of the one before; 3 aborted, 5 incomplete."""
    path = tmp_path / "store"
    make_store(path)
    return path


def listed(capsys: Capture, ref: object) -> list[tuple[str, int]]:
    return [(one["name"], one["epoch"]) for one in result_of("tag", capsys, ref)["tags"]]


def whole(path: Path) -> list[int]:
    report = check(LocalStorage(path), None, quick=False, progress=lambda read, total: None).report
    assert not report.damaged
    return list(report.restorable)


def unchecked(name: str, epoch: int) -> TagFacts:
    """A tag as somebody writes it who does not look."""
    return TagFacts(name=name, epoch=epoch, attempt_id=FIRST, tagged="2026-01-02T03:05:00.000Z", **header(TagFacts))


def test_a_tag_is_given_listed_moved_and_taken_away(store: Path, capsys: Capture) -> None:
    assert "No tags." in tag(capsys, store)[1]
    code, out, err = tag(capsys, store, "good")
    assert (code, out, err) == (0, "", "epoch 4 is tagged good\n")
    assert tag(capsys, f"{store}@4", "good")[::2] == (0, "epoch 4 is tagged good already\n")
    assert tag(capsys, f"{store}@2", "old")[0] == 0
    assert listed(capsys, store) == [("old", 2), ("good", 4)]
    assert checked((store / layout.tag(2, "old")).read_bytes())["schema"] == "abs.tag"
    assert listed(capsys, f"{store}@4") == [("good", 4)]
    code, _, err = tag(capsys, f"{store}@1", "good")
    assert code == 2
    assert "epoch 4 is tagged good: --move takes it from there" in err
    assert tag(capsys, f"{store}@1", "good", "--move")[0] == 0
    assert listed(capsys, store) == [("good", 1), ("old", 2)]
    assert tag(capsys, f"{store}@2", "good", "--remove")[0] == 10
    assert tag(capsys, store, "good", "--remove")[::2] == (0, "epoch 1 is no longer tagged good\n")
    code, _, err = tag(capsys, store, "good", "--remove")
    assert code == 10
    assert "tags here: old" in err
    _, out, _ = tag(capsys, store, "-o", "ndjson")
    head, *items = map(json.loads, out.splitlines())
    assert (head["schema"], [(i["type"], i["name"]) for i in items]) == ("abs.tags", [("tag", "old")])


def test_a_tag_stands_for_its_epoch_in_references(store: Path, capsys: Capture) -> None:
    tag(capsys, f"{store}@2", "good")
    assert result_of("inspect", capsys, f"{store}@good") == result_of("inspect", capsys, f"{store}@2")
    assert result_of("validate", capsys, f"{store}@good")["epochs"][0]["epoch"] == 2
    plan = result_of("plan-recovery", capsys, f"{store}@good")
    assert plan["body"]["epoch"] == 2
    code, _, err = run_command("state", capsys, f"{store}@bad")
    assert code == 10
    assert "tags here: good" in err
    assert "Tags: good (epoch 2)" in run_command("inspect", capsys, store)[1]


@pytest.mark.parametrize("name", ["7", "latest", "a/b", "../x", "-x", "_x", "a b", "ä", "a" * 101, ""])
def test_names_that_mean_something_else_are_refused(store: Path, capsys: Capture, name: str) -> None:
    code, _, err = tag(capsys, store, "--", name)
    assert code == 2
    assert "is not a tag name" in err
    assert not (store / "tags").exists()


def test_an_epoch_that_is_not_whole_gets_no_tag(store: Path, capsys: Capture) -> None:
    for epoch in (3, 5):
        code, _, err = tag(capsys, f"{store}@{epoch}", "good")
        assert code == 3, err
        assert f"epoch {epoch} is not intact" in err
    state = store / layout.state(4, "seen/0", FIRST)
    data = bytearray(state.read_bytes())
    data[len(data) // 2] ^= 1
    state.write_bytes(data)
    code, _, err = tag(capsys, store, "good")
    assert code == 3
    assert "has SHA-256" in err
    assert tag(capsys, store, "looked", "--quick")[0] == 0
    state.unlink()
    assert tag(capsys, store, "good", "--quick")[0] == 3
    assert tag(capsys, f"{store}@9", "good")[0] == 10


def test_other_systems_have_no_tags_and_say_what_keeps_a_checkpoint(tmp_path: Path, capsys: Capture) -> None:
    code, _, err = tag(capsys, copy_of("words", tmp_path), "good")
    assert code == 2
    assert "checkpoints of Spark have no tags" in err
    assert "abs copy" in err
    assert run_command("state", capsys, f"{OPEN}@good")[0] == 2
    assert tag(capsys, tmp_path / "nowhere", "good")[0] == 10


def test_gc_keeps_what_has_a_tag_and_all_that_it_needs(store: Path, capsys: Capture) -> None:
    tag(capsys, f"{store}@2", "good")
    build = Build(LocalStorage(store), loop_job())
    build.complete(6, 4)  # refers to no older file
    kept = result_of("gc", capsys, store, "--keep", "1", "--yes")
    assert kept["kept"] == [2, 6]
    assert kept["reasons"] == [
        {"epoch": 2, "reasons": ["tagged good"]}, {"epoch": 6, "reasons": ["the newest"]},
    ]  # fmt: skip
    assert whole(store) == [2, 6]
    tag(capsys, store, "good", "--remove")
    assert result_of("gc", capsys, store, "--keep", "1", "--yes")["kept"] == [6]
    assert whole(store) == [6]


def test_with_keep_tag_other_tags_keep_nothing(store: Path, capsys: Capture) -> None:
    tag(capsys, f"{store}@1", "release-1")
    tag(capsys, f"{store}@2", "tried")
    code, _, err = run_command("gc", capsys, store, "--keep-tag", "relaese-*", "--yes")
    assert code == 2
    assert "no epoch is tagged relaese-*; tags here: release-1, tried" in err
    code, out, _ = run_command("gc", capsys, store, "--keep-tag", "release-*")
    assert (code, f"Next: abs gc {store} --keep-tag 'release-*' --yes" in out) == (0, True)
    assert "epoch 1 stays: tagged release-1" in out
    assert result_of("gc", capsys, store, "--keep-tag", "release-*", "--yes")["kept"] == [1, 4, 5]
    assert listed(capsys, store) == [("release-1", 1)]
    assert whole(store) == [1, 4]


def test_a_damaged_tag_keeps_its_epoch_is_found_and_comes_back(store: Path, capsys: Capture) -> None:
    tag(capsys, f"{store}@1", "good")
    path = store / layout.tag(1, "good")
    path.write_bytes(path.read_bytes().replace(b"good", b"evil"))
    assert result_of("gc", capsys, store, "--keep", "1")["kept"] == [1, 4, 5]
    code, out, _ = run_command("validate", capsys, store, "-o", "json")
    assert code == 3
    assert [f["path"] for f in json.loads(out)["findings"]] == [layout.tag(1, "good")]
    assert result_of("tag", capsys, store)["tags"][0]["tagged"] is None
    assert run_command("rebuild", capsys, store, "--yes")[0] == 0
    assert whole(store) == [1, 2, 4]
    assert listed(capsys, store) == [("good", 1)]


def test_a_tag_whose_epoch_is_gone_is_a_finding(store: Path, capsys: Capture) -> None:
    put_tag(LocalStorage(store), unchecked("lost", 3))
    code, out, _ = run_command("validate", capsys, store, "-o", "json")
    assert code == 3
    messages = [finding["message"] for finding in json.loads(out)["findings"]]
    assert messages == ["epoch 3 is tagged lost, and is not complete here any more"]


def test_a_file_that_is_no_tag_is_named_and_a_path_in_one_leads_nowhere(store: Path, capsys: Capture) -> None:
    (store / "tags").mkdir()
    (store / "tags" / "0000000001-..json").write_bytes(b"{}")
    (store / "tags" / "1-good.json").write_bytes(b"{}")
    assert listed(capsys, store) == []
    findings = json.loads(run_command("validate", capsys, store, "-o", "json")[1])["findings"]
    assert {finding["code"] for finding in findings} == {"unreferenced-file"}


def journal_of(store: Path, keep: int) -> Journal:
    native = NativeStore(LocalStorage(store))
    attempt = native.attempt(layout.attempt(1))
    attempt = dataclasses.replace(Build(native.storage, loop_job()), attempt=2).begin(first_epoch=7, parent=4)
    return Journal(native.storage, loop_job(), attempt, keep=keep, directory_hint="job.yaml")


def test_a_running_job_removes_no_epoch_that_has_a_tag(store: Path, capsys: Capture) -> None:
    tag(capsys, f"{store}@1", "good")
    journal = journal_of(store, keep=1)
    tag(capsys, f"{store}@2", "later")
    journal.prune(last=True)
    assert whole(store) == [1, 2, 4]
    tag(capsys, store, "later", "--remove")
    journal.prune(last=True)
    assert whole(store) == [1, 4]
    tag(capsys, store, "good", "--remove")
    journal.prune(last=True)
    assert whole(store) == [4]


class TaggedAt(LocalStorage):
    """Just before the n-th change that a remover makes, an epoch is tagged."""

    left = 0
    epoch = 0
    outcome: str | None = None

    def _step(self) -> None:
        self.left -= 1
        if self.left == 0:
            try:
                NativeTags(NativeStore(LocalStorage(self.root))).add(
                    self.epoch, "just-now", quick=True, move=False, progress=lambda read, total: None
                )
                self.outcome = "tagged"
            except Exception as error:
                self.outcome = str(error)

    def put(self, path: str, data: bytes | memoryview, *, replace: bool = False) -> None:
        self._step()
        super().put(path, data, replace=replace)
        self._step()

    def list(self, path: str) -> list[object]:  # type: ignore[override]
        entries = super().list(path)
        if path == layout.TAGS:
            self._step()
        return entries  # type: ignore[return-value]

    def delete(self, path: str) -> None:
        self._step()
        super().delete(path)


@pytest.mark.integration
@pytest.mark.parametrize("epoch", [1, 2])
def test_an_epoch_that_is_tagged_while_others_are_removed_stays_whole_or_gets_no_tag(
    tmp_path: Path, epoch: int
) -> None:
    outcomes: set[bool] = set()
    for step in range(1, 40):
        path = tmp_path / str(step)
        make_store(path)
        storage = TaggedAt(path)
        removal = plan_removal(NativeStore(LocalStorage(path)), 1, min_age=0)
        storage.epoch, storage.left = epoch, step
        with lock.exclusive(LocalStorage(path)):
            carry_out(storage, removal, 1)
        if storage.outcome is None:
            break
        tagged = storage.outcome == "tagged"
        outcomes.add(tagged)
        assert ([one.epoch for one in NativeTags(NativeStore(LocalStorage(path))).all()] == [epoch]) is tagged
        assert (epoch in whole(path)) is tagged, (step, storage.outcome)
    assert outcomes == {True, False}


def test_what_a_killed_remover_has_left_is_in_nobodys_way(store: Path, capsys: Capture) -> None:
    (store / layout.leaving(2)).write_bytes(b"")
    assert tag(capsys, f"{store}@2", "good")[0] == 0
    (store / layout.leaving(1)).write_bytes(b"")
    with lock.exclusive(LocalStorage(store)), pytest.raises(NotFound, match="epoch 1 is being removed"):
        NativeTags(NativeStore(LocalStorage(store))).add(
            1, "late", quick=True, move=False, progress=lambda read, total: None
        )
    assert result_of("gc", capsys, store, "--keep", "1", "--min-age", "0s", "--yes")["kept"] == [2, 4, 5]
    assert whole(store) == [2, 4]
    assert not (store / layout.leaving(2)).exists()


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_hours_and_days_keep_the_last_epoch_of_each() -> None:
    times = {n: NOON + timedelta(minutes=20 * n) for n in range(100)}  # three an hour, from noon on
    kept = kept_by(Retention(1, hourly=3, daily=2), times)
    assert list(kept) == [35, 95, 98, 99]
    assert kept[99] == ("the newest", "the last of its hour, 2026-03-02 21:00", "the last of its day, 2026-03-02")
    assert kept[35] == ("the last of its day, 2026-03-01",)
    assert list(kept_by(Retention(1, within=3600.0), times)) == [96, 97, 98, 99]
    assert list(kept_by(Retention(2), times)) == [98, 99]


@given(
    st.lists(st.integers(0, 10**6), min_size=1, max_size=60), st.integers(0, 5), st.integers(0, 5), st.integers(0, 5),
    st.none() | st.integers(0, 10**5),
)  # fmt: skip
def test_rules_add_up_and_the_newest_stays(
    seconds: list[int], last: int, hourly: int, daily: int, within: int | None
) -> None:
    times = {n: NOON + timedelta(seconds=s) for n, s in enumerate(sorted(seconds), start=1)}
    kept = set(kept_by(Retention(last, hourly, daily, within), times))
    single = [Retention(last), Retention(0, hourly), Retention(0, 0, daily), Retention(0, within=within)]
    assert kept == set[int]().union(*(kept_by(rule, times) for rule in single))
    assert max(times) in kept
    assert len(kept_by(Retention(0, hourly), times)) <= max(hourly, 1)


def test_rules_of_gc(tmp_path: Path, capsys: Capture) -> None:
    make_store(tmp_path)
    # Epoch n of the store was triggered at second n of one minute.
    assert result_of("gc", capsys, tmp_path, "--keep-within", "2s")["kept"] == [2, 4, 5]
    assert result_of("gc", capsys, tmp_path, "--keep-hourly", "5")["kept"] == [4, 5]
    rules = result_of("gc", capsys, tmp_path, "--keep-last", "2", "--keep-daily", "3")
    assert (rules["kept"], rules["keep"], rules["rules"]["daily"]) == ([2, 4, 5], 2, 3)
    _, out, _ = run_command("gc", capsys, tmp_path, "--keep-last", "2", "--keep-daily", "3")
    assert f"abs gc {tmp_path} --keep-last 2 --keep-daily 3 --yes" in out
    assert "epoch 4 stays: the newest, the last of its day, 2026-01-02" in out
    _, out, _ = run_command("gc", capsys, tmp_path, "--keep-within", "1h30m")
    assert "epoch 2 stays: within 1h30m of the newest" in out
    _, out, _ = run_command("gc", capsys, tmp_path, "--keep-within", "2s")
    assert f"abs gc {tmp_path} --keep-within 2s --yes" in out
