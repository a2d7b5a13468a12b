"""The entry point of `abs`: runs the app, and turns what went wrong into a message and an exit code."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from abscli.cli.overview import COMMANDS, overview, width
from abscli.cli.stdout import give_back_stdout, open_standard_streams
from formats.version import FORMAT_VERSION

WITH_FUNCTIONS = frozenset({"run", "restore", "demo", "drill"})
"""Commands that run functions of a job, which may multiply matrices."""

WITH_LOGS = frozenset({"run", "restore", "drill"})
"""Commands that have --log-format."""

COMPLETE = "__complete"
"""What completion scripts begin with; no command of people's."""

MISSING_PACKAGE = 2
"""The exit code where a package is missing without which `abscli.cli.exits` cannot be imported."""

UNBOUNDED = WITH_FUNCTIONS | {"simulate"}
"""Commands that may take as much memory as there is: the state of a job, the worlds of a search. What others read was
often written by somebody else."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `abs` with `argv` (default: the process's own) and returns its exit code. Never raises.

    The process's own stdout is given back to nobody: what functions leave to run at its end may print as well.
    """
    if argv is None:
        open_standard_streams()
    args = list(sys.argv[1:] if argv is None else argv)
    if not args or args in (["--help"], ["-h"], ["help"]):
        return _print_overview()
    if args[0] == COMPLETE:
        from abscli.cli.offers import complete
        from formats import bounds

        if argv is None:
            bounds.own_process()
        return complete(args[1:])
    if args[0] not in WITH_FUNCTIONS:  # the threads of numpy's BLAS cost 0.1 s to start, and nothing here needs them
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from abscli.cli import output
    from formats import bounds

    output.voice.quiet, output.voice.verbose, output.voice.form = False, 0, output.LogForm.TEXT
    try:
        try:
            from abscli.cli.app import app

            if argv is None:
                bounds.own_process()
            if next((word for word in args if word in COMMANDS), None) not in UNBOUNDED:
                bounds.bound_memory()
            code = app(args, prog_name="abs", standalone_mode=False)
        except SystemExit as leaving:
            code = leaving.code
    except BrokenPipeError:
        code = 0
    except BaseException as error:
        code = _report_in_memory(error, args)
    output.flush()
    if argv is not None:
        give_back_stdout()
    return code if isinstance(code, int) else 0


def _print_overview() -> int:
    from abscli.cli import output

    output.emit_text(overview(width()))
    return 0


def _report_in_memory(error: BaseException, args: list[str]) -> int:
    """Report an error, also where there is no memory left for that: what the command holds is given up first, and its
    bound is lifted. Return the exit code."""
    from formats import bounds

    if not _is_out_of_memory(error):
        from formats.packages import as_missing_package

        missing = as_missing_package(error)
        try:
            return _report(missing or error, args)
        except ImportError:  # the package that is missing is one that reports are made with
            if missing is None:
                raise
            os.write(2, f"abs: error: {missing.message}\nhint: {missing.hint}\n".encode())
            return MISSING_PACKAGE
    shortage = error if isinstance(error, MemoryError) else MemoryError(str(error))
    message = bounds.too_much()
    bounds.lift_bound()
    _give_up_values(error)
    try:
        return _report(OutOfMemory(message).with_traceback(shortage.__traceback__), args)
    except MemoryError:
        os.write(2, f"abs: error: {message}\n".encode())
        return OutOfMemory.exit_code


class OutOfMemory(MemoryError):
    """A command has taken as much memory as it may, or as there is."""

    exit_code = 6


def _is_out_of_memory(error: BaseException) -> bool:
    """Tell whether memory has ended: the system says so in several ways, such as a library that cannot be loaded."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if isinstance(error, ImportError | RuntimeError | SystemError):
        return any(text in str(error) for text in ("annot allocate memory", "can't start new thread"))
    return isinstance(error, MemoryError)


def _give_up_values(error: BaseException | None) -> None:
    """Release the variables of the functions in which an error, and those that it followed, arose."""
    import gc
    import traceback

    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
    gc.collect()


def _report(error: BaseException, args: list[str]) -> int:
    """Says on stderr what went wrong, as one JSON object if that form was asked for; returns the exit code."""
    from abscli.cli import exits, output
    from abscli.cli.hints import store_hint
    from abscli.text.columns import clean

    fault = exits.fault(error)
    if _wants_log_in_json(args, os.environ):  # where the options could not be read, nobody has set it
        output.voice.form = output.LogForm.JSON
    if output.voice.verbose > 1:
        import traceback

        output.say("".join(traceback.format_exception(error)).rstrip())
    message, hint = _message(error, fault.code)
    path = _path(error)
    hint = store_hint(error, path, args) or hint
    report: dict[str, Any] = {
        "schema": "abs.error", "version": FORMAT_VERSION, "code": fault.code, "name": fault.name,
        "message": message, "hint": hint, "path": path,
    }
    if mistakes := _mistakes(error):
        report["errors"] = mistakes
    if output.voice.form is output.LogForm.JSON:
        output.log_error(report)
        return fault.code
    if wanted_form(args, os.environ) in ("json", "ndjson"):
        import json

        output.say(json.dumps(report).replace("\x7f", "\\u007f"))
        return fault.code
    bold, plain = ("\x1b[1;31m", "\x1b[0m") if output.colour(sys.stderr) else ("", "")
    if path and path not in message:
        message = f"{path}: {message}"
    elif _mistakes(error):
        errors = message.count("\n") + 1
        message = f"{path or 'input'} is invalid: {errors} error{'s'[: errors != 1]}\n{message}"
    first, *rest = (clean(line) for line in message.split("\n"))  # it may quote what a damaged file says
    output.say("\n".join([f"{bold}abs: error:{plain} {first}", *rest]))
    if not hint:
        hints = [f"hint: line {mistake['line']}: {mistake['hint']}" for mistake in _mistakes(error) if mistake["hint"]]
        for line in dict.fromkeys(hints):
            output.say(line)
    else:
        output.say(f"hint: {clean(hint)}")
    return fault.code


def _message(error: BaseException, code: int) -> tuple[str, str | None]:
    """What happened, and what to do next."""
    from typer import Abort, TyperException

    if isinstance(error, KeyboardInterrupt | Abort):
        return "interrupted", None
    if isinstance(error, TyperException):
        return _sentence(error.format_message()), _usage_hint(error)
    if isinstance(error, OSError) and code != 1:
        return error.strerror or str(error), getattr(error, "hint", _system_hint(error))
    if isinstance(error, MemoryError):
        return str(error), "`abs validate` finds files that were manipulated; ABS_MEMORY=4G raises the limit"
    if code == 1 and not hasattr(error, "exit_code"):
        text = " ".join(str(error).split())
        return (
            f"unexpected {type(error).__name__}{': ' + text if text else ''}",
            "this is a bug; run with -vv for the traceback",
        )
    return str(error), getattr(error, "hint", None)


def _system_hint(error: OSError) -> str | None:
    """What to do about an error of the system, where its kind tells."""
    from abscli.cli import exits
    from formats.storage import no_directory

    if isinstance(error, PermissionError) and "://" in str(error.filename):
        return "check that the credentials are valid and may read and write there"
    if isinstance(error, PermissionError):
        return "run it as a user with the permission, such as the user of the job"
    folder = os.path.dirname(os.path.abspath(path)) if (path := _path(error)) else ""
    if error.errno == errno.EROFS:
        return "it can be read as it is; to change it, mount its file system for writing, or work on a copy elsewhere"
    if isinstance(error, IsADirectoryError) and path:
        return f"{path} is a directory: name a file in it, or elsewhere"
    if folder and (obstacle := no_directory(os.path.join(folder, "file"))):
        return f"{obstacle}, where a directory is needed: move it away, or name another path"
    if isinstance(error, FileNotFoundError) and folder and not os.path.isdir(folder):
        return f"create the directory {folder}, or choose another file"
    if exits.fault(error).code == exits.STOPPED and folder:
        return f"free space on the disk of {path}, then run the same command again"
    return None


def _mistakes(error: BaseException) -> list[dict[str, Any]]:
    """All that is wrong with a file that people write; none of another error."""
    from formats.user_file.mistakes import BadFile

    if not isinstance(error, BadFile):
        return []
    return [
        {"line": mistake.line, "column": mistake.column, "message": mistake.message, "hint": mistake.hint}
        for mistake in error.mistakes
    ]


def _usage_hint(error: BaseException) -> str:
    from abscli.cli.synonyms import meant_options

    context = getattr(error, "ctx", None)
    path = context.command_path if context else "abs"
    known = [name for param in context.command.params for name in param.opts] if context else []
    if others := meant_options(getattr(error, "option_name", None) or "", known):
        return f"did you mean {' '.join(others)}? '{path} --help' lists the options"
    return f"'{path} --help' lists the {'commands' if path == 'abs' else 'options'}"


def _sentence(text: str) -> str:
    """Typer's messages in the form of ours: no capital at the start, no full stop at the end."""
    text = " ".join(stripped for line in text.split("\n") if (stripped := line.strip()))
    return (text[:1].lower() + text[1:]).removesuffix(".")


def _path(error: BaseException) -> str | None:
    path = getattr(error, "path", None)
    if path is None and isinstance(error, OSError):
        path = error.filename
    return os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else None


def wanted_form(args: Sequence[str], environment: Mapping[str, str]) -> str:
    """The output form as far as `args` and the environment tell, for errors that come before or during parsing."""
    form, command = None, None
    words = iter(args)
    for word in words:
        if word == "--":
            break
        short = re.fullmatch(r"-[qv]*o(.*)", word)
        if word == "--output" or (short and not short[1]):
            form = next(words, None)
        elif word.startswith("--output="):
            form = word.partition("=")[2]
        elif short:
            form = short[1]
        elif command is None and word in COMMANDS:
            command = word.replace("-", "_").upper()
    return form or (command and environment.get(f"ABS_{command}_OUTPUT")) or environment.get("ABS_OUTPUT") or "table"


def _wants_log_in_json(args: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether errors are lines of a log, as far as `args` and the environment tell."""
    words = args[: args.index("--")] if "--" in args else args
    if next((word for word in words if word in COMMANDS), None) not in WITH_LOGS:
        return False
    given = re.findall(r"(?:^|\n)--log-format[=\n](\w*)", "\n".join(words))
    return (given[-1] if given else environment.get("ABS_LOG_FORMAT")) == "json"


if __name__ == "__main__":
    sys.exit(main())
