"""Mutants of some packages, and what the tests make of them.

    python -m tests.mutants --packages abscli/protocol,abscli/graph --tests tests/planner/test_graph.py,... [--sample 9]

First the tests run once and it is noted which functions each of them calls. Then one mutant after the other, in a copy
of the tree, meets the tests that call its function, the quick ones first, in a process of its own. `survived` wants a
look: either nothing can tell the mutant from the original, or a test is missing. `not called`: no test comes there.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import importlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.mutants.mutate import Mutant, count, mutant

ROOT = Path(__file__).resolve().parent.parent.parent
LIBRARIES = ("pytest", "hypothesis.strategies", "pyarrow.compute", "pyarrow.parquet", "pyarrow.json", "numpy",
             "msgspec", "yaml", "rich.console", "typer", "jsonschema")  # fmt: skip
OPTIONS = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore::pytest.PytestAssertRewriteWarning")


class Verdict(NamedTuple):
    """What became of a mutant. tests: that were run on it, at most."""

    path: str
    line: int
    what: str
    result: str
    tests: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", required=True, help="directories or modules, by comma")
    parser.add_argument("--tests", required=True, help="files and folders of tests, by comma")
    parser.add_argument("--tier", default="fast", help="of the tests")
    parser.add_argument("--sample", type=int, help="so many mutants of each package, drawn from --seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=30.0, help="of tests for one mutant")
    parser.add_argument("--calls", type=Path, help="a folder that keeps which functions each test calls")
    parser.add_argument("--out", type=Path, help="a file that gets a line a mutant; what it has is not run again")
    arguments = parser.parse_args()
    packages: list[str] = arguments.packages.split(",")
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="abs-mutants-") as folder:
        tree = _copy(Path(folder) / "tree")
        calls = arguments.calls or Path(folder) / "calls"
        tests = _traced(tree, packages, [f"--tier={arguments.tier}", *arguments.tests.split(",")], calls)
        for library in LIBRARIES:
            importlib.import_module(library)
        quickest = sorted(tests, key=lambda name: float(tests[name]["seconds"]))[:50]
        if (result := _run(tree, quickest, limit=600)) != "survived":
            raise SystemExit(f"without any mutant the tests are {result} in a fork: nothing could be learned")
        known = _known(arguments.out)
        for package in packages:
            verdicts = []
            for path, one in _drawn(package, arguments.sample, arguments.seed):
                verdict = known.get((path, one.line, one.what))
                if verdict is None:
                    verdict = _judge(tree, path, one, tests, arguments.seconds)
                    _keep(arguments.out, verdict)
                verdicts.append(verdict)
                if verdict.result in ("survived", "not called"):
                    print(f"{verdict.result}: {path}:{one.line}: {one.what}", flush=True)
            counts = Counter(verdict.result for verdict in verdicts)
            print(f"{package}: {len(verdicts)} mutants: {dict(counts)}", flush=True)


def _copy(tree: Path) -> Path:
    tree.mkdir()
    for name in ("abscli", "formats", "tests", "man", "completions"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "Makefile"):
        shutil.copy(ROOT / name, tree / name)
    compileall.compile_dir(tree, quiet=2)
    return tree


def _traced(tree: Path, packages: list[str], tests: list[str], calls: Path) -> dict[str, Any]:
    """Calls and seconds of each test that passes on the tree as it is. tests: what pytest gets."""
    if not calls.exists():
        calls.mkdir(parents=True)
        parts = [package.removesuffix(".py") for package in packages]
        of = ",".join(sorted({"/".join(part.split("/")[:2]) for part in parts}))
        environment = os.environ | {"PYTHONPATH": str(tree), "ABS_MUTANTS_CALLS": str(calls), "ABS_MUTANTS_OF": of}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.mutants.calls", "-p", "no:cacheprovider", *tests]
        subprocess.run([*command, "--numprocesses=2", "--dist=loadfile"], cwd=tree, env=environment, check=False)
    found: dict[str, Any] = {}
    for file in calls.iterdir():
        found |= json.loads(file.read_text())
    for test in found.values():
        test["calls"] = {path: set(numbers) for path, numbers in test["calls"].items()}
    return found


def _drawn(package: str, sample: int | None, seed: int) -> list[tuple[str, Mutant]]:
    place = ROOT / package
    files = [place] if place.suffix == ".py" else sorted(place.rglob("*.py"))
    sources = {str(file.relative_to(ROOT)): file.read_text() for file in files}
    everything = [(path, number) for path, source in sources.items() for number in range(count(source))]
    if sample is not None and sample < len(everything):
        everything = sorted(random.Random(seed).sample(everything, sample))
    return [(path, mutant(sources[path], number)) for path, number in everything]


def _judge(tree: Path, path: str, one: Mutant, tests: dict[str, Any], seconds: float) -> Verdict:
    def runs(test: dict[str, Any]) -> bool:
        return one.function in test["calls"].get(path, ()) or (one.function == 0 and path in test["calls"])

    covering = sorted((test["seconds"], name) for name, test in tests.items() if runs(test))
    chosen, total = [], 0.0
    for cost, name in covering:
        if not chosen or total + cost <= seconds:
            chosen.append(name)
            total += cost
    if not chosen:
        return Verdict(path, one.line, one.what, "not called", 0)
    file = tree / path
    original = Path(f"{file}.original")
    shutil.copy2(file, original)
    try:
        file.write_text(one.source)
        result = _run(tree, chosen, limit=60 + 10 * total)
    finally:
        shutil.copy2(original, file)
        original.unlink()
    return Verdict(path, one.line, one.what, result, len(chosen))


def _run(tree: Path, tests: list[str], limit: float) -> str:
    """A fork that has the libraries already runs the tests."""
    child = os.fork()
    if child == 0:
        os.setsid()
        os.chdir(tree)
        sys.dont_write_bytecode = True
        os.environ |= {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
        for name in [name for name in sys.modules if name.partition(".")[0] in ("tests", "abscli", "formats")]:
            del sys.modules[name]
        sys.path[:] = [str(tree), *(entry for entry in sys.path if Path(entry or ".").resolve() != ROOT)]
        with open(os.devnull, "r+b") as nothing:
            for number in (0, 1, 2):
                os.dup2(nothing.fileno(), number)
        code = 99
        try:
            import pytest

            code = int(pytest.main([*OPTIONS, *tests]))
        finally:
            os._exit(code)
    ended = time.monotonic() + limit
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return "survived" if status == 0 else "killed"
        if time.monotonic() > ended:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "timed out"
        time.sleep(0.02)


def _known(out: Path | None) -> dict[tuple[str, int, str], Verdict]:
    def verdicts() -> Iterator[Verdict]:
        if out is not None and out.exists():
            yield from (Verdict(*json.loads(line)) for line in out.read_text().splitlines())

    return {(verdict.path, verdict.line, verdict.what): verdict for verdict in verdicts()}


def _keep(out: Path | None, verdict: Verdict) -> None:
    if out is not None:
        with out.open("a") as file:
            file.write(json.dumps(verdict) + "\n")


if __name__ == "__main__":
    main()
