"""Checks of stores with the sinks of a job that a test has made, as `abs validate --job` does them."""

from __future__ import annotations

from pathlib import Path

from abscli.report.findings import StoreReport
from abscli.stores.native.check import check
from abscli.stores.recovery import JobFile
from formats.job.changes import NO_CHANGES
from formats.job.model import Topology
from formats.storage import open_storage


def job_file(topology: Topology, folder: Path) -> JobFile:
    """The job file that a user would name. folder: that its paths are relative to."""
    return JobFile(str(folder / "job.yaml"), str(folder), topology, NO_CHANGES)


def validated(store: str, job: JobFile | None = None) -> StoreReport:
    """Check a whole store. store: its path or URI."""
    return check(open_storage(store), None, quick=False, progress=lambda read, total: None, job=job).report
