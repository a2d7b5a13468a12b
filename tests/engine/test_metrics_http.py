"""Requests to the metrics server that are valid, malformed or foreign, and the responses that they get."""

from __future__ import annotations

import time
from email.parser import BytesParser
from http import HTTPStatus

import pytest
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, generate_latest
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from abscli.engine.telemetry.metrics_http import RejectedRequest, is_loopback_host, parse_request, respond

OPENMETRICS = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain"
"""What Prometheus sends."""


def registry() -> CollectorRegistry:
    made = CollectorRegistry()
    Gauge("depth", "A depth.", registry=made).set(7)
    return made


def answer(head: str, names: list[str] | None = None) -> tuple[int, dict[str, str], bytes]:
    """The status, the headers in lower case and the body of the response."""
    response = respond(head.replace("\n", "\r\n").encode("latin-1"), registry(), names)
    first, _, rest = response.partition(b"\r\n")
    headers, _, body = rest.partition(b"\r\n\r\n")
    fields = {name.lower(): value for name, value in BytesParser().parsebytes(headers + b"\r\n\r\n").items()}
    assert first.startswith(b"HTTP/1.1 ")
    assert fields["connection"] == "close"
    return int(first.split()[1]), fields, body


def test_a_get_has_the_text_of_prometheus_client_and_its_length() -> None:
    status, headers, body = answer("GET /metrics HTTP/1.1\nHost: localhost")
    assert (status, body) == (200, generate_latest(registry()))
    assert headers["content-type"] == choose_encoder("")[1]
    assert headers["content-length"] == str(len(body))


def test_a_head_has_the_headers_of_a_get_and_no_body() -> None:
    got, headed = answer("GET /metrics HTTP/1.1\nHost: h"), answer("HEAD /metrics HTTP/1.1\nHost: h")
    assert (headed[0], headed[1]["content-length"], headed[2]) == (200, got[1]["content-length"], b"")


def test_the_accept_header_of_prometheus_gets_openmetrics() -> None:
    status, headers, body = answer(f"GET /metrics HTTP/1.1\nHost: h\nAccept: {OPENMETRICS}")
    assert (status, body) == (200, generate_openmetrics(registry()))
    assert headers["content-type"] == choose_encoder(OPENMETRICS)[1]
    assert "openmetrics" in headers["content-type"]


@pytest.mark.parametrize("version", ["abc", "9" * 5000, "\xe9", "1..0"])
def test_a_version_that_prometheus_client_cannot_compare_gets_a_page_all_the_same(version: str) -> None:
    status, _, body = answer(f"GET /metrics HTTP/1.1\nHost: h\nAccept: application/openmetrics-text;version={version}")
    assert status == 200
    assert b"depth 7.0" in body


@pytest.mark.parametrize("target", ["/metrics?name[]=depth", "/metrics?"])
def test_a_query_is_ignored(target: str) -> None:
    assert answer(f"GET {target} HTTP/1.1\nHost: h")[0] == 200


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("GET / HTTP/1.1\nHost: h", 404),
        ("GET /metrics/ HTTP/1.1\nHost: h", 404),
        ("GET http://h/metrics HTTP/1.1\nHost: h", 404),
        ("POST /metrics HTTP/1.1\nHost: h", 405),
        ("OPTIONS /metrics HTTP/1.1\nHost: h", 405),
        ("PRI * HTTP/2.0\n", 505),
        ("GET /metrics", 400),
        ("GET  /metrics HTTP/1.1\nHost: h", 400),
        ("GET /metrics SMTP/1.1\nHost: h", 400),
        ("G(T /metrics HTTP/1.1\nHost: h", 400),
        ("GET /metrics HTTP/1.1", 400),
        ("GET /metrics HTTP/1.1\nHost: h\nHost: h", 400),
        ("GET /metrics HTTP/1.1\nHost : h", 400),
        ("GET /metrics HTTP/1.1\nHost: h\n folded", 400),
        ("GET /metrics HTTP/1.1\nHost: h\nno colon", 400),
        ("GET /metrics HTTP/1.1\nHost: h\n: no name", 400),
        ("GET /metrics HTTP/1.1\nHost: h\nX: a\0b", 400),
        ("GET /metrics HTTP/1.1\nHost: h\nX: a\rSet-Cookie: b", 400),
    ],
)
def test_a_request_that_is_not_a_scrape_gets_its_status(head: str, status: int) -> None:
    got, headers, body = answer(head)
    assert got == status
    assert body.endswith(b".\n")
    assert headers.get("allow") == ("GET, HEAD" if status == 405 else None)


def test_an_error_has_no_body_for_a_head() -> None:
    status, headers, body = answer("HEAD /other HTTP/1.1\nHost: h")
    assert (status, body) == (404, b"")
    assert int(headers["content-length"]) > 0


def test_http_1_0_needs_no_host() -> None:
    assert answer("GET /metrics HTTP/1.0", ["127.0.0.1"])[0] == 200


def test_headers_of_one_name_are_kept_apart_and_names_are_in_lower_case() -> None:
    request = parse_request(b"GET /metrics?x HTTP/1.1\r\nHost: h\r\nACCEPT: a\r\naccept:b\t")
    assert (request.method, request.path, request.headers["accept"]) == ("GET", "/metrics", ["a", "b"])


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:9400", "localhost.", "127.0.0.1", "127.0.0.1:9400", "127.9.9.9:1", "[::1]", "[::1]:9400",
     "myhost:9400", "MyHost."],
)  # fmt: skip
def test_hosts_that_name_the_loopback_interface_are_answered(host: str) -> None:
    assert answer(f"GET /metrics HTTP/1.1\nHost: {host}", ["Myhost"])[0] == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:9400", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "[::2]:9400",
     "[::1", "[::1]x", "[localhost]:x", "localhost:x", "", "user@localhost", "localhost:9400:9400", "::1"],
)  # fmt: skip
def test_foreign_hosts_are_refused_on_the_loopback_interface_alone(host: str) -> None:
    status, _, body = answer(f"GET /metrics HTTP/1.1\nHost: {host}", ["127.0.0.1"])
    assert status == HTTPStatus.MISDIRECTED_REQUEST
    assert b"depth" not in body
    assert answer(f"GET /metrics HTTP/1.1\nHost: {host}")[0] == 200


@pytest.mark.parametrize("piece", ["X: y\r\n", "a", ":", ",", ";", "[", "\r\n", " ", "\t", ".", "1."])
def test_parsing_takes_linear_time(piece: str) -> None:
    """A thousand times as much as the server lets in takes less than a second of CPU time."""
    head = f"GET /metrics HTTP/1.1\r\nHost: {piece}".encode() + piece.encode() * 1_000_000
    before = time.process_time()
    try:
        request = parse_request(head)
    except RejectedRequest:
        pass
    else:
        is_loopback_host(request.headers["host"][0], ["localhost"])
    assert time.process_time() - before < 5


def test_the_content_type_is_known_to_prometheus_client() -> None:
    assert CONTENT_TYPE_LATEST.startswith("text/plain")
