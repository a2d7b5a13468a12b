"""Collect the stores and files that the fuzzer damages: the test data of this repository, and stores made for it."""

from __future__ import annotations

import gzip
import json
import os
import tarfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.archives import extract
from tests.support.stores.hostile import change
from tests.support.stores.packed import make_packed
from tests.support.stores.small import make_store

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
FLINK_ARCHIVES = ("connectors", "matrix", "releases", "values", "versions")
NOW = "2026-01-02T04:00:00.000Z"


class Kind(StrEnum):
    """The kinds of samples, each of which has its own commands."""

    NATIVE = "native"
    FLINK = "flink"
    SPARK = "spark"
    JOB = "job"
    FLINK_PLAN = "flink-plan"
    PLAN = "plan"
    SAVED = "saved"
    TRACE = "trace"
    CONFIG = "config"
    BROKER = "broker"
    SCHEMA = "schema"
    UIDS = "uids"
    DESCRIPTORS = "descriptors"


STORES = (Kind.NATIVE, Kind.FLINK, Kind.SPARK)


class Sample(NamedTuple):
    """One store or file. The name is stable between runs; it is part of what a seed and a case select."""

    kind: Kind
    name: str
    path: Path


@dataclass
class Corpus:
    """All samples, unpacked or made below `folder`."""

    folder: Path

    @cached_property
    def samples(self) -> dict[Kind, list[Sample]]:
        """The samples of each kind, sorted by name."""
        if not self.folder.exists():
            _in_child(lambda: list(self._all()))
        found: dict[Kind, list[Sample]] = {kind: [] for kind in Kind}
        for sample in self._all():
            found[sample.kind].append(sample)
        return {kind: sorted(samples) for kind, samples in found.items()}

    @cached_property
    def kafka_store(self) -> Path:
        """A Flink checkpoint whose source reads from Kafka."""
        return next(sample.path for sample in self.samples[Kind.FLINK] if "kafka" in sample.name)

    @cached_property
    def values_store(self) -> Path:
        """A Flink savepoint that has Protobuf messages."""
        return next(sample.path for sample in self.samples[Kind.FLINK] if "values" in sample.name)

    @cached_property
    def native_store(self) -> Path:
        """An intact native store."""
        return next(sample.path for sample in self.samples[Kind.NATIVE] if sample.name == "made")

    def _all(self) -> Iterator[Sample]:
        yield from (*self._native(), *self._flink(), *self._spark(), *self._files())

    def _native(self) -> Iterator[Sample]:
        for golden in ("golden-store", "golden-store-rescaled"):
            yield Sample(Kind.NATIVE, golden, DATA / golden)
        small = {"parallelism": 1, "more": False}
        for name, options in {"made": {}, "small": small, "unaligned": {"policy": "unaligned"}}.items():
            place = self.folder / "native" / name
            if not place.exists():
                make_store(place, **options)  # type: ignore[arg-type]
                _set_clock(place)
            yield Sample(Kind.NATIVE, name, place)
        if not (self.folder / "native" / "packed").exists():
            make_packed(self.folder / "native" / "packed")
            _set_clock(self.folder / "native" / "packed")
        yield Sample(Kind.NATIVE, "packed", self.folder / "native" / "packed")

    def _flink(self) -> Iterator[Sample]:
        unpacked = {name: self._unpack(DATA / "flink" / f"{name}.tar.xz", f"flink-{name}") for name in FLINK_ARCHIVES}
        for label, place in {"data": DATA / "flink", **unpacked}.items():
            for marker in sorted(place.rglob("_metadata")):
                folder = marker.parent
                if folder.name.startswith("chk-"):  # incremental state is next to the checkpoints of its job
                    folder = folder.parent
                yield Sample(Kind.FLINK, f"{label}/{folder.relative_to(place)}", folder)

    def _spark(self) -> Iterator[Sample]:
        for archive in sorted((DATA / "spark").glob("*.tar.gz")):
            name = archive.name.removesuffix(".tar.gz")
            yield Sample(Kind.SPARK, name, self._unpack(archive, f"spark-{name}") / "checkpoint")

    def _files(self) -> Iterator[Sample]:
        for path in sorted((DATA / "topologies").glob("*/*.yaml")) + sorted((DATA / "topologies").glob("good/*.json")):
            yield Sample(Kind.JOB, path.name, path)
        for path in sorted((DATA / "traces").iterdir()):
            place = self.folder / "files" / path.name.removesuffix(".gz")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(gzip.decompress(path.read_bytes()))
            yield Sample(Kind.TRACE, place.name, place)
        for kind, files in _WRITTEN.items():
            for name, text in files.items():
                place = self.folder / "files" / name
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text)
                yield Sample(kind, name, place)
        yield Sample(Kind.DESCRIPTORS, "descriptors.pb", self.folder / "flink-values" / "values" / "descriptors.pb")

    def _unpack(self, archive: Path, name: str) -> Path:
        place = self.folder / name
        if not place.exists():
            place.mkdir(parents=True)
            with tarfile.open(archive) as tar:
                extract(tar, place)
        return place


def _set_clock(store: Path) -> None:
    """Give facts that a store got from the clock fixed values, so that a case has the same bytes in each run."""
    fixed = {"created": NOW, "completed": NOW, "aborted": NOW, "duration": 1.5}
    for file in (store / "abs-store.json", *sorted(store.glob("epochs/*/outcome.json"))):
        if file.exists():
            change(file, lambda facts: facts.update({name: fixed[name] for name in fixed if name in facts}))


def _in_child(work: Callable[[], object]) -> None:
    """Do some work in a forked child: what Arrow allocates would count towards the memory of every later command."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, "the samples could not be made"


def _flink_plan() -> dict[str, Any]:
    """Return a small job plan as Flink's REST interface has it."""
    nodes = [
        {"id": f"{number:032x}", "parallelism": 2, "operator": "", "operator_strategy": "", "description": text,
         "inputs": [{"num": 0, "id": f"{number - 1:032x}", "ship_strategy": "HASH"}] if number > 1 else []}
        for number, text in ((1, "Source: words<br/>+- Map<br/>"), (2, "counts<br/>"), (3, "Sink: Writer<br/>"))
    ]  # fmt: skip
    return {"plan": {"jid": "0" * 32, "name": "words", "type": "STREAMING", "nodes": nodes}}


_WRITTEN: dict[Kind, dict[str, str]] = {
    Kind.FLINK_PLAN: {"plan.json": json.dumps(_flink_plan(), indent=1)},
    Kind.CONFIG: {
        "abs.toml": 'output = "json"\n[inspect]\nstats = true\n[validate]\nquick = true\n[state]\nlimit = 20\n',
    },
    Kind.BROKER: {
        "broker.properties": "security.protocol=sasl_ssl\nsasl.mechanism=PLAIN\nsasl.username=someone\n"
        "sasl.password=changeit\n# a comment\nsocket.timeout.ms=1000\n",
    },
    Kind.SCHEMA: {
        "schema.yaml": 'version: 1\nclasses:\n  shop.Order: {id: long, user: string, items: "list<shop.Item>"}\n'
        "  shop.Item: {name: string, price: double}\nrows:\n  last: [long, string]\n",
        "schema.avsc": json.dumps(
            {"type": "record", "name": "Order", "namespace": "shop",
             "fields": [{"name": "id", "type": "long"}, {"name": "user", "type": ["null", "string"], "default": None}]}
        ),
    },
    Kind.UIDS: {"uids.txt": "words\ncounts\nout\n", "uids.json": json.dumps(_flink_plan())},
}  # fmt: skip
