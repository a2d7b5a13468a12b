"""The keys of an attempt and of another one, and who speaks TLS beside the engine."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

from abscli.engine.channels.line import KeyPair, Lines, new_key_pair

KEYS = new_key_pair()
LINES = Lines(KEYS)
OTHERS = new_key_pair()


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


def first_flight() -> bytes:
    """What a dialler sends before it has heard anything."""
    one, other = socket.socketpair()
    with one, other:
        LINES.dialled(one).flush()
        return other.recv(1 << 16)
