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
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from formats.errors import Damaged, FormatError, NotFound, Unreachable, UnsafePath
from formats.redaction import redact_error, refuse_user_information
from formats.storage.contract import (
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
from formats.storage.places import common_name

IDENTITY = "absput"
"""Under this name each object says by which call it was put: a word that all object stores allow."""
PART, PARTS_AT_ONCE = 8 << 20, 4
MOST_PARTS = 9_000
"""Of one object; S3 allows 10,000."""
CONFLICTS, CONFLICT_SECONDS = 10, 0.1
COPY_SECONDS, COPY_LOOK_SECONDS = 600.0, 0.25
RETRIES = 6
RETRY: Any = {
    "max_retries": RETRIES,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=5), "base": 2},
}
CLIENT: Any = {"timeout": timedelta(seconds=300), "connect_timeout": timedelta(seconds=10)}
"""A request may carry a state file of hundreds of megabytes over a slow line; a server that is not there is no such
thing."""


class Bucket(NamedTuple):
    """Where a URI leads. kind: s3, gs or az; account: Azure's, empty where the environment names it."""

    kind: str
    name: str
    prefix: str
    account: str = ""


_KINDS = {"s3": "s3", "gs": "gs", "az": "az", "abfs": "az", "abfss": "az"}


def is_object_store(uri: str) -> bool:
    """Whether a URI, under whichever of its names, is of a kind of store that `ObjectStorage` knows."""
    return common_name(uri).partition("://")[0] in _KINDS


def bucket_of(uri: str) -> Bucket:
    """The bucket and the place in it; FormatError for a URI without one, or with a secret in it."""
    scheme, _, rest = common_name(uri).partition("://")
    place, _, prefix = rest.partition("/")
    kind = _KINDS[scheme]
    refuse_user_information(uri, "the URI of a bucket")
    name, _, host = place.partition("@")
    if not name:
        raise FormatError("names no bucket", path=uri, hint="give the bucket and the path in it")
    return Bucket(kind, name, prefix.strip("/"), host.partition(".")[0])


class ObjectStorage:
    """A place in a bucket.

    may_show: called just before a file is put; what it raises leaves nothing there.

    Raises beside what the contract names: Unreachable, PermissionError, and NotFound where there is no such bucket.
    """

    def __init__(self, uri: str, *, may_show: Callable[[], None] = always) -> None:
        self._may_show = may_show
        self._root = uri if uri.endswith("://") else uri.rstrip("/")
        self._bucket = bucket_of(self._root)
        self._lead = f"{self._bucket.prefix}/" if self._bucket.prefix else ""
        self._opened: tuple[tuple[int, tuple[str, ...]], Any] | None = None
        if self._bucket.prefix:
            check_path(self._bucket.prefix)

    @property
    def root(self) -> str:
        return self._root

    @property
    def _client(self) -> Any:
        now = os.getpid(), _environment()
        if self._opened is None or self._opened[0] != now:
            try:
                settings = tuple(sorted(_settings(self._bucket).items()))
                self._opened = now, _client(self._bucket._replace(prefix=""), settings, *now)
            except FormatError as error:
                raise FormatError(error.message, path=error.path or self._root, hint=error.hint) from None
        return self._opened[1]

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        import obstore

        key = self._lead + check_path(path)
        if length == 0:  # no range is that short
            if self.size(path) is None:
                raise NotFound("no such file", path=self._where(path))
            return b""
        try:
            with self._asking(path):
                if length is not None:
                    return bytes(obstore.get_range(self._client, key, start=offset, length=length))
                if not offset:
                    return bytes(obstore.get(self._client, key).bytes())
                return bytes(obstore.get(self._client, key, options={"range": {"offset": offset}}).bytes())
        except _BeyondTheEnd:
            return b""

    def put(
        self, path: str, data: bytes | memoryview, *, replace: bool = False, identity: str | None = None
    ) -> None:
        """As of `Putting`. identity: what the file says of itself; whoever puts it anew under the same is not told that
        it is there."""
        import obstore

        key, body = self._lead + check_path(path), memoryview(data).cast("B")
        self._may_show()
        if replace:
            with self._asking(path):
                obstore.put(self._client, key, body, mode="overwrite", use_multipart=False)
            return
        identity = secrets.token_hex(16) if identity is None else identity
        for left in reversed(range(CONFLICTS)):
            try:
                with self._asking(path):
                    obstore.put(
                        self._client, key, body, mode="create", use_multipart=False, attributes={IDENTITY: identity}
                    )
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
        with self._asking(path):
            obstore.put(
                self._client, key, iter(pieces), mode="overwrite", use_multipart=True,
                chunk_size=max(PART, -(-(size or 0) // MOST_PARTS)), max_concurrency=PARTS_AT_ONCE,
            )  # fmt: skip

    def put_pieces(self, path: str, pieces: Iterable[bytes]) -> None:
        """As of `TakesPieces`, for names that one writer alone uses: that a file is there is looked up before, not by
        the request that makes it, for which obstore has no condition where it sends parts. What makes the pieces may
        not ask a bucket for anything: it runs in the client's thread."""
        if self.size(path) is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self._where(path))
        self.put_parts(path, pieces)

    def identity(self, path: str) -> str | None:
        """By which call a file was put, empty where it does not say; None if there is no such file."""
        import obstore

        try:
            with self._asking(path):
                there = obstore.get(self._client, self._lead + path, options={"head": True})
                return dict(there.attributes).get(IDENTITY, "")
        except NotFound:
            return None

    def list(self, path: str) -> list[Entry]:
        import obstore

        prefix = self._lead + check_path(path) if path else self._bucket.prefix
        with self._asking(path):
            listed = obstore.list_with_delimiter(self._client, prefix)
        # Hadoop and consoles mark a folder by an object of its own name.
        files = [Entry(file_name(o["path"]), o["size"]) for o in listed["objects"] if o["path"] != prefix]
        folders = [Entry(file_name(p), None) for p in listed["common_prefixes"]]
        entries = [entry for entry in (*files, *folders) if not entry.name.startswith(UNFINISHED)]
        return sorted(entries, key=lambda entry: (entry.name, entry.size is not None))

    def size(self, path: str) -> int | None:
        import obstore

        try:
            with self._asking(path):
                return int(obstore.head(self._client, self._lead + check_path(path))["size"])
        except NotFound:
            return None

    def written(self, path: str) -> float | None:
        """When a file was last written, as seconds since 1970 by the server's clock; None if there is no such file."""
        import obstore

        try:
            with self._asking(path):
                there = obstore.head(self._client, self._lead + check_path(path))
                return float(there["last_modified"].timestamp())
        except NotFound:
            return None

    def version(self, path: str) -> Version | None:
        """As of `ServedStorage`."""
        import obstore

        try:
            with self._asking(path):
                return _version(obstore.head(self._client, self._lead + check_path(path)))
        except NotFound:
            return None

    def versions(self, path: str) -> Sequence[tuple[str, Version | None]]:
        """As of `ServedStorage`."""
        import obstore

        prefix = self._lead + check_path(path) if path else self._bucket.prefix
        with self._asking(path):
            listed = obstore.list_with_delimiter(self._client, prefix)
        files = [(file_name(there["path"]), _version(there)) for there in listed["objects"] if there["path"] != prefix]
        folders = [(file_name(folder), None) for folder in listed["common_prefixes"]]
        return sorted(
            ((name, version) for name, version in (*files, *folders) if not name.startswith(UNFINISHED)),
            key=lambda entry: (entry[0], entry[1] is not None),
        )

    def read_version(self, path: str, offset: int, length: int) -> tuple[bytes, Version]:
        """As of `ServedStorage`."""
        import obstore

        key = self._lead + check_path(path)
        with self._asking(path):
            reply = obstore.get(self._client, key, options={"range": (offset, offset + length)})
            return bytes(reply.bytes()), _version(reply.meta)

    def delete(self, path: str) -> None:
        import obstore

        try:
            with self._asking(path):
                obstore.delete(self._client, self._lead + check_path(path))
        except NotFound:
            return  # some say so, others do not

    def delete_all(self, paths: Iterable[str]) -> None:
        """As `delete`, of many at once."""
        import obstore

        keys = [self._lead + check_path(path) for path in paths]
        try:
            with self._asking(""):
                obstore.delete(self._client, keys)
        except NotFound:
            # One of them was not there, and what became of the others is not known.
            for key in keys:
                self.delete(key[len(self._lead) :])

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
        import obstore

        lead = f"{self._lead}{check_path(path)}/" if path else self._lead
        offset = None if after is None else self._lead + check_path(after)
        with self._asking(path):
            files = [
                Written(o["path"][len(self._lead) :], o["size"], o["last_modified"].timestamp())
                for piece in obstore.list(self._client, lead.rstrip("/") or None, offset=offset)
                for o in piece
                if o["path"].startswith(lead) and len(o["path"]) > len(lead)
                # Where a server does not know how to begin behind a name, it sends all.
                if offset is None or o["path"] > offset
            ]
        # What marks a folder has a slash at its end, which the client takes off: nothing is under the name without it.
        return sorted(file for file in files if file.bytes or self.size(file.path) is not None)

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
        with self._asking(path):
            obstore.copy(self._client, *names, overwrite=replace)
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
        """While the server is asked: its client's errors become ours."""
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
            raise Unreachable(redact_error(error), path=self._root, hint=REACH) from None

    def _refused(self, path: str, error: Exception) -> PermissionError:
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


class _BeyondTheEnd(Exception):
    """A range was asked for behind the last byte."""


def _version(there: Any) -> Version:
    tag = there.get("e_tag") or there["last_modified"].isoformat()
    return Version(there["size"], "".join(tag.split()).strip('"'))  # Azure quotes it in a reply, not in a list


_BEYOND = re.compile("InvalidRange|416 Range Not Satisfiable|bytes 0--1/0")
_NO_BUCKET = re.compile("NoSuchBucket|ContainerNotFound|The specified bucket does not exist")
_REFUSED = re.compile("status code: 40[13] ")
"""Of a list: the client says of other requests only that they were refused."""


def _settings(bucket: Bucket) -> dict[str, str]:
    return s3_settings(os.environ, bucket.name) if bucket.kind == "s3" else {}


def _environment() -> tuple[str, ...]:
    """What the client reads of the environment by itself."""
    return tuple(f"{name}={os.environ[name]}" for name in sorted(os.environ) if name.startswith(_READ_BY_CLIENTS))


_READ_BY_CLIENTS = ("AWS_", "AZURE_", "GOOGLE_")


@functools.lru_cache(maxsize=8)
def _client(bucket: Bucket, settings: tuple[tuple[str, str], ...], process: int, environment: tuple[str, ...]) -> Any:
    """A client of one bucket, shared by all that lies in it: connections stay open. process, environment: a forked
    child cannot use its parent's, nor is one used that was made for somebody else."""
    from obstore import exceptions
    from obstore.store import AzureStore, GCSStore, S3Store

    config: Any = dict(settings)
    client: Any = dict(CLIENT)
    try:
        if bucket.kind == "gs":
            if os.environ.get("GOOGLE_BASE_URL", "").startswith("http://"):
                client["allow_http"] = True
            return GCSStore(bucket.name, client_options=client, retry_config=RETRY)
        if bucket.kind == "az":
            account: Any = {"account_name": bucket.account} if bucket.account else {}
            if os.environ.get("AZURE_STORAGE_ENDPOINT", "").startswith("http://"):
                client["allow_http"] = True
            return AzureStore(bucket.name, config=account, client_options=client, retry_config=RETRY)
        if config.get("endpoint", "").startswith("http://"):
            client["allow_http"] = True
        return S3Store(bucket.name, config=config, client_options=client, retry_config=RETRY)
    except (exceptions.BaseError, ValueError) as error:
        raise FormatError(f"cannot be opened: {redact_error(error)}", hint=REACH) from None


def file_name(path: str) -> str:
    """The last part of an object's name."""
    return path.rpartition("/")[2]
