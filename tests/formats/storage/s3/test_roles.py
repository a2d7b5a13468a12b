"""Whose keys sign requests to S3."""

from __future__ import annotations

from pathlib import Path

import pytest

from formats.errors import FormatError
from formats.storage.s3.roles import s3_keys
from formats.storage.s3.signing import Keys
from tests.support.objects.servers import free_port

NOWHERE = {"HOME": "/nonexistent"}


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
