"""One set of tests for every place that a store can lie in."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.objects.fixtures import SERVERS, Servers, use
from tests.support.objects.places import Place, bucket_place, local_place, memory_place


@pytest.fixture(
    params=["local", "memory", *(pytest.param(name, marks=pytest.mark.integration) for name in SERVERS)]
)
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    if request.param == "local":
        return local_place(tmp_path / "root")
    if request.param == "memory":
        return memory_place()
    servers: Servers = request.getfixturevalue("servers")
    return bucket_place(use(servers.get(request.param), monkeypatch))


@pytest.fixture
def shared(place: Place) -> Place:
    """A place that other processes see."""
    if place.root is None:
        pytest.skip("no other process sees this one's memory")
    return place


@pytest.fixture
def served(place: Place) -> Place:
    """A place that a server has."""
    if place.server is None:
        pytest.skip("no server has it")
    return place


LENT = {"AccessKeyId": "lent", "SecretAccessKey": "s", "Token": "t", "Expiration": "2099-01-01T00:00:00Z"}


@pytest.fixture
def lender() -> Iterator[tuple[str, list[tuple[str, str, dict[str, str]]]]]:
    """What lends keys on a machine, in a container and for a web identity, as AWS documents each; what it was asked."""
    # A form stands behind the path, as a query does.
    asked: list[tuple[str, str, dict[str, str]]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def _answer(self) -> None:
            form = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            path = f"{self.path}?{form}" if form else self.path
            asked.append((self.command, path, {name.lower(): value for name, value in self.headers.items()}))
            answers: dict[str, Callable[[], str]] = {
                "/latest/api/token": lambda: "a token",
                "/latest/meta-data/iam/security-credentials/": lambda: "role",
                "/latest/meta-data/iam/security-credentials/role": lambda: json.dumps(LENT),
                "/container": lambda: json.dumps(LENT),
                "/tenant/oauth2/v2.0/token": lambda: json.dumps({"access_token": "of a client", "expires_in": 3599}),
                "/metadata/identity/oauth2/token": lambda: json.dumps(
                    {"access_token": "of a machine", "expires_on": "4102444800"}
                ),
                "/": lambda: (
                    '<R xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Credentials><AccessKeyId>lent</AccessKeyId>'
                    "<SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>"
                    "<Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></R>"
                ),
            }
            answer = answers.get(self.path.partition("?")[0])
            body = answer().encode() if answer else b""
            self.send_response(200 if answer else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_POST = _answer

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
