"""Decide what is in the single file of `abs`: which wheels, which of their files, and which Python they are for.

Nothing here reads or writes. The lock file names versions and digests; a wheel's file name says what it runs on.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

OWN: Final = "abscli"
"""The distribution that is built from this tree, and that no lock file names."""

Files = list[tuple[str, int, str]]
"""Path in the folder, size in bytes and SHA-256 of each file."""


class BadBundle(Exception):
    """The file cannot be built from these wheels."""


class Variant(NamedTuple):
    """One kind of single file. name: of the file; without: locked packages that it does not have; most: bytes."""

    name: str
    without: frozenset[str]
    most: int


VARIANTS: Final = {
    variant.name: variant
    for variant in (
        Variant("abs-reader", frozenset({"obstore"}), 60_000_000),
        Variant("abs-reader-buckets", frozenset(), 70_000_000),
    )
}

UNUSED: Final[Mapping[str, tuple[str, ...]]] = {
    # Of pyarrow, abs uses arrays, compute functions, and the readers and writers of Parquet, CSV and JSON. libparquet,
    # libarrow_dataset, libarrow_acero and libarrow_substrait stay: libarrow_python is linked with them.
    "pyarrow": (
        "pyarrow/include/*", "pyarrow/includes/*", "pyarrow/src/*", "pyarrow/tests/*", "pyarrow/*.p[xy][xdi]",
        "pyarrow/*.pxi", "pyarrow/libarrow_flight*", "pyarrow/libarrow_s3*", "pyarrow/libarrow_python_flight*",
        "pyarrow/libarrow_python_parquet_encryption*", "pyarrow/libarrow_python.so",
        "pyarrow/libarrow_python.so.*.*.*", "pyarrow/_flight.*", "pyarrow/_s3fs.*", "pyarrow/_azurefs.*",
        "pyarrow/_gcsfs.*", "pyarrow/_hdfs.*", "pyarrow/_orc.*", "pyarrow/_substrait.*", "pyarrow/_feather.*",
        "pyarrow/_parquet_encryption.*", "pyarrow/_dataset*", "pyarrow/_acero.*", "pyarrow/_pyarrow_cpp_tests.*",
    ),
    "numpy": (
        "numpy/*/tests/*", "numpy/tests/*", "numpy/f2py/*", "numpy/_core/include/*", "numpy/_core/lib/*",
        "numpy/random/lib/*", "numpy/*.pxd", "numpy/_core/_simd.*", "numpy/_core/_*_tests.*", "numpy/_pyinstaller/*",
    ),
}  # fmt: skip
"""Files of a distribution that no command uses; `*` matches `/` as well. An integration test runs the commands."""
LEFT_OUT: Final = ("*.pyi", "*/py.typed", "*.dist-info/RECORD", "*.dist-info/direct_url.json")
"""Files that are left out of every distribution. Licences, notices and METADATA stay, as redistribution requires."""
SCRIPTS: Final = {
    "share/bash-completion/completions/abs": "completions/abs.bash",
    "share/zsh/site-functions/_abs": "completions/_abs",
    "share/fish/vendor_completions.d/abs.fish": "completions/abs.fish",
}
"""The folder of the completion scripts, in which `abs completion` looks for them in a source tree."""

_PIN = re.compile(r"^([A-Za-z0-9_.-]+)==([^\s;]+)(?:\s*;\s*([^\\\n]*?))?\s*\\?$", re.MULTILINE)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_GLIBC = re.compile(r"manylinux_(\d+)_(\d+)_")


class Pin(NamedTuple):
    """A version of a package and the digests of its files. conditional: only for some Pythons or systems."""

    name: str
    version: str
    digests: frozenset[str]
    conditional: bool


def pins(lock: str) -> list[Pin]:
    """Read a lock file as uv writes it."""
    found = []
    matches = list(_PIN.finditer(lock))
    for match, following in zip(matches, [*matches[1:], None], strict=True):
        block = lock[match.end() : following.start() if following else len(lock)]
        found.append(Pin(normal_name(match[1]), match[2], frozenset(_HASH.findall(block)), bool(match[3])))
    return found


def normal_name(name: str) -> str:
    """Return the name of a distribution in the form in which names are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


class Wheel(NamedTuple):
    """The file name of a wheel. python, abi, platforms: its compatibility tags."""

    name: str
    version: str
    python: str
    abi: str
    platforms: tuple[str, ...]


def wheel_of(file: str) -> Wheel:
    """Read the file name of a wheel; BadBundle."""
    parts = file.removesuffix(".whl").split("-")
    if not file.endswith(".whl") or len(parts) != 5:
        raise BadBundle(f"{file} is not named like a wheel")
    name, version, python, abi, platforms = parts
    return Wheel(normal_name(name), version, python, abi, tuple(platforms.split(".")))


def chosen(digests: Mapping[str, str], locked: Iterable[Pin], variant: Variant) -> list[str]:
    """Return the wheels to take, in order; BadBundle if one is not locked, or a locked one is missing.

    digests: of the wheels that there are, by the names of their files.
    """
    by_name: dict[str, list[Pin]] = {}
    for pin in locked:
        by_name.setdefault(pin.name, []).append(pin)
    taken = {}
    for file, digest in digests.items():
        name = wheel_of(file).name
        if name != OWN and not any(digest in pin.digests for pin in by_name.get(name, ())):
            raise BadBundle(f"{file} is not a file that the lock names: its SHA-256 is {digest}")
        if name not in variant.without:
            taken[name] = file
    wanted = {name for name, few in by_name.items() if not all(pin.conditional for pin in few)} | {OWN}
    missing = wanted - variant.without - taken.keys()
    if missing:
        raise BadBundle(f"no wheel of {', '.join(sorted(missing))}")
    return [taken[name] for name in sorted(taken)]


def target_of(files: Iterable[str], here: Mapping[str, str]) -> dict[str, str]:
    """Return what the wheels run on: this interpreter, with the oldest glibc that is enough for all.

    here: this interpreter, as `bootstrap.this_target` describes it.
    """
    target = {key: value for key, value in here.items() if key != "glibc"}
    least = []
    for file in files:
        versions = [(int(m[1]), int(m[2])) for platform in wheel_of(file).platforms if (m := _GLIBC.match(platform))]
        if versions:
            least.append(min(versions))
    if least:
        target["glibc"] = "{}.{}".format(*max(least))
    return target


def place(distribution: str, name: str) -> str | None:
    """Return where a file of a wheel goes in the folder; None if it is left out."""
    if name.endswith("/") or any(fnmatchcase(name, pattern) for pattern in LEFT_OUT):
        return None
    first, _, rest = name.partition("/")
    if first.endswith(".data"):
        return SCRIPTS.get(rest.removeprefix("data/")) if distribution == OWN else None
    return None if any(fnmatchcase(name, pattern) for pattern in UNUSED.get(distribution, ())) else name


def manifest(variant: Variant, target: Mapping[str, str], contents: Mapping[str, bytes]) -> bytes:
    """Return the manifest of a file. contents: by path in the folder."""
    files: Files = [
        (name, len(content), hashlib.sha256(content).hexdigest()) for name, content in sorted(contents.items())
    ]
    return json.dumps({"name": variant.name, "target": target, "files": files}, separators=(",", ":")).encode()
