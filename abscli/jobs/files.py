"""A job from what a user names: a job file, YAML or JSON, which is read, or a file of Python, which is imported.

Only what somebody gives to a command, or to the API, comes here: no store and no plan names a file of Python.
"""

from __future__ import annotations

import os

from abscli.jobs.job import Job
from formats.job.file import Check, parse_job
from formats.job.file import Job as JobRead

ENDING = ".py"

JobSource = str | os.PathLike[str] | Job
"""What names a job: the path of its file, or the job itself."""


def is_python(path: str) -> bool:
    """Whether a job file is one of Python."""
    return path.endswith(ENDING)


def read_job(job: JobSource, check: Check | None = None) -> JobRead:
    """The job of a file, or one that is built already; check: what else has to hold.

    Raises BadFile with every mistake, UnsupportedVersion, and FormatError for a file that cannot be read.
    """
    if isinstance(job, Job):
        return job.read(check)
    path = os.fspath(job)
    if not is_python(path):
        return parse_job(path, check)
    from abscli.jobs.loading import import_job

    return import_job(path).read(check)


def job_directory(job: JobSource) -> str:
    """Where its functions are looked for, and what its paths are relative to."""
    return job.directory if isinstance(job, Job) else os.path.dirname(os.path.abspath(job))
