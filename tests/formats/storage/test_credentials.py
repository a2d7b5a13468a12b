"""Who we are to an object store: variables first, then profiles; Hadoop's names for the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from formats.errors import FormatError
from formats.storage import credentials
from formats.storage.credentials import hadoop_configuration, hadoop_settings, s3_settings, use_hadoop

CREDENTIALS = """[default]
aws_access_key_id = default-key
aws_secret_access_key = default%secret
[work]
aws_access_key_id = work-key
aws_secret_access_key = work-secret
aws_session_token = work-token
[empty]
"""
CONFIG = """[default]
region = eu-central-1
s3 =
    max_concurrent_requests = 20
[profile work]
region = eu-west-1
endpoint_url = http://127.0.0.1:9000
[profile single]
sso_session = company
[profile other]
role_arn = arn:aws:iam::1:role/x
source_profile = default
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / ".aws"
    folder.mkdir()
    (folder / "credentials").write_text(CREDENTIALS)
    (folder / "config").write_text(CONFIG)
    return tmp_path


def test_without_variables_the_default_profile_counts(home: Path) -> None:
    assert s3_settings({"HOME": str(home)}) == {
        "access_key_id": "default-key", "secret_access_key": "default%secret", "region": "eu-central-1",
    }  # fmt: skip


def test_a_profile_is_named_and_its_files_may_lie_elsewhere(home: Path, tmp_path: Path) -> None:
    settings = {
        "access_key_id": "work-key", "secret_access_key": "work-secret", "session_token": "work-token",
        "region": "eu-west-1", "endpoint": "http://127.0.0.1:9000",
    }  # fmt: skip
    assert s3_settings({"HOME": str(home), "AWS_PROFILE": "work"}) == settings
    elsewhere = {
        "HOME": "/nowhere", "AWS_PROFILE": "work", "AWS_CONFIG_FILE": str(home / ".aws" / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(home / ".aws" / "credentials"),
    }  # fmt: skip
    assert s3_settings(elsewhere) == settings


@pytest.mark.parametrize("name", ["AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE"])
def test_variables_come_before_profiles(home: Path, name: str) -> None:
    """A key of one and a secret of the other would be nobody's."""
    settings = s3_settings({"HOME": str(home), "AWS_PROFILE": "work", name: "x", "AWS_REGION": "us-west-2"})
    assert settings == {"endpoint": "http://127.0.0.1:9000"}
    both = {"AWS_ENDPOINT_URL_S3": "http://h:1", "AWS_ENDPOINT_URL": "http://other:1"}
    settings = s3_settings({"HOME": str(home), name: "x", **both})
    assert settings == {"region": "eu-central-1", "endpoint": "http://h:1"}


@pytest.mark.parametrize(
    ("profile", "message"),
    [("none", "has no keys"), ("empty", "has no keys"), ("single", "sso_session"), ("other", "role_arn")],
)
def test_a_profile_without_keys_says_why_and_what_to_do(home: Path, profile: str, message: str) -> None:
    with pytest.raises(FormatError, match=message) as caught:
        s3_settings({"HOME": str(home), "AWS_PROFILE": profile})
    assert caught.value.hint


def test_no_files_and_no_profile_leave_it_to_roles(tmp_path: Path) -> None:
    assert s3_settings({"HOME": str(tmp_path)}) == {}
    assert s3_settings({}) == {} or (Path.home() / ".aws").exists()


@pytest.mark.parametrize("data", [b"no section", b"\xff\xfe"])
def test_a_file_that_holds_no_profiles_is_named(home: Path, data: bytes) -> None:
    (home / ".aws" / "credentials").write_bytes(data)
    with pytest.raises(FormatError, match="is not a file of profiles") as caught:
        s3_settings({"HOME": str(home)})
    assert caught.value.path == str(home / ".aws" / "credentials")


def test_hadoops_names_mean_the_same_and_those_of_the_bucket_win() -> None:
    configuration = {
        "fs.s3a.access.key": "key", "spark.hadoop.fs.s3a.secret.key": "secret", "fs.s3a.session.token": "token",
        "fs.s3a.endpoint": "127.0.0.1:9000", "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.bucket.mine.access.key": "my key", "fs.s3a.endpoint.region": "eu-west-1", "fs.defaultFS": "hdfs://n",
    }  # fmt: skip
    settings = {
        "access_key_id": "key", "secret_access_key": "secret", "session_token": "token", "region": "eu-west-1",
        "endpoint": "http://127.0.0.1:9000",
    }  # fmt: skip
    assert hadoop_settings(configuration, "other") == settings
    assert hadoop_settings(configuration, "mine") == {**settings, "access_key_id": "my key"}
    assert hadoop_settings({"fs.s3a.endpoint": "s3.eu-west-1.amazonaws.com"}, "b") == {
        "endpoint": "https://s3.eu-west-1.amazonaws.com"
    }
    assert hadoop_settings({}, "b") == {}


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "_configured", {})


@pytest.mark.usefixtures("told")
def test_what_spark_is_configured_with_comes_between_variables_and_profiles(home: Path) -> None:
    (home / "spark-defaults.conf").write_text(
        "# fs.s3a.access.key no\nspark.hadoop.fs.s3a.access.key  file-key\nspark.hadoop.fs.s3a.secret.key=file-secret\n"
        "spark.master yarn\nfs.s3a.lonely\n"
    )
    environment = {"HOME": str(home), "SPARK_CONF_DIR": str(home)}
    keys = {"access_key_id": "file-key", "secret_access_key": "file-secret", "region": "eu-central-1"}
    assert s3_settings(environment) == keys
    use_hadoop({"spark.hadoop.fs.s3a.access.key": "session-key", "spark.hadoop.fs.s3a.endpoint": "h:1", "spark.x": "y"})
    assert s3_settings(environment) == {**keys, "access_key_id": "session-key", "endpoint": "https://h:1"}
    assert set(hadoop_configuration({})) == {"spark.hadoop.fs.s3a.access.key", "spark.hadoop.fs.s3a.endpoint"}
    environment |= {"AWS_ACCESS_KEY_ID": "x", "AWS_ENDPOINT_URL": "http://mine:1"}
    assert s3_settings(environment) == {"region": "eu-central-1", "endpoint": "http://mine:1"}
    assert hadoop_configuration({"SPARK_HOME": "/nowhere"}).keys() == hadoop_configuration({}).keys()
