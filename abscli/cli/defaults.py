"""Defaults of options from a file: `abs.toml` in the current folder, or the file that ABS_CONFIG names.

    output = "json"            # of every command that has the option

    [run]
    interval = "5s"
    keep = 20
    parallelism = ["counts=4"]

What is given on the command line goes before a variable, that before the file, and the file before the program's own.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from formats.errors import FormatError

if TYPE_CHECKING:
    from abscli.report.health import Check

FILE = "abs.toml"
VARIABLE = "ABS_CONFIG"
"""Names another file; empty: none is read."""

NEVER = frozenset({"yes", "help", "version"})
"""What is to be typed each time."""


class BadDefaults(FormatError):
    """A file of defaults that does not hold."""


def file_of_defaults() -> str | None:
    """The file that counts; None if there is none."""
    named = os.environ.get(VARIABLE)
    if named is not None:
        return named or None
    return FILE if os.path.isfile(FILE) else None


def read_defaults(path: str, commands: Collection[str]) -> dict[str, dict[str, Any]]:
    """The values by command, as written, and under "" those of all. BadDefaults for a file that does not hold, or that
    speaks of no command of ours."""
    import tomllib

    from formats.bounds import read_user_file

    data = read_user_file(path, hint=f"{VARIABLE} names it; {VARIABLE}= reads none")
    try:
        tables = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadDefaults(f"is no TOML: {error}", path=path) from None
    result: dict[str, dict[str, Any]] = {"": {}}
    for name, value in tables.items():
        if not isinstance(value, dict):
            result[""][name] = value
        elif name in commands:
            result[name] = value
        else:
            hint = f"tables are called like commands: {', '.join(commands)}"
            raise BadDefaults(f"[{name}] is no command", path=path, hint=hint)
    for command, values in result.items():
        for name, value in values.items():
            _check(path, command, name, value)
    return result


def _check(path: str, command: str, name: str, value: object) -> None:
    where = f"[{command}] {name}" if command else name
    if name in NEVER:
        raise BadDefaults(f"{where} is given each time, never as a default", path=path)
    items = value if isinstance(value, list) else [value]
    if not all(isinstance(item, str | int | float) for item in items):
        raise BadDefaults(f"{where} is neither a text, a number, true or false, nor a list of texts", path=path)


def defaults_for(
    path: str, command: str, given: Mapping[str, Mapping[str, Any]], options: Mapping[str, tuple[str, bool]]
) -> dict[str, Any]:
    """The values that a command's parameters get, by parameter.

    options: by name as it is typed, without `--`: the parameter, and whether it takes several values.

    BadDefaults for an option that the command does not have, or a list where it takes one value.
    """
    values: dict[str, Any] = {}
    for name, value in [*given.get("", {}).items(), *given.get(command, {}).items()]:
        if name not in options:
            if name in given.get(command, {}):
                hint = f"it has {', '.join(sorted(options.keys() - NEVER))}"
                raise BadDefaults(f"[{command}] {name} is no option of 'abs {command}'", path=path, hint=hint)
            continue
        parameter, several = options[name]
        if isinstance(value, list) and not several:
            raise BadDefaults(f"[{command}] {name} takes one value, not a list", path=path)
        values[parameter] = value if isinstance(value, list) or not several else [value]
    return values


def check_defaults() -> Check:
    """Whether the file holds for every command that it speaks of."""
    from abscli.cli.overview import COMMANDS
    from abscli.report.health import Check, Verdict

    path = file_of_defaults()
    if path is None:
        reason = f"{VARIABLE} is empty" if VARIABLE in os.environ else "there is none in this folder"
        return Check(FILE, Verdict.GOOD, f"{reason}: options have their own defaults")
    try:
        tables = read_defaults(path, COMMANDS)
        lacking = _mistakes(path, tables)
    except (FormatError, OSError) as error:
        return Check(FILE, Verdict.PROBLEM, str(error), getattr(error, "hint", None))
    if lacking:
        return Check(FILE, Verdict.PROBLEM, "; ".join(lacking), f"mend {path}; {VARIABLE}= leaves it out")
    names = [f"[{name}]" for name, values in tables.items() if name and values]
    return Check(FILE, Verdict.GOOD, f"{path} holds" + (f": {', '.join(names)}" if names else ""))


def _mistakes(path: str, tables: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Values that no command could take, and names of all commands that are options of none."""
    import typer

    from abscli.cli.app import load
    from abscli.cli.overview import COMMANDS

    messages, common = [], set(tables.get("", {}))
    for name in COMMANDS if common else [name for name in tables if name]:
        command = load(name)
        options = command.options_by_name()
        common -= options.keys()
        values = defaults_for(path, name, tables, options)
        params: dict[str, Any] = {param.name or "": param for param in command.params}
        with typer.Context(command, info_name=name) as context:
            for parameter, value in values.items():
                try:
                    params[parameter].type_cast_value(context, value)
                except typer.BadParameter as error:
                    messages.append(f"[{name}] {params[parameter].opts[0].removeprefix('--')}: {error.message}")
    return [*messages, *(f"{name} is an option of no command" for name in sorted(common))]
