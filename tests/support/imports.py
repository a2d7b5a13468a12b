"""Who imports whom, read from the source: for the rules of the layers, and for the picture of the packages."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

MODULES = sorted(path for package in ("abscli", "formats") for path in (ROOT / package).rglob("*.py"))


@cache
def tree(path: Path) -> ast.Module:
    """Parse a module once for all rules that look at it."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """List all nodes of a module's syntax tree, once for all rules that look at them."""
    return tuple(ast.walk(tree(path)))


def dotted_name(path: Path) -> str:
    """`abscli.graph.loops` of the module's path; a package has the name of its folder."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path) -> Iterator[str]:
    """Dotted names of all that a module imports, inside functions and for type checking included."""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def module_graph() -> dict[str, set[str]]:
    """Module -> the modules of this project that it imports."""
    names = {dotted_name(path): path for path in MODULES}
    graph = {}
    for module, path in names.items():
        imported = {dotted if dotted in names else dotted.rpartition(".")[0] for dotted in imports(path)}
        graph[module] = (imported & names.keys()) - {module}
    return graph


def folder_graph(folders: Iterable[str]) -> dict[str, set[str]]:
    """Folder -> the other folders of the list whose modules its modules import. A module belongs to the longest name
    that it begins with; one that begins with none is left out."""
    by_length = sorted(folders, key=len, reverse=True)

    def folder_of(module: str) -> str | None:
        return next((folder for folder in by_length if f"{module}.".startswith(f"{folder}.")), None)

    graph: dict[str, set[str]] = {folder: set() for folder in folders}
    for module, imported in module_graph().items():
        own = folder_of(module)
        if own is not None:
            graph[own] |= {other for one in imported if (other := folder_of(one)) is not None} - {own}
    return graph


def without_shortcuts(graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The same graph without an arrow where a longer way leads to the same place. The graph has no circle."""

    def reached(start: str) -> set[str]:
        seen, todo = set[str](), [start]
        while todo:
            for target in graph[todo.pop()]:
                if target not in seen:
                    seen.add(target)
                    todo.append(target)
        return seen

    return {
        node: {target for target in targets if not any(target in reached(other) for other in targets - {target})}
        for node, targets in graph.items()
    }
