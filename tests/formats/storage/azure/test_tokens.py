"""Tokens for Azure's object store that are lent."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs

import pytest

from formats.errors import FormatError
from formats.storage.azure.access import Access, azure_access


def test_tokens_are_lent_to_clients_of_azure_workloads_and_machines(
    lender: tuple[str, list[tuple[str, str, dict[str, str]]]], tmp_path: Path
) -> None:
    url, asked = lender
    client = {"AZURE_CLIENT_ID": "c", "AZURE_TENANT_ID": "tenant", "AZURE_AUTHORITY_HOST": f"{url}/"}
    assert azure_access({**client, "AZURE_CLIENT_SECRET": "s&t"}) == Access(token="of a client")
    assert parse_qs(asked[-1][1].partition("?")[2]) == {
        "client_id": ["c"], "client_secret": ["s&t"], "grant_type": ["client_credentials"],
        "scope": ["https://storage.azure.com/.default"],
    }  # fmt: skip
    (tmp_path / "token").write_text("jwt\n")
    workload = {**client, "AZURE_CLIENT_ID": "w", "AZURE_FEDERATED_TOKEN_FILE": str(tmp_path / "token")}
    assert azure_access(workload) == Access(token="of a client")
    assert parse_qs(asked[-1][1].partition("?")[2])["client_assertion"] == ["jwt"]
    count = len(asked)
    azure_access(workload)
    assert len(asked) == count
    machine = {"AZURE_MSI_ENDPOINT": f"{url}/metadata/identity/oauth2/token", "AZURE_CLIENT_ID": "m"}
    assert azure_access({**machine, "IDENTITY_HEADER": "h"}) == Access(token="of a machine")
    assert parse_qs(asked[-1][1].partition("?")[2])["client_id"] == ["m"]
    assert (asked[-1][2]["metadata"], asked[-1][2]["x-identity-header"]) == ("true", "h")
    with pytest.raises(FormatError, match=r"no key for Azure is known, and .*No such file") as caught:
        azure_access({**workload, "AZURE_FEDERATED_TOKEN_FILE": "/nonexistent"})
    assert "AZURE_CLIENT_ID" in (caught.value.hint or "")
    with pytest.raises(FormatError, match=r"no key for Azure is known, and .* lends none"):
        azure_access({**client, "AZURE_CLIENT_SECRET": "s", "AZURE_TENANT_ID": "another"})
