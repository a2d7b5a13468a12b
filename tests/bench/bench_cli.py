"""CPU milliseconds (user + system, medians of 11) of short commands, and what `abs --help` imports.

    python -m tests.bench.bench_cli

Bytecode is compiled first; a bare interpreter is measured beside them, in turn.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from abscli.engine.job import JobOptions, run_job
from abscli.examples import inputs
from formats.job.file import parse_topology

ABS = str(Path(sys.executable).with_name("abs"))


def cpu(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def main() -> None:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory(prefix="abs-bench-") as root:
        folder = Path(root) / "job"
        topology = parse_topology(inputs.write_job("wordcount", folder))
        run_job(topology, str(folder / "store"), JobOptions(str(folder), "x", engine="inline", interval=0.2))
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "abs --help": [ABS, "--help"],
            "abs run --help": [ABS, "run", "--help"],
            "abs completion bash": [ABS, "completion", "bash"],
            "completion of STORE@": [ABS, "__complete", "ref", "inspect", f"{folder / 'store'}@"],
            "completion of a task": [ABS, "__complete", "task", "inspect", str(folder / "store"), "c"],
            "abs inspect STORE -o json": [ABS, "inspect", str(folder / "store"), "-o", "json"],
            "abs inspect STORE@latest -o json": [ABS, "inspect", f"{folder / 'store'}@latest", "-o", "json"],
            "abs validate STORE -o json": [ABS, "validate", str(folder / "store"), "-o", "json"],
        }
        for command in commands.values():
            cpu(command)
        found: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(11):
            for name, command in commands.items():
                found[name].append(cpu(command))
    for name, times in found.items():
        print(f"{name:34} median {statistics.median(times):6.0f} ms (min {min(times):.0f}, max {max(times):.0f})")
    code = "import sys\nfrom abscli.cli.main import main\nmain(['--help'])\nprint(*sorted(sys.modules), sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = done.stdout.split("\n")
    ours = [m for m in modules if m.split(".")[0] in ("abscli", "formats")]
    heavy = [m for m in modules if m in ("pyarrow", "pyspark", "rich", "yaml", "numpy", "msgspec", "typer", "pydantic")]
    print(f"abs --help imports {', '.join(ours)}; of the heavy ones: {', '.join(heavy) or 'none'}")


if __name__ == "__main__":
    main()
