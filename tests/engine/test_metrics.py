"""What `abs run --metrics` serves, and `--log-format json` says, while a real job runs and loses a worker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from abscli.engine.coordinator import CIRCULATING_BYTES, Progress
from abscli.engine.errors import UsageError
from abscli.engine.losses.decisions import Recovery
from abscli.engine.telemetry.metrics import JobMetrics, served
from abscli.engine.telemetry.news import EpochDone, EpochGivenUp, Recovered, Recovering
from abscli.planner.ranges import Ranges
from tests.support.schemas import checked

ROOT = Path(__file__).parents[2]
JOB = """version: 1
job: slow
operators:
  lines:
    source: {type: text, path: in/*.txt}
  slow:
    from: lines
    map: slow:slow
  out:
    from: slow
    sink: {type: jsonl, path: out}
"""
SLOW = """
import os
import time
from pathlib import Path
def slow(batch):
    (Path(__file__).parent / f"worker.{os.getpid()}").touch()
    time.sleep(0.05)
    return batch
"""
"""Says which processes are workers."""


def samples(page: str) -> dict[str, float]:
    """The values by name and labels: `abs_epochs_total{outcome=complete}`."""
    values = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sample.labels.items())
            values[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return values


def page(metrics: JobMetrics) -> dict[str, float]:
    """What is served."""
    with served(metrics, "127.0.0.1", 0) as url:
        return samples(urlopen(url, timeout=30).read().decode())


def test_before_anything_has_happened_every_figure_is_there() -> None:
    shown = page(JobMetrics("words"))
    assert shown["abs_job_info{job=words}"] == 1
    assert shown["abs_epochs_total{outcome=complete}"] == shown["abs_epochs_total{outcome=aborted}"] == 0
    assert 0 <= shown["abs_seconds_since_complete_epoch"] < 300


def test_epochs_are_counted_by_their_outcome_and_measured_by_their_phases() -> None:
    metrics = JobMetrics("words")
    metrics.news(EpochDone(3, time.time() - 60, 1.5, 10, 2048, {"align": 0.25, "copy": 0.5, "write": 0.75}))
    metrics.news(EpochGivenUp(4, time.time(), "timed out"))
    shown = page(metrics)
    assert shown["abs_epoch"] == 3
    assert shown["abs_epochs_total{outcome=complete}"] == shown["abs_epochs_total{outcome=aborted}"] == 1
    assert shown["abs_epoch_bytes_total"] == 2048
    assert shown["abs_epoch_seconds_sum"] == 1.5
    assert [shown[f"abs_epoch_phase_seconds_sum{{phase={phase}}}"] for phase in ("align", "copy", "write")] == [
        0.25, 0.5, 0.75,
    ]  # fmt: skip
    assert 60 <= shown["abs_seconds_since_complete_epoch"] < 360


def test_rows_that_a_lost_worker_had_read_count_once() -> None:
    metrics = JobMetrics("words")
    for records in (100, 40, 90, 130):
        metrics.progress(Progress(records=records, circulating=7, paused=records == 130, open_epochs=(5, 6)))
    shown = page(metrics)
    assert shown["abs_records_total"] == 130
    assert (shown["abs_loop_bytes"], shown["abs_open_epochs"]) == (7, 2)
    assert (shown["abs_loop_limit_bytes"], shown["abs_sources_paused"]) == (CIRCULATING_BYTES, 1)


def test_a_recovery_is_seen_while_it_goes_on_and_when_it_is_over() -> None:
    metrics = JobMetrics("words")
    metrics.news(Recovering(time.time(), "worker 1 was lost", 2, 2, 4, 0.0))
    assert page(metrics)["abs_restarting"] == 1
    metrics.news(Recovered(Recovery(1, 4, "worker 1 was lost", (1,), {"a": Ranges.of([1])}, 2, 31, time.time(), 0.5)))
    shown = page(metrics)
    assert (shown["abs_restarting"], shown["abs_restarts_total"]) == (0, 1)
    assert (shown["abs_recovery_seconds_sum"], shown["abs_records_read_again_total"]) == (0.5, 31)


def test_an_address_that_is_taken_is_refused_by_name() -> None:
    with served(JobMetrics("one"), "127.0.0.1", 0) as url:
        port = int(url.rpartition(":")[2].partition("/")[0])
        with (
            pytest.raises(UsageError, match=rf"cannot listen on 127\.0\.0\.1:{port} for --metrics"),
            served(JobMetrics("two"), "127.0.0.1", port),
        ):
            pass


@pytest.fixture
def job(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A job that runs on Spark with two workers until it is asked to stop."""
    (tmp_path / "in").mkdir()
    for name in ("a", "b"):
        (tmp_path / "in" / f"{name}.txt").write_text("some words in a line\n" * 4_000_000)
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "job.yaml").write_text(JOB.replace("operators:", "parallelism: 2\noperators:"))
    words = ["run", "job.yaml", "--store", "store", "--master", "local[2]", "--interval", "500ms"]
    words += ["--metrics", "0", "--log-format", "json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "abscli", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.communicate()


@pytest.mark.usefixtures("jvm")
def test_a_running_job_serves_its_figures_and_logs_its_loss(job: subprocess.Popen[str], tmp_path: Path) -> None:
    assert job.stderr is not None
    lines: list[dict[str, Any]] = []

    def until(event: str) -> dict[str, Any]:
        """The line that says so; lines that functions or the JVM print are none."""
        assert job.stderr is not None
        for text in job.stderr:
            if text.startswith("{"):
                lines.append(checked(text, "abs.log"))
                if lines[-1].get("event") == event:
                    return lines[-1]
        raise AssertionError(f"it ended without {event}: {lines}")

    url = until("metrics")["url"]
    until("epoch-complete")
    before = samples(urlopen(url, timeout=60).read().decode())
    assert before["abs_epochs_total{outcome=complete}"] >= 1
    assert before["abs_records_total"] > 0
    workers = [int(path.suffix[1:]) for path in tmp_path.glob("worker.*")]
    os.kill(workers[0], signal.SIGKILL)
    assert until("recovering")["level"] == "warning"
    recovered = until("recovered")
    assert len(recovered["workers"]) == 1
    after = samples(urlopen(url, timeout=60).read().decode())
    assert (after["abs_restarts_total"], after["abs_restarting"]) == (1, 0)
    assert after["abs_records_total"] >= before["abs_records_total"]
    job.send_signal(signal.SIGTERM)
    assert until("stopping")["signal"] == "SIGTERM"
    rest, _ = job.stderr.read(), job.wait(timeout=300)
    last = [checked(text, "abs.log") for text in rest.splitlines() if text.startswith("{")]
    assert [line["event"] for line in last if "event" in line][-1] == "epoch-complete"
    assert job.returncode == 143


def test_an_error_is_the_last_line_of_a_log_in_json(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "abscli", "run", "job.yaml", "--store", "store", "--log-format=json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    logged = checked(line, "abs.log")
    assert (logged["level"], checked(json.dumps(logged["error"]), "abs.error")["code"]) == ("error", 2)


@pytest.mark.parametrize("words", [["--log-format", "xml"], ["--metrics", "nowhere"], ["--metrics", "70000"]])
def test_options_that_mean_nothing_are_refused(words: list[str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "abscli", "run", "job.yaml", "--store", "store", *words],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert words[0] in done.stderr
