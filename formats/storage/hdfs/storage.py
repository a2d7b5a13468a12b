"""A store on HDFS, through WebHDFS: written under another name, closed, and renamed.

A file that is created has its name before it has its bytes, also where nothing is to be overwritten. So it gets a
temporary name, is closed by the DataNode that was sent its bytes, and is renamed by the NameNode in one step: without
`OVERWRITE` that fails where something has the name, with it it takes the place of what has. Both are one transaction of
the NameNode's journal, so of any number that put one name one succeeds. A file is known by the number that the NameNode
gave it, never to be given again: whoever has had no reply to a rename looks whether the file there is its own.

A folder is there once it has been made, and goes with its last file. Names with a colon cannot be on HDFS.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from formats.errors import Damaged, FormatError, NotFound, Unreachable, UnsafePath
from formats.redaction import refuse_user_information
from formats.storage.contract import AT_ONCE, UNFINISHED, Entry, Version, Written, always, check_path, probe_exclusive
from formats.storage.credentials import hadoop_configuration
from formats.storage.hadoop import SCHEMES, name_nodes
from formats.storage.hdfs.web import Body, Fault, NameNodes, NoReply, Reply, name_nodes_of, user_name

TRIES = 8
"""DataNodes that are asked for one file."""
NO_SUCH = frozenset({"FileNotFoundException", "ParentNotDirectoryException"})
NOT_ALLOWED = frozenset({"AccessControlException", "SecurityException", "AuthorizationException"})
REACH = "webhdfs://HOST:PORT/... names the NameNode's HTTP address, as does hdfs-site.xml in HADOOP_CONF_DIR; is it up?"
_BEYOND = "out of the range"


def is_hdfs(uri: str) -> bool:
    """Whether a URI is of a kind of store that `HdfsStorage` knows."""
    return uri.partition("://")[0] in SCHEMES


class HdfsStorage:
    """A folder on HDFS.

    may_show: called just before a file gets its name; what it raises leaves nothing there.

    Raises beside what the contract names: Unreachable, PermissionError, and OSError where a quota is spent.
    """

    def __init__(self, uri: str, *, may_show: Callable[[], None] = always) -> None:
        self._may_show = may_show
        self._root = uri if uri.endswith("://") else uri.rstrip("/")
        self._scheme, _, rest = self._root.partition("://")
        self._authority, _, prefix = rest.partition("/")
        refuse_user_information(uri, "the URI of a folder on HDFS")
        prefix = prefix.strip("/")
        self._base = f"/{check_path(prefix)}" if prefix else ""
        self._opened: tuple[object, NameNodes] | None = None

    @property
    def root(self) -> str:
        return self._root

    @property
    def _nodes(self) -> NameNodes:
        user, process = user_name(os.environ), os.getpid()
        now = user, process, os.environ.get("HADOOP_CONF_DIR")
        if self._opened is None or self._opened[0] != now:
            try:
                addresses = name_nodes(self._scheme, self._authority, hadoop_configuration(os.environ))
            except FormatError as error:
                raise FormatError(error.message, path=error.path or self._root, hint=error.hint) from None
            self._opened = now, name_nodes_of(addresses, user, process)
        return self._opened[1]

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        full = self._full(path)
        if length == 0:  # no range is that short
            if self.size(path) is None:
                raise NotFound("no such file", path=self._where(path))
            return b""
        part = {"offset": str(offset)} if offset else {}
        part |= {} if length is None else {"length": str(length)}
        with self._asking(path):
            try:
                return self._at_datanode("GET", lambda: (full, "OPEN", part), lambda: None).data
            except Fault as fault:
                if _BEYOND not in str(fault):
                    raise
        return b""

    def put(self, path: str, data: bytes | memoryview, *, replace: bool = False) -> None:
        self._put(path, lambda: memoryview(data).cast("B"), memoryview(data).nbytes, replace)

    def put_parts(self, path: str, pieces: Iterable[bytes], size: int | None = None) -> None:
        """Make a file of these pieces appear in one step, sent one by one, so that it may be larger than memory;
        whatever had the name is gone. If the pieces raise, nothing has changed.

        size: of all, where it is known.
        """
        length = 0

        def counted() -> Iterator[bytes]:
            nonlocal length
            try:
                for piece in pieces:
                    length += len(piece)
                    yield piece
            except Exception as error:  # of where they are read, and no DataNode's
                raise _OfPieces(error) from None

        try:
            self._put(path, counted, None, replace=True, tries=1, length=lambda: length)
        except _OfPieces as error:
            raise error.error from None

    def _put(
        self, path: str, body: Callable[[], Body], size: int | None, replace: bool, tries: int = TRIES,
        length: Callable[[], int] | None = None,
    ) -> None:  # fmt: skip
        full = self._full(path)
        folder = full.rpartition("/")[0]
        begun: list[str] = []

        def create() -> tuple[str, str, dict[str, str]]:
            # Of a try whose reply was lost nobody knows how much is there: each has a name of its own.
            begun.append(f"{folder}/{UNFINISHED}{secrets.token_hex(8)}")
            return begun[-1], "CREATE", {"overwrite": "false"}

        try:
            with self._asking(path):
                self._at_datanode("PUT", create, body, tries)
                temporary = begun[-1]
                status = self._nodes.ask("GET", temporary, "GETFILESTATUS").json()["FileStatus"]
            wanted = size if length is None else length()
            if status["length"] != wanted:  # its connection ended, and the DataNode closed what had come
                raise Unreachable(f"took {status['length']} bytes of {wanted}", path=self._root, hint=REACH)
            self._may_show()
            try:
                with self._asking(path):
                    self._rename(temporary, full, status["fileId"], replace=replace)
            except NotFound:
                raise Unreachable(
                    f"no longer has what was to become {path}: nobody knows whether it did", path=self._root, hint=REACH
                ) from None
            begun.pop()
        finally:
            for name in begun:
                with contextlib.suppress(FormatError, OSError):
                    self.delete(name[len(self._base) + 1 :])

    def _rename(self, source: str, target: str, number: int, *, replace: bool) -> None:
        """FileExistsError where something else has the name; Unreachable where nobody knows what became of it."""
        options = "OVERWRITE" if replace else "NONE"
        try:
            reply = self._nodes.ask("PUT", source, "RENAME", destination=target, renameoptions=options)
        except Fault as fault:
            if fault.name not in NO_SUCH:
                raise
            # Asked again, since the first reply was lost, it no longer has what the first request has renamed.
            there = self._status(target)
            if there is not None and there["fileId"] == number:
                return
            if there is not None and not replace:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target) from None
            raise
        if "boolean" in reply.json():
            raise FormatError(
                "is behind a server whose rename knows no options (HttpFS?): it cannot say which of two writers was "
                "first", path=self._root, hint="give the HTTP address of the NameNode itself",
            )  # fmt: skip

    def _at_datanode(
        self, method: str, request: Callable[[], tuple[str, str, dict[str, str]]], body: Callable[[], Body],
        tries: int = TRIES,
    ) -> Reply:  # fmt: skip
        """What a DataNode answers; the NameNode is asked for another where one does not."""
        for left in reversed(range(tries)):
            path, operation, options = request()
            led = self._nodes.ask(method, path, operation, **options)
            try:
                return self._nodes.go(method, path, led.where, body())
            except NoReply as error:
                if not left:
                    raise Unreachable(str(error)) from None
        raise AssertionError("the last try returns or raises")

    def list(self, path: str) -> list[Entry]:
        statuses = self._statuses(path)
        entries = [_entry(status) for status in statuses]
        return sorted(entry for entry in entries if not entry.name.startswith(UNFINISHED))

    def _statuses(self, path: str) -> Sequence[dict[str, Any]]:
        """What lies in a folder; empty if there is none."""
        full = self._full(path) if path else self._base or "/"
        try:
            with self._asking(path):
                statuses = self._nodes.ask("GET", full, "LISTSTATUS").json()["FileStatuses"]["FileStatus"]
        except NotFound:
            return []
        return [status for status in statuses if status["pathSuffix"]]  # of a file it says what the file is

    def _status(self, full: str) -> dict[str, Any] | None:
        try:
            status: dict[str, Any] = self._nodes.ask("GET", full, "GETFILESTATUS").json()["FileStatus"]
        except Fault as fault:
            if _is_absence(fault):
                return None
            raise
        return status

    def size(self, path: str) -> int | None:
        with self._asking(path):
            status = self._status(self._full(path))
        return None if status is None else _entry(status).size

    def written(self, path: str) -> float | None:
        """When a file was last written, as seconds since 1970 by the NameNode's clock; None if there is no such
        file."""
        with self._asking(path):
            status = self._status(self._full(path))
        return None if status is None or status["type"] != "FILE" else status["modificationTime"] / 1000

    def version(self, path: str) -> Version | None:
        """See `ServedStorage`."""
        with self._asking(path):
            status = self._status(self._full(path))
        return None if status is None else _version(status)

    def versions(self, path: str) -> Sequence[tuple[str, Version | None]]:
        """See `ServedStorage`."""
        entries = ((status["pathSuffix"], _version(status)) for status in self._statuses(path))
        return sorted(
            (entry for entry in entries if not entry[0].startswith(UNFINISHED)), key=lambda entry: entry[0]
        )

    def read_version(self, path: str, offset: int, length: int) -> tuple[bytes, Version]:
        """See `ServedStorage`."""
        data = self.read(path, offset, length)
        version = self.version(path)  # afterwards: what was written before has changed it
        if version is None:
            raise NotFound("no such file", path=self._where(path))
        return data, version

    def delete(self, path: str) -> None:
        self._remove(path)
        self._drop_empty(path.rpartition("/")[0])

    def delete_all(self, paths: Iterable[str]) -> None:
        """As `delete`, of many at once."""
        wanted = list(paths)
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="abs-ask") as pool:
            list(pool.map(self._remove, wanted))
        for folder in sorted({path.rpartition("/")[0] for path in wanted}, reverse=True):
            self._drop_empty(folder)

    def _remove(self, path: str) -> None:
        with contextlib.suppress(NotFound, _NotEmpty), self._asking(path):
            self._nodes.ask("DELETE", self._full(path), "DELETE", recursive="false")

    def _drop_empty(self, folder: str) -> None:
        """Remove a folder, and what it lies in, as long as nothing is in it; never a file of that name."""
        while folder:
            with self._asking(folder):
                status = self._status(self._full(folder))
            if status is not None:
                if status["type"] != "DIRECTORY" or status["childrenNum"]:
                    return
                self._remove(folder)
            folder = folder.rpartition("/")[0]

    def is_taken(self, path: str) -> bool:
        """Whether a file or a folder lies there."""
        with self._asking(path):
            return self._status(self._full(path)) is not None

    def inventory(self) -> Sequence[Written]:
        """Every file below the root, unfinished writes among them."""
        return self.below("")

    def below(self, path: str, *, after: str | None = None) -> Sequence[Written]:
        """Every file in a folder and in those within it, unfinished writes among them; folders are asked for many at
        once.

        after: only those whose names come behind this one; folders that have none of them are not asked for.
        """
        files: list[Written] = []
        folders = [check_path(path) if path else ""]
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="abs-ask") as pool:
            while folders:
                deeper: list[str] = []
                for folder, statuses in zip(folders, pool.map(self._statuses, folders), strict=True):
                    for status in statuses:
                        name = f"{folder}/{status['pathSuffix']}" if folder else status["pathSuffix"]
                        if status["type"] == "DIRECTORY":
                            # "0" is the character behind "/": what is in the folder comes before it.
                            if after is None or f"{name}0" > after:
                                deeper.append(name)
                        elif after is None or name > after:
                            files.append(Written(name, status["length"], status["modificationTime"] / 1000))
                folders = deeper
        return sorted(files)

    def move(self, path: str, to: str) -> None:
        """Give what lies there, be it a file or a folder, another name; FileExistsError if something has that name."""
        source, target = self._full(path), self._full(to)
        with self._asking(path):
            status = self._status(source)
        if status is None:
            raise NotFound("no such file", path=self._where(path))
        for left in reversed(range(TRIES)):
            try:
                with self._asking(to):
                    self._nodes.ask("PUT", target.rpartition("/")[0] or "/", "MKDIRS")
                    self._rename(source, target, status["fileId"], replace=False)
            except NotFound:  # whoever has deleted the last file of the folder has removed it, too
                if not left:
                    raise
                continue
            break
        self._drop_empty(path.rpartition("/")[0])

    def check_exclusive(self) -> None:
        """FormatError for a server that lets the same name be created twice: a store there would have two owners."""
        probe_exclusive(self)

    def _full(self, path: str) -> str:
        full = f"{self._base}/{check_path(path)}"
        try:
            full.encode()
        except UnicodeEncodeError:
            raise UnsafePath("cannot be the name of a file on HDFS", path=repr(path)) from None
        return full

    def _where(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    @contextlib.contextmanager
    def _asking(self, path: str) -> Iterator[None]:
        """While servers are asked: what they refuse becomes an error of ours."""
        try:
            yield
        except Fault as fault:
            raise self._error(path, fault) from None
        except FileExistsError:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self._where(path)) from None
        except Unreachable as error:
            raise Unreachable(error.message, path=self._root, hint=error.hint or REACH) from None
        except (KeyError, TypeError, ValueError) as error:
            raise Damaged(f"answers as no NameNode does: {error!r}", path=self._root, hint=REACH) from None

    def _error(self, path: str, fault: Fault) -> Exception:
        where = self._where(path)
        if _is_absence(fault):
            return NotFound("no such file", path=where)
        if fault.name == "FileAlreadyExistsException":
            return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), where)
        if fault.name == "PathIsNotEmptyDirectoryException":
            return _NotEmpty()
        if fault.name == "InvalidPathException":
            return UnsafePath(f"cannot be the name of a file on HDFS: {fault}", path=where)
        if fault.name in NOT_ALLOWED:
            return PermissionError(errno.EACCES, f"is refused: {fault}", where)
        if "QuotaExceeded" in fault.name:
            return OSError(errno.EDQUOT, f"{os.strerror(errno.EDQUOT)}: {fault}", where)
        return Unreachable(f"{fault.name or 'the server'}: {fault}", path=self._root, hint=REACH)

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(HdfsStorage, may_show=self._may_show), (self._root,)


class _OfPieces(Exception):
    """What is to be written could not be read."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        super().__init__(str(error))


class _NotEmpty(Exception):
    """A folder has something in it."""


def _version(status: dict[str, Any]) -> Version | None:
    if status["type"] != "FILE":
        return None
    return Version(status["length"], f"{status['fileId']}.{status['modificationTime']}")


def _entry(status: dict[str, Any]) -> Entry:
    return Entry(status["pathSuffix"], status["length"] if status["type"] == "FILE" else None)


def _is_absence(fault: Fault) -> bool:
    """Whether nothing is there, be it that a file is where a folder would be."""
    return fault.name in NO_SUCH or (fault.name in NOT_ALLOWED and "(is not a directory)" in str(fault))
