"""Connections that go through TLS: frames as on plain ones, and a door that opens to the certificate of its attempt."""

from __future__ import annotations

import contextlib
import datetime
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from abscli.engine import job
from abscli.engine.channels import door, peers
from abscli.engine.channels.door import Door
from abscli.engine.channels.line import ENCRYPT_BYTES, KeyPair, Line, Lines, SecureLine, new_key_pair
from abscli.engine.channels.wire import Connection, Frame
from abscli.engine.drivers.inline import InlineWorkers
from abscli.engine.drivers.spark import SparkWorkers
from abscli.engine.errors import EngineStopped, UsageError
from abscli.engine.job import JobOptions, run_job
from abscli.engine.losses.decisions import Scope
from abscli.engine.telemetry.news import Recovering
from abscli.engine.worker import Worker
from tests.support.doors import House, until
from tests.support.jobs.kills import Kills, after, check_counted, fan, write_rows
from tests.support.jobs.small import inline, last_counts, word_count, write_words

KEYS = new_key_pair()
LINES = Lines(KEYS)
OTHERS = new_key_pair()


# -- frames -------------------------------------------------------------------------------------------------------


class Pair:
    """Two connections through TLS, in one selector. heard: by the one that dialled, and by the other one."""

    def __init__(self, lines: Lines = LINES, greeting: bytes = b"") -> None:
        self.selector = selectors.DefaultSelector()
        one, other = socket.socketpair()
        self.heard: tuple[list[tuple[Frame, int, bytes]], ...] = ([], [])
        self.ended: list[int] = []
        self.dialler = self._connect(0, lines.dialled(one), greeting)
        self.accepter = self._connect(1, lines.accepted(other), b"")

    def _connect(self, number: int, line: Line, greeting: bytes) -> Connection:
        frames = self.heard[number]
        return Connection(
            line, self.selector, lambda k, n, p: frames.append((k, n, bytes(p))), lambda: self.ended.append(number),
            greeting=greeting,
        )  # fmt: skip

    def turn(self) -> bool:
        """One round; whether anybody had anything to do."""
        ready = self.selector.select(0)
        for key, mask in ready:
            key.data(mask)
        return bool(ready)

    def settle(self) -> None:
        """Rounds until nobody has anything to do: a connection that asks for more and more rounds fails."""
        for _ in range(100_000):
            if not self.turn():
                return
        pytest.fail("there is always something to do")

    def close(self) -> None:
        self.dialler.close()
        self.accepter.close()
        self.selector.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    opened = Pair()
    yield opened
    opened.close()


FRAMES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2**63), st.sampled_from([0, 1, 13, 300, 17_000, 70_000])))


@settings(max_examples=40)
@given(FRAMES, FRAMES, st.data())
def test_frames_arrive_both_ways_whatever_is_read_when(
    there: list[tuple[int, int, int]], back: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    pair = Pair()
    ways = [(pair.dialler, there), (pair.accepter, back)]
    try:
        for connection, frames in ways:
            for kind, number, size in frames:
                connection.send(Frame(kind), number, bytes(size // 2), b"x" * (size - size // 2))
                if data.draw(st.booleans()):
                    pair.turn()
                connection.reading(data.draw(st.booleans()))
        pair.dialler.reading(True)
        pair.accepter.reading(True)
        pair.settle()
        for frames, heard in zip((there, back), reversed(pair.heard), strict=True):
            assert [(kind, number, len(payload)) for kind, number, payload in heard] == [tuple(f) for f in frames]
        assert pair.dialler.pending == pair.accepter.pending == 0
        assert not pair.ended
    finally:
        pair.close()


def test_who_waits_for_the_other_end_does_not_keep_the_loop_awake() -> None:
    """The socket takes more all the time, but what is queued waits for a handshake that nobody answers."""
    selector = selectors.DefaultSelector()
    one, other = socket.socketpair()
    connection = Connection(LINES.dialled(one), selector, lambda *_: None, lambda: None, greeting=b"hello")
    try:
        rounds = 0
        while ready := selector.select(0):
            rounds += 1
            assert rounds < 10
            for key, mask in ready:
                key.data(mask)
        assert not connection.greeted
        assert connection.pending == len(b"hello")
    finally:
        connection.close()
        other.close()
        selector.close()


def test_what_has_left_the_socket_comes_when_it_is_asked_for_again(pair: Pair) -> None:
    """A hundred frames come in one piece. After the first nothing is wanted for now, and the socket has no more."""
    pair.settle()
    stops: list[int] = []

    def stop(kind: Frame, number: int, payload: memoryview) -> None:
        stops.append(number)
        pair.accepter.reading(False)

    pair.accepter._on_frame = stop
    for number in range(100):
        pair.dialler.queue(Frame.BARRIER, number)
    pair.dialler.send(Frame.BARRIER, 100)
    pair.settle()
    assert stops == [0]
    for number in range(1, 101):
        pair.accepter.reading(True)
        pair.settle()
        assert stops == list(range(number + 1))


def test_a_greeting_goes_before_everything_and_what_follows_it_at_once_is_not_lost() -> None:
    """It comes with the first frames, so that whoever reads the greeting has taken these from the socket."""
    with House(LINES) as house, house.knock() as sock:
        selector = selectors.DefaultSelector()
        connection = Connection(
            LINES.dialled(sock), selector, lambda *_: None, lambda: None, greeting=house.greeting_of(4)
        )
        for number in range(50):
            connection.send(Frame.BARRIER, number)
        while connection.pending:
            for key, mask in selector.select(1):
                key.data(mask)
        until(lambda: house.is_in(4))
        heard: list[int] = []
        mine = selectors.DefaultSelector()
        accepted = Connection(house.lines[0], mine, lambda kind, number, _: heard.append(number), lambda: None)
        while len(heard) < 50:
            for key, mask in mine.select(60):
                key.data(mask)
        assert heard == list(range(50))
        for one in (accepted, connection):
            one.close()
        for one in (mine, selector):
            one.close()


def test_both_may_send_more_than_sockets_take_before_either_reads(pair: Pair) -> None:
    pair.settle()
    payload = bytes(range(256)) * (1 << 15)
    for _ in range(3):
        pair.dialler.send(Frame.RECORDS, 1, payload)
        pair.accepter.send(Frame.RECORDS, 2, payload)
    assert pair.dialler.pending > ENCRYPT_BYTES
    pair.settle()
    assert [frame[2] == payload for heard in pair.heard for frame in heard] == [True] * 6


def test_a_slow_reader_makes_what_waits_visible_to_its_sender(pair: Pair) -> None:
    """Back pressure is by `pending`: what has been encrypted and not sent is bounded."""
    pair.settle()
    pair.accepter.reading(False)
    for _ in range(64):
        pair.dialler.send(Frame.RECORDS, 1, bytes(1 << 16))
        pair.turn()
    line = pair.dialler._line
    assert isinstance(line, SecureLine)
    assert pair.dialler.pending > 2 << 20
    assert len(line._outgoing) + line._encrypted.pending < 2 * ENCRYPT_BYTES


def test_who_is_hung_up_on_hears_the_end_and_nothing_else(pair: Pair) -> None:
    """From another thread, while there is something to read: what is encrypted is never taken for frames."""
    pair.settle()
    for _ in range(5):
        pair.accepter.send(Frame.RECORDS, 1, bytes(1 << 18))
    thread = threading.Thread(target=pair.dialler.hang_up)
    thread.start()
    thread.join()
    pair.settle()
    assert sorted(set(pair.ended)) == [0, 1]
    assert all(payload == bytes(1 << 18) for _, _, payload in pair.heard[0])


def test_what_is_pending_is_sent_before_a_connection_is_finished(pair: Pair) -> None:
    pair.settle()
    pair.dialler.send(Frame.RECORDS, 1, bytes(8 << 20))

    def finish() -> None:
        pair.dialler.finish(60.0)

    selector = pair.selector
    selector.unregister(pair.dialler._sock)
    pair.dialler._interest = 0
    thread = threading.Thread(target=finish)
    thread.start()
    while 1 not in pair.ended:
        for key, mask in selector.select(1):
            key.data(mask)
    thread.join()
    assert [len(payload) for _, _, payload in pair.heard[1]] == [8 << 20]


def test_an_end_without_a_goodbye_is_an_end(pair: Pair) -> None:
    pair.settle()
    pair.dialler.close()
    pair.settle()
    assert pair.ended == [1]


def test_a_line_that_is_changed_on_its_way_ends(pair: Pair) -> None:
    pair.settle()
    pair.dialler._sock.send(b"\x17\x03\x03\x00\x20" + bytes(32))
    pair.settle()
    assert 1 in pair.ended
    assert pair.heard[1] == []


# -- who is let in ------------------------------------------------------------------------------------------------


@pytest.fixture
def house() -> Iterator[House]:
    with House(LINES) as opened:
        yield opened


def client(keys: KeyPair | None, trusts: KeyPair | None, folder: Path) -> ssl.SSLContext:
    """Another implementation of the client's side, of the standard library. keys: that it shows; trusts: None for
    everybody."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE if trusts is None else ssl.CERT_REQUIRED
    if trusts is not None:
        context.load_verify_locations(cadata=trusts.certificate.decode())
    if keys is not None:
        (folder / "own.pem").write_bytes(keys.certificate + keys.key)
        context.load_cert_chain(folder / "own.pem")
    return context


def comes_in(house: House, worker: int, folder: Path) -> None:
    with client(KEYS, KEYS, folder).wrap_socket(house.knock()) as sock:
        assert sock.version() == "TLSv1.3"
        sock.sendall(house.greeting_of(worker))
        until(lambda: house.is_in(worker))


def ends(sock: socket.socket) -> bool:
    """Waits for the other end to close, whatever it says before."""
    with contextlib.suppress(OSError):
        while sock.recv(4096):
            pass
    return True


def test_who_shows_the_certificate_and_knows_the_token_comes_in(house: House, tmp_path: Path) -> None:
    comes_in(house, 3, tmp_path)


def like(keys: KeyPair) -> KeyPair:
    """Another key's certificate with the same names, number and times."""
    genuine = x509.load_pem_x509_certificate(keys.certificate)
    key = ec.generate_private_key(ec.SECP256R1())
    forged = (
        x509.CertificateBuilder()
        .subject_name(genuine.subject)
        .issuer_name(genuine.issuer)
        .public_key(key.public_key())
        .serial_number(genuine.serial_number)
        .not_valid_before(genuine.not_valid_before_utc)
        .not_valid_after(genuine.not_valid_after_utc)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, SHA256())
    )
    return pair_of(forged, key)


def issued_by(keys: KeyPair) -> KeyPair:
    """A certificate that the holder of the attempt's key has signed for another one."""
    issuer = x509.load_pem_x509_certificate(keys.certificate)
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    signing = load_pem_private_key(keys.key, None)
    assert isinstance(signing, ec.EllipticCurvePrivateKey)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "guest")]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(signing, SHA256())
    )
    return pair_of(certificate, key)


def pair_of(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    return KeyPair(
        certificate.public_bytes(Encoding.PEM), key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )


@pytest.mark.parametrize(
    "shows", [None, OTHERS, like(KEYS), issued_by(KEYS)], ids=["none", "another", "a likeness", "one that it signed"]
)
def test_who_shows_no_certificate_or_another_one_is_turned_away(
    house: House, tmp_path: Path, shows: KeyPair | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "decode_greeting", lambda payload: pytest.fail("parsed what a stranger said"))
    with house.knock() as raw, contextlib.suppress(OSError):
        sock = client(shows, None, tmp_path).wrap_socket(raw)
        with contextlib.suppress(OSError):
            sock.sendall(house.greeting_of(5))
        assert ends(sock)
        sock.close()
    monkeypatch.undo()
    comes_in(house, 1, tmp_path)
    assert not house.is_in(5)


def test_who_dials_does_not_greet_a_door_of_another_attempt() -> None:
    """The token stays where it is: before the other end has proved itself, nothing is sent but a handshake."""
    with House(Lines(OTHERS)) as house, house.knock() as sock:
        line = LINES.dialled(sock)
        with pytest.raises(ssl.SSLCertVerificationError):
            line.open(60.0)
        assert not line.is_open
        assert not house.admitted


def test_an_older_tls_is_turned_away(house: House, tmp_path: Path) -> None:
    context = client(KEYS, KEYS, tmp_path)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with house.knock() as sock, pytest.raises(OSError):
        context.wrap_socket(sock)
    comes_in(house, 1, tmp_path)


def test_the_certificate_without_the_token_is_not_enough(house: House, tmp_path: Path) -> None:
    with client(KEYS, KEYS, tmp_path).wrap_socket(house.knock()) as sock:
        sock.sendall(b"\xff" * len(house.token) + house.greeting_of(5)[len(house.token) :])
        assert ends(sock)
    assert not house.admitted


def test_a_hello_that_is_not_encrypted_is_turned_away(house: House, tmp_path: Path) -> None:
    with house.knock() as sock:
        sock.sendall(house.greeting_of(5))
        assert ends(sock)
    comes_in(house, 1, tmp_path)
    assert not house.is_in(5)


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.0\r\n\r\n", b"\xff" * (1 << 20), b"\x16\x03\x01\xff\xff" + bytes(1 << 17),
             b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", b"\x15\x03\x03\x00\x02\x02\x00"],
    ids=["http", "ones", "a long record", "a short hello", "an alert"],
)  # fmt: skip
def test_garbage_ends_its_own_connection(house: House, tmp_path: Path, data: bytes) -> None:
    with house.knock() as sock:
        with contextlib.suppress(OSError):
            sock.sendall(data)
        assert ends(sock)
    comes_in(house, 1, tmp_path)
    assert len(house.admitted) == 1


def test_slow_handshakes_keep_nobody_waiting_and_have_a_deadline(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some say nothing, some a half of their hello, some all of it and no more."""
    hello = first_flight()
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(house.knock()) for _ in range(24)]
        for number, sock in enumerate(crowd):
            sock.sendall([b"", hello[: len(hello) // 2], hello][number % 3])
        until(lambda: len(house.door._strangers) == len(crowd))
        comes_in(house, 1, tmp_path)
        assert len(house.door._strangers) == len(crowd)
        monkeypatch.setattr(door, "HANDSHAKE_SECONDS", 0.2)
        assert all(ends(sock) for sock in crowd)
    monkeypatch.undo()
    comes_in(house, 2, tmp_path)


def first_flight() -> bytes:
    """What a dialler sends before it has heard anything."""
    one, other = socket.socketpair()
    with one, other:
        LINES.dialled(one).flush()
        return other.recv(1 << 16)


class Tap:
    """Passes bytes on between a dialler and a door, and keeps what the dialler sent."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._door = address
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self.sent = bytearray()
        self._sockets: list[socket.socket] = [self._listener]
        self._threads = [threading.Thread(target=self._serve, daemon=True)]
        self._threads[0].start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._door)
                self._sockets += [near, far]
                for ends_ in ((near, far, True), (far, near, False)):
                    thread = threading.Thread(target=self._pass, args=ends_, daemon=True)
                    thread.start()
                    self._threads.append(thread)

    def _pass(self, source: socket.socket, target: socket.socket, keep: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if keep:
                    self.sent += data
                target.sendall(data)

    def __enter__(self) -> Tap:
        return self

    def __exit__(self, *_: object) -> None:
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        for thread in self._threads:
            thread.join(60)


def test_what_was_recorded_shows_no_token_and_opens_no_door(house: House, tmp_path: Path) -> None:
    """Not this attempt's, where every connection has keys of its own, nor that of an attempt after it."""
    with Tap(house.door.address) as tap, socket.create_connection(tap.address, timeout=60) as sock:
        secured = client(KEYS, KEYS, tmp_path).wrap_socket(sock)
        secured.sendall(house.greeting_of(5))
        until(lambda: house.is_in(5))
        secured.close()
        recorded = bytes(tap.sent)
    assert house.token not in recorded
    assert b"Hello" not in recorded
    with House(Lines(new_key_pair())) as later:
        for opened in (house, later):
            opened.admitted.clear()
            with opened.knock() as sock:
                with contextlib.suppress(OSError):
                    sock.sendall(recorded)
                assert ends(sock)
            assert not opened.admitted


def test_a_key_is_on_no_disk_and_in_no_other_pipe(tmp_path: Path) -> None:
    """Whatever `ssl` reads it from is gone when the lines are there."""
    before = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else None
    Lines(KEYS)
    if before is not None:
        assert len(list(Path("/proc/self/fd").iterdir())) == before


# -- whole jobs ---------------------------------------------------------------------------------------------------


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


# -- when -----------------------------------------------------------------------------------------------------------


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
        ("local[4]", {}, None),
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


def test_nothing_is_made_insecure_where_nothing_leaves_the_machine(tmp_path: Path) -> None:
    for options in (inline(tmp_path, insecure=True), JobOptions(str(tmp_path), "job.yaml", insecure=True)):
        with pytest.raises(UsageError, match="--insecure means something with a --master on other hosts only"):
            run_job(word_count(), str(tmp_path / "store"), options)
    assert not (tmp_path / "store").exists()
