"""Uploads to S3 in parts: begun, filled, completed or given up by whoever knows an upload's id, long after.

obstore uploads in parts, too, and names no upload: what one process has begun no other can complete. These few
requests are made here, signed with the keys and sent to the place that the store in a bucket uses (`credentials`).
"""

from __future__ import annotations

import errno
import os
import time
import urllib.error
import urllib.request
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from http.client import HTTPException
from typing import NamedTuple
from urllib.parse import urlsplit
from xml.sax.saxutils import escape

from formats.errors import Damaged, FormatError, NotFound, Unreachable
from formats.storage.contract import REACH, check_path
from formats.storage.credentials import s3_settings
from formats.storage.objects import IDENTITY, RETRY, bucket_of
from formats.storage.roles import s3_keys
from formats.storage.signing import path_of, query_of, signed

SECONDS = 120.0
"""Without a byte from the server, after which a request is made again."""
TRY_AGAIN = {408, 429, 500, 502, 503, 504}
TRY_AGAIN_CODES = {"OperationAborted", "RequestTimeout", "InternalError", "SlowDown", "ServiceUnavailable"}
"""Of S3's errors, some of which stand in an answer of status 200 or 400, or come while another completes the same."""
AGAIN_SECONDS, MOST_SECONDS = 0.1, 5.0


class Upload(NamedTuple):
    """One that is neither completed nor given up. path: of the object that it would become; begun: by the server's
    clock, in seconds since 1970."""

    path: str
    id: str
    begun: float


class Uploads:
    """Those below a place in a bucket of S3 or what speaks it. Paths are relative to the place.

    Raises Unreachable, PermissionError, NotFound where there is no such bucket, and FormatError where no keys are
    known.
    """

    def __init__(self, uri: str) -> None:
        self.root = uri.rstrip("/")
        self._bucket = bucket_of(uri)
        self._lead = f"{self._bucket.prefix}/" if self._bucket.prefix else ""

    def begin(self, path: str, identity: str) -> str:
        """The id of a new upload. identity: what the object will say of itself (`ObjectStorage.identity`)."""
        headers = {f"x-amz-meta-{IDENTITY}": identity, "content-type": "application/x-ndjson"}
        answer = self._ask("POST", path, {"uploads": ""}, headers=headers)
        if id := _text(answer.xml, "UploadId"):
            return id
        raise Unreachable("answers a new upload without an id", path=self.root, hint=REACH)

    def put(self, path: str, id: str, number: int, data: bytes) -> str:
        """Put one part, numbered from 1; all but the last have 5 MiB at least. What says which bytes these are."""
        # Without a type urllib says that of a form.
        headers = {"content-type": "application/octet-stream"}
        answer = self._ask("PUT", path, {"partNumber": str(number), "uploadId": id}, body=data, headers=headers)
        if answer.code == "NoSuchUpload":
            raise NotFound(f"there is no upload {id} any more: it was given up", path=self._where(path))
        return answer.etag

    def complete(self, path: str, id: str, etags: Sequence[str]) -> bool:
        """Make the object of these parts appear; False if there is no such upload, or not any more.

        Damaged where the parts are other ones.
        """
        parts = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{escape(etag)}</ETag></Part>"
            for number, etag in enumerate(etags, 1)
        )
        body = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
        headers = {"content-type": "application/xml"}
        try:
            answer = self._ask("POST", path, {"uploadId": id}, body=body, headers=headers, tries=2)
        except Unreachable:
            # RGW has an internal error of an upload that was given up, and may have one of another kind.
            if self.size(path, id) is None:
                return False
            answer = self._ask("POST", path, {"uploadId": id}, body=body, headers=headers)
        if answer.code in ("InvalidPart", "InvalidPartOrder", "EntityTooSmall"):
            raise Damaged(f"upload {id} does not have the parts that were put: {answer.code}", path=self._where(path))
        return answer.code != "NoSuchUpload"

    def abort(self, path: str, id: str) -> None:
        """Give it up; nothing if there is no such upload."""
        self._ask("DELETE", path, {"uploadId": id})

    def size(self, path: str, id: str) -> int | None:
        """How many bytes its parts have so far; None if there is no such upload."""
        size = 0
        marker: dict[str, str] = {}
        while True:
            answer = self._ask("GET", path, {"uploadId": id, **marker})
            if answer.code == "NoSuchUpload" or answer.xml is None:
                return None
            size += sum(int(_text(part, "Size") or 0) for part in answer.xml.iterfind("{*}Part"))
            if _text(answer.xml, "IsTruncated") != "true":
                return size
            marker = {"part-number-marker": _text(answer.xml, "NextPartNumberMarker")}

    def below(self) -> list[Upload]:
        """All below the place, in the order of their paths."""
        uploads: list[Upload] = []
        marker: dict[str, str] = {}
        while True:
            answer = self._ask("GET", None, {"uploads": "", "prefix": self._lead, **marker})
            for one in answer.xml.iterfind("{*}Upload") if answer.xml is not None else ():
                key = _text(one, "Key")
                if key.startswith(self._lead):
                    begun = datetime.fromisoformat(_text(one, "Initiated")).timestamp()
                    uploads.append(Upload(key[len(self._lead) :], _text(one, "UploadId"), begun))
            if _text(answer.xml, "IsTruncated") != "true":
                return uploads
            after = _text(answer.xml, "NextKeyMarker"), _text(answer.xml, "NextUploadIdMarker")
            marker = {"key-marker": after[0], "upload-id-marker": after[1]}

    def _ask(
        self, method: str, path: str | None, query: Mapping[str, str], *,
        body: bytes = b"", headers: Mapping[str, str] | None = None, tries: int | None = None,
    ) -> _Answer:  # fmt: skip
        """What the server answers, also that there is no such upload. path: None for the bucket itself; tries: at most
        so many, None for as many as a store makes."""
        tries = int(RETRY["max_retries"]) + 1 if tries is None else tries
        error: Exception | None = None
        for n in range(tries):
            if n:
                time.sleep(min(MOST_SECONDS, AGAIN_SECONDS * 2**n))
            try:
                answer = self._ask_once(method, path, query, body, headers or {})
            except (OSError, HTTPException) as failed:
                error = failed
                continue
            if answer.status in TRY_AGAIN or answer.code in TRY_AGAIN_CODES:
                error = OSError(f"status {answer.status}, {answer.code or 'without a reason'}")
                continue
            if answer.code == "NoSuchKey":  # RGW, of an upload that is not there
                answer = answer._replace(code="NoSuchUpload")
            self._check(answer, path)
            return answer
        host = urlsplit(self._address()[0]).netloc
        raise Unreachable(f"{host} does not answer, tried {tries} times: {error}", path=self.root, hint=REACH)

    def _ask_once(
        self, method: str, path: str | None, query: Mapping[str, str], body: bytes, headers: Mapping[str, str]
    ) -> _Answer:
        endpoint, region = self._address()
        url = urlsplit(endpoint)
        place = url.path.rstrip("/")
        if path is not None:
            place += "/" + path_of(self._lead + check_path(path))
        keys = s3_keys(os.environ, self._bucket.name)
        sends = signed(method, url.netloc, place or "/", query, headers, body, keys=keys, region=region,
                       at=datetime.now(UTC))  # fmt: skip
        request = urllib.request.Request(
            f"{url.scheme}://{url.netloc}{place or '/'}?{query_of(query)}",
            method=method,
            headers=sends,
            # An empty body where one is due has to be said: RGW refuses a request without its length.
            data=body if method in ("POST", "PUT") else None,
        )
        try:
            with _opener.open(request, timeout=SECONDS) as reply:
                return _Answer.of(reply.status, reply.headers.get("ETag", ""), reply.read())
        except urllib.error.HTTPError as reply:
            with reply:
                return _Answer.of(reply.code, "", reply.read())

    def _address(self) -> tuple[str, str]:
        """Where the bucket is, with its scheme; and the region."""
        settings = s3_settings(os.environ, self._bucket.name)
        region = settings.get("region") or os.environ.get("AWS_REGION") or "us-east-1"
        own_host = os.environ.get("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "").lower() in ("1", "true")
        endpoint = settings.get("endpoint")
        if own_host:  # as obstore has it: an endpoint that is named is the bucket's then
            return endpoint or f"https://{self._bucket.name}.s3.{region}.amazonaws.com", region
        return f"{(endpoint or f'https://s3.{region}.amazonaws.com').rstrip('/')}/{self._bucket.name}", region

    def _check(self, answer: _Answer, path: str | None) -> None:
        if answer.code == "NoSuchBucket":
            raise NotFound(f"there is no bucket {self._bucket.name!r}", path=self.root, hint=REACH)
        if answer.code in ("NoSuchUpload", "InvalidPart", "InvalidPartOrder", "EntityTooSmall"):
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


class _Answer(NamedTuple):
    """What a server has answered. code, message: of S3's errors, empty where there is none."""

    status: int
    etag: str
    xml: ElementTree.Element | None
    code: str
    message: str

    @staticmethod
    def of(status: int, etag: str, body: bytes) -> _Answer:
        try:
            xml = ElementTree.fromstring(body) if body.lstrip().startswith(b"<") else None
        except ElementTree.ParseError:
            xml = None
        is_error = xml is not None and xml.tag.rpartition("}")[2] == "Error"
        code = _text(xml, "Code") if is_error else str(status) if status >= 300 else ""
        return _Answer(status, etag, xml, code, _text(xml, "Message") if is_error else "")


def _text(xml: ElementTree.Element | None, name: str) -> str:
    """The text of a child, whatever its namespace; empty where there is none."""
    return (xml.findtext(f"{{*}}{name}") or "") if xml is not None else ""


class _Stays(urllib.request.HTTPRedirectHandler):
    """Follows nobody: what is signed for one server is for no other."""

    def redirect_request(self, *arguments: object) -> None:
        return None


_opener = urllib.request.build_opener(_Stays)
