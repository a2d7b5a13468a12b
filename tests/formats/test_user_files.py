"""Files that a user hands to a command, and text that others wrote: neither hangs it, fills the memory or steers a
terminal."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import unicodedata
from pathlib import Path

import pytest

from formats.errors import Damaged, UnsafePath
from formats.job.file import BadFile, parse_topology_bytes
from formats.native import layout, lock
from formats.plain_text import plain_json, plain_lines
from formats.storage import LocalStorage, walk
from tests.support.stores.hostile import change, measured
from tests.support.stores.small import make_store

GB = 1_000_000_000
JOB = "version: 1\njob: {job}\noperators:\n  lines:\n    source: {{type: text, path: in/*.txt}}\n"
HOSTILE = "a\x7fb\x9b31mc\u202egnp.exe\u2066d\u200be\u2028f\x85g\ufeffh"
"""DEL, CSI of C1, an override of direction, an isolate, a zero-width space, separators, a byte order mark."""


@pytest.mark.sample(5)
@pytest.mark.parametrize("device", ["/dev/zero", "/dev/full"])
@pytest.mark.parametrize(
    "command",
    [
        ["restore", "{}", "--job", "job.yaml", "--yes"],
        ["restore", "{}", "--to", "copy"],
        ["restore", "plan.json", "--job", "{}", "--yes"],
        ["topology", "{}"],
        ["run", "{}", "--store", "store"],
        ["simulate", "{}"],
        ["plan-recovery", "--topology", "{}", "--failed", "lines/0"],
        ["diff", "tests/data/flink/hashmap-savepoint-canonical/savepoint-10d2f4-6792269b97e8", "--uids", "{}"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_a_device_in_place_of_a_file_is_refused(command: list[str], device: str, tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    make_plan(tmp_path)
    words = [word.format(device) for word in command]
    places = {"job.yaml": tmp_path / "job.yaml", "plan.json": tmp_path / "plan.json", "copy": tmp_path / "copy"}
    words = [str(places.get(word, root / word if word.startswith("tests/") else word)) for word in words]
    done = measured(*words, timeout=120)
    assert done.code == 2, done.err
    assert "is not a plain file" in done.err
    assert done.peak < GB / 2


def make_plan(folder: Path) -> None:
    from abscli.stores.native.plan import plan_recovery
    from formats.native.store import NativeStore
    from formats.plan import encode

    build = make_store(folder / "planned")
    (folder / "plan.json").write_bytes(encode(plan_recovery(NativeStore(build.storage))))
    (folder / "job.yaml").write_text(JOB.format(job="reach"))


def test_a_file_without_end_is_refused_with_the_bound(tmp_path: Path) -> None:
    """A file as long as a disk, of which nothing is stored."""
    for name, words in (("plan.json", ["restore", "{}", "--yes"]), ("job.yaml", ["topology", "{}"])):
        with (tmp_path / name).open("wb") as file:
            file.truncate(1 << 40)
        done = measured(*[word.format(tmp_path / name) for word in words])
        assert done.code == 2
        assert "has more than" in done.err
        assert done.peak < GB


def test_a_plan_of_values_that_fill_the_memory_is_refused_with_the_bound(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_bytes(b'{\n  "schema": "abs.plan",\n  "x": [' + b"[]," * 40_000_000 + b"[]]}")
    done = measured("restore", plan, "--job", "job.yaml", "--yes")
    assert done.code == 2
    assert "at most 640 are read" in done.err
    assert done.peak < GB


def test_a_plan_may_come_through_a_pipe(tmp_path: Path) -> None:
    make_plan(tmp_path)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["sh", "-c", f"cat '{tmp_path}/plan.json' > '{pipe}'"]):
        done = measured("restore", pipe, "--job", tmp_path / "job.yaml", "--yes", timeout=120)
    assert done.code == 2
    assert "out was removed, and its output would have no owner" in done.err  # read, and held against the job


@pytest.mark.parametrize(
    "number",
    ["9" * 100_000, "1" + ":59" * 100_000, "0x" + "f" * 100_000, "1" + ":59" * 100_000 + ".5", "0b" + "1" * 9999],
    ids=["decimal", "sexagesimal", "hexadecimal", "sexagesimal float", "binary"],
)
@pytest.mark.parametrize("place", ["parallelism: {}\n", "x: [{}]\n"])
def test_a_number_of_any_length_is_a_finding_and_takes_no_time(number: str, place: str) -> None:
    text = JOB.format(job="words") + place.format(number)
    with pytest.raises(BadFile, match="cannot be read as"):
        parse_topology_bytes(text.encode(), "job.yaml")


# -- text -------------------------------------------------------------------------------------------------


def harmless(text: str) -> bool:
    return not any(unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp") and c not in "\n\t" for c in text)


def test_no_json_holds_a_character_that_a_terminal_acts_on() -> None:
    data = json.dumps({HOSTILE: [HOSTILE]}, ensure_ascii=False).encode()
    assert harmless(plain_json(data).decode())
    assert json.loads(plain_json(data)) == {HOSTILE: [HOSTILE]}
    assert plain_json(b'{"a":"\\u0007"}') == b'{"a":"\\u0007"}'
    assert plain_json("grün – 漢字".encode()) == "grün – 漢字".encode()


def test_lines_for_a_terminal_keep_their_colours_and_nothing_else() -> None:
    assert plain_lines("\x1b[1;31mabs: error:\x1b[0m no") == "\x1b[1;31mabs: error:\x1b[0m no"
    assert harmless(plain_lines(HOSTILE + "\x1b]0;title\x07\x1b[2J\r\b"))
    assert plain_lines("a\x9bb") == "a\\x9bb"


@pytest.mark.sample(1)
@pytest.mark.parametrize("form", ["table", "json", "ndjson"])
def test_what_a_store_says_steers_no_terminal(tmp_path: Path, form: str) -> None:
    store = tmp_path / "store"
    make_store(store)
    change(store / layout.outcome(3), lambda facts: facts.update(reason=HOSTILE))
    change(store / layout.STORE, lambda facts: facts.update(job=HOSTILE))
    change(store / layout.attempt(1), lambda facts: facts.update(policy=HOSTILE))
    commands: list[list[object]] = [
        ["inspect", store], ["inspect", f"{store}@4"], ["validate", store], ["plan-recovery", store],
        ["plan-recovery", f"{store}@3"], ["gc", store], ["state", f"{store}@4", HOSTILE],
        ["diff", f"{store}@2", f"{store}@4"],
    ]  # fmt: skip
    for command in commands:
        done = measured(*command, "-o", form)
        assert harmless(done.out), (command, done.out)
        assert harmless(done.err), (command, done.err)


@pytest.mark.parametrize("form", ["table", "json", "ndjson", "dot", "mermaid", "svg"])
def test_what_a_plan_of_flink_says_steers_no_terminal_and_no_page(tmp_path: Path, form: str) -> None:
    plan = {"plan": {"jid": "a" * 32, "name": HOSTILE + "<script>", "nodes": [
        {"id": "b" * 32, "parallelism": 1, "description": HOSTILE + "<img src=x>", "operator": ""},
        {"id": "c" * 32, "parallelism": 1, "description": HOSTILE, "operator": "",
         "inputs": [{"num": 0, "id": "b" * 32, "ship_strategy": HOSTILE}]},
    ]}}  # fmt: skip
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    done = measured("topology", tmp_path / "plan.json", "-o", form)
    assert harmless(done.out)
    assert harmless(done.err)
    if form == "svg":
        assert "<script" not in done.out
        assert "<img" not in done.out


# -- what a store is made of -------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [0o077, 0o027, 0o022])
def test_files_of_a_store_have_the_rights_that_the_umask_leaves(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        make_store(tmp_path / "store")
        with lock.exclusive(LocalStorage(tmp_path / "store")):
            pass
    finally:
        os.umask(before)
    store = LocalStorage(tmp_path / "store")
    assert {stat.S_IMODE((tmp_path / "store" / one.name).stat().st_mode) for one in walk(store)} == {0o666 & ~mask}
    assert stat.S_IMODE((tmp_path / "store" / "epochs").stat().st_mode) == 0o777 & ~mask


@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_a_lock_that_is_no_file_is_damage_and_hangs_nobody(tmp_path: Path, kind: str) -> None:
    make_store(tmp_path / "store")
    place = tmp_path / "store" / layout.LOCK
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "link":
        place.symlink_to(tmp_path / "elsewhere")
    else:
        place.mkdir()
    storage = LocalStorage(tmp_path / "store")
    with pytest.raises((Damaged, UnsafePath), match=r"is not a plain file|out of the store"), lock.exclusive(storage):
        pass
    assert not (tmp_path / "elsewhere").exists()
    (tmp_path / "job.yaml").write_text(JOB.format(job="reach"))
    for words in (["gc", tmp_path / "store", "--yes"], ["inspect", tmp_path / "store"]):
        done = measured(*words, timeout=120)
        assert done.code in (0, 2, 3), done.err


# -- drawings ---------------------------------------------------------------------------------------------


def dense(operators: int) -> str:
    lines = ["version: 1", "job: dense", "operators:", "  o0: {source: {type: text, path: in/*.txt}}"]
    for i in range(1, operators):
        lines.append(f"  o{i}: {{from: [{', '.join(f'o{j}' for j in range(i))}]}}")
    return "\n".join(lines) + "\n"


@pytest.mark.integration
def test_a_graph_too_dense_to_be_seen_is_not_drawn_and_every_other_form_is(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(dense(300))
    drawn = measured("topology", job, "-o", "svg")
    assert drawn.code == 2
    assert "too dense to be drawn" in drawn.err
    assert drawn.peak < GB / 2
    for form in ("table", "json", "dot", "mermaid"):
        done = measured("topology", job, "-o", form)
        assert done.code == 0
        assert done.peak < GB


@pytest.mark.integration
def test_what_is_just_sparse_enough_is_drawn_within_the_bound(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(dense(80))
    done = measured("topology", job, "-o", "svg")
    assert done.code == 0
    assert done.peak < GB
