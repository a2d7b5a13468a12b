"""What uploads over HTTP share: requests that are made by hand, made again where that helps, and answers in XML."""

from __future__ import annotations

import errno
import os
import socket
import urllib.error
import urllib.request
import xml.etree.ElementTree as ElementTree
from abc import abstractmethod
from collections.abc import Mapping
from http.client import HTTPException, responses
from typing import ClassVar, NamedTuple
from urllib.parse import urlsplit

from formats.errors import FormatError, NotFound
from formats.storage.contract import REACH
from formats.storage.places import bucket_of
from formats.storage.retrying import (
    CONNECT,
    CUT,
    TIMEOUT,
    TRY_AGAIN,
    Failure,
    NoReply,
    deadline,
    retries_of,
    retry_after,
)
from formats.storage.uploads import Uploads


class HttpUploads(Uploads):
    """Those that the client of the store in a bucket does not make: to the place that it uses and with the same
    credentials.

    no_bucket: the error's code where there is no such bucket; outcomes: those that are no errors here; try_again: those
    of a request that is made again, whatever its status.
    """

    no_bucket: ClassVar[str]
    outcomes: ClassVar[frozenset[str]]
    try_again: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self._bucket = bucket_of(uri)
        self._lead = f"{self._bucket.prefix}/" if self._bucket.prefix else ""

    @abstractmethod
    def _request(
        self, method: str, path: str | None, query: Mapping[str, str], body: bytes | memoryview,
        headers: Mapping[str, str],
    ) -> urllib.request.Request:  # fmt: skip
        """What is sent, with what lets us in. path: None for the bucket itself."""

    def _ask(
        self, method: str, path: str | None, query: Mapping[str, str], *,
        body: bytes | memoryview = b"", headers: Mapping[str, str] | None = None, tries: int | None = None,
        completes: bool = False,
    ) -> Answer:  # fmt: skip
        """Return what the server answers, outcomes that are no errors among them.

        path: None for the bucket itself.
        tries: the most that are made; None for as many as the budget of an outage allows.
        completes: whether the server assembles an object before it replies.
        """
        seconds = deadline(len(body), copies=completes)

        def request() -> Answer:
            made = self._request(method, path, query, body, headers or {})
            host = urlsplit(made.full_url).netloc
            try:
                answer = _answer(made, seconds)
            except (OSError, HTTPException) as error:
                raise NoReply(_failure(host, error)) from None
            if answer.status in TRY_AGAIN or answer.code in self.try_again:
                reason = f"{host}: {answer.status} {responses.get(answer.status, '')} ({answer.code})"
                kind = answer.status if answer.status in TRY_AGAIN else 503
                raise NoReply(Failure(reason, kind, retry_after(answer.headers.get("retry-after"))))
            self._check(answer, path)
            return answer

        return retries_of(f"{self._bucket.kind}://{self._bucket.name}", os.getpid()).ask(
            request, tries=tries, seconds=seconds
        )

    def _check(self, answer: Answer, path: str | None) -> None:
        if answer.code == self.no_bucket:
            raise NotFound(f"there is no bucket {self._bucket.name!r}", path=self.root, hint=REACH)
        if answer.code in self.outcomes:
            return
        if answer.status in (401, 403):
            raise PermissionError(errno.EACCES, f"is refused: {answer.code}", self._where(path))
        if answer.status >= 300 or answer.code:
            raise FormatError(
                f"the server answers {answer.status}, {answer.code or 'without a reason'}: {answer.message}",
                path=self._where(path), hint=REACH,
            )  # fmt: skip

    def _where(self, path: str | None) -> str:
        return f"{self.root}/{path}" if path else self.root


class Answer(NamedTuple):
    """What a server has answered. headers: by their names in lower case; code, message: of errors, empty where there is
    none."""

    status: int
    headers: Mapping[str, str]
    xml: ElementTree.Element | None
    code: str
    message: str

    @staticmethod
    def of(status: int, headers: Mapping[str, str], body: bytes) -> Answer:
        lower = {name.lower(): value for name, value in headers.items()}
        try:
            # Azure's begin with a byte order mark.
            xml = ElementTree.fromstring(body) if body.lstrip(b"\xef\xbb\xbf \r\n").startswith(b"<") else None
        except ElementTree.ParseError:
            xml = None
        is_error = xml is not None and xml.tag.rpartition("}")[2] == "Error"
        code = text(xml, "Code") if is_error else ""
        if not code and status >= 300:  # what is asked by HEAD is answered without a body
            code = lower.get("x-ms-error-code") or str(status)
        return Answer(status, lower, xml, code, text(xml, "Message").partition("\n")[0] if is_error else "")


def text(xml: ElementTree.Element | None, name: str) -> str:
    """The text of a child, whatever its namespace; empty where there is none."""
    return (xml.findtext(f"{{*}}{name}") or "") if xml is not None else ""


class _Stays(urllib.request.HTTPRedirectHandler):
    """Follows nobody: what is signed for one server is for no other."""

    def redirect_request(self, *arguments: object) -> None:
        return None


_opener = urllib.request.build_opener(_Stays)


def _answer(request: urllib.request.Request, seconds: float) -> Answer:
    """Return the reply to a request. seconds: for a connection, for sending the body, and without a byte."""
    try:
        with _opener.open(request, timeout=seconds) as reply:
            return Answer.of(reply.status, dict(reply.headers), reply.read())
    except urllib.error.HTTPError as reply:
        with reply:
            return Answer.of(reply.code, dict(reply.headers), reply.read())


def _failure(host: str, error: Exception) -> Failure:
    """Return how a request failed to which no whole answer came."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, TimeoutError):
        return Failure(f"{host}: no reply in time", TIMEOUT)
    is_connect = isinstance(cause, (ConnectionRefusedError, socket.gaierror))
    words = (cause.strerror if isinstance(cause, OSError) else None) or str(cause) or type(cause).__name__
    return Failure(f"{host}: {words}", CONNECT if is_connect else CUT)
