"""Uploads to S3 and what speaks it: the server names each, and completes it under whatever has its name by then."""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from urllib.parse import urlsplit
from xml.sax.saxutils import escape

from formats.errors import Damaged, NotFound, Unreachable
from formats.storage.contract import REACH, check_path
from formats.storage.credentials import s3_settings
from formats.storage.http_uploads import HttpUploads, text
from formats.storage.s3.roles import s3_keys
from formats.storage.s3.signing import signed
from formats.storage.uploads import IDENTITY, Upload
from formats.storage.urls import path_of, query_of

GONE = frozenset({"NoSuchUpload", "NoSuchKey"})
"""The second is RGW's word, of an upload that is not there."""
OTHER_PARTS = frozenset({"InvalidPart", "InvalidPartOrder", "EntityTooSmall"})


class S3Uploads(HttpUploads):
    """Uploads to S3. media_type: the content type of each object."""

    no_bucket = "NoSuchBucket"
    outcomes = GONE | OTHER_PARTS
    # Some of which stand in an answer of status 200 or 400, or come while another completes the same.
    try_again = frozenset({"OperationAborted", "RequestTimeout", "InternalError", "SlowDown", "ServiceUnavailable"})

    def __init__(self, uri: str, *, media_type: str = "application/x-ndjson") -> None:
        super().__init__(uri)
        self._media_type = media_type

    def begin(self, path: str, identity: str) -> str:
        headers = {f"x-amz-meta-{IDENTITY}": identity, "content-type": self._media_type}
        answer = self._ask("POST", path, {"uploads": ""}, headers=headers)
        if id := text(answer.xml, "UploadId"):
            return id
        raise Unreachable("answers a new upload without an id", path=self.root, hint=REACH)

    def put(self, path: str, id: str, number: int, data: bytes | memoryview) -> str:
        # Without a type urllib says that of a form.
        headers = {"content-type": "application/octet-stream"}
        answer = self._ask("PUT", path, {"partNumber": str(number), "uploadId": id}, body=data, headers=headers)
        if answer.code in GONE:
            raise NotFound(f"there is no upload {id} any more: it was given up", path=self._where(path))
        return answer.headers.get("etag", "")

    def complete(self, path: str, id: str, etags: Sequence[str], identity: str) -> bool:
        parts = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{escape(etag)}</ETag></Part>"
            for number, etag in enumerate(etags, 1)
        )
        body = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
        headers = {"content-type": "application/xml"}
        try:
            answer = self._ask("POST", path, {"uploadId": id}, body=body, headers=headers, tries=2, completes=True)
        except Unreachable:
            # RGW has an internal error of an upload that was given up, and may have one of another kind.
            if self.size(path, id) is None:
                return False
            answer = self._ask("POST", path, {"uploadId": id}, body=body, headers=headers, completes=True)
        if answer.code in OTHER_PARTS:
            raise Damaged(f"upload {id} does not have the parts that were put: {answer.code}", path=self._where(path))
        return answer.code not in GONE

    def abort(self, path: str, ids: Collection[str]) -> None:
        for id in ids:
            self._ask("DELETE", path, {"uploadId": id})

    def size(self, path: str, id: str) -> int | None:
        size = 0
        marker: dict[str, str] = {}
        while True:
            answer = self._ask("GET", path, {"uploadId": id, **marker})
            if answer.code in GONE or answer.xml is None:
                return None
            size += sum(int(text(part, "Size") or 0) for part in answer.xml.iterfind("{*}Part"))
            if text(answer.xml, "IsTruncated") != "true":
                return size
            marker = {"part-number-marker": text(answer.xml, "NextPartNumberMarker")}

    def below(self) -> list[Upload]:
        uploads: list[Upload] = []
        marker: dict[str, str] = {}
        while True:
            answer = self._ask("GET", None, {"uploads": "", "prefix": self._lead, **marker})
            for one in answer.xml.iterfind("{*}Upload") if answer.xml is not None else ():
                key = text(one, "Key")
                if key.startswith(self._lead):
                    begun = datetime.fromisoformat(text(one, "Initiated")).timestamp()
                    uploads.append(Upload(key[len(self._lead) :], text(one, "UploadId"), begun))
            if text(answer.xml, "IsTruncated") != "true":
                return uploads
            after = text(answer.xml, "NextKeyMarker"), text(answer.xml, "NextUploadIdMarker")
            marker = {"key-marker": after[0], "upload-id-marker": after[1]}

    def _request(
        self, method: str, path: str | None, query: Mapping[str, str], body: bytes | memoryview,
        headers: Mapping[str, str],
    ) -> urllib.request.Request:  # fmt: skip
        endpoint, region = self._address()
        url = urlsplit(endpoint)
        place = url.path.rstrip("/")
        if path is not None:
            place += "/" + path_of(self._lead + check_path(path))
        keys = s3_keys(os.environ, self._bucket.name)
        sends = signed(method, url.netloc, place or "/", query, headers, body, keys=keys, region=region,
                       at=datetime.now(UTC))  # fmt: skip
        return urllib.request.Request(
            f"{url.scheme}://{url.netloc}{place or '/'}?{query_of(query)}",
            method=method,
            headers=sends,
            # An empty body where one is due has to be said: RGW refuses a request without its length.
            data=body if method in ("POST", "PUT") else None,
        )

    def _address(self) -> tuple[str, str]:
        """Where the bucket is, with its scheme; and the region."""
        settings = s3_settings(os.environ, self._bucket.name)
        region = settings.get("region") or os.environ.get("AWS_REGION") or "us-east-1"
        own_host = os.environ.get("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "").lower() in ("1", "true")
        endpoint = settings.get("endpoint")
        if own_host:  # as obstore has it: an endpoint that is named is the bucket's then
            return endpoint or f"https://{self._bucket.name}.s3.{region}.amazonaws.com", region
        return f"{(endpoint or f'https://s3.{region}.amazonaws.com').rstrip('/')}/{self._bucket.name}", region
