"""Where each file of a native store lies, relative to its root."""

from __future__ import annotations

STORE = "abs-store.json"
LOCK = "lock"
EPOCHS = "epochs"
ATTEMPTS = "attempts"


def epoch_dir(epoch: int) -> str:
    return f"{EPOCHS}/{epoch:010d}"


def manifest(epoch: int) -> str:
    return f"{epoch_dir(epoch)}/manifest.json"


def tasks_file(epoch: int) -> str:
    return f"{epoch_dir(epoch)}/tasks.json"


def trigger(epoch: int) -> str:
    return f"{epoch_dir(epoch)}/trigger.json"


def aborted(epoch: int) -> str:
    return f"{epoch_dir(epoch)}/aborted.json"


def part_dir(epoch: int, task: str) -> str:
    return f"{epoch_dir(epoch)}/parts/{task}"


def ack(epoch: int, task: str) -> str:
    return f"{part_dir(epoch, task)}/ack.json"


def state(epoch: int, task: str) -> str:
    return f"{part_dir(epoch, task)}/state.parquet"


def log(epoch: int, task: str, sender: str) -> str:
    """Of the channel from `sender`: two operators have at most one edge, so the two tasks name it."""
    return f"{part_dir(epoch, task)}/log/{sender}.arrow"


def attempt(number: int) -> str:
    return f"{ATTEMPTS}/{number:06d}.json"


def topology(sha256: str) -> str:
    return f"topologies/{sha256}.json"


def epoch_of(path: str) -> int | None:
    """The epoch whose directory a path lies in; None if in none."""
    head, _, rest = path.partition("/")
    number = rest.partition("/")[0]
    return int(number) if head == EPOCHS and number.isascii() and number.isdigit() and len(number) == 10 else None
