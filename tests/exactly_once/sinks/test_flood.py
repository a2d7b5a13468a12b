"""Millions of rows at once for a sink that is slow: memory stays bounded, and the wait of the epoch is reported."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.commands.test_jobs import ABS
from tests.support.postgres import Postgres, execute

pytestmark = pytest.mark.soak

SECONDS = 45
"""For which the flood is watched."""
MAY_GROW = 64 << 20
"""Bytes that the process may grow in its second half: a row in memory would take as much within a second."""
JOB = """version: 1
job: flood
operators:
  rows:
    source: {{type: generate, rows: 4000000, columns: {{n: row, name: "text('row-', row)"}}}}
  out:
    from: rows
    sink: {{type: postgres, table: flood, url_env: FLOOD_DATABASE, {mode}}}
"""


def resident(pid: int) -> int:
    """Return the bytes of a process that are in memory."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("VmRSS")).split()[1]) << 10


@pytest.mark.parametrize("mode", ["mode: two-phase", "mode: upsert, key: [n]"])
def test_a_flood_is_kept_on_disk_and_reported(postgres_server: Postgres, tmp_path: Path, mode: str) -> None:
    execute(
        postgres_server.url, "drop table if exists flood, abs_epochs, abs_writers",
        "create table flood (n bigint primary key, name text)",
        "create or replace function flood_slow() returns trigger as "
        "$$ begin perform pg_sleep(0.0005); return new; end $$ language plpgsql",
        "create trigger slow before insert on flood for each row execute function flood_slow()",
    )  # fmt: skip
    (tmp_path / "job.yaml").write_text(JOB.format(mode=mode))
    environment = {**os.environ, "FLOOD_DATABASE": postgres_server.url}
    command = [*ABS, "run", "job.yaml", "--store", "s", "--engine", "inline", "--interval", "300ms"]
    with (tmp_path / "err").open("w") as err:
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=err)
    sizes = []
    try:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            assert process.poll() is None, (tmp_path / "err").read_text()
            sizes.append(resident(process.pid))
            time.sleep(0.5)
    finally:
        process.kill()
        process.wait()
    said = (tmp_path / "err").read_text()
    middle = len(sizes) // 2
    print(f"{max(sizes[:middle]) >> 20} MiB, then {max(sizes[middle:]) >> 20} MiB\n{said}")  # noqa: T201 - the figures
    assert max(sizes[middle:]) < max(sizes[:middle]) + MAY_GROW
    assert "abs: warning: epoch 1 has waited 5 s for sink out: it is " in said
    assert "abs: warning: epoch 1 has waited 15 s for sink out: it is " in said
    execute(postgres_server.url, "drop table flood")
