"""How much of Flink's state is read, and how fast.

    python -m tests.bench.flink.bench_flink_state [FOLDER] [--export ROWS]

FOLDER has `data/` (snapshots) and `truth/` (`*.state.jsonl`: what Flink's restored backends say). Without it, only the
rates are measured: rows a second of synthetic state, decoded and as Arrow batches, one core; and, with --export, rows a
second into Parquet: `abs state --all --out` as its users run it, on two cores, of a checkpoint of RocksDB with two
tasks and so many rows, half of them counts, the others entries of maps. On a machine that does other things as well,
the time of the processors says more.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from formats.flink.metadata.handles import InlineHandle, KeyGroupsHandle
from formats.flink.state.columns import keyed_batches
from formats.flink.state.keyed import read_blocks
from formats.flink.state.keys import GroupOf
from formats.flink.store import FlinkStore
from tests.support.flink.rocks import Row, entry, key, long, write_checkpoint
from tests.support.flink.state_truth import tally
from tests.support.flink.streams import Inline

NAME = re.compile(
    r"(?P<case>.*?)(?:\.(?P<part>chk-\d+|repaired|extra-file|flipped-state-byte))?\.state(?:-read-by.*)?\.jsonl"
)


# -- agreement --------------------------------------------------------------------------------------------


def snapshots(folder: Path) -> Iterator[tuple[str, FlinkStore, Path]]:
    """Each truth file with the store that it is about."""
    for truth in sorted((folder / "truth").glob("*.jsonl")):
        found = NAME.fullmatch(truth.name)
        if found is None:
            continue
        case, part = found["case"], found["part"] or ""
        base = folder / "data" / case
        search: tuple[str, ...] = ()
        if part.startswith("chk-"):
            path = next(base.glob(f"*/{part}"))
        elif part == "repaired":
            path = base / part
            search = tuple(str(other) for other in base.iterdir() if other.name != part)
        else:
            path = base / part if part else next(base.glob("savepoint*"))
        yield f"{case} {part}".strip(), FlinkStore(str(path), search=search), truth


def agreement(folder: Path) -> None:
    kinds: Counter[tuple[str, str]] = Counter()
    verdicts = ("equal", "opaque", "different")
    print(f"{'snapshot':44}" + "".join(f"{verdict:>11}" for verdict in verdicts))
    for name, store, truth in snapshots(folder):
        counts, said = tally(store, store.epoch_numbers()[-1], truth)
        kinds.update(counts)
        print(f"{name:44}" + "".join(f"{sum(n for (_, v), n in counts.items() if v == w):>11,}" for w in verdicts))
        for line in said[:3]:
            print(f"    {line[:200]}")
    print()
    print(f"{'kind of state':44}" + "".join(f"{verdict:>11}" for verdict in verdicts))
    for kind in sorted({kind for kind, _ in kinds}):
        print(f"{kind:44}" + "".join(f"{kinds[kind, verdict]:>11,}" for verdict in verdicts))


# -- rates ------------------------------------------------------------------------------------------------

ROWS = 200_000
BASE = "org.apache.flink.api.common.typeutils.base."
JAVA = "org.apache.flink.api.java.typeutils.runtime."


def utf(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def simple(name: str) -> bytes:
    return utf(f"{BASE}{name}Serializer${name}SerializerSnapshot") + struct.pack(">i", 3)


def composite(name: str, parts: list[bytes], outer: bytes = b"", version: int = 1) -> bytes:
    head = utf(name) + struct.pack(">iii", 3, 911108, version) + outer
    return head + struct.pack(">iii", 1333245, 1, len(parts)) + b"".join(parts)


def pojo(fields: dict[str, bytes]) -> bytes:
    out = utf(JAVA + "PojoSerializerSnapshot") + struct.pack(">i", 2) + utf("Order")
    out += struct.pack(">qi", 0, len(fields))
    for name, snapshot in fields.items():
        out += utf(name) + b"\0\1" + struct.pack(">i", len(snapshot)) + snapshot
    return out + struct.pack(">qi", 0, 0) * 2


def string(text: str) -> bytes:
    units = text.encode("utf-16-be")
    out = bytearray()
    for n in (len(units) // 2 + 1, *(units[i] << 8 | units[i + 1] for i in range(0, len(units), 2))):
        while n >= 0x80:
            out.append(n & 0x7F | 0x80)
            n >>= 7
        out.append(n)
    return bytes(out)


def row_data(i: int) -> bytes:
    text = f"user-{i % 100}".encode()[:7].ljust(7, b"x")
    data = struct.pack("<qq", 0, i) + text + bytes([0x87]) + struct.pack("<d", i / 2)
    return struct.pack(">i", len(data)) + data


LONG, INT, STRING, DOUBLE = simple("Long"), simple("Int"), simple("String"), simple("Double")
TUPLE = JAVA + "TupleSerializerSnapshot"
TUPLE_CLASS = utf("org.apache.flink.api.java.tuple.Tuple3")

KINDS: dict[str, tuple[str, bytes, Callable[[int], bytes]]] = {
    "long": ("VALUE", LONG, lambda i: struct.pack(">q", i)),
    "string, 12 ASCII": ("VALUE", STRING, lambda i: string(f"value {i:06}")),
    "string, 12 Greek": ("VALUE", STRING, lambda i: string(f"τιμή-α {i % 1000:05}")),
    "tuple of 3 numbers": (
        "VALUE",
        composite(TUPLE, [LONG, INT, DOUBLE], TUPLE_CLASS),
        lambda i: struct.pack(">qid", i, 7, 0.5),
    ),
    "tuple of 3, text": (
        "VALUE",
        composite(TUPLE, [STRING, LONG, DOUBLE], TUPLE_CLASS),
        lambda i: string(f"user-{i}") + struct.pack(">qd", i, 0.5),
    ),
    "row of 3": (
        "VALUE",
        composite(JAVA + "RowSerializer$RowSerializerSnapshot", [LONG, STRING, DOUBLE], b"\1", 4),
        lambda i: b"\0" + struct.pack(">q", i) + string("abc") + struct.pack(">d", 0.5),
    ),
    "pojo of 4": (
        "VALUE",
        pojo({"amount": LONG, "gift": INT, "item": STRING, "price": DOUBLE}),
        lambda i: b"\2\0" + struct.pack(">q", i) + b"\0\0\0\0\1\0" + string("item-1") + b"\0" + struct.pack(">d", 0.5),
    ),
    "list of 5 longs": (
        "LIST",
        composite(BASE + "ListSerializerSnapshot", [LONG]),
        lambda i: struct.pack(">i5q", 5, i, 1, 2, 3, 4),
    ),
    "list of 5 texts": (
        "LIST",
        composite(BASE + "ListSerializerSnapshot", [STRING]),
        lambda i: struct.pack(">i", 5) + string("element") * 5,
    ),
    "map of 4 (rows)": (
        "MAP",
        composite(BASE + "MapSerializerSnapshot", [STRING, LONG]),
        lambda i: struct.pack(">i", 4) + b"".join(string(f"k{j}") + struct.pack(">?q", False, i) for j in range(4)),
    ),
    "big decimal": (
        "VALUE",
        simple("BigDec"),
        lambda i: struct.pack(">i", 12) + struct.pack(">qi", i + 5, 2),
    ),
    "instant": ("VALUE", simple("Instant"), lambda i: struct.pack(">qi", 1_700_000_000 + i, 1000)),
}


def logical(name: str, fields: str = "") -> bytes:
    """A Java-serialised logical type with no fields but `isNullable` and what is in `fields`."""
    cls = f"org.apache.flink.table.types.logical.{name}"
    above = "org.apache.flink.table.types.logical.LogicalType"
    head = b"\xac\xed\x00\x05\x73\x72" + utf(cls) + b"\0" * 8 + b"\2\0\0\x78\x72" + utf(above) + b"\0" * 8
    return head + b"\2\0\1Z" + utf("isNullable") + b"\x78\x70\1"


def table_row() -> bytes:
    types = [logical("BigIntType"), logical("VarCharType"), logical("DoubleType")]
    name = "org.apache.flink.table.runtime.typeutils.RowDataSerializer$RowDataSerializerSnapshot"
    out = utf(name) + struct.pack(">ii", 3, len(types)) + b"".join(types)
    return out + struct.pack(">iii", 1333245, 1, 0)


KINDS["RowData of 3 (SQL)"] = ("VALUE", table_row(), row_data)


def heap_stream(kind: str, snapshot: bytes, encode: Callable[[int], bytes]) -> KeyGroupsHandle:
    """Heap state of one key group: keys are longs."""
    namespace = "org.apache.flink.runtime.state.VoidNamespaceSerializer$VoidNamespaceSerializerSnapshot"
    out = struct.pack(">i?i", 6, False, 2) + LONG + struct.pack(">h", 1)
    out += utf("state") + struct.pack(">ii", 0, 1) + utf("KEYED_STATE_TYPE") + utf(kind) + struct.pack(">i", 2)
    out += utf("NAMESPACE_SERIALIZER") + struct.pack(">i", 2) + utf(namespace) + struct.pack(">i", 3)
    out += utf("VALUE_SERIALIZER") + struct.pack(">i", 2) + snapshot
    rows = b"".join(b"\0" + struct.pack(">q", i) + encode(i) for i in range(ROWS))
    data = out + struct.pack(">ihi", 0, 0, ROWS) + rows
    return KeyGroupsHandle(12, 0, (len(out),), InlineHandle("state", data))


def rates() -> None:
    print(f"{'serializer':24}{'MB':>8}{'rows/s':>12}{'as Arrow/s':>12}{'checked/s':>12}")
    for name, (kind, snapshot, encode) in KINDS.items():
        handle = heap_stream(kind, snapshot, encode)
        times: list[float] = []
        rows = 0
        for work in (_decode, _arrow, _check):
            begin = time.perf_counter()
            rows = work(handle)
            times.append(time.perf_counter() - begin)
        cells = "".join(f"{rows / each:>12,.0f}" for each in times)
        print(f"{name:24}{handle.size / 1e6:>8.1f}{cells}")


def _decode(handle: KeyGroupsHandle) -> int:
    return sum(len(block.keys) for block in _blocks(handle))


def _arrow(handle: KeyGroupsHandle) -> int:
    return sum(batch.num_rows for batch in keyed_batches(_blocks(handle)))


def _check(handle: KeyGroupsHandle) -> int:
    check = GroupOf(1)
    return sum(len(block.keys) for block in _blocks(handle, key=check))


def _blocks(handle: KeyGroupsHandle, **more: Any) -> Iterator[Any]:
    for block in read_blocks(handle, Inline(), 1, **more):
        assert block.problem is None, block.problem
        yield block


# -- into Parquet -----------------------------------------------------------------------------------------


def exported(rows: int) -> None:
    """Two states of the same size, so that each core has one."""
    with tempfile.TemporaryDirectory() as name:
        job, tables = Path(name) / ("e" * 32), Path(name) / "tables"
        write_checkpoint(job, [_stored(range(64), rows // 2), _stored(range(64, 128), rows // 2)], copies=1)
        size = sum(path.stat().st_size for path in (job / "shared").iterdir())
        command = [sys.executable, "-m", "abscli", "state", str(job), "--all", "--out", str(tables), "-o", "json"]
        cores = sorted(os.sched_getaffinity(0))[:2]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        begin = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        os.sched_setaffinity(process.pid, cores)
        out, _ = process.communicate()
        seconds = time.perf_counter() - begin
        assert process.returncode == 0
        count = json.loads(out)["count"]
        parquet = sum(path.stat().st_size for path in tables.iterdir())
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        busy = usage.ru_utime + usage.ru_stime - before.ru_utime - before.ru_stime
        print(
            f"{count:,} rows, {size / 1e6:.0f} MB of tables, into {parquet / 1e6:.0f} MB of Parquet on {len(cores)} "
            f"cores in {seconds:.1f} s: {count / seconds:,.0f} rows/s; {busy:.1f} s of processor, "
            f"{count / busy:,.0f} rows a second of one"
        )


def _stored(groups: range, rows: int) -> Iterator[Row]:
    per_group = rows // len(groups) // 2
    for group in groups:
        for i in range(per_group):
            yield "count", key(group, f"user-{i:09}"), long(i)
        for i in range(per_group // 5):
            for j in range(5):
                yield "items", key(group, f"user-{i:09}", f"item-{j}"), entry(j)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--export", type=int, metavar="ROWS")
    asked = parser.parse_args()
    if asked.export is not None:
        exported(asked.export)
        return
    if asked.folder is not None:
        agreement(asked.folder)
        print()
    rates()


if __name__ == "__main__":
    main()
