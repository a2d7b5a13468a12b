"""Which code a job runs: digests of the modules that its functions stand in, read and never run."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from formats.job.model import Topology


def modules_of(topology: Topology, directory: str) -> dict[str, str]:
    """SHA-256 of every file beside the job file that a function of the job stands in, or that such a file imports, by
    its path from there. What is installed elsewhere is not looked at."""
    root = Path(directory)
    digests: dict[str, str] = {}
    waiting = [op.function.partition(":")[0] for op in topology.operators if op.function and ":" in op.function]
    seen: set[str] = set()
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        # A package is run before what stands in it.
        waiting += [module.rpartition(".")[0]] if "." in module else []
        place = root.joinpath(*module.split("."))
        for file in (place / "__init__.py", place.with_name(f"{place.name}.py")):  # as the import system looks
            try:
                source = file.read_bytes()
            except OSError:
                continue
            digests[file.relative_to(root).as_posix()] = hashlib.sha256(source).hexdigest()
            package = module if file.name == "__init__.py" else module.rpartition(".")[0]
            waiting += _imports(source, package)
            break
    return dict(sorted(digests.items()))


def _imports(source: bytes, package: str) -> Iterator[str]:
    """The modules that a file imports, wherever it does; nothing of a file that is no Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".") if package else []
            above = parents[: len(parents) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from ([base] if base else [])
            yield from (f"{base}.{alias.name}" if base else alias.name for alias in node.names)


def changed_modules(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The files that differ, have come or are gone."""
    return [path for path in sorted({*before, *now}) if before.get(path) != now.get(path)]
