"""`abs` in processes of their own, quickly: each is forked from one that has imported everything.

A child runs the whole command line. Beside that it can be told to read its input a little an epoch, to send itself
SIGTERM after so many epochs, to kill or stop itself, or to dawdle, at its n-th change of the file system below a
folder, and to run with a fault planted.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]

CHANGES = ("link", "rename", "replace", "unlink", "mkdir", "rmdir")
"""Calls of `os` that change what lies where; each is atomic: a process that dies does so before or after one."""


SLOWLY = 0.01
"""Seconds that a source takes to read a piece of its input where workers are lost."""

NAP_SECONDS = 1.2
"""More than the time for an epoch that is given with a nap."""


IMPORTED = (
    "encodings.idna",
    "encodings.utf_8_sig",
    "unicodedata",
    "numpy.ma",
    "abscli.api",
    "abscli.cli.app",
    "abscli.cli.main",
    "abscli.cli.running",
    "abscli.commands.gc",
    "abscli.commands.plan_recovery",
    "abscli.commands.rebuild",
    "abscli.commands.restore",
    "abscli.commands.run",
    "abscli.commands.validate",
    "abscli.engine.job",
    "abscli.stores.native.check",
    "abscli.stores.native.plan",
    "abscli.stores.native.rebuilding.rebuild",
    "abscli.stores.native.removing.garbage",
    "abscli.stores.native.repairing.repair_plan",
    "abscli.stores.native.restore",
    "abscli.stores.native.run",
    "abscli.stores.native.text.plan",
    "abscli.stores.native.text.validate",
    "tests.support.jobs.lines",
)
"""Modules that commands need, imported once before the children are forked."""


class Loss(NamedTuple):
    """Workers that are lost once so many epochs are complete. open_epoch: and another one is being taken."""

    epochs: int
    open_epoch: bool
    workers: tuple[int, ...]


@dataclass(frozen=True)
class How:
    """What a child does beside its command.

    epochs: complete ones after which it sends itself SIGTERM; None: never.
    signal: that it sends itself at a change below the working folder; 0: none, but it takes `NAP_SECONDS` there.
    at: the number of that change, from 1 on.
    after: whether the change is made before the signal.
    fault: name of one of `tests.exactly_once.faults`.
    paced: whether the input is read a little an epoch.
    losses: of workers, each after so many complete epochs, and while another is open or not, the numbers of those that
    are lost; the input is read slowly then, whatever epochs are complete.
    """

    epochs: int | None = None
    signal: int | None = None
    at: int = 0
    after: bool = False
    fault: str | None = None
    paced: bool = True
    losses: tuple[Loss, ...] = ()


PLAIN = How()


class Ended(NamedTuple):
    """A command that has ended. code: its exit code, or minus the signal that ended it."""

    words: tuple[str, ...]
    code: int
    out: str
    err: str

    def __str__(self) -> str:
        return f"abs {' '.join(self.words)}: {self.code}\n{self.out}{self.err}"


class Children:
    """Starts commands in a folder, in which it leaves what they print. Everything that it started ends with it."""

    def __init__(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "tests.exactly_once.children"]
        self._parent = subprocess.Popen(
            command, env=environment, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._started: dict[int, tuple[tuple[str, ...], Path]] = {}
        self._count = 0

    def __enter__(self) -> Children:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for process in list(self._started):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
            self.wait(process)
        assert self._parent.stdin is not None
        self._parent.stdin.close()
        self._parent.wait(60)
        assert self._parent.stdout is not None
        self._parent.stdout.close()

    def start(self, folder: Path, *words: str, how: How = PLAIN) -> int:
        """The process of a command that has begun, in this working folder."""
        self._count += 1
        prints = folder / f".child-{self._count}"
        process = self._ask("start", str(folder), list(words), str(prints), asdict(how))
        self._started[process] = words, prints
        return process

    def is_stopped(self, process: int) -> bool:
        """Waits until it has stopped itself, or has ended."""
        return bool(self._ask("is_stopped", process))

    def wait(self, process: int) -> Ended:
        """Waits for its end."""
        code = self._ask("wait", process)
        words, prints = self._started.pop(process)
        texts = []
        for stream in ("out", "err"):
            path = prints.with_name(f"{prints.name}.{stream}")
            texts.append(path.read_text())
            path.unlink()
        return Ended(words, code, *texts)

    def run(self, folder: Path, *words: str, how: How = PLAIN) -> Ended:
        """A command, from its beginning to its end."""
        return self.wait(self.start(folder, *words, how=how))

    def _ask(self, *question: Any) -> int:
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.write(json.dumps(question) + "\n")
        self._parent.stdin.flush()
        return int(json.loads(self._parent.stdout.readline()))


# -- in the process that they are forked from ------------------------------------------------------------------


def main() -> None:
    """Answers questions, a line of JSON each; what a child does beside its command is prepared before it is forked."""
    for name in IMPORTED:
        importlib.import_module(name)
    os.fsync = lambda fd: None  # children are killed, and no power is cut
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    ended: dict[int, int] = {}
    for line in sys.stdin:
        question, *arguments = json.loads(line)
        if question == "start":
            answer = os.fork()
            if not answer:
                _be_child(*arguments)
        else:
            answer = _wait(arguments[0], ended, stopped=question == "is_stopped")
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _wait(process: int, ended: dict[int, int], *, stopped: bool) -> int:
    """Of a child: whether it stopped, if that was asked, or how it ended."""
    if process not in ended:
        _, status = os.waitpid(process, os.WUNTRACED if stopped else 0)
        if os.WIFSTOPPED(status):
            return True
        ended[process] = os.waitstatus_to_exitcode(status)
    return False if stopped else ended.pop(process)


def _be_child(folder: str, words: list[str], prints: str, how: dict[str, Any]) -> None:
    """The command, to its end. Never returns."""
    code = 70
    try:
        os.chdir(folder)
        for number, mode in ((0, "r"), (1, "w"), (2, "w")):
            path = os.devnull if number == 0 else f"{prints}.{('out', 'err')[number - 1]}"
            with open(path, mode) as file:
                os.dup2(file.fileno(), number)
        _prepare(How(**how), folder)
        sys.argv = ["abs", *words]
        from abscli.cli.main import main as command_line

        code = command_line()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _prepare(how: How, folder: str) -> None:
    if how.fault is not None:
        from tests.exactly_once.faults import FAULTS

        FAULTS[how.fault].plant()
    if how.losses:
        _lose([Loss(*loss) for loss in how.losses], how.epochs)
    elif how.paced:
        _pace(how.epochs)
    if how.signal is not None:
        _strike(how, folder)


def _pace(goal: int | None) -> None:
    """Sources read a little an epoch; after so many epochs the process asks itself to stop."""
    from abscli.cli import running
    from abscli.engine.coordinator import Progress
    from tests.support.jobs.lines import Gate

    gate = Gate()
    gate.install(setattr)
    plain = running.Display.__call__
    asked = False

    def shown(display: running.Display, progress: Progress) -> None:
        nonlocal asked
        gate.epochs = progress.epochs
        if goal is not None and progress.epochs >= goal and not asked:
            asked = True
            os.kill(os.getpid(), signal.SIGTERM)
        plain(display, progress)

    running.Display.__call__ = shown  # type: ignore[method-assign]


def _lose(losses: list[Loss], goal: int | None) -> None:
    """Workers are dropped with all that they have; after the last of them, and so many epochs, the process asks itself
    to stop. Sources do the same whenever they are asked again, so that steps can be taken again."""
    from abscli.cli import running
    from abscli.engine.coordinator import Progress, Service
    from abscli.engine.sources.files import jsonl, line_files, text

    init, shown = Service.__init__, running.Display.__call__
    services: list[Service] = []
    left, asked = list(losses), False

    def slow(read: Callable[[Any], object]) -> Callable[[Any], object]:
        def slowly(source: object) -> object:
            time.sleep(SLOWLY)
            return read(source)

        return slowly

    def begin(service: Service, *arguments: Any, **options: Any) -> None:
        init(service, *arguments, **options)
        services.append(service)

    def show(display: running.Display, progress: Progress) -> None:
        nonlocal asked
        if left and progress.epochs >= left[0].epochs and (progress.open_epochs or not left[0].open_epoch):
            crew = services[-1].crew
            for number in left.pop(0).workers:
                if number < crew.size and crew.is_there(number):
                    crew.kill(number)
        if goal is not None and not left and progress.epochs >= goal and not asked:
            asked = True
            os.kill(os.getpid(), signal.SIGTERM)
        shown(display, progress)

    line_files.CHUNK = 120
    for kind in (text.TextSource, jsonl.JsonLinesSource):
        kind.read = slow(kind.read)  # type: ignore[method-assign, assignment]
    Service.__init__ = begin  # type: ignore[method-assign, assignment]
    running.Display.__call__ = show  # type: ignore[method-assign]


def _strike(how: How, folder: str) -> None:
    """The process sends itself the signal at its n-th change."""
    left, number = how.at, how.signal or 0

    def strike() -> None:
        if number:
            os.kill(os.getpid(), number)
        else:
            time.sleep(NAP_SECONDS)

    def wrapped(plain: Callable[..., None]) -> Callable[..., None]:
        def change(path: Any, *more: Any, **options: Any) -> None:
            nonlocal left
            if not os.path.abspath(os.fspath(path)).startswith(folder):
                plain(path, *more, **options)
                return
            left -= 1
            due = left == 0
            if due and not how.after:
                strike()
            plain(path, *more, **options)
            if due and how.after:
                strike()

        return change

    for name in CHANGES:
        setattr(os, name, wrapped(getattr(os, name)))


@contextlib.contextmanager
def stopped(children: Children, process: int) -> Iterator[bool]:
    """Whether it stops itself; it goes on when the block ends."""
    is_stopped = children.is_stopped(process)
    try:
        yield is_stopped
    finally:
        if is_stopped:
            os.kill(process, signal.SIGCONT)


if __name__ == "__main__":
    main()
