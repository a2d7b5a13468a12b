"""A store in a bucket: S3 and what speaks it, Google's and Azure's object stores.

A file appears with the one request that puts it, and a server that holds to `If-None-Match` lets only the first of
several do so. No object is renamed, copied or put together. What a bucket does not have is a folder: one is there as
long as an object's name begins with it.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from enum import Enum
from typing import Any, TypeVar, cast

from formats.errors import Damaged, FormatError, NotFound, Unreachable, UnsafePath
from formats.redaction import redact_error
from formats.storage.contract import (
    AT_ONCE,
    REACH,
    UNFINISHED,
    Entry,
    Version,
    Written,
    always,
    check_path,
    probe_exclusive,
)
from formats.storage.credentials import s3_settings
from formats.storage.fresh_lists import MARKER, fresh_list
from formats.storage.places import Bucket, bucket_of
from formats.storage.retrying import (
    CONNECT,
    FIRST_PAUSE,
    LONGEST_PAUSE,
    SECONDS,
    NoReply,
    deadline,
    failure_of,
    retries_of,
)
from formats.storage.uploads import IDENTITY, PIECES_AT_ONCE, piece_bytes

T = TypeVar("T")
L = TypeVar("L")

CLIENT_OPTIONS = (
    "AWS_ALLOW_INVALID_CERTIFICATES", "AWS_CHECKSUM_ALGORITHM", "AWS_IMDSV1_FALLBACK", "AWS_PROXY_URL",
    "AWS_REQUEST_PAYER", "AWS_S3_EXPRESS", "AWS_SERVER_SIDE_ENCRYPTION", "AWS_SKIP_SIGNATURE",
    "AWS_SSE_CUSTOMER_KEY_BASE64",
)  # fmt: skip
"""Variables that the client respects in uploads, and `S3Uploads` does not."""
SMALL, MOST_READS = 1 << 16, 1000
"""Bytes of a file, and files, that are read once while a store is held."""
CONFLICTS, CONFLICT_SECONDS = 10, 0.1
COPY_SECONDS, COPY_LOOK_SECONDS = 600.0, 0.25
CONNECT_SECONDS, LONGEST_SECONDS = 10.0, 3600.0
"""For a connection, and for a whole request with its reply: a large file may take long over a slow line, but no read of
it longer than the client's deadline."""
_BACKOFF = {"init_backoff": timedelta(seconds=FIRST_PAUSE), "max_backoff": timedelta(seconds=LONGEST_PAUSE), "base": 2}


class ClientRetries(Enum):
    """How the client itself repeats requests: as a rule it does not, see `formats.storage.retrying`."""

    NONE = {"max_retries": 0}
    # A list of folders comes in pages, and cannot be continued at a page: one that fails must not cost all others.
    PAGES = {"max_retries": 3, "retry_timeout": timedelta(seconds=10), "backoff": _BACKOFF}
    # Only the client has the parts of a file that it sends: to Azure, to Google, and to S3 by `CLIENT_OPTIONS`.
    PARTS = {"max_retries": 1000, "retry_timeout": timedelta(seconds=SECONDS), "backoff": _BACKOFF}


class ObjectStorage:
    """A place in a bucket.

    may_show: called just before a file is put; what it raises leaves nothing there.

    Raises beside what the contract names: Unreachable, PermissionError, and NotFound where there is no such bucket.
    """

    def __init__(self, uri: str, *, may_show: Callable[[], None] = always) -> None:
        self._may_show = may_show
        self._decides = self._is_held = False
        self._lists: dict[str, Any] = {}
        self._reads: dict[tuple[str, int, int | None], bytes] = {}
        self._sizes: dict[str, int] = {}
        self._going: list[threading.Thread] = []
        self._root = uri if uri.endswith("://") else uri.rstrip("/")
        self._bucket = bucket_of(self._root)
        self._lead = f"{self._bucket.prefix}/" if self._bucket.prefix else ""
        self._opened: dict[tuple[float, ClientRetries, int, tuple[str, ...]], Any] = {}
        if self._bucket.prefix:
            check_path(self._bucket.prefix)

    @property
    def root(self) -> str:
        return self._root

    def _client(self, seconds: float | None = None, *, retries: ClientRetries = ClientRetries.NONE) -> Any:
        """Return the client whose requests have a reply within `seconds`, or fail. None: as for one without a body."""
        now = deadline() if seconds is None else seconds, retries, os.getpid(), _environment()
        if now not in self._opened:
            try:
                settings = tuple(sorted(_settings(self._bucket).items()))
                self._opened = {**self._opened, now: _client(self._bucket._replace(prefix=""), settings, *now)}
            except FormatError as error:
                raise FormatError(error.message, path=error.path or self._root, hint=error.hint) from None
        return self._opened[now]

    def _ask(
        self, path: str, request: Callable[[], T], *, seconds: float | None = None, tries: int | None = None
    ) -> T:
        """Return what the server answers, asked again while it does not; its client's errors become ours.

        seconds: the deadline of one try, unless it has no body.
        """

        def tried() -> T:
            with self._asking(path):
                return request()

        return retries_of(f"{self._bucket.kind}://{self._bucket.name}", os.getpid()).ask(
            tried, tries=tries, seconds=seconds
        )

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        import obstore

        key = self._lead + check_path(path)
        if length == 0:  # no range is that short
            if self.size(path) is None:
                raise NotFound("no such file", path=self._where(path))
            return b""

        def request() -> bytes:
            if length is not None:
                return bytes(obstore.get_range(self._client(), key, start=offset, length=length))
            if not offset:
                return bytes(obstore.get(self._client(), key).bytes())
            return bytes(obstore.get(self._client(), key, options={"range": {"offset": offset}}).bytes())

        read = path, offset, length
        if read in self._reads:
            return self._reads[read]
        try:
            data = self._ask(path, request, seconds=deadline(length or 0))
        except _BeyondTheEnd:
            return b""
        if self._is_held and len(data) <= SMALL and len(self._reads) < MOST_READS:
            self._reads[read] = data
        return data

    def put(
        self, path: str, data: bytes | memoryview, *, replace: bool = False, identity: str | None = None
    ) -> None:
        """See `Putting`. identity: what the file says of itself; whoever puts it anew under the same is not told that
        it is there."""
        import obstore

        key, body = self._lead + check_path(path), memoryview(data).cast("B")
        self._may_show()
        self._changes(path)
        seconds = deadline(body.nbytes)
        client = self._client(seconds)
        if replace:
            self._ask(
                path, lambda: obstore.put(client, key, body, mode="overwrite", use_multipart=False), seconds=seconds
            )
            return
        identity = secrets.token_hex(16) if identity is None else identity
        for left in reversed(range(CONFLICTS)):
            try:
                self._ask(path, lambda: obstore.put(
                    client, key, body, mode="create", use_multipart=False, attributes={IDENTITY: identity}
                ), seconds=seconds)  # fmt: skip
                return
            except FileExistsError:
                # A client that has had no reply asks again, and meets what its first request had put.
                first = self.identity(path)
                if first == identity:
                    return
                if first is not None or not left:
                    raise
                # Refused for the sake of another request that came to nothing: S3 answers so while two are under way.
                time.sleep(CONFLICT_SECONDS)

    def put_parts(self, path: str, pieces: Iterable[bytes], size: int | None = None) -> None:
        """Make a file of these pieces appear in one step, sent in parts, so that it may be larger than memory; whatever
        had the name is gone. If the pieces raise, nothing has changed.

        size: of all, where it is known.
        """
        import obstore

        key = self._lead + check_path(path)
        self._may_show()
        self._changes(path)
        if self._bucket.kind == "s3" and not any(os.environ.get(name) for name in CLIENT_OPTIONS):
            self._upload(path, pieces, size)
            return
        part, identity = piece_bytes(size or 0), secrets.token_hex(16)
        client = self._client(deadline(part), retries=ClientRetries.PARTS)
        try:
            self._ask(path, lambda: obstore.put(
                client, key, iter(pieces), mode="overwrite", use_multipart=True, chunk_size=part,
                max_concurrency=PIECES_AT_ONCE, attributes={IDENTITY: identity},
            ), tries=1, seconds=LONGEST_SECONDS)  # fmt: skip
        except Unreachable:
            # The upload may be complete, although its reply was lost. Azure refuses to complete it a second time.
            if self.identity(path) != identity:
                raise

    def _upload(self, path: str, pieces: Iterable[bytes], size: int | None) -> None:
        """Send pieces in parts, each request of which is sent again if it gets no reply.

        The client never repeats the requests that begin and complete an upload to S3, and does not show its id.
        """
        from formats.storage.s3.uploads import S3Uploads

        identity = secrets.token_hex(16)
        is_done = S3Uploads(self._root, media_type="application/octet-stream").send(path, pieces, identity, size)
        # A completion whose reply was lost may be answered, the second time, with there being no such upload.
        if not is_done and self.identity(path) != identity:
            raise Unreachable(f"the upload of {path} was aborted by another program", path=self._root)

    def put_pieces(self, path: str, pieces: Iterable[bytes]) -> None:
        """See `TakesPieces`, for names that one writer alone uses: that a file is there is looked up before, not by
        the request that makes it, for which obstore has no condition where it sends parts. What makes the pieces may
        not ask a bucket for anything: it runs in the client's thread."""
        if self.size(path) is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self._where(path))
        self.put_parts(path, pieces)

    def identity(self, path: str) -> str | None:
        """By which call a file was put, empty where it does not say; None if there is no such file."""
        import obstore

        try:
            there = self._ask(path, lambda: obstore.get(self._client(), self._lead + path, options={"head": True}))
            return dict(there.attributes).get(IDENTITY, "")
        except NotFound:
            return None

    @contextlib.contextmanager
    def deciding(self, *, decides: bool = True, is_held: bool = False) -> Iterator[None]:
        """Return lists that show all that was written before, in this context: see `formats.storage.fresh_lists`.

        decides: False for plain lists within such a context.
        is_held: whether nobody else writes meanwhile. Then a list is made once, and a small file is read once, until
        this storage changes them.
        """
        before = self._decides, self._is_held
        self._decides, self._is_held = decides, is_held
        self._lists, self._reads, self._sizes = {}, {}, {}
        try:
            yield
        finally:
            self._decides, self._is_held = before
            self._lists, self._reads, self._sizes = {}, {}, {}
            while self._going:
                self._going.pop().join()

    def _delete_later(self, path: str) -> None:
        """Delete a marker that nobody waits for."""

        def delete() -> None:
            with contextlib.suppress(FormatError, OSError):  # it has a name that every reader ignores
                self._delete(path)

        thread = threading.Thread(target=delete, name="abs-marker")
        self._going.append(thread)
        thread.start()

    @property
    def is_deciding(self) -> bool:
        return self._decides

    def list(self, path: str) -> list[Entry]:
        entries = self._fresh(
            path, lambda: self._entries(path), lambda listed, name: any(entry.name == name for entry in listed)
        )
        return [entry for entry in entries if not entry.name.startswith(UNFINISHED)]

    def _fresh(
        self, path: str, look: Callable[[], L], shows: Callable[[L, str], bool], *, deep: bool = False
    ) -> L:
        if not self._decides:
            return look()
        if not self._is_held or deep:
            return fresh_list(self, path, look, shows, self._delete_later)
        if path not in self._lists:
            self._lists[path] = fresh_list(self, path, look, shows, self._delete_later)
        return cast("L", self._lists[path])

    def _changes(self, path: str) -> None:
        """Forget what was read of a file, and the lists of the folders that it is in."""
        if not (self._lists or self._reads or self._sizes):
            return
        for folder in list(self._lists):
            if f"{path}/".startswith(f"{folder}/" if folder else ""):
                self._lists.pop(folder, None)
        self._sizes.pop(path, None)
        for key in [key for key in list(self._reads) if key[0] == path]:
            self._reads.pop(key, None)

    def _entries(self, path: str) -> Sequence[Entry]:
        import obstore

        prefix = self._lead + check_path(path) if path else self._bucket.prefix
        client = self._client(retries=ClientRetries.PAGES)
        listed = self._ask(path, lambda: obstore.list_with_delimiter(client, prefix))
        # Hadoop and consoles mark a folder by an object of its own name.
        files = [Entry(file_name(o["path"]), o["size"]) for o in listed["objects"] if o["path"] != prefix]
        folders = [Entry(file_name(p), None) for p in listed["common_prefixes"]]
        return sorted((*files, *folders), key=lambda entry: (entry.name, entry.size is not None))

    def size(self, path: str) -> int | None:
        if path in self._sizes:
            return self._sizes[path]
        there = self._head(path)
        size = None if there is None else int(there["size"])
        if self._is_held and size is not None and len(self._sizes) < MOST_READS:
            self._sizes[path] = size
        return size

    def _head(self, path: str) -> Any:
        """Return what the server says of an object without its bytes; None if there is no such object."""
        import obstore

        key = self._lead + check_path(path)
        try:
            return self._ask(path, lambda: obstore.head(self._client(), key))
        except NotFound:
            return None

    def written(self, path: str) -> float | None:
        """When a file was last written, as seconds since 1970 by the server's clock; None if there is no such file."""
        there = self._head(path)
        return None if there is None else float(there["last_modified"].timestamp())

    def version(self, path: str) -> Version | None:
        """See `ServedStorage`."""
        there = self._head(path)
        return None if there is None else _version(there)

    def versions(self, path: str) -> Sequence[tuple[str, Version | None]]:
        """See `ServedStorage`."""
        import obstore

        prefix = self._lead + check_path(path) if path else self._bucket.prefix
        client = self._client(retries=ClientRetries.PAGES)
        listed = self._ask(path, lambda: obstore.list_with_delimiter(client, prefix))
        files = [(file_name(there["path"]), _version(there)) for there in listed["objects"] if there["path"] != prefix]
        folders = [(file_name(folder), None) for folder in listed["common_prefixes"]]
        return sorted(
            ((name, version) for name, version in (*files, *folders) if not name.startswith(UNFINISHED)),
            key=lambda entry: (entry[0], entry[1] is not None),
        )

    def read_version(self, path: str, offset: int, length: int) -> tuple[bytes, Version]:
        """See `ServedStorage`."""
        import obstore

        key = self._lead + check_path(path)

        def request() -> tuple[bytes, Version]:
            reply = obstore.get(self._client(), key, options={"range": (offset, offset + length)})
            return bytes(reply.bytes()), _version(reply.meta)

        return self._ask(path, request)

    def delete(self, path: str) -> None:
        self._changes(path)
        self._delete(path)

    def _delete(self, path: str) -> None:
        import obstore

        key = self._lead + check_path(path)
        try:
            self._ask(path, lambda: obstore.delete(self._client(), key))
        except NotFound:
            return  # some say so, others do not

    def delete_all(self, paths: Iterable[str]) -> None:
        """As `delete`, of many at once."""
        import obstore

        names = list(paths)
        for name in names:
            self._changes(name)
        keys = [self._lead + check_path(path) for path in names]
        try:
            if self._bucket.kind != "gs":
                self._ask("", lambda: obstore.delete(self._client(), keys))
                return
        except NotFound:
            pass  # one of them was missing, and what became of the others is not known
        from concurrent.futures import ThreadPoolExecutor

        # Google's store has no request for several: of many that are made at once one may always fail.
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="abs-ask") as pool:
            list(pool.map(self.delete, names))

    def is_taken(self, path: str) -> bool:
        """Whether a file or a folder lies there."""
        return self.size(path) is not None or bool(self.list(path))

    def inventory(self) -> Sequence[Written]:
        """Every file below the root, unfinished writes among them."""
        return self.below("")

    def below(self, path: str, *, after: str | None = None) -> Sequence[Written]:
        """Every file in a folder and in those within it, unfinished writes among them: one list, where a walk from
        folder to folder is one for each.

        after: only those whose names come behind this one.
        """
        offset = None if after is None else self._lead + check_path(after)
        if offset is not None:  # a marker would have to come after it
            return self._below(path, offset)
        lead = f"{path}/" if path else ""
        files = self._fresh(
            path, lambda: self._below(path), lambda listed, name: any(file.path == lead + name for file in listed),
            deep=True,
        )  # fmt: skip
        return [file for file in files if not file.path.startswith(f"{lead}{MARKER}")]

    def _below(self, path: str, offset: str | None = None) -> Sequence[Written]:
        lead = f"{self._lead}{check_path(path)}/" if path else self._lead
        files = [
            Written(o["path"][len(self._lead) :], o["size"], o["last_modified"].timestamp())
            for o in self._objects(path, lead, offset)
            if o["path"].startswith(lead) and len(o["path"]) > len(lead)
        ]
        # What marks a folder has a slash at its end, which the client takes off: nothing is under the name without it.
        return sorted(file for file in files if file.bytes or self.size(file.path) is not None)

    def _objects(self, path: str, lead: str, after: str | None) -> Iterator[Any]:
        """Return the objects whose names begin with `lead`, after a name. What fails is continued, not begun again."""
        import obstore

        stream: Iterator[Any] | None = None
        begun_after = newest = after

        def piece() -> Any:
            nonlocal stream, begun_after
            if stream is None:
                begun_after = newest
                stream = iter(obstore.list(self._client(), lead.rstrip("/") or None, offset=begun_after))
            try:
                return next(stream, None)
            except BaseException:
                stream = None
                raise

        while (objects := self._ask(path, piece)) is not None:
            # Where a server does not know how to begin after a name, it sends all.
            yield from (o for o in objects if begun_after is None or o["path"] > begun_after)
            newest = max([o["path"] for o in objects], default=newest)

    def move(self, path: str, to: str) -> None:
        """A file, or all in a folder, under another name: put there first, then deleted here."""
        below = [path] if self.size(path) is not None else [file.path for file in self.below(path)]
        if not below:
            raise NotFound("no such file", path=self._where(path))
        for name in below:
            self.put(to + name[len(path) :], self.read(name))
        for name in below:
            self.delete(name)

    def copy(self, path: str, to: str, *, replace: bool = True) -> None:
        """Let a file lie under another name as well, by the server's own hand; whatever had that name is gone.
        NotFound if there is no such file, or not any more before it was copied.

        replace: if not, FileExistsError where something has the name, which S3 cannot say.
        """
        import obstore

        names = self._lead + check_path(path), self._lead + check_path(to)
        self._may_show()
        self._changes(to)
        seconds = deadline(copies=True)
        client = self._client(seconds)
        self._ask(path, lambda: obstore.copy(client, *names, overwrite=replace), seconds=seconds)
        if self._bucket.kind == "az":
            self._await_copy(path, to)

    def _await_copy(self, path: str, to: str) -> None:
        """Azure may answer before it has copied. Until then the copy has no byte, and whoever deletes the file ends
        with nothing."""
        deadline = time.monotonic() + COPY_SECONDS
        while (size := self.size(path)) != self.size(to):
            if size is None:
                raise NotFound("no such file", path=self._where(path))
            if time.monotonic() > deadline:
                raise Unreachable(
                    f"has not copied {path} to {to} within {COPY_SECONDS:.0f} s", path=self._root, hint=REACH
                )
            time.sleep(COPY_LOOK_SECONDS)

    def check_exclusive(self) -> None:
        """FormatError for a server that lets the same name be created twice: a store there would have two owners."""
        probe_exclusive(self)

    def _where(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    @contextlib.contextmanager
    def _asking(self, path: str) -> Iterator[None]:
        """Make the client's errors ours; NoReply where another try may be answered."""
        from obstore import exceptions

        try:
            yield
        except FileNotFoundError as error:
            raise self._missing(path, error) from None
        except exceptions.AlreadyExistsError:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self._where(path)) from None
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
            raise self._refused(path, error) from None
        except (exceptions.InvalidPathError, ValueError) as error:
            raise self._bad_name(path, error) from None
        except exceptions.BaseError as error:
            if _BEYOND.search(str(error)):
                raise _BeyondTheEnd from None
            if _NO_BUCKET.search(str(error)):
                raise self._missing(path, error) from None
            if _REFUSED.search(str(error)):
                raise self._refused(path, error) from None
            failure = failure_of(error)
            if _NO_KEYS.search(str(error)) and (failure is None or failure.kind == CONNECT):
                raise self._refused(path, error) from None
            if failure is not None:
                raise NoReply(failure) from None
            raise Unreachable(redact_error(error), path=self._root, hint=REACH) from None

    def _refused(self, path: str, error: Exception) -> PermissionError:
        if _NO_KEYS.search(str(error)):
            return NoCredentials(errno.EACCES, "no AWS credentials were found", self._root)
        return PermissionError(errno.EACCES, f"is refused: {redact_error(error)}", self._where(path))

    def _missing(self, path: str, error: Exception) -> NotFound:
        if _NO_BUCKET.search(str(error)):
            return NotFound(f"there is no bucket {self._bucket.name!r}", path=self._root, hint=REACH)
        return NotFound("no such file", path=self._where(path))

    def _bad_name(self, path: str, error: Exception) -> FormatError:
        """A name that this client cannot say, or one among those that it was to list."""
        if "Encountered object" in str(error):
            hint = "another program put it there: remove it, or give the store a place of its own"
            return Damaged(
                f"holds an object whose name is not a path: {redact_error(error)}", path=self._where(path), hint=hint
            )
        return UnsafePath(f"cannot be the name of an object: {redact_error(error)}", path=self._where(path))

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(ObjectStorage, may_show=self._may_show), (self._root,)


class NoCredentials(PermissionError):
    """There are no keys for a bucket, neither in the environment nor in a profile nor from the machine."""

    hint = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"


class _BeyondTheEnd(Exception):
    """A range was asked for behind the last byte."""


def _version(there: Any) -> Version:
    tag = there.get("e_tag") or there["last_modified"].isoformat()
    return Version(there["size"], "".join(tag.split()).strip('"'))  # Azure quotes it in a reply, not in a list


_BEYOND = re.compile("InvalidRange|416 Range Not Satisfiable|bytes 0--1/0")
_NO_BUCKET = re.compile("NoSuchBucket|ContainerNotFound|The specified bucket does not exist")
_NO_KEYS = re.compile("/latest/api/token|/latest/meta-data/iam/security-credentials")
"""URLs of the metadata service, which a client without keys asks for the keys of the machine."""
_REFUSED = re.compile("status code: 40[13] ")
"""Of a list: the client says of other requests only that they were refused."""


def _settings(bucket: Bucket) -> dict[str, str]:
    return s3_settings(os.environ, bucket.name) if bucket.kind == "s3" else {}


def _environment() -> tuple[str, ...]:
    """What the client reads of the environment by itself."""
    return tuple(f"{name}={os.environ[name]}" for name in sorted(os.environ) if name.startswith(_READ_BY_CLIENTS))


_READ_BY_CLIENTS = ("AWS_", "AZURE_", "GOOGLE_")


@functools.lru_cache(maxsize=32)
def _client(
    bucket: Bucket, settings: tuple[tuple[str, str], ...], seconds: float, retries: ClientRetries, process: int,
    environment: tuple[str, ...],
) -> Any:  # fmt: skip
    """A client of one bucket, shared by all that lies in it: connections stay open.

    seconds: that pass without a reply, or without a byte of one, before a request fails.
    process, environment: a forked child cannot use its parent's, nor is one used that was made for somebody else.
    """
    from obstore import exceptions
    from obstore.store import AzureStore, GCSStore, S3Store

    config: Any = dict(settings)
    retry: Any = retries.value
    client: Any = {
        "timeout": timedelta(seconds=max(LONGEST_SECONDS, seconds)),
        "read_timeout": timedelta(seconds=seconds),
        "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
    }
    try:
        if bucket.kind == "gs":
            if os.environ.get("GOOGLE_BASE_URL", "").startswith("http://"):
                client["allow_http"] = True
            return GCSStore(bucket.name, client_options=client, retry_config=retry)
        if bucket.kind == "az":
            account: Any = {"account_name": bucket.account} if bucket.account else {}
            if os.environ.get("AZURE_STORAGE_ENDPOINT", "").startswith("http://"):
                client["allow_http"] = True
            return AzureStore(bucket.name, config=account, client_options=client, retry_config=retry)
        if config.get("endpoint", "").startswith("http://"):
            client["allow_http"] = True
        return S3Store(bucket.name, config=config, client_options=client, retry_config=retry)
    except (exceptions.BaseError, ValueError) as error:
        raise FormatError(f"cannot be opened: {redact_error(error)}", hint=REACH) from None


def file_name(path: str) -> str:
    """The last part of an object's name."""
    return path.rpartition("/")[2]
