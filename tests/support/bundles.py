"""Small single files for tests: wheels with a few modules, and the lock that names them."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

from abscli.cli.bundle import bootstrap
from abscli.cli.bundle.build import build
from abscli.cli.bundle.contents import Variant

MAIN = """
import sys
import helper

def main():
    print("ran", helper.__file__, *sys.argv[1:])
    return 3
"""
WHEELS: Mapping[str, Mapping[str, str]] = {
    "abscli-0.1.0-py3-none-any.whl": {
        "abscli/__init__.py": "", "abscli/cli/__init__.py": "", "abscli/cli/main.py": MAIN,
    },
    "helper-1.0-py3-none-any.whl": {"helper.py": "VALUE = 1\n", "helper-1.0.dist-info/licenses/LICENSE": "free\n"},
}  # fmt: skip
SMALL = Variant("abs-small", frozenset(), 100_000)


def write_wheels(folder: Path, wheels: Mapping[str, Mapping[str, str]] = WHEELS) -> str:
    """Write wheels, by file name and the path in them, and return a lock for all but abscli."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for file, contents in wheels.items():
        with zipfile.ZipFile(folder / file, "w") as archive:
            for name, text in contents.items():
                archive.writestr(name, text)
        name, version = file.split("-")[:2]
        digest = hashlib.sha256((folder / file).read_bytes()).hexdigest()
        if name != "abscli":
            lines.append(f"{name}=={version} \\\n    --hash=sha256:{digest}\n    # via abs\n")
    return "".join(lines)


def small_file(folder: Path, wheels: Mapping[str, Mapping[str, str]] = WHEELS) -> Path:
    """Build a single file with a `main` that prints where it runs from and its arguments, and returns 3."""
    lock = write_wheels(folder / "wheels", wheels)
    build(SMALL, lock, folder / "wheels", folder / "small.pyz")
    return folder / "small.pyz"


def manifest_of(archive: Path) -> bytes:
    """Return the manifest of a single file."""
    with zipfile.ZipFile(archive) as opened:
        return opened.read(bootstrap.MANIFEST)


def start_file(archive: Path, *arguments: object, cache: Path | None, **environment: str
               ) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """Start a single file. cache: XDG_CACHE_HOME; None: neither that nor HOME is set."""
    own = {"PATH": os.environ["PATH"], **({} if cache is None else {"XDG_CACHE_HOME": str(cache)}), **environment}
    return subprocess.run(
        [sys.executable, archive, *map(str, arguments)], env=own, capture_output=True, text=True, timeout=300
    )
