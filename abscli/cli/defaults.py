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
from typing import Any

from formats.errors import FormatError

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
