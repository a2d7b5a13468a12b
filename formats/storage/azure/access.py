"""Who we are to Azure's object store, and where it listens: what obstore reads of the environment, read here as well,
for the requests that it does not make."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from email.utils import format_datetime
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

from formats.errors import FormatError
from formats.storage.azure.shared_key import authorization, string_to_sign
from formats.storage.azure.tokens import client_token, machine_token
from formats.storage.places import Bucket
from formats.storage.urls import query_of

VERSION = "2021-12-02"
"""Of Azure's interface; since 2019-12-12 a block may have more than 100 MiB."""
ACCOUNT = "AZURE_STORAGE_ACCOUNT_NAME"
TOKEN = ("AZURE_STORAGE_TOKEN",)
KEY = ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_MASTER_KEY")
SAS = ("AZURE_STORAGE_SAS_KEY", "AZURE_STORAGE_SAS_TOKEN")
ENDPOINT = ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")
OWN_ENCRYPTION = "AZURE_ENCRYPTION_KEY"


class Access(NamedTuple):
    """What lets us in: one of a bearer's token, an account's key (in base64) and a shared access signature."""

    token: str = ""
    key: str = ""
    sas: str = ""

    def __repr__(self) -> str:
        return f"Access({'/'.join(name for name in self._fields if getattr(self, name))})"


def azure_access(environment: Mapping[str, str]) -> Access:
    """The first that there is, in obstore's order; FormatError where there is none."""
    if environment.get(OWN_ENCRYPTION):
        raise FormatError(
            f"uploads to Azure are not made with a key of one's own to encrypt with ({OWN_ENCRYPTION})",
            hint="unset it, or let the sink write to another place",
        )
    if token := _first(environment, TOKEN):
        return Access(token=token)
    if key := _first(environment, KEY):
        return Access(key=key)
    if token := client_token(environment):
        return Access(token=token)
    if sas := _first(environment, SAS):
        return Access(sas=sas.lstrip("?"))
    return Access(token=machine_token(environment, f"set {KEY[0]}, {SAS[1]} or {TOKEN[0]}"))


def container_url(environment: Mapping[str, str], bucket: Bucket) -> str:
    """The URL of a container; FormatError where nothing says whose it is."""
    if endpoint := _first(environment, ENDPOINT):
        return f"{endpoint.rstrip('/')}/{bucket.name}"
    return f"https://{account_of(environment, bucket)}.blob.core.windows.net/{bucket.name}"


def account_of(environment: Mapping[str, str], bucket: Bucket) -> str:
    """Whose a container is; FormatError where nothing says it."""
    if account := bucket.account or environment.get(ACCOUNT):
        return account
    raise FormatError("no account of Azure is named", hint=f"set {ACCOUNT}, or abfss://CONTAINER@ACCOUNT.dfs...")


def authorized(
    access: Access, account: str, method: str, url: str, query: Mapping[str, str], headers: Mapping[str, str],
    length: int, at: datetime,
) -> tuple[str, dict[str, str]]:  # fmt: skip
    """The whole URL of a request and its headers, with what lets us in.

    url: without a query; length: of the body; at: in UTC.
    """
    sends = {
        "x-ms-version": VERSION,
        "x-ms-date": format_datetime(at, usegmt=True),
        **{name.lower(): value for name, value in headers.items()},
    }
    whole = f"{url}?{query_of(query)}" if query else url
    if access.token:
        return whole, {**sends, "authorization": f"Bearer {access.token}"}
    if access.sas:
        pairs = (pair.partition("=") for pair in access.sas.split("&"))
        signature = "&".join(f"{name}={quote(unquote(value), safe='')}" for name, _, value in pairs)
        return f"{whole}{'&' if query else '?'}{signature}", sends
    text = string_to_sign(account, method, urlsplit(url).path, query, {**sends, "content-length": str(length)})
    try:
        return whole, {**sends, "authorization": authorization(account, access.key, text)}
    except ValueError:
        raise FormatError("the key of the account is not base64", hint=f"{KEY[0]} has it as Azure shows it") from None


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((value for name in names if (value := environment.get(name))), "")
