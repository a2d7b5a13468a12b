"""Uploads by their ids, on what speaks S3, on Azure and on Google's store: what holds for all."""

from __future__ import annotations

import pytest

from formats.errors import Damaged, NotFound, Unreachable
from formats.storage import ObjectStorage, retrying
from formats.storage.uploading import open_uploads
from tests.support.objects.fixtures import Servers, use
from tests.support.objects.places import bucket_place
from tests.support.objects.proxy import proxy_to
from tests.support.objects.servers import free_port

pytestmark = pytest.mark.minutes

MIB = 1 << 20
GOOGLE = "Google by a server in memory"


@pytest.fixture(params=[
    "S3 by moto", "S3 by Ceph RGW", "Azure by Azurite", GOOGLE, "Google by its testbench",
])  # fmt: skip
def place(request: pytest.FixtureRequest, servers: Servers, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URI of a place in a bucket of each server."""
    return str(bucket_place(use(servers.get(request.param), monkeypatch)).root)


def test_an_upload_appears_when_it_is_completed_and_may_be_completed_again(place: str) -> None:
    uploads, storage = open_uploads(place), ObjectStorage(place)
    path = "out/part ü+1.jsonl"
    id = uploads.begin(path, "its digest")
    data = b"a" * 5 * MIB + b"b"
    pieces = [data] if place.startswith("gs:") else [data[:-1], data[-1:]]
    etags = [uploads.put(path, id, number, piece) for number, piece in enumerate(pieces, 1)]
    assert uploads.put(path, id, len(pieces), memoryview(pieces[-1])) == etags[-1]  # as one whose reply was lost
    assert uploads.size(path, id) == 5 * MIB + 1
    assert [(upload.path, upload.id) for upload in uploads.below()] == [(path, id)]
    assert storage.size(path) is None
    assert open_uploads(place).complete(path, id, etags, "its digest")
    assert storage.read(path, 5 * MIB - 1) == b"ab"
    assert storage.identity(path) == "its digest"
    uploads.complete(path, id, etags, "its digest")  # true of some servers, false of others
    assert storage.size(path) == 5 * MIB + 1
    assert uploads.below() == []
    storage.copy(path, "aside")
    assert storage.identity("aside") == "its digest"


def test_one_that_was_given_up_is_gone(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    uploads = open_uploads(place)
    id = uploads.begin("x", "d")
    etag = uploads.put("x", id, 1, b"1")
    other = f'"{"0123456789abcdef" * 2}"' if place.startswith("s3:") else f"{etag[:-32]}{'0123456789abcdef' * 2}"
    with pytest.raises(Damaged, match="does not have the parts that were put"):
        uploads.complete("x", id, [other], "d")
    uploads.abort("x", [id])
    uploads.abort("x", [id])
    assert uploads.size("x", id) is None
    assert not uploads.complete("x", id, [etag], "d")
    assert uploads.below() == []
    if not place.startswith("s3:"):
        return  # Azure's keeps whatever blocks it is sent, for a week, and Google's whatever is put
    monkeypatch.setattr(retrying, "SECONDS", 0.1)
    with pytest.raises((NotFound, Unreachable), match=r"given up|: 500 "):  # an error within moto
        uploads.put("x", id, 1, b"1")
    assert uploads.below() == []


def test_all_are_listed_that_lie_below_and_no_others(place: str) -> None:
    uploads, other = open_uploads(f"{place}/sink"), open_uploads(f"{place}/sink-2")
    other.put("x", other.begin("x", "d"), 1, b"x")
    begun = {(path, uploads.begin(path, "d")) for path in ("a", "b", "b", "c/d")}
    for path, id in begun:
        uploads.put(path, id, 1, b"x")
    assert {(upload.path, upload.id) for upload in uploads.below()} == begun


def test_several_to_one_name_do_not_disturb_each_other(place: str) -> None:
    """As of a task that was lost in the middle, and of the one that makes its rows again."""
    uploads, storage = open_uploads(place), ObjectStorage(place)
    lost, ours = uploads.begin("x", "d"), uploads.begin("x", "d")
    uploads.put("x", lost, 1, b"lost")
    etag = uploads.put("x", ours, 1, b"ours")
    uploads.put("x", lost, 1, b"again")
    assert uploads.size("x", ours) == 4
    uploads.abort("x", [lost])
    assert uploads.complete("x", ours, [etag], "d")
    assert storage.read("x") == b"ours"
    storage.delete("x")
    assert not uploads.complete("x", ours, [etag], "d") or storage.read("x") == b"ours"


def test_those_of_one_name_are_given_up_together(place: str) -> None:
    uploads = open_uploads(place)
    ids = [uploads.begin("x", "d") for _ in range(3)]
    etags = [uploads.put("x", id, 1, id.encode()) for id in ids]
    uploads.abort("x", ids)
    assert uploads.below() == []
    assert not any(uploads.complete("x", id, [etag], "d") for id, etag in zip(ids, etags, strict=True))
    assert ObjectStorage(place).list("") == []


def test_what_was_completed_is_not_given_up(place: str) -> None:
    uploads = open_uploads(place)
    id = uploads.begin("x", "d")
    assert uploads.complete("x", id, [uploads.put("x", id, 1, b"shown")], "d")
    uploads.abort("x", [id])
    assert ObjectStorage(place).read("x") == b"shown"


def test_no_bucket_and_no_server_are_said(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scheme = place.partition("://")[0]
    with pytest.raises(NotFound, match="there is no bucket 'no-such-bucket'"):
        open_uploads(f"{scheme}://no-such-bucket/x").put("p", open_uploads(place).begin("p", "d"), 1, b"x")
    monkeypatch.setattr(retrying, "SECONDS", 0.1)
    monkeypatch.setattr(retrying, "STRANGER_SECONDS", 0.1)
    port = free_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", f"http://127.0.0.1:{port}/account")
    monkeypatch.setenv("GOOGLE_BASE_URL", f"http://127.0.0.1:{port}")
    with pytest.raises(Unreachable, match=f"127.0.0.1:{port}"):
        open_uploads(f"{scheme}://bucket/x").below()


@pytest.mark.parametrize(
    ("name", "variable", "says"),
    [
        ("S3 by Ceph RGW", "AWS_SECRET_ACCESS_KEY", "SignatureDoesNotMatch"),
        ("Azure by Azurite", "AZURE_STORAGE_ACCOUNT_KEY", "AuthorizationFailure"),
    ],
)
def test_a_wrong_key_is_refused(
    servers: Servers, monkeypatch: pytest.MonkeyPatch, name: str, variable: str, says: str
) -> None:
    uploads = open_uploads(str(bucket_place(use(servers.get(name), monkeypatch)).root))
    monkeypatch.setenv(variable, "b3RoZXI=")
    with pytest.raises(PermissionError, match=says):
        uploads.below()


@pytest.mark.parametrize("name", ["S3 by moto", "Azure by Azurite", GOOGLE])
def test_a_server_that_is_away_for_a_moment_is_asked_again(
    servers: Servers, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    server = servers.get(name)
    place = str(bucket_place(use(server, monkeypatch)).root)
    with proxy_to(server.port) as proxy:
        use(server, monkeypatch, proxy.port)
        proxy.lose_every, proxy.loses_of = 2, frozenset({"POST", "PUT", "DELETE"})
        uploads = open_uploads(place)
        for n in range(6):
            id = uploads.begin(f"{n}", "d")
            etag = uploads.put(f"{n}", id, 1, b"x")
            assert uploads.complete(f"{n}", id, [etag], "d") or ObjectStorage(place).identity(f"{n}") == "d"
            uploads.put("given up", uploads.begin("given up", "d"), 1, b"x")
        uploads.abort("given up", [upload.id for upload in uploads.below()])
        assert uploads.below() == []
        assert proxy.lost > 3
    use(server, monkeypatch)
    assert len(ObjectStorage(place).list("")) == 6


# -- whose keys -----------------------------------------------------------------------------------------------
