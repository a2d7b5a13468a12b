"""Requests signed as AWS wants it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from formats.storage.s3.signing import Keys, signed

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
