"""HDFS beside the contract: where its NameNodes are, who asks, replies that are lost of either kind of server."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from formats.errors import FormatError, NotFound, Unreachable
from formats.storage import UNFINISHED, HdfsStorage, open_storage
from formats.storage.hadoop import name_nodes, site_settings
from formats.storage.hdfs import web
from tests.support.objects.fixtures import Servers, use
from tests.support.objects.hdfs import SITE, Hdfs
from tests.support.objects.places import Place, bucket_place
from tests.support.objects.proxy import proxy_to
from tests.support.objects.servers import free_port

HA = {
    "dfs.nameservices": "lake, other", "dfs.ha.namenodes.lake": "one,two",
    "dfs.namenode.rpc-address.lake.one": "first:8020", "dfs.namenode.rpc-address.lake.two": "second:8020",
    "dfs.namenode.http-address.lake.two": "0.0.0.0:50070",
}  # fmt: skip


@pytest.fixture
def hdfs(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> Hdfs:
    server = use(servers.get("HDFS"), monkeypatch)
    assert isinstance(server, Hdfs)
    return server


@pytest.fixture
def place(hdfs: Hdfs) -> Place:
    return bucket_place(hdfs)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "PAUSES", (0.01,))


@pytest.mark.parametrize(
    ("scheme", "authority", "configuration", "addresses"),
    [
        ("webhdfs", "h:50070", {}, (("h", 50070),)),
        ("webhdfs", "h", {}, (("h", 9870),)),
        ("webhdfs", "[::1]:1", {}, (("::1", 1),)),
        ("hdfs", "h:8020", {}, (("h", 9870),)),
        ("hdfs", "h", {}, (("h", 9870),)),
        ("hdfs", "h:8020", {"fs.defaultFS": "hdfs://h:8020", "dfs.namenode.http-address": "0.0.0.0:1"}, (("h", 1),)),
        ("hdfs", "h:8020", {"fs.defaultFS": "hdfs://x:8020", "dfs.namenode.http-address": "x:1"}, (("h", 9870),)),
        ("hdfs", "h:1", {"dfs.namenode.rpc-address": "h:1", "dfs.namenode.http-address": "g:2"}, (("g", 2),)),
        ("hdfs", "", {"spark.hadoop.fs.defaultFS": "hdfs://h:8020/"}, (("h", 9870),)),
        ("hdfs", "lake", HA, (("first", 9870), ("second", 50070))),
        ("webhdfs", "lake", HA, (("first", 9870), ("second", 50070))),
        ("hdfs", "", {**HA, "fs.defaultFS": "hdfs://lake"}, (("first", 9870), ("second", 50070))),
    ],
)
def test_where_name_nodes_answer(
    scheme: str, authority: str, configuration: dict[str, str], addresses: tuple[tuple[str, int], ...]
) -> None:
    assert name_nodes(scheme, authority, configuration) == addresses


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("hdfs:///x", "names no NameNode"), ("hdfs://other/x", "no NameNode for the nameservice"),
        ("hdfs://h:port/x", "that no port number follows"), ("webhdfs://h:99999/x", "for the address of a NameNode"),
    ],
)  # fmt: skip
def test_a_uri_that_leads_to_no_name_node_is_refused(
    uri: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hdfs-site.xml").write_text(SITE.format("dfs.nameservices", "other"))
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    with pytest.raises(FormatError, match=message) as caught:
        open_storage(uri).read("a")
    assert caught.value.hint


def test_site_files_that_are_none(tmp_path: Path) -> None:
    environment = {"HADOOP_CONF_DIR": str(tmp_path)}
    assert site_settings(environment) == {}
    (tmp_path / "core-site.xml").write_text(SITE.format("hadoop.tmp.dir", "/tmp"))
    (tmp_path / "hdfs-site.xml").write_text(SITE.format(" dfs.namenode.http-address ", " h:1 "))
    assert site_settings(environment) == {"dfs.namenode.http-address": "h:1"}
    (tmp_path / "core-site.xml").write_text("<configuration>")
    with pytest.raises(FormatError, match="not a Hadoop configuration file"):
        site_settings(environment)


@pytest.mark.parametrize("uri", ["hdfs://user@h/x", "webhdfs://user:secret@h:1/x"])
def test_a_uri_with_a_name_in_it_is_refused_and_no_secret_said(uri: str) -> None:
    with pytest.raises(FormatError, match="contains credentials") as caught:
        open_storage(uri)
    assert "secret@" not in str(caught.value)


def test_one_place_by_either_address(place: Place, hdfs: Hdfs) -> None:
    place.open().put("a", b"1")
    path = str(place.root).partition(hdfs.at)[2]
    for uri in (f"webhdfs://127.0.0.1:{hdfs.port}/{path}", f"hdfs:///{path}/"):
        assert open_storage(uri).read("a") == b"1"
    assert pickle.loads(pickle.dumps(place.open())).read("a") == b"1"


def test_whose_reply_to_a_rename_is_lost_learns_that_the_name_is_its_own_or_not(place: Place) -> None:
    """The source has gone in either case: the file's number says by whom."""
    storage = place.open()
    assert isinstance(storage, HdfsStorage)
    ask, lost = storage._nodes.ask, 0

    def losing(method: str, path: str, operation: str, **options: str) -> object:
        nonlocal lost
        if operation == "RENAME" and lost == 0:
            lost += 1
            ask(method, path, operation, **options)
        return ask(method, path, operation, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage._nodes, "ask", losing)
        storage.put("a", b"mine")
        lost = 0
        storage.put("a", b"mine again", replace=True)
        lost = 0
        with pytest.raises(FileExistsError):
            storage.put("a", b"another's")
    assert storage.read("a") == b"mine again"
    assert [file.path for file in storage.inventory()] == ["a"]


def test_an_unfinished_file_that_somebody_removes_is_not_taken_for_shown(place: Place) -> None:
    def sweep() -> None:
        storage = place.open()
        for file in storage.inventory():
            assert UNFINISHED in file.path
            storage.delete(file.path)

    with pytest.raises(Unreachable, match="nobody knows"):
        place.open(may_show=sweep).put("a/b", b"1")
    assert not place.open().inventory()


def test_a_file_that_comes_in_pieces_is_there_whole_or_as_it_was(place: Place) -> None:
    storage = place.open()
    assert isinstance(storage, HdfsStorage)
    storage.put_parts("a", (bytes([n]) * 1000 for n in range(100)))
    assert storage.size("a") == 100_000

    def broken(error: Exception) -> Iterator[bytes]:
        yield b"1" * 5000
        raise error

    for error in (OSError("the disk that it is read from"), KeyError("what it is made of")):
        with pytest.raises(type(error), match=str(error)):
            storage.put_parts("a", broken(error))
    assert storage.read("a", 99_999) == bytes([99])
    assert storage.list("") == [("a", 100_000)]


def test_a_file_of_which_a_part_has_arrived_gets_no_name(place: Place) -> None:
    """A DataNode whose client has gone closes the file as it is."""
    storage = place.open()
    assert isinstance(storage, HdfsStorage)
    go = storage._nodes.go

    def cut(method: str, path: str, where: str, body: web.Body = None) -> web.Reply:
        assert isinstance(body, memoryview)
        return go(method, path, where, body[:2])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage._nodes, "go", cut)
        with pytest.raises(Unreachable, match="took 2 bytes of 4"):
            storage.put("a/b", b"abcd")
    assert not storage.inventory()


def test_a_file_lies_where_a_folder_would_be(place: Place) -> None:
    storage = place.open()
    storage.put("a", b"1")
    assert storage.size("a/b") is None
    assert storage.list("a/b") == storage.list("a") == []
    with pytest.raises(NotFound):
        storage.read("a/b")
    with pytest.raises((OSError, FormatError)):
        storage.put("a/b", b"2")
    with pytest.raises(FileExistsError):
        storage.put("a", b"2")
    storage.put("f/x", b"3")
    with pytest.raises((OSError, FormatError)):
        storage.put("f", b"4", replace=True)
    assert storage.read("f/x") == b"3"
    assert sorted(file.path for file in storage.inventory()) == ["a", "f/x"]


def test_who_may_not_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.open().put("a/b", b"1")
    monkeypatch.setenv("HADOOP_USER_NAME", "somebody-else")
    for call in (lambda: place.open().put("a/c", b"2"), lambda: place.open().delete("a/b")):
        with pytest.raises(PermissionError, match="is refused"):
            call()
    assert place.open().read("a/b") == b"1"


def test_a_server_that_does_not_answer_is_out_of_reach(impatient: None) -> None:
    port = free_port()
    storage = HdfsStorage(f"webhdfs://127.0.0.1:{port}/x")
    for call in (lambda: storage.read("a"), lambda: storage.list(""), lambda: storage.put("a", b""), storage.inventory):
        with pytest.raises(Unreachable, match=f"127.0.0.1:{port}") as caught:
            call()
        assert "\n" not in str(caught.value)
        assert "HTTP address" in str(caught.value.hint)


def test_another_name_node_is_asked_where_one_does_not_answer(
    hdfs: Hdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {
        "dfs.nameservices": "lake", "dfs.ha.namenodes.lake": "one,two",
        "dfs.namenode.http-address.lake.one": f"127.0.0.1:{free_port()}",
        "dfs.namenode.http-address.lake.two": f"127.0.0.1:{hdfs.port}",
    }  # fmt: skip
    sites = "".join(f"<property><name>{name}</name><value>{value}</value></property>"
                    for name, value in settings.items())  # fmt: skip
    (tmp_path / "hdfs-site.xml").write_text(f"<configuration>{sites}</configuration>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    storage = HdfsStorage(f"hdfs://lake/{tmp_path.name}")
    storage.put("a", b"1")
    assert storage.read("a") == b"1"


def test_another_data_node_is_asked_for_where_one_does_not_answer(place: Place) -> None:
    storage = place.open()
    assert isinstance(storage, HdfsStorage)
    go, refused = storage._nodes.go, list[str]()

    def refusing(method: str, path: str, where: str, body: web.Body = None) -> web.Reply:
        if len(refused) % 4 < 3:
            refused.append(path)
            raise web.NoReply(where.split("/")[2], ConnectionRefusedError("refused"))
        refused.clear()
        return go(method, path, where, body)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage._nodes, "go", refusing)
        storage.put("a/b", b"1")
        assert storage.read("a/b") == b"1"
    assert [file.path for file in storage.inventory()] == ["a/b"]


def test_replies_of_name_nodes_and_data_nodes_are_lost(
    place: Place, hdfs: Hdfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    with proxy_to(hdfs.port) as proxy:
        use(hdfs, monkeypatch, proxy.port)
        proxy.lose_every = 3
        storage = place.open()
        for number in range(15):
            storage.put(f"a/{number}", bytes([number]) * 1000)
        assert any("/@" in url for _, url in proxy.urls)
    use(hdfs, monkeypatch)
    for number in range(15):
        assert place.open().read(f"a/{number}") == bytes([number]) * 1000
