"""A proxy of HTTP/1.1 on loopback between a client and an object store: it counts, delays and loses replies, answers
with errors, and lists late."""

from __future__ import annotations

import contextlib
import enum
import http.client
import random
import re
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_OF_ONE_CONNECTION = {"connection", "keep-alive", "transfer-encoding", "expect"}
_ELSEWHERE = re.compile(r"/@(\d+)(/.*)")
_LIST = re.compile(r"[?&](list-type=2|comp=list|prefix=|uploads)")


class Fault(enum.Enum):
    """The answer that replaces a lost reply."""

    CLOSED = "a closed connection"
    ERROR = "the status 500"
    SILENCE = "nothing until it gives up"


class Proxy:
    """A proxy that runs.

    delay: seconds that each request takes longer.
    lose_every: every n-th reply to a put is lost, after the server has done what was asked; 0: none.
    loses_of: the methods that count as puts.
    fault: what comes instead.
    lists_late: seconds for which the reply to a list is repeated.
    lists_old: the share of lists that are answered as they were at some earlier time.
    down: no request comes through, and none is answered.
    status: answered to all requests in place of 0, without doing them; retry_after: what that says besides.
    hangs: how many of the next requests get no reply, of those whose method and URL contain hangs_at; has_done: the
    server does what they ask.
    late_share: of all requests, the share that take late_seconds longer.
    strip: headers of requests that do not come through, in lower case.
    requests: by method; urls: of all of them, in their order.
    lost: how many replies; refused: how many requests; stale: how many lists were old.
    """

    def __init__(self, port: int) -> None:
        self.delay = 0.0
        self.lose_every = 0
        self.loses_of = frozenset({"PUT"})
        self.fault = Fault.CLOSED
        self.lists_late = 0.0
        self.lists_old = 0.0
        self.random = random.Random()
        self.stale = 0
        self.down = False
        self.status = 0
        self.retry_after: str | None = None
        self.refused = 0
        self.hangs = 0
        self.hangs_at = re.compile("")
        self.has_done = False
        self.late_share, self.late_seconds = 0.0, 0.0
        self.strip: frozenset[str] = frozenset()
        self.requests: Counter[str] = Counter()
        self.urls: list[tuple[str, str]] = []
        self.lost = 0
        self._puts = 0
        self._old_lists: defaultdict[str, list[tuple[http.client.HTTPResponse, bytes]]] = defaultdict(list)
        self._lists: dict[str, tuple[float, http.client.HTTPResponse, bytes]] = {}
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self, port))
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])

    def loses(self, method: str, url: str) -> bool:
        """Count a request; whether its reply is to be lost."""
        with self._lock:
            self.requests[method] += 1
            self.urls.append((method, url))
            if method not in self.loses_of or not self.lose_every:
                return False
            self._puts += 1
            lost = self._puts % self.lose_every == 0
            self.lost += lost
            return lost

    def listed(
        self, method: str, url: str, reply: http.client.HTTPResponse, data: bytes
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """Return the reply to a list, which may be an older one."""
        if method != "GET" or not (self.lists_late or self.lists_old) or not _LIST.search(url):
            return reply, data
        with self._lock:
            if self.lists_old:
                older = self._old_lists[url]
                older.append((reply, data))
                if self.random.random() >= self.lists_old:
                    return reply, data
                self.stale += 1
                return self.random.choice(older)
            at, *old = self._lists.get(url, (-self.lists_late, reply, data))
            if time.monotonic() - at < self.lists_late:
                self.stale += 1
                return old[0], old[1]
            self._lists[url] = time.monotonic(), reply, data
            return reply, data


def _handler(proxy: Proxy, port: int) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # With it the last packet of an answer waits for the acknowledgement of the one before: 40 ms a request.
        disable_nagle_algorithm = True
        wbufsize = -1

        def _pass(self) -> None:
            body = self._body()
            other = _ELSEWHERE.match(self.path)
            path, target = (other[2], int(other[1])) if other else (self.path, port)
            if proxy.delay:
                time.sleep(proxy.delay)
            if proxy.random.random() < proxy.late_share:
                time.sleep(proxy.late_seconds)
            if proxy.down:
                self.close_connection = True
                return
            hangs = proxy.hangs > 0 and proxy.hangs_at.search(f"{self.command} {self.path}") is not None
            proxy.hangs -= hangs
            if hangs and not proxy.has_done:
                self._hang()
                return
            if proxy.status:
                self._refuse()
                return
            loses = proxy.loses(self.command, self.path)
            server = http.client.HTTPConnection("127.0.0.1", target, timeout=120)
            try:
                headers = {
                    name: value
                    for name, value in self.headers.items()
                    if name.lower() not in _OF_ONE_CONNECTION | proxy.strip
                }
                server.request(self.command, path, body or None, headers)
                reply = server.getresponse()
                data = reply.read()
            finally:
                server.close()
            if hangs:
                self._hang()
                return
            if loses:
                self.close_connection = True
                if proxy.fault is Fault.ERROR:
                    self.send_error(500)
                elif proxy.fault is Fault.SILENCE:
                    self._hang()
                return
            reply, data = proxy.listed(self.command, self.path, reply, data)
            self.send_response_only(reply.status, reply.reason)
            length = reply.headers.get("Content-Length") if self.command == "HEAD" else None
            for name, value in reply.headers.items():
                if name.lower() == "location":  # of another server on loopback: it is reached through this one, too
                    value = re.sub(r"^http://127\.0\.0\.1:(\d+)", rf"http://127.0.0.1:{proxy.port}/@\1", value)
                if name.lower() not in _OF_ONE_CONNECTION | {"content-length"}:
                    self.send_header(name, value)
            self.send_header("Content-Length", length if length is not None else str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)
            self.wfile.flush()

        def _hang(self) -> None:
            """Wait until the client gives up."""
            self.close_connection = True
            self.connection.settimeout(120)
            self.connection.recv(1)

        def _refuse(self) -> None:
            proxy.refused += 1
            code = "InternalError" if proxy.status == 500 else "SlowDown"
            data = f"<Error><Code>{code}</Code><Message>Please reduce your request rate.</Message></Error>".encode()
            self.send_response_only(proxy.status)
            if proxy.retry_after is not None:
                self.send_header("Retry-After", proxy.retry_after)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _pass

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    return Handler


@contextlib.contextmanager
def proxy_to(port: int) -> Iterator[Proxy]:
    """While a proxy to a port of loopback runs."""
    proxy = Proxy(port)
    thread = threading.Thread(target=proxy._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy._server.shutdown()
        proxy._server.server_close()
        thread.join()
