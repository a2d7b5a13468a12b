"""WebHDFS: how NameNodes and DataNodes are asked over HTTP, again where a reply was lost.

A NameNode answers what concerns names; for bytes it answers with the address of a DataNode. Of several NameNodes the
active one is looked for. Whoever is asked twice may have done the first time what it says it cannot do now: the caller
finds out.
"""

from __future__ import annotations

import contextlib
import functools
import json
import threading
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from formats.errors import Unreachable
from formats.redaction import redact_error

if TYPE_CHECKING:
    import http.client

PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0)
"""Seconds before a NameNode is asked once more."""
CONNECT_SECONDS, REPLY_SECONDS = 10.0, 300.0
"""A reply may take as long as a DataNode needs for a state file of hundreds of megabytes."""
IDLE = 32
"""Connections to one server that are kept open."""
FOR_NOW = frozenset({"StandbyException", "RetriableException", "SafeModeException", "ObserverRetryOnActiveException"})
"""A NameNode that says so may say otherwise soon, or another does."""
KERBEROS = "this HDFS wants Kerberos or a delegation token, neither of which abs has; simple authentication is spoken"

_PREFIX = "/webhdfs/v1"

Body = memoryview | Iterable[bytes] | None


class Fault(Exception):
    """What a server refused, by the name of its Java exception and in its words."""

    def __init__(self, status: int, name: str, message: str) -> None:
        self.status, self.name = status, name
        super().__init__(message)


class NoReply(Exception):
    """A DataNode could not be asked, or its reply was lost. node: HOST:PORT."""

    def __init__(self, node: str, error: Exception) -> None:
        self.node = node
        super().__init__(f"{node}: {redact_error(error)}")


class Reply(NamedTuple):
    """status: of HTTP; where: it leads to, for bytes."""

    status: int
    where: str
    data: bytes

    def json(self) -> dict[str, Any]:
        """What it says; empty where it says nothing."""
        answer = json.loads(self.data or b"{}")
        return answer if isinstance(answer, dict) else {}


def user_name(environment: Mapping[str, str]) -> str:
    """Who asks, as Hadoop's clients find it out."""
    import getpass

    return environment.get("HADOOP_USER_NAME") or environment.get("SPARK_USER") or getpass.getuser()


class NameNodes:
    """The NameNodes of one HDFS, and its DataNodes through them. user: by simple authentication."""

    def __init__(self, addresses: tuple[tuple[str, int], ...], user: str) -> None:
        self._addresses, self._user = addresses, user
        self._active = 0
        self._lock = threading.Lock()
        self._idle: dict[tuple[str, str, int], list[http.client.HTTPConnection]] = {}

    def close(self) -> None:
        """End the connections that nobody uses."""
        with self._lock:
            for idle in self._idle.values():
                while idle:
                    idle.pop().close()

    __del__ = close

    @property
    def address(self) -> str:
        """Of the one that was asked last."""
        host, port = self._addresses[self._active]
        return f"{host}:{port}"

    def ask(self, method: str, path: str, operation: str, **options: str) -> Reply:
        """What the active NameNode answers about an absolute path; Fault, or Unreachable where none answers."""
        from http.client import HTTPException

        words = urlencode({"op": operation, **options, "user.name": self._user}, quote_via=quote)
        url = f"{_PREFIX}{quote(path)}?{words}"
        problem: Exception | None = None
        for pause in (0.0, *PAUSES):
            time.sleep(pause)
            for _ in self._addresses:
                try:
                    return self._request("http", *self._addresses[self._active], method, url, None)
                except Fault as fault:
                    if fault.name not in FOR_NOW:
                        raise
                    problem = fault
                except (OSError, HTTPException) as error:
                    problem = error
                self._active = (self._active + 1) % len(self._addresses)
        assert problem is not None
        raise Unreachable(f"no answer from {self.address}: {redact_error(problem)}")

    def go(self, method: str, path: str, where: str, body: Body = None) -> Reply:
        """What a DataNode answers that a NameNode has led to; Fault, NoReply."""
        from http.client import HTTPException

        place = urlsplit(where)
        # Java's URIs compose accents: the path that came back may be that of another file.
        lead = place.path.partition(_PREFIX)[0]
        url = f"{lead}{_PREFIX}{quote(path)}?{place.query}"
        try:
            return self._request(place.scheme, place.hostname or "", place.port or 80, method, url, body)
        except (OSError, HTTPException) as error:
            raise NoReply(place.netloc, error) from None

    def _request(self, scheme: str, host: str, port: int, method: str, url: str, body: Body) -> Reply:
        place = scheme, host, port
        with self._lock:
            idle = self._idle.setdefault(place, [])
            connection = idle.pop() if idle and body is None else None
        if connection is not None:
            with contextlib.suppress(ConnectionError):
                return self._over(connection, place, method, url, body)
            self.close()  # the server has ended it meanwhile, and very likely the others
        return self._over(_connected(*place), place, method, url, body)

    def _over(
        self, connection: http.client.HTTPConnection, place: tuple[str, str, int], method: str, url: str, body: Body
    ) -> Reply:
        try:
            headers = {"Content-Type": "application/octet-stream"} if body is not None else {}
            if isinstance(body, memoryview):
                headers["Content-Length"] = str(body.nbytes)
            connection.request(method, url, body, headers)
            response = connection.getresponse()
            reply = Reply(response.status, response.headers.get("Location", ""), response.read())
        except BaseException:
            connection.close()
            raise
        with self._lock:
            if not response.will_close and len(self._idle[place]) < IDLE:
                self._idle[place].append(connection)
            else:
                connection.close()
        if reply.status >= 400:
            raise _fault(reply, response.reason)
        return reply


def _connected(scheme: str, host: str, port: int) -> http.client.HTTPConnection:
    from http.client import HTTPConnection, HTTPSConnection

    connection = (HTTPSConnection if scheme == "https" else HTTPConnection)(host, port, timeout=CONNECT_SECONDS)
    connection.connect()
    connection.sock.settimeout(REPLY_SECONDS)
    return connection


def _fault(reply: Reply, reason: str) -> Fault:
    with contextlib.suppress(ValueError, AttributeError):
        refusal = reply.json().get("RemoteException", {})
        if refusal.get("exception"):
            words = redact_error(Exception(str(refusal.get("message", ""))))
            return Fault(reply.status, str(refusal["exception"]), words)
    if reply.status == 401:
        return Fault(401, "AccessControlException", KERBEROS)
    if reply.status in (502, 503, 504):
        return Fault(reply.status, "RetriableException", f"{reply.status} {reason}")
    return Fault(reply.status, "", f"{reply.status} {reason}")


@functools.lru_cache(maxsize=8)
def name_nodes_of(addresses: tuple[tuple[str, int], ...], user: str, process: int) -> NameNodes:
    """Shared by all that lies there: connections stay open. process: a forked child cannot use its parent's."""
    return NameNodes(addresses, user)
