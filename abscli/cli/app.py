"""The Typer app: commands are imported when they are asked for, and carry their examples and exit statuses."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import textwrap
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from abscli.cli.options import CHOSEN_FILE, WORDS, ConfigScope, Quiet, Verbose, place_options
from abscli.cli.output import warn
from abscli.cli.overview import COMMANDS, overview, width
from abscli.cli.stdout import keep_stdout

if TYPE_CHECKING:
    from abscli.cli.defaults import ConfigOption
    from formats.waiting import NoAnswer, SlowAnswers, Wait

RUN_OTHERS_CODE = frozenset({"run", "restore", "demo", "drill", "topology", "state", "validate", "doctor"})
"""Commands in which functions of a job, Spark or Java may run, and print."""

SAYS_WHAT_DEFAULTS_LACK = "doctor"
"""The command that has to run although abs.toml does not hold: it is the one that says so."""

PLACES = frozenset({"REF", "PATH", "PLAN"})
"""Of arguments that name a store."""

SOURCES = "abscli.sources"
"""Key of a context's `meta`: the configuration file of each parameter that such a file sets."""

HELP_NAMES = {"help_option_names": ["-h", "--help"]}

GUIDE_PAGES = "man/guide/pages"
"""The directory of the guide in the repository."""

LONG_NAME = 25
"""Columns of an option's names and metavar; longer names are on a line of their own in the help."""

FEW = 40
"""Characters of the list of values that the help of an option shows."""

MARGIN = 2
"""Columns that Typer leaves free at the right. Tables use them."""


class AbsCommand(TyperCommand):
    """Add examples, exit statuses and references to the help of a command, and variables per command.

    see_also: the names of related commands.
    guide: the guide page, relative to `GUIDE_PAGES`.
    """

    examples: tuple[tuple[str, str], ...] = ()
    exit_status: dict[int, str] = {}
    see_also: tuple[str, ...] = ()
    guide: str = ""

    def __init__(self, name: str | None, **settings: Any) -> None:
        super().__init__(name, **settings)
        params: list[Any] = self.params
        if any(param.metavar in PLACES or "--store" in param.opts for param in params):
            before = {"--output", "--log-format", "--quiet"}
            shared = next(number for number, param in enumerate(params) if before & {*param.opts})
            params[shared:shared] = place_options()
        for param in params:
            param.show_envvar = False
            if isinstance(param.envvar, str):  # ABS_RUN_MASTER is closer than ABS_MASTER
                own = f"ABS_{name}_{param.name}".upper().replace("-", "_")
                param.envvar = [own, param.envvar]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As Typer does; the words stay with the context, for commands that say how they are to be given again."""
        ctx.meta[WORDS] = tuple(args)
        ignored: tuple[str, ...] = ()
        try:
            ignored = self._set_defaults(ctx)
            with _plain_words(ctx):
                rest: list[str] = super().parse_args(ctx, args)
        finally:  # not before: the options that are parsed here choose the form of warnings
            for text in ignored:
                warn(text)
        return rest

    def _set_defaults(self, ctx: Any) -> tuple[str, ...]:
        """Set what the configuration files say of this command's options; return why files were ignored."""
        from abscli.cli.defaults import defaults_for, find_config, read_defaults
        from formats.errors import FormatError

        if self.name is None:
            return ()
        values: dict[str, Any] = {}
        sources: dict[str, str] = {}
        ctx.meta[SOURCES] = sources
        try:
            config = find_config()
            options = self.options_by_name() if config.files else {}
            for file in config.files:
                given = defaults_for(file, self.name, read_defaults(file, COMMANDS), options)
                values |= given
                sources |= dict.fromkeys(given, file.path)
        except (FormatError, OSError):
            if self.name == SAYS_WHAT_DEFAULTS_LACK:
                return ()
            raise
        ctx.default_map = values
        return config.ignored

    def options_by_name(self) -> dict[str, ConfigOption]:
        """Return the options by name as it is typed, without `--`."""
        from abscli.cli.defaults import ConfigOption

        params: list[Any] = [param for param in self.params if param.param_type_name == "option"]
        declared = inspect.signature(self.callback, eval_str=True).parameters if self.callback else {}
        return {
            name.removeprefix("--"): ConfigOption(param.name, param.multiple, _scope(param, declared.get(param.name)))
            for param in params for name in param.opts if name.startswith("--")
        }  # fmt: skip

    def invoke(self, ctx: Any) -> Any:
        """Runs it; stdout is for its results alone."""
        from formats.waiting import listen

        listen(_say_wait)
        if self.name in RUN_OTHERS_CODE:
            keep_stdout()
        return super().invoke(ctx)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """`[OPTIONS] JOB`, an optional argument in brackets."""
        names = [(str(p.metavar), p.required) for p in self.params if p.param_type_name == "argument"]
        return ["[OPTIONS]", *(name if required else f"[{name}]" for name, required in names)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options as tables, one line each if the names are not long."""
        params: list[Any] = self.get_params(ctx)
        columns = formatter.width + MARGIN
        arguments = [(p.metavar, p.help or "") for p in params if p.param_type_name == "argument"]
        if arguments:
            with formatter.section("Arguments"):
                formatter.write(_table(arguments, columns))
        with formatter.section("Options"):
            formatter.write(_table([_help_record(p, ctx) for p in params if p.param_type_name == "option"], columns))

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write where else options can be set, the examples, the exit statuses and the references."""
        columns = formatter.width + MARGIN
        prefix = ctx.auto_envvar_prefix
        if prefix:
            formatter.write_paragraph()
            formatter.write_text(
                f"Options can also be set by variables, {prefix}_OPTION, and in abs.toml under [{self.name}]. The "
                "command line overrides variables, and variables override abs.toml."
            )
            chosen = [name for name, option in self.options_by_name().items() if option.scope is CHOSEN_FILE]
            if chosen:
                names = ", ".join(f"--{name}" for name in chosen)
                formatter.write_text(f"Not read from abs.toml in the current directory: {names}.")
        with formatter.section("Examples"):
            for line, meaning in self.examples:
                formatter.write(f"  {line}\n")
                formatter.indent()
                formatter.write_text(meaning)
                formatter.dedent()
        with formatter.section("Exit status"):
            formatter.write(_table([(str(code), text) for code, text in self.exit_status.items()], columns))
        with formatter.section("See also"):
            if self.see_also:
                formatter.write_text(", ".join(f"abs {name}" for name in self.see_also))
            formatter.write_text(f"Guide: {GUIDE_PAGES}/{self.guide}")


def _table(rows: Iterable[tuple[str, str]], columns: int) -> str:
    """Return rows of a name and a text. A name above LONG_NAME has a line of its own."""
    rows = list(rows)
    indent = 4 + max((len(name) for name, _ in rows if len(name) <= LONG_NAME), default=0)
    lines = []
    for name, text in rows:
        first = f"  {name}".ljust(indent)
        wrapped = textwrap.wrap(text.removesuffix("."), max(columns - indent, 20), break_on_hyphens=False) or [""]
        if len(name) > LONG_NAME:
            lines.append(first)
            first = " " * indent
        lines.append(f"{first}{wrapped[0]}".rstrip())
        lines += [" " * indent + line for line in wrapped[1:]]
    return "".join(f"{line}\n" for line in lines)


def _help_record(param: Any, ctx: Any) -> tuple[str, str]:
    """Return an option's names with its metavar, and its help with the default value.

    The values of a choice are in the help if the option has a metavar, and otherwise in place of the metavar. A list
    that is longer than FEW is left to the description.
    """
    names, text = param.get_help_record(ctx)
    text, _, extra = text.partition("  [")
    text = text.removesuffix(".")
    choices = ", ".join(getattr(param.type, "choices", ()))
    if choices and param.metavar and len(choices) <= FEW:
        text += f": {choices}"
    return names, f"{text} [{extra}" if extra else text


def _say_wait(wait: Wait | NoAnswer | SlowAnswers) -> None:
    from abscli.cli.output import note
    from formats import waiting

    if isinstance(wait, waiting.NoAnswer):
        note(
            f"{wait.place} does not answer ({wait.reason}); it is asked again for up to {wait.seconds:g} s",
            event="waiting", store=wait.place, reason=wait.reason, seconds=wait.seconds,
        )  # fmt: skip
        return
    if isinstance(wait, waiting.SlowAnswers):
        note(
            f"{wait.place} answers slowly: {wait.requests} requests took {wait.seconds:.1f} s each",
            event="waiting", store=wait.place, requests=wait.requests, seconds=wait.seconds,
        )  # fmt: skip
        return
    note(
        f"{wait.store} is held by {wait.holder}; waiting up to {wait.seconds:g} s to see whether it is alive",
        event="waiting", store=wait.store, holder=wait.holder, seconds=wait.seconds,
    )  # fmt: skip


class AbsGroup(TyperGroup):
    """`abs` itself: knows its commands by name, and imports the one that is wanted."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As Typer does, with its messages in plain words."""
        with _plain_words(ctx):
            rest: list[str] = super().parse_args(ctx, args)
        return rest

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of all commands, in the order of the overview."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> TyperCommand | None:
        """The command, imported now; None if there is no such command."""
        if cmd_name not in self.commands and cmd_name in COMMANDS:
            self.commands[cmd_name] = load(cmd_name)
        command = self.commands.get(cmd_name)
        return command if isinstance(command, TyperCommand) else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As Typer does, with a suggestion from all commands, loaded or not."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, n=1)
            ctx.fail(f"No such command '{args[0]}'" + (f"; did you mean '{near[0]}'?" if near else ""))
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The overview."""
        formatter.write(overview(width()))


@contextlib.contextmanager
def _plain_words(ctx: Any) -> Iterator[None]:
    """What Typer says of a bad value names the choices as they are typed, and the variable that the value is from."""
    try:
        yield
    except typer.BadParameter as error:
        param: Any = error.param
        choices = getattr(getattr(param, "type", None), "choices", ())
        for typers, ours in (
            (" is not one of ", f" is none of {', '.join(choices)}"),
            (" is not a valid boolean", " is neither true nor false"),
            (" is not a valid int", " is not a whole number"),
        ):
            value, match, _ = error.message.partition(typers)
            error.message = value + ours if match else value
        source = ctx.get_parameter_source(param.name) if param else None
        if source is not None and source.name == "ENVIRONMENT":
            error.message += f" (from {_variable(ctx, param)})"
        if source is not None and source.name == "DEFAULT_MAP":
            error.message += f" (from {ctx.meta[SOURCES][param.name]})"
        raise


def _scope(param: Any, declared: inspect.Parameter | None) -> ConfigScope | None:
    """Return the scope that an option declares, in its annotation or as an attribute; None if it declares none."""
    markers = getattr(declared.annotation, "__metadata__", ()) if declared else (getattr(param, "scope", None),)
    return next((marker for marker in markers if isinstance(marker, ConfigScope)), None)


def _variable(ctx: Any, param: Any) -> str:
    """The environment variable that gives an option its value."""
    names = [param.envvar] if isinstance(param.envvar, str) else list(param.envvar or ())
    own = f"{ctx.auto_envvar_prefix}_{param.name.upper()}"
    return next((name for name in names if os.environ.get(name)), own)


def load(name: str) -> AbsCommand:
    """Import a command's module, and make the command from its function and its constants."""
    module_name = name.replace("-", "_")
    module = importlib.import_module(f"abscli.commands.{module_name}")
    single = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    single.command(name, cls=AbsCommand, context_settings=HELP_NAMES)(getattr(module, module_name))
    command = typer.main.get_command(single)
    assert isinstance(command, AbsCommand)
    command.examples = module.EXAMPLES
    command.exit_status = module.EXIT_STATUS
    command.see_also = module.SEE_ALSO
    command.guide = module.GUIDE
    return command


def _version(wanted: bool) -> None:
    if wanted:
        from abscli import __version__

        typer.echo(f"abs {__version__}")
        raise typer.Exit


app = typer.Typer(
    name="abs",
    cls=AbsGroup,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={**HELP_NAMES, "auto_envvar_prefix": "ABS"},
)


@app.callback()
def _abs(
    quiet: Quiet = False,
    verbose: Verbose = 0,
    version: Annotated[
        bool,
        # A variable called ABS_VERSION may well be somebody's own.
        typer.Option("--version", callback=_version, is_eager=True, allow_from_autoenv=False,
                     help="Print the version and exit."),
    ] = False,
) -> None:
    """Take, inspect, check and recover snapshots of dataflow jobs."""
