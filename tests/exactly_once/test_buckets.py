"""Stores in buckets: run, stopped, killed, overtaken, gone on with. Each line is visible once, as on a disk."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from abscli.cli import exits
from abscli.engine.errors import EngineError, UsageError
from abscli.engine.job import JobOptions, run_job
from abscli.stores.native.run import resume_from
from formats.errors import FormatError, NotFound, StoreInUse
from formats.native import claims
from formats.storage import fresh_lists, open_writable, retrying
from tests.support.jobs.lines import (
    Gate,
    Lines,
    in_a_process,
    killed,
    restore_to,
    topology,
    wait_until_stopped,
    write_lines,
)
from tests.support.objects.fixtures import SERVERS, Servers, use
from tests.support.objects.places import bucket_place
from tests.support.objects.proxy import proxy_to
from tests.support.objects.servers import ObjectServer

pytestmark = pytest.mark.minutes


@pytest.fixture
def bucket(s3: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URI of a place in a bucket of moto's."""
    monkeypatch.setenv("CLAIM_SECONDS", "2")
    return str(bucket_place(s3).root)


@pytest.fixture(params=list(SERVERS))
def any_bucket(request: pytest.FixtureRequest, servers: Servers, monkeypatch: pytest.MonkeyPatch) -> str:
    """The same of every server."""
    monkeypatch.setenv("CLAIM_SECONDS", "2")
    return str(bucket_place(use(servers.get(request.param), monkeypatch)).root)


def sound(lines: Lines, store: str) -> bool:
    """Whether validation finds nothing that a restore could not do with."""
    report = lines.validated(store)
    return not report.damaged and not report.findings


def test_a_job_runs_stops_and_goes_on_in_a_bucket(lines: Lines, any_bucket: str) -> None:
    lines.run(any_bucket, epochs=3)
    first = lines.complete(any_bucket)
    assert len(first) >= 3
    lines.resume(any_bucket, epochs=2)
    lines.run(any_bucket, from_epoch=first[1], epochs=2)
    lines.resume(any_bucket)
    assert lines.wrong() == {}
    assert sound(lines, any_bucket)


@pytest.mark.sample(1)
@pytest.mark.parametrize("where", ["manifest", "reveal"])
def test_a_job_that_is_killed_is_gone_on_with_at_once_on_its_machine(lines: Lines, bucket: str, where: str) -> None:
    killed(lines, where, 3, store=bucket)
    lines.resume(bucket, epochs=1)
    killed(lines, where, 1, store=bucket, from_epoch=str(lines.complete(bucket)[-1]))
    lines.resume(bucket)
    assert lines.wrong() == {}
    assert sound(lines, bucket)


def test_what_was_killed_on_another_machine_is_waited_for(
    lines: Lines, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing says that it is gone but that it says nothing any more."""
    killed(lines, "manifest", 3, store=bucket)
    monkeypatch.setattr(claims, "_machine", lambda: "another")
    assert not claims.is_claimed(lines.store(bucket).storage)
    lines.resume(bucket)
    assert lines.wrong() == {}


@pytest.mark.soak
@pytest.mark.parametrize("where", ["manifest", "reveal"])
def test_an_owner_that_was_stopped_and_overtaken_completes_and_shows_nothing(
    lines: Lines, any_bucket: str, where: str
) -> None:
    """It holds its claim for alive when it goes on, and meets a fence. (The lock on its sink, which lies on a disk, is
    let go of as an expired lease of NFS lets go of it.)"""
    stale = in_a_process(lines, where, 3, signal.SIGSTOP, store=any_bucket)
    try:
        wait_until_stopped(stale)
        lock = lines.folder / "out" / ".abs-sink" / "lock"
        lock.rename(lock.with_name("lock-of-old"))
        before = lines.complete(any_bucket)
        lines.resume(any_bucket, epochs=2)
        fences = lines.store(any_bucket).fences()
        assert fences
        assert fences[0] == before[-1] + 1
    finally:
        stale.send_signal(signal.SIGCONT)
        _, errors = stale.communicate(timeout=300)
    assert stale.returncode == 1, errors
    assert ("took the store over" if where == "manifest" else "was taken over by attempt 2") in errors
    lines.resume(any_bucket)
    assert lines.wrong() == {}
    assert sound(lines, any_bucket)


def test_a_store_is_one_jobs_at_a_time(lines: Lines, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[StoreInUse] = []
    monkeypatch.setattr(claims, "SECONDS", 2.0)

    def second(epochs: int) -> None:
        if epochs == 2:
            assert lines.store(bucket).running_attempt() == 1
            with pytest.raises(StoreInUse, match="in use by process") as error:
                Lines(lines.folder, Gate()).run(bucket, from_epoch=1)
            refused.append(error.value)

    lines.run(bucket, at=second)
    assert len(refused) == 1
    assert lines.store(bucket).running_attempt() is None
    assert lines.wrong() == {}


def test_of_two_that_start_at_once_one_runs(lines: Lines, bucket: str) -> None:
    """Real processes, on a place where nothing is yet; each has a folder, and so a sink, of its own."""
    other = lines.folder / "other"
    (other / "in").mkdir(parents=True)
    for file in (lines.folder / "in").iterdir():
        shutil.copy(file, other / "in")
    both = [in_a_process(each, "none", 0, 0, store=bucket) for each in (lines, Lines(other, Gate()))]
    errors = [process.communicate(timeout=300)[1] for process in both]
    assert sorted(process.returncode for process in both) == [0, 1], errors
    # On a busy machine the first may have ended before the other begins, which is refused for what it finds then.
    reasons = ("in use by", "which has just taken it", "at work here", "resumes from the newest")
    assert any(reason in text for text in errors for reason in reasons), errors


def test_a_store_is_copied_from_bucket_to_bucket_and_back(lines: Lines, bucket: str) -> None:
    lines.run(bucket, epochs=4)
    epoch = lines.complete(bucket)[1]
    restore_to(lines, epoch, f"{bucket}-copy", store=bucket)
    restore_to(lines, lines.complete(f"{bucket}-copy")[-1], "b", store=f"{bucket}-copy")
    restore_to(lines, lines.complete("b")[-1], f"{bucket}-back", store="b")
    lines.resume(f"{bucket}-back")
    assert lines.wrong() == {}
    for store in (f"{bucket}-copy", "b", f"{bucket}-back"):
        assert lines.complete(store)[0] >= epoch
    assert sound(lines, f"{bucket}-back")


def test_a_copy_into_a_place_that_is_taken_is_refused(lines: Lines, bucket: str) -> None:
    lines.run(bucket, epochs=2)
    for place in (f"{bucket}/inside", bucket.replace("s3:", "s3a:") + "/inside"):
        with pytest.raises(FormatError, match="which the command reads"):
            restore_to(lines, 1, place, store=bucket)
    taken = bucket.replace("/some/store", "/some/other")
    open_writable(taken).put("x", b"1")
    with pytest.raises(FormatError, match="is not empty"):
        restore_to(lines, 1, taken, store=bucket)
    assert [entry.name for entry in open_writable(taken).list("")] == ["x"]


def test_replies_that_are_lost_change_nothing(lines: Lines, s3: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = str(bucket_place(s3).root)
    with proxy_to(s3.port) as proxy:
        use(s3, monkeypatch, proxy.port)
        proxy.lose_every = 7
        lines.run(bucket, epochs=3)
        lines.resume(bucket)
        assert proxy.lost
    use(s3, monkeypatch)
    assert lines.wrong() == {}
    assert sound(lines, bucket)


def test_a_server_that_goes_away_ends_the_job_which_is_gone_on_with(
    lines: Lines, s3: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = str(bucket_place(s3).root)
    monkeypatch.setattr(retrying, "SECONDS", 2.0)
    with proxy_to(s3.port) as proxy:
        use(s3, monkeypatch, proxy.port)

        def away(epochs: int) -> None:
            proxy.down = epochs >= 3

        with pytest.raises((EngineError, FormatError)) as caught:
            lines.run(bucket, at=away)
        assert exits.fault(caught.value).code == exits.STOPPED
        assert f"127.0.0.1:{proxy.port}" in str(caught.value)
        proxy.down = False
        lines.resume(bucket)
    use(s3, monkeypatch)
    assert lines.wrong() == {}
    assert sound(lines, bucket)


@pytest.fixture
def short(lines: Lines) -> Lines:
    """A job whose input is over after a few epochs."""
    shutil.rmtree(lines.folder / "in")
    write_lines(lines.folder, 6)
    return lines


@pytest.mark.sample(1)
@pytest.mark.parametrize("status", [503, 429, 500])
def test_an_outage_of_seconds_is_survived(
    short: Lines, s3: ObjectServer, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """The client's own six tries were over after one second."""
    place = str(bucket_place(s3).root)
    short.out = f"{place}/out"
    with proxy_to(s3.port) as proxy:
        use(s3, monkeypatch, proxy.port)

        def refuse(epochs: int) -> None:
            if epochs >= 2 and not proxy.refused:
                proxy.status = status
                threading.Timer(3, lambda: setattr(proxy, "status", 0)).start()

        short.run(f"{place}/store", at=refuse)
        assert proxy.refused
        assert not proxy.status
    use(s3, monkeypatch)
    assert short.wrong() == {}
    assert sound(short, f"{place}/store")


def test_requests_without_a_reply_are_made_again(
    short: Lines, s3: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = str(bucket_place(s3).root)
    short.out = f"{place}/out"
    monkeypatch.setattr(retrying, "DEADLINE", 1.0)
    monkeypatch.setattr(retrying, "SERVER_COPY", 1.0)
    with proxy_to(s3.port) as proxy:
        use(s3, monkeypatch, proxy.port)
        begun: list[int] = []

        def hang(epochs: int) -> None:
            if epochs >= 2 and not begun:
                begun.append(epochs)
                proxy.hangs = 6

        short.run(f"{place}/store", at=hang)
        assert begun
        assert not proxy.hangs
    use(s3, monkeypatch)
    assert short.wrong() == {}
    assert sound(short, f"{place}/store")


def test_the_error_says_status_and_time_and_follow_up_requests_do_not_wait_again(
    short: Lines, s3: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = str(bucket_place(s3).root)
    short.out = f"{place}/out"
    monkeypatch.setattr(retrying, "SECONDS", 3.0)
    monkeypatch.setattr(claims, "SECONDS", 1.0)  # a server that is away is not told that the locks are free
    with proxy_to(s3.port) as proxy:
        use(s3, monkeypatch, proxy.port)

        def refuse(epochs: int) -> None:
            proxy.status = 503 if epochs >= 2 else 0

        begun = time.monotonic()
        with pytest.raises((EngineError, FormatError), match=r"503 .*\(SlowDown\); tried \d+ times in 3 s") as caught:
            short.run(f"{place}/store", at=refuse)
        assert "limits its load" in (caught.value.hint or "")
        assert time.monotonic() - begun < 30
        proxy.status = 0
        short.resume(f"{place}/store")
    use(s3, monkeypatch)
    assert short.wrong() == {}


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", range(8))
def test_lists_that_lag_neither_lose_nor_repeat_a_line(
    lines: Lines, s3: ObjectServer, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Seven of ten lists answer as they were at some earlier time, as behind a gateway with a cache."""
    kills = min(1 + seed, 3)
    shutil.rmtree(lines.folder / "in")
    write_lines(lines.folder, 4 + 3 * kills)
    place, dice = str(bucket_place(s3).root), random.Random(seed)
    lines.out, store = f"{place}/out", f"{place}/store"
    monkeypatch.setenv("CLAIM_SECONDS", "1")
    with proxy_to(s3.port) as proxy:
        use(s3, monkeypatch, proxy.port)
        proxy.lists_old, proxy.random = 0.7, dice
        epoch = ""
        for _ in range(kills):
            killed(lines, dice.choice(["manifest", "reveal", "complete", "put"]), dice.randint(1, 3), store=store,
                   from_epoch=epoch)  # fmt: skip
            epoch = str(resume_from(store).epoch)
            # What a job resumes from is what there is, whatever lists say.
            with pytest.MonkeyPatch.context() as patch:
                use(s3, patch)
                assert epoch == str(lines.complete(store)[-1] if lines.complete(store) else 0)
        lines.run(store, from_epoch=int(epoch))
        assert proxy.stale
    use(s3, monkeypatch)
    assert lines.wrong() == {}
    assert not lines.validated(store).damaged


def test_a_server_whose_lists_stay_old_is_refused(
    short: Lines, s3: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = str(bucket_place(s3).root)
    monkeypatch.setattr(fresh_lists, "SECONDS", 1.0)
    with proxy_to(s3.port) as proxy:
        use(s3, monkeypatch, proxy.port)
        short.run(f"{place}/store", epochs=2)
        proxy.lists_late = 60.0
        short.complete(f"{place}/store")
        with pytest.raises(FormatError, match="do not show an object that was written") as caught:
            short.run(f"{place}/store", from_epoch=1)
        assert "cache" in (caught.value.hint or "")


def test_a_server_that_overwrites_is_refused_before_anything_is_written(
    lines: Lines, s3: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = bucket_place(s3)
    with proxy_to(s3.port) as proxy:
        proxy.strip = frozenset({"if-none-match"})
        use(s3, monkeypatch, proxy.port)
        with pytest.raises(FormatError, match="two attempts could both complete an epoch"):
            lines.run(str(place.root))
    use(s3, monkeypatch)
    assert not place.open().inventory()


def test_a_store_of_no_kind_that_is_known_is_not_run_on(lines: Lines) -> None:
    with pytest.raises(FormatError, match="of no kind of store"):
        lines.run("viewfs://cluster/store")


def test_workers_of_spark_write_to_the_bucket(lines: Lines, bucket: str, tmp_path: Path) -> None:
    """In processes of their own, which get what they need to know from the environment."""
    program = (
        "import sys; from abscli.engine.job import JobOptions, run_job; from tests.support.jobs.lines import topology; "
        "run_job(topology(), sys.argv[2], JobOptions(sys.argv[1], 'job.yaml', master='local[2]', interval=0.3))"
    )
    done = subprocess.run([sys.executable, "-c", program, str(lines.folder), bucket], cwd=Path(__file__).parents[2],
                          capture_output=True, text=True, timeout=600)  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert lines.wrong() == {}
    assert sound(lines, bucket)


def test_no_place_and_no_bucket_are_said(lines: Lines, s3: ObjectServer) -> None:
    options = JobOptions(str(lines.folder), "job.yaml", engine="inline")
    with pytest.raises(UsageError, match="no store is given"):
        run_job(topology(), "", options)
    with pytest.raises(NotFound, match="there is no bucket"):
        run_job(topology(), "s3://no-such-bucket/x", options)
