"""What an Iceberg table and its catalog may not tell pyiceberg: code to import, hosts and credentials."""

from __future__ import annotations

import http.server
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from abscli.engine.errors import EngineError, UsageError
from abscli.engine.sinks.iceberg.place import TablePlace
from abscli.engine.sinks.iceberg.table import IcebergTable
from formats.job.model import Kind, Operator

TOKEN = "prod-token-0123456789"


def sink(**options: object) -> Operator:
    return Operator("out", Kind.SINK, 1, 8, connector={"type": "iceberg", "table": "shop.out", **options})


@pytest.fixture
def listener() -> Iterator[tuple[str, list[str]]]:
    """An HTTP server that nobody should contact, and the requests that it gets, with their headers."""
    requests: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(f"{self.path} {self.headers}")
            body = json.dumps({"defaults": {}, "overrides": {"py-io-impl": "abs_evil_module.Io"}}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", requests
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize(
    ("catalog", "configured"),
    [
        ("prod", {"URI": "https://catalog.example.org", "TOKEN": TOKEN}),
        ("prod", {"TOKEN": TOKEN}),
        (None, {"URI": "https://catalog.example.org", "TOKEN": TOKEN}),
    ],
)
def test_a_uri_other_than_the_configured_one_does_not_get_the_token(
    listener: tuple[str, list[str]], catalog: str | None, configured: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, requests = listener
    for name, value in configured.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__{(catalog or 'default').upper()}__{name}", value)
    options = {"uri": uri} if catalog is None else {"uri": uri, "catalog": catalog}
    with pytest.raises(UsageError, match="your credentials would be sent to another server") as refused:
        TablePlace.of(sink(**options), ".").open(make=False)
    assert TOKEN not in f"{refused.value} {refused.value.hint}"
    assert requests == []


def test_the_server_of_a_catalog_may_not_name_code(listener: tuple[str, list[str]]) -> None:
    uri, requests = listener
    with pytest.raises(UsageError, match="py-io-impl"):
        TablePlace.of(sink(uri=uri), ".").open(make=False)
    assert requests
    assert "abs_evil_module" not in sys.modules


@pytest.mark.parametrize(
    "name",
    ["py-io-impl", "write.py-location-provider.impl", "s3.endpoint", "s3.access-key-id", "gcs.oauth2.token",
     "adls.sas-token", "token", "uri", "S3.Endpoint"],
)  # fmt: skip
def test_a_table_may_not_name_code_hosts_or_credentials(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else who may write the table's metadata has set the property."""
    catalog: Any = TablePlace.of(sink(warehouse="lake"), str(tmp_path)).open(make=True)
    catalog.create_namespace("shop")
    location = catalog.create_table("shop.out", pa.schema([("n", pa.int64())])).metadata_location
    catalog.close()
    metadata = json.loads(Path(location.removeprefix("file://")).read_text())
    metadata["properties"][name] = "evil.Io"
    Path(location.removeprefix("file://")).write_text(json.dumps(metadata))
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\nclass Io: pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(EngineError, match="can select code, a host or credentials") as refused:
        IcebergTable(sink(warehouse="lake"), str(tmp_path), "copied").markers()
    assert name in refused.value.message
    assert not (tmp_path / "ran").exists()


def test_other_properties_of_a_table_are_no_harm(tmp_path: Path) -> None:
    place = TablePlace.of(sink(warehouse="lake"), str(tmp_path))
    catalog: Any = place.open(make=True)
    catalog.create_namespace("shop")
    catalog.create_table(
        "shop.out", pa.schema([("n", pa.int64())]),
        properties={"write.metadata.delete-after-commit.enabled": "true", "owner": "shop", "io-impl": "org.acme.Io"},
    )  # fmt: skip
    catalog.close()
    assert IcebergTable(sink(warehouse="lake"), str(tmp_path), "copied").markers() == []
