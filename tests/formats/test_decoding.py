"""Structs in JSON are decoded by several threads at once."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from formats.decoding import decode

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import sys, threading
import msgspec
from formats.decoding import decode

sys.setswitchinterval(1e-6)
data = b'{"a":{%s}}' % b",".join(b'"f%d":1' % k for k in range(30))
for number in range(100):
    inner = msgspec.defstruct(f"Inner{number}", [(f"f{k}", "int | None") for k in range(30)])
    outer = msgspec.defstruct(f"Outer{number}", [("a", inner), *[(f"g{k}", str, "x") for k in range(20)]])
    gate = threading.Barrier(4)

    def first():
        gate.wait()
        assert decode(data, outer).a.f29 == 1

    threads = [threading.Thread(target=first) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print("decoded")
"""


def test_threads_that_decode_a_struct_for_the_first_time_do_not_crash_the_process() -> None:
    """msgspec alone ends this program with SIGSEGV."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "decoded\n"), done.stderr


ALONE = {"formats/plan.py", "abscli/engine/sources/postgres/keys.py"}
"""Modules that decode in one thread, or no struct."""


def test_no_other_module_lets_msgspec_prepare_a_struct_in_any_thread() -> None:
    found = {
        str(path.relative_to(ROOT))
        for package in ("abscli", "formats")
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "msgspec.json.decode"
        and any(keyword.arg == "type" for keyword in node.keywords)
    }  # fmt: skip
    assert found == ALONE


def test_a_value_of_another_type_is_refused() -> None:
    kind = msgspec.defstruct("Kind", [("a", int)])
    assert decode(b'{"a":1}', kind) == kind(1)
    with pytest.raises(msgspec.ValidationError):
        decode(b'{"a":"x"}', kind)
