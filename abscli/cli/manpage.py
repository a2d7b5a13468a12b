"""Man pages from the command line's data, in the man(7) language."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from abscli.text.pages import Argument, Option, Page

_ENVIRONMENT = (
    ("ABS_OUTPUT", "Form of the result, for all commands."),
    ("ABS_MEMORY", "Memory that a command which only reads may take, such as 4G; 832M if not given, 0 for no bound."),
    ("ABS_LOG_FORMAT", "Form of what is said on stderr, for commands that run jobs."),
    ("ABS_MASTER", "Spark master, for all commands that start Spark."),
    ("ABS_ENDPOINT", "Where S3 answers, for all commands that are given the place of a store."),
    ("ABS_REGION", "The region of S3's buckets, for the same commands."),
    ("ABS_CONFIG", "File of defaults in place of abs.toml in the current folder; empty: none is read."),
    ("NO_COLOR", "When it is not empty, nothing is coloured."),
    ("FORCE_COLOR", "When it is not empty, colours are used though the output is no terminal."),
    ("COLUMNS", "Width of the output; otherwise that of the terminal, or 80."),
    ("JAVA_HOME", "The Java, 17 or later, that Spark runs on."),
)


def manpage(page: Page, pages: Sequence[Page], *, version: str, date: str) -> str:
    """The page of one command; `pages` are all of them. date: of the version, `` where it has none."""
    lines = [
        f".TH {page.title.upper().replace('-', chr(92) + '-')} 1 {_quoted(date)} {_quoted('abs ' + version)} "
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
    if option.choices:
        text += f" One of {', '.join(option.choices)}."
    if option.default is not None:
        text += f" Default: {option.default}."
    if option.required:
        text += " Required."
    yield from _wrapped(text)


def _value(option: Option) -> str:
    return "|".join(option.choices) if option.choices else option.metavar or ""


def _environment(page: Page) -> Iterator[str]:
    named = [(option.names[-1], option.environment[0]) for option in page.options if option.environment]
    if page.name:
        yield "Every option can be given as a variable; the command line goes before it. In"
        yield r"\fBabs.toml\fR in the current folder, or the file that"
        yield rf"\fBABS_CONFIG\fR names, options stand under \fB[{page.name}]\fR by their names"
        yield "without dashes: variables go before them."
        for option, variable in named:
            yield from (".TP", f".B {_plain(variable)}", rf"As \fB{_plain(option)}\fR.")
    else:
        yield r"Every option of a command can be given as"
        yield r"\fBABS_\fICOMMAND\fB_\fIOPTION\fR, such as"
        yield r"\fBABS_RUN_INTERVAL\fR; the command line goes before it."
    shared = [pair for pair in _ENVIRONMENT if not page.name or _concerns(pair[0], page)]
    for variable, text in shared:
        yield from (".TP", f".B {_plain(variable)}", *_wrapped(text))


def _concerns(variable: str, page: Page) -> bool:
    names = {name for option in page.options for name in option.names}
    needs = {"ABS_LOG_FORMAT": "--log-format", "ABS_MASTER": "--master", "JAVA_HOME": "--master",
             "ABS_ENDPOINT": "--endpoint", "ABS_REGION": "--region"}  # fmt: skip
    return needs.get(variable, "--output") in names


def _see_also(page: Page, pages: Sequence[Page]) -> Iterator[str]:
    others = [other for other in pages if other is not page]
    for number, other in enumerate(others):
        yield f".BR {_plain(other.title)} (1)" + ("," if number + 1 < len(others) else "")


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
