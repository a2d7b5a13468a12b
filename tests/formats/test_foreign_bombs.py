"""Compressed files of Flink and Spark that stand for more than fits into memory: refused with the bound, within it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.stores.hostile import MEASURE

ROOT = Path(__file__).resolve().parents[2]
GB = 1_000_000_000
BEGIN = """
import io, struct, sys, zipfile
import pyarrow as pa
from formats import bounds
from formats.errors import Damaged
bounds.own_process()
bounds.bound_memory()

def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])

def packed(codec, pieces, size=64 << 20):
    "A stream of one codec that becomes `pieces` times `size` zeros."
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        for _ in range(pieces):
            stream.write(bytes(size))
    return bytes(sink.getvalue())

def refused(what, path="f"):
    try:
        what()
    except Damaged as error:
        print(error)
    else:
        sys.exit("it was read")
"""
BOMBS = {
    "spark zstd": """
from formats.spark.state.blocks import unpack
data = packed("zstd", 24)
assert len(data) < 1 << 20
refused(lambda: unpack(data, "f"))
""",
    "spark snappy": """
from formats.codec.snappy import JAVA_BEGIN
from formats.spark.state.blocks import unpack
block = pa.Codec("snappy").compress(bytes(64 << 20), asbytes=True)
data = JAVA_BEGIN + bytes(8) + (len(block).to_bytes(4, "big") + block) * 24
refused(lambda: unpack(data, "f"))
""",
    "spark lz4": """
from formats.codec.lz4 import MAGIC
from formats.spark.state.blocks import unpack
raw = 32 << 20
block = pa.Codec("lz4_raw").compress(bytes(raw), asbytes=True)
one = struct.pack("<8sBIII", MAGIC, 0x20 | 15, len(block), raw, 0) + block
refused(lambda: unpack(one * 50, "f"))
""",
    "spark zip": """
from formats.spark.state.rocks import read_zip
sink = io.BytesIO()
with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
    for i in range(24):
        archive.writestr(f"{i}.sst", bytes(64 << 20))
data = sink.getvalue()
assert len(data) < 2 << 20
refused(lambda: read_zip(data, "f"))
""",
    "flink snappy": """
from formats.codec.snappy import unpack_block
plain = 1500 << 20
data = varint(plain) + b"\\x00a" + b"\\xfe\\x01\\x00" * ((plain - 1) // 64)
assert 20 < plain // len(data)
refused(lambda: unpack_block(data, "f", "a block", 1 << 31))
""",
}


@pytest.mark.sample(2)
@pytest.mark.integration
@pytest.mark.parametrize("name", BOMBS)
def test_a_compressed_file_that_becomes_anything_is_refused_with_the_bound(name: str) -> None:
    with tempfile.NamedTemporaryFile("r") as peak:
        done = subprocess.run(
            [sys.executable, "-S", "-c", MEASURE, peak.name, sys.executable, "-c", BEGIN + BOMBS[name]],
            capture_output=True, text=True, timeout=300, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        resident = int(peak.read()) * 1024
    assert done.returncode == 0, done.stderr
    assert "MiB" in done.stdout or "unpacks to more than" in done.stdout
    assert resident < GB, f"{resident >> 20} MiB"


@pytest.mark.parametrize(("size", "bound"), [("64M", 64), ("1g", 1024), ("2GiB", 2048)])
def test_the_bound_is_what_the_environment_says(size: str, bound: int) -> None:
    code = "from formats import bounds; bounds.own_process(); bounds.bound_memory(); print(bounds.too_much())"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "ABS_MEMORY": size}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60)
    assert f"more than {bound} MiB" in done.stdout


@pytest.mark.parametrize("size", ["much", "-1", "1e9", "4X"])
def test_a_bound_that_is_no_size_is_an_error(size: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "ABS_MEMORY": size}
    command = [sys.executable, "-m", "abscli.cli.main", "inspect", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 2
    assert "ABS_MEMORY" in done.stderr


def test_a_command_called_by_another_program_bounds_nothing(tmp_path: Path) -> None:
    import resource

    from abscli.cli.main import main

    before = resource.getrlimit(resource.RLIMIT_DATA)
    main(["inspect", str(tmp_path)])
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
