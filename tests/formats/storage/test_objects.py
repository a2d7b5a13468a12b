"""Object stores, and HDFS, beside the contract: lost replies, servers that overwrite, other people's objects, keys."""

from __future__ import annotations

import os
import pickle
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from formats.errors import Damaged, FormatError, NotFound, Unreachable
from formats.storage import (
    HdfsStorage,
    LocalStorage,
    ObjectStorage,
    ServedStorage,
    open_storage,
    open_writable,
    retrying,
    walk,
)
from formats.storage import objects as module
from formats.storage.objects import NoCredentials
from formats.storage.uploading import open_uploads
from tests.support.objects.fixtures import Servers, use
from tests.support.objects.places import Place, bucket_place
from tests.support.objects.proxy import Proxy, proxy_to
from tests.support.objects.servers import ObjectServer, free_port, s3_client, s3_environment

pytestmark = pytest.mark.minutes


@pytest.fixture
def proxied(served: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Place, Proxy]]:
    """A place in a bucket that is reached through a proxy."""
    assert served.server is not None
    with proxy_to(served.server.port) as proxy:
        use(served.server, monkeypatch, proxy.port)
        yield served, proxy


@pytest.mark.sample(4)
def test_whose_reply_is_lost_learns_whether_the_file_is_its_own(proxied: tuple[Place, Proxy]) -> None:
    """The client asks again, and meets what its first request has put: that is no other writer's."""
    place, proxy = proxied
    storage = place.open()
    proxy.lose_every = 3
    for number in range(30):
        storage.put(f"outcome/{number:04d}", b"mine")
    assert proxy.lost >= 10
    for number in range(30):
        with pytest.raises(FileExistsError):
            place.open().put(f"outcome/{number:04d}", b"mine")
    assert [entry.size for entry in storage.list("outcome")] == [4] * 30


def test_a_file_that_is_put_over_another_is_there_though_replies_are_lost(proxied: tuple[Place, Proxy]) -> None:
    place, proxy = proxied
    proxy.lose_every = 3
    for number in range(9):
        place.open().put("beat", bytes([number]), replace=True)
        assert place.open().read("beat") == bytes([number])


BEGIN, COMPLETE, BLOCKS = "POST .*[?&]uploads", "POST .*[?&]uploadId", "PUT .*comp=blocklist"


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("server", "request_", "has_done"),
    [
        ("S3 by moto", BEGIN, False), ("S3 by moto", BEGIN, True),
        ("S3 by moto", COMPLETE, False), ("S3 by moto", COMPLETE, True),
        ("Azure by Azurite", BLOCKS, False), ("Azure by Azurite", BLOCKS, True),
        ("Google by a server in memory", COMPLETE, True),
    ],
)  # fmt: skip
def test_an_upload_whose_begin_or_completion_gets_no_reply_is_made_once(
    servers: Servers, monkeypatch: pytest.MonkeyPatch, server: str, request_: str, has_done: bool
) -> None:
    kind = servers.get(server)
    data = random.Random(0).randbytes(9 << 20)
    with proxy_to(kind.port) as proxy:
        storage = bucket_place(use(kind, monkeypatch, proxy.port)).open()
        assert isinstance(storage, ObjectStorage)
        storage.put("known", b"")
        for name in ("DEADLINE", "SERVER_COPY"):
            monkeypatch.setattr(retrying, name, 3.0)
        monkeypatch.setattr(retrying, "SLOWEST", 1 << 30)
        proxy.hangs, proxy.hangs_at, proxy.has_done = 1, re.compile(request_), has_done
        storage.put_parts("state", (data[at : at + 1_000_000] for at in range(0, len(data), 1_000_000)))
        assert not proxy.hangs
        assert storage.read("state") == data
        assert [entry.name for entry in storage.list("")] == ["known", "state"]


def test_an_upload_that_cannot_be_completed_is_aborted(
    s3: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = bucket_place(s3).open()
    assert isinstance(storage, ObjectStorage)

    def broken() -> Iterator[bytes]:
        yield bytes(9 << 20)
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        storage.put_parts("state", broken())
    assert storage.size("state") is None
    assert open_uploads(storage.root).below() == []


@pytest.fixture
def azure(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> ObjectStorage:
    storage = bucket_place(use(servers.get("Azure by Azurite"), monkeypatch)).open()
    assert isinstance(storage, ObjectStorage)
    return storage


def test_a_copy_that_azure_makes_after_it_has_answered_is_waited_for(
    azure: ObjectStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As "Copy Blob" of the reference has it: a blob without a byte is there first. The emulator copies at once."""
    import obstore

    plain, due = obstore.copy, list[tuple[Any, str, str]]()

    def begin(client: Any, path: str, to: str, *, overwrite: bool) -> None:
        obstore.put(client, to, b"")
        due.append((client, path, to))

    azure.put("part", b"rows")
    monkeypatch.setattr(obstore, "copy", begin)
    # Not in the module `time` itself: threads of other tests sleep, too.
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=lambda seconds: plain(*due.pop()))
    monkeypatch.setattr(module, "time", clock)
    azure.copy("part", "aside")
    assert azure.read("aside") == b"rows"


def test_a_copy_whose_file_is_deleted_first_is_none(azure: ObjectStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    import obstore

    azure.put("part", b"rows")
    azure.put("aside", b"")
    monkeypatch.setattr(obstore, "copy", lambda *names, overwrite: azure.delete("part"))
    with pytest.raises(NotFound):
        azure.copy("part", "aside")


def test_a_server_that_lets_a_name_be_created_once_is_accepted(served: Place) -> None:
    storage = served.open()
    assert isinstance(storage, ServedStorage)
    storage.check_exclusive()
    assert not storage.inventory()


def test_a_server_that_does_not_hold_to_it_is_refused(s3: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = bucket_place(s3).open()
    assert isinstance(storage, ObjectStorage)
    with proxy_to(s3.port) as proxy:
        proxy.strip = frozenset({"if-none-match"})
        use(s3, monkeypatch, proxy.port)
        with pytest.raises(FormatError, match="lets a second writer create"):
            storage.check_exclusive()
    use(s3, monkeypatch)
    assert not storage.inventory()


def test_a_bucket_that_is_not_there_is_named(servers: Servers, served: Place) -> None:
    assert served.server is not None
    if served.server.scheme == "hdfs":
        pytest.skip("HDFS has no buckets: a folder is made with what is put into it")
    storage = ObjectStorage(f"{served.server.scheme}://no-such-bucket/x")
    for call in (lambda: storage.read("a"), lambda: storage.list(""), lambda: storage.put("a", b""), storage.inventory):
        with pytest.raises(NotFound, match="there is no bucket 'no-such-bucket'"):
            call()


def test_a_server_that_is_not_there_is_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrying, "STRANGER_SECONDS", 0.1)
    port = free_port()
    for name, value in s3_environment(port, "a", "b").items():
        monkeypatch.setenv(name, value)
    storage = ObjectStorage("s3://bucket/x")
    for call in (lambda: storage.read("a"), lambda: storage.list(""), lambda: storage.put("a", b""), storage.inventory):
        with pytest.raises(Unreachable, match=f"127.0.0.1:{port}") as caught:
            call()
        assert "\n" not in str(caught.value)


def test_a_bucket_without_keys_is_said_and_which_variables_to_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    with pytest.raises(NoCredentials, match="no AWS credentials were found") as caught:
        ObjectStorage("s3://bucket/x").read("a")
    assert "AWS_ACCESS_KEY_ID" in caught.value.hint


def test_a_wrong_key_is_no_permission(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    place = bucket_place(use(servers.get("S3 by Ceph RGW"), monkeypatch))
    place.open().put("a", b"1")
    for name, value in (("AWS_SECRET_ACCESS_KEY", "wrong"), ("AWS_ACCESS_KEY_ID", "nobody")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(name, value)
            for call in (
                lambda: place.open().read("a"),
                lambda: place.open().list(""),
                lambda: place.open().put("b", b""),
            ):
                with pytest.raises(PermissionError, match="is refused"):
                    call()
    assert place.open().read("a") == b"1"


@pytest.mark.parametrize("key", ["a//b", "a/../b", "a/./b", "a//"])
def test_an_object_whose_name_is_no_path_is_said_and_never_followed(s3: ObjectServer, key: str) -> None:
    storage = bucket_place(s3).open()
    storage.put("a/c", b"1")
    bucket, _, prefix = storage.root.removeprefix("s3://").partition("/")
    _put(s3, bucket, f"{prefix}/{key}", b"evil")
    with pytest.raises(Damaged, match="whose name is not a path"):
        walk(storage)
    assert storage.read("a/c") == b"1"


def test_what_marks_a_folder_is_no_file(s3: ObjectServer) -> None:
    """Hadoop's client and consoles put an object of no bytes there, with a slash at its end."""
    storage = bucket_place(s3).open()
    bucket, _, prefix = storage.root.removeprefix("s3://").partition("/")
    for key in (f"{prefix}/", f"{prefix}/a/"):
        _put(s3, bucket, key, b"")
    storage.put("a/b", b"1")
    assert storage.list("") == [("a", None)]
    assert storage.list("a") == [("b", 1)]
    storage.put("empty", b"")
    assert [name for name, _ in walk(storage)] == ["a/b", "empty"]
    assert [file.path for file in storage.inventory()] == ["a/b", "empty"]
    assert storage.size("a") is None


def test_a_list_begins_behind_a_name(served: Place) -> None:
    storage = served.open()
    assert isinstance(storage, ServedStorage)
    names = ["e/1/a", "e/2/a", "e/2/b", "e/3", "f/9"]
    for name in names:
        storage.put(name, b"x")
    assert [file.path for file in storage.below("e", after="e/2")] == ["e/2/a", "e/2/b", "e/3"]
    assert [file.path for file in storage.below("e", after="e/2/a")] == ["e/2/b", "e/3"]
    assert [file.path for file in storage.below("e")] == names[:4]


def test_stores_whose_names_begin_alike_do_not_see_each_other(s3: ObjectServer) -> None:
    storage = bucket_place(s3).open()
    assert isinstance(storage, ObjectStorage)
    other = ObjectStorage(f"{storage.root}-2")
    other.put("x", b"1")
    assert storage.list("") == list(storage.inventory()) == []
    whole = ObjectStorage(storage.root.rpartition("/some/")[0])
    assert [file.path for file in whole.inventory()] == ["some/store-2/x"]
    assert whole.list("") == [("some", None)]


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n", "s3p"])
def test_a_place_is_one_whatever_a_client_calls_it(s3: ObjectServer, scheme: str) -> None:
    storage = bucket_place(s3).open()
    storage.put("a", b"1")
    other = open_storage(storage.root.replace("s3:", f"{scheme}:") + "/")
    assert other.read("a") == b"1"
    assert other.root.startswith(f"{scheme}://")


def test_a_storage_goes_to_other_processes(s3: ObjectServer) -> None:
    """The client itself does not: it ends the process that tries."""
    storage = bucket_place(s3).open()
    storage.put("a", b"1")
    assert pickle.loads(pickle.dumps(storage)).read("a") == b"1"


@pytest.mark.parametrize(
    "uri", ["s3://key:secret@bucket/x", "s3://key@bucket/x", "gs://user@bucket/x", "abfss://c:secret@a.dfs.x/y"]
)
def test_a_uri_with_a_secret_is_refused_and_the_secret_not_said(uri: str) -> None:
    with pytest.raises(FormatError, match="contains credentials") as caught:
        open_storage(uri)
    assert "secret@" not in str(caught.value)
    assert "key" not in str(caught.value)


@pytest.mark.parametrize("uri", ["s3://bucket/a/../b", "s3://bucket/./a", "s3://bucket//a//b"])
def test_a_place_outside_of_its_bucket_is_none(uri: str) -> None:
    with pytest.raises(FormatError):
        open_storage(uri)


@pytest.mark.parametrize(
    ("uri", "bucket"),
    [
        ("s3://b", ("s3", "b", "", "")),
        ("s3a://b/x/y/", ("s3", "b", "x/y", "")),
        ("gs://b/x", ("gs", "b", "x", "")),
        ("az://c/x", ("az", "c", "x", "")),
        ("abfss://c@account.dfs.core.windows.net/x", ("az", "c", "x", "account")),
        ("wasbs://c@account.blob.core.windows.net/x", ("az", "c", "x", "account")),
    ],
)
def test_where_a_uri_leads(uri: str, bucket: tuple[str, str, str, str]) -> None:
    assert module.bucket_of(uri) == bucket


def test_what_can_be_written_to() -> None:
    assert isinstance(open_writable("s3p://bucket/x"), ObjectStorage)
    assert isinstance(open_writable("file:///no/such/folder"), LocalStorage)
    assert isinstance(open_writable("hdfs://n:8020/x"), HdfsStorage)
    for uri in ("http://h/x", "viewfs://h/x", "s3://"):
        with pytest.raises(FormatError):
            open_writable(uri)


def _put(server: ObjectServer, bucket: str, key: str, data: bytes) -> None:
    client = s3_client(server.environment)
    client.put_object(Bucket=bucket, Key=key, Body=data)  # type: ignore[attr-defined]
