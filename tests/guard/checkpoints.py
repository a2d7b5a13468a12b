"""Checkpoints of Flink and Spark, changed as a stranger who knows the formats could: they name files elsewhere, other
hosts, and classes."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import struct
from pathlib import Path

from tests.guard.victim import Victim
from tests.support.imports import ROOT
from tests.support.spark.data import copy_of

FLINK = ROOT / "tests" / "data" / "flink"
_PATH = re.compile(rb"(?<=[\x00-\x0f][\x00-\xff])(?:file|s3|hdfs):/[\x21-\x7e]+")
"""An absolute path as Java writes text: behind the number of its bytes."""


def places(victim: Victim) -> list[str]:
    """Return folders of an attacker's choice, local ones and those of other hosts."""
    hdfs = victim.listeners.at("hdfs")
    return [
        f"file:{victim.elsewhere}/in", f"file://{victim.home}/.ssh", "file:/etc", "s3://victims-bucket/x",
        "s3a://victims-bucket/x", "gs://victims-bucket/x", "abfss://box@victim.dfs.core.windows.net/x",
        f"hdfs://{hdfs}/x", f"webhdfs://{hdfs}/x", f"http://{hdfs}/x", f"file://{hdfs}/share/x",
    ]  # fmt: skip


def hostile_flink(victim: Victim, fixture: str) -> Path:
    """Copy a job's checkpoints of the test data; half of the absolute paths in them lead elsewhere, and no class has
    the name that it had."""
    (job,) = [path for path in (FLINK / fixture).iterdir() if path.is_dir() and not path.name.startswith("savepoint")]
    store = victim.work / "downloaded"
    shutil.rmtree(store, ignore_errors=True)
    shutil.copytree(job, store)
    elsewhere = itertools.cycle(places(victim))
    for metadata in store.glob("*/_metadata"):
        metadata.write_bytes(_redirected(metadata.read_bytes(), elsewhere))
    return store


def named_by_flink(store: Path) -> set[str]:
    """Return the local paths that a job's checkpoints name, with their folders."""
    data = b"".join(path.read_bytes() for path in store.glob("*/_metadata"))
    texts = [found[0].decode().partition(":")[2] for found in _PATH.finditer(data) if found[0].startswith(b"file:")]
    paths = {"/" + re.sub("^//[^/]*", "", text).lstrip("/") for text in texts}
    return {re.sub(r"(/[0-9a-f-]{36}).*", r"\1", path) for path in paths}


def _redirected(data: bytes, elsewhere: itertools.cycle[str]) -> bytes:
    out, end = bytearray(), 0
    for number, found in enumerate(_PATH.finditer(data)):
        (length,) = struct.unpack(">H", data[found.start() - 2 : found.start()])
        text = data[found.start() : found.start() + length]
        if number % 2 or len(text) != length or b"\x00" in text:
            continue
        # Of every other one the name stays, so that the file is found beside its place as well.
        name = text.rpartition(b"/")[2] if number % 4 else b"a.txt"
        new = next(elsewhere).encode() + b"/" + name
        out += data[end : found.start() - 2] + struct.pack(">H", len(new)) + new
        end = found.start() + length
    assert end, "no path was found"
    return bytes(out + data[end:])


def with_other_classes(store: Path) -> None:
    """Give serializers in all files names of classes that nobody has."""
    changed = 0
    for path in store.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            for name in (b"StringSerializer", b"LongSerializer", b"KryoSerializer", b"PojoSerializer"):
                changed += data.count(name)
                data = data.replace(name, b"Evil" + name[4:])
            path.write_bytes(data)
    assert changed, "no class was found"


def hostile_spark(victim: Victim, case: str, aside: Path) -> Path:
    """Copy a query's checkpoint of the test data; its offsets, the logs of its sources and its metadata name other
    hosts and files elsewhere. aside: a folder that no command sees."""
    store = victim.work / "downloaded"
    shutil.rmtree(store, ignore_errors=True)
    shutil.copytree(copy_of(case, aside, sidecars=False), store)
    elsewhere = itertools.cycle(places(victim))
    for log in (store / "sources").rglob("*"):
        if log.is_file():
            log.write_text("\n".join(_with_path(line, elsewhere) for line in log.read_text().splitlines()))
    for metadata in store.glob("state/*/_metadata/**/*"):
        if metadata.is_file():
            text = re.sub(r'"(file:|/)[^"]*"', lambda _: json.dumps(f"{next(elsewhere)}/schema"), metadata.read_text())
            metadata.write_text(text)
    for offsets in (store / "offsets").iterdir():
        offsets.write_text(offsets.read_text().replace(
            "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider", "evil.module.Provider"
        ))  # fmt: skip
    return store


def _with_path(line: str, elsewhere: itertools.cycle[str]) -> str:
    if not line.startswith("{"):
        return line
    entry = json.loads(line)
    return json.dumps({**entry, "path": f"{next(elsewhere)}/a.txt"}, separators=(",", ":"))


def with_offsets(store: Path, victim: Victim) -> None:
    """Let a query's sources be topics and tables: of Kafka, of Delta."""
    kafka = {"t": {"0": 5, "1": 7}}
    delta = {"sourceVersion": 1, "reservoirId": f"http://{victim.listeners.at('s3')}/t", "reservoirVersion": 3,
             "index": -1, "isStartingVersion": False}  # fmt: skip
    for offsets in (store / "offsets").iterdir():
        lines = offsets.read_text().splitlines()
        given = [json.dumps(one) for one, _ in zip(itertools.cycle((kafka, delta)), lines[2:], strict=False)]
        offsets.write_text("\n".join([*lines[:2], *given]))
