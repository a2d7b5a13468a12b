"""What lets us in to Azure's object store, and where it listens."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import urlencode

import pytest

from formats.errors import FormatError
from formats.storage import ObjectStorage
from formats.storage.azure.access import Access, authorized, azure_access, container_url
from formats.storage.azure.shared_key import authorization, string_to_sign
from formats.storage.places import bucket_of
from formats.storage.uploading import open_uploads
from tests.support.objects.fixtures import Servers, use
from tests.support.objects.places import bucket_place
from tests.support.objects.servers import AZURE_ACCOUNT, AZURE_KEY, free_port


@pytest.mark.parametrize(
    ("method", "query", "headers", "signs"),
    [
        ("GET", {"restype": "container", "comp": "metadata", "timeout": "20"}, {},
         "GET\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:Fri, 26 Jun 2015 23:39:12 GMT\nx-ms-version:2015-02-21\n"
         "/myaccount/mycontainer\ncomp:metadata\nrestype:container\ntimeout:20"),
        ("PUT", {"restype": "container", "timeout": "30"}, {"content-length": "0"},
         "PUT\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:Fri, 26 Jun 2015 23:39:12 GMT\nx-ms-version:2015-02-21\n"
         "/myaccount/mycontainer\nrestype:container\ntimeout:30"),
    ],
)  # fmt: skip
def test_what_microsofts_documentation_signs_is_signed(
    method: str, query: Mapping[str, str], headers: Mapping[str, str], signs: str
) -> None:
    """As "Authorize with Shared Key" of the reference of Azure's storage services has it; it shows no key."""
    dated = {"x-ms-version": "2015-02-21", "x-ms-date": "Fri, 26 Jun 2015 23:39:12 GMT", **headers}
    assert string_to_sign("myaccount", method, "/mycontainer", query, dated) == signs


def test_what_lets_us_in_is_looked_for_as_obstore_does() -> None:
    sas, key = {"AZURE_STORAGE_SAS_TOKEN": "?sv=1&sig=a%2Bb"}, {"AZURE_STORAGE_ACCESS_KEY": "a2V5"}
    token = {"AZURE_STORAGE_TOKEN": "jwt"}
    assert azure_access(sas) == Access(sas="sv=1&sig=a%2Bb")
    assert azure_access({**sas, **key}) == Access(key="a2V5")
    assert azure_access({**sas, **key, **token}) == Access(token="jwt")
    with pytest.raises(FormatError, match="no key for Azure is known, and the machine's identity") as caught:
        azure_access({"AZURE_MSI_ENDPOINT": f"http://127.0.0.1:{free_port()}"})
    assert "AZURE_STORAGE_SAS_TOKEN" in (caught.value.hint or "")
    with pytest.raises(FormatError, match="to encrypt with"):
        azure_access({**key, "AZURE_ENCRYPTION_KEY": "k"})
    for access in (azure_access(sas), azure_access(key), azure_access(token)):
        assert not any(secret in repr(access) for secret in ("a%2Bb", "a2V5", "jwt"))
    at = datetime(2015, 6, 26, 23, 39, 12, tzinfo=UTC)
    url, headers = authorized(azure_access(sas), "a", "GET", "https://a.x/c", {"comp": "list"}, {}, 0, at)
    assert url == "https://a.x/c?comp=list&sv=1&sig=a%2Bb"
    assert "authorization" not in headers
    url, headers = authorized(azure_access(token), "a", "GET", "https://a.x/c", {}, {"If-Match": "e"}, 0, at)
    assert (url, headers["authorization"], headers["if-match"]) == ("https://a.x/c", "Bearer jwt", "e")
    assert headers["x-ms-date"] == "Fri, 26 Jun 2015 23:39:12 GMT"
    with pytest.raises(FormatError, match="not base64"):
        authorized(Access(key="no key"), "a", "GET", "https://a.x/c", {}, {}, 0, at)


@pytest.mark.parametrize(
    ("environment", "uri", "url"),
    [
        ({}, "abfss://c@a.dfs.core.windows.net/x", "https://a.blob.core.windows.net/c"),
        ({"AZURE_STORAGE_ACCOUNT_NAME": "b"}, "az://c/x", "https://b.blob.core.windows.net/c"),
        ({"AZURE_STORAGE_ENDPOINT": "http://127.0.0.1:1/b/"}, "az://c/x", "http://127.0.0.1:1/b/c"),
    ],
)
def test_where_a_container_is(environment: Mapping[str, str], uri: str, url: str) -> None:
    assert container_url(environment, bucket_of(uri)) == url


def test_a_container_of_nobody_is_said() -> None:
    with pytest.raises(FormatError, match="no account of Azure is named"):
        container_url({}, bucket_of("az://c/x"))


def test_a_shared_access_signature_is_enough(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the container, with the rights to read, create, write, delete and list."""
    uploads = open_uploads(str(bucket_place(use(servers.get("Azure by Azurite"), monkeypatch)).root))
    container = uploads.root.split("/")[2]
    fields = {"sp": "rcwdl", "st": "", "se": "2099-01-01T00:00:00Z"}
    # As "Create a service SAS" has it for this version.
    text = "\n".join((*fields.values(), f"/blob/{AZURE_ACCOUNT}/{container}", "", "", "", "2018-11-09", "c", *[""] * 6))
    signature = authorization(AZURE_ACCOUNT, AZURE_KEY, text).partition(":")[2]
    sas = urlencode({"sp": fields["sp"], "se": fields["se"], "sv": "2018-11-09", "sr": "c", "sig": signature})
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_KEY")
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", f"?{sas}")
    id = uploads.begin("x", "d")
    etag = uploads.put("x", id, 1, b"x")
    assert [upload.id for upload in uploads.below()] == [id]
    assert uploads.complete("x", id, [etag], "d")
    uploads.put("y", id, 1, b"y")
    uploads.abort("y", [id])
    assert uploads.below() == []
    assert ObjectStorage(uploads.root).identity("x") == "d"
