"""Who we are to an object store, and where it listens: AWS' variables and its files of profiles.

What obstore reads of the environment by itself (keys, roles, web identities, Google's and Azure's variables) is left to
it; added is what it does not know: profiles, an endpoint without TLS, and Hadoop's names for the same things. Nothing
of it is ever taken from a URI, or written into a fact.
"""

from __future__ import annotations

import configparser
import os
import re
import shlex
from collections.abc import Mapping

from formats.errors import FormatError
from formats.redaction import refuse_credentials
from formats.storage.hadoop import is_used, site_settings

BEFORE_PROFILES = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE")
"""Where one of these variables is set, profiles are not asked for keys: the order of AWS' own clients."""
PROFILE_KEYS = {
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
}
OTHER_WAYS = ("credential_process", "role_arn", "sso_session", "sso_start_url", "credential_source")
"""Of a profile that has no keys of its own: they need AWS' own client."""
HADOOP_KEYS = {
    "access.key": "access_key_id",
    "secret.key": "secret_access_key",
    "session.token": "session_token",
    "endpoint": "endpoint",
    "endpoint.region": "region",
}


ENDPOINT, REGION = "abs.endpoint", "abs.region"

_configured: dict[str, str] = {}


def use_hadoop(configuration: Mapping[str, str]) -> None:
    """Let this process be to S3 and HDFS what Spark's or Hadoop's configuration says (`spark.hadoop.fs.s3a.*`), but for
    what variables say."""
    _configured.update({name: value for name, value in configuration.items() if is_used(name)})


def use_options(options: Mapping[str, str | None]) -> None:
    """Let this process, and the workers that it starts, go by what was said on the command line before all else. By
    ENDPOINT and REGION; None: nothing was said. CredentialsRefused."""
    if endpoint := options.get(ENDPOINT):
        refuse_credentials(endpoint, "--endpoint")
    for name, value in options.items():
        if value is None:
            _configured.pop(name, None)
        else:
            _configured[name] = value


def storage_words(path: str) -> str:
    """Return the options of a command line for a URI, as `use_options` was told, each after a space."""
    given = {"--endpoint": _configured.get(ENDPOINT), "--region": _configured.get(REGION)} if "://" in path else {}
    return "".join(f" {option} {shlex.quote(value)}" for option, value in given.items() if value)


def hadoop_configuration(environment: Mapping[str, str]) -> dict[str, str]:
    """What is used of it: what this process was told, else Spark's file of defaults, else Hadoop's site files."""
    return {**site_settings(environment), **_spark_defaults(environment), **_configured}


def s3_settings(environment: Mapping[str, str], bucket: str = "") -> dict[str, str]:
    """What a client of S3 is told beside what it reads of the environment by itself, by obstore's names.

    FormatError for a profile that is named and has no keys, or a file of profiles that is none.
    """
    hadoop = hadoop_settings(hadoop_configuration(environment), bucket)
    profile = _profile(environment)
    settings: dict[str, str] = {}
    if not any(environment.get(name) for name in BEFORE_PROFILES) and "access_key_id" in hadoop:
        settings |= {name: hadoop[name] for name in PROFILE_KEYS.values() if name in hadoop}
    elif not any(environment.get(name) for name in BEFORE_PROFILES):
        settings |= {ours: profile[name] for name, ours in PROFILE_KEYS.items() if name in profile}
        if "access_key_id" not in settings and (way := next((name for name in OTHER_WAYS if name in profile), None)):
            name = _profile_name(environment)
            raise FormatError(
                f"profile {name!r} gets its keys by {way}, which needs AWS' own client",
                hint=f'eval "$(aws configure export-credentials --profile {name} --format env)" sets them',
            )
        if "access_key_id" not in settings and environment.get("AWS_PROFILE"):
            raise FormatError(
                f"profile {environment['AWS_PROFILE']!r} has no keys in {' or '.join(_files(environment))}",
                hint="AWS_PROFILE names it; `aws configure list-profiles` says which there are",
            )
    region = environment.get("AWS_DEFAULT_REGION") or hadoop.get("region") or profile.get("region")
    if region and not environment.get("AWS_REGION"):
        settings["region"] = region
    if REGION in _configured:
        settings["region"] = _configured[REGION]
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    endpoint = endpoint or environment.get("AWS_ENDPOINT") or hadoop.get("endpoint") or profile.get("endpoint_url")
    endpoint = _configured.get(ENDPOINT) or endpoint
    if endpoint:
        settings["endpoint"] = endpoint
    return settings


def hadoop_settings(configuration: Mapping[str, str], bucket: str) -> dict[str, str]:
    """The same from Hadoop's `fs.s3a.*`, also as Spark has them (`spark.hadoop.fs.s3a.*`); those of the bucket win."""
    plain = {name.removeprefix("spark.hadoop."): value for name, value in configuration.items() if value}
    settings: dict[str, str] = {}
    for lead in ("fs.s3a.", f"fs.s3a.bucket.{bucket}."):
        settings |= {ours: plain[lead + name] for name, ours in HADOOP_KEYS.items() if lead + name in plain}
        if (endpoint := settings.get("endpoint", "")) and "://" not in endpoint:
            tls = plain.get(f"{lead}connection.ssl.enabled", "true").lower() != "false"
            settings["endpoint"] = f"{'https' if tls else 'http'}://{endpoint}"
    return settings


def _spark_defaults(environment: Mapping[str, str]) -> dict[str, str]:
    """The lines about stores of Spark's file of defaults; empty where there is none."""
    folder = environment.get("SPARK_CONF_DIR")
    if not folder and environment.get("SPARK_HOME"):
        folder = os.path.join(environment["SPARK_HOME"], "conf")
    if not folder:
        return {}
    try:
        with open(os.path.join(folder, "spark-defaults.conf"), encoding="utf-8", errors="replace") as file:
            pairs = [re.split(r"[\s=]+", line.strip(), maxsplit=1) for line in file]
    except OSError:
        return {}
    return {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2 and is_used(pair[0])}


def _profile_name(environment: Mapping[str, str]) -> str:
    return environment.get("AWS_PROFILE") or "default"


def _files(environment: Mapping[str, str]) -> tuple[str, str]:
    """Of credentials and of the rest."""
    home = os.path.join(environment.get("HOME", "~"), ".aws")
    return (
        environment.get("AWS_SHARED_CREDENTIALS_FILE") or os.path.join(home, "credentials"),
        environment.get("AWS_CONFIG_FILE") or os.path.join(home, "config"),
    )


def _profile(environment: Mapping[str, str]) -> dict[str, str]:
    """What the profile that counts says; empty where there is none. What stands among the credentials wins."""
    name = _profile_name(environment)
    credentials, config = _files(environment)
    settings: dict[str, str] = {}
    for path, section in ((config, name if name == "default" else f"profile {name}"), (credentials, name)):
        parser = configparser.RawConfigParser(strict=False, default_section="")
        try:
            parser.read(os.path.expanduser(path), encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError) as error:
            line = str(error).splitlines()[0]
            raise FormatError(
                f"is not a file of profiles: {line}", path=path, hint="mend it, or set AWS_* instead"
            ) from None
        if parser.has_section(section):
            settings |= dict(parser.items(section))
    return settings
