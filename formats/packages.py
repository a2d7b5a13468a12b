"""The packages that `abs` uses: which are missing, and the command that installs them.

Everything that reports a missing package takes its hint from here. `abscli` itself is not on PyPI, so no hint names it:
each names the package that is missing, with the versions that `pyproject.toml` asks for.
"""

from __future__ import annotations

import re
import shlex
import sys
from importlib.util import find_spec
from typing import Final, NamedTuple

from formats.errors import MissingPackage


class Package(NamedTuple):
    """A third-party package.

    requirement: what pip is asked for, as in `pyproject.toml`.
    purpose: what does not work without the package; the end of the sentence "... needs the package NAME".
    """

    requirement: str
    purpose: str

    @property
    def name(self) -> str:
        """The name on PyPI, without versions and extras."""
        return self.requirement.partition("[")[0].partition(">")[0]


PACKAGES: Final[dict[str, Package]] = {
    "confluent_kafka": Package("confluent-kafka>=2.4", "a connection to a Kafka broker"),
    "cryptography": Package("cryptography>=42", "a job on several hosts"),
    "deltalake": Package("deltalake>=1.1", "a Delta Lake sink"),
    "jinja2": Package("jinja2>=3.1", "an HTML report"),
    "mmh3": Package("mmh3>=5", "looking for Flink checkpoints"),
    "msgspec": Package("msgspec>=0.20", "every command"),
    "numpy": Package("numpy>=2", "working with keyed state"),
    "obstore": Package("obstore>=0.12", "a store in a bucket"),
    "prometheus_client": Package("prometheus-client>=0.20", "running a job"),
    "psycopg": Package("psycopg[binary]>=3.2", "a PostgreSQL source or sink"),
    "pyarrow": Package("pyarrow>=20", "reading or writing records"),
    "pyiceberg": Package("pyiceberg[sql-sqlite]>=0.12", "an Iceberg sink"),
    "pyspark": Package("pyspark>=4", "the engine spark"),
    "rich": Package("rich>=14", "showing progress"),
    "rocksdict": Package("rocksdict>=0.3.29", "state of the Flink backend RocksDB"),
    "typer": Package("typer>=0.28,<0.29", "every command"),
    "xxhash": Package("xxhash>=3", "computing checksums"),
    "yaml": Package("pyyaml>=6", "reading a job file"),
}
"""By the name that is imported. `pyproject.toml` lists the same requirements; a test compares them."""


_LIBRARY = re.compile(r"([\w.+-]+): cannot open shared object file")
_DEBIAN = {"libgcc_s.so.1": "libgcc-s1", "libstdc++.so.6": "libstdc++6"}
"""The Debian packages with the libraries of the system that native extensions are linked with."""


def is_installed(module: str) -> bool:
    """Tell whether a package can be found, without importing it."""
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # ValueError: a module that another program has put into sys.modules by hand
        return False


def install_command(*modules: str) -> str:
    """Return the shell command that installs packages, given by the names that are imported, for this Python."""
    return pip_install(*(PACKAGES[module].requirement for module in modules))


def pip_install(*requirements: str, upgrade: bool = False) -> str:
    """Return the shell command that installs requirements for this Python.

    uv and pipx make environments without pip: there, the pip on PATH is told which Python to install for.
    """
    python = shlex.quote(sys.executable or "python3")
    pip = f"{python} -m pip" if is_installed("pip") else f"pip --python {python}"
    # not shlex.quote: it leaves a requirement with brackets alone only where no shell would expand them
    quoted = " ".join(f"'{requirement}'" for requirement in requirements)
    return f"{pip} install {'--upgrade ' if upgrade else ''}{quoted}"


def missing_package(module: str, purpose: str | None = None) -> MissingPackage:
    """Return the error for a package that is not installed.

    purpose: what needs the package, where the caller knows it better than PACKAGES does.
    """
    package = PACKAGES[module]
    message = f"{purpose or package.purpose} needs the package {package.name}, which is not installed"
    return MissingPackage(message, hint=install_command(module))


def require_package(module: str, purpose: str | None = None) -> None:
    """Raise MissingPackage if a package is not installed."""
    if not is_installed(module):
        raise missing_package(module, purpose)


def as_missing_package(error: BaseException) -> MissingPackage | None:
    """Return the error to report in place of a failed import; None if no package of PACKAGES is to blame.

    A missing module inside an installed package is a bug of ours or of the package, and stays one. A package whose
    native library cannot be loaded is reported like a missing package, since installing it again is the way out.
    """
    if not isinstance(error, ImportError) or error.name is None:
        return None
    module = error.name.partition(".")[0]
    if module not in PACKAGES:
        return None
    if isinstance(error, ModuleNotFoundError):
        return None if is_installed(module) else missing_package(module)
    if error.path is None or error.path.endswith(".py"):
        return None
    package = PACKAGES[module]
    if library := _LIBRARY.match(str(error)):
        message = f"the package {package.name} cannot be loaded: this system has no {library[1]}"
        return MissingPackage(message, hint=f"apt-get install {_DEBIAN.get(library[1], library[1])}")
    text = " ".join(str(error).split())
    command = pip_install(package.requirement).replace(" install ", " install --force-reinstall ", 1)
    return MissingPackage(f"the package {package.name} cannot be loaded: {text}", hint=command)
