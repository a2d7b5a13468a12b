"""`Job.test` in a process that has many files open."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator

import pytest

from abscli import Job

MANY = 1100
"""More than the 1,024 descriptors that `select` of the C library can name."""


@pytest.fixture
def many_files() -> Iterator[None]:
    """Have many files open, as far as the hard limit of the process allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(soft, 2 * MANY)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip("this process may not open two thousand files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(MANY):
            stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        yield


@pytest.mark.usefixtures("many_files")
def test_a_job_is_tested_in_a_process_with_many_open_files() -> None:
    job = Job("copied")
    job.text("nowhere", id="lines").to_jsonl("out", id="out")
    assert [row["line"] for row in job.test({"lines": ["a", "b"]})["out"]] == ["a", "b"]
