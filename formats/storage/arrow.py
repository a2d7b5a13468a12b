"""A store on HDFS, or behind another URI that only `pyarrow.fs` knows: reading only."""

from __future__ import annotations

from typing import Any

from formats.errors import FormatError, NotFound, Unreachable
from formats.storage.contract import REACH, Entry, check_path, first_line
from formats.storage.places import SCHEMES, common_name


class ArrowStorage:
    """A file system behind a URI that `pyarrow.fs` knows; reading only."""

    def __init__(self, uri: str) -> None:
        import pyarrow as pa
        from pyarrow import fs

        self._root = uri if uri.endswith("://") else uri.rstrip("/")
        self._fs: Any
        self._failures = (OSError, ValueError, pa.ArrowException)
        try:
            self._fs, self._base = fs.FileSystem.from_uri(common_name(self._root))
        except self._failures as error:
            if "Unrecognized filesystem type" in first_line(error):
                message = "is of no kind of store that is known here"
                raise FormatError(message, path=self._root, hint=f"known are {SCHEMES}") from None
            raise self._unreachable(error) from None
        if not self._base:
            raise FormatError("names no bucket", path=self._root, hint="give the bucket and the path in it")

    def _unreachable(self, error: Exception) -> Unreachable:
        return Unreachable(first_line(error), path=self._root, hint=REACH)

    @property
    def root(self) -> str:
        return self._root

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        try:
            with self._fs.open_input_file(f"{self._base}/{check_path(path)}") as f:
                f.seek(offset)
                return bytes(f.read() if length is None else f.read(length))
        except FileNotFoundError:
            raise NotFound("no such file", path=f"{self._root}/{path}") from None
        except self._failures as error:
            raise self._unreachable(error) from None

    def put(self, path: str, data: bytes | memoryview, *, replace: bool = False) -> None:
        raise PermissionError(f"{self._root}: is read, not written")

    def list(self, path: str) -> list[Entry]:
        from pyarrow import fs

        where = f"{self._base}/{check_path(path)}" if path else self._base
        try:
            infos = self._fs.get_file_info(fs.FileSelector(where, allow_not_found=True))
        except self._failures as error:
            raise self._unreachable(error) from None
        return sorted(Entry(i.base_name, i.size if i.type == fs.FileType.File else None) for i in infos)

    def size(self, path: str) -> int | None:
        from pyarrow import fs

        try:
            info = self._fs.get_file_info(f"{self._base}/{check_path(path)}")
        except self._failures as error:
            raise self._unreachable(error) from None
        return int(info.size) if info.type == fs.FileType.File else None

    def delete(self, path: str) -> None:
        raise PermissionError(f"{self._root}: is read, not written")
