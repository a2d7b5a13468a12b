"""Requests to S3 signed as AWS wants it (Signature Version 4): of keys, a region and a moment, nothing is asked.

By hand, since the one well-kept library that signs (botocore) is 30 MB and takes a third of a second to load, and the
client that does all else (obstore) signs only requests of its own.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from formats.storage.urls import query_of

ALGORITHM = "AWS4-HMAC-SHA256"


class Keys(NamedTuple):
    """Who asks. token: of keys that were lent for a while, empty for others."""

    access: str
    secret: str
    token: str = ""

    def __repr__(self) -> str:
        return f"Keys({self.access}, …)"


def signed(
    method: str,
    host: str,
    path: str,
    query: Mapping[str, str],
    headers: Mapping[str, str],
    body: bytes | memoryview,
    *,
    keys: Keys,
    region: str,
    at: datetime,
    service: str = "s3",
) -> dict[str, str]:
    """The headers of a request with those that sign it; all that are given are signed.

    host: as the URL has it, with a port that is not the scheme's own. path: as in the URL. at: in UTC.
    """
    stamp = at.strftime("%Y%m%dT%H%M%SZ")
    digest = hashlib.sha256(body).hexdigest()
    everything = {"host": host, "x-amz-date": stamp, **{name.lower(): value for name, value in headers.items()}}
    if service == "s3":
        everything["x-amz-content-sha256"] = digest
    if keys.token:
        everything["x-amz-security-token"] = keys.token
    names = ";".join(sorted(everything))
    lines = "".join(f"{name}:{' '.join(everything[name].split())}\n" for name in sorted(everything))
    canonical = "\n".join((method, path, query_of(query), lines, names, digest))
    scope = f"{stamp[:8]}/{region}/{service}/aws4_request"
    text = "\n".join((ALGORITHM, stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()))
    key = f"AWS4{keys.secret}".encode()
    for piece in (stamp[:8], region, service, "aws4_request"):
        key = hmac.digest(key, piece.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    del everything["host"]
    authorization = f"{ALGORITHM} Credential={keys.access}/{scope}, SignedHeaders={names}, Signature={signature}"
    return {**everything, "authorization": authorization}
