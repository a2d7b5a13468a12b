"""Who may import whom, what may print, and what starting `abs` costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.imports import MODULES, ROOT, imports, module_graph, nodes, tree

LAYERS = (
    "graph", "protocol", "planner", "report", "sim", "engine", "diff", "text", "draw", "pages", "jobs", "stores",
    "errors", "api", "cli", "examples", "commands",
)  # fmt: skip
"""Each may import only what stands before it; `formats` stands before all."""

NAMES = [str(path.relative_to(ROOT)) for path in MODULES]


def layer(dotted: str) -> str | None:
    """The layer that a module belongs to; None for `abscli` itself and for other people's modules."""
    first, *rest = dotted.split(".")
    if first == "formats":
        return "formats"
    return rest[0] if first == "abscli" and rest else None


def at_start(path: Path) -> Iterator[str]:
    """Top-level packages that are imported when the module is."""

    def visit(nodes: list[ast.stmt]) -> Iterator[str]:
        for node in nodes:
            if isinstance(node, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and not node.level:
                yield (node.module or "").partition(".")[0]
            elif isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test):
                yield from visit(node.body)
                yield from visit(node.orelse)
            elif isinstance(node, ast.Try):
                yield from visit(node.body)

    yield from visit(tree(path).body)


def goes_up(own: str | None, dotted: str) -> bool:
    """Tell whether a module of the layer `own` must not import the module `dotted`."""
    if own == "formats":
        return dotted.startswith("abscli")
    other = layer(dotted)
    return own in LAYERS and other in LAYERS and LAYERS.index(other) > LAYERS.index(own)


def test_a_module_imports_only_layers_below_its_own() -> None:
    offenders = [
        f"{name} imports {dotted}"
        for name in NAMES
        for dotted in imports(ROOT / name)
        if goes_up(layer(name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")), dotted)
    ]
    assert not offenders, "\n".join(offenders)


FALLS_BACK = "formats/query/arrow.py"
"""Takes from a private module what is slow to import otherwise, and imports it otherwise where that is gone."""


def is_private(dotted: str) -> bool:
    """Tell whether a module of another project has a name that begins with an underscore."""
    package, *rest = dotted.split(".")
    return package not in ("abscli", "formats", "__future__") and any(part.startswith("_") for part in rest)


def test_no_module_uses_what_is_private_to_a_package_of_others() -> None:
    """What begins with an underscore may be gone with the next version."""
    names = (name for name in NAMES if name != FALLS_BACK)
    offenders = [f"{name} imports {dotted}" for name in names for dotted in imports(ROOT / name) if is_private(dotted)]
    assert not offenders, "\n".join(offenders)


def test_every_package_has_a_place_among_the_layers() -> None:
    packages = {path.parent.name for path in (ROOT / "abscli").glob("*/__init__.py")}
    assert packages <= set(LAYERS)


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports inside functions and for type checking count: a circle put off is a circle."""
    needs = module_graph()
    while free := {module for module, others in needs.items() if not others & needs.keys()}:
        for module in free:
            del needs[module]
    assert not needs, "\n".join(f"{module} -> {', '.join(sorted(o & needs.keys()))}" for module, o in needs.items())


def test_no_file_right_in_formats_and_no_folder_beside_it_import_each_other() -> None:
    """A folder as a whole: where one of its modules imports the file, the file imports none of it."""
    graph = {module: needs for module, needs in module_graph().items() if module.startswith("formats.")}
    folders = {module.split(".")[1] for module in graph if module.count(".") >= 2}
    for file in (module for module in graph if module.count(".") == 1):
        if file.removeprefix("formats.") in folders:
            continue
        above = {module.split(".")[1] for module, needs in graph.items() if file in needs} & folders
        below = {module.split(".")[1] for module in graph[file] if module.count(".") >= 2}
        assert not above & below, f"{file} imports of formats/{min(above & below)}, and is imported there"


def is_there(dotted: str) -> bool:
    """Tell whether a module, or a name in a module, exists as a file of this project."""
    place = ROOT.joinpath(*dotted.split("."))
    package = place.parent / "__init__.py"
    in_package = package.exists() and package.stat().st_size > 0  # an empty one has no names
    modules = (place / "__init__.py", place.with_suffix(".py"), place.parent.with_suffix(".py"))
    return in_package or any(module.exists() for module in modules)


def test_modules_that_tests_and_benches_import_are_there() -> None:
    """Benches are not part of the tests, and imports inside functions are seen only where these run."""
    offenders = [
        f"{path.relative_to(ROOT)} imports {dotted}, which is not there"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for dotted in imports(path)
        if dotted.partition(".")[0] in ("abscli", "formats", "tests") and not is_there(dotted)
    ]
    assert not offenders, "\n".join(offenders)


IS_STDOUT = "abscli/engine/sinks/staged/printed.py"
"""The sink that writes to stdout."""
COMMANDS = ("abscli/commands/", "abscli/cli/")


def prints(name: str) -> Iterator[str]:
    """List the places at which a module writes to stdout or stderr."""
    for node in nodes(ROOT / name):
        match node:
            case ast.Call(func=ast.Name(id="print")):
                yield f"{name}:{node.lineno} prints"
            case ast.Attribute(value=ast.Name(id="sys"), attr="stdout" | "stderr"):
                yield f"{name}:{node.lineno} writes to {ast.unparse(node)}"
            case ast.Attribute(value=ast.Name(id="rich"), attr="print"):
                yield f"{name}:{node.lineno} writes to {ast.unparse(node)}"


def test_nothing_below_the_commands_prints() -> None:
    names = (name for name in NAMES if not name.startswith(COMMANDS) and name != IS_STDOUT)
    offenders = [place for name in names for place in prints(name)]
    assert not offenders, "\n".join(offenders)


def test_a_command_imports_heavy_packages_only_when_it_runs() -> None:
    heavy = {"pyspark", "pyarrow", "rich", "yaml", "numpy", "msgspec", "pydantic"}
    names = (name for name in NAMES if name.startswith(COMMANDS))
    offenders = {name: found for name in names if (found := heavy & set(at_start(ROOT / name)))}
    assert not offenders


def loaded(*arguments: str) -> set[str]:
    """Top-level packages that a run of `abs` has imported at its end."""
    code = (
        "import sys\n"
        "from abscli.cli.main import main\n"
        f"main({list(arguments)!r})\n"
        "sys.stderr.write(' '.join({name.partition('.')[0] for name in sys.modules}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


@pytest.mark.parametrize("arguments", [(), ("--help",), ("run", "--help"), ("--version",), ("completion", "bash")])
def test_help_loads_no_heavy_package(arguments: tuple[str, ...]) -> None:
    heavy = {"pyspark", "py4j", "pyarrow", "rich", "yaml", "numpy", "msgspec", "pydantic", "pandas"}
    assert not heavy & loaded(*arguments)


def test_a_command_that_reads_a_store_does_without_pydantic() -> None:
    store = str(ROOT / "tests" / "data" / "golden-store")
    assert "pydantic" not in loaded("inspect", store, "--quiet", "-o", "json")


def test_the_help_of_abs_does_not_even_load_typer() -> None:
    assert "typer" not in loaded("--help")
