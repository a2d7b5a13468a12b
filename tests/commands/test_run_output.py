"""What `abs run` says, and where: results alone on stdout, whatever runs in it; what happens, at once, on stderr."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from abscli.cli import output
from abscli.cli.main import main
from abscli.cli.running import Display
from abscli.cli.stdout import stdout
from abscli.engine.channels.messages import Lag, Lagging
from abscli.engine.errors import EngineStopped
from abscli.engine.job import run_job
from abscli.engine.stopping import Signals
from abscli.engine.telemetry.lateness import Lateness
from abscli.engine.telemetry.news import EpochDone, EpochGivenUp, Late, News, Stopping
from formats.ids import ChannelId, TaskId
from formats.native.store import NativeStore
from formats.storage import LocalStorage
from tests.commands.test_jobs import ABS, ROOT
from tests.support.jobs.small import inline, word_count, write_words
from tests.support.waiting import wait_for

JOB = """version: 1
job: loud
parallelism: 2
operators:
  lines:
    source: {type: text, path: in/*.txt}
  loud:
    from: lines
    map: loud:loud
  out:
    from: loud
    sink: {type: jsonl, path: out}
"""

LOUD = """
import atexit, ctypes, os, subprocess, sys
print("at import")
atexit.register(print, "at exit", flush=True)

def loud(batch):
    print("printed")
    sys.stdout.write("written\\n")
    sys.__stdout__.write("to the first stdout\\n")
    os.write(1, b"to descriptor 1\\n")
    subprocess.run(["echo", "from a child"], check=True)
    ctypes.CDLL(None).puts(b"from C")
    ctypes.CDLL(None).fflush(None)
    return batch
"""

SLOW = """
import time
import pyarrow as pa
import pyarrow.compute as pc
def loud(batch):
    time.sleep(0.1)
    return pa.record_batch([pc.utf8_length(batch["line"])], names=["length"])
"""


def make(folder: Path, function: str, **more: Any) -> Path:
    write_words(folder, **more)
    (folder / "loud.py").write_text(function)
    (folder / "job.yaml").write_text(JOB)
    return folder


def command(folder: Path, *more: str) -> list[str]:
    return [*ABS, "run", str(folder / "job.yaml"), "--store", str(folder / "store"), *more]


def environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith("ABS_")} | {"PYTHONPATH": str(ROOT)}


def run(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(folder, *more), capture_output=True, text=True, timeout=300, env=environment())



@pytest.mark.parametrize("engine", ["inline", pytest.param("spark", marks=pytest.mark.integration)])
def test_nothing_but_the_result_reaches_stdout(tmp_path: Path, engine: str) -> None:
    make(tmp_path, LOUD, files=2, lines=5)
    done = run(tmp_path, "--engine", engine, "--workers", "2", "-o", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["finished"]
    if engine == "inline":
        for said in ("at import", "printed", "written", "to descriptor 1", "from a child", "from C", "at exit"):
            assert said in done.stderr


def test_so_it_is_where_stderr_is_closed(tmp_path: Path) -> None:
    make(tmp_path, LOUD, files=2, lines=5)
    line = " ".join(command(tmp_path, "--engine", "inline", "-o", "json", "2>&-"))
    done = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=300, env=environment())
    assert done.returncode == 0
    assert json.loads(done.stdout)["finished"]


def test_a_caller_s_own_stdout_is_given_back(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    make(tmp_path, LOUD.replace('atexit.register(print, "at exit", flush=True)', ""), files=2, lines=5)
    before, copies = sys.stdout, os.listdir("/proc/self/fd")
    assert main(["run", str(tmp_path / "job.yaml"), "--store", str(tmp_path / "store"), "--engine", "inline"]) == 0
    sys.stdout.write("mine\n")
    os.write(1, b"mine too\n")
    sys.stdout.flush()
    assert sys.stdout is before
    assert stdout() is before
    assert len(os.listdir("/proc/self/fd")) == len(copies)
    said = capfd.readouterr()
    assert said.out.splitlines()[0].startswith("loud: finished")
    assert sorted(said.out.splitlines()[1:]) == ["mine", "mine too"]
    assert "from a child" in said.err


# -- a line an epoch ----------------------------------------------------------------------------------------------

LINE = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) epoch (\d+) complete in (\d+\.\d{3}) s, ([\d,]+) records, [\d.]+ \w+"
)


def test_a_piped_run_says_a_line_an_epoch(tmp_path: Path) -> None:
    make(tmp_path, SLOW, files=6, lines=40)
    done = run(tmp_path, "--engine", "inline", "--interval", "20ms", "-o", "json")
    lines = [found for line in done.stderr.splitlines() if (found := LINE.fullmatch(line))]
    result = json.loads(done.stdout)
    assert len(lines) == result["epochs"]
    assert [int(found[2]) for found in lines] == sorted({int(found[2]) for found in lines})
    assert sum(int(found[4].replace(",", "")) for found in lines) == result["records"] == 240
    assert "epoch" not in run(tmp_path, "--engine", "inline", "--resume", "-q").stderr


def test_records_of_an_epoch_are_counted_from_the_one_that_was_gone_on_from(tmp_path: Path) -> None:
    write_words(tmp_path, files=2, lines=50)
    news: list[News] = []
    first = run_job(word_count(), str(tmp_path / "store"), inline(tmp_path), on_news=news.append)
    options = inline(tmp_path, from_epoch=first.epoch)
    run_job(word_count(), str(tmp_path / "store"), options, on_news=news.append)
    done = [one for one in news if isinstance(one, EpochDone)]
    assert [one.epoch for one in done] == sorted(one.epoch for one in done)
    assert sum(one.records for one in done) == 100
    assert [one.records for one in done if one.epoch > first.epoch] == [0]
    manifest = NativeStore(LocalStorage(tmp_path / "store")).manifest(first.epoch)
    assert [one.bytes for one in done if one.epoch == first.epoch] == [manifest.bytes]


def test_on_a_terminal_the_changing_line_says_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "progress_wanted", lambda: True)
    with output.progress() as line:
        monkeypatch.setattr(line, "_wanted", False)
        display = Display("job", line)
        for news in (EpochDone(1, 0.0, 1.5, 10, 2048), EpochGivenUp(2, 0.0, "timed out"), Late("late", "wait")):
            display.news(news)
    assert capsys.readouterr().err == "abs: warning: late\nhint: wait\n"
    monkeypatch.setattr(output, "progress_wanted", lambda: False)
    display.news(EpochDone(1, 0.0, 1.5, 10, 2048))
    assert capsys.readouterr().err == (
        "1970-01-01T00:00:00.000Z epoch 1 complete in 1.500 s, 10 records, 2.0 KiB\n"
    )


# -- signals ------------------------------------------------------------------------------------------------------


def started(folder: Path, *more: str, **options: Any) -> subprocess.Popen[str]:
    """A job that goes on for minutes, with its first epoch complete."""
    make(folder, SLOW, files=1, lines=1)
    (folder / "long").write_text(("x" * 50_000 + "\n") * 20)  # a batch of its own
    for i in range(2_000):
        os.link(folder / "long", folder / "in" / f"long-{i}.txt")
    job = subprocess.Popen(
        command(folder, "--interval", "50ms", *more),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(), **options,
    )  # fmt: skip
    wait_for(lambda: any((folder / "store" / "epochs").glob("*/outcome.json")) or job.poll() is not None)
    return job


@pytest.mark.parametrize("engine", ["inline", pytest.param("spark", marks=pytest.mark.integration)])
def test_a_signal_to_the_whole_group_twice_is_one_wish(tmp_path: Path, engine: str) -> None:
    """As `timeout` does: to the process, then to its group, in which Spark's JVM would be."""
    more = ["--workers", "2"] if engine == "spark" else []
    with started(tmp_path, "--engine", engine, *more, start_new_session=True) as job:
        os.kill(job.pid, signal.SIGTERM)
        os.killpg(job.pid, signal.SIGTERM)
        out, err = job.communicate(timeout=300)
    assert job.returncode == 143, err
    assert err.count("SIGTERM: taking a last epoch; a second signal leaves at once") == 1
    assert err.index("SIGTERM") < err.rindex(" complete in ")
    assert "stopped at epoch" in out


@pytest.mark.integration
def test_a_second_signal_later_leaves_at_once(tmp_path: Path) -> None:
    make(tmp_path, "import time\ndef loud(batch):\n    time.sleep(2)\n    return batch\n", files=200, lines=20)
    with subprocess.Popen(
        command(tmp_path, "--engine", "inline"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment(),
    ) as job:  # fmt: skip
        wait_for(lambda: any((tmp_path / "store" / "epochs").glob("*")) or job.poll() is not None)
        job.send_signal(signal.SIGTERM)
        assert job.stderr
        while "taking a last epoch" not in (line := job.stderr.readline()):
            assert line
        time.sleep(1)
        job.send_signal(signal.SIGTERM)
        _, err = job.communicate(timeout=300)
    assert job.returncode == 143
    assert "stopped by a second signal" in err


def test_signals_before_there_is_a_job_are_told_and_kept() -> None:
    news: list[News] = []
    signals = Signals(news.append)
    signals.handle(signal.SIGTERM, None)
    signals.handle(signal.SIGTERM, None)
    assert news == [Stopping(signal.SIGTERM, begun=False)]
    assert signals.received == [signal.SIGTERM]
    with pytest.raises(EngineStopped, match="second signal"):
        signals.handle(signal.SIGINT, None)


# -- epochs that take too long ------------------------------------------------------------------------------------


def write(task: str, seconds: float) -> Lag:
    return Lag(TaskId.parse(task), "write", rows=12, seconds=seconds)


def late(workers: int, *answers: Lagging, epochs: int = 3, after: float = 0.0) -> Late | None:
    lateness = Lateness(0.2, range(workers))
    for epoch in range(1, epochs + 1):
        lateness.given_up(epoch, 0.0)
    for answer in answers:
        lateness.answered(answer)
    return lateness.due(after, 0)


def test_two_late_epochs_are_not_told_and_three_are() -> None:
    assert late(1, Lagging(0, 2, ()), epochs=2) is None
    said = late(1, Lagging(0, 3, (write("counts/1", 3.0),)))
    assert said is not None
    assert said.message == (
        "3 epochs in a row took longer than 200 ms and were aborted, 1 to 3; epoch 3: counts/1 was writing its part, "
        "12 rows of state, for 3.0 s so far"
    )
    assert "--epoch-timeout" in said.hint


def test_who_only_waits_for_a_slow_task_is_not_named() -> None:
    lines, words, counts = TaskId("lines", 1), TaskId("words", 1), TaskId("counts", 0)
    aligning = Lag(words, "align", (ChannelId(lines, words),), 4096, seconds=1.0)
    waiting = Lag(counts, "align", (ChannelId(words, counts),), 0, seconds=0.5)
    said = late(1, Lagging(0, 3, (waiting, aligning)))
    assert said is not None
    assert "words/1 was aligning, waiting for the barrier of lines/1->words/1, behind 4,096 bytes" in said.message
    assert "counts/0" not in said.message


def test_a_worker_that_does_not_answer_is_named_after_a_while() -> None:
    assert late(2, Lagging(0, 3, ())) is None
    said = late(2, Lagging(0, 3, ()), after=60.0)
    assert said is not None
    assert "worker 1 does not answer: a function in it may take long" in said.message


def test_it_is_told_again_when_it_has_been_twice_as_many_and_forgotten_with_a_complete_one() -> None:
    lateness = Lateness(1.0, [0])
    told = []
    for epoch in range(1, 26):
        lateness.given_up(epoch, float(epoch))
        lateness.answered(Lagging(0, epoch, (write("a/0", 1.0),)))
        if lateness.due(float(epoch), 0):
            told.append(epoch)
    assert told == [3, 6, 12, 24]
    lateness.complete()
    for epoch in (26, 27):
        lateness.given_up(epoch, 0.0)
        assert lateness.due(100.0, 0) is None


def test_an_epoch_timeout_below_what_an_epoch_takes_is_told_with_the_task_that_is_slow(tmp_path: Path) -> None:
    write_words(tmp_path, files=40, lines=20)
    gate = tmp_path / "gate"
    (tmp_path / "gated.py").write_text(
        "import os, time\nfrom abscli.engine.functions import words as split\n"
        "def words(batch):\n"
        f"    while not os.path.exists({str(gate)!r}):\n        time.sleep(0.01)\n"
        "    return split(batch)\n"
    )
    import msgspec

    topology = word_count()
    gated = msgspec.structs.replace(topology.operators[1], function="gated:words")
    topology = msgspec.structs.replace(topology, operators=(topology.operators[0], gated, *topology.operators[2:]))
    news: list[News] = []

    def told(one: News) -> None:
        news.append(one)
        if isinstance(one, Late):
            gate.touch()

    options = inline(tmp_path, interval=0.02, epoch_timeout=0.05)
    outcome = run_job(topology, str(tmp_path / "store"), options, on_news=told)
    assert outcome.finished
    (first, *_) = [one for one in news if isinstance(one, Late)]
    assert sum(isinstance(one, EpochGivenUp) for one in news[: news.index(first)]) >= 3
    assert re.search(r"epoch \d+: (worker [01] does not answer|[a-z]+/[01] (was|had) )", first.message), first.message
