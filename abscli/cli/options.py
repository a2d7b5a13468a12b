"""Options and arguments that several commands share, and how durations are written."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer
from typer.core import TyperOption

from abscli.cli.output import LogForm, Output, voice

COMPLETES: dict[str, str] = {"JOB": "file", "FILE": "file", "PLAN": "file", "PATH": "directory",
                             "DIR": "directory", "REF": "ref", "EPOCH": "epoch", "OPERATOR": "operator",
                             "OP=N": "parallelism", "TAG": "tag", "tag NAME": "tag", "TASK": "task",
                             "state OPERATOR": "stateful", "diff OPERATOR": "stateful"}
"""What a shell offers for a value, by the metavar, or by command and metavar."""

FROM_STORE = frozenset({"ref", "epoch", "operator", "parallelism", "stateful", "tag", "task"})
"""Of these, what the store on the command line has; of a reference, behind its `@`."""

WORDS = "abscli.words"
"""Where a command's own words stand in the `meta` of its context."""

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([KMGT])?(?:i?B)?")


class Policy(StrEnum):
    """How a snapshot keeps a cut consistent."""

    ALIGNED = "aligned"
    UNALIGNED = "unaligned"
    AT_LEAST_ONCE = "at-least-once"


PolicyChoice = Annotated[
    Policy | None,
    typer.Option("--policy", show_default=False,
                 help="How snapshots keep their cuts consistent; default: as the job ran last, a new one aligned."),
]


class RecoveryScope(StrEnum):
    """What restarts when a worker is lost."""

    LOCAL = "local"
    SET = "set"
    FULL = "full"


class Engine(StrEnum):
    """Where tasks run."""

    SPARK = "spark"
    INLINE = "inline"


def at_least(least: int) -> Callable[[str | int], int]:
    """The parser of an option that takes a whole number, `least` or above."""

    def whole_number(text: str | int) -> int:
        try:
            number = int(text)
        except ValueError:
            raise typer.BadParameter(f"{text!r} is not a whole number") from None
        if number < least:
            raise typer.BadParameter(f"{number} is below {least}, the least that is allowed")
        return number

    return whole_number


def duration(text: str | float) -> float:
    """Seconds of `500ms`, `10s`, `5m`, `2h`, `1d` or `1h30m`; a number alone is seconds. BadParameter otherwise."""
    from formats.durations import seconds_of

    try:
        return seconds_of(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def positive_duration(text: str | float) -> float:
    """As `duration`, above zero."""
    seconds = duration(text)
    if seconds <= 0:
        raise typer.BadParameter(f"{text!r} is not above zero")
    return seconds


def size(text: str | int) -> int:
    """Bytes of `64M`, `1.5G` or `65536`: K, M, G and T are powers of 1024. BadParameter otherwise."""
    match = _SIZE.fullmatch(str(text).strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a size such as 65536, 64M or 1.5G")
    return int(float(match[1]) * 1024 ** " KMGT".index(match[2] or " "))


@dataclass(frozen=True, slots=True)
class Address:
    """Where something listens."""

    host: str
    port: int


def listening(text: str) -> Address:
    """The address `9400`, `0.0.0.0:9400` or `[::]:9400`; without a host that of this machine alone. BadParameter
    otherwise."""
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > 65535 or (":" in host and not host.startswith("[")):
        raise typer.BadParameter(f"{text!r} is not an address such as 9400, 0.0.0.0:9400 or [::]:9400")
    return Address(host.strip("[]") or "127.0.0.1", int(port))


def _hush(value: bool) -> bool:
    voice.quiet = voice.quiet or value
    return value


def _louder(value: int) -> int:
    voice.verbose += value
    return value


def _log_form(value: LogForm) -> LogForm:
    voice.form = value
    return value


LogFormat = Annotated[
    LogForm,
    typer.Option("--log-format", envvar="ABS_LOG_FORMAT", callback=_log_form,
                 help="Form of what is said on stderr: text, or json, one object a line."),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", callback=_hush, help="Print results and errors only.")
]
Verbose = Annotated[
    int,
    typer.Option("--verbose", "-v", count=True, callback=_louder, metavar="", show_default=False,
                 help="Say more; -vv shows the traceback of an error."),
]
OutputForm = Annotated[
    Output, typer.Option("--output", "-o", envvar="ABS_OUTPUT", help="Form of the result on stdout.")
]
Master = Annotated[
    str,
    typer.Option("--master", envvar="ABS_MASTER", metavar="URL",
                 help="Spark master: local[*], local[N], spark://HOST:PORT, yarn or k8s://..."),
]
Insecure = Annotated[
    bool,
    typer.Option("--insecure",
                 help="Encrypt nothing that goes between hosts: who is on their network can read and change it."),
]
EngineChoice = Annotated[
    Engine, typer.Option("--engine", help="spark: worker processes; inline: this process alone, no JVM.")
]
StateMemory = Annotated[
    int | None,
    typer.Option("--state-memory", metavar="SIZE", parser=size, show_default=False,
                 help="Memory of each worker for keyed state, such as 500M; what is more lies on local disk by key "
                      "group. Default: all state is in memory."),
]
AcceptMissingParts = Annotated[
    bool, typer.Option("--accept-missing-parts", help="Go on although parts of the output that belong to it are gone.")
]
Ref = Annotated[
    str,
    typer.Argument(
        metavar="REF",
        help="PATH, PATH@7, PATH@latest or PATH@TAG; PATH is the directory of a store or a URI such as s3://...",
    ),
]
Search = Annotated[
    list[str] | None,
    typer.Option("--search", metavar="DIR",
                 help="Look here too for files of Flink's that lie elsewhere now; repeatable."),
]
PathMap = Annotated[
    list[str] | None,
    typer.Option("--path-map", metavar="OLD=NEW",
                 help="What began with OLD in Flink's metadata, or a Spark query's inputs, begins with NEW now."),
]
Broker = Annotated[
    str | None,
    typer.Option("--broker", metavar="HOST:PORT", show_default=False,
                 help="Ask this broker of Kafka what it has of the topics that the epoch goes on with."),
]
BrokerConfig = Annotated[
    str | None,
    typer.Option("--broker-config", metavar="FILE", show_default=False,
                 help="With --broker: settings of librdkafka, name=value a line, such as sasl.username."),
]
Types = Annotated[
    list[str] | None,
    typer.Option("--type", metavar="NAME=TYPE",
                 help="Type of a state that Flink keeps as bytes, such as count=long, seen=row(long, string) or "
                      "last=protobuf(FILE, shop.Order)."),
]
Uid = Annotated[
    list[str] | None,
    typer.Option("--uid", metavar="NAME",
                 help="A name that an operator of Flink may have been given by uid(): proved by its hash; repeatable."),
]
Failed = Annotated[
    list[str] | None,
    typer.Option("--failed", metavar="TASK", help="A task that has died, such as counts/1; repeatable."),
]


def place_options() -> list[TyperOption]:
    """What every command takes that is given the place of a store: they go before variables, profiles and roles."""
    return [
        TyperOption(
            param_decls=["--endpoint"], metavar="URL", envvar="ABS_ENDPOINT", expose_value=False, callback=_endpoint,
            help="Where S3 answers, such as http://127.0.0.1:9000; goes before AWS_ENDPOINT_URL and profiles.",
        ),
        TyperOption(
            param_decls=["--region"], metavar="NAME", envvar="ABS_REGION", expose_value=False, callback=_region,
            help="The region of S3's buckets; goes before AWS_REGION and profiles.",
        ),
    ]  # fmt: skip


def _endpoint(context: Any, param: Any, value: str | None) -> str | None:
    from formats.storage.credentials import ENDPOINT, use_options

    if value is not None and not re.match("https?://[^/]", value):
        raise typer.BadParameter(f"{value!r} is not an address such as http://127.0.0.1:9000")
    use_options({ENDPOINT: value})
    return value


def _region(context: Any, param: Any, value: str | None) -> str | None:
    from formats.storage.credentials import REGION, use_options

    use_options({REGION: value})
    return value


def words_again(context: typer.Context, without: Mapping[str, int]) -> str:
    """What was typed after the command's name, as a shell takes it: so that a hint repeats every option that was given.

    without: options that are left out, with how many words each takes after it.
    """
    kept, words = [], iter(context.meta[WORDS])
    for word in words:
        option, equals, _ = word.partition("=")
        if option not in without:
            kept.append(word)
        elif not equals:
            for _ in range(without[option]):
                next(words, None)
    return shlex.join(kept)
