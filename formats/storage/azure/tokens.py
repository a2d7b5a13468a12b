"""Tokens for Azure's object store that are lent for a while: to a client with a secret, to a workload by what
Kubernetes says of it, and to a machine by what runs it."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from formats.errors import FormatError
from formats.redaction import redact_error
from formats.storage.lending import MACHINE, SECONDS, Lent, get, lent

AUTHORITY = "https://login.microsoftonline.com"
RESOURCE = "https://storage.azure.com"
WHICH = "do AZURE_CLIENT_ID, AZURE_TENANT_ID and what proves them name it right?"
BY_TOKEN = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


def client_token(environment: Mapping[str, str]) -> str:
    """Of a workload's identity or of a client with a secret, whichever the environment describes; empty where it
    describes none. FormatError where none is lent."""
    client, tenant = _named(environment, "CLIENT_ID"), _named(environment, "TENANT_ID", "AUTHORITY_ID")
    if not (client and tenant and _proof(environment)):
        return ""
    url = f"{(_named(environment, 'AUTHORITY_HOST') or AUTHORITY).rstrip('/')}/{tenant}/oauth2/v2.0/token"
    form = {"client_id": client, "grant_type": "client_credentials", "scope": f"{RESOURCE}/.default"}

    def lender() -> Lent[str]:
        data = urlencode({**form, **_proof(environment)}).encode()
        with urllib.request.urlopen(url, data=data, timeout=SECONDS) as reply:
            return _of_json(reply.read())

    return lent(f"{url} (to client {client})", lender, wants="key for Azure is", hint=WHICH)


def _proof(environment: Mapping[str, str]) -> dict[str, str]:
    """That we are the client; empty where nothing says so. What Kubernetes says is renewed while we run."""
    if file := environment.get("AZURE_FEDERATED_TOKEN_FILE"):
        try:
            return {"client_assertion_type": BY_TOKEN, "client_assertion": Path(file).read_text().strip()}
        except OSError as error:
            raise FormatError(f"no key for Azure is known, and {redact_error(error)}", hint=WHICH) from None
    secret = _named(environment, "CLIENT_SECRET")
    return {"client_secret": secret} if secret else {}


def machine_token(environment: Mapping[str, str], hint: str) -> str:
    """Of the identity that this machine was given; FormatError where it has none."""
    endpoint = environment.get("AZURE_MSI_ENDPOINT") or environment.get("AZURE_IDENTITY_ENDPOINT")
    endpoint = endpoint or environment.get("IDENTITY_ENDPOINT") or f"{MACHINE}/metadata/identity/oauth2/token"
    query = {"api-version": "2019-08-01", "resource": RESOURCE}
    # A machine may have several.
    which = {
        "client_id": _named(environment, "CLIENT_ID"),
        "object_id": environment.get("AZURE_OBJECT_ID"),
        "msi_res_id": environment.get("AZURE_MSI_RESOURCE_ID"),
    }
    query |= {name: value for name, value in which.items() if value}
    headers = {"Metadata": "true"}
    if secret := environment.get("IDENTITY_HEADER"):
        headers["X-IDENTITY-HEADER"] = secret
    url = f"{endpoint}?{urlencode(query)}"
    source = f"the machine's identity ({url})"
    return lent(source, lambda: _of_json(get(url, headers)), wants="key for Azure is", hint=hint)


def _named(environment: Mapping[str, str], *names: str) -> str:
    variables = (lead + name for name in names for lead in ("AZURE_STORAGE_", "AZURE_"))
    return next((value for name in variables if (value := environment.get(name))), "")


def _of_json(answer: bytes) -> Lent[str]:
    loan: dict[str, Any] = json.loads(answer)
    until = float(loan["expires_on"]) if "expires_on" in loan else time.time() + float(loan["expires_in"])
    return Lent(str(loan["access_token"]), until)
