"""Uploads to Azure's object store: uncommitted blocks of a blob, which nobody sees until a list of blocks is committed.

The server knows blocks, and no uploads. So their names say which upload they are of:

    <begun, in seconds since 1970: 10 hex digits><16 random hex digits>    the upload's id
    <id><number, 5 digits><of the SHA-256 of the bytes: 32 hex digits>     a block

Several uploads to one blob lie beside each other; committing one discards what is left of the others, and is done under
a name that nothing has. What nobody commits the server discards a week after its last block.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import secrets
import time
import urllib.request
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import NamedTuple
from xml.etree.ElementTree import Element

from formats.errors import Damaged
from formats.storage.azure.access import account_of, authorized, azure_access, container_url
from formats.storage.contract import AT_ONCE, check_path
from formats.storage.http_uploads import Answer, HttpUploads, text
from formats.storage.uploads import IDENTITY, Upload
from formats.storage.urls import path_of

BLOCK = re.compile(r"([0-9a-f]{10}[0-9a-f]{16})\d{5}[0-9a-f]{32}", re.ASCII)
GIVEN_UP = re.compile(r"given-up-([0-9a-f]{10}[0-9a-f]{16})", re.ASCII)
"""What a blob without a byte says of itself that stands for a moment where an upload was."""
OTHERS = ""
"""Stands for the upload of a block that somebody else's program has put."""


class AzureUploads(HttpUploads):
    """See `Uploads`."""

    no_bucket = "ContainerNotFound"
    outcomes = frozenset({"BlobNotFound", "BlobAlreadyExists", "ConditionNotMet", "InvalidBlockList"})

    def begin(self, path: str, identity: str) -> str:
        check_path(path)
        return f"{int(time.time()):010x}{secrets.token_hex(8)}"

    def put(self, path: str, id: str, number: int, data: bytes | memoryview) -> str:
        block = f"{id}{number:05d}{hashlib.sha256(data).hexdigest()[:32]}"
        headers = {
            "content-type": "application/octet-stream",
            "content-md5": base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode(),
        }
        self._ask("PUT", path, {"comp": "block", "blockid": _base64(block)}, body=data, headers=headers)
        return block

    def complete(self, path: str, id: str, etags: Sequence[str], identity: str) -> bool:
        # Only such as are uncommitted: of those of a blob that was shown and taken away none are left.
        answer = self._commit(path, etags, identity)
        if answer.code == "InvalidBlockList" and self.size(path, id) is not None:
            raise Damaged(f"upload {id} does not have the parts that were put", path=self._where(path))
        return not answer.code

    def abort(self, path: str, ids: Collection[str]) -> None:
        blocks = self._blocks(path)
        if blocks and blocks.keys() <= set(ids):
            # Blocks cannot be deleted. Committing none of them discards them all, which is why those of others are
            # looked for first; what is there for a moment has no row in it.
            self._commit(path, (), f"given-up-{min(blocks)}")
        blob = self._blob(path)
        if blob is not None and blob.given_up in ids:
            self._ask("DELETE", path, {}, headers={"if-match": blob.etag})

    def size(self, path: str, id: str) -> int | None:
        size = self._blocks(path).get(id)
        if size is None and (blob := self._blob(path)) is not None and blob.given_up == id:
            return 0
        return size

    def below(self) -> list[Upload]:
        uncommitted: list[str] = []
        uploads: list[Upload] = []
        for blob in self._without_bytes():
            path = text(blob, "Name")[len(self._lead) :]
            # Names of metadata are of no case, and come back in that in which they were put: here in urllib's.
            metadata = {one.tag.lower(): one.text or "" for one in blob.iterfind("{*}Metadata/*")}
            says = GIVEN_UP.fullmatch(metadata.get(IDENTITY, ""))
            if says is not None:
                uploads.append(_upload(path, says.group(1)))
            else:
                uncommitted.append(path)
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="abs-ask") as pool:
            for path, blocks in zip(uncommitted, pool.map(self._blocks, uncommitted), strict=True):
                uploads += [_upload(path, id) for id in blocks if id != OTHERS]
        return sorted(uploads)

    def _commit(self, path: str, blocks: Sequence[str], identity: str) -> Answer:
        """Make a blob of blocks appear, if nothing has its name."""
        body = "".join(f"<Uncommitted>{_base64(block)}</Uncommitted>" for block in blocks)
        headers = {
            "content-type": "application/xml",
            "if-none-match": "*",
            "x-ms-blob-content-type": "application/x-ndjson",
            f"x-ms-meta-{IDENTITY}": identity,
        }
        xml = f'<?xml version="1.0" encoding="utf-8"?><BlockList>{body}</BlockList>'.encode()
        return self._ask("PUT", path, {"comp": "blocklist"}, body=xml, headers=headers, completes=True)

    def _blocks(self, path: str) -> dict[str, int]:
        """The bytes of uncommitted blocks of a blob, by their uploads' ids; none where a blob was committed, whose name
        no upload can get any more."""
        answer = self._ask("GET", path, {"comp": "blocklist", "blocklisttype": "uncommitted"})
        uploads: dict[str, int] = {}
        for block in answer.xml.iterfind("{*}UncommittedBlocks/{*}Block") if answer.xml is not None else ():
            ours = BLOCK.fullmatch(base64.b64decode(text(block, "Name")).decode("latin-1"))
            id = ours.group(1) if ours is not None else OTHERS
            uploads[id] = uploads.get(id, 0) + int(text(block, "Size") or 0)
        return uploads

    def _blob(self, path: str) -> _Blob | None:
        """What stands under a name, with or without bytes; None if nothing was committed there."""
        answer = self._ask("HEAD", path, {})
        if answer.code:
            return None
        says = GIVEN_UP.fullmatch(answer.headers.get(f"x-ms-meta-{IDENTITY}", ""))
        return _Blob(answer.headers.get("etag", ""), says.group(1) if says is not None else None)

    def _without_bytes(self) -> Iterator[Element]:
        """The blobs of a list that includes uncommitted ones, of which it does not say that they are."""
        query = {"restype": "container", "comp": "list", "include": "metadata,uncommittedblobs", "prefix": self._lead}
        marker: dict[str, str] = {}
        while True:
            answer = self._ask("GET", None, {**query, **marker})
            for blob in answer.xml.iterfind("{*}Blobs/{*}Blob") if answer.xml is not None else ():
                if text(blob, "Name").startswith(self._lead):
                    properties = blob.find("{*}Properties")
                    if text(properties, "Content-Length") in ("", "0") or not text(properties, "Etag"):
                        yield blob
            marker = {"marker": text(answer.xml, "NextMarker")}
            if not marker["marker"]:
                return

    def _request(
        self, method: str, path: str | None, query: Mapping[str, str], body: bytes | memoryview,
        headers: Mapping[str, str],
    ) -> urllib.request.Request:  # fmt: skip
        url = container_url(os.environ, self._bucket)
        if path is not None:
            url += "/" + path_of(self._lead + check_path(path))
        access = azure_access(os.environ)
        account = account_of(os.environ, self._bucket)
        whole, sends = authorized(access, account, method, url, query, headers, len(body), datetime.now(UTC))
        return urllib.request.Request(whole, method=method, headers=sends, data=body if method == "PUT" else None)


class _Blob(NamedTuple):
    """given_up: the id of the upload that it stands for, None for any other blob."""

    etag: str
    given_up: str | None


def _upload(path: str, id: str) -> Upload:
    return Upload(path, id, float(int(id[:10], 16)))


def _base64(name: str) -> str:
    return base64.b64encode(name.encode()).decode()
