"""A job's driver as a process on a host: its words are a file with `Orders`, its lines on stdout `Line`s."""

from __future__ import annotations

import sys
import threading
from typing import Any

import msgspec

from abscli.engine import job
from abscli.engine.errors import EngineError
from abscli.engine.job import JobOptions, run_job
from abscli.engine.losses.decisions import Scope
from abscli.engine.telemetry.news import News
from formats.errors import FormatError
from formats.job.model import Topology
from tests.support.hosts.workers import HostWorkers


class Orders(msgspec.Struct):
    """What to run.

    host: the driver's own address; enter, places: as of `HostWorkers`.
    options: of `JobOptions`.
    """

    topology: Topology
    store: str
    folder: str
    host: str
    enter: dict[str, list[str]]
    places: list[list[str]]
    options: dict[str, Any]


class Line(msgspec.Struct):
    """What a driver says: news by their class, their fields as text; or how it ended (`end`)."""

    what: str
    text: str = ""
    code: int = 0
    hint: str | None = None


_printing = threading.Lock()


def say(line: Line) -> None:
    with _printing:
        sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
        sys.stdout.buffer.flush()


def news(event: News) -> None:
    say(Line(type(event).__name__, str(event)))


def main() -> None:
    """Run it, and say how it ended."""
    with open(sys.argv[1], "rb") as file:
        orders = msgspec.json.decode(file.read(), type=Orders)
    job._launcher = lambda options: HostWorkers(orders.host, orders.enter, orders.places)  # type: ignore[assignment]
    more = {**orders.options, "recovery": Scope(orders.options.get("recovery", "subgraph"))}
    options = JobOptions(orders.folder, "job.yaml", workers=len(orders.places), **more)
    try:
        outcome = run_job(orders.topology, orders.store, options, on_news=news)
        say(Line("end", f"epoch {outcome.epoch}"))
    except EngineError as error:
        say(Line("end", error.message, error.exit_code, error.hint))
    except FormatError as error:
        say(Line("end", str(error), 3, error.hint))


if __name__ == "__main__":
    main()
