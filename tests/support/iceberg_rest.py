"""An Iceberg REST catalog on loopback: the requests that pyiceberg makes for one table, over a catalog in SQLite."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_TABLE = re.compile(r"/v1/namespaces/([^/]+)/tables(?:/([^/]+))?")
BUSY = b"<html><body><h1>503 Service Temporarily Unavailable</h1></body></html>"
"""The page of a reverse proxy whose server is away."""


class RestCatalog:
    """A server that runs.

    status: answered to all requests, in place of doing them; 0 for none.
    refused: how many requests were answered so.
    """

    def __init__(self, folder: Path) -> None:
        from pyiceberg.catalog.sql import SqlCatalog

        folder.mkdir()
        self.status = self.refused = 0
        self.lock = threading.Lock()
        self.catalog = SqlCatalog("rest", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/lake")
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.server.daemon_threads = True
        self.port = int(self.server.server_address[1])

    def answer(self, method: str, path: str, body: Any) -> Any:
        """Return the body of the reply to a request. Raises what the catalog raises."""
        from pyiceberg.catalog.rest import CreateTableRequest
        from pyiceberg.table import CommitTableRequest

        if path == "/v1/config":
            return {"defaults": {}, "overrides": {}}
        if path == "/v1/namespaces" and method == "POST":
            self.catalog.create_namespace(tuple(body["namespace"]))
            return {"namespace": body["namespace"], "properties": {}}
        match = _TABLE.fullmatch(path)
        assert match is not None, path
        namespace, name = match[1], match[2]
        if name is None:
            made = CreateTableRequest.model_validate({"location": None, **body})  # the client omits what is null
            table = self.catalog.create_table((namespace, made.name), made.table_schema, properties=made.properties)
        else:
            table = self.catalog.load_table((namespace, name))
            if method == "POST":
                commit = CommitTableRequest.model_validate(body)
                self.catalog.commit_table(table, commit.requirements, commit.updates)
                table = self.catalog.load_table((namespace, name))
        return {
            "metadata-location": table.metadata_location, "metadata": json.loads(table.metadata.model_dump_json()),
            "config": {},
        }  # fmt: skip


def _handler(rest: RestCatalog) -> type[BaseHTTPRequestHandler]:
    from pyiceberg import exceptions

    statuses = {
        exceptions.NoSuchTableError: 404, exceptions.NoSuchNamespaceError: 404, exceptions.CommitFailedException: 409,
        exceptions.TableAlreadyExistsError: 409, exceptions.NamespaceAlreadyExistsError: 409,
    }  # fmt: skip

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1

        def _answer(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if rest.status:
                rest.refused += 1
                self._send(rest.status, BUSY)
                return
            try:
                with rest.lock:
                    reply = rest.answer(self.command, self.path.partition("?")[0], json.loads(data) if data else None)
            except tuple(statuses) as error:
                status = statuses[type(error)]
                reply = {"error": {"message": str(error), "type": type(error).__name__, "code": status}}
                self._send(status, json.dumps(reply).encode())
            else:
                self._send(200, json.dumps(reply).encode())

        def _send(self, status: int, data: bytes) -> None:
            self.send_response_only(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
            self.wfile.flush()

        do_GET = do_POST = do_HEAD = _answer

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    return Handler


@contextlib.contextmanager
def rest_catalog(folder: Path) -> Iterator[RestCatalog]:
    """Run a REST catalog with its tables in a folder until the block ends."""
    rest = RestCatalog(folder)
    thread = threading.Thread(target=rest.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield rest
    finally:
        rest.server.shutdown()
        rest.server.server_close()
        thread.join()
        rest.catalog.close()
