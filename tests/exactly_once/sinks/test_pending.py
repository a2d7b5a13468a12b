"""Rows that wait for their target when a process is killed behind a manifest: nothing that happens to the store
before the job goes on loses them or writes them twice."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

import pytest

from abscli.api import open_store
from abscli.engine.generations.rescaling import Rescale, publish
from abscli.engine.job import JobOptions, job_sinks
from abscli.engine.sinks.staged.printed import print_with
from formats.storage import open_writable
from tests.exactly_once.sinks.test_renamed_sinks import lines
from tests.support.jobs.lines import Lines, killed, restore_to

__all__ = ("lines",)


def keep_one(store: str) -> None:
    """What `abs gc --keep-last 1` does."""
    open_store(store).gc(1, min_age=0)


def options(lines: Lines) -> JobOptions:
    newest = lines.complete()[-1]
    return JobOptions(str(lines.folder), "job.yaml", engine="inline", workers=2, interval=0.01, from_epoch=newest)


def rescale(lines: Lines) -> Lines:
    """Publish the epoch from which the job goes on with three tasks of each operator, and leave it at that."""
    wide = replace(lines, tasks=3)
    print_with(lines.note_printed)
    order = Rescale(lines.complete()[-1], wide.graph, str(lines.folder))
    publish(
        open_writable(lines.where("a")), order, sinks=job_sinks(lines.graph, lines.where("a"), options(lines))
    )
    return wide


def tidy(lines: Lines) -> Lines:
    keep_one(lines.where("a"))
    return lines


def rescale_and_tidy(lines: Lines) -> Lines:
    wide = rescale(lines)
    keep_one(lines.where("a"))
    return wide


@pytest.mark.cell("B", "exact", "jsonl", "bucket", "postgres", "upsert", "delta", "iceberg", "kafka")
@pytest.mark.cell("B", "at least once", "stdout")
@pytest.mark.sample(5)
@pytest.mark.parametrize("between", [tidy, rescale, rescale_and_tidy])
def test_rows_that_wait_are_written_once(lines: Lines, between: Callable[[Lines], Lines]) -> None:
    killed(lines, "reveal", 2)
    between(lines).resume()
    if lines.type == "stdout":  # which promises that no row is lost
        assert not [line for line, n in lines.wrong().items() if n < 0]
    else:
        assert lines.wrong() == {}


@pytest.mark.sample(3)
@pytest.mark.parametrize("between", [rescale, rescale_and_tidy])
def test_a_copy_of_a_rescaled_epoch_lacks_no_rows(lines: Lines, between: Callable[[Lines], Lines]) -> None:
    if lines.type == "jsonl":
        pytest.skip("parts of files are set aside")
    killed(lines, "reveal", 2)
    wide = between(lines)
    restore_to(wide, wide.complete()[-1], "b")
    wide.resume("b")
    assert not [line for line, n in lines.wrong().items() if n < 0]
    assert os.path.exists(lines.where("b"))
