"""Copies into a bucket: they count when they are whole, whatever ends them; nothing that is there is written over."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from abscli.stores.copying import NewCopy, check_target, new_copy
from abscli.stores.copying.bucket import AT_ONCE, Overlay
from abscli.stores.copying.claims import unfinished
from formats.errors import FormatError, NotFound, StoreInUse, UnsafePath
from formats.storage import LocalStorage, MemoryStorage, ObjectStorage
from tests.support.objects.fixtures import Servers, use
from tests.support.objects.places import bucket_place
from tests.support.objects.proxy import proxy_to

pytestmark = pytest.mark.minutes

ROOT = Path(__file__).parents[2]
FILES = {f"state/{number}": bytes([number]) * (100 * number) for number in range(30)}


@pytest.fixture
def to(bucket: str) -> str:
    return f"{bucket}/copy"


def contents(uri: str) -> dict[str, bytes]:
    """All but the later claims, which stay."""
    storage = ObjectStorage(uri)
    paths = [file.path for file in storage.inventory() if file.path not in (".tmp-copy-2", ".tmp-copy-3")]
    return {path: storage.read(path) for path in paths}


def write(copy: NewCopy, mark: bytes = b"") -> None:
    for name, data in FILES.items():
        copy.write(name, data + mark)
    copy.write("last", b"counts" + mark)


def test_a_copy_counts_when_the_block_ends(to: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    sizes: list[int] = []
    with new_copy(to, work="w", counts="last", progress=sizes.append) as copy:
        write(copy)
        copy.copy(LocalStorage(tmp_path), "a", "b/part", start=2, length=3)
        copy.settle()
        storage = ObjectStorage(to)
        assert storage.size("last") is None
        claim = unfinished(storage)
        assert claim is not None
        assert claim.runs
        assert (copy.files, copy.bytes) == (len(FILES) + 2, sum(sizes))
        view = copy.reading
        assert (view.root, view.read("last"), view.size("last"), view.read("b/part")) == (to, b"counts", 6, b"234")
        assert [entry.name for entry in view.list("")] == ["b", "last", "state"]
    assert contents(to) == {**FILES, "last": b"counts", "b/part": b"234"}
    assert unfinished(ObjectStorage(to)) is None


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, SystemExit])
def test_a_copy_that_fails_leaves_nothing(error: type[BaseException], to: str) -> None:
    with pytest.raises(error):
        write_all(to, then=raising(error))
    assert contents(to) == {}


def raising(error: type[BaseException] | BaseException) -> Callable[[NewCopy], None]:
    def stop(copy: NewCopy) -> None:
        copy.settle()
        raise error

    return stop


def test_what_goes_wrong_beside_is_raised_and_nothing_stays(to: str, tmp_path: Path) -> None:
    for name, kind in (("../x", UnsafePath), ("x", NotFound)):
        with pytest.raises(kind):
            write_all(to, then=lambda copy, name=name: copy.copy(LocalStorage(tmp_path), name))
        assert contents(to) == {}


def test_nothing_is_written_where_something_is(bucket: str) -> None:
    ObjectStorage(bucket).put("copy/theirs", b"1")
    for attempt in (lambda: check_target(f"{bucket}/copy", []), lambda: write_all(f"{bucket}/copy")):
        with pytest.raises(FormatError, match="already exists") as error:
            attempt()
        assert error.value.hint
    assert contents(bucket) == {"copy/theirs": b"1"}
    write_all(f"{bucket}/copy-2")  # whose name only begins like that of another
    write_all(f"{bucket}/cop")


def write_all(
    to: str, work: str = "w", mark: bytes = b"", then: Callable[[NewCopy], object] = lambda copy: None
) -> None:
    with new_copy(to, work=work, counts="last") as copy:
        write(copy, mark)
        then(copy)


def test_a_copy_is_not_made_in_what_is_read_from_by_whichever_name(moto_bucket: str) -> None:
    for source in (moto_bucket, moto_bucket.replace("s3:", "s3a:"), moto_bucket.replace("s3:", "s3p:") + "/"):
        with pytest.raises(FormatError, match="which the command reads"):
            check_target(f"{moto_bucket}/chk-7", [source])
        assert check_target(f"{moto_bucket}2/", [source]) == f"{moto_bucket}2"


def test_files_that_are_larger_than_one_request_go_in_parts(to: str, tmp_path: Path) -> None:
    data = os.urandom(21 << 20)
    (tmp_path / "large").write_bytes(data)
    with new_copy(to, work="w", counts="last") as copy:
        copy.copy(LocalStorage(tmp_path), "large", length=len(data))
        copy.write("last", b"1")
    assert ObjectStorage(to).read("large") == data


def test_an_overlay_reads_as_if_the_files_on_top_were_there() -> None:
    below = MemoryStorage()
    below.put("a/x", b"123")
    view = Overlay(below, {"a/y": b"4567", "top": b""})
    assert [tuple(entry) for entry in view.list("")] == [("a", None), ("top", 0)]
    assert [tuple(entry) for entry in view.list("a")] == [("x", 3), ("y", 4)]
    assert (view.read("a/y", 1, 2), view.read("a/x", 1), view.size("a/y"), view.size("b")) == (b"56", b"23", 4, None)
    with pytest.raises(PermissionError):
        view.put("b", b"")
    with pytest.raises(PermissionError):
        view.delete("a/x")


# -- copies whose process is killed ----------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from abscli.stores.copying import bucket
bucket.AT_ONCE = 1
from formats.storage import ObjectStorage
from tests.buckets.test_copies import write_all
left = int(sys.argv[2])
def killing(inner):
    def request(self, path, *rest, **options):
        global left
        inner(self, path, *rest, **options)
        left -= "probe" not in path
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    return request
ObjectStorage.put, ObjectStorage.delete = killing(ObjectStorage.put), killing(ObjectStorage.delete)
write_all(sys.argv[1])
"""


def run_killed(to: str, after: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, to, str(after)], env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=300, capture_output=True,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


@pytest.mark.sample(6)
@pytest.mark.parametrize("after", [1, 2, 17, len(FILES) + 1, len(FILES) + 2])
def test_a_copy_that_is_killed_is_the_beginning_of_one_until_the_same_is_made_again(to: str, after: int) -> None:
    """After its claim, some files, all but the one that counts, and that one, the claim still there."""
    run_killed(to, after)
    counted = after == len(FILES) + 2
    claim = unfinished(ObjectStorage(to))
    assert (claim is None) == counted
    assert ("last" in contents(to)) == counted
    if claim is not None:
        assert not claim.runs
    before = contents(to)
    with pytest.raises(FormatError, match="contains an unfinished copy, which process") as error:
        write_all(to, work="other")
    assert error.value.hint
    assert contents(to) == before
    run_killed(to, 1)  # as soon as it has claimed it, too
    check_target(to, [])
    write_all(to)
    assert contents(to) == {**FILES, "last": b"counts"}


def test_what_lies_there_of_a_broken_off_copy_is_compared_not_trusted(to: str) -> None:
    run_killed(to, 20)
    changed = next(name for name in contents(to) if name.startswith("state/"))
    ObjectStorage(to).put(changed, b"changed", replace=True)
    with pytest.raises(FormatError, match=f"contains a file {changed} that differs from the one"):
        write_all(to)
    # What somebody else has begun is not taken away, and the one that counts is not there.
    assert changed in contents(to)
    assert "last" not in contents(to)


# -- copies at once --------------------------------------------------------------------------------------------


def racer(to: str, work: str, mark: bytes, gate: object, out: multiprocessing.Queue[tuple[bytes, str]]) -> None:
    gate.wait()  # type: ignore[attr-defined]
    try:
        write_all(to, work, mark)
    except FormatError as error:
        out.put((mark, error.message))
    else:
        out.put((mark, ""))


@pytest.mark.sample(2)
@pytest.mark.parametrize("same", [False, True])
def test_of_copies_that_race_to_one_place_one_wins_and_it_is_whole(bucket: str, same: bool) -> None:
    """Of the same work each may: they write the same bytes."""
    context = multiprocessing.get_context("spawn")
    for round in range(3):
        to = f"{bucket}/copy-{round}"
        out, gate = context.Queue(), context.Barrier(4)
        marks = [b"same" if same else b"%d" % number for number in range(4)]
        racers = [
            context.Process(target=racer, args=(to, f"work {mark!r}", mark, gate, out)) for mark in marks
        ]  # fmt: skip
        for process in racers:
            process.start()
        results = [out.get(timeout=300) for _ in racers]
        for process in racers:
            process.join()
        winners = [mark for mark, problem in results if not problem]
        assert len(winners) == 1 or (same and winners)
        mark = winners[0]
        assert contents(to) == {**{name: data + mark for name, data in FILES.items()}, "last": b"counts" + mark}


def test_who_still_writes_is_not_taken_over_on_the_same_host(to: str) -> None:
    with new_copy(to, work="w", counts="last") as copy:
        write(copy)
        for work in ("w", "other"):
            with pytest.raises(StoreInUse, match="has been writing a copy there since"):
                write_all(to, work)
    assert contents(to) == {**FILES, "last": b"counts"}


def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on this process is on another host."""
    monkeypatch.setattr("socket.gethostname", lambda: "another-host")


@pytest.mark.parametrize("before", [True, False])
def test_who_fails_takes_nothing_away_that_another_has_gone_on_with(
    before: bool, to: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other is on another host, and cannot tell that the first still runs: the same work does no harm. The first
    fails before the other has ended, or after."""
    first_fails, other_ends = threading.Event(), threading.Event()

    def other(copy: NewCopy) -> None:
        copy.settle()
        if before:
            first_fails.set()
            assert other_ends.wait(60)

    def first(copy: NewCopy) -> None:
        copy.settle()
        elsewhere(monkeypatch)
        thread.start()
        if before:
            assert first_fails.wait(60)
        else:
            thread.join(60)
        raise OSError("full")

    thread = threading.Thread(target=write_all, args=(to,), kwargs={"then": other})
    with pytest.raises(OSError, match="full"):
        write_all(to, then=first)
    other_ends.set()
    thread.join(60)
    assert contents(to) == {**FILES, "last": b"counts"}


def test_who_has_given_up_is_not_followed(to: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may still be taking away what another would rely on."""
    refused: list[str] = []

    def slow(self: ObjectStorage, path: str) -> None:
        if not refused:
            elsewhere(monkeypatch)
            try:
                write_all(to)
            except FormatError as error:
                refused.append(error.message)
        delete(self, path)

    def stop(copy: NewCopy) -> None:
        copy.settle()
        monkeypatch.setattr(ObjectStorage, "delete", slow)
        raise OSError("stop")

    delete = ObjectStorage.delete
    with pytest.raises(OSError, match="stop"):
        write_all(to, then=stop)
    assert "gave up a copy there" in refused[0]
    assert contents(to) == {}


def test_a_copy_that_was_taken_away_and_made_anew_by_another_is_left_alone(to: str) -> None:
    """A process wakes that was stopped before the file that counts, when all is another's long since."""

    def late(again: bool, theirs: bool) -> None:
        with new_copy(to, work="w", counts="last") as copy:
            write(copy)
            copy.settle()
            storage = ObjectStorage(to)
            for file in storage.inventory():
                storage.delete(file.path)
            if again:
                storage.put(".tmp-copy-1", b'{"id":"x","work":"v","counts":"last","host":"h","process":1,"started":1,'
                            b'"begun":"2026-01-01T00:00:00Z"}')  # fmt: skip
            if theirs:
                storage.put("last", b"theirs")

    for again, theirs in ((False, False), (True, False), (False, True), (True, True)):
        with pytest.raises(FormatError, match=r"removed or finished the copy|that differs from the one"):
            late(again, theirs)
        assert {name: data for name, data in contents(to).items() if not name.startswith(".")} == (
            {"last": b"theirs"} if theirs else {}
        )
        for file in ObjectStorage(to).inventory():
            ObjectStorage(to).delete(file.path)


# -- servers that are not as they should be --------------------------------------------------------------------


def test_a_server_that_lets_a_name_be_created_twice_is_refused_moto(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = servers.get("S3 by moto")
    use(server, monkeypatch)
    root = bucket_place(server).root
    with proxy_to(server.port) as proxy:
        proxy.strip = frozenset({"if-none-match"})
        use(server, monkeypatch, proxy.port)
        with pytest.raises(FormatError, match="If-None-Match"):
            write_all(f"{root}/copy")
    use(server, monkeypatch)
    assert contents(f"{root}/copy") == {}


def test_replies_that_are_lost_do_no_harm_moto(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    server = servers.get("S3 by moto")
    use(server, monkeypatch)
    root = bucket_place(server).root
    with proxy_to(server.port) as proxy:
        proxy.lose_every = 3
        use(server, monkeypatch, proxy.port)
        write_all(f"{root}/copy")
    use(server, monkeypatch)
    assert contents(f"{root}/copy") == {**FILES, "last": b"counts"}


def test_many_files_are_on_their_way_at_once_and_no_more(moto_bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are as many as there are threads, at the most."""
    lock, now, most = threading.Lock(), 0, 0
    met = threading.Barrier(AT_ONCE)
    inner: Callable[..., None] = ObjectStorage.put

    def put(self: ObjectStorage, path: str, data: bytes, **options: bool) -> None:
        nonlocal now, most
        if not path.startswith("state/"):
            inner(self, path, data, **options)
            return
        with lock:
            now += 1
            most = max(most, now)
        if int(path.partition("/")[2]) < AT_ONCE:
            met.wait(60)
        inner(self, path, data, **options)
        with lock:
            now -= 1

    monkeypatch.setattr(ObjectStorage, "put", put)
    write_all(f"{moto_bucket}/copy")
    assert most == AT_ONCE
