"""Uploads in parts, by their ids, on what speaks S3 and on Azure; the signature of AWS, and whose keys sign."""

from __future__ import annotations

import base64
import http.server
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode

import pytest

from formats.errors import Damaged, FormatError, NotFound, Unreachable
from formats.storage import ObjectStorage, objects
from formats.storage.azure_access import Access, authorized, azure_access, container_url
from formats.storage.azure_uploads import AzureUploads
from formats.storage.http_uploads import Answer
from formats.storage.objects import bucket_of
from formats.storage.roles import s3_keys
from formats.storage.shared_key import authorization, string_to_sign
from formats.storage.signing import Keys, signed
from formats.storage.uploading import open_uploads
from tests.support.objects.fixtures import Servers, use
from tests.support.objects.places import bucket_place
from tests.support.objects.proxy import proxy_to
from tests.support.objects.servers import AZURE_ACCOUNT, AZURE_KEY, free_port

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
    monkeypatch.setitem(objects.RETRY, "max_retries", 0)
    with pytest.raises((NotFound, Unreachable), match=r"given up|status 500"):  # an error within moto
        uploads.put("x", id, 1, b"1")
    assert uploads.below() == []


def test_all_are_listed_that_lie_below_and_no_others(place: str) -> None:
    uploads, other = open_uploads(f"{place}/sink"), open_uploads(f"{place}/sink-2")
    other.put("x", other.begin("x", "d"), 1, b"x")
    begun = {(path, uploads.begin(path, "d")) for path in ("a", "b", "b", "c/d")}
    for path, id in begun:
        uploads.put(path, id, 1, b"x")
    assert {(upload.path, upload.id) for upload in uploads.below()} == begun


@pytest.mark.parametrize("dies_before", ["delete", "identity"])
def test_who_was_killed_completing_on_googles_leaves_it_completed(
    servers: Servers, monkeypatch: pytest.MonkeyPatch, dies_before: str
) -> None:
    """Between the copy and the deletion of what was staged; `identity`: by who came next and was killed, too."""
    place = str(bucket_place(use(servers.get(GOOGLE), monkeypatch)).root)
    uploads, storage = open_uploads(place), ObjectStorage(place)
    id = uploads.begin("x", "d")
    etag = uploads.put("x", id, 1, b"x")

    def dies(*arguments: object) -> None:
        raise KeyboardInterrupt

    for method in ("delete", dies_before):
        with monkeypatch.context() as patch:
            patch.setattr(ObjectStorage, method, dies)
            with pytest.raises(KeyboardInterrupt):
                uploads.complete("x", id, [etag], "d")
    assert [(upload.path, upload.id) for upload in uploads.below()] == [("x", id)]
    assert storage.read("x") == b"x"
    assert uploads.complete("x", id, [etag], "d")
    assert uploads.below() == []
    assert not uploads.complete("x", id, [etag], "d")
    assert storage.identity("x") == "d"


def test_what_is_taken_away_from_googles_does_not_come_again(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by who had been stopped before it completed, either: `end` comes first."""
    place = str(bucket_place(use(servers.get(GOOGLE), monkeypatch)).root)
    uploads, storage = open_uploads(place), ObjectStorage(place)
    id, other = uploads.begin("x", "d"), uploads.begin("y", "d")
    etag = uploads.put("x", id, 1, b"x")
    uploads.put("y", other, 1, b"y")
    storage.copy(f".staged/x/{id}/{etag}", "x", replace=False)  # by who was killed then
    uploads.end(["x"])
    storage.delete("x")
    assert not uploads.complete("x", id, [etag], "d")
    assert storage.size("x") is None
    assert [upload.id for upload in uploads.below()] == [other]


def test_googles_completes_over_nothing_that_is_there(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    place = str(bucket_place(use(servers.get(GOOGLE), monkeypatch)).root)
    uploads, storage = open_uploads(place), ObjectStorage(place)
    storage.put("x", b"another's")
    id = uploads.begin("x", "d")
    etag = uploads.put("x", id, 1, b"ours")
    assert not uploads.complete("x", id, [etag], "d")
    assert storage.read("x") == b"another's"
    assert uploads.size("x", id) == 4
    with pytest.raises(ValueError, match="as a whole"):
        uploads.put("x", id, 2, b"more")


def test_of_twenty_that_complete_one_upload_at_once_nobody_fails(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = str(bucket_place(use(servers.get(GOOGLE), monkeypatch)).root)
    uploads, storage = open_uploads(place), ObjectStorage(place)
    for n in range(5):
        id = uploads.begin(f"{n}", "d")
        etag = uploads.put(f"{n}", id, 1, b"x")
        complete = partial(uploads.complete, f"{n}", id, [etag], "d")
        with ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(lambda _, complete=complete: complete(), range(20)))
        assert any(answers)
        assert storage.identity(f"{n}") == "d"
    assert uploads.below() == []


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


def test_who_was_killed_giving_one_up_leaves_it_to_be_given_up(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Azure a blob without a byte stands there between two requests."""
    uploads = open_uploads(str(bucket_place(use(servers.get("Azure by Azurite"), monkeypatch)).root))
    id = uploads.begin("x", "d")
    etag = uploads.put("x", id, 1, b"x")
    plain = AzureUploads._ask

    def ask(self: AzureUploads, method: str, *arguments: Any, **options: Any) -> Answer:
        if method == "DELETE":
            raise KeyboardInterrupt
        return plain(self, method, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(AzureUploads, "_ask", ask)
        with pytest.raises(KeyboardInterrupt):
            uploads.abort("x", [id])
    assert [(upload.path, upload.id) for upload in uploads.below()] == [("x", id)]
    assert uploads.size("x", id) == 0
    assert not uploads.complete("x", id, [etag], "d")
    uploads.abort("x", [id])
    assert uploads.below() == []
    assert ObjectStorage(uploads.root).size("x") is None


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
    monkeypatch.setitem(objects.RETRY, "max_retries", 1)
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


def test_blocks_of_another_program_are_none_of_ours(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    """They lie at the same name: with ours they would go, so ours stay, for the week that the server keeps them."""
    uploads = open_uploads(str(bucket_place(use(servers.get("Azure by Azurite"), monkeypatch)).root))
    assert isinstance(uploads, AzureUploads)
    id = uploads.begin("x", "d")
    uploads.put("x", id, 1, b"ours")
    theirs = base64.b64encode(b"theirs".ljust(63, b".")).decode()  # all of a blob are of one length
    uploads._ask("PUT", "x", {"comp": "block", "blockid": theirs}, body=b"theirs", headers={"content-type": "x/y"})
    assert [upload.id for upload in uploads.below()] == [id]
    uploads.abort("x", [id])
    assert uploads.size("x", id) == 4


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
    with pytest.raises(FormatError, match="no base64"):
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


DOCUMENTED = Keys("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")


@pytest.mark.parametrize(
    ("path", "query", "headers", "signature"),
    [
        ("/test.txt", {}, {"Range": "bytes=0-9"}, "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"),
        ("/", {"lifecycle": ""}, {}, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
        ("/", {"prefix": "J", "max-keys": "2"}, {}, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
    ],
)
def test_requests_of_awss_documentation_get_its_signatures(
    path: str, query: Mapping[str, str], headers: Mapping[str, str], signature: str
) -> None:
    """As "Authenticating Requests: Using the Authorization Header" of the S3 API reference has them."""
    sends = signed(
        "GET", "examplebucket.s3.amazonaws.com", path, query, headers, b"", keys=DOCUMENTED, region="us-east-1",
        at=datetime(2013, 5, 24, tzinfo=UTC),
    )  # fmt: skip
    assert sends["authorization"].endswith(f"Signature={signature}")


def test_a_secret_is_not_shown() -> None:
    assert DOCUMENTED.secret not in repr(DOCUMENTED) + str(DOCUMENTED)


# -- whose keys -----------------------------------------------------------------------------------------------

NOWHERE = {"HOME": "/nonexistent"}
LENT = {"AccessKeyId": "lent", "SecretAccessKey": "s", "Token": "t", "Expiration": "2099-01-01T00:00:00Z"}


def test_variables_come_before_profiles_and_profiles_before_roles(tmp_path: Path) -> None:
    credentials = tmp_path / "credentials"
    credentials.write_text(
        "[default]\naws_access_key_id = p\naws_secret_access_key = ps\naws_session_token = pt\n"
    )
    profile = {**NOWHERE, "AWS_SHARED_CREDENTIALS_FILE": str(credentials), "AWS_METADATA_ENDPOINT": "http://127.0.0.1:9"}
    assert s3_keys(profile) == Keys("p", "ps", "pt")
    variables = {"AWS_ACCESS_KEY_ID": "v", "AWS_SECRET_ACCESS_KEY": "vs"}
    assert s3_keys({**profile, **variables}) == Keys("v", "vs")
    assert s3_keys({**profile, **variables, "AWS_SESSION_TOKEN": "vt"}) == Keys("v", "vs", "vt")


@pytest.fixture
def lender() -> Iterator[tuple[str, list[tuple[str, str, dict[str, str]]]]]:
    """What lends keys on a machine, in a container and for a web identity, as AWS documents each; what it was asked."""
    # A form stands behind the path, as a query does.
    asked: list[tuple[str, str, dict[str, str]]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def _answer(self) -> None:
            form = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            path = f"{self.path}?{form}" if form else self.path
            asked.append((self.command, path, {name.lower(): value for name, value in self.headers.items()}))
            answers: dict[str, Callable[[], str]] = {
                "/latest/api/token": lambda: "a token",
                "/latest/meta-data/iam/security-credentials/": lambda: "role",
                "/latest/meta-data/iam/security-credentials/role": lambda: json.dumps(LENT),
                "/container": lambda: json.dumps(LENT),
                "/tenant/oauth2/v2.0/token": lambda: json.dumps({"access_token": "of a client", "expires_in": 3599}),
                "/metadata/identity/oauth2/token": lambda: json.dumps(
                    {"access_token": "of a machine", "expires_on": "4102444800"}
                ),
                "/": lambda: (
                    '<R xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Credentials><AccessKeyId>lent</AccessKeyId>'
                    "<SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>"
                    "<Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></R>"
                ),
            }
            answer = answers.get(self.path.partition("?")[0])
            body = answer().encode() if answer else b""
            self.send_response(200 if answer else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_POST = _answer

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_keys_are_lent_by_machines_containers_and_web_identities(
    lender: tuple[str, list[tuple[str, str, dict[str, str]]]], tmp_path: Path
) -> None:
    url, asked = lender
    assert s3_keys({**NOWHERE, "AWS_METADATA_ENDPOINT": url}) == Keys("lent", "s", "t")
    assert [request[:2] for request in asked[:2]] == [
        ("PUT", "/latest/api/token"), ("GET", "/latest/meta-data/iam/security-credentials/"),
    ]  # fmt: skip
    assert asked[1][2]["x-aws-ec2-metadata-token"] == "a token"
    count = len(asked)
    s3_keys({**NOWHERE, "AWS_METADATA_ENDPOINT": url})
    assert len(asked) == count  # lent until 2099
    container = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{url}/container", "AWS_CONTAINER_AUTHORIZATION_TOKEN": "auth"}
    assert s3_keys({**NOWHERE, **container}) == Keys("lent", "s", "t")
    assert asked[-1][2]["authorization"] == "auth"
    (tmp_path / "token").write_text("jwt\n")
    web = {"AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "token"), "AWS_ROLE_ARN": "arn:x", "AWS_ENDPOINT_URL_STS": url}
    assert s3_keys({**NOWHERE, **web}) == Keys("lent", "s", "t")
    assert "WebIdentityToken=jwt" in asked[-1][1]


def test_tokens_are_lent_to_clients_of_azure_workloads_and_machines(
    lender: tuple[str, list[tuple[str, str, dict[str, str]]]], tmp_path: Path
) -> None:
    url, asked = lender
    client = {"AZURE_CLIENT_ID": "c", "AZURE_TENANT_ID": "tenant", "AZURE_AUTHORITY_HOST": f"{url}/"}
    assert azure_access({**client, "AZURE_CLIENT_SECRET": "s&t"}) == Access(token="of a client")
    assert parse_qs(asked[-1][1].partition("?")[2]) == {
        "client_id": ["c"], "client_secret": ["s&t"], "grant_type": ["client_credentials"],
        "scope": ["https://storage.azure.com/.default"],
    }  # fmt: skip
    (tmp_path / "token").write_text("jwt\n")
    workload = {**client, "AZURE_CLIENT_ID": "w", "AZURE_FEDERATED_TOKEN_FILE": str(tmp_path / "token")}
    assert azure_access(workload) == Access(token="of a client")
    assert parse_qs(asked[-1][1].partition("?")[2])["client_assertion"] == ["jwt"]
    count = len(asked)
    azure_access(workload)
    assert len(asked) == count
    machine = {"AZURE_MSI_ENDPOINT": f"{url}/metadata/identity/oauth2/token", "AZURE_CLIENT_ID": "m"}
    assert azure_access({**machine, "IDENTITY_HEADER": "h"}) == Access(token="of a machine")
    assert parse_qs(asked[-1][1].partition("?")[2])["client_id"] == ["m"]
    assert (asked[-1][2]["metadata"], asked[-1][2]["x-identity-header"]) == ("true", "h")
    with pytest.raises(FormatError, match=r"no key for Azure is known, and .*No such file") as caught:
        azure_access({**workload, "AZURE_FEDERATED_TOKEN_FILE": "/nonexistent"})
    assert "AZURE_CLIENT_ID" in (caught.value.hint or "")
    with pytest.raises(FormatError, match=r"no key for Azure is known, and .* lends none"):
        azure_access({**client, "AZURE_CLIENT_SECRET": "s", "AZURE_TENANT_ID": "another"})


def test_where_nobody_lends_keys_it_says_what_to_set() -> None:
    with pytest.raises(FormatError, match="no keys for S3 are known, and the machine's role") as caught:
        s3_keys({**NOWHERE, "AWS_METADATA_ENDPOINT": f"http://127.0.0.1:{free_port()}"})
    assert "AWS_ACCESS_KEY_ID" in (caught.value.hint or "")
    with pytest.raises(FormatError, match="lends none"):
        s3_keys({**NOWHERE, "AWS_WEB_IDENTITY_TOKEN_FILE": "/nonexistent", "AWS_ROLE_ARN": "arn:y"})
    with pytest.raises(FormatError, match="lends none"):
        s3_keys({
            **NOWHERE, "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://127.0.0.1:9/x",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": "/nonexistent",
        })  # fmt: skip
