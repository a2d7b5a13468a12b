"""Make a case of a seed and a number: damaged input, and the commands that read it. Judge what they do.

A command must end by itself within its limits, with an exit code that is not 1, and leave its input as it was.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.fuzz.corpus import STORES, Corpus, Kind, Sample
from tests.fuzz.mutators import mutate, mutate_store
from tests.fuzz.runner import CPU_SECONDS, MEMORY, Ran, Runner

STORE = "input"
SOUND = "sound"
"""Names of the damaged store and of an intact copy of it, in the current folder of a command."""
FILE = "input.file"

_READ: tuple[str, ...] = (
    "inspect S", "inspect S --stats", "inspect S --trend", "inspect S@latest", "validate S", "validate S",
    "validate S --quick",
    "state S", "state S --all --out out/all", "state S --limit 3 --place", "diff S sound", "diff sound S --rows",
    "plan-recovery S",
    "plan-recovery S --out out/plan.json", "report S --out out/report.html",
    "report S --out out/report.html --verify", "gc S --min-age 0s",
    "gc S", "copy S out/copy", "drill S",
)  # fmt: skip
"""Commands of a store of any kind. `S` is the damaged store."""
_OF_KIND: dict[Kind, tuple[str, ...]] = {
    Kind.NATIVE: (
        "validate S@4", "inspect S@5", "inspect S@3 -o json", "state S@2 seen",
        "state S seen --history --key line=a", "diff S@1 S@2",
        "plan-recovery S --strategy repair --epoch 4", "plan-recovery S --failed seen/0",
        "plan-recovery S --failed-worker 0",
        "plan-recovery S --parallelism seen=1", "tag S", "state S --where line=a",
    ),
    Kind.FLINK: (
        "validate S --for flink:2.2", "validate S --for flink:1.20", "validate S --topology plan.json",
        "diff S --uids uids.txt",
        "report S --topology plan.json --out out/r.html", "inspect S --topology plan.json", "state S --history",
    ),
    Kind.SPARK: (
        "plan-recovery S@1", "plan-recovery S --keep-in-flight", "validate S@1", "inspect S@2", "diff S@1 S@2 --rows",
        "plan-recovery S --name-source 0=orders", "state S@1",
    ),
    Kind.JOB: (
        "topology F.yaml", "topology F.yaml --guarantee", "topology F.yaml -o svg", "topology F.yaml -o json",
        "topology F.yaml -o mermaid",
        "plan-recovery --topology F.yaml --failed counts/0", "diff native F.yaml",
        "simulate F.yaml --seeds 1 --max-events 200",
    ),
    Kind.FLINK_PLAN: (
        "topology F.json", "topology F.json -o svg", "plan-recovery --topology F.json --failed counts/0",
        "report flink --topology F.json --out out/r.html", "validate flink --topology F.json",
        "diff flink --uids F.json",
    ),
    Kind.PLAN: (
        "restore F.json --dry-run --to out/copy", "report F.json --out out/r.html",
        "restore F.json --dry-run --to out/copy --job job.yaml",
    ),
    Kind.SAVED: ("report F.json --out out/r.html", "report F.json -o json"),
    Kind.TRACE: ("simulate --check F.jsonl", "simulate --check F.jsonl --strict"),
    Kind.CONFIG: ("inspect native", "validate native", "state native seen"),
    Kind.BROKER: ("inspect kafka --broker 127.0.0.1:1 --broker-config F",),
    Kind.SCHEMA: ("validate flink --for flink:2.2 --schema F", "validate flink --for flink:1.20 --schema F"),
    Kind.UIDS: ("diff flink --uids F", "diff native --uids F"),
    Kind.DESCRIPTORS: ("state values --type last=protobuf(F,shop.Order)",
    "state values --all --out out/all --type last=protobuf(F,shop.Order)"),
}
"""Further commands by kind. `F` is the damaged file; `native`, `flink`, `kafka` and `values` are intact stores."""
_WEIGHTS: dict[Kind, int] = {
    Kind.NATIVE: 34, Kind.FLINK: 30, Kind.SPARK: 24, Kind.JOB: 4, Kind.FLINK_PLAN: 2, Kind.PLAN: 3, Kind.SAVED: 3,
    Kind.TRACE: 1,
    Kind.CONFIG: 2, Kind.SCHEMA: 1, Kind.UIDS: 1, Kind.DESCRIPTORS: 1, Kind.BROKER: 1,
}  # fmt: skip
_FORMS = ((), (), ("-o", "json"), ("-o", "ndjson"))
PER_CASE = 3
"""Commands that a case runs at most."""


class Case(NamedTuple):
    """One damaged input. what: a description of the damage."""

    seed: int
    number: int
    sample: Sample
    what: str
    commands: tuple[tuple[str, ...], ...]


class Failure(NamedTuple):
    """A command that did what it must not."""

    case: Case
    command: tuple[str, ...]
    problems: tuple[str, ...]

    def __str__(self) -> str:
        case = self.case
        return (
            f"seed {case.seed} case {case.number}: {case.sample.kind} {case.sample.name}: {case.what}\n"
            f"  abs {' '.join(self.command)}\n"
            + "".join(f"  {problem}\n" for problem in self.problems)
            + f"  repeat it: python -m tests.fuzz --seed {case.seed} --case {case.number} --keep"
        )


@dataclass
class Tally:
    """Counts over many cases."""

    codes: Counter[int] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    commands: int = 0
    seconds: float = 0.0
    slowest: tuple[float, str] = (0.0, "")
    largest: tuple[int, str] = (0, "")

    def add(self, case: Case, command: Sequence[str], ran: Ran) -> None:
        """Count one command."""
        label = f"seed {case.seed} case {case.number} {' '.join(command)}"
        self.codes[ran.code] += 1
        self.commands += 1
        self.seconds += ran.seconds
        self.slowest = max(self.slowest, (ran.seconds, label))
        self.largest = max(self.largest, (ran.peak, label))


class Fuzzer:
    """Run cases below `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.corpus = Corpus(self.folder / "corpus")
        self.place = self.folder / "case"
        self.runner = Runner(self.place)
        self.tally = Tally()
        self._prepare()

    def _prepare(self) -> None:
        """Import what commands need, and let them write the plans and results that are damaged later."""
        samples = self.corpus.samples
        spark = next(sample.path for sample in samples[Kind.SPARK] if sample.name == "wc_rocks")
        name = "matrix/2.3/rocksdb-incremental/ck"
        flink = next(sample.path for sample in samples[Kind.FLINK] if sample.name.startswith(name))
        self._clear()
        stores = (self.corpus.native_store, flink, spark)
        self.runner.import_what(
            *([command, str(store), *more] for store in stores for command, *more in
              (("inspect", "--stats"), ("validate",), ("state",), ("plan-recovery",), ("report", "--out",
              "out/r.html"), ("gc",))),
            ["diff", str(stores[0]) + "@1", str(stores[0]) + "@2"], ["topology", str(samples[Kind.JOB][0].path)],
        )  # fmt: skip
        made = self.corpus.folder / "made"
        made.mkdir(parents=True, exist_ok=True)
        for name, store in zip(("native", "flink", "spark"), stores, strict=True):
            for kind, command in (
                (Kind.PLAN, ["plan-recovery", str(store), "--out", f"out/{name}.json"]),
                (Kind.SAVED, ["validate", str(store), "-o", "json"]),
                (Kind.SAVED, ["diff", str(store), str(store), "-o", "json"]),
            ):
                ran = self.runner.run(command)
                assert ran.code in (0, 3), f"{command}: {ran.err}"
                target = made / f"{command[0]}-{name}.json"
                written = self.place / "out" / f"{name}.json"
                target.write_bytes(written.read_bytes() if kind is Kind.PLAN else ran.out.encode())
                samples[kind].append(Sample(kind, target.name, target))
        self._intact = {
            "native": stores[0], "flink": flink, "kafka": self.corpus.kafka_store, "values": self.corpus.values_store,
        }  # fmt: skip

    def _clear(self) -> None:
        if self.place.exists():
            for folder, _, _ in os.walk(self.place):
                os.chmod(folder, 0o700)
            shutil.rmtree(self.place)
        for name in ("tmp", "out"):
            (self.place / name).mkdir(parents=True)

    def case(self, seed: int, number: int) -> Case:
        """Lay out the damaged input of a case in the current folder of commands."""
        rng = random.Random(f"{seed}/{number}")
        samples = self.corpus.samples
        (kind,) = rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
        sample = rng.choice(samples[kind])
        self._clear()
        job = next(each.path for each in samples[Kind.JOB] if each.name == "wordcount.yaml")
        plan, uids = samples[Kind.FLINK_PLAN][0].path, samples[Kind.UIDS][1].path
        others = {"plan.json": plan, "uids.txt": uids, "job.yaml": job}
        for name, path in others.items():
            shutil.copyfile(path, self.place / name)
        if kind in STORES:
            shutil.copytree(sample.path, self.place / STORE)
            shutil.copytree(sample.path, self.place / SOUND)
            what = mutate_store(self.place / STORE, rng, lambda: self._any_file(rng))
            templates = [*rng.sample(_READ, 3), *rng.sample(_OF_KIND[kind], 2)]
        else:
            data = sample.path.read_bytes()
            new = mutate(data, rng, self._any_file(rng).read_bytes())
            if kind is Kind.PLAN and rng.random() < 0.7:
                new = _sealed_plan(new)
            for suffix in ("", ".yaml", ".json", ".jsonl"):
                (self.place / f"{FILE}{suffix}").write_bytes(new)
            what = f"mutated {sample.name}"
            templates = list(_OF_KIND[kind])
        rng.shuffle(templates)
        commands = tuple((*self._command(template), *rng.choice(_FORMS)) for template in templates[:PER_CASE])
        return Case(seed, number, sample, what, tuple(_one_form(command) for command in commands))

    def digest(self) -> str:
        """Digest names and bytes of the input that is laid out, which are the same for the same seed and case."""
        return _digest(self.place)

    def _any_file(self, rng: random.Random) -> Path:
        sample = rng.choice(self.corpus.samples[rng.choice(STORES)])
        return rng.choice(sorted(path for path in sample.path.rglob("*") if path.is_file()))

    def _command(self, template: str) -> Iterator[str]:
        for word in template.split():
            if word in self._intact:
                yield str(self._intact[word])
            elif word == "S" or word.startswith("S@"):
                yield STORE + word[1:]
            elif word == "F" or word.startswith("F."):
                yield FILE + word[1:]
            else:
                yield word.replace("(F,", f"({FILE},")

    def run(self, case: Case) -> list[Failure]:
        """Run the commands of a case that is laid out."""
        self.tally.kinds[case.sample.kind] += 1
        failures = []
        before, bytes_before = _facts(self.place), _digest(self.place)
        for command in case.commands:
            environment = {"ABS_CONFIG": FILE if case.sample.kind is Kind.CONFIG else ""}
            ran = self.runner.run(command, environment)
            self.tally.add(case, command, ran)
            problems = list(problems_of(ran))
            if _facts(self.place) != before:
                problems.append("the input was changed")
            if left := sorted(os.listdir(self.place / "tmp")):
                problems.append(f"left temporary files: {left[:5]}")
            if problems:
                failures.append(Failure(case, command, tuple(problems)))
            for name in ("tmp", "out"):
                shutil.rmtree(self.place / name)
                (self.place / name).mkdir()
        if _digest(self.place) != bytes_before:
            failures.append(Failure(case, case.commands[-1], ("the bytes of the input were changed",)))
        return failures


def problems_of(ran: Ran) -> Iterator[str]:
    """Yield what a command must not do, and did."""
    if ran.code < 0:
        yield f"signal {-ran.code} after {ran.seconds:.1f} s of CPU"
    if ran.code in (1, 70):
        yield f"exit code {ran.code}: {ran.err.strip()[-500:]}"
    if "Traceback (most recent call last)" in ran.err:
        yield f"traceback: {ran.err.strip()[-800:]}"
    if ran.seconds > CPU_SECONDS:
        yield f"{ran.seconds:.1f} s of CPU"
    if ran.peak > MEMORY:
        yield f"{ran.peak >> 20} MiB in memory"
    shown = set(ran.out + ran.err) - set("\n\u202f\xa0")
    if hidden := {character for character in shown if not character.isprintable()}:
        yield f"control characters in its output: {sorted(map(ascii, hidden))[:5]}"
    yield from ran.outside


def _one_form(command: tuple[str, ...]) -> tuple[str, ...]:
    """Drop a second `-o`, and one that a command does not have."""
    if command.count("-o") > 1 or (command[0] in ("simulate",) and "-o" in command):
        return command[: len(command) - 2]
    return command


def _sealed_plan(data: bytes) -> bytes:
    """Give a plan file the digest that it now has."""
    body, found, _ = data.rpartition(b',\n  "sha256": "')
    return body + found + hashlib.sha256(body).hexdigest().encode() + b'"\n}\n' if found else data


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Yield everything below a folder, except for what commands may write."""
    todo = [str(folder)]
    while todo:
        at = todo.pop()
        for entry in sorted(os.scandir(at), key=lambda each: each.name):
            if at == str(folder) and entry.name in ("out", "tmp"):
                continue
            yield entry
            if entry.is_dir(follow_symlinks=False):
                todo.append(entry.path)


def _facts(folder: Path) -> list[tuple[str, int, int, int, int]]:
    """Return names, kinds, sizes and times of change, which no program can set back."""
    statuses = ((entry.path, entry.stat(follow_symlinks=False)) for entry in _entries(folder))
    return [(path, at.st_mode, at.st_size, at.st_mtime_ns, at.st_ctime_ns) for path, at in statuses]


def _digest(folder: Path) -> str:
    """Digest names and bytes. Of a file of more than 64 MiB, which is sparse, the size alone counts."""
    found = hashlib.sha256()
    for entry in _entries(folder):
        size = entry.stat(follow_symlinks=False).st_size
        name = os.path.relpath(entry.path, folder)
        is_file = entry.is_file(follow_symlinks=False)
        found.update(f"{name} {is_file} {size if is_file else 0}\n".encode("utf-8", "surrogateescape"))
        if is_file and size <= 64 << 20:
            with open(entry.path, "rb") as file:
                found.update(file.read())
    return found.hexdigest()
