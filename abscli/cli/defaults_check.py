"""Check the configuration files for every command; a command itself looks only at its own part."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import typer

from abscli.cli.app import load
from abscli.cli.defaults import FILE, VARIABLE, ConfigFile, defaults_for, find_config, read_defaults
from abscli.cli.overview import COMMANDS
from abscli.report.health import Check, Verdict
from formats.errors import FormatError


def check_defaults() -> Check:
    """Check the files for every command that they have values for."""
    try:
        config = find_config()
        valid = [_names(file) for file in config.files]
    except (FormatError, OSError) as error:
        return Check(FILE, Verdict.PROBLEM, str(error), getattr(error, "hint", None))
    lacking = [message for _, messages in valid for message in messages]
    if lacking:
        paths = " and ".join(file.path for file, (_, messages) in zip(config.files, valid, strict=True) if messages)
        return Check(FILE, Verdict.PROBLEM, "; ".join(lacking), f"mend {paths}; {VARIABLE}= leaves it out")
    if config.ignored:
        return Check(FILE, Verdict.WARNING, "; ".join(config.ignored))
    if not config.files:
        reason = f"{VARIABLE} is empty" if VARIABLE in os.environ else "there is none"
        return Check(FILE, Verdict.OK, f"{reason}: options have their own defaults")
    return Check(FILE, Verdict.OK, "; ".join(text for text, _ in valid))


def _names(file: ConfigFile) -> tuple[str, list[str]]:
    """Return the commands that a file has values for, in words, and its mistakes."""
    tables = read_defaults(file, COMMANDS)
    names = [f"[{name}]" for name, values in tables.items() if name and values]
    return f"{file.path} holds" + (f": {', '.join(names)}" if names else ""), _mistakes(file, tables)


def _mistakes(file: ConfigFile, tables: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return values that no command could take, and names of all commands that are options of none."""
    messages, common = [], set(tables.get("", {}))
    for name in COMMANDS if common else [name for name in tables if name]:
        command = load(name)
        options = command.options_by_name()
        common -= options.keys()
        values = defaults_for(file, name, tables, options)
        params: dict[str, Any] = {param.name or "": param for param in command.params}
        with typer.Context(command, info_name=name) as context:
            for parameter, value in values.items():
                try:
                    params[parameter].type_cast_value(context, value)
                except typer.BadParameter as error:
                    messages.append(f"[{name}] {params[parameter].opts[0].removeprefix('--')}: {error.message}")
    return [*messages, *(f"{name} is an option of no command" for name in sorted(common))]
