"""Structs in JSON are decoded by several threads at once."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from formats.decoding import decode

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


def test_a_value_of_another_type_is_refused() -> None:
    kind = msgspec.defstruct("Kind", [("a", int)])
    assert decode(b'{"a":1}', kind) == kind(1)
    with pytest.raises(msgspec.ValidationError):
        decode(b'{"a":"x"}', kind)
