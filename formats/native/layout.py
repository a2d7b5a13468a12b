"""Where each file of a native store lies, relative to its root.

What an attempt writes for an epoch lies in a folder named by the attempt's id, so that an attempt that has lost the
store cannot touch a file of the one that took it over. `attempt` below is that id.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from formats.ids import TaskId
from formats.reference import is_tag_name
from formats.storage.ranges import PACK

STORE = "abs-store.json"
LOCK = "lock"
"""A file on a disk; in a bucket a folder of claims."""
EPOCHS = "epochs"
ATTEMPTS = "attempts"
RECOVERIES = "recoveries"
TAGS = "tags"
WRITTEN = "written"
ASIDE = "quarantine"
"""What was damaged, kept as it was: no command looks into it, and nothing removes it."""
ROWS = ".rows"
"""How the names of files end that sinks have staged, whatever is in them."""


def is_lock(path: str) -> bool:
    """Whether a file belongs to the lock, which promises nothing."""
    return path.partition("/")[0] == LOCK


def epoch_dir(epoch: int) -> str:
    return f"{EPOCHS}/{epoch:010d}"


def home(epoch: int, attempt: str) -> str:
    """The folder of all that one attempt writes for an epoch but its outcome."""
    return f"{epoch_dir(epoch)}/{attempt}"


def outcome(epoch: int) -> str:
    """The one file that says what became of an epoch number."""
    return f"{epoch_dir(epoch)}/outcome.json"


def tasks_file(epoch: int, attempt: str) -> str:
    return f"{home(epoch, attempt)}/tasks.json"


def trigger(epoch: int, attempt: str) -> str:
    return f"{home(epoch, attempt)}/trigger.json"


def part_dir(epoch: int, task: str, attempt: str) -> str:
    return f"{home(epoch, attempt)}/parts/{task}"


def ack(epoch: int, task: str, attempt: str) -> str:
    return f"{part_dir(epoch, task, attempt)}/ack.json"


def state(epoch: int, task: str, attempt: str) -> str:
    return f"{part_dir(epoch, task, attempt)}/state.parquet"


def log(epoch: int, task: str, sender: str, attempt: str) -> str:
    """Of the channel from `sender`: two operators have at most one edge, so the two tasks name it."""
    return f"{part_dir(epoch, task, attempt)}/log/{sender}.arrow"


def rows(epoch: int, task: str, attempt: str, token: str) -> str:
    """What a sink has staged. token: of who wrote it, since a task that takes its steps again writes the same again."""
    return f"{part_dir(epoch, task, attempt)}/{token}{ROWS}"


def pack_dir(epoch: int, attempt: str) -> str:
    return f"{home(epoch, attempt)}/packs"


def pack(epoch: int, attempt: str, incarnation: str, number: int) -> str:
    """The `number`-th of one process: no other one ever writes a file of that name."""
    return f"{pack_dir(epoch, attempt)}/{incarnation}-{number}{PACK}"


def large(path: str, incarnation: str) -> str:
    """Where a file of a part lies that is too large for a pack, by the path that it has otherwise. It may be sent in
    pieces, which are not refused where a file has the name: so that is of one process alone."""
    folder = path.partition("/parts/")[0]
    return f"{folder}/packs/{incarnation}/{name_in_pack(path)}"


def name_in_pack(path: str) -> str:
    """What a file of a part is called in a pack, by the path that it has alone: its task, and its name there."""
    return path.partition("/parts/")[2]


class PackPath(NamedTuple):
    """Something that a process wrote for several tasks: a pack, or what was too large for one.

    home: the folder of all that its attempt writes for the epoch.
    """

    home: str
    name: str


def pack_of(path: str) -> PackPath | None:
    """What the name of such a file says; None for any other."""
    match = _PACK.fullmatch(path)
    return PackPath(match[1], match[2]) if match is not None else None


_PACK = re.compile(r"(.+?)/packs/([0-9a-f]{16}(?:-[0-9]{1,10}\.pack|/.+))", re.DOTALL)


def attempt(number: int) -> str:
    return f"{ATTEMPTS}/{number:06d}.json"


def attempt_of(path: str) -> int | None:
    """Return the number of the attempt that a file records, by its path; None for any other path."""
    match = _ATTEMPT.fullmatch(path)
    return int(match[1]) if match is not None else None


_ATTEMPT = re.compile(rf"{ATTEMPTS}/([0-9]+)\..*")


def recovery(attempt: int, number: int) -> str:
    """The record of the attempt's `number`-th live recovery."""
    return f"{RECOVERIES}/{attempt:06d}-{number:04d}.json"


def topology(sha256: str) -> str:
    return f"topologies/{sha256}.json"


def tag(epoch: int, name: str) -> str:
    """The number stands in the name, so that a list of names says which epochs have to stay."""
    return f"{TAGS}/{epoch:010d}-{name}.json"


def written(operator: str) -> str:
    """What a sink's target has, that does not say so itself."""
    return f"{WRITTEN}/{operator}.json"


def leaving(epoch: int) -> str:
    """Says that a complete epoch is about to be removed: see `formats.native.remove`."""
    return f"{epoch_dir(epoch)}/leaving"


class TagPath(NamedTuple):
    """What the path of a tag says."""

    epoch: int
    name: str


_TAG = re.compile(rf"{TAGS}/([0-9]{{10}})-(.+)\.json", re.DOTALL)


def tag_of(path: str) -> TagPath | None:
    """The tag that lies at a path; None where that is no path of a tag."""
    match = _TAG.fullmatch(path)
    return TagPath(int(match[1]), match[2]) if match is not None and is_tag_name(match[2]) else None


class PartPath(NamedTuple):
    """A file of a part.

    home: the folder of all that its attempt writes for the epoch.
    file: its name within the part.
    """

    home: str
    task: TaskId
    file: str


_FILE = re.compile(r"ack\.json|state\.parquet|[0-9a-f]{16}\.rows")


def part_of(path: str) -> PartPath | None:
    """Whose part a file belongs to, by its name; None where it is no file of a part."""
    names = path.split("/")
    for at, name in enumerate(names):
        if name == "parts" and at and _is_file_of_part(names, at + 3):
            home = "/".join(names[:at])
            try:
                return PartPath(home, TaskId.parse("/".join(names[at + 1 : at + 3])), "/".join(names[at + 3 :]))
            except ValueError:
                return None
    return None


def _is_file_of_part(names: list[str], at: int) -> bool:
    """Tell whether the names from `at` on are those of a file in a part. The regular expression for a whole path took
    time that grew with the square of its length."""
    if at >= len(names) or not (names[at - 2] and names[at - 1]) or (at == 4 and not names[0]):
        return False
    if names[at] == "log":
        return at + 1 < len(names) and names[-1].endswith(".arrow") and (at + 2 < len(names) or names[-1] != ".arrow")
    return at + 1 == len(names) and _FILE.fullmatch(names[at]) is not None


def epoch_of(path: str) -> int | None:
    """The epoch whose directory a path lies in; None if in none."""
    head, _, rest = path.partition("/")
    number = rest.partition("/")[0]
    return int(number) if head == EPOCHS and number.isascii() and number.isdigit() and len(number) == 10 else None
