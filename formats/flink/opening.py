"""How the table of formats recognises and opens what Flink left."""

from __future__ import annotations

from collections.abc import Sequence

from formats.bounds import USER_FILE, read_user_file
from formats.errors import FormatError
from formats.flink.files import layout
from formats.flink.files.resolve import parse_path_map
from formats.flink.plan_json import read_plan
from formats.flink.store import FlinkStore
from formats.storage import Storage


def recognise(storage: Storage) -> bool:
    """Whether a job's checkpoints, one of them, or a savepoint lies there."""
    return layout.is_flink(storage.root)


def open_flink(
    storage: Storage,
    *,
    search: Sequence[str] = (),
    path_map: Sequence[str] = (),
    uid: Sequence[str] = (),
    type: Sequence[str] = (),
    topology: Sequence[str] = (),
) -> FlinkStore:
    """The store with the options as a user writes them (OLD=NEW, NAME=TYPE, a file with a plan); FormatError for one
    that is not that."""
    types = None
    try:
        maps = [parse_path_map(text) for text in path_map]
        if type:
            from formats.flink.types.python_types import named_types

            types = named_types(dict(_named(text) for text in type))
    except ValueError as error:
        raise FormatError(str(error)) from None
    plan = None
    for file in topology:
        data = read_user_file(file, USER_FILE, hint="give the answer of Flink's REST, /jobs/ID/plan")
        plan = read_plan(data, file)
    return FlinkStore(storage.root, search=search, maps=maps, uids=uid, types=types, plan=plan)


def _named(text: str) -> tuple[str, str]:
    name, equals, type = text.partition("=")
    if not equals or not name or not type:
        raise ValueError(f"{text!r} is not NAME=TYPE, such as count=long")
    return name, type
