"""The picture of the packages in `abscli/README.md`, drawn from the imports: `python -m tests.support.architecture`."""

from __future__ import annotations

import re

from tests.support.imports import ROOT, folder_graph, module_graph, without_shortcuts

PAGE = ROOT / "abscli" / "README.md"
BEGIN, END = "<!-- drawn from the imports: make docs -->\n", "<!-- end of the drawing -->"


def packages() -> list[str]:
    """The folders right below `abscli` and `formats`; what lies beside them in `formats` is imported by all."""
    return sorted({".".join(module.split(".")[:2]) for module in module_graph() if module.count(".") >= 2})


def picture() -> str:
    """Mermaid's text: an arrow from each package to those that it imports, without those that a longer way implies."""
    graph = without_shortcuts(folder_graph(packages()))
    lines = ["flowchart TD"]
    lines += [f'    {name.replace(".", "_")}["{name.replace(".", "/")}"]' for name in sorted(graph)]
    lines += [
        f"    {name.replace('.', '_')} --> {target.replace('.', '_')}"
        for name, targets in sorted(graph.items())
        for target in sorted(targets)
    ]
    return "```mermaid\n" + "\n".join(lines) + "\n```\n"


def drawn(page: str) -> str:
    """The page with its picture drawn anew."""
    return re.sub(f"(?s){re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: BEGIN + picture() + END, page)


def named_files(page: str) -> set[str]:
    """The paths of files and folders that the page speaks of."""
    return {path for path in re.findall(r"`((?:abscli|formats|tests)/[\w./-]*)`", page) if "N" not in path}


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
