"""Where a store's bytes lie: the contract in `contract`, and a module for each kind of place that holds to it."""

from formats.storage.contract import (
    AT_ONCE,
    UNFINISHED,
    Entry,
    Putting,
    ServedStorage,
    Storage,
    Version,
    WritableStorage,
    Written,
    always,
    check_path,
)
from formats.storage.hdfs.storage import HdfsStorage
from formats.storage.local import LocalStorage
from formats.storage.memory import MemoryStorage
from formats.storage.objects import ObjectStorage
from formats.storage.opening import is_served, open_storage, open_writable
from formats.storage.pieces import TakesPieces, put_pieces
from formats.storage.places import absolute, common_name, local_name, no_directory, real_place
from formats.storage.reading import (
    Slices,
    StoredFile,
    concurrently,
    deciding,
    delete_all,
    file_name,
    is_deciding,
    open_input,
    top_folder,
    walk,
    written_at,
)

__all__ = (
    "AT_ONCE", "UNFINISHED", "Entry", "HdfsStorage", "LocalStorage", "MemoryStorage", "ObjectStorage", "Putting",
    "ServedStorage", "Slices", "Storage", "StoredFile", "TakesPieces", "Version", "WritableStorage", "Written",
    "absolute", "always", "check_path", "common_name", "concurrently", "deciding", "delete_all", "file_name",
    "is_deciding", "is_served", "local_name", "no_directory", "open_input", "open_storage", "open_writable",
    "put_pieces", "real_place", "top_folder", "walk", "written_at",
)  # fmt: skip
