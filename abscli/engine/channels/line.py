"""The bytes of one TCP connection: as they are, or through TLS, where both ends show the certificate of their attempt.

On a socket that does not block nothing here waits for the other end.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import msgspec

RECEIVE_BYTES = 1 << 18
"""Taken from a socket at once."""

ENCRYPT_BYTES = 1 << 16
"""Encrypted at once, and sent before there is more."""


class KeyPair(msgspec.Struct, frozen=True):
    """A certificate and its private key, each as PEM: who has them belongs to the attempt."""

    certificate: bytes
    key: bytes


def new_key_pair() -> KeyPair:
    """Of one attempt: who has it trusts this certificate, and no other one."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "abs attempt")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # It ends with the attempt, when nobody has the key any more: no host's clock decides about it.
        .not_valid_before(datetime(2000, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, SHA256())
    )
    return KeyPair(
        certificate.public_bytes(Encoding.PEM),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )


class Line:
    """Bytes as they are.

    is_open: whether what is sent goes out, and is not kept back by a handshake.
    unread: whether something has left the socket and waits for `receive`: of that no selector knows.
    """

    is_open = True
    unread = False

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    @property
    def unsent(self) -> bool:
        """Whether something that `send` took, or that a handshake needs, waits for the socket."""
        return False

    def receive(self, buffer: memoryview) -> int:
        """How many bytes have come, 0 at the end; BlockingIOError where there are none yet, other OSErrors."""
        return self.sock.recv_into(buffer)

    def send(self, parts: Sequence[memoryview]) -> int:
        """How many bytes were taken; BlockingIOError where none can be for now, other OSErrors."""
        return self.sock.sendmsg(parts)

    def flush(self) -> None:
        """Send what is `unsent`; BlockingIOError while the socket takes none, other OSErrors."""

    def open(self, seconds: float) -> None:
        """Wait until it is, on a socket that blocks; OSError where it takes longer, or the other end is a stranger."""


class SecureLine(Line):
    """Bytes through TLS. Before it is open, and before anything is received, the other end has shown the certificate.

    That a connection ends without a goodbye of TLS is no error: nothing is whole here because a connection ended.
    """

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, *, accepted: bool) -> None:
        super().__init__(sock)
        self.is_open = False
        # Not a socket of `ssl`: after its `shutdown` it takes what is encrypted for what was sent, and what it could
        # not send at once has to be offered again unchanged.
        self._received, self._encrypted = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._received, self._encrypted, server_side=accepted)
        self._outgoing = memoryview(b"")

    @property
    def unsent(self) -> bool:
        return bool(self._outgoing or self._encrypted.pending)

    def receive(self, buffer: memoryview) -> int:
        # As much as there is, as a socket gives: a record of TLS is smaller than most of what is sent.
        count = 0
        while count < len(buffer):
            try:
                got = self._decrypt(buffer[count:])
            except ssl.SSLWantReadError:
                self.unread = False
                # Whatever is to be sent: two ends that both take nothing before they have sent all would wait for ever.
                with contextlib.suppress(BlockingIOError):
                    self._send_encrypted()
                try:
                    got = self._take()
                except OSError:
                    if count:
                        break  # what ended the connection, or that nothing more has come, is said the next time
                    raise
                if got:
                    continue
            if not got:
                break
            count += got
        return count

    def _decrypt(self, buffer: memoryview) -> int:
        """Bytes that have come, 0 at the end; SSLWantReadError where there are none, or hands are not shaken yet."""
        if not self._shake_hands():
            raise ssl.SSLWantReadError
        try:
            return self._tls.read(len(buffer), buffer)  # type: ignore[return-value]
        except ssl.SSLZeroReturnError:
            return 0

    def send(self, parts: Sequence[memoryview]) -> int:
        self.flush()
        if not self.is_open:
            raise BlockingIOError
        count = 0
        # What has been taken counts as taken, also where the socket takes no more of it for now.
        with contextlib.suppress(BlockingIOError):
            for part in parts:
                for begin in range(0, len(part), ENCRYPT_BYTES):
                    count += self._tls.write(part[begin : begin + ENCRYPT_BYTES])
                    if self._encrypted.pending >= ENCRYPT_BYTES:
                        self._send_encrypted()
            self._send_encrypted()
        return count

    def flush(self) -> None:
        self._shake_hands()
        self._send_encrypted()

    def open(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while True:
            self.sock.settimeout(max(0.001, until - time.monotonic()))
            self.flush()
            if self.is_open:
                return
            if not self._take():
                raise ConnectionError("the peer closed the connection when asked for its certificate")

    def _take(self) -> int:
        """Bytes that have come on the socket, still encrypted; 0 at its end."""
        received = self.sock.recv(RECEIVE_BYTES)
        self._received.write(received)
        self.unread = bool(received)
        return len(received)

    def _send_encrypted(self) -> None:
        while self.unsent:
            if not self._outgoing:
                self._outgoing = memoryview(self._encrypted.read())
            self._outgoing = self._outgoing[self.sock.send(self._outgoing) :]

    def _shake_hands(self) -> bool:
        """Whether that is done; ssl.SSLError where the other end is a stranger."""
        if self.is_open:
            return True
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError:
            with contextlib.suppress(OSError):
                self._send_encrypted()  # an alert: the other end hears why
            raise
        self.is_open = True
        return True


class Lines:
    """Makes lines of the connections of an attempt. keys: None where what is sent need not be hidden."""

    def __init__(self, keys: KeyPair | None) -> None:
        self.secure = keys is not None
        if keys is not None:
            self._client = _context(ssl.PROTOCOL_TLS_CLIENT, keys)
            self._server = _context(ssl.PROTOCOL_TLS_SERVER, keys)

    def dialled(self, sock: socket.socket) -> Line:
        """Of a connection that was made from here."""
        return SecureLine(sock, self._client, accepted=False) if self.secure else Line(sock)

    def accepted(self, sock: socket.socket) -> Line:
        """Of one that came here."""
        return SecureLine(sock, self._server, accepted=True) if self.secure else Line(sock)


PLAIN = Lines(None)


def _context(protocol: int, keys: KeyPair) -> ssl.SSLContext:
    """For one side: it shows the certificate, and takes no other end than one that shows the same."""
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the certificate is the attempt's, on whichever host its worker is
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=keys.certificate.decode())
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0  # no session is ever resumed
    # `ssl` reads files only; a key does not belong on a disk.
    with _as_file(keys.certificate) as certificate, _as_file(keys.key) as key:
        context.load_cert_chain(certificate, key)
    return context


@contextlib.contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """A path from which this can be read once; less than a pipe holds."""
    reader, writer = os.pipe()
    try:
        with os.fdopen(writer, "wb") as file:
            file.write(data)
        yield f"/dev/fd/{reader}"
    finally:
        os.close(reader)
