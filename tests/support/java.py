"""How tests start Java: their JVMs live for seconds, which is no time for the second compiler to pay."""

from __future__ import annotations

import atexit
import base64
import os
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

QUICK: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
COMPILER: Final = Path(__file__).with_name("Compiler.java")
SECONDS = 60.0
"""How long a busy machine may take to end a compiler that has nothing to do."""


def compile_java(
    folder: Path, class_path: Iterable[Path | str], *files: Path | str, sources: Path | None = None
) -> None:
    """Compile into a folder, which is made; AssertionError with javac's message where it cannot.

    sources: where classes are looked for that these files need and the class path has not.

    A compiler of this process does all of it: one that has just started takes four times the work.
    """
    folder.mkdir(parents=True, exist_ok=True)
    arguments = ["-nowarn", "-cp", os.pathsep.join(map(str, class_path)), "-d", str(folder)]
    if sources is not None:
        arguments += ["-sourcepath", str(sources)]
    code, message = _compiler().run([*arguments, *map(str, files)])
    assert code == 0, message


class _Compiler:
    """A JVM that compiles until this process ends."""

    def __init__(self) -> None:
        command = ["java", *QUICK, "-Xmx512m", str(COMPILER)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        atexit.register(self._end)

    def run(self, arguments: list[str]) -> tuple[int, str]:
        """Exit code of javac, and its messages."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join(arguments) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the compiler has ended with {self._process.wait()}"
        code, _, message = answer.strip().partition(" ")
        return int(code), base64.b64decode(message).decode(errors="replace")

    def _end(self) -> None:
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()


@cache
def _compiler() -> _Compiler:
    return _Compiler()
