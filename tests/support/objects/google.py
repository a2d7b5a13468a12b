"""Google's object store on loopback: the part of its XML API that stores use, in front of objects that lie in this
process' memory, or in Google's own testbench for its clients.

    python -m tests.support.objects.google PORT [PORT OF THE TESTBENCH]

As Google's documentation has it: a put, a copy or a deletion happens in one step; `x-goog-if-generation-match: 0` lets
only the first that makes a name succeed; an upload in parts takes no condition, and overwrites.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import itertools
import json
import os
import re
import secrets
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import pytest

from tests.support.objects.servers import ROOT, ObjectServer, free_port, running

META = "x-goog-meta-"
PAGE = 1000


@dataclass(frozen=True)
class Object:
    """One as it was put. written: in seconds since 1970."""

    name: str
    data: bytes
    metadata: Mapping[str, str]
    generation: int
    written: float

    @property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.data, usedforsecurity=False).hexdigest()}"'


class Refused(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status, self.code = status, code


GONE = Refused(404, "NoSuchKey")
EXISTS = Refused(412, "PreconditionFailed")


class Objects(Protocol):
    """What a server has. Raises `Refused`."""

    def make(self, bucket: str) -> None: ...

    def put(self, bucket: str, name: str, data: bytes, metadata: Mapping[str, str], *, new: bool) -> Object: ...

    def get(self, bucket: str, name: str) -> Object: ...

    def delete(self, bucket: str, name: str) -> None: ...

    def copy(self, bucket: str, name: str, to: str, *, new: bool) -> Object: ...

    def below(self, bucket: str, prefix: str) -> list[Object]: ...


class Memory:
    """Objects in this process."""

    def __init__(self) -> None:
        self._buckets: dict[str, dict[str, Object]] = {}
        self._generations = itertools.count(int(time.time() * 1e6))
        self._lock = threading.RLock()

    def make(self, bucket: str) -> None:
        with self._lock:
            self._buckets.setdefault(bucket, {})

    def put(self, bucket: str, name: str, data: bytes, metadata: Mapping[str, str], *, new: bool) -> Object:
        with self._lock:
            objects = self._objects(bucket)
            if new and name in objects:
                raise EXISTS
            objects[name] = Object(name, data, metadata, next(self._generations), time.time())
            return objects[name]

    def get(self, bucket: str, name: str) -> Object:
        with self._lock:
            if name not in self._objects(bucket):
                raise GONE
            return self._objects(bucket)[name]

    def delete(self, bucket: str, name: str) -> None:
        with self._lock:
            if self._objects(bucket).pop(name, None) is None:
                raise GONE

    def copy(self, bucket: str, name: str, to: str, *, new: bool) -> Object:
        with self._lock:
            source = self.get(bucket, name)
            return self.put(bucket, to, source.data, source.metadata, new=new)

    def below(self, bucket: str, prefix: str) -> list[Object]:
        with self._lock:
            return sorted(
                (one for name, one in self._objects(bucket).items() if name.startswith(prefix)),
                key=lambda one: one.name.encode(),
            )

    def _objects(self, bucket: str) -> dict[str, Object]:
        if bucket not in self._buckets:
            raise Refused(404, "NoSuchBucket")
        return self._buckets[bucket]


class Testbench:
    """Objects of Google's testbench, through the JSON API: it has no list, copy or deletion in XML."""

    def __init__(self, port: int) -> None:
        self._port = port

    def make(self, bucket: str) -> None:
        self._json("POST", "/storage/v1/b?project=p", {"name": bucket})

    def put(self, bucket: str, name: str, data: bytes, metadata: Mapping[str, str], *, new: bool) -> Object:
        resource = json.dumps({"name": name, "metadata": dict(metadata)}).encode()
        mark = secrets.token_hex(16).encode()
        body = b"\r\n".join((
            b"--" + mark, b"content-type: application/json", b"", resource,
            b"--" + mark, b"content-type: application/octet-stream", b"", data, b"--" + mark + b"--", b"",
        ))  # fmt: skip
        query = {"uploadType": "multipart", **({"ifGenerationMatch": "0"} if new else {})}
        kind = f"multipart/related; boundary={mark.decode()}"
        return self._object(json.loads(
            self._ask("POST", f"/upload/storage/v1/b/{bucket}/o?{urlencode(query)}", body, kind)
        ), data)  # fmt: skip

    def get(self, bucket: str, name: str) -> Object:
        while True:
            resource = self._json("GET", self._at(bucket, name))
            media = f"{self._at(bucket, name)}?alt=media&generation={resource['generation']}"
            with contextlib.suppress(Refused):  # it was replaced between the two
                return self._object(resource, self._ask("GET", media))

    def delete(self, bucket: str, name: str) -> None:
        self._ask("DELETE", self._at(bucket, name))

    def copy(self, bucket: str, name: str, to: str, *, new: bool) -> Object:
        condition = "?ifGenerationMatch=0" if new else ""
        target = f"/b/{bucket}/o/{quote(to, safe='')}"
        return self._object(self._json("POST", f"{self._at(bucket, name)}/copyTo{target}{condition}"), b"")

    def below(self, bucket: str, prefix: str) -> list[Object]:
        answer = self._json("GET", f"/storage/v1/b/{bucket}/o?{urlencode({'prefix': prefix})}")
        # Sizes are all that is told of the bytes.
        objects = [self._object(one, bytes(int(one.get("size", 0)))) for one in answer.get("items", ())]
        return sorted(objects, key=lambda one: one.name.encode())

    def _at(self, bucket: str, name: str) -> str:
        return f"/storage/v1/b/{bucket}/o/{quote(name, safe='')}"

    def _object(self, resource: Mapping[str, Any], data: bytes) -> Object:
        theirs = ("x_emulator", "x_testbench")
        metadata = {key: value for key, value in resource.get("metadata", {}).items() if not key.startswith(theirs)}
        written = datetime.fromisoformat(resource["updated"]).timestamp()
        return Object(resource["name"], data, metadata, int(resource["generation"]), written)

    def _json(self, method: str, path: str, body: object = None) -> Any:
        data = json.dumps(body).encode() if body is not None else b""
        return json.loads(self._ask(method, path, data, "application/json"))

    def _ask(self, method: str, path: str, body: bytes = b"", kind: str = "") -> bytes:
        server = http.client.HTTPConnection("127.0.0.1", self._port, timeout=120)
        with contextlib.closing(server):
            server.request(method, path, body, {"content-type": kind} if kind else {})
            answer = server.getresponse()
            data = answer.read()
        if answer.status in (404, 412):
            no_bucket = answer.status == 404 and b"ucket" in data and b"bject" not in data
            raise Refused(404, "NoSuchBucket") if no_bucket else GONE if answer.status == 404 else EXISTS
        if answer.status >= 300:
            raise Refused(answer.status, data[:200].decode(errors="replace"))
        return data


def handler(objects: Objects) -> type[BaseHTTPRequestHandler]:
    """What answers requests of Google's XML API."""
    uploads: dict[str, tuple[Mapping[str, str], dict[int, bytes]]] = {}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1

        def _answered(self) -> None:
            url = urlsplit(self.path)
            bucket, _, name = unquote(url.path).removeprefix("/").partition("/")
            query = {key: values[0] for key, values in parse_qs(url.query, keep_blank_values=True).items()}
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            try:
                self._answer(bucket, name, query, body)
            except (Refused, OSError, http.client.HTTPException) as error:
                refused = error if isinstance(error, Refused) else Refused(503, type(error).__name__)
                xml = f"<Error><Code>{escape(refused.code)}</Code><Message>{escape(refused.code)}</Message></Error>"
                self._send(refused.status, xml.encode())

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answered

        def _answer(self, bucket: str, name: str, query: Mapping[str, str], body: bytes) -> None:
            match self.command, bool(name):
                case "PUT", False:
                    objects.make(bucket)
                    self._send(200)
                case "GET", False:
                    self._list(bucket, query)
                case "GET" | "HEAD", True:
                    self._get(objects.get(bucket, name))
                case "PUT", True if "uploadId" in query:
                    parts = self._upload(query)[1]
                    parts[int(query["partNumber"])] = body
                    self._send(200, etag=f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"')
                case "PUT", True:
                    self._put(bucket, name, body)
                case "POST", True:
                    self._in_parts(bucket, name, query, body)
                case "DELETE", True if "uploadId" in query:
                    uploads.pop(query["uploadId"], None)
                    self._send(204)
                case "DELETE", True:
                    objects.delete(bucket, name)
                    self._send(204)
                case _:
                    raise Refused(501, "NotImplemented")

        def _put(self, bucket: str, name: str, body: bytes) -> None:
            condition = self.headers.get("x-goog-if-generation-match")
            if condition not in (None, "0"):
                raise Refused(501, "NotImplemented")
            source = self.headers.get("x-goog-copy-source")
            if source is None:
                put = objects.put(bucket, name, body, self._metadata(), new=condition == "0")
                self._send(200, etag=put.etag, generation=put.generation)
                return
            whose, _, path = unquote(source).removeprefix("/").partition("/")
            if whose != bucket:
                raise Refused(501, "NotImplemented")
            copied = objects.copy(bucket, path, name, new=condition == "0")
            self._send(200, f"<CopyObjectResult><ETag>{escape(copied.etag)}</ETag></CopyObjectResult>".encode())

        def _in_parts(self, bucket: str, name: str, query: Mapping[str, str], body: bytes) -> None:
            if "x-goog-if-generation-match" in self.headers:
                raise Refused(400, "NotImplemented")
            if "uploads" in query:
                id = secrets.token_hex(16)
                uploads[id] = self._metadata(), {}
                xml = f"<UploadId>{id}</UploadId>"
                self._send(200, f"<InitiateMultipartUploadResult>{xml}</InitiateMultipartUploadResult>".encode())
                return
            metadata, parts = self._upload(query)
            numbers = [int(n.text or 0) for n in ElementTree.fromstring(body).iterfind("{*}Part/{*}PartNumber")]
            put = objects.put(bucket, name, b"".join(parts[n] for n in numbers), metadata, new=False)
            uploads.pop(query["uploadId"], None)
            xml = f"<ETag>{escape(put.etag)}</ETag>"
            self._send(200, f"<CompleteMultipartUploadResult>{xml}</CompleteMultipartUploadResult>".encode(),
                       generation=put.generation)  # fmt: skip

        def _upload(self, query: Mapping[str, str]) -> tuple[Mapping[str, str], dict[int, bytes]]:
            if query.get("uploadId") not in uploads:
                raise Refused(404, "NoSuchUpload")
            return uploads[query["uploadId"]]

        def _get(self, one: Object) -> None:
            status, data, more = 200, one.data, {f"{META}{key}": value for key, value in one.metadata.items()}
            if asked := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("range") or ""):
                first, last = int(asked[1]), min(int(asked[2] or len(data)), len(data) - 1)
                if first > last:
                    raise Refused(416, "InvalidRange")
                more["content-range"] = f"bytes {first}-{last}/{len(data)}"
                status, data = 206, data[first : last + 1]
            more["last-modified"] = formatdate(one.written, usegmt=True)
            self._send(status, data, etag=one.etag, generation=one.generation, more=more)

        def _list(self, bucket: str, query: Mapping[str, str]) -> None:
            prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
            after = query.get("continuation-token", "")
            rows: dict[str, str] = {}
            for one in objects.below(bucket, prefix):
                end = one.name.find(delimiter, len(prefix)) if delimiter else -1
                if end >= 0:
                    folder = one.name[: end + len(delimiter)]
                    rows[folder] = f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
                    continue
                written = datetime.fromtimestamp(one.written, UTC).isoformat(timespec="milliseconds")
                rows[one.name] = (
                    f"<Contents><Key>{escape(one.name)}</Key><LastModified>{written[:-6]}Z</LastModified>"
                    f"<ETag>{escape(one.etag)}</ETag><Size>{len(one.data)}</Size></Contents>"
                )
            names = [name for name in rows if name > after]
            page = names[:PAGE]
            is_cut = len(names) > len(page)
            token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if is_cut else ""
            body = f"<IsTruncated>{str(is_cut).lower()}</IsTruncated>{token}{''.join(rows[name] for name in page)}"
            self._send(200, f"<ListBucketResult>{body}</ListBucketResult>".encode())

        def _metadata(self) -> dict[str, str]:
            pairs = ((name.lower(), value) for name, value in self.headers.items())
            return {name.removeprefix(META): value for name, value in pairs if name.startswith(META)}

        def _send(self, status: int, body: bytes = b"", *, etag: str = "", generation: int = 0,
                  more: Mapping[str, str] | None = None) -> None:  # fmt: skip
            self.send_response(status)
            headers = {"etag": etag, "x-goog-generation": str(generation or ""), **(more or {})}
            for name, value in headers.items():
                if value:
                    self.send_header(name, value)
            if status != 204:
                self.send_header("content-length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    return Handler


TESTBENCH = """
import os, sys

os.chdir(sys.argv[1])
sys.path.insert(0, sys.argv[1])
import testbench, waitress

waitress.serve(testbench.run(), host="127.0.0.1", port=int(sys.argv[2]), threads=16)
"""
"""In one process: by itself it starts another one, which outlives it."""


@contextlib.contextmanager
def google() -> Iterator[ObjectServer]:
    """Objects in memory, behind Google's XML API."""
    with _front() as server:
        yield server


@contextlib.contextmanager
def testbench() -> Iterator[ObjectServer]:
    """Objects of Google's testbench: of a folder with googleapis/storage-testbench and what it needs in its `.venv`,
    which ABS_GCS_TESTBENCH names; skips where it names none."""
    folder = os.environ.get("ABS_GCS_TESTBENCH")
    if not folder:
        pytest.skip("Google's testbench for its clients: ABS_GCS_TESTBENCH names no folder with it")
    port = free_port()
    with running([f"{folder}/.venv/bin/python", "-c", TESTBENCH, folder, str(port)], port), _front(port) as server:
        yield server


@contextlib.contextmanager
def _front(behind: int | None = None) -> Iterator[ObjectServer]:
    port = free_port()
    numbers = [str(port), *([str(behind)] if behind is not None else [])]
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tests.support.objects.google import main; main()"
    with running([sys.executable, "-c", program, *numbers], port):
        environment = {"GOOGLE_BASE_URL": f"http://127.0.0.1:{port}", "GOOGLE_BEARER_TOKEN": "of a test"}
        name = "Google by its testbench" if behind is not None else "Google by a server in memory"
        yield ObjectServer(name, "gs", port, environment)


class Server(ThreadingHTTPServer):
    """One that many connect to at once."""

    daemon_threads = True
    request_queue_size = 128


def main() -> None:
    port, *behind = map(int, sys.argv[1:])
    Server(("127.0.0.1", port), handler(Testbench(*behind) if behind else Memory())).serve_forever()


if __name__ == "__main__":
    main()
