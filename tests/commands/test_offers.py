"""What a shell is offered from a store: by the process that completion scripts start, and by a bash on a terminal."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from abscli.cli import main
from formats.flink.metadata.file import FILE, encode, parse
from tests.support.archives import extract
from tests.support.commands import result_of
from tests.support.flink.cases import HASHMAP, latest
from tests.support.flink.truth import DATA
from tests.support.stores.small import make_store
from tests.support.terminal import ALL, Terminal, bash

ROOT = Path(__file__).resolve().parents[2]

SETTINGS = {"PYTHONPATH": str(ROOT), "ABS_COMPLETION_TIMEOUT": "100"}
"""On a busy machine two seconds may not be enough."""


def process(*words: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """`abs __complete`, as a script starts it."""
    return subprocess.run(
        [sys.executable, "-m", "abscli", main.COMPLETE, *words],
        capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, cwd=cwd,
        env={**os.environ, **SETTINGS, **environment},
    )  # fmt: skip


def offers(*words: str, cwd: Path | None = None) -> list[str]:
    """What it offers; it ends well and says nothing else."""
    done = process(*words, cwd=cwd)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Epochs 1 to 5: 5 is not complete, 3 was given up and is damaged; 2 is tagged."""
    path = tmp_path / "store"
    make_store(path)
    assert main.main(["tag", f"{path}@2", "before-upgrade", "-q"]) == 0
    return path


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()}


def test_a_reference_has_latest_tags_and_epochs_newest_first(store: Path) -> None:
    shown = offers("ref", "inspect", f"{store}@")
    assert shown[:2] == ["latest", "before-upgrade"]
    numbers = list(map(int, shown[2:]))
    assert numbers == sorted(numbers, reverse=True)
    assert 2 in numbers
    assert offers("ref", "inspect", f"{store}@b") == ["before-upgrade"]
    assert offers("ref", "diff", f"{store}@1", f"{store}@2") == ["2"]
    assert offers("ref", "inspect", f"{store}@nothing") == []


def test_what_is_offered_is_understood(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for offer in offers("ref", "inspect", f"{store}@"):
        assert main.main(["inspect", f"{store}@{offer}", "-o", "json"]) == 0
        capsys.readouterr()
    for task in offers("task", "inspect", f"{store}@2", "seen/"):
        assert main.main(["inspect", f"{store}@2", "--task", task, "-o", "json"]) == 0
        capsys.readouterr()


def test_operators_tasks_epochs_and_tags_come_from_the_store_on_the_line(store: Path) -> None:
    assert offers("operator", "inspect", f"{store}", "") == ["lines", "seen", "out"]
    assert offers("operator", "inspect", f"{store}@before-upgrade", "s") == ["seen"]
    assert offers("task", "inspect", "-o", "json", f"{store}@2", "--task", "s") == ["seen/"]
    assert offers("task", "inspect", f"{store}@2", "--task", "seen/") == ["seen/0", "seen/1"]
    assert offers("parallelism", "run", "job.yaml", "--store", str(store), "--parallelism", "s") == ["seen="]
    assert offers("epoch", "run", "job.yaml", f"--store={store}", "--from-epoch", "2") == ["2"]
    assert offers("tag", "tag", str(store), "") == ["before-upgrade"]


def test_operators_without_state_are_not_offered_where_state_is_asked_for(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert offers("stateful", "state", str(store), "") == ["seen"]
    for name in offers("operator", "inspect", f"{store}@2", ""):
        shows = main.main(["state", f"{store}@2", name, "-q"]) == 0
        capsys.readouterr()
        assert shows == (name in offers("stateful", "state", f"{store}@2", "")), name


def test_operators_of_the_epoch_that_is_named_are_offered_and_not_those_of_an_epoch_that_is_gone(store: Path) -> None:
    assert offers("operator", "state", f"{store}@77", "") == []
    shutil.rmtree(store / "topologies")
    assert offers("operator", "state", f"{store}@2", "") == []
    assert "2" in offers("ref", "state", f"{store}@")


def test_words_are_read_as_the_shell_would(store: Path) -> None:
    spaced = store.with_name("my store")
    store.rename(spaced)
    here = spaced.parent
    for typed in (r"my\ store@b", "'my store@b", '"my store@b', f"{here}/my\\ store@b"):
        assert offers("ref", "inspect", typed, cwd=here) == ["before-upgrade"]
    assert offers("operator", "state", "'my store'", "", cwd=here) == ["lines", "seen", "out"]
    done = process("ref", "inspect", "~/my\\ store@b", HOME=str(here))
    assert done.stdout.split() == ["before-upgrade"]


def test_nothing_on_the_line_is_run(store: Path, tmp_path: Path) -> None:
    for word in ("$(touch ran)@", "`touch ran`@", "'$(touch ran)", f"{store}@$(touch ran)"):
        assert offers("ref", "inspect", word, cwd=tmp_path) == []
        assert offers("operator", "state", word, "", cwd=tmp_path) == []
    assert not (tmp_path / "ran").exists()


def test_checkpoints_of_flink_have_offers(capsys: pytest.CaptureFixture[str]) -> None:
    number = latest(HASHMAP).name[4:]
    assert number in offers("ref", "inspect", f"{HASHMAP}@")
    operators = offers("operator", "inspect", f"{HASHMAP}@{number}", "--operator", "")
    assert operators
    assert offers("operator", "inspect", f"{latest(HASHMAP)}/_metadata", "--operator", "") == operators
    having = {state["operator"] for state in result_of("state", capsys, f"{HASHMAP}@{number}")["states"]}
    assert having == set(offers("stateful", "state", f"{HASHMAP}@{number}", ""))
    assert having < set(operators)
    snapshot = next((DATA / "hashmap-savepoint-canonical").iterdir())
    assert offers("operator", "inspect", str(snapshot), "--operator", "")
    assert offers("tag", "tag", str(HASHMAP), "") == []


def test_names_that_a_shell_would_run_are_not_offered(tmp_path: Path) -> None:
    data = (latest(HASHMAP) / FILE).read_bytes()
    metadata = parse(data)
    first, *rest = metadata.operators
    assert metadata.version >= 5
    hostile = msgspec.structs.replace(first, uid="$(touch ran)")
    (tmp_path / FILE).write_bytes(encode(msgspec.structs.replace(metadata, operators=(hostile, *rest))))
    shown = offers("operator", "inspect", str(tmp_path), "--operator", "")
    assert len(shown) == len(rest)
    assert not any("$" in offer for offer in shown)


def test_checkpoints_of_spark_have_offers(tmp_path: Path) -> None:
    with tarfile.open(ROOT / "tests" / "data" / "spark" / "wc_hdfs.tar.gz") as archive:
        extract(archive, tmp_path)
    checkpoint = next(path.parent for path in tmp_path.rglob("offsets"))
    shown = offers("ref", "inspect", f"{checkpoint}@")
    assert shown[0] == "latest"
    assert "0" in shown
    assert offers("operator", "inspect", str(checkpoint), "--operator", "") == ["0", "source-0"]
    assert offers("stateful", "state", str(checkpoint), "") == ["0"]
    assert offers("task", "inspect", str(checkpoint), "--task", "0/")[0] == "0/0"


@pytest.mark.parametrize("damage", ["", "{}", "[" * 100_000, "\0\xff"])
def test_a_damaged_store_has_no_offers_and_no_message(store: Path, damage: str) -> None:
    (store / "abs-store.json").write_text(damage, encoding="latin-1")
    assert offers("ref", "inspect", f"{store}@") == []
    assert offers("operator", "state", str(store), "") == []


def test_whatever_it_is_asked_it_ends_well_and_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for words in (
        (), ("ref",), ("epoch", "run", "--store"), ("nonsense", "inspect", ""), ("ref", "inspect", "@"),
        ("ref", "inspect", "empty@"), ("ref", "inspect", "nowhere@"), ("task", "inspect", "\udcff", "\udcff"),
        ("ref", "x", "ftp://x/y@"), ("epoch", "run", "--store", ""), ("operator", "state", "empty", ""),
    ):  # fmt: skip
        assert offers(*words, cwd=tmp_path) == []


def test_a_reader_that_has_gone_is_no_error(store: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "abscli", main.COMPLETE, "ref", "inspect", f"{store}@"],
        stdout=write, stderr=subprocess.PIPE, timeout=120, env={**os.environ, **SETTINGS},
    )  # fmt: skip
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=50) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.integration
def test_a_server_that_does_not_answer_is_not_waited_for(silent: str) -> None:
    """The command itself would ask for minutes."""
    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_REGION": "us-east-1"}
    for words in (("ref", "inspect", "--endpoint", silent, "s3://bucket/store@"),
                  ("operator", "state", f"--endpoint={silent}", "s3://bucket/store", ""),
                  ("ref", "inspect", f"webhdfs://{silent.removeprefix('http://')}/store@")):  # fmt: skip
        done = process(*words, **keys, ABS_COMPLETION_TIMEOUT="1")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_nothing_is_written(store: Path) -> None:
    before = contents(store)
    for kind in ("ref", "epoch", "operator", "task", "tag", "parallelism"):
        offers(kind, "inspect", str(store), f"{store}@" if kind == "ref" else "")
    assert contents(store) == before


def test_no_heavy_package_is_loaded(store: Path) -> None:
    code = (
        "import sys\nfrom abscli.cli.main import main\nmain(sys.argv[1:])\n"
        "sys.stderr.write(' '.join({name.partition('.')[0] for name in sys.modules}))\n"
    )
    heavy = {"pyspark", "py4j", "pyarrow", "rich", "yaml", "numpy", "pydantic", "pandas", "typer", "obstore", "logging"}
    for kind in ("ref", "task"):
        words = [main.COMPLETE, kind, "inspect", str(store), f"{store}@" if kind == "ref" else ""]
        done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True,
                              env={**os.environ, **SETTINGS})  # fmt: skip
        assert done.stdout
        assert not heavy & set(done.stderr.split())


@pytest.fixture
def terminal(store: Path, tmp_path: Path) -> Iterator[Terminal]:
    """A bash beside the store, in which `abs` is this one."""
    program = tmp_path / "bin" / "abs"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m abscli "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    with bash(ROOT / "completions" / "abs.bash", tmp_path, {"PATH": path, **SETTINGS}) as terminal:
        yield terminal


@pytest.mark.integration
def test_bash_completes_from_the_store(terminal: Terminal, tmp_path: Path) -> None:
    assert terminal.typed("abs inspect sto") == "abs inspect store/"
    assert terminal.typed("abs inspect store@b") == "abs inspect store@before-upgrade "
    assert terminal.typed("abs inspect 'store@b") == "abs inspect 'store@before-upgrade' "
    path = f"{tmp_path}/store@b"
    assert terminal.typed(f"abs diff store@1 {path}") == f"abs diff store@1 {path}efore-upgrade "
    assert terminal.typed("abs inspect store@2 --task s") == "abs inspect store@2 --task seen/"
    assert terminal.typed("abs inspect store@2 --task seen/", ALL) == "abs inspect store@2 --task seen/0 seen/1 "
    assert terminal.typed("abs inspect store@2 --operator=o") == "abs inspect store@2 --operator=out "
    assert terminal.typed("abs state -o json store@2 se") == "abs state -o json store@2 seen "
    assert terminal.typed("abs run job.yaml --store=store --parallelism se").endswith("--parallelism seen=")
    assert terminal.typed("abs inspect store@2 --out") == "abs inspect store@2 --output "
    assert terminal.typed("abs inspect store@2 --output=js") == "abs inspect store@2 --output=json "
    assert terminal.typed("abs tag store b") == "abs tag store before-upgrade "
    assert terminal.typed("bin/abs inspect store@b") == "bin/abs inspect store@before-upgrade "


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_offers_the_newest_epochs_first(store: Path, tmp_path: Path) -> None:
    program = tmp_path / "abs"
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m abscli "$@"\n')
    program.chmod(0o755)
    code = f'source "{ROOT}/completions/abs.fish"; complete -C "{program} inspect store@"'
    done = subprocess.run(
        ["fish", "--no-config", "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path,
        env={**os.environ, **SETTINGS, "HOME": str(tmp_path)},
    )  # fmt: skip
    shown = [offer.partition("\t")[0] for offer in done.stdout.splitlines()]
    assert shown[:2] == ["store@latest", "store@before-upgrade"]
    numbers = [int(offer.rpartition("@")[2]) for offer in shown[2:]]
    assert numbers == sorted(numbers, reverse=True)
    assert len(numbers) > 2


def test_bash_lists_every_epoch(terminal: Terminal) -> None:
    shown = terminal.typed("abs inspect store@", ALL).split()
    assert shown[2] == "store@latest"
    assert {"@before-upgrade", "@1", "@2"} <= set(shown)


def test_bash_is_left_as_it_was_where_there_is_nothing_to_offer(terminal: Terminal, tmp_path: Path) -> None:
    for line in ("abs inspect nowhere@", "abs inspect $(touch ran)@", "abs state store@2 zzz", "abs inspect store@zzz"):
        assert terminal.typed(line).strip() == line
    assert not (tmp_path / "ran").exists()
