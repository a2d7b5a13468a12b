"""A user whom somebody has handed a store: a home with secrets, an environment with credentials, listeners around."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.guard.events import Action, Event
from tests.guard.listeners import HOST, Listeners, listening
from tests.guard.policy import Policy
from tests.guard.recorders import Recorder

LISTENERS = ("kafka", "iceberg", "catalog", "postgres", "s3", "gs", "azure", "hdfs")
SECRETS = {
    "AWS_ACCESS_KEY_ID": "AKIAVICTIM0000000001",
    "AWS_SECRET_ACCESS_KEY": "secret-of-aws",
    "AWS_SESSION_TOKEN": "session-of-aws",
    "PGPASSWORD": "password-of-libpq",
    "PYICEBERG_CATALOG__PROD__TOKEN": "token-of-prod",
    "PYICEBERG_CATALOG__DEFAULT__TOKEN": "token-of-default",
    "AZURE_STORAGE_ACCOUNT_KEY": "c2VjcmV0LW9mLWF6dXJl",
    "GOOGLE_SERVICE_ACCOUNT_KEY": "",
}
"""What nobody may get, by the variable that has it. An empty one is made when the listeners are known."""
PASSWORD_IN_URL, PASSWORD_IN_FILE = "password-of-url", "password-of-kafka"
SECONDS = 90


class Ran(NamedTuple):
    """How a command ended, what it did that it may not do, and what listeners got of it."""

    code: int
    out: str
    err: str
    events: tuple[Event, ...]
    violations: tuple[Event, ...]
    received: dict[str, bytes]

    @property
    def leaked(self) -> list[str]:
        """The names of the secrets that came to a listener, as they are."""
        everything = b"\n".join(self.received.values())
        return [name for name, value in _secrets().items() if value.encode() in everything]

    def report(self) -> str:
        """Describe what it did that it may not, the worst first; empty if that is nothing."""
        lines = [f"{name} received {len(data)} bytes" for name, data in self.received.items()]
        lines += [f"a listener received the secret {name}" for name in self.leaked]
        lines += [f"the secret {name} was printed" for name in self.shown]
        order = list(Action)
        folders: dict[tuple[Action, str], list[Event]] = {}
        for event in sorted(self.violations, key=lambda event: order.index(event.action)):
            folders.setdefault((event.action, os.path.dirname(event.target)), []).append(event)
        for events in folders.values():
            more = f" and {len(events) - 3} more there" if len(events) > 3 else ""
            lines.append(", ".join(map(str, events[:3])) + more)
        return "\n".join(lines)

    @property
    def shown(self) -> list[str]:
        """The names of the secrets that the command printed."""
        return [name for name, value in _secrets().items() if value in self.out + self.err]


def _secrets() -> dict[str, str]:
    secrets = {**SECRETS, "DATABASE_URL": PASSWORD_IN_URL, "kafka.properties": PASSWORD_IN_FILE}
    return {name: value for name, value in secrets.items() if value}


@dataclass(frozen=True)
class Victim:
    """Whose commands are run.

    base: of all that is theirs: `home`, `work`, where they have unpacked what they got and run commands, `elsewhere`,
    with files that no command was given, `tmp` and `out`, for what commands are told to write.
    python: the interpreter that has abs. root: the folder with its sources where it is not installed.
    """

    base: Path
    listeners: Listeners
    recorder: Recorder
    python: str = sys.executable
    root: Path | None = None

    def place(self, *names: str) -> Path:
        """Return a folder of theirs, made where it is not there."""
        path = self.base.joinpath(*names)
        path.mkdir(parents=True, exist_ok=True)
        return path

    @property
    def home(self) -> Path:
        """Their home."""
        return self.place("home")

    @property
    def work(self) -> Path:
        """Where they run commands."""
        return self.place("work")

    @property
    def elsewhere(self) -> Path:
        """Files that no command is given."""
        return self.place("elsewhere")

    @property
    def out(self) -> Path:
        """Where commands are told to write."""
        return self.place("out")

    def environment(self) -> dict[str, str]:
        """Return the variables of their shell."""
        listeners = self.listeners
        key = (
            f'{{"gcs_base_url": "http://{listeners.at("gs")}", "disable_oauth": true, "client_email": "", '
            '"private_key": "", "private_key_id": ""}'
        )
        return {
            **{name: value for name, value in SECRETS.items() if value},
            "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "COLUMNS": "120",
            "HOME": str(self.home), "TMPDIR": str(self.place("tmp")),
            "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": f"http://{listeners.at('s3')}",
            "DATABASE_URL": f"postgresql://victim:{PASSWORD_IN_URL}@{listeners.at('postgres')}/app?connect_timeout=3",
            "PGHOST": HOST, "PGPORT": str(listeners.port("postgres")), "PGUSER": "victim",
            "PGCONNECT_TIMEOUT": "3", "PGSERVICEFILE": str(self.home / ".pg_service.conf"),
            "PYICEBERG_CATALOG__PROD__URI": f"http://{listeners.at('catalog')}",
            "PYICEBERG_CATALOG__DEFAULT__URI": f"http://{listeners.at('catalog')}",
            "AZURE_STORAGE_ACCOUNT_NAME": "victim", "AZURE_STORAGE_ENDPOINT": f"http://{listeners.at('azure')}",
            "AZURE_ALLOW_HTTP": "true",
            "GOOGLE_SERVICE_ACCOUNT_KEY": key, "GOOGLE_BASE_URL": f"http://{listeners.at('gs')}",
        }  # fmt: skip

    def furnish(self) -> None:
        """Put their secrets into their home, and files that are nobody's business beside it."""
        files = {
            self.home / ".aws" / "credentials": "[default]\naws_access_key_id = A\naws_secret_access_key = secret\n",
            self.home / ".pg_service.conf": f"[prod]\nhost={HOST}\nport={self.listeners.port('postgres')}\n"
            f"user=victim\npassword={SECRETS['PGPASSWORD']}\n",
            self.home / ".pgpass": "*:*:*:*:secret\n",
            self.home
            / ".pyiceberg.yaml": "catalog:\n  other:\n    uri: http://127.0.0.1:1\n    token: token-of-other\n",
            self.home / "kafka.properties": "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            f"sasl.username=victim\nsasl.password={PASSWORD_IN_FILE}\n",
            self.home / ".ssh" / "id_ed25519": "private\n",
            self.elsewhere / "passwd": "root:x:0:0\n",
            self.elsewhere / "table.csv": "id,name\n1,a\n",
            self.elsewhere / "in" / "a.txt": "a\n",
            **{
                self.elsewhere / ending / f"part-00000-0000000001.{ending}": "1\n"
                for ending in ("jsonl", "csv", "parquet")
            },
            self.elsewhere / "delta" / "_delta_log" / f"{0:020d}.json": '{"protocol": {"minReaderVersion": 1}}\n',
            self.elsewhere / "catalog.db": "",
            self.elsewhere / "warehouse" / "catalog.db": "",
        }
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (self.home / ".pgpass").chmod(0o600)

    def run(
        self, command: Sequence[object], *, reads: Sequence[Path] = (), changes: Sequence[Path] = (),
        code: Sequence[Path] = (), more: dict[str, str] | None = None, seconds: float = SECONDS,
    ) -> Ran:  # fmt: skip
        """Run `abs` with these words in their folder, as they would. reads, changes, code: as of `Policy`."""
        return self.run_program([*self._abs(), *map(str, command)], reads=reads, changes=changes, code=code, more=more,
                                seconds=seconds)  # fmt: skip

    def run_program(
        self, command: Sequence[str], *, reads: Sequence[Path] = (), changes: Sequence[Path] = (),
        code: Sequence[Path] = (), more: dict[str, str] | None = None, seconds: float = SECONDS,
    ) -> Ran:  # fmt: skip
        """The same of any program."""
        temporary = self.place("tmp")
        settings = (self.home / ".config" / "abs.toml", self.work / "abs.toml")
        policy = Policy(
            python=self.python, cwd=self.work, reads=(*reads, *settings), changes=(*changes, temporary),
            code=(*code, *((self.root,) if self.root is not None else ())),
        )  # fmt: skip
        self.listeners.take()
        environment = {"PYTHONDONTWRITEBYTECODE": "1", **self.environment(), **(more or {})}
        done = self.recorder.run(command, cwd=self.work, environment=environment, seconds=seconds)
        violations = tuple(policy.violations(done.events))
        return Ran(done.code, done.out, done.err, done.events, violations, self.listeners.take())

    def _abs(self) -> list[str]:
        """Return how `abs` is called. Python adds the current folder to its path with -m and -c: -I keeps it out."""
        if self.root is None:
            script = Path(self.python).parent / "abs"
            if script.exists():
                return [self.python, str(script)]
        at = "" if self.root is None else f"sys.path.insert(0, {str(self.root)!r}); "
        program = f"import sys; {at}from abscli.cli.main import main; sys.exit(main())"
        return [self.python, "-I", "-c", program]


@contextlib.contextmanager
def victim(base: Path, recorder: Recorder, python: str = sys.executable, root: Path | None = None) -> Iterator[Victim]:
    """A victim whose files lie in a folder, while the listeners run."""
    with listening(*LISTENERS) as listeners:
        one = Victim(base, listeners, recorder, python, root)
        one.furnish()
        yield one


def evil_library(path: Path) -> bool:
    """Compile a library that does something as soon as it is loaded; return whether there is a compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return False
    source = path.with_suffix(".c")
    marker = path.with_suffix(".ran")
    source.write_text(
        "#include <fcntl.h>\n#include <unistd.h>\n__attribute__((constructor)) static void loaded(void) {\n"
        f'    close(open("{marker}", O_WRONLY | O_CREAT, 0600));\n}}\n'
        "void *conf_init(void) { return 0; }\n"
    )
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(path), str(source)], check=True)
    source.unlink()
    return True
