"""Who may import whom, what may print, and what starting `abs` costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.imports import MODULES, ROOT, imports, module_graph

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

    yield from visit(ast.parse(path.read_text(encoding="utf-8")).body)


@pytest.mark.parametrize("name", NAMES)
def test_a_module_imports_only_layers_below_its_own(name: str) -> None:
    own = layer(name.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
    for dotted in imports(ROOT / name):
        other = layer(dotted)
        if own == "formats":
            assert not dotted.startswith("abscli"), f"{name} imports {dotted}"
        elif own in LAYERS and other in LAYERS and own is not None and other is not None:
            assert LAYERS.index(other) <= LAYERS.index(own), f"{name} imports {dotted}"


FALLS_BACK = "formats/query/arrow.py"
"""Takes from a private module what is slow to import otherwise, and imports it otherwise where that is gone."""


@pytest.mark.parametrize("name", [name for name in NAMES if name != FALLS_BACK])
def test_no_module_uses_what_is_private_to_a_package_of_others(name: str) -> None:
    """What begins with an underscore may be gone with the next version."""
    for dotted in imports(ROOT / name):
        package, *rest = dotted.split(".")
        if package not in ("abscli", "formats", "__future__"):
            assert not any(part.startswith("_") for part in rest), f"{name} imports {dotted}"


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


@pytest.mark.parametrize("path", sorted((ROOT / "tests").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_that_tests_and_benches_import_are_there(path: Path) -> None:
    """Benches are not part of the tests, and imports inside functions are seen only where these run."""
    for dotted in imports(path):
        if dotted.partition(".")[0] in ("abscli", "formats", "tests"):
            place = ROOT.joinpath(*dotted.split("."))
            package = place.parent / "__init__.py"
            in_package = package.exists() and package.stat().st_size > 0  # an empty one has no names
            modules = (place / "__init__.py", place.with_suffix(".py"), place.parent.with_suffix(".py"))
            assert in_package or any(module.exists() for module in modules), f"{dotted} is not there"


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith(("abscli/commands/", "abscli/cli/"))])
def test_nothing_below_the_commands_prints(name: str) -> None:
    if name == "abscli/engine/sinks/staged/printed.py":
        pytest.skip("the sink that is stdout")
    for node in ast.walk(ast.parse((ROOT / name).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id != "print", f"{name}:{node.lineno} prints"
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            assert (node.value.id, node.attr) not in {("sys", "stdout"), ("sys", "stderr"), ("rich", "print")}, (
                f"{name}:{node.lineno} writes to {ast.unparse(node)}"
            )


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith(("abscli/commands/", "abscli/cli/"))])
def test_a_command_imports_heavy_packages_only_when_it_runs(name: str) -> None:
    heavy = {"pyspark", "pyarrow", "rich", "yaml", "numpy", "msgspec", "pydantic"}
    assert not heavy & set(at_start(ROOT / name))


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
    store = str(ROOT / "tests" / "data" / "golden-store-2")
    assert "pydantic" not in loaded("inspect", store, "--quiet", "-o", "json")


def test_the_help_of_abs_does_not_even_load_typer() -> None:
    assert "typer" not in loaded("--help")
