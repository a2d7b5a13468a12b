"""Requests to Azure's object store signed with an account's key (Shared Key), in the header that says so."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping

IN_ORDER = (
    "content-encoding", "content-language", "content-length", "content-md5", "content-type", "date",
    "if-modified-since", "if-match", "if-none-match", "if-unmodified-since", "range",
)  # fmt: skip


def string_to_sign(
    account: str, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str]
) -> str:
    """What is signed. path: as in the URL; query: as it is before it is quoted; headers: by names in lower case."""
    plain = [headers.get(name, "") for name in IN_ORDER]
    if headers.get("content-length") == "0":  # as it is since version 2015-02-21
        plain[IN_ORDER.index("content-length")] = ""
    theirs = "".join(f"{name}:{headers[name].strip()}\n" for name in sorted(headers) if name.startswith("x-ms-"))
    asked = "".join(f"\n{name.lower()}:{query[name]}" for name in sorted(query, key=str.lower))
    return "\n".join((method, *plain, f"{theirs}/{account}{path}{asked}"))


def authorization(account: str, key: str, text: str) -> str:
    """The header of a request with this to sign. key: in base64, as the account has it; ValueError if it is none."""
    signature = hmac.digest(base64.b64decode(key, validate=True), text.encode(), hashlib.sha256)
    return f"SharedKey {account}:{base64.b64encode(signature).decode()}"
