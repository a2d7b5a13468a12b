"""Stores that somebody made to do harm: names that lead elsewhere, and facts and files that fill the memory."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from formats.errors import Damaged, FormatError, UnsafePath
from formats.ids import TaskId
from formats.native import layout
from formats.native.facts import SEAL, SEAL_LENGTH, digest
from formats.native.state.tables import KEY_GROUP, decode_log, decode_state, encode_log
from formats.native.store import NativeStore
from formats.storage import LocalStorage
from tests.support.stores.hostile import (
    Ran,
    ack,
    change,
    change_graph,
    change_tasks,
    measured,
    point_at_tasks,
    replace_file,
    tasks_file,
)
from tests.support.stores.small import make_store

GB = 1_000_000_000
EPOCH = 4


@pytest.fixture
def store(tmp_path: Path) -> Path:
    make_store(tmp_path / "store")
    return tmp_path / "store"


def opened(store: Path) -> NativeStore:
    return NativeStore(LocalStorage(store))


# -- names ------------------------------------------------------------------------------------------------

SINK = {"directory": "out", "name": "part-00000-0000000004.jsonl", "bytes": 1, "rows": 1, "sha256": "0" * 64}
BAD_PARTS: dict[str, Callable[[dict[str, Any]], object]] = {
    "sink part above its folder": lambda part: part["sink"].append({**SINK, "name": "../../loot"}),
    "sink part at the root": lambda part: part["sink"].append({**SINK, "name": "/etc/loot"}),
    "sink part of another name": lambda part: part["sink"].append({**SINK, "name": "notes.txt"}),
    "sink part with a line break": lambda part: part["sink"].append({**SINK, "name": SINK["name"] + "\n"}),
    "transaction of another name": lambda part: part["sink"].append({**SINK, "prepared": "x'; drop table t; --"}),
    "transaction of another attempt": lambda part: part["sink"].append(
        {**SINK, "name": "part-00000-0000000001.csv", "prepared": f"abs-{'f' * 32}-0000000001-00000-00000000-counts"}
    ),
    "upload of another name": lambda part: part["sink"].append(
        {**SINK, "upload": {"object": "../../loot", "id": "1", "etags": []}}
    ),
    "upload of another part": lambda part: part["sink"].append(
        {**SINK, "upload": {"object": f"part-00009-0000000001-{'a' * 32}.jsonl", "id": "1", "etags": []}}
    ),
    "staged rows above": lambda part: part["sink"].append({**SINK, "staged": "../../loot"}),
    "staged rows that are another file": lambda part: part["sink"].append({**SINK, "staged": "abs-store.json"}),
    "staged rows of another task": lambda part: part["sink"].append(
        {**SINK, "staged": f"epochs/0000000004/{part['attempt_id']}/parts/out/9/{'a' * 16}.rows"}
    ),
    "sink part without digest": lambda part: part["sink"].append({**SINK, "sha256": ".."}),
    "task above": lambda part: part.update(task="../../seen/0"),
    "attempt that is a path": lambda part: part.update(attempt_id="../../.."),
    "task without number": lambda part: part.update(task="seen"),
    "state file above": lambda part: part["state"][0].update(path="../../x"),
    "state file at the root": lambda part: part["state"][0].update(path="/etc/passwd"),
    "state file through here": lambda part: part["state"][0].update(path="epochs/./x"),
    "state file without digest": lambda part: part["state"][0].update(sha256=None),
    "log file above": lambda part: part["logs"][0]["file"].update(path="epochs/../../x"),
    "channel of nothing": lambda part: part["logs"][0].update(channel="seen/0"),
    "neighbour that is a path": lambda part: part["sent"].update({"../out": [1]}),
    "receiver that is a path": lambda part: part["round_robin"].update({"a/b": 1}),
}
BAD_NUMBERS: dict[str, Callable[[dict[str, Any]], object]] = {
    "rows below zero": lambda part: part.update(rows=-1),
    "counter below zero": lambda part: part["sent"].update(out=[-1]),
    "counter beyond 64 bits": lambda part: part["sent"].update(out=[2**64]),
    "size below zero": lambda part: part["state"][0].update(bytes=-5),
    "position below zero": lambda part: part.update(positions=[{"split": "x", "offset": -1, "records": 0}]),
    "epoch of 20 digits": lambda part: part.update(epoch=10**19),
}


def seen(parts: list[dict[str, Any]]) -> dict[str, Any]:
    return next(part for part in parts if part["task"] == "seen/0")


@pytest.mark.parametrize("what", BAD_PARTS)
def test_a_part_with_a_name_that_is_none_is_refused_when_it_is_read(store: Path, what: str) -> None:
    change_tasks(store, EPOCH, lambda parts: BAD_PARTS[what](seen(parts)))
    with pytest.raises(UnsafePath):
        opened(store).parts(EPOCH)


@pytest.mark.parametrize("what", BAD_NUMBERS)
def test_a_part_with_a_number_that_cannot_be_is_refused_when_it_is_read(store: Path, what: str) -> None:
    change_tasks(store, EPOCH, lambda parts: BAD_NUMBERS[what](seen(parts)))
    with pytest.raises(Damaged):
        opened(store).parts(EPOCH)


@pytest.mark.parametrize("what", BAD_PARTS)
def test_an_ack_is_checked_as_a_tasks_file_is(store: Path, what: str) -> None:
    change(ack(store, 5, "seen/0"), BAD_PARTS[what])
    with pytest.raises((UnsafePath, Damaged)):
        opened(store).part(5, TaskId("seen", 0))


def test_the_ack_of_another_task_or_epoch_is_none(store: Path) -> None:
    file = ack(store, 5, "seen/0")
    before = file.read_bytes()
    for change_to in ({"task": "lines/0"}, {"epoch": 4}):
        file.write_bytes(before)
        change(file, lambda part: part.update(change_to))  # noqa: B023 - called at once
        with pytest.raises(Damaged, match="is the ack of"):
            opened(store).part(5, TaskId("seen", 0))


@pytest.mark.parametrize("name", ["../../x", "a/b", "", "-", ".hidden", "seen\n", "a b", "\u202egpj.exe"])
def test_an_operator_whose_id_is_no_name_is_refused(store: Path, name: str) -> None:
    change_graph(store, lambda graph: graph["operators"][2].update(id=name))
    with pytest.raises(FormatError, match=r"is not a valid operator id|operators that it does not have"):
        opened(store).topology(EPOCH)


@pytest.mark.parametrize("digest_", ["../../../etc/passwd", "", "0" * 63, "G" * 64, "0" * 64 + "/.."])
def test_the_digest_of_a_job_graph_is_no_path(store: Path, digest_: str) -> None:
    change(store / layout.outcome(EPOCH), lambda facts: facts.update(topology_sha256=digest_))
    with pytest.raises(UnsafePath):
        opened(store).topology(EPOCH)


def test_a_tasks_file_elsewhere_is_refused(store: Path) -> None:
    change(store / layout.outcome(EPOCH), lambda facts: facts["tasks_file"].update(path="../../tasks.json"))
    with pytest.raises(UnsafePath):
        opened(store).parts(EPOCH)


@pytest.mark.parametrize("id", ["../../loot", "0" * 31, "0" * 32 + "/..", "G" * 32])
def test_the_id_of_an_attempt_is_no_path(store: Path, id: str) -> None:
    change(store / layout.attempt(1), lambda facts: facts.update(id=id))
    with pytest.raises(UnsafePath, match="is not a valid attempt id"):
        opened(store).attempts()
    change(store / layout.outcome(EPOCH), lambda facts: facts.update(attempt_id=id))
    with pytest.raises(UnsafePath, match="is not a valid attempt id"):
        opened(store).manifest(EPOCH)


@pytest.mark.parametrize("first", [-1, 10**10, 10**19, 2**63])
def test_an_attempt_cannot_use_up_the_numbers_of_epochs(store: Path, first: int) -> None:
    """The folder of an epoch has ten digits: what came after would not be seen."""
    change(store / layout.attempt(1), lambda facts: facts.update(first_epoch=first))
    with pytest.raises(Damaged):
        opened(store).highest_number()


def test_every_command_says_no_and_none_moves_a_file(store: Path) -> None:
    loot = store.parent / "loot"
    loot.write_text("mine")
    change_tasks(store, EPOCH, lambda parts: BAD_PARTS["sink part above its folder"](seen(parts)))
    for command in (["inspect", f"{store}@{EPOCH}"], ["validate", store], ["plan-recovery", f"{store}@{EPOCH}"]):
        done = measured(*command)
        assert done.code in (2, 3, 4), (command, done.err)
        assert "'../../loot' is not a valid part of a sink" in " ".join((done.out + done.err).split())
    assert loot.read_text() == "mine"


# -- bounds -----------------------------------------------------------------------------------------------


def commands(store: Path) -> list[list[object]]:
    """Those that read what an epoch holds."""
    ref = f"{store}@{EPOCH}"
    return [
        ["inspect", store],
        ["inspect", ref, "-o", "json"],
        ["validate", store, "-o", "json"],
        ["plan-recovery", ref],
        ["state", ref, "seen", "-o", "json"],
        ["diff", f"{store}@2", ref],
    ]


def refused(done: Ran, bound: str) -> None:
    """Within the bound, and with a word about it."""
    assert done.peak < GB, f"{done.peak >> 20} MiB"
    assert done.code in (0, 2, 3, 4, 6, 10), done.err[-2000:]
    assert done.code == 0 or bound in done.out + done.err, done.err[-2000:]


@pytest.mark.integration
@pytest.mark.parametrize(("parallelism", "bound"), [(10**9, "at most 200000"), (100_000, "at most 2000000")])
def test_a_job_graph_of_any_size_is_refused_with_the_bound(store: Path, parallelism: int, bound: str) -> None:
    def widen(graph: dict[str, Any]) -> None:
        for op in graph["operators"][:2]:
            op.update(parallelism=parallelism // (1 if parallelism > 10**6 else 2), max_parallelism=2**31 - 1)

    change_graph(store, widen)
    told = [measured(*command) for command in commands(store)]
    for done in told:
        refused(done, bound)
    assert told[2].code == 3
    assert bound in told[2].out


def test_the_key_groups_of_a_task_may_be_as_many_as_there_are_numbers(store: Path) -> None:
    change_graph(store, lambda graph: [op.update(max_parallelism=2**31 - 1) for op in graph["operators"]])
    done = measured("state", f"{store}@{EPOCH}", "seen", "-o", "json")
    assert done.peak < GB / 3
    assert done.code == 0


MEMBERS = {
    "names": lambda n: '"connector":{' + ",".join(f'"{i:x}":""' for i in range(n)) + "}",
    "numbers": lambda n: '"sent":{"out":[' + "300," * n + "1]}",
    "objects": lambda n: '"state":[' + ",".join(['{"path":"a","bytes":1,"rows":1,"sha256":null}'] * n) + "]",
}


@pytest.mark.sample(1)
@pytest.mark.integration
@pytest.mark.parametrize(("kind", "count"), [("names", 9_000_000), ("numbers", 30_000_000), ("objects", 3_000_000)])
def test_a_tasks_file_whose_values_fill_the_memory_is_refused_with_the_bound(
    store: Path, kind: str, count: int
) -> None:
    tasks = tasks_file(store, EPOCH)
    facts = json.loads(tasks.read_bytes())
    part = seen(facts["parts"])
    name = {"names": "connector", "numbers": "sent", "objects": "state"}[kind]
    part[name] = "HERE"
    del facts["sha256"]
    body = json.dumps(facts)[:-1].replace(f'"{name}": "HERE"', MEMBERS[kind](count)).encode()
    tasks.write_bytes(body + SEAL + digest(body).encode() + b'"}\n')
    point_at_tasks(store, EPOCH)
    done = measured("validate", f"{store}@{EPOCH}", "-o", "json")
    refused(done, "are read")
    assert done.code == 3


def test_a_tasks_file_of_any_length_is_refused_with_the_bound(store: Path) -> None:
    tasks = tasks_file(store, EPOCH)
    with tasks.open("r+b") as file:
        file.truncate(5 << 30)
    change(store / layout.outcome(EPOCH), lambda facts: facts["tasks_file"].update(bytes=5 << 30))
    for command in (["inspect", f"{store}@{EPOCH}", "-o", "json"], ["state", f"{store}@{EPOCH}", "seen"]):
        done = measured(*command)
        refused(done, "a fact file has at most 268435456")
        assert done.code == 3
    begun = os.times().children_user
    done = measured("validate", f"{store}@{EPOCH}", "-o", "json")
    refused(done, "at most 268435456")
    assert done.code == 3
    assert os.times().children_user - begun < 4, "the whole file was read"


def test_an_attempt_of_any_length_is_refused_with_the_bound_by_a_plan(store: Path) -> None:
    (attempt,) = (store / layout.ATTEMPTS).iterdir()
    with attempt.open("r+b") as file:
        file.truncate(40 << 30)
    done = measured("plan-recovery", str(store), "-o", "json")
    refused(done, "a fact file has at most 268435456")
    assert done.code in (3, 4)


@pytest.mark.parametrize("command", ["inspect", "validate", "state", "plan-recovery"])
def test_facts_whose_text_is_not_utf_8_are_damage(store: Path, command: str) -> None:
    """Their digest holds, and msgspec raises no error of its own for them."""
    tasks = tasks_file(store, EPOCH)
    body = tasks.read_bytes()[:-SEAL_LENGTH].replace(b'"schema":"abs.part"', b'"schema":"\xff\xee"', 1)
    assert b"\xff" in body
    tasks.write_bytes(body + SEAL + digest(body).encode() + b'"}\n')
    point_at_tasks(store, EPOCH)
    done = measured(command, f"{store}@{EPOCH}", *(["seen"] if command == "state" else []))
    assert done.code in (3, 4), done.err
    assert "it is not a valid abs.tasks" in done.out + done.err


def test_a_job_graph_whose_text_is_not_utf_8_is_damage(store: Path) -> None:
    data = b'{"job":"\xff\xee"}'
    (store / layout.topology(digest(data))).write_bytes(data)
    with pytest.raises(Damaged, match="is not a job graph"):
        opened(store).topology_by_digest(digest(data))


def test_a_text_that_is_not_utf_8_is_damage(store: Path) -> None:
    state = state_of("line", [b"\xff\xfe"])
    replace_file(store, EPOCH, ".parquet", state, 1)
    for command in (["state", f"{store}@{EPOCH}", "seen"], ["diff", f"{store}@2", f"{store}@{EPOCH}", "--rows"]):
        done = measured(*command)
        assert done.code == 3, done.err
        assert "UTF8" in done.err
    with pytest.raises(Damaged, match="UTF8"):
        decode_state(state, "f")


def test_a_log_whose_text_is_not_utf_8_is_damage() -> None:
    values = pa.StringArray.from_buffers(1, pa.array([0, 2], pa.int32()).buffers()[1], pa.py_buffer(b"\xff\xfe"))
    with pytest.raises(Damaged, match="UTF8"):
        decode_log(encode_log([pa.record_batch([values], names=["line"])]), "f")


@pytest.mark.parametrize("key", [b"[" * 100_000, b'"line"', b"[1]", b"\xff"])
def test_the_key_columns_of_a_state_file_are_a_list_of_names(store: Path, key: bytes) -> None:
    replace_file(store, EPOCH, ".parquet", state_of("line", [b"a"], key), 1)
    done = measured("state", f"{store}@{EPOCH}", "seen")
    assert done.code == 3, done.err


def state_of(column: str, values: list[bytes], key: bytes = b'["line"]') -> bytes:
    """A state file of texts that are whatever these bytes are."""
    texts = pa.array(values, pa.binary()).view(pa.string())
    table = pa.table({KEY_GROUP: pa.array(np.zeros(len(values), np.int32)), column: texts})
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, write_statistics=False, store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({b"abs.key": key})
    return bytes(sink.getvalue())


def long_run(rows: int, text: str) -> bytes:
    """A small state file of a few distinct rows, many times."""
    some = min(rows, 1 << 20)
    zeros = pa.array(np.zeros(some, np.int32))
    batch = pa.record_batch([zeros, pa.DictionaryArray.from_arrays(zeros, pa.array([text]))], names=[KEY_GROUP, "line"])
    table = pa.Table.from_batches([batch] * (rows // some))
    sink = pa.BufferOutputStream()
    options = {"compression": "zstd", "write_statistics": False, "store_schema": False}
    with pq.ParquetWriter(sink, table.schema, **options) as writer:
        writer.write_table(table, row_group_size=rows)
        writer.add_key_value_metadata({"abs.key": '["line"]'})
    return bytes(sink.getvalue())


def compressed(values: int) -> bytes:
    """A small log file that becomes eight times as many bytes, four times over."""
    batch = pa.record_batch([pa.array(np.zeros(values, np.int64))], names=["line"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        for _ in range(4):
            writer.write_batch(batch)
    return bytes(sink.getvalue())


STATE_BOMBS = {"many rows": (1 << 27, "x"), "a long text in many rows": (15_000, "x" * 100_000)}


@pytest.mark.sample(1)
@pytest.mark.integration
@pytest.mark.parametrize("what", STATE_BOMBS)
def test_a_state_file_that_becomes_anything_is_refused_with_the_bound(store: Path, what: str) -> None:
    data = long_run(*STATE_BOMBS[what])
    assert len(data) < 2 << 20
    replace_file(store, EPOCH, ".parquet", data, STATE_BOMBS[what][0])
    told = {str(command[0]): measured(*command) for command in commands(store)[2:]}
    bound = "at most" if what == "many rows" else "MiB"
    for done in told.values():
        assert done.peak < GB, f"{done.peak >> 20} MiB"
    for command in ("state", "diff"):  # validation and planning decode less of it, or nothing
        assert told[command].code in (3, 6)
        assert bound in told[command].err
    assert told["validate"].code == 3
    with pytest.raises(Damaged, match=r"at most|which is the most"):
        decode_state(data, "f")


def test_a_log_that_becomes_anything_is_refused_with_the_bound(store: Path) -> None:
    data = compressed(1 << 27)
    assert len(data) < 1 << 20
    replace_file(store, EPOCH, ".arrow", data, 1 << 29)
    for command in (["validate", store, "-o", "json"], ["diff", "--rows", f"{store}@2", f"{store}@{EPOCH}"]):
        refused(measured(*command), "MiB")
    with pytest.raises(Damaged, match="which is the most"):
        decode_log(data, "f")


def test_what_abs_writes_is_far_from_every_bound(store: Path) -> None:
    """State of many equal long values, and logs of zeros, which compress best."""
    from formats.native.state.tables import encode_state

    rows = 400_000
    table = pa.table({
        KEY_GROUP: pa.array(np.sort(np.arange(rows) % 128).astype(np.int32)),
        "line": pa.array([f"k{i}" for i in range(rows)]),
        "n": pa.array(["the same long value of every key in this state"] * rows),
    })  # fmt: skip
    assert decode_state(encode_state(table, ["line"]), "f").num_rows == rows
    batch = pa.record_batch([pa.array(np.zeros(4 << 20, np.int64))], names=["n"])
    assert sum(one.num_rows for one in decode_log(encode_log([batch] * 3), "f")) == 3 * (4 << 20)
