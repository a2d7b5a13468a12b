"""Uploads to Google's object store: what waits is an object of its own, copied to its name if nothing has that.

Its uploads in parts take no condition: completing one would overwrite. So an upload is put by one request, as a whole,
and lies aside:

    .staged/<path of the object>/<id>/<SHA-256 of the bytes, 64 hex digits>
    <begun, in seconds since 1970: 10 hex digits><16 random hex digits>-<what the object says of itself>    the id

A copy with `x-goog-if-generation-match: 0` completes it: of any number that make it at once, one succeeds. It does not
take the staged object away, as S3 and Azure do in the same step; that is deleted next. Until it is, whoever was stopped
just before its own copy could let an object that was taken away appear again: `end` is asked for before that.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Collection, Sequence
from urllib.parse import quote, unquote

from formats.errors import Damaged, NotFound
from formats.storage.contract import check_path
from formats.storage.objects import ObjectStorage
from formats.storage.uploads import Upload, Uploads

STAGED = ".staged"
OBJECT = re.compile(rf"{STAGED}/(.+)/([0-9a-f]{{26}}-[^/]*)/([0-9a-f]{{64}})", re.ASCII | re.DOTALL)


class GoogleUploads(Uploads):
    """See `Uploads`."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self._storage = ObjectStorage(uri)

    def piece_bytes(self, size: int) -> int:
        return max(1, size)

    def begin(self, path: str, identity: str) -> str:
        check_path(path)
        return f"{int(time.time()):010x}{secrets.token_hex(8)}-{quote(identity, safe='')}"

    def put(self, path: str, id: str, number: int, data: bytes | memoryview) -> str:
        if number != 1:
            raise ValueError("an upload to Google's store is put as a whole")
        digest = hashlib.sha256(data).hexdigest()
        identity = unquote(id.partition("-")[2])
        self._storage.put(_staged(path, id, digest), data, identity=identity)
        return digest

    def complete(self, path: str, id: str, etags: Sequence[str], identity: str) -> bool:
        (digest,) = etags
        staged = _staged(path, id, digest)
        try:
            self._storage.copy(staged, path, replace=False)
        except NotFound:
            if self.size(path, id) is not None:
                where = f"{self.root}/{path}"
                raise Damaged(f"upload {id} does not have the parts that were put", path=where) from None
            return False
        except FileExistsError:
            # By a request whose reply was lost, or by who completed it before and could not delete what was staged.
            if self._storage.identity(path) != identity:
                return False
        self._storage.delete(staged)
        return True

    def abort(self, path: str, ids: Collection[str]) -> None:
        self._storage.delete_all(file for file, upload, _ in self._staged(f"{STAGED}/{path}") if upload.id in ids)

    def size(self, path: str, id: str) -> int | None:
        return next((size for _, _, size in self._staged(f"{STAGED}/{path}/{id}")), None)

    def below(self) -> list[Upload]:
        return sorted({upload for _, upload, _ in self._staged(STAGED)})

    def end(self, paths: Collection[str]) -> None:
        self._storage.delete_all(file for file, upload, _ in self._staged(STAGED) if upload.path in paths)

    def _staged(self, folder: str) -> list[tuple[str, Upload, int]]:
        """The objects that wait in a folder, with the upload that each is of, and its bytes."""
        matches = ((OBJECT.fullmatch(file.path), file) for file in self._storage.below(folder))
        return [
            (file.path, Upload(match[1], match[2], float(int(match[2][:10], 16))), file.bytes)
            for match, file in matches
            if match is not None
        ]


def _staged(path: str, id: str, digest: str) -> str:
    return f"{STAGED}/{check_path(path)}/{id}/{digest}"
