"""A door that opens to the certificate of its attempt, and to its token."""

from __future__ import annotations

import contextlib
import datetime
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

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

from abscli.engine.channels import door
from abscli.engine.channels.line import KeyPair, Lines, new_key_pair
from tests.support.doors import House
from tests.support.secure import KEYS, LINES, OTHERS, client, first_flight
from tests.support.waiting import wait_for


@pytest.fixture
def house() -> Iterator[House]:
    with House(LINES) as opened:
        yield opened


def comes_in(house: House, worker: int, folder: Path) -> None:
    with client(KEYS, KEYS, folder).wrap_socket(house.knock()) as sock:
        assert sock.version() == "TLSv1.3"
        sock.sendall(house.greeting_of(worker))
        wait_for(lambda: house.is_in(worker))


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
        wait_for(lambda: len(house.door._strangers) == len(crowd))
        comes_in(house, 1, tmp_path)
        assert len(house.door._strangers) == len(crowd)
        monkeypatch.setattr(door, "HANDSHAKE_SECONDS", 0.2)
        assert all(ends(sock) for sock in crowd)
    monkeypatch.undo()
    comes_in(house, 2, tmp_path)


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
        wait_for(lambda: house.is_in(5))
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
