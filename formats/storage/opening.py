"""The storage at a path or URI."""

from __future__ import annotations

import os
from collections.abc import Callable

from formats.errors import FormatError, NotFound
from formats.redaction import refuse_credentials
from formats.storage.contract import always
from formats.storage.hdfs.storage import HdfsStorage, is_hdfs
from formats.storage.local import LocalStorage
from formats.storage.objects import ObjectStorage
from formats.storage.places import SCHEMES, is_object_store, local_name

STORE = "the path or URI of a store"
"""What messages call a location that is refused: they do not show it."""


def open_storage(path: str) -> LocalStorage | ObjectStorage | HdfsStorage:
    """The storage at a directory or URI; NotFound if a local path is no directory, FormatError for a URI of no kind
    that is known, CredentialsRefused."""
    refuse_credentials(path, STORE)
    path = local_name(path)
    if "://" in path:
        return open_writable(path)
    if not os.path.isdir(path):
        hint = "give the directory of a store of abs, of a job or savepoint of Flink, or a checkpoint of Spark"
        if path.startswith("dbfs:/"):
            hint = "on a Databricks machine dbfs:/x is the folder /dbfs/x"
        raise NotFound("no such store", path=path, hint=hint)
    return LocalStorage(path)


def open_writable(path: str, *, may_show: Callable[[], None] = always) -> LocalStorage | ObjectStorage | HdfsStorage:
    """The same, to keep a store up in; a directory that is not there is made when something is put.

    may_show: called just before a file gets its name; what it raises leaves nothing there.
    """
    refuse_credentials(path, STORE)
    path = local_name(path)
    if "://" not in path:
        return LocalStorage(path, may_show=may_show)
    if is_object_store(path):
        return ObjectStorage(path, may_show=may_show)
    if is_hdfs(path):
        return HdfsStorage(path, may_show=may_show)
    raise FormatError("is of no kind of store that is known here", path=path, hint=f"known are {SCHEMES}")


def is_served(path: str) -> bool:
    """Whether a path or URI leads to what a server has."""
    return is_object_store(path) or is_hdfs(path)
