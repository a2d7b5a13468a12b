"""Uploads in parts, by their ids, on what speaks S3; the signature of AWS, and whose keys sign."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from formats.errors import Damaged, FormatError, NotFound, Unreachable
from formats.storage import ObjectStorage, objects
from formats.storage.roles import s3_keys
from formats.storage.signing import Keys, signed
from formats.storage.uploads import Uploads
from tests.support.objects.fixtures import Servers, s3, servers, use
from tests.support.objects.places import bucket_place
from tests.support.objects.proxy import proxy_to
from tests.support.objects.servers import ObjectServer, free_port

__all__ = ("s3", "servers")
MIB = 1 << 20


@pytest.fixture(params=["S3 by moto", "S3 by Ceph RGW"])
def place(request: pytest.FixtureRequest, servers: Servers, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URI of a place in a bucket of each server."""
    return str(bucket_place(use(servers.get(request.param), monkeypatch)).root)


def test_an_upload_appears_when_it_is_completed_and_may_be_completed_again(place: str) -> None:
    uploads, storage = Uploads(place), ObjectStorage(place)
    path = "out/part ü+1.jsonl"
    id = uploads.begin(path, "its digest")
    etags = [uploads.put(path, id, 1, b"a" * 5 * MIB), uploads.put(path, id, 2, b"b")]
    assert uploads.put(path, id, 2, b"b") == etags[1]  # as one whose reply was lost
    assert uploads.size(path, id) == 5 * MIB + 1
    assert [(upload.path, upload.id) for upload in uploads.below()] == [(path, id)]
    assert storage.size(path) is None
    assert Uploads(place).complete(path, id, etags)
    assert storage.read(path, 5 * MIB - 1) == b"ab"
    assert storage.identity(path) == "its digest"
    uploads.complete(path, id, etags)  # true of some servers, false of others
    assert storage.size(path) == 5 * MIB + 1
    assert uploads.below() == []
    storage.copy(path, "aside")
    assert storage.identity("aside") == "its digest"


def test_one_that_was_given_up_is_gone(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    uploads = Uploads(place)
    id = uploads.begin("x", "d")
    etag = uploads.put("x", id, 1, b"1")
    with pytest.raises(Damaged, match="InvalidPart"):
        uploads.complete("x", id, ['"0123456789abcdef0123456789abcdef"'])
    uploads.abort("x", id)
    uploads.abort("x", id)
    assert uploads.size("x", id) is None
    assert not uploads.complete("x", id, [etag])
    monkeypatch.setitem(objects.RETRY, "max_retries", 0)
    with pytest.raises((NotFound, Unreachable), match=r"given up|status 500"):  # an error within moto
        uploads.put("x", id, 1, b"1")
    assert uploads.below() == []


def test_all_are_listed_that_lie_below_and_no_others(place: str) -> None:
    uploads, other = Uploads(f"{place}/sink"), Uploads(f"{place}/sink-2")
    other.begin("x", "d")
    begun = {(path, uploads.begin(path, "d")) for path in ("a", "b", "b", "c/d")}
    assert {(upload.path, upload.id) for upload in uploads.below()} == begun


def test_no_bucket_no_right_and_no_server_are_said(s3: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotFound, match="there is no bucket 'no-such-bucket'"):
        Uploads("s3://no-such-bucket/x").begin("p", "d")
    monkeypatch.setitem(objects.RETRY, "max_retries", 1)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{(port := free_port())}")
    with pytest.raises(Unreachable, match=f"127.0.0.1:{port} does not answer, tried 2 times"):
        Uploads("s3://bucket/x").below()


def test_a_wrong_key_is_refused(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    place = str(bucket_place(use(servers.get("S3 by Ceph RGW"), monkeypatch)).root)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    with pytest.raises(PermissionError, match="SignatureDoesNotMatch"):
        Uploads(place).begin("p", "d")


def test_a_server_that_is_away_for_a_moment_is_asked_again(
    s3: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = str(bucket_place(s3).root)
    with proxy_to(s3.port) as proxy:
        use(s3, monkeypatch, proxy.port)
        proxy.lose_every, proxy.loses_of = 2, frozenset({"POST", "PUT"})
        uploads = Uploads(place)
        for n in range(6):
            id = uploads.begin(f"{n}", "d")
            etag = uploads.put(f"{n}", id, 1, b"x")
            assert uploads.complete(f"{n}", id, [etag]) or ObjectStorage(place).identity(f"{n}") == "d"
        assert proxy.lost > 3
    use(s3, monkeypatch)
    assert len(ObjectStorage(place).list("")) == 6


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
    asked: list[tuple[str, str, dict[str, str]]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def _answer(self) -> None:
            asked.append((self.command, self.path, {name.lower(): value for name, value in self.headers.items()}))
            answers: dict[str, Callable[[], str]] = {
                "/latest/api/token": lambda: "a token",
                "/latest/meta-data/iam/security-credentials/": lambda: "role",
                "/latest/meta-data/iam/security-credentials/role": lambda: json.dumps(LENT),
                "/container": lambda: json.dumps(LENT),
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
