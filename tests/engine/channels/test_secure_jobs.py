"""Whole jobs through TLS, and when they are encrypted."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from abscli.engine import job
from abscli.engine.channels import door, peers
from abscli.engine.channels.door import Door
from abscli.engine.channels.line import Lines
from abscli.engine.drivers.inline import InlineWorkers
from abscli.engine.drivers.spark import SparkWorkers
from abscli.engine.errors import EngineStopped, UsageError
from abscli.engine.job import JobOptions, run_job
from abscli.engine.losses.decisions import Scope
from abscli.engine.telemetry.news import Recovering
from abscli.engine.worker import Worker
from tests.support.doors import House
from tests.support.jobs.kills import Kills, after, check_counted, fan, write_rows
from tests.support.jobs.small import inline, last_counts, word_count, write_words
from tests.support.secure import KEYS, OTHERS, client, first_flight

pytestmark = pytest.mark.integration


@pytest.fixture
def secure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs in this process encrypt, too."""
    monkeypatch.setattr(job, "_is_secure", lambda launcher, options: True)


def test_a_job_through_tls_is_exact_though_strangers_knock(
    tmp_path: Path, secure: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = write_words(tmp_path, lines=2_000)
    doors: list[tuple[str, int]] = []
    made = Door.__init__

    def noted(door: Door, *args: Any, **more: Any) -> None:
        made(door, *args, **more)
        doors.append(door.address)

    monkeypatch.setattr(Door, "__init__", noted)
    stop, knocks = threading.Event(), []
    stranger = client(OTHERS, None, tmp_path)

    def knock() -> None:
        while not stop.is_set():
            for address in list(doors):
                for data in (b"", first_flight(), b"\xff" * 100):
                    with contextlib.suppress(OSError), socket.create_connection(address, timeout=5) as sock:
                        sock.sendall(data)
                with contextlib.suppress(OSError), socket.create_connection(address, timeout=5) as sock:
                    stranger.wrap_socket(sock).close()
                knocks.append(address)
            time.sleep(0.005)

    thread = threading.Thread(target=knock)
    thread.start()
    try:
        outcome = run_job(word_count(), str(tmp_path / "store"), inline(tmp_path, interval=0.05))
    finally:
        stop.set()
        thread.join(60)
    assert len(set(knocks)) >= 3
    assert outcome.finished
    assert last_counts(tmp_path) == counts


def test_many_channels_do_not_stand_at_a_door_all_at_once(
    tmp_path: Path, secure: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Far away it takes long to dial them all, and each is a stranger until this end has done its share, too.

    One worker is far away: the other stands at its door meanwhile, and would lose patience."""
    counts = write_words(tmp_path)
    monkeypatch.setattr(door, "_most_strangers", lambda: 4)
    monkeypatch.setattr(door, "HANDSHAKE_PATIENCE_SECONDS", 1.0)
    monkeypatch.setattr(peers, "DIALLED_AT_ONCE", 2)
    plain, distant = peers.reach, list[int]()

    def far_away(address: tuple[str, int], *, seconds: float) -> socket.socket:
        distant.append(threading.get_ident())
        if distant[0] == threading.get_ident():
            time.sleep(0.15)
        return plain(address, seconds=seconds)

    monkeypatch.setattr(peers, "reach", far_away)
    news: list[object] = []
    outcome = run_job(word_count(8), str(tmp_path / "store"), inline(tmp_path), on_news=news.append)
    assert outcome.finished
    assert not [one for one in news if isinstance(one, Recovering)]
    assert last_counts(tmp_path) == counts


@pytest.mark.sample(1)
@pytest.mark.fast(reason="one lost worker behind TLS")
@pytest.mark.parametrize("recovery", list(Scope))
def test_a_lost_worker_is_made_up_for_through_tls(tmp_path: Path, secure: None, recovery: Scope) -> None:
    counts = write_rows(tmp_path)
    kills = Kills([(after(2, open_epoch=True), [1]), (after(4), [0])], tmp_path)
    outcome = run_job(
        fan(), str(tmp_path / "store"), inline(tmp_path, recovery=recovery), kills.progress, kills.meet,
        on_news=kills.news,
    )  # fmt: skip
    assert outcome.finished
    assert len(kills.recoveries) == 2
    check_counted(tmp_path, counts)


def test_a_worker_says_whom_it_met_in_place_of_its_driver(tmp_path: Path) -> None:
    """The address leads to somebody else's door."""
    from abscli.engine.channels.messages import JobSpec

    with House(Lines(OTHERS)) as house:
        spec = JobSpec(
            topology=word_count(), store=str(tmp_path), directory="", root="", attempt=1, attempt_id="",
            policy="aligned", workers=1, read_sources=True, token=house.token, address=house.door.address, keys=KEYS,
            driver="d1",
        )  # fmt: skip
        with pytest.raises(EngineStopped, match=r"worker 0 .* cannot reach the driver on d1 .*verify failed"):
            Worker(spec, 0)
        assert not house.admitted


@pytest.mark.parametrize(
    ("host", "bind", "insecure", "secure"),
    [
        ("127.0.0.1", "127.0.0.1", False, False),
        ("localhost", "127.0.0.1", False, False),
        ("::1", "::1", False, False),
        ("10.0.0.7", "10.0.0.7", False, True),
        ("127.0.0.1", "0.0.0.0", False, True),  # it listens on every address
        ("head", "127.0.0.1", False, True),  # a name may lead anywhere
        ("10.0.0.7", "10.0.0.7", True, False),
    ],
)
def test_it_is_encrypted_wherever_it_may_leave_the_machine(host: str, bind: str, insecure: bool, secure: bool) -> None:
    launcher = InlineWorkers()
    launcher.host, launcher.bind = host, bind
    assert job._is_secure(launcher, JobOptions("", "", insecure=insecure)) == secure


ON = "spark.authenticate"
CRYPTO = "spark.network.crypto.enabled"


@pytest.mark.parametrize(
    ("master", "conf", "missing"),
    [
        ("local[4]", {ON: "true"}, None),
        ("spark://head:7077", {ON: "true", CRYPTO: "true"}, None),
        ("spark://head:7077", {ON: " TRUE", "spark.ssl.rpc.enabled": "true"}, None),
        ("yarn", {ON: "true", "spark.authenticate.enableSaslEncryption": "true"}, None),
        ("spark://head:7077", {}, [ON, CRYPTO]),
        ("spark://head:7077", {CRYPTO: "true"}, [ON]),
        ("k8s://https://head", {ON: "true"}, [CRYPTO]),
        ("yarn", {ON: "true", CRYPTO: "false", "spark.io.encryption.enabled": "true"}, [CRYPTO]),  # of disks
    ],
)
def test_a_spark_that_would_send_the_key_in_clear_is_named_with_what_to_set(
    master: str, conf: dict[str, str], missing: list[str] | None
) -> None:
    conf = {"spark.driver.host": "10.0.0.7", **conf}
    workers = SparkWorkers(master, SimpleNamespace(master=master, getConf=lambda: conf))
    error = workers.in_clear
    if missing is None:
        assert error is None
        return
    assert error is not None
    assert error.exit_code == 2
    assert master in error.message
    assert error.hint is not None
    assert error.hint.startswith(f"set {' and '.join(f'{name} true' for name in missing)} in spark-defaults.conf")
    assert "--insecure" in error.hint


LOOPBACK = {"spark.driver.host": "127.0.0.1"}


@pytest.mark.parametrize("conf", [{}, {ON: "false"}, {CRYPTO: "true"}])
@pytest.mark.parametrize("master", ["local", "local[*]", "local-cluster[2,1,1024]"])
def test_a_local_context_without_authentication_is_refused(master: str, conf: dict[str, str], tmp_path: Path) -> None:
    settings = SimpleNamespace(get=conf.get, getAll=conf.items)
    context = SimpleNamespace(master=master, getConf=lambda: settings)
    with pytest.raises(UsageError, match="every user of this machine can connect to its ports") as refused:
        run_job(word_count(), str(tmp_path / "store"), JobOptions(str(tmp_path), "job.yaml", context=context))
    assert refused.value.hint is not None
    assert refused.value.hint.startswith('set .config("spark.authenticate", "true") before the SparkContext is created')
    assert "insecure=True" in refused.value.hint
    assert not (tmp_path / "store" / "abs-store.json").exists()


def test_a_cluster_on_loopback_has_to_authenticate_but_not_to_encrypt() -> None:
    def refusal(conf: dict[str, str]) -> UsageError | None:
        context = SimpleNamespace(master="spark://127.0.0.1:7077", getConf=lambda: LOOPBACK | conf)
        return SparkWorkers(context.master, context).in_clear

    assert refusal({ON: "true"}) is None
    error = refusal({})
    assert error is not None
    assert error.hint is not None
    assert error.hint.startswith(f"set {ON} true in spark-defaults.conf")


def test_nothing_is_made_insecure_where_nothing_leaves_the_machine(tmp_path: Path) -> None:
    for options in (inline(tmp_path, insecure=True), JobOptions(str(tmp_path), "job.yaml", insecure=True)):
        with pytest.raises(UsageError, match="--insecure applies only if --master runs workers on other hosts"):
            run_job(word_count(), str(tmp_path / "store"), options)
    assert not (tmp_path / "store").exists()
