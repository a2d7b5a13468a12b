"""The Typer app: commands are imported when they are asked for, and carry their examples and exit statuses."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from abscli.cli.options import WORDS, Quiet, Verbose, place_options
from abscli.cli.overview import COMMANDS, overview, width
from abscli.cli.stdout import keep_stdout

if TYPE_CHECKING:
    from formats.waiting import Wait

RUN_OTHERS_CODE = frozenset({"run", "restore", "demo", "drill", "topology", "state", "validate", "doctor"})
"""Commands in which functions of a job, Spark or Java may run, and print."""

SAYS_WHAT_DEFAULTS_LACK = "doctor"
"""The command that has to run although abs.toml does not hold: it is the one that says so."""

PLACES = frozenset({"REF", "PATH", "PLAN"})
"""Of arguments that name a store."""

HELP_NAMES = {"help_option_names": ["-h", "--help"]}


class AbsCommand(TyperCommand):
    """A command whose help ends in EXAMPLES and EXIT STATUS, and whose shared variables have a form of their own."""

    examples: tuple[tuple[str, str], ...] = ()
    exit_status: dict[int, str] = {}

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
        ctx.default_map = self._defaults()
        with _plain_words(ctx):
            rest: list[str] = super().parse_args(ctx, args)
        return rest

    def _defaults(self) -> dict[str, Any] | None:
        """What the file of defaults says of this command's options, if there is one."""
        from abscli.cli.defaults import defaults_for, file_of_defaults, read_defaults
        from formats.errors import FormatError

        path = file_of_defaults()
        if path is None or self.name is None:
            return None
        try:
            return defaults_for(path, self.name, read_defaults(path, COMMANDS), self.options_by_name())
        except (FormatError, OSError):
            if self.name == SAYS_WHAT_DEFAULTS_LACK:
                return None
            raise

    def options_by_name(self) -> dict[str, tuple[str, bool]]:
        """As they are typed, without `--`: the parameter, and whether it takes several values."""
        params: list[Any] = [param for param in self.params if param.param_type_name == "option"]
        return {
            name.removeprefix("--"): (param.name, param.multiple)
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
        """Arguments and options, as tables."""
        params: list[Any] = self.get_params(ctx)
        arguments = [(p.metavar, p.help or "") for p in params if p.param_type_name == "argument"]
        if arguments:
            with formatter.section("Arguments"):
                formatter.write_dl(arguments)
        with formatter.section("Options"):
            formatter.write_dl([p.get_help_record(ctx) for p in params if p.param_type_name == "option"])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Where else options may come from; examples and exit statuses, as tables."""
        prefix = ctx.auto_envvar_prefix
        if prefix:
            formatter.write_paragraph()
            formatter.write_text(
                f"Every option can also be given in the environment, as {prefix}_OPTION, and in abs.toml, under "
                f"[{self.name}]: the command line goes first, then the environment, then the file."
            )
        with formatter.section("EXAMPLES"):
            for line, meaning in self.examples:
                formatter.write(f"  {line}\n")
                formatter.indent()
                formatter.write_text(meaning)
                formatter.dedent()
        with formatter.section("EXIT STATUS"):
            formatter.write_dl([(str(code), text) for code, text in self.exit_status.items()])


def _say_wait(wait: Wait) -> None:
    from abscli.cli.output import note

    note(
        f"{wait.store}: {wait.holder} has not said that it is done with it; waiting up to {wait.seconds:g} s for "
        "another word of it", event="waiting", store=wait.store, holder=wait.holder, seconds=wait.seconds,
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
            from abscli.cli.defaults import file_of_defaults

            error.message += f" (from {file_of_defaults()})"
        raise


def _variable(ctx: Any, param: Any) -> str:
    """The environment variable that gives an option its value."""
    names = [param.envvar] if isinstance(param.envvar, str) else list(param.envvar or ())
    own = f"{ctx.auto_envvar_prefix}_{param.name.upper()}"
    return next((name for name in names if os.environ.get(name)), own)


def load(name: str) -> AbsCommand:
    """Imports a command's module and makes the command from its function, EXAMPLES and EXIT_STATUS."""
    module_name = name.replace("-", "_")
    module = importlib.import_module(f"abscli.commands.{module_name}")
    single = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    single.command(name, cls=AbsCommand, context_settings=HELP_NAMES)(getattr(module, module_name))
    command = typer.main.get_command(single)
    assert isinstance(command, AbsCommand)
    command.examples = module.EXAMPLES
    command.exit_status = module.EXIT_STATUS
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
