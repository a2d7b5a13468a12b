"""Run `abs` in a process of its own, in which some packages are not installed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection, Mapping

_HIDE = """
import sys

class Hidden:
    def __init__(self, names):
        self._names = names

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self._names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None

hidden, code = sys.argv[1].split(","), sys.argv[2]
del sys.argv[1:3]
sys.meta_path.insert(0, Hidden(hidden))
exec(code)
"""
ABS = "from abscli.cli.main import main\nsys.exit(main(sys.argv[1:]))"


def run_without(
    packages: Collection[str], *arguments: object, code: str = ABS, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Python code, by default `abs` with these arguments, where some packages cannot be found."""
    return subprocess.run(
        [sys.executable, "-c", _HIDE, ",".join(packages), code, *map(str, arguments)],
        env=os.environ | {"COLUMNS": "200"} | (environment or {}), capture_output=True, text=True, timeout=300,
    )  # fmt: skip
