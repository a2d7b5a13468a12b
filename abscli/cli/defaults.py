"""Read the configuration files that set defaults of options.

    output = "json"            # of every command that has the option

    [run]
    interval = "5s"
    keep = 20
    parallelism = ["counts=4"]

If ABS_CONFIG is set, only the file that it names is read. Otherwise two files are read: `abs.toml` in the current
directory and `~/.config/abs.toml` (`$XDG_CONFIG_HOME/abs.toml` if that variable is set). The command line takes
precedence over the environment, the environment over the files, and `./abs.toml` over `~/.config/abs.toml`.

`./abs.toml` may come from a stranger, with a repository or an archive. It sets only options of the scope ANY_FILE.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from abscli.cli.options import ConfigScope
from formats.errors import FormatError

FILE = "abs.toml"
VARIABLE = "ABS_CONFIG"
"""Names the only file that is read; if it is empty, no file is read."""


class BadDefaults(FormatError):
    """A configuration file that is invalid."""


class UntrustedKeys(BadDefaults):
    """An `abs.toml` of the current directory that sets options which only a file that the user chose may set."""


class UnsafeConfig(BadDefaults):
    """A configuration file that another user can change."""


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A configuration file that was read.

    chosen: the user named it or keeps it in the configuration directory; it was not merely found.
    """

    path: str
    data: bytes
    chosen: bool


@dataclass(frozen=True, slots=True)
class ConfigFiles:
    """The configuration files of a command.

    files: the later takes precedence.
    ignored: why other files were not read, one sentence per file.
    """

    files: tuple[ConfigFile, ...]
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ConfigOption:
    """An option of a command.

    parameter: the name of the parameter that gets its value.
    several: it can be given several times.
    scope: which files may set it; None if it declares nothing.
    """

    parameter: str
    several: bool
    scope: ConfigScope | None


def user_config() -> str | None:
    """Return the path of the user's own file; None if there is no home directory."""
    folder = os.environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(folder):  # the XDG specification says that a relative path has to be ignored
        home = os.path.expanduser("~")
        if not os.path.isabs(home):
            return None
        folder = os.path.join(home, ".config")
    return os.path.join(folder, FILE)


def find_config() -> ConfigFiles:
    """Read the configuration files; BadDefaults if the file that ABS_CONFIG names cannot be read or is unsafe."""
    named = os.environ.get(VARIABLE)
    if named is not None:
        return ConfigFiles((_read_named(named),) if named else ())
    files: list[ConfigFile] = []
    ignored: list[str] = []
    own, seen = user_config(), None
    for path in (own, FILE):
        if path is None:
            continue
        try:
            found = _read_found(path)
        except UnsafeConfig as error:
            ignored.append(f"{path} is ignored: {error.message}; {error.hint}")
            continue
        if found is None:
            continue
        data, status = found
        if seen is not None and os.path.samestat(seen, status):
            continue  # the current directory is the configuration directory
        seen = status
        files.append(ConfigFile(path, data, chosen=path is own))
    return ConfigFiles(tuple(files), tuple(ignored))


def _read_named(path: str) -> ConfigFile:
    """Read the file that ABS_CONFIG names. It is not ignored if it is unsafe: the user relies on what it sets."""
    from formats.bounds import read_user_file

    def check(status: os.stat_result) -> None:
        if not stat.S_ISCHR(status.st_mode):  # everybody may write to /dev/null
            _check_owner(path, status)

    hint = f"{VARIABLE} names it; {VARIABLE}= reads none"
    return ConfigFile(path, read_user_file(path, hint=hint, check=check), chosen=True)


def _read_found(path: str) -> tuple[bytes, os.stat_result] | None:
    """Read a file that nobody named; None if there is no regular file. UnsafeConfig if it must not be used."""
    from formats.bounds import USER_FILE

    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # opening a FIFO must not block
    except PermissionError:
        if not os.path.exists(path):  # in a directory that must not be searched, such as the home of another user
            return None
        hint = f"to hide this warning, run {VARIABLE}= abs ..."
        raise UnsafeConfig("it cannot be read", path=path, hint=hint) from None
    except OSError:
        return None
    try:
        # Of the opened file: whoever can rename files in the directory cannot exchange it between check and use.
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None
        _check_owner(path, status)
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(USER_FILE + 1)
    finally:
        os.close(descriptor)
    if len(data) > USER_FILE:
        raise BadDefaults(f"has more than {USER_FILE} bytes, which is the most that is read", path=path)
    return data, status


def _check_owner(path: str, status: os.stat_result) -> None:
    """Refuse a file that a user other than this one and root owns or can write."""
    if not hasattr(os, "geteuid"):
        return
    user = os.geteuid()
    if status.st_uid not in (user, 0):
        reason = f"it belongs to uid {status.st_uid}, not to uid {user}, which runs abs, or to root"
        raise UnsafeConfig(reason, path=path, hint=f"copy the file, and set {VARIABLE} to the path of your copy")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        others = "everybody" if status.st_mode & stat.S_IWOTH else "its group"
        hint = f"run `chmod go-w {shlex.quote(path)}`"
        raise UnsafeConfig(f"it is writable by {others}", path=path, hint=hint)


def read_defaults(file: ConfigFile, commands: Collection[str]) -> dict[str, dict[str, Any]]:
    """Return the values per command, as written, and under "" the values of all commands.

    BadDefaults for a file that is invalid or has a table that is not named like a command.
    """
    import tomllib

    path = file.path
    try:
        tables = tomllib.loads(file.data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadDefaults(f"is not TOML: {error}", path=path) from None
    result: dict[str, dict[str, Any]] = {"": {}}
    for name, value in tables.items():
        if not isinstance(value, dict):
            result[""][name] = value
        elif name in commands:
            result[name] = value
        else:
            hint = f"tables are called like commands: {', '.join(commands)}"
            raise BadDefaults(f"[{name}] is not a command", path=path, hint=hint)
    for command, values in result.items():
        for name, value in values.items():
            _check(path, command, name, value)
    return result


def _check(path: str, command: str, name: str, value: object) -> None:
    items = value if isinstance(value, list) else [value]
    if not all(isinstance(item, str | int | float) for item in items):
        where = _shown(command, name)
        raise BadDefaults(f"{where} is neither a text, a number, true or false, nor a list of texts", path=path)


def defaults_for(
    file: ConfigFile, command: str, given: Mapping[str, Mapping[str, Any]], options: Mapping[str, ConfigOption]
) -> dict[str, Any]:
    """Return the values of a command's parameters, by parameter.

    given: as `read_defaults` returns it.
    options: by name as it is typed, without `--`.

    Raises BadDefaults for an option that the command does not have, an option that no file sets, or a list where it
    takes one value; UntrustedKeys.
    """
    values: dict[str, Any] = {}
    untrusted = []
    for table in ("", command):
        for name, value in given.get(table, {}).items():
            option = options.get(name)
            if option is None:
                if table:
                    known = sorted(key for key, each in options.items() if each.scope is not ConfigScope.NO_FILE)
                    hint = f"it has {', '.join(known)}"
                    message = f"[{command}] {name} is not an option of 'abs {command}'"
                    raise BadDefaults(message, path=file.path, hint=hint)
                continue
            where = _shown(table, name)
            if option.scope is ConfigScope.NO_FILE:
                raise BadDefaults(f"{where} is given each time, never as a default", path=file.path)
            if option.scope is not ConfigScope.ANY_FILE and not file.chosen:
                untrusted.append(where)
            if isinstance(value, list) and not option.several:
                raise BadDefaults(f"[{command}] {name} takes one value, not a list", path=file.path)
            values[option.parameter] = value if isinstance(value, list) or not option.several else [value]
    if untrusted:
        reason = "can only be set in a file that you chose, not in a file that abs finds in the current directory"
        message = f"{', '.join(untrusted)} {reason}"
        raise UntrustedKeys(message, path=file.path, hint=hint_to_trust(file.path, "abs ..."))
    return values


def hint_to_trust(path: str, command: str) -> str:
    """Return the hint of UntrustedKeys. command: as a shell takes it."""
    return (
        f"if you trust the file: `{VARIABLE}={shlex.quote(os.path.join('.', path))} {command}`; "
        f"to ignore it: `{VARIABLE}= {command}`"
    )


def _shown(command: str, name: str) -> str:
    return f"[{command}] {name}" if command else name
