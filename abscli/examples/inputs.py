"""Input that exists on every machine: the source text and the import graph of this Python's standard library."""

from __future__ import annotations

import ast
import functools
import json
import os
import re
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

WORD = re.compile(r"\w+")
COPIES = 6
"""How often the word count reads the library: once is over before a worker can be killed in the middle."""


def library_files() -> Iterator[tuple[str, Path]]:
    """(module name, file) of every module of the standard library, sorted; installed packages are left out."""
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if "site-packages" not in parts and "dist-packages" not in parts:
            yield ".".join(parts).removesuffix(".__init__"), path


def write_job(name: str, folder: Path) -> Path:
    """Put the example job `name` and its input into `folder`; its topology file."""
    folder.mkdir(parents=True)
    examples = resources.files("abscli.examples")
    job = folder / f"{name}.yaml"
    job.write_bytes((examples / f"{name}.yaml").read_bytes())
    if name == "wordcount":
        (folder / "corpus").mkdir()
        for module, path in library_files():
            first = folder / "corpus" / f"{module}.0.py"
            # Some tests of the library are in other encodings, which a source of text refuses.
            first.write_bytes(path.read_bytes().decode("utf-8", "replace").encode())
            for i in range(1, COPIES):
                os.link(first, first.with_name(f"{module}.{i}.py"))
    else:
        imports = import_graph()
        (folder / "graph.py").write_text(f"IMPORTS = {imports!r}\n")
        (folder / "steps.py").write_bytes((examples / "steps.py").read_bytes())
        with (folder / "imports.jsonl").open("w") as file:
            for module, imported in imports.items():
                for reached in imported:
                    file.write(json.dumps({"module": module, "reached": reached}) + "\n")
    return job


@functools.cache
def import_graph() -> dict[str, list[str]]:
    """module -> the modules of the library that it imports, anywhere in its text; modules that do not parse are left
    out, as some of the library's own tests are meant to."""
    files = dict(library_files())
    graph = {}
    for module, path in files.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            continue
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        imported = {name for node in ast.walk(tree) for name in _imported(node, package)}
        graph[module] = sorted(name for name in imported if name in files and name != module)
    return graph


def _imported(node: ast.AST, package: str) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        base = ".".join([*above, *(node.module.split(".") if node.module else [])])
        return [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return []


def count_words(folder: Path) -> dict[str, int]:
    """The word count's answer, without the engine."""
    counts: Counter[str] = Counter()
    for path in (folder / "corpus").glob("*.0.py"):
        counts.update(WORD.findall(path.read_bytes().decode("utf-8", "replace")))
    return {word: count * COPIES for word, count in counts.items()}


def reach() -> set[tuple[str, str]]:
    """The imports job's answer, without the engine: a depth-first search from every module."""
    graph = import_graph()
    pairs: set[tuple[str, str]] = set()
    for module in graph:
        todo, seen = list(graph[module]), set(graph[module])
        while todo:
            for name in graph.get(todo.pop(), ()):
                if name not in seen:
                    seen.add(name)
                    todo.append(name)
        pairs.update((module, name) for name in seen)
    return pairs
