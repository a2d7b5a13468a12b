"""Uploads to Azure's object store: what blocks do that uploads of others do not."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from formats.storage import ObjectStorage
from formats.storage.azure.uploads import AzureUploads
from formats.storage.http_uploads import Answer
from formats.storage.uploading import open_uploads
from tests.support.objects.fixtures import Servers, use
from tests.support.objects.places import bucket_place


def test_who_was_killed_giving_one_up_leaves_it_to_be_given_up(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Azure a blob without a byte stands there between two requests."""
    uploads = open_uploads(str(bucket_place(use(servers.get("Azure by Azurite"), monkeypatch)).root))
    id = uploads.begin("x", "d")
    etag = uploads.put("x", id, 1, b"x")
    plain = AzureUploads._ask

    def ask(self: AzureUploads, method: str, *arguments: Any, **options: Any) -> Answer:
        if method == "DELETE":
            raise KeyboardInterrupt
        return plain(self, method, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(AzureUploads, "_ask", ask)
        with pytest.raises(KeyboardInterrupt):
            uploads.abort("x", [id])
    assert [(upload.path, upload.id) for upload in uploads.below()] == [("x", id)]
    assert uploads.size("x", id) == 0
    assert not uploads.complete("x", id, [etag], "d")
    uploads.abort("x", [id])
    assert uploads.below() == []
    assert ObjectStorage(uploads.root).size("x") is None


def test_blocks_of_another_program_are_none_of_ours(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    """They lie at the same name: with ours they would go, so ours stay, for the week that the server keeps them."""
    uploads = open_uploads(str(bucket_place(use(servers.get("Azure by Azurite"), monkeypatch)).root))
    assert isinstance(uploads, AzureUploads)
    id = uploads.begin("x", "d")
    uploads.put("x", id, 1, b"ours")
    theirs = base64.b64encode(b"theirs".ljust(63, b".")).decode()  # all of a blob are of one length
    uploads._ask("PUT", "x", {"comp": "block", "blockid": theirs}, body=b"theirs", headers={"content-type": "x/y"})
    assert [upload.id for upload in uploads.below()] == [id]
    uploads.abort("x", [id])
    assert uploads.size("x", id) == 4
