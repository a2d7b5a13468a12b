"""Whether the file of defaults holds for every command, of which a command looks at its own part alone."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import typer

from abscli.cli.app import load
from abscli.cli.defaults import FILE, VARIABLE, defaults_for, file_of_defaults, read_defaults
from abscli.cli.overview import COMMANDS
from abscli.report.health import Check, Verdict
from formats.errors import FormatError


def check_defaults() -> Check:
    """Whether the file holds for every command that it speaks of."""
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
