"""Where a store's bytes lie: the contract in `contract`, and a module for each kind of place that holds to it."""

from formats.storage.arrow import ArrowStorage
from formats.storage.contract import UNFINISHED, Entry, Storage, WritableStorage, Written, always, check_path
from formats.storage.local import LocalStorage
from formats.storage.memory import MemoryStorage
from formats.storage.objects import ObjectStorage
from formats.storage.opening import open_storage, open_writable
from formats.storage.places import absolute, common_name, local_name, no_directory
from formats.storage.reading import Slices, StoredFile, file_name, open_input, top_folder, walk

__all__ = (
    "UNFINISHED", "ArrowStorage", "Entry", "LocalStorage", "MemoryStorage", "ObjectStorage", "Slices", "Storage",
    "StoredFile", "WritableStorage", "Written", "absolute", "always", "check_path", "common_name", "file_name",
    "local_name", "no_directory", "open_input", "open_storage", "open_writable", "top_folder", "walk",
)  # fmt: skip
