"""The guard can fail: each thing that a command may not do is seen by each recorder, and reported."""

from __future__ import annotations

import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.guard.events import Action, Event
from tests.guard.listeners import HOST
from tests.guard.policy import Policy
from tests.guard.recorders import Recorder, recorders
from tests.guard.victim import Ran, Victim, evil_library, victim


@pytest.fixture(scope="module", params=recorders(), ids=lambda one: one.name)
def watched(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    """A victim whose programs are watched by each recorder that there is."""
    one: Recorder = request.param
    if (why := one.missing()) is not None:
        pytest.skip(why)
    with victim(tmp_path_factory.mktemp("victim"), one) as somebody:
        yield somebody


def ran(watched: Victim, program: str, *arguments: object, **given: list[Path]) -> Ran:
    """What a program of Python does, which may do what a command may."""
    done = watched.run_program([sys.executable, "-I", "-c", program, *map(str, arguments)], **given)
    assert done.code == 0, done.err
    return done


def test_a_program_that_does_nothing_is_not_reported(watched: Victim) -> None:
    done = ran(watched, "import hashlib, json, socket, sqlite3, ssl")
    assert done.violations == ()
    assert any(event.action is Action.READ for event in done.events)


def test_a_connection_is_reported(watched: Victim) -> None:
    port = watched.listeners.port("kafka")
    done = ran(
        watched, f"import socket, sys; socket.create_connection(({HOST!r}, int(sys.argv[1]))).send(b'hello')", port
    )
    assert Event(Action.CONNECT, f"{HOST}:{port}") in done.violations
    assert done.received["kafka"] == b"hello"


def test_a_datagram_is_reported(watched: Victim) -> None:
    program = "import socket; socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto(b'x', ('::1', 9))"
    assert Event(Action.CONNECT, "::1:9") in ran(watched, program).violations


def test_a_connection_to_a_path_is_reported(watched: Victim, tmp_path: Path) -> None:
    path = watched.base / "s"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        done = ran(watched, "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])", path)
    path.unlink()
    assert Event(Action.CONNECT, str(path)) in done.violations


def test_a_port_that_is_taken_is_reported(watched: Victim) -> None:
    done = ran(watched, "import socket; socket.create_server(('127.0.0.1', 0))")
    assert Event(Action.BIND, "127.0.0.1:0") in done.violations


@pytest.mark.parametrize(
    "program",
    [
        "import subprocess; subprocess.run(['true'])",
        "import os; os.system('true')",
        "import os; os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)",
        "import os; os.execv('/bin/true', ['true'])",
    ],
)
def test_a_program_that_is_started_is_reported(watched: Victim, program: str) -> None:
    executed = [event.target for event in ran(watched, program).violations if event.action is Action.EXEC]
    assert {Path(path).name for path in executed} & {"true", "sh"}


def test_a_library_that_is_loaded_is_reported_though_its_folder_may_be_read(watched: Victim) -> None:
    library = watched.place("work", "lib") / "evil.so"
    if not evil_library(library):
        pytest.skip("no C compiler is installed")
    plain = library.with_name("evil.txt")
    shutil.copy(library, plain)
    for path in (library, plain):  # whatever its name is
        done = ran(watched, "import ctypes, sys; ctypes.CDLL(sys.argv[1])", path, reads=[library.parent])
        assert Event(Action.MAP, str(path)) in done.violations
        assert Event(Action.CHANGE, str(library.with_suffix(".ran"))) in done.violations


def test_a_module_that_is_imported_is_reported_though_its_folder_may_be_read(watched: Victim) -> None:
    folder = watched.place("work", "modules")
    (folder / "evil.py").write_text("")
    done = ran(watched, "import sys; sys.path.insert(0, sys.argv[1]); import evil", folder, reads=[folder])
    assert Event(Action.READ, str(folder / "evil.py")) in done.violations


def test_a_file_that_is_read_is_reported_unless_it_was_given(watched: Victim) -> None:
    for path in ("/etc/passwd", str(watched.elsewhere / "passwd")):
        assert Event(Action.READ, path) in ran(watched, "import sys; open(sys.argv[1])", path).violations
    given = ran(watched, "import sys; open(sys.argv[1])", watched.elsewhere / "passwd", reads=[watched.elsewhere])
    assert given.violations == ()


def test_a_file_that_is_not_there_is_reported_as_well(watched: Victim) -> None:
    missing = watched.elsewhere / "missing"
    done = ran(watched, "import contextlib, sys\nwith contextlib.suppress(OSError): open(sys.argv[1])", missing)
    assert Event(Action.READ, str(missing), failed=True) in done.violations


@pytest.mark.parametrize("ask", ["os.path.exists", "os.path.isdir", "os.path.islink", "os.path.realpath"])
def test_a_path_that_is_looked_at_is_reported(watched: Victim, ask: str) -> None:
    path = str(watched.elsewhere / "in" / "a.txt")
    done = ran(watched, f"import os, sys; {ask}(sys.argv[1])", path)
    assert (Action.LOOK, path) in [(event.action, event.target) for event in done.violations]


def test_the_folders_above_the_current_one_may_be_looked_at(watched: Victim) -> None:
    assert ran(watched, "import os; os.path.realpath('.'); os.stat('/')").violations == ()


def test_a_folder_that_is_listed_is_reported(watched: Victim) -> None:
    done = ran(watched, "import os, sys; os.listdir(sys.argv[1])", watched.elsewhere)
    assert Event(Action.READ, str(watched.elsewhere)) in done.violations


def test_a_relative_path_is_reported_as_it_leads(watched: Victim) -> None:
    done = ran(watched, "import os; os.close(os.open('../elsewhere/../elsewhere/passwd', os.O_RDONLY))")
    assert Event(Action.READ, str(watched.elsewhere / "passwd")) in done.violations


@pytest.mark.parametrize(
    "program",
    [
        "open(path, 'w')",
        "os.close(os.open(path, os.O_RDWR | os.O_CREAT))",
        "os.mkdir(path)",
        "os.symlink('target', path)",
        "open('made', 'w'); os.rename('made', path)",
        "open('made', 'w'); os.link('made', path); os.unlink('made')",
    ],
)
def test_a_path_that_is_made_is_reported(watched: Victim, program: str) -> None:
    path = watched.elsewhere / "new"
    done = ran(watched, f"import os, sys; path = sys.argv[1]; {program}", path, changes=[watched.work / "made"])
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    assert [event for event in done.violations if event.target != str(path)] == []
    assert Event(Action.CHANGE, str(path)) in done.violations


@pytest.mark.parametrize("program", ["os.unlink(path)", "os.truncate(path, 0)", "os.replace(path, path + '.moved')"])
def test_a_path_that_is_changed_is_reported_though_it_may_be_read(watched: Victim, program: str) -> None:
    path = watched.place("work", "given") / "file"
    path.write_text("text")
    done = ran(watched, f"import os, sys; path = sys.argv[1]; {program}", path, reads=[path.parent])
    assert Event(Action.CHANGE, str(path)) in done.violations


def test_a_child_process_is_watched(watched: Victim) -> None:
    program = "import os, sys\nif os.fork():\n    os.wait()\nelse:\n    open(sys.argv[1])"
    path = str(watched.elsewhere / "passwd")
    assert Event(Action.READ, path) in ran(watched, program, path).violations


def test_what_a_process_knows_of_itself_may_be_read_and_what_leads_elsewhere_may_not(tmp_path: Path) -> None:
    policy = Policy(sys.executable, tmp_path)
    own = [Event(Action.READ, "/proc/self/status"), Event(Action.READ, "/proc/17/maps")]
    assert policy.violations(own) == []
    others = [
        Event(Action.READ, f"/proc/self/{name}") for name in ("cwd/x", "root/etc/passwd", "environ", "fd/3", "mem")
    ]
    assert policy.violations(others) == others
