"""What a completion script asks of `abs`: epochs, tasks, operators and tags of the store on the command line.

    abs __complete KIND WORD...

The words are those behind `abs` up to the cursor, as typed; the last one is what is to be completed. Each offer is a
line on stdout: of a reference what comes behind its `@`, otherwise the whole word. One that ends in `/` or `=` goes on.

A shell asks at each press of a key: nothing is said and nothing is written, whatever is wrong; what takes longer than
PATIENCE has no offers; and no more is imported than has to be.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from abscli.stores.base import Glance

PATIENCE = 2.0
"""Seconds, where PATIENCE_VARIABLE does not say how many."""
PATIENCE_VARIABLE = "ABS_COMPLETION_TIMEOUT"
MOST = 100
"""Offers: more than that nobody reads."""
_PLAIN = re.compile(r"[\w./=+,:-]+")
"""Names that no shell takes for anything else. Others are not offered: they may come from a store that was made to have
them."""


def complete(arguments: Sequence[str]) -> int:
    """Prints the offers for KIND and the words behind it, and ends with 0 in any case."""
    import threading

    # A server or a mount that does not answer is not waited for.
    patience = threading.Timer(_patience(), os._exit, (0,))
    patience.daemon = True
    patience.start()
    lines: list[str] = []
    with contextlib.suppress(Exception), contextlib.redirect_stderr(None):
        from formats.bounds import bound_memory

        bound_memory()  # the store may have been made to be too much
        kind, *words = arguments
        for offer in islice(_offers(kind, words), MOST):
            lines.append(f"{offer}\n")
    patience.cancel()
    try:
        sys.stdout.writelines(lines)
        sys.stdout.flush()
    except OSError:  # nobody reads them
        os._exit(0)
    return 0


def _patience() -> float:
    try:
        return float(os.environ.get(PATIENCE_VARIABLE, ""))
    except ValueError:
        return PATIENCE


def _offers(kind: str, words: Sequence[str]) -> Iterator[str]:
    *before, current = words
    _use_place(before)
    if kind in ("ref", "ref-or-file"):
        path, _, begun = current.rpartition("@")
        store = _glance(path)
        offers = _of_reference(store) if store is not None else iter(())
    else:
        begun = current
        store, epoch = _store_in(before)
        offers = _OFFERS[kind](store, epoch, begun) if store is not None else iter(())
    return (offer for offer in offers if offer.startswith(begun) and _PLAIN.fullmatch(offer))


def _of_reference(store: Glance) -> Iterator[str]:
    yield "latest"
    yield from store.tags()
    yield from map(str, store.epochs())


def _tasks(store: Glance, epoch: int | str | None, begun: str) -> Iterator[str]:
    """Operators until one is chosen: a job may have a hundred thousand tasks."""
    from formats.ids import task_name

    for name, parallelism in store.operators(epoch).items():
        if parallelism > 1 and not begun.startswith(f"{name}/"):
            yield f"{name}/"
        else:
            yield from (task_name(name, subtask) for subtask in range(parallelism))


def _parallelism(store: Glance, epoch: int | str | None, begun: str) -> Iterable[str]:
    return (f"{name}=" for name in store.operators(epoch))


_OFFERS = {
    "epoch": lambda store, epoch, begun: map(str, store.epochs()),
    "operator": lambda store, epoch, begun: store.operators(epoch),
    "parallelism": _parallelism,
    "stateful": lambda store, epoch, begun: store.operators(epoch, stateful=True),
    "tag": lambda store, epoch, begun: store.tags(),
    "task": _tasks,
}


def _store_in(words: Sequence[str]) -> tuple[Glance | None, int | str | None]:
    """The store that a command line names, with the epoch: that of `--store`, or the first word that leads to one."""
    from formats.reference import parse_reference

    named = [after for word, after in pairwise(words) if word == "--store"]
    named += [word.removeprefix("--store=") for word in words if word.startswith("--store=")]
    for word in named or words[1:]:
        if word.startswith("-"):
            continue
        with contextlib.suppress(Exception):
            path, epoch = parse_reference(_unquoted(word))
            if (store := _glance(path)) is not None:
                return store, epoch
    return None, None


def _use_place(words: Sequence[str]) -> None:
    """Has --endpoint and --region, or their variables, say where a bucket is, as for the command itself."""
    given = {name: value for name in ("endpoint", "region") if (value := os.environ.get(f"ABS_{name.upper()}"))}
    for word, after in pairwise([*words, ""]):
        option, equals, value = word.partition("=")
        if option in ("--endpoint", "--region"):
            given[option[2:]] = value if equals else after
    if given:
        from formats.storage.credentials import ENDPOINT, REGION, use_options

        use_options({name: given[key] for key, name in (("endpoint", ENDPOINT), ("region", REGION)) if key in given})


def _glance(word: str) -> Glance | None:
    """The store at a path as it was typed; None if there is none."""
    path = word if os.path.exists(word) else _unquoted(word)
    if "://" not in path and not os.path.exists(path):
        return None
    from abscli.stores.registry import SYSTEMS, storage_at

    storage = storage_at(path)
    return next((store for system in SYSTEMS if (store := system.glance(storage)) is not None), None)


def _unquoted(word: str) -> str:
    """What a shell makes of a word, which may lack its closing quote; no command in it is run."""
    import shlex

    for closing in ("", "'", '"'):
        with contextlib.suppress(ValueError):
            word = "".join(shlex.split(word + closing))
            break
    return os.path.expanduser(os.path.expandvars(word))
