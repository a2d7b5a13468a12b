"""What uploads over HTTP share: requests that are made by hand, made again where that helps, and answers in XML."""

from __future__ import annotations

import errno
import time
import urllib.error
import urllib.request
import xml.etree.ElementTree as ElementTree
from abc import abstractmethod
from collections.abc import Mapping
from http.client import HTTPException
from typing import ClassVar, NamedTuple
from urllib.parse import urlsplit

from formats.errors import FormatError, NotFound, Unreachable
from formats.storage.contract import REACH
from formats.storage.objects import RETRY, bucket_of
from formats.storage.uploads import Uploads

SECONDS = 120.0
"""Without a byte from the server, after which a request is made again."""
TRY_AGAIN = {408, 429, 500, 502, 503, 504}
AGAIN_SECONDS, MOST_SECONDS = 0.1, 5.0


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
    ) -> Answer:  # fmt: skip
        """What the server answers, outcomes that are no errors among them. path: None for the bucket itself; tries: at
        most so many, None for as many as a store makes."""
        tries = int(RETRY["max_retries"]) + 1 if tries is None else tries
        error: Exception | None = None
        host = ""
        for n in range(tries):
            if n:
                time.sleep(min(MOST_SECONDS, AGAIN_SECONDS * 2**n))
            request = self._request(method, path, query, body, headers or {})
            host = urlsplit(request.full_url).netloc
            try:
                answer = _answer(request)
            except (OSError, HTTPException) as failed:
                error = failed
                continue
            if answer.status in TRY_AGAIN or answer.code in self.try_again:
                error = OSError(f"status {answer.status}, {answer.code or 'without a reason'}")
                continue
            self._check(answer, path)
            return answer
        raise Unreachable(f"{host} does not answer, tried {tries} times: {error}", path=self.root, hint=REACH)

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


def _answer(request: urllib.request.Request) -> Answer:
    try:
        with _opener.open(request, timeout=SECONDS) as reply:
            return Answer.of(reply.status, dict(reply.headers), reply.read())
    except urllib.error.HTTPError as reply:
        with reply:
            return Answer.of(reply.code, dict(reply.headers), reply.read())
