"""Parse HTTP requests to the metrics server and build its responses. This module does no I/O.

Only the part of HTTP/1.1 (RFC 9110, RFC 9112) that a scrape needs: one GET or HEAD request per connection.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

PATH = "/metrics"
METHODS = ("GET", "HEAD")
HEAD_END = b"\r\n\r\n"
TEXT = "text/plain; charset=utf-8"

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_PORT = re.compile(r"[0-9]{0,5}")


class RejectedRequest(Exception):
    """Report a request that gets an error response.

    status: the status of the response.
    reason: one sentence for the body of the response. It quotes nothing of the request.
    """

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Request:
    """Hold what the server uses of a request. Header names are in lower case."""

    method: str
    path: str
    headers: dict[str, list[str]]


def parse_request(head: bytes) -> Request:
    """Parse a request's head, without the empty line that ends it.

    Raises RejectedRequest.
    """
    lines = head.decode("latin-1").split("\r\n")
    if any(_CONTROL.search(line) for line in lines):
        raise RejectedRequest(HTTPStatus.BAD_REQUEST, "The request has control characters.")
    words = lines[0].split(" ")
    if len(words) != 3 or not _TOKEN.fullmatch(words[0]) or not words[2].startswith("HTTP/"):
        raise RejectedRequest(HTTPStatus.BAD_REQUEST, "The first line is not an HTTP request.")
    method, target, version = words
    if version not in ("HTTP/1.0", "HTTP/1.1"):
        raise RejectedRequest(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "This server speaks HTTP/1.0 and HTTP/1.1.")
    headers: dict[str, list[str]] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not _TOKEN.fullmatch(name):
            raise RejectedRequest(HTTPStatus.BAD_REQUEST, "A header line is malformed.")
        headers.setdefault(name.lower(), []).append(value.strip(" \t"))
    hosts = len(headers.get("host", []))
    if hosts > 1 or (not hosts and version == "HTTP/1.1"):
        raise RejectedRequest(HTTPStatus.BAD_REQUEST, "The request must have exactly one Host header.")
    return Request(method, target.partition("?")[0], headers)


def is_loopback_host(value: str, names: Iterable[str]) -> bool:
    """Decide whether a Host header names this machine's loopback interface.

    A page of a foreign site can have its own name resolve to 127.0.0.1 (DNS rebinding). The browser then sends that
    name as Host. The port is ignored: a tunnel may listen on a different one.

    value: `localhost:9400`, `127.0.0.1`, `[::1]:9400`.
    names: names and addresses that are allowed besides `localhost` and all loopback addresses.
    """
    if value.startswith("["):
        host, bracket, rest = value[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            return False
        port = rest[1:]
    else:
        host, _, port = value.partition(":")
    if not _PORT.fullmatch(port):
        return False
    host = host.lower().removesuffix(".")
    if host == "localhost" or host in {name.lower().removesuffix(".") for name in names}:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def respond(head: bytes, registry: CollectorRegistry, names: Iterable[str] | None) -> bytes:
    """Return the response to a request's head.

    names: host names that are allowed besides those of the loopback interface; None allows every Host.
    """
    try:
        request = parse_request(head)
        _check_host(request, names)
        if request.path != PATH:
            raise RejectedRequest(HTTPStatus.NOT_FOUND, f"The metrics are at {PATH}.")
        if request.method not in METHODS:
            raise RejectedRequest(HTTPStatus.METHOD_NOT_ALLOWED, "Use GET or HEAD.")
    except RejectedRequest as rejected:
        return refuse(rejected.status, rejected.reason, with_body=not head.startswith(b"HEAD "))
    content_type, page = _encode(registry, ", ".join(request.headers.get("accept", [])))
    return _response(HTTPStatus.OK, content_type, page, with_body=request.method != "HEAD")


def refuse(status: HTTPStatus, reason: str, *, with_body: bool = True) -> bytes:
    """Return an error response."""
    return _response(status, TEXT, f"{reason}\n".encode(), with_body=with_body)


def _check_host(request: Request, names: Iterable[str] | None) -> None:
    hosts = request.headers.get("host", [])
    if names is not None and not all(is_loopback_host(host, names) for host in hosts):
        raise RejectedRequest(
            HTTPStatus.MISDIRECTED_REQUEST, "The Host header is not a name of this server: use localhost or 127.0.0.1."
        )


def _encode(registry: CollectorRegistry, accept: str) -> tuple[str, bytes]:
    try:
        encode, content_type = choose_encoder(accept)
    except (TypeError, ValueError):  # prometheus_client compares any version that a client names with a number
        encode, content_type = choose_encoder("")
    return content_type, encode(registry)


def _response(status: HTTPStatus, content_type: str, body: bytes, *, with_body: bool) -> bytes:
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Date: {formatdate(usegmt=True)}",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append(f"Allow: {', '.join(METHODS)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body if with_body else b"")
