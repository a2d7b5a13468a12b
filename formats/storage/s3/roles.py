"""Whose keys a request to S3 is signed with, in the order in which obstore looks for them, too: variables, Hadoop's
configuration, profiles, and what lends keys for a while (a web identity, a container's or a machine's role).
"""

from __future__ import annotations

import json
import urllib.request
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from formats.storage.credentials import s3_settings
from formats.storage.lending import MACHINE, SECONDS, Lent, get, lent
from formats.storage.s3.signing import Keys

CONTAINER = "http://169.254.170.2"


def s3_keys(environment: Mapping[str, str], bucket: str = "") -> Keys:
    """The keys; FormatError where there are none."""
    token = environment.get("AWS_SESSION_TOKEN") or environment.get("AWS_TOKEN") or ""
    if environment.get("AWS_ACCESS_KEY_ID") and environment.get("AWS_SECRET_ACCESS_KEY"):
        return Keys(environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"], token)
    settings = s3_settings(environment, bucket)
    if "access_key_id" in settings and "secret_access_key" in settings:
        return Keys(settings["access_key_id"], settings["secret_access_key"], settings.get("session_token", ""))
    return _lent(environment)


def _lent(environment: Mapping[str, str]) -> Keys:
    lender, source = _lender(environment)
    hint = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
    return lent(source, lender, wants="keys for S3 are", hint=hint)


def _lender(environment: Mapping[str, str]) -> tuple[Callable[[], Lent[Keys]], str]:
    """Who lends keys here, and how it is called."""
    if environment.get("AWS_WEB_IDENTITY_TOKEN_FILE"):
        return (lambda: _of_web_identity(environment)), f"role {environment.get('AWS_ROLE_ARN', '(AWS_ROLE_ARN)')}"
    relative, full = (environment.get(f"AWS_CONTAINER_CREDENTIALS_{n}_URI") for n in ("RELATIVE", "FULL"))
    if url := CONTAINER + relative if relative else full:
        return (lambda: _of_container(url, environment)), f"the container's role ({url})"
    machine = environment.get("AWS_METADATA_ENDPOINT") or MACHINE
    return (lambda: _of_machine(machine.rstrip("/"))), f"the machine's role ({machine})"


def _of_container(url: str, environment: Mapping[str, str]) -> Lent[Keys]:
    file = environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
    token = Path(file).read_text().strip() if file else environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN")
    return _of_json(get(url, {"Authorization": token} if token else {}))


def _of_web_identity(environment: Mapping[str, str]) -> Lent[Keys]:
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or "us-east-1"
    endpoint = environment.get("AWS_ENDPOINT_URL_STS") or f"https://sts.{region}.amazonaws.com"
    query = urlencode({
        "Action": "AssumeRoleWithWebIdentity",
        "Version": "2011-06-15",
        "RoleArn": environment["AWS_ROLE_ARN"],
        "RoleSessionName": environment.get("AWS_ROLE_SESSION_NAME") or "abs",
        "WebIdentityToken": Path(environment["AWS_WEB_IDENTITY_TOKEN_FILE"]).read_text().strip(),
    })  # fmt: skip
    with urllib.request.urlopen(f"{endpoint}/?{query}", data=b"", timeout=SECONDS) as reply:
        answer = ElementTree.fromstring(reply.read())
    loan = answer.find(".//{*}Credentials")
    if loan is None:
        raise ValueError("its answer has no Credentials")
    names = ("AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration")
    access, secret, token, until = (loan.findtext(f"{{*}}{name}") or "" for name in names)
    return Lent(Keys(access, secret, token), datetime.fromisoformat(until).timestamp())


def _of_machine(endpoint: str) -> Lent[Keys]:
    token = get(f"{endpoint}/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "600"}, method="PUT")
    headers = {"X-aws-ec2-metadata-token": token.decode()}
    roles = f"{endpoint}/latest/meta-data/iam/security-credentials/"
    role = get(roles, headers).decode().split()[0:1]
    if not role:
        raise ValueError("the machine has none")
    return _of_json(get(roles + role[0], headers))


def _of_json(answer: bytes) -> Lent[Keys]:
    loan: dict[str, Any] = json.loads(answer)
    keys = Keys(loan["AccessKeyId"], loan["SecretAccessKey"], loan.get("Token") or "")
    return Lent(keys, datetime.fromisoformat(loan["Expiration"]).timestamp())

