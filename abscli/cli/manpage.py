"""Man pages from the command line's data, in the man(7) language."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from abscli.text.pages import Argument, Option, Page

_ENVIRONMENT = (
    ("ABS_OUTPUT", "Output format, for all commands."),
    ("ABS_MEMORY", "Memory limit of commands that only read, such as 4G. Default: 832M; 0 for no limit."),
    ("ABS_LOG_FORMAT", "Format of messages on stderr, for commands that run jobs."),
    ("ABS_MASTER", "Spark master, for all commands that start Spark."),
    ("ABS_ENDPOINT", "S3 endpoint, for all commands that take the location of a store."),
    ("ABS_REGION", "S3 region, for the same commands."),
    ("ABS_CONFIG", "Configuration file to read instead of abs.toml; if empty, none is read."),
    ("NO_COLOR", "If not empty, no colours are used."),
    ("FORCE_COLOR", "If not empty, colours are used although the output is not a terminal."),
    ("COLUMNS", "Width of the output. Default: the width of the terminal, or 80."),
    ("JAVA_HOME", "Java 17 or later, for Spark."),
)


def manpage(page: Page, pages: Sequence[Page], *, version: str, date: str) -> str:
    """Return the man page of one command. pages: all pages, for the references; date: YYYY-MM-DD."""
    lines = [
        f".TH {page.title.upper().replace('-', chr(92) + '-')} 1 \"{date}\" {_quoted('abs ' + version)} "
        '"User Commands"',
        ".SH NAME",
        f"{_plain(page.title)} \\- {_plain(_lower(page.summary))}",
        ".SH SYNOPSIS",
        *_synopsis(page),
        ".SH DESCRIPTION",
        *_paragraphs(page.description),
    ]
    if not page.name:
        lines += [".SH COMMANDS", *_commands(pages)]
    if page.arguments:
        lines += [".SH ARGUMENTS", *(line for argument in page.arguments for line in _argument(argument))]
    lines += [
        ".SH OPTIONS",
        *(line for option in page.options for line in _option(option)),
        ".SH ENVIRONMENT",
        *_environment(page),
        ".SH EXIT STATUS",
        *(line for code, text in page.exit_status for line in (".TP", f".B {code}", *_wrapped(text))),
        ".SH EXAMPLES",
        *(line for command, text in page.examples for line in (".TP", f".B {_plain(command)}", *_wrapped(text))),
        ".SH SEE ALSO",
        *_see_also(page, pages),
    ]
    return "\n".join(lines) + "\n"


def _synopsis(page: Page) -> Iterator[str]:
    words = [r"\fBabs\fR" if not page.name else rf"\fBabs {_plain(page.name)}\fR"]
    words += [
        rf"\fB{_plain(option.names[-1])}\fR \fI{_plain(_value(option))}\fR"
        for option in page.options
        if option.required
    ]
    words.append(r"[\fIOPTIONS\fR]")
    if not page.name:
        words += [r"\fICOMMAND\fR", r"[\fIARGS\fR...]"]
    for argument in page.arguments:
        name = rf"\fI{_plain(argument.metavar)}\fR"
        words.append(name if argument.required else f"[{name}]")
    yield " ".join(words)


def _paragraphs(paragraphs: Sequence[str]) -> Iterator[str]:
    for number, paragraph in enumerate(paragraphs):
        if number:
            yield ".PP"
        yield from _wrapped(paragraph)


def _commands(pages: Sequence[Page]) -> Iterator[str]:
    for page in pages:
        if page.name:
            yield ".TP"
            yield rf"\fB{_plain(page.title)}\fR(1)"
            yield from _wrapped(page.summary)


def _argument(argument: Argument) -> Iterator[str]:
    yield ".TP"
    yield rf"\fI{_plain(argument.metavar)}\fR"
    yield from _wrapped(argument.help)


def _option(option: Option) -> Iterator[str]:
    names = ", ".join(rf"\fB{_plain(name)}\fR" for name in option.names)
    yield ".TP"
    yield names if option.metavar is None else rf"{names} \fI{_plain(_value(option))}\fR"
    text = option.help
    if option.default is not None:
        text += f" Default: {option.default}."
    if option.required:
        text += " Required."
    yield from _wrapped(text)


def _value(option: Option) -> str:
    return "|".join(option.choices) if option.choices else option.metavar or ""


def _environment(page: Page) -> Iterator[str]:
    if page.name:
        prefix = _plain(f"ABS_{page.name.upper().replace('-', '_')}_")
        yield "Options can also be set by variables,"
        yield rf"\fB{prefix}\fIOPTION\fR, and in \fBabs.toml\fR under \fB[{_plain(page.name)}]\fR."
        yield "The command line overrides variables, and variables override"
        yield r"\fBabs.toml\fR."
        chosen = [option.names[-1] for option in page.options if option.needs_chosen_file]
        if chosen:
            names = [rf"\fB{_plain(name)}\fR" for name in chosen]
            yield "Not read from the file in the current directory:"
            yield from (f"{name}{',' if number < len(names) else '.'}" for number, name in enumerate(names, 1))
    else:
        yield "Options of a command can also be set by variables,"
        yield r"\fBABS_\fICOMMAND\fB_\fIOPTION\fR, such as \fBABS_RUN_INTERVAL\fR."
        yield "The command line overrides variables."
    shared = [pair for pair in _ENVIRONMENT if not page.name or _concerns(pair[0], page)]
    for variable, text in shared:
        yield from (".TP", f".B {_plain(variable)}", *_wrapped(text))


def _concerns(variable: str, page: Page) -> bool:
    names = {name for option in page.options for name in option.names}
    needs = {"ABS_LOG_FORMAT": "--log-format", "ABS_MASTER": "--master", "JAVA_HOME": "--master",
             "ABS_ENDPOINT": "--endpoint", "ABS_REGION": "--region"}  # fmt: skip
    return needs.get(variable, "--output") in names


def _see_also(page: Page, pages: Sequence[Page]) -> Iterator[str]:
    others = [other for other in pages if other.name in page.see_also] if page.name else pages[1:]
    for other in [*(pages[:1] if page.name else []), *others]:
        yield f".BR {_plain(other.title)} (1),"
    yield rf"guide page \fI{_plain(page.guide)}\fR"


def _lower(summary: str) -> str:
    return (summary[:1].lower() + summary[1:]).rstrip(".")


def _quoted(text: str) -> str:
    return '"' + _plain(text).replace('"', r"\(dq") + '"'


def _wrapped(text: str) -> Iterator[str]:
    """Text on short lines, which mandoc's check asks for."""
    for line in textwrap.wrap(" ".join(text.split()), 68, break_long_words=False, break_on_hyphens=False):
        yield _plain(line)


def _plain(text: str) -> str:
    """Text that troff prints as it stands: backslashes, hyphens that are minus signs, dots at the start of a line."""
    text = text.replace("\\", r"\e").replace("-", r"\-").replace("'", r"\(aq").replace("`", r"\(ga")
    text = text.replace("^", r"\(ha").replace("~", r"\(ti")
    return r"\&" + text if text.startswith(".") else text
