"""`abs validate`: any byte that changed is found and put down, and the exit code says what scripts need to know."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from abscli.cli.overview import COMMANDS
from abscli.report.findings import Code, EpochReport, Finding, StoreReport
from abscli.stores.base import System
from abscli.stores.native.check import check_all
from abscli.stores.native.checks.files import check_files
from abscli.stores.registry import SYSTEMS
from abscli.text.validate import MEANING, text
from formats.ids import TaskId
from formats.native import layout, lock
from formats.native.evidence import epoch_evidence, open_for_validation, store_evidence
from formats.native.facts import FooterFacts, StateFileFacts, digest, seal
from formats.native.probe import Prober
from formats.native.state.row_groups import described
from formats.native.state.tables import KEY_GROUP, decode_state, encode_state
from formats.native.store import NativeStore, files_of
from formats.storage import LocalStorage, MemoryStorage, walk
from formats.view import Status
from tests.support.commands import run_command
from tests.support.schemas import checked
from tests.support.stores.small import FIRST, in_memory, make_store

STATE = layout.state(2, "seen/0", FIRST)


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stores") / "store"
    make_store(path)
    return path


@pytest.fixture
def store(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "store"))


run = partial(run_command, "validate")


def result(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, dict[str, Any]]:
    code, out, err = run(capsys, *args, "-o", "json")
    assert err == ""
    return code, checked(out)


def flip(path: Path, at: int = 40) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def findings(told: dict[str, Any]) -> list[tuple[int | None, str, str | None, str | None]]:
    """(epoch, code, task, path) of every finding but the missing acks that the store has by nature."""
    every = [(None, finding) for finding in told["findings"]]
    every += [(epoch["epoch"], finding) for epoch in told["epochs"] for finding in epoch["findings"]]
    return [(e, f["code"], f["task"], f["path"]) for e, f in every if f["code"] != "missing-ack"]


# -- any byte -------------------------------------------------------------------------------------------------


def check(storage: MemoryStorage, prober: Prober) -> StoreReport:
    store, problems = open_for_validation(storage)
    return check_all(store, problems, prober)


def task_of(path: str) -> str | None:
    """The task whose part a file belongs to."""
    _, _, inside = path.partition("/parts/")
    return "/".join(inside.split("/")[:2]) or None


def put_down(report: StoreReport, path: str) -> set[int | None]:
    """The epochs (None: the store itself) that hold a finding about a file, and name its task if it is of one."""
    task = task_of(path)
    found = {None for f in report.findings if f.path == path}
    return found | {
        r.epoch for r in report.epochs if any(f.path == path and (f.task and str(f.task)) == task for f in r.findings)
    }


def expected(path: str) -> set[int | None]:
    """Whom a file of the smallest store belongs to; its epoch 2 is incomplete, and both epochs have one job graph."""
    if path.startswith("topologies/"):
        return {None, 1, 2}
    return {layout.epoch_of(path)}


def damaged(data: bytes, i: int) -> Iterator[bytes]:
    """With another byte at i, without it, and with one more before it (at the end: one more)."""
    if i < len(data):
        yield data[:i] + bytes([data[i] ^ (1 + i % 255)]) + data[i + 1 :]
        yield data[:i] + data[i + 1 :]
    yield data[:i] + bytes([i % 256]) + data[i:]


@pytest.mark.integration
def test_a_changed_removed_or_added_byte_of_any_file_is_put_down_to_file_task_and_epoch() -> None:
    storage = in_memory(make_store(MemoryStorage(), parallelism=1, more=False))
    prober = Prober(storage)
    clean = check(storage, prober)
    assert [f.code for f in clean.all_findings] == [Code.MISSING_ACK]
    assert clean.latest_restorable == 1
    for path, data in list(storage.files.items()):
        for i in range(0, len(data) + 1, 13 if path.endswith(".json") else 97):
            for other in damaged(data, i):
                storage.files[path] = other
                prober.forget(path)
                report = check(storage, prober)
                assert put_down(report, path) == expected(path), (path, i)
        storage.files[path] = data
        prober.forget(path)
    assert check(storage, prober) == clean


@pytest.mark.integration
def test_so_is_every_byte_by_the_check_of_its_file() -> None:
    """As above at every position, where only what reads the file is asked."""
    storage = in_memory(make_store(MemoryStorage(), parallelism=1, more=False))
    facts, prober = NativeStore(storage).facts, Prober(storage)
    whole = {n: epoch_evidence(NativeStore(storage), n, prober) for n in (1, 2)}
    looked = 0
    for path, data in list(storage.files.items()):
        epoch = layout.epoch_of(path)
        task = task_of(path)
        for i in range(len(data) + 1):
            for other in damaged(data, i):
                storage.files[path] = other
                found: list[tuple[str | None, str | None]]
                if epoch is None:  # of the store itself
                    store, problems = open_for_validation(storage)
                    found = [(p.path, p.task and str(p.task)) for p in store_evidence(store, problems).problems]
                elif path.endswith(".json"):
                    evidence = epoch_evidence(NativeStore(storage, facts=facts), epoch, prober)
                    assert evidence is not None
                    assert evidence.epoch == epoch
                    found = [(p.path, p.task and str(p.task)) for p in evidence.problems] + [
                        (f.path, f.task and str(f.task)) for f in check_files(evidence)
                    ]
                else:
                    (written,) = (f for part in whole[epoch].parts for f in files_of(part) if f.path == path)
                    probes = {**whole[epoch].probes, **Prober(storage).probe([written])}
                    findings = check_files(replace(whole[epoch], probes=probes))
                    found = [(f.path, f.task and str(f.task)) for f in findings]
                assert (path, task) in found, (path, i)
                prober.forget(path)
                looked += 1
        storage.files[path] = data
    assert looked > 3 * sum(map(len, storage.files.values()))


def test_any_file_that_is_gone_is_missed(store: Path) -> None:
    for path, _ in walk(LocalStorage(store)):
        if "0000000003/" in path or path.endswith(("abs-store.json", "trigger.json")):
            continue  # of an aborted epoch nothing is needed; the others have tests of their own
        (store / path).rename(store / "away")
        prober = Prober(LocalStorage(store))
        report = check_all(*open_for_validation(LocalStorage(store)), prober)
        (store / "away").rename(store / path)
        accused = {f.path for f in report.all_findings}
        if path.endswith("outcome.json"):  # the epoch is as if it had never been, and what it named is left over
            path = layout.tasks_file(layout.epoch_of(path) or 0, FIRST)
        assert path in accused


def test_an_epoch_without_its_beginning_leaves_its_parts_over(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (store / layout.trigger(5, FIRST)).unlink()
    _, told = result(capsys, store)
    assert (None, "unreferenced-file", None, layout.ack(5, "seen/0", FIRST)) in findings(told)


# -- one damage at a time, by the command ---------------------------------------------------------------------


def test_a_whole_store_validates_and_names_the_missing_tasks(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, told = result(capsys, store)
    assert (code, told["latest_restorable"], told["restorable"], told["unsatisfied"]) == (0, 4, [1, 2, 4], [])
    assert [e["verdict"] for e in told["epochs"]] == ["complete", "complete", "aborted", "complete", "incomplete"]
    assert [f["task"] for f in told["epochs"][4]["findings"]] == ["seen/1", "out/0"]
    assert findings(told) == []


def test_a_flipped_byte_in_a_state_file_damages_every_epoch_that_refers_to_it(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flip(store / STATE)
    code, told = result(capsys, store)
    assert (code, told["latest_restorable"]) == (3, 1)
    assert findings(told) == [(n, "digest-mismatch", "seen/0", STATE) for n in (2, 4)]
    assert told["unsatisfied"] == ["epoch 2 is damaged", "epoch 4 is damaged"]


def test_quick_sees_sizes_and_says_what_it_has_not_seen(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip(store / STATE)
    code, told = result(capsys, store, "--quick")
    assert (code, findings(told)) == (0, [])
    assert "digest-mismatch" in told["epochs"][1]["unchecked"]
    with (store / STATE).open("ab") as f:
        f.write(b"x")
    code, told = result(capsys, store, "--quick")
    assert (code, findings(told)[0]) == (3, (2, "size-mismatch", "seen/0", STATE))


def test_a_manifest_of_garbage_is_a_finding_and_the_others_are_judged(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (store / layout.outcome(4)).write_bytes(os.urandom(300))
    code, told = result(capsys, store)
    assert (code, told["latest_restorable"]) == (3, 2)
    assert findings(told) == [(4, "manifest-unreadable", None, layout.outcome(4))]
    assert "conservation" in told["epochs"][3]["unchecked"]


def test_a_damaged_record_of_the_store_leaves_nothing_to_restore_but_epochs_are_judged(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flip(store / layout.STORE)
    code, told = result(capsys, store)
    assert (code, told["latest_restorable"], told["job"]) == (3, None, None)
    assert findings(told) == [(None, "unreadable", None, layout.STORE)]
    assert [e["verdict"] for e in told["epochs"]].count("complete") == 3


def test_a_job_graph_that_is_gone_damages_its_epochs(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(store / "topologies")
    code, told = result(capsys, store)
    assert code == 3
    assert {(e, c) for e, c, _, _ in findings(told)} == {(n, "topology-missing") for n in (None, 1, 2, 3, 4, 5)}


def test_a_stray_file_is_told_and_only_strict_minds(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (store / "notes.txt").write_text("")
    (store / layout.outcome(5)).with_name("core").write_text("")
    shutil.rmtree(store / layout.epoch_dir(3))
    code, told = result(capsys, store)
    assert (code, findings(told)) == (0, [
        (None, "unreferenced-file", None, "notes.txt"),
        (5, "unreferenced-file", None, "epochs/0000000005/core"),
    ])
    assert result(capsys, store, "--strict")[0] == 3


def test_a_link_out_of_the_store_is_not_followed(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (store / STATE).rename(store.parent / "outside")
    (store / STATE).symlink_to(store.parent / "outside")
    code, told = result(capsys, store)
    assert (code, findings(told)[0]) == (3, (2, "unreadable", "seen/0", STATE))


def test_a_path_that_leads_out_of_the_store_is_unreadable(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ack = store / layout.ack(5, "seen/0", FIRST)
    part = NativeStore(LocalStorage(store)).part(5, TaskId("seen", 0))
    assert part is not None
    evil = StateFileFacts("../../../etc/passwd", 1, 1, "0" * 64, (), FooterFacts(0, "0" * 64))
    ack.write_bytes(seal(replace(part, state=(evil,), rows=1)))
    _, told = result(capsys, store)
    assert (5, "unreadable", "seen/0", ack.relative_to(store).as_posix()) in findings(told)


@pytest.mark.parametrize("version", ["2.1", "9.0", "0-dev", ""])
def test_another_format_version_is_refused_with_exit_code_12(
    store: Path, capsys: pytest.CaptureFixture[str], version: str
) -> None:
    manifest = store / layout.outcome(4)
    manifest.write_bytes(seal(replace(NativeStore(LocalStorage(store)).manifest(4), version=version)))
    code, _, err = run(capsys, store)
    assert code == 12
    message = " ".join(err.split())
    assert f"has format version {version!r}, this program reads versions 1.x" in message
    assert "recreate the store with `abs run --store` and a new directory" in message


# -- which exit code ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ref", "code"), [
    ("@4", 0), ("@latest", 0), ("@2", 0), ("@3", 3), ("@5", 3), ("@9", 10), ("@0", 10), ("@x", 10),
])
def test_an_epoch_that_was_named_must_be_whole(
    store: Path, capsys: pytest.CaptureFixture[str], ref: str, code: int
) -> None:
    assert run(capsys, f"{store}{ref}")[0] == code


def test_one_epoch_is_judged_by_itself_and_its_parent(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip(store / layout.log(2, "seen/0", "seen/0", FIRST))
    assert run(capsys, f"{store}@2")[0] == 3
    code, told = result(capsys, f"{store}@4")
    assert (code, [e["epoch"] for e in told["epochs"]], told["latest_restorable"]) == (0, [4], 4)
    assert told["epochs"][0]["unchecked"] == ["unreferenced-file"]


@pytest.mark.parametrize(("options", "code"), [
    ((), 0), (("--strict",), 3), (("--min-epochs", 3), 0), (("--min-epochs", 4), 3),
    (("--max-age", "1h"), 3), (("--max-age", "36500d"), 0), (("--max-age", "soon"), 2), (("--format", "flink"), 10),
])
def test_demands_on_a_store(
    store: Path, capsys: pytest.CaptureFixture[str], options: tuple[object, ...], code: int
) -> None:
    assert run(capsys, store, *options)[0] == code


def test_a_store_without_an_epoch_has_nothing_to_restore(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    storage = LocalStorage(tmp_path)
    make_store(MemoryStorage())
    storage.put(layout.STORE, in_memory(make_store(MemoryStorage())).files[layout.STORE])
    code, told = result(capsys, tmp_path)
    assert (code, told["unsatisfied"]) == (3, ["no epoch can be restored"])
    assert run(capsys, tmp_path / "none")[0] == 10


def test_an_epoch_in_progress_is_no_finding_but_not_whole(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (store / "stray").write_text("")
    with lock.exclusive(LocalStorage(store)):
        code, told = result(capsys, store)
        assert (told["findings"], told["unchecked"]) == ([], ["unreferenced-file"])
        assert (code, told["epochs"][4]["verdict"], told["epochs"][4]["findings"]) == (0, "in-progress", [])
        assert run(capsys, f"{store}@5")[0] == 3


# -- forms ----------------------------------------------------------------------------------------------------


def test_ndjson_is_a_header_then_an_epoch_a_line(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (store / "stray").write_text("")
    _, out, _ = run(capsys, store, "-o", "ndjson")
    header, *items = [json.loads(line) for line in out.splitlines()]
    assert (header["schema"], "epochs" in header) == ("abs.validate", False)
    assert [item.pop("type") for item in items] == ["epoch"] * 5 + ["finding"]
    checked({**header, "epochs": items[:5], "findings": items[5:]})


def test_the_table_says_what_each_finding_means_and_what_to_type_next(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    flip(store / STATE)
    code, out, err = run(capsys, store)
    assert (code, err) == (3, "")
    flat = " ".join(out.split())
    assert "! damaged" in flat or "✗ damaged" in flat
    assert out.startswith("DAMAGED: epochs 2,4. Newest restorable: epoch 1.\n")
    assert f"digest-mismatch in epochs 2,4 seen/0 {STATE}: has SHA-256" in flat
    assert f"means: {MEANING[Code.DIGEST_MISMATCH]}" in flat
    assert f"Next: abs plan-recovery {store}@1 --out plan.json" in flat
    assert "has not acked" in flat
    assert "\x1b" not in out


def test_a_file_that_many_epochs_refer_to_is_told_once(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    flip(store / STATE)
    _, out, _ = run(capsys, store)
    assert out.count(STATE) == 1
    assert "\ndigest-mismatch in epochs 2,4\n  seen/0 " in out
    assert "\n  epoch 3: timed out" in out
    (store / layout.tasks_file(4, FIRST)).write_text("garbage")
    _, out, _ = run(capsys, store)
    assert "\ndigest-mismatch in epoch 2\n" in out
    _, _, unchecked = out.partition("\nNot checked:\n")
    assert "  digest-mismatch (epoch 4)\n" in unchecked


@pytest.mark.parametrize("width", [40, 50, 60, 80, 200])
def test_verdicts_fit_their_width(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.chdir(store.parent)
    _, out, _ = run(capsys, "store")
    assert max(len(line) for line in out.splitlines() if "/" not in line and "Next:" not in line) <= width


def test_every_code_has_a_meaning() -> None:
    assert set(MEANING) == set(Code)


@pytest.mark.parametrize("code", list(Code))
@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_every_finding_says_what_it_means_and_names_a_command_that_there_is(code: Code, system: System) -> None:
    whole = EpochReport(4, Status.COMPLETE, (), ())
    broken = EpochReport(5, Status.DAMAGED, (Finding(code, TaskId("seen", 0), None, "f", "said"),), ())
    for report in (StoreReport((whole, broken), (), (), (4,)), StoreReport((broken,), (), (), ())):
        shown = text(report, store="my store", job="j", unsatisfied=[], advice=system.advice())
        meaning = system.advice().meanings.get(code, MEANING[code])
        assert f"means: {meaning}" in " ".join(shown.split())
        (command,) = [line.partition("Next: ")[2] for line in shown.splitlines() if "Next: " in line]
        abs_, name, *words = shlex.split(command)
        assert abs_ == "abs"
        assert "my store" in {word.partition("@")[0] for word in words}
        assert name in COMMANDS


def test_keys_that_stand_in_another_group_than_their_hash_says_are_misplaced(tmp_path: Path) -> None:
    """Digests and slices hold: it is as a writer with another hash would have written it."""
    build = make_store(tmp_path / "store", parallelism=1, more=False)
    store = NativeStore(LocalStorage(tmp_path / "store"))
    (part,) = (part for part in store.parts(1) if part.state)
    (file,) = part.state
    table = decode_state((tmp_path / "store" / file.path).read_bytes(), file.path)
    groups = [(group + 1) % 8 for group in table.column(KEY_GROUP).to_pylist()]
    data = encode_state(table.set_column(0, KEY_GROUP, pa.array(groups, pa.int32())), ["line"])
    (tmp_path / "store" / file.path).write_bytes(data)
    written = StateFileFacts(file.path, len(data), 2, digest(data), *described(data))
    assert build.topology.operator("seen").max_parallelism == 8
    prober = Prober(LocalStorage(tmp_path / "store"))
    assert prober.probe([written], widths={file.path: 8})[file.path].strays == 2
    assert Prober(LocalStorage(tmp_path / "store")).probe([written])[file.path].strays is None
    evidence = epoch_evidence(store, 1, Prober(LocalStorage(tmp_path / "store")))
    assert evidence is not None
    parts = tuple(replace(p, state=(written,)) if p is part else p for p in evidence.parts or ())
    (found,) = check_files(replace(evidence, parts=parts, probes={
        **evidence.probes, **prober.probe([written], widths={file.path: 8}),
    }))  # fmt: skip
    assert (found.code, found.task, found.path) == (Code.MISPLACED_KEY, TaskId("seen", 0), file.path)
    assert found.message == "2 of the 2 keys that were hashed stand in another key group"
