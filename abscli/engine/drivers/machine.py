"""Whether this machine can run jobs: Python, packages, Java, what PySpark makes of them, slots, memory, scratch room.

Nothing is started but `java -version` and, where PYSPARK_PYTHON names another, a Python that says its version; nothing
is written.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

from abscli.engine.drivers.java import LEAST, JavaHome, JavaMissing, java_homes, missing
from abscli.report.health import Check, Verdict
from formats.packages import install_command, pip_install

DISTRIBUTION = "abscli"
TRIED_JAVA = (17, 21)
"""What Spark 4 is documented for."""

JVM_MEMORY = 1 << 30
LITTLE_ROOM = 1 << 30
PATIENCE = 60.0

_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)\s*(?:>=\s*([0-9][0-9.]*))?")


def machine_checks() -> Iterator[Check]:
    """All of them, in the order in which one needs the other."""
    homes = java_homes()
    yield _python()
    yield _packages()
    yield _java(homes)
    yield _spark_home()
    yield _workers_python()
    yield _slots()
    yield _memory()
    yield _scratch()


def _python() -> Check:
    return Check("python", Verdict.OK, f"{platform.python_version()}, {sys.executable}")


def _packages() -> Check:
    """Those that `abs` needs: there, and not older than it says."""
    try:
        wanted = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        message = f"{DISTRIBUTION} runs from a directory, and is not installed as a package"
        return Check("packages", Verdict.UNKNOWN, message)
    lacking, to_install, there = [], list[str](), {}
    for line in wanted:
        requirement = _REQUIREMENT.match(line)
        if requirement is None or "extra ==" in line:
            continue
        name, least = requirement[1], requirement[2]
        try:
            there[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            lacking.append(f"{name} is not installed")
            to_install.append(line.partition(";")[0].strip())
            continue
        if least is not None and _numbers(there[name]) < _numbers(least):
            lacking.append(f"{name} {there[name]} is older than {least}")
            to_install.append(line.partition(";")[0].strip())
    if lacking:
        hint = pip_install(*to_install, upgrade=True)
        return Check("packages", Verdict.PROBLEM, "; ".join(lacking), hint)
    shown = ", ".join(f"{name} {there[name]}" for name in ("pyspark", "pyarrow", "obstore") if name in there)
    return Check("packages", Verdict.OK, f"{len(there)} as needed, among them {shown}")


def _java(homes: list[JavaHome]) -> Check:
    java = next((home for home in homes if home.version >= LEAST), None)
    if java is None:
        error: JavaMissing = missing()
        return Check("java", Verdict.PROBLEM, error.message, error.hint)
    message = f"{java.version}, {java.path} (from {java.origin})"
    passed_over = [home for home in homes[: homes.index(java)] if home.origin == "JAVA_HOME"]
    if passed_over:
        hint = f"export JAVA_HOME={java.path}"
        return Check("java", Verdict.WARNING, f"{message}; JAVA_HOME names version {passed_over[0].version}", hint)
    named = os.environ.get("JAVA_HOME")
    if named and java.origin != "JAVA_HOME":
        hint = f"unset JAVA_HOME, or export JAVA_HOME={java.path}"
        return Check("java", Verdict.WARNING, f"{message}; JAVA_HOME is {named}, where no Java runs", hint)
    if java.version not in TRIED_JAVA:
        hint = f"abs doctor --spark tries it; Spark is documented for Java {' and '.join(map(str, TRIED_JAVA))}"
        return Check("java", Verdict.WARNING, message, hint)
    return Check("java", Verdict.OK, message)


def _spark_home() -> Check:
    """PySpark takes the jars of SPARK_HOME, whatever version they are of."""
    try:
        version = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        message = "PySpark is not installed; the engine spark needs it, --engine inline does not"
        return Check("spark", Verdict.PROBLEM, message, install_command("pyspark"))
    home = os.environ.get("SPARK_HOME")
    if not home:
        return Check("spark", Verdict.OK, f"PySpark {version} with its own jars")
    jars = [jar.name for jar in Path(home, "jars").glob("spark-core_*.jar")]
    if not jars:
        hint = "unset SPARK_HOME: PySpark brings its own jars"
        return Check("spark", Verdict.PROBLEM, f"SPARK_HOME is {home}, where there is no jar of Spark's", hint)
    there = jars[0].removesuffix(".jar").rpartition("-")[2]
    if there != version:
        hint = f"unset SPARK_HOME, or {pip_install(f'pyspark=={there}')}"
        message = f"PySpark is {version}, the jars of SPARK_HOME ({home}) are {there}"
        return Check("spark", Verdict.PROBLEM, message, hint)
    return Check("spark", Verdict.OK, f"PySpark {version}, jars of SPARK_HOME ({home})")


def _workers_python() -> Check:
    """Spark refuses workers of another minor version than the driver's."""
    named = os.environ.get("PYSPARK_PYTHON")
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    if not named:
        return Check("workers", Verdict.OK, f"Python {own}, the same as this one")
    question = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([named, "-c", question], capture_output=True, text=True, timeout=PATIENCE, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it does not run"
        hint = f"unset PYSPARK_PYTHON, or export PYSPARK_PYTHON={sys.executable}"
        return Check("workers", Verdict.PROBLEM, f"PYSPARK_PYTHON is {named}: {reason}", hint)
    theirs = done.stdout.strip()
    if theirs != own:
        hint = f"export PYSPARK_PYTHON={sys.executable}"
        message = f"PYSPARK_PYTHON is {named}, which is Python {theirs}; this is {own}, and Spark wants both the same"
        return Check("workers", Verdict.PROBLEM, message, hint)
    return Check("workers", Verdict.OK, f"Python {own}, {named}")


def _slots() -> Check:
    """What local[*] comes to: the CPUs that this process may use, or what its control group allows of them."""
    cpus = float(len(os.sched_getaffinity(0)))
    quota, period = (_group("cpu.max") or "max").split()[0], (_group("cpu.max") or "max 100000").split()[-1]
    if quota != "max":
        cpus = min(cpus, int(quota) / int(period))
    slots = max(1, int(cpus))
    return Check("slots", Verdict.OK, f"{slots}: local[*] runs so many workers at a time")


def _memory() -> Check:
    free = _available()
    if free is None:
        return Check("memory", Verdict.UNKNOWN, "the system does not say how much is available")
    message = f"{free / (1 << 30):.1f} GiB available"
    if free < JVM_MEMORY:
        hint = "the JVM of Spark alone may take 1 GiB: close something, or use --engine inline"
        return Check("memory", Verdict.WARNING, message, hint)
    return Check("memory", Verdict.OK, message)


def _scratch() -> Check:
    try:
        folder = tempfile.gettempdir()
        room = os.statvfs(folder)
    except OSError as error:
        hint = "export TMPDIR=... to a folder that can be written"
        return Check("scratch", Verdict.PROBLEM, f"no temporary folder: {error.strerror or error}", hint)
    free = room.f_bavail * room.f_frsize
    message = f"{folder}, {free / (1 << 30):.1f} GiB free"
    if free < LITTLE_ROOM:
        hint = "workers spill there, and drills restore there: export TMPDIR=... to a folder with more room"
        return Check("scratch", Verdict.WARNING, message, hint)
    return Check("scratch", Verdict.OK, message)


def _available() -> int | None:
    """Bytes that can be had without swapping, by the system and by the control group."""
    limits = []
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        limits += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    except (OSError, ValueError, IndexError):
        pass
    most, used = _group("memory.max"), _group("memory.current")
    if most is not None and used is not None and most != "max":
        limits.append(max(0, int(most) - int(used)))
    return min(limits, default=None)


def _group(name: str) -> str | None:
    """What a file of this process's control group says."""
    try:
        return Path("/sys/fs/cgroup", name).read_text(encoding="ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def spark_check(start: Callable[[], object]) -> Check:
    """Whether Spark starts, tried. start: starts and stops it."""
    from time import monotonic

    from abscli.engine.errors import EngineError

    began = monotonic()
    try:
        start()
    except EngineError as error:
        return Check("spark starts", Verdict.PROBLEM, error.message, error.hint)
    return Check("spark starts", Verdict.OK, f"it ran a task of Python, after {monotonic() - began:.1f} s")
