"""Files of a source on an object store that fails: each row comes once, or the job ends with an error in time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from abscli.engine.sources.files import input_files
from formats.errors import Unreachable
from formats.storage import retrying
from tests.engine.sources.test_files import rows_of
from tests.engine.sources.test_served import put, read_all
from tests.support.objects.fixtures import use
from tests.support.objects.places import bucket_place
from tests.support.objects.proxy import Fault, Proxy, proxy_to
from tests.support.objects.servers import ObjectServer

FILES, ROWS = 3, 8
SLACK = 20.0


@pytest.fixture
def proxied(s3: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Proxy]]:
    """Return the URI of files on a server, and the proxy in front of it."""
    monkeypatch.setattr(input_files, "AHEAD", 50)
    monkeypatch.setattr(input_files, "AHEAD_OF_ROWS", 50)
    with proxy_to(s3.port) as proxy:
        use(s3, monkeypatch, proxy.port)
        place = str(bucket_place(s3).root)
        put(place, tmp_path, "jsonl", (ROWS,) * FILES)
        yield place, proxy


def lose(proxy: Proxy, fault: Fault) -> None:
    proxy.loses_of, proxy.fault, proxy.lose_every = frozenset({"GET", "HEAD"}), fault, 2


def hang(proxy: Proxy) -> None:
    proxy.hangs = 2


def answer_late(proxy: Proxy) -> None:
    proxy.late_share, proxy.late_seconds = 1.0, 0.1


def be_busy(proxy: Proxy) -> None:
    proxy.status = 503
    threading.Timer(1.0, lambda: setattr(proxy, "status", 0)).start()


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "fail",
    [
        pytest.param(lambda proxy: lose(proxy, Fault.CLOSED), id="reset"),
        pytest.param(lambda proxy: lose(proxy, Fault.ERROR), id="500"),
        pytest.param(hang, id="no reply"),
        pytest.param(answer_late, id="late"),
        pytest.param(be_busy, id="503 for a second"),
    ],
)
def test_rows_of_a_server_that_fails_for_a_while_come_once(
    proxied: tuple[str, Proxy], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fail: Callable[[Proxy], None]
) -> None:
    place, proxy = proxied
    monkeypatch.setattr(retrying, "DEADLINE", 1.0)
    fail(proxy)
    expected = [row for file in range(FILES) for row in rows_of(file, ROWS)]
    assert read_all(place, tmp_path, "jsonl") == expected
    assert not proxy.hangs
    assert proxy.lost or proxy.refused or proxy.late_share or fail is hang


def test_a_server_that_stays_away_is_named_in_time(
    proxied: tuple[str, Proxy], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, proxy = proxied
    monkeypatch.setattr(retrying, "SECONDS", 2.0)
    proxy.status = 503
    began = time.monotonic()
    with pytest.raises(Unreachable, match=r"no answer: .*503 .*tried \d+ times in [23] s"):
        read_all(place, tmp_path, "jsonl")
    assert 2 <= time.monotonic() - began < 2 + SLACK
