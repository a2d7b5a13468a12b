"""Options and arguments that several commands share, and how durations are written."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Annotated, Any

import typer
from typer.core import TyperOption

from abscli.cli.output import LogForm, Output, voice

COMPLETES: dict[str, str] = {"JOB": "file", "FILE": "file", "PLAN": "file", "PATH": "directory",
                             "DIR": "directory", "REF": "ref", "EPOCH": "epoch", "OPERATOR": "operator",
                             "OP=N": "parallelism", "TAG": "tag", "tag NAME": "tag", "TASK": "task",
                             "OUTPUT": "directory", "state OPERATOR": "stateful", "diff OPERATOR": "stateful",
                             "report REF": "ref-or-file", "diff REF": "ref-or-file"}
"""What a shell offers for a value, by the metavar, or by command and metavar."""

FROM_STORE = frozenset({"ref", "ref-or-file", "epoch", "operator", "parallelism", "stateful", "tag", "task"})
"""The kinds that `abs __complete` offers from the store on the command line. Of a reference: what follows its `@`.

A shell completes the path of a reference itself: `ref` with directories, `ref-or-file` with files, too.
"""

WORDS = "abscli.words"
"""Where a command's own words stand in the `meta` of its context."""

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([KMGT])?(?:i?B)?")


class ConfigScope(Enum):
    """Say which configuration files may set an option.

    Every option declares its scope in its annotation: `Annotated[bool, typer.Option(...), ANY_FILE]`.

    ANY_FILE: every file, also an abs.toml in the current directory, which a stranger may have put there.
    CHOSEN_FILE: only a file that the user chose, by ABS_CONFIG or as ~/.config/abs.toml. For options that name code,
    a host, a file or a directory, that contact somebody, that start another program, or that lift a safety check.
    NO_FILE: no file; the option confirms one single action.

    An option without a scope is treated as CHOSEN_FILE.
    """

    ANY_FILE = "any file"
    CHOSEN_FILE = "chosen file"
    NO_FILE = "no file"


ANY_FILE, CHOSEN_FILE, NO_FILE = ConfigScope.ANY_FILE, ConfigScope.CHOSEN_FILE, ConfigScope.NO_FILE


class Policy(StrEnum):
    """How a snapshot keeps a cut consistent."""

    ALIGNED = "aligned"
    UNALIGNED = "unaligned"
    AT_LEAST_ONCE = "at-least-once"


PolicyChoice = Annotated[
    Policy | None,
    typer.Option("--policy", metavar="POLICY", show_default=False,
                 help="Snapshot policy."),
    ANY_FILE,
]


class RecoveryScope(StrEnum):
    """What restarts when a worker is lost."""

    LOCAL = "local"
    SUBGRAPH = "subgraph"
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
        raise typer.BadParameter(f"{text!r} is not greater than zero")
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
                 help="Format of messages on stderr."),
    ANY_FILE,
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", callback=_hush, help="Print only results and errors."), ANY_FILE
]
Verbose = Annotated[
    int,
    typer.Option("--verbose", "-v", count=True, callback=_louder, metavar="", show_default=False,
                 help="Print more; with -vv also Python tracebacks."),
    ANY_FILE,
]
OutputForm = Annotated[
    Output, typer.Option("--output", "-o", metavar="FORMAT", envvar="ABS_OUTPUT", help="Output format."), ANY_FILE
]
Master = Annotated[
    str,
    typer.Option("--master", envvar="ABS_MASTER", metavar="URL",
                 help="Spark master URL."),
    CHOSEN_FILE,
]
Insecure = Annotated[
    bool,
    typer.Option("--insecure",
                 help="Do not encrypt connections between hosts."),
    CHOSEN_FILE,
]
EngineChoice = Annotated[
    Engine, typer.Option("--engine", help="Run on Spark, or in this process."), ANY_FILE
]
StateMemory = Annotated[
    int | None,
    typer.Option("--state-memory", metavar="SIZE", parser=size, show_default=False,
                 help="Memory per worker for keyed state, such as 500M."),
    ANY_FILE,
]
AcceptMissingParts = Annotated[
    bool, typer.Option("--accept-missing-parts", help="Continue even if parts of the output are missing."),
    CHOSEN_FILE,
]
TakeOwnership = Annotated[
    bool,
    typer.Option("--take-ownership", help="Take over sinks that another store has written to."),
    CHOSEN_FILE,
]
Ref = Annotated[
    str,
    typer.Argument(
        metavar="REF",
        help="PATH, PATH@7, PATH@latest or PATH@TAG; PATH is a directory or a URI.",
    ),
]
Search = Annotated[
    list[str] | None,
    typer.Option("--search", metavar="DIR",
                 help="Also look in DIR for Flink files; repeatable."),
    CHOSEN_FILE,
]
PathMap = Annotated[
    list[str] | None,
    typer.Option("--path-map", metavar="OLD=NEW",
                 help="Replace the path prefix OLD with NEW; repeatable."),
    CHOSEN_FILE,
]
Broker = Annotated[
    str | None,
    typer.Option("--broker", metavar="HOST:PORT", show_default=False,
                 help="Compare recorded offsets with those of this Kafka broker."),
    CHOSEN_FILE,
]
SinkJob = Annotated[
    str | None,
    typer.Option("--job", metavar="JOB", show_default=False,
                 help="Job file; also inspect the targets of its sinks."),
    CHOSEN_FILE,
]
BrokerConfig = Annotated[
    str | None,
    typer.Option("--broker-config", metavar="FILE", show_default=False,
                 help="File with librdkafka settings for --broker."),
    CHOSEN_FILE,
]
Types = Annotated[
    list[str] | None,
    typer.Option("--type", metavar="NAME=TYPE",
                 help="Type of state stored as bytes, such as n=long."),
    CHOSEN_FILE,
]
Uid = Annotated[
    list[str] | None,
    typer.Option("--uid", metavar="NAME",
                 help="Operator uid to try; repeatable."),
    ANY_FILE,
]
Force = Annotated[
    bool,
    typer.Option("--force", help="Overwrite --out even if abs did not write it."),
    NO_FILE,
]
Failed = Annotated[
    list[str] | None,
    typer.Option("--failed", metavar="TASK", help="Failed task, such as counts/1; repeatable."), ANY_FILE
]


class ScopedOption(TyperOption):
    """An option that is no parameter of a function, so that its scope is an attribute."""

    scope = CHOSEN_FILE


def place_options() -> list[TyperOption]:
    """What every command takes that is given the place of a store: they go before variables, profiles and roles."""
    return [
        ScopedOption(
            param_decls=["--endpoint"], metavar="URL", envvar="ABS_ENDPOINT", expose_value=False, callback=_endpoint,
            help="S3 endpoint, such as http://127.0.0.1:9000.",
        ),
        ScopedOption(
            param_decls=["--region"], metavar="NAME", envvar="ABS_REGION", expose_value=False, callback=_region,
            help="S3 region.",
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
