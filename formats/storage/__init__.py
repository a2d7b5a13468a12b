"""Where a store's bytes lie: the contract in `contract`, and a module for each kind of place that holds to it."""

from formats.storage.arrow import ArrowStorage
from formats.storage.contract import UNFINISHED, Entry, Storage, WritableStorage, Written, always, check_path
from formats.storage.local import LocalStorage
from formats.storage.memory import MemoryStorage
from formats.storage.objects import ObjectStorage, is_object_store
from formats.storage.opening import open_storage, open_writable
from formats.storage.places import absolute, common_name, local_name, no_directory
from formats.storage.reading import (
    AT_ONCE,
    Slices,
    StoredFile,
    concurrently,
    delete_all,
    file_name,
    open_input,
    top_folder,
    walk,
    written_at,
)

__all__ = (
    "AT_ONCE", "UNFINISHED", "ArrowStorage", "Entry", "LocalStorage", "MemoryStorage", "ObjectStorage", "Slices",
    "Storage", "StoredFile", "WritableStorage", "Written", "absolute", "always", "check_path", "common_name",
    "concurrently", "delete_all", "file_name", "is_object_store", "local_name", "no_directory", "open_input",
    "open_storage", "open_writable", "top_folder", "walk", "written_at",
)  # fmt: skip
