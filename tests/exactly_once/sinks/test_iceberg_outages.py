"""`abs run` with an Iceberg REST catalog that stalls or is unavailable: messages, exit codes, and each row once.

Each test prints the messages of the job with their seconds since the fault: `pytest -rP` shows them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.faulty_proxy import FaultyProxy, faulty_proxy
from tests.support.iceberg_rest import RestCatalog, rest_catalog
from tests.support.timed_runs import run

pytestmark = [pytest.mark.soak, pytest.mark.minutes]

ROWS, RATE = 600, 40
PATIENCE, REPORTED, SLACK = 60.0, 5.0, 30.0
"""Seconds for which a catalog is waited for; after which the job says so; and for a last answer and a busy machine."""
AWAY = 20.0
WAITS = r"sink out has waited|has waited \d+ s for sink out"
"""The second is printed until a try has failed, and the reason is known."""


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[RestCatalog]:
    pytest.importorskip("pyiceberg", reason="pyiceberg is not installed: pip install '.[iceberg]'")
    with rest_catalog(tmp_path / "rest") as server:
        yield server


@pytest.fixture
def proxy(rest: RestCatalog, tmp_path: Path) -> Iterator[FaultyProxy]:
    with faulty_proxy(("127.0.0.1", rest.port)) as proxy:
        (tmp_path / "job.yaml").write_text(f"""
version: 1
job: outages
operators:
  rows:
    source: {{type: generate, rows: {ROWS}, rate: {RATE}, columns: {{n: row}}}}
  out:
    from: rows
    sink: {{type: iceberg, table: lake.out, uri: "http://{proxy.address}", warehouse: "file://{tmp_path}/lake"}}
""")
        yield proxy


def numbers(rest: RestCatalog) -> list[int]:
    """Return the rows of the table."""
    if not rest.catalog.table_exists("lake.out"):
        return []
    return sorted(rest.catalog.load_table("lake.out").scan().to_arrow()["n"].to_pylist())


def fail(fault: str, rest: RestCatalog, proxy: FaultyProxy) -> None:
    if fault == "stall":
        proxy.stall()
    else:
        rest.status = int(fault)


def heal(rest: RestCatalog, proxy: FaultyProxy) -> None:
    rest.status = 0
    proxy.resume()


FAULTS = pytest.mark.parametrize("fault", ["stall", "503"])


@FAULTS
def test_a_catalog_that_comes_back_is_waited_for(
    tmp_path: Path, rest: RestCatalog, proxy: FaultyProxy, fault: str
) -> None:
    with run(tmp_path) as started:
        started.until(lambda: numbers(rest))
        started.fault = time.monotonic()
        fail(fault, rest, proxy)
        assert started.until_said(WAITS) < REPORTED + SLACK
        time.sleep(max(0.0, started.fault + AWAY - time.monotonic()))
        heal(rest, proxy)
        assert started.end() == 0
        assert started.seconds_of("sink out continues") is not None
    assert numbers(rest) == [*range(ROWS)]
    sys.stdout.write(f"{ROWS} rows, each once\n")


@FAULTS
def test_a_catalog_that_stays_away_ends_the_job_which_resumes(
    tmp_path: Path, rest: RestCatalog, proxy: FaultyProxy, fault: str
) -> None:
    with run(tmp_path) as started:
        started.until(lambda: numbers(rest))
        started.fault = time.monotonic()
        fail(fault, rest, proxy)
        assert started.end() == 6
        assert 0 < (started.seconds_of(WAITS) or 0) < REPORTED + SLACK
        assert PATIENCE <= (started.seconds_of("cannot be (read|written|reached)") or 0) < PATIENCE + SLACK
    heal(rest, proxy)
    with run(tmp_path, "--resume") as resumed:
        assert resumed.end() == 0
    assert numbers(rest) == [*range(ROWS)]
    sys.stdout.write(f"{ROWS} rows, each once\n")
