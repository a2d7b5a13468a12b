"""What people read at night: columns that do not fit are named, statuses are seen, leftovers are told once, and an
error says which file it is about."""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import shutil
import time
from pathlib import Path

import pytest

from abscli.cli.main import main
from abscli.stores.flink.plan import plan_flink
from abscli.stores.reasons import NoPlan
from abscli.text.columns import coloured, columns, not_shown
from formats.disk import writing
from formats.flink.store import FlinkStore
from formats.native import layout
from formats.native.store import NativeStore
from formats.storage import LocalStorage
from tests.commands.test_jobs import abs_, make_job, run
from tests.support.stores.small import FIRST, make_store

FLINK = Path(__file__).parents[1] / "data" / "flink"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    make_store(tmp_path / "store")
    return tmp_path / "store"


def shown(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    main(list(map(str, arguments)))
    return capsys.readouterr().out


# -- columns and colours ----------------------------------------------------------------------------------


def test_a_table_names_the_columns_that_do_not_fit() -> None:
    header, rows, spare = ("A", "LONG ONE", "C"), [("1", "x" * 30, "3")], ("LONG ONE",)
    assert columns(header, rows, "lll", 20, spare) == ["A  C", "1  3"]
    assert not_shown(header, rows, 20, spare) == ["not shown in 20 columns: LONG", "  ONE"]
    assert not_shown(header, rows, 80, spare) == []


@pytest.mark.parametrize("arguments", [("inspect", ""), ("inspect", "@4"), ("validate", "")])
def test_a_narrow_terminal_is_told_what_it_does_not_see(
    store: Path, arguments: tuple[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = (arguments[0], f"{store}{arguments[1]}")

    def heads(width: int) -> set[str]:
        monkeypatch.setenv("COLUMNS", str(width))
        text = shown(capsys, *command)
        named = re.findall(rf"not shown in {width} columns: (.*(?:\n  .*)*)", text)
        assert width < 100 or not named
        absent = {name.strip() for line in named for name in line.replace("\n", " ").split(",")}
        return absent | {name for line in text.splitlines() if line.isupper() or "(UTC)" in line
                         for name in re.split(r" {2,}| (?=[A-Z]+\b)", line.strip())}  # fmt: skip

    wide, narrow = heads(110), heads(50)
    words = {word for name in wide for word in name.split() if word.isupper()}
    assert words <= {word for name in narrow for word in name.split()}, words


def test_statuses_are_coloured_where_a_terminal_wants_it(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = {command: shown(capsys, command, store) for command in ("inspect", "validate")}
    assert not any("\x1b" in text for text in plain.values())
    monkeypatch.setenv("FORCE_COLOR", "1")
    for command, text in plain.items():
        colours = shown(capsys, command, store)
        assert "\x1b[32m✓ complete\x1b[0m" in colours
        assert re.sub(r"\x1b\[[0-9;]*m", "", colours) == text
    monkeypatch.setenv("NO_COLOR", "1")
    assert shown(capsys, "inspect", store) == plain["inspect"]


def test_only_marks_are_coloured() -> None:
    assert coloured("x complete! - incompletely a+ complete") == "x complete! - incompletely a+ complete"
    assert coloured("  4 ! damaged  2") == "  4 \x1b[1;31m! damaged\x1b[0m  2"


# -- leftovers --------------------------------------------------------------------------------------------


def orphaned(store: Path, count: int, *, age: float) -> list[str]:
    names = [f"{layout.EPOCHS}/0000000009/left-{i}" for i in range(count)]
    for name in names:
        path = store / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * 1024)
        os.utime(path, (time.time() - age,) * 2)
    return names


def test_files_that_nothing_refers_to_are_one_line_with_count_and_bytes(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    names = orphaned(store, 30, age=7200)
    text = shown(capsys, "validate", store)
    (line,) = [line for line in text.splitlines() if "nothing refers to it" in line]
    assert "30 files, 30.0 KiB: nothing refers to it" in line
    assert names[0] in line
    assert f"Next: abs gc {store}\n" in text
    every = json.loads(shown(capsys, "validate", store, "-o", "json"))["findings"]
    assert [finding["path"] for finding in every] == sorted(names)
    would = shown(capsys, "gc", store)
    (line,) = [line for line in would.splitlines() if line.startswith("orphans:")]
    assert "30 files, 30.0 KiB: nothing refers to it" in line


@pytest.mark.parametrize("age", [60.0, 7200.0])
def test_the_next_command_about_leftovers_removes_them(
    store: Path, age: float, capsys: pytest.CaptureFixture[str]
) -> None:
    names = orphaned(store, 2, age=age)
    text = shown(capsys, "validate", store)
    (command,) = re.findall(r"Next: abs (gc .*)", text)
    assert ("--min-age" in command) == (age < 3600)
    assert main([*command.split(), "--yes"]) == 0
    assert not any((store / name).exists() for name in names)


def test_leftovers_that_gc_would_leave_have_no_gc_as_next(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ack = store / layout.ack(5, "lines/0", FIRST)
    ack.write_bytes(ack.read_bytes()[:-20])  # what epoch 5 needs is not known now, so nothing up to it may go
    stray = store / layout.EPOCHS / "0000000004" / "stray"
    stray.write_bytes(b"x")
    os.utime(stray, (0, 0))
    text = shown(capsys, "validate", store)
    assert "stray" in text
    assert "Next: abs gc" not in text
    assert "stays: " in text
    main(["gc", str(store), "--min-age", "0s", "--yes"])
    assert stray.exists()


# -- sentences --------------------------------------------------------------------------------------------


def test_why_an_epoch_is_passed_over_is_a_sentence(tmp_path: Path) -> None:
    make_job(tmp_path)
    assert run(tmp_path).returncode == 0
    assert run(tmp_path, "--resume").returncode == 0
    store = NativeStore(LocalStorage(tmp_path / "store"))
    newest = store.latest()
    assert newest is not None
    (tmp_path / "store" / store.manifest(newest).tasks_file.path).unlink()
    done = run(tmp_path, "--resume")
    assert done.returncode == 0
    assert f"epoch {newest} cannot be used: it is damaged: " in done.stderr
    planned = abs_("plan-recovery", f"{tmp_path / 'store'}@{newest}")
    assert f"epoch {newest} cannot be restored: it is damaged: " in planned.stderr


@pytest.mark.parametrize("below", [False, True])
def test_a_store_that_is_a_file_is_refused_in_words(tmp_path: Path, below: bool) -> None:
    make_job(tmp_path)
    place = tmp_path / "job.yaml" / "below" if below else tmp_path / "job.yaml"
    done = abs_("run", tmp_path / "job.yaml", "--store", place, "--engine", "inline")
    assert done.returncode == 2
    assert "is a file" in done.stderr
    assert "--store" in done.stderr


def test_a_disk_that_is_full_is_named_with_what_was_wanted_and_what_is_free(tmp_path: Path) -> None:
    told = r"No space left on device, 1,234 bytes were to be written, [0-9,]+ bytes are free"
    with pytest.raises(OSError, match=told), writing(str(tmp_path / "not" / "there"), 1234):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(PermissionError) as raised, writing(str(tmp_path / "x")):
        raise PermissionError(errno.EACCES, "Permission denied", ".tmp-3")
    assert raised.value.filename == str(tmp_path / "x")


def test_output_to_a_full_disk_names_the_file(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    assert main(["plan-recovery", f"{store}@4", "--out", "/dev/full"]) == 6
    told = capsys.readouterr().err
    assert "/dev/full: No space left on device" in told
    assert "hint: free space" in told


def test_a_directory_that_is_not_there_is_named(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "none" / "plan.json"
    assert main(["plan-recovery", f"{store}@4", "--out", str(out)]) == 2
    assert f"create the directory {out.parent}" in capsys.readouterr().err


def out_of(below: str, path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What `plan-recovery --out` says of a place below something that is no directory, or of a directory."""
    assert main(["plan-recovery", f"{path / 'store'}@4", "--out", str(path / below)]) == 2
    return capsys.readouterr().err


def test_what_is_in_the_way_of_an_output_is_named(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "gone").symlink_to("nowhere")
    (tmp_path / "folder").mkdir()
    obstacle = f"hint: {tmp_path / 'file'} is a file, where a directory is needed"
    assert obstacle in out_of("file/plan.json", tmp_path, capsys)
    assert f"hint: {tmp_path / 'gone'} is a link that leads nowhere" in out_of("gone/plan.json", tmp_path, capsys)
    assert f"hint: {tmp_path / 'folder'} is a directory: name a file in it" in out_of("folder", tmp_path, capsys)


@pytest.mark.parametrize(
    "words",
    [
        ["plan-recovery", "REF", "--out", "IN/abs-store.json"],
        ["plan-recovery", "REF", "--out", "IN/new.json"],
        ["plan-recovery", "REF", "--out", "link/abs-store.json"],
        ["state", "REF", "seen", "--out", "IN/epochs/rows.parquet"],
        ["state", "REF", "--all", "--out", "IN/tables"],
        ["diff", "REF", "REF", "--rows", "--out", "IN/rows.jsonl"],
        ["run", "job.yaml", "--store", "REF", "--engine", "inline", "--resume", "--trace", "IN/abs-store.json"],
    ],
    ids=" ".join,
)
def test_no_output_is_written_into_a_store(
    words: list[str], store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could take the place of one of its files."""
    monkeypatch.chdir(tmp_path)
    make_job(tmp_path)
    (tmp_path / "link").symlink_to(store)
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    code = main([word.replace("REF", str(store)).replace("IN", str(store)) for word in words])
    assert (code, {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}) == (2, before)
    told = capsys.readouterr().err
    assert f"is inside {store}, which the command reads" in told
    assert hint_of(told) == "hint: name a place outside of it"


def test_the_metadata_of_a_checkpoint_of_flink_is_no_place_for_a_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(FLINK, tmp_path / "job")
    metadata = next((tmp_path / "job").rglob("_metadata"))
    before = metadata.read_bytes()
    for ref in (metadata.parent, metadata.parents[1]):
        assert main(["plan-recovery", str(ref), "--out", str(metadata)]) == 2
        assert "which the command reads" in capsys.readouterr().err
    assert metadata.read_bytes() == before


def make_job_with(tmp_path: Path, old: str, new: str) -> Path:
    make_job(tmp_path)
    job = tmp_path / "job.yaml"
    job.write_text(job.read_text().replace(old, new))
    return job


@pytest.mark.parametrize("below", [False, True])
def test_a_sink_that_is_a_file_is_refused_in_words(
    tmp_path: Path, below: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    job = make_job_with(tmp_path, "path: out", f"path: file{'/out' if below else ''}")
    assert main(["run", str(job), "--store", str(tmp_path / "store"), "--engine", "inline"]) == 2
    told = capsys.readouterr().err
    assert "sink" in told
    assert "is a file" in told
    assert "hint: move the file that is in the way; or give the sink another path" in told


def test_a_source_that_is_a_directory_is_told_to_name_its_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = make_job_with(tmp_path, "/*.txt", "")
    assert main(["run", str(job), "--store", str(tmp_path / "store"), "--engine", "inline"]) == 2
    assert " is a directory: specify its files, such as" in capsys.readouterr().err


def test_a_restore_follows_a_link_and_names_the_file_in_its_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_job(tmp_path)
    job, plan, store = (str(tmp_path / name) for name in ("job.yaml", "plan.json", "store"))
    assert main(["run", job, "--store", store, "--engine", "inline"]) == 0
    assert main(["plan-recovery", store, "--out", plan]) == 0
    (tmp_path / "to").symlink_to("real")
    (tmp_path / "real").mkdir()
    restore = ["restore", plan, "--job", job, "--yes", "--engine", "inline", "--to"]
    for below in ("", "/below"):
        assert main([*restore, f"{job}{below}"]) == 2
        told = capsys.readouterr().err
        assert "cannot be used as a directory" in told
        assert "is a file" in told
    assert main([*restore, str(tmp_path / "to")]) == 0
    assert (tmp_path / "to").is_symlink()
    assert NativeStore(LocalStorage(str(tmp_path / "real"))).epoch_numbers()


def test_a_plan_for_flink_says_of_every_checkpoint_why_not(tmp_path: Path) -> None:
    (source,) = (FLINK / "hashmap-checkpoint").iterdir()
    job = tmp_path / source.name
    shutil.copytree(source, job)
    shutil.copytree(job / "chk-2", job / "chk-1")
    for name in ("chk-1", "chk-2"):
        metadata = job / name / "_metadata"
        metadata.write_bytes(metadata.read_bytes()[:100])
    (job / "chk-3").mkdir()  # being taken
    answer = plan_flink(FlinkStore(str(job)))
    assert isinstance(answer, NoPlan)
    told = answer.message
    assert "checkpoint 3: it has no _metadata" in told
    assert "checkpoint 2: " in told or "checkpoints 2, 1: " in told
    assert "its _metadata cannot be read" in told


# -- what to do next --------------------------------------------------------------------------------------


def hint_of(stderr: str) -> str:
    (line,) = [line for line in stderr.splitlines() if line.startswith("hint: ")]
    return line


def test_a_hint_repeats_every_option_that_was_given(tmp_path: Path) -> None:
    make_job(tmp_path)
    job = tmp_path / "job.yaml"
    (tmp_path / "mine.py").write_text("def split(batch):\n    raise ValueError('not today')\n")
    job.write_text(job.read_text().replace("flat_map: words", "flat_map: mine:split"))
    done = abs_("run", "--store", tmp_path / "a store", "--interval", "250ms", "--engine=inline", "--keep", 3, job)
    assert done.returncode == 7
    assert f"`abs run --interval 250ms --engine=inline --keep 3 {job} --store '{tmp_path / 'a store'}' --resume`" in (
        hint_of(done.stderr)
    )


def test_an_error_that_needs_a_mend_says_so_before_the_command(tmp_path: Path) -> None:
    make_job(tmp_path)
    job = tmp_path / "job.yaml"
    text = job.read_text()
    (tmp_path / "mine.py").write_text("def split(batch):\n    raise ValueError('not today')\n")
    job.write_text(text.replace("flat_map: words", "flat_map: mine:split"))
    told = hint_of(run(tmp_path).stderr)
    assert told.startswith("hint: fix the function or the input, or skip such records with ")
    assert "on_error: skip, then `abs run " in told
    assert told.endswith("; no epoch was complete")
    assert "start again" not in told
    job.write_text(text)  # mended
    (command,) = re.findall("`abs (run [^`]*)`", told)
    assert abs_(*command.split()).returncode == 0


def test_a_full_disk_says_what_to_do_before_the_command(tmp_path: Path) -> None:
    make_job(tmp_path, files=6, lines=20_000)

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, 12_000))

    done = run(tmp_path, "--interval", "50ms", preexec_fn=small_files)
    assert done.returncode == 6
    told = r"/[^:]+: File too large, [0-9,]+ bytes were to be written, [0-9,]+ bytes are free"
    assert re.search(told, done.stderr), done.stderr
    assert hint_of(done.stderr).startswith("hint: free space there")
