"""The storage at a path or URI."""

from __future__ import annotations

import os
from collections.abc import Callable

from formats.errors import FormatError, NotFound
from formats.storage.arrow import ArrowStorage
from formats.storage.contract import always
from formats.storage.local import LocalStorage
from formats.storage.objects import ObjectStorage, is_object_store
from formats.storage.places import local_name


def open_storage(path: str) -> LocalStorage | ObjectStorage | ArrowStorage:
    """The storage at a directory or URI; NotFound if a local path is no directory."""
    path = local_name(path)
    if "://" in path:
        return ObjectStorage(path) if is_object_store(path) else ArrowStorage(path)
    if not os.path.isdir(path):
        hint = "give the directory of a store of abs, of a job or savepoint of Flink, or a checkpoint of Spark"
        if path.startswith("dbfs:/"):
            hint = "on a Databricks machine dbfs:/x is the folder /dbfs/x"
        raise NotFound("no such store", path=path, hint=hint)
    return LocalStorage(path)


def open_writable(path: str, *, may_show: Callable[[], None] = always) -> LocalStorage | ObjectStorage:
    """The storage at a directory or URI that a store is kept up in; a directory that is not there is made when
    something is put.

    may_show: called just before a file gets its name; what it raises leaves nothing there.

    FormatError where stores are read and not written.
    """
    path = local_name(path)
    if "://" not in path:
        return LocalStorage(path, may_show=may_show)
    if is_object_store(path):
        return ObjectStorage(path, may_show=may_show)
    raise FormatError(
        "stores there are read, not written",
        path=path,
        hint="give a directory, or a place in a bucket (s3://, gs://, abfs://)",
    )
